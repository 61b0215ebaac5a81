//! `/etc/passwd` and `/etc/group` (passwd(5), group(5)): the number behind a name, without the
//! system's name service, which a static program cannot load.

/// The number of a user or a group of this name; `None` if no line has it. Malformed lines are
/// skipped.
#[must_use]
pub fn number_of(file: &[u8], name: &str) -> Option<u32> {
    file.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let is_it = fields.next()? == name.as_bytes() && !name.is_empty();
        let number = fields.nth(1).filter(|_| is_it)?;
        std::str::from_utf8(number).ok()?.parse().ok()
    })
}

/// `(number, primary group)` of a user of `/etc/passwd` with this name or number; `None` if no line
/// has it.
#[must_use]
pub fn user_of(passwd: &[u8], named: &str) -> Option<(u32, u32)> {
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u32>().ok();
    passwd.split(|byte| *byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let [name, _, user, group, ..] = fields[..] else { return None };
        let is_it = !name.is_empty() && [name, user].contains(&named.as_bytes());
        Some((number(user).filter(|_| is_it)?, number(group)?))
    })
}

/// `(name, home)` of the user of `/etc/passwd` with this number; `None` if no line has it.
#[must_use]
pub fn name_and_home(passwd: &[u8], user: u32) -> Option<(&[u8], &[u8])> {
    let user = user.to_string();
    passwd.split(|byte| *byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let [name, _, number, _, _, home, ..] = fields[..] else { return None };
        (!name.is_empty() && number == user.as_bytes()).then_some((name, home))
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

    #[test]
    fn a_user_is_found_by_name_and_by_number_with_the_main_group() {
        let passwd = b"root:x:0:0::/:/bin/sh\nbroken:x:7\nada:x:1000:1001:Ada:/:/bin/sh\n";
        assert_eq!(user_of(passwd, "ada"), Some((1000, 1001)));
        assert_eq!(user_of(passwd, "1000"), Some((1000, 1001)));
        assert_eq!(user_of(passwd, "0"), Some((0, 0)));
        for nobody in ["broken", "7", "1001", "x", ""] {
            assert_eq!(user_of(passwd, nobody), None, "{nobody}");
        }
        assert_eq!(name_and_home(passwd, 1000), Some((&b"ada"[..], &b"/"[..])));
        assert_eq!((name_and_home(passwd, 7), name_and_home(passwd, 1001)), (None, None));
    }
}
