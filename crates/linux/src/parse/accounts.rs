//! `/etc/passwd` and `/etc/group` (passwd(5), group(5)): the number behind a name, without the
//! system's name service, which a static program cannot load.

/// The number of a user or a group of this name; `None` where no line has it. Lines that are
/// malformed are no one's.
#[must_use]
pub fn number_of(file: &[u8], name: &str) -> Option<u32> {
    file.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let is_it = fields.next()? == name.as_bytes() && !name.is_empty();
        let number = fields.nth(1).filter(|_| is_it)?;
        std::str::from_utf8(number).ok()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_number_of_its_whole_line_only() {
        let group = b"root:x:0:\nrondpoint2:x:7:\nbroken\nrondpoint:x:990:ada,bob\n+nis::\n";
        assert_eq!(number_of(group, "rondpoint"), Some(990));
        assert_eq!(number_of(group, "root"), Some(0));
        for nobody in ["ada", "rondpoin", "x", "broken", "+nis", ""] {
            assert_eq!(number_of(group, nobody), None, "{nobody}");
        }
        let passwd = b"ada:x:1000:1000:Ada:/nonexistent:/bin/sh";
        assert_eq!(number_of(passwd, "ada"), Some(1000));
    }
}
