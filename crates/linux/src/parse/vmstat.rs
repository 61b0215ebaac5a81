//! `/proc/vmstat` and `node*/vmstat`, `node*/numastat`: a name and a number on each line.

use std::collections::BTreeMap;

use super::ParseError;
use super::fields::{decimal, lines, words};

/// Parses the wanted counters of the file, by name.
///
/// # Errors
/// A line that is not a name and a number.
pub fn parse(
    bytes: &[u8],
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<BTreeMap<String, u64>, ParseError> {
    let mut counters = BTreeMap::new();
    for (number, line) in lines(bytes) {
        let mut parts = words(line);
        let Some(name) = parts.next() else { continue };
        let value = parts.next().and_then(decimal);
        let value = value.ok_or_else(|| ParseError::new(number, "NAME NUMBER", line))?;
        if is_wanted(name) {
            counters.insert(String::from_utf8_lossy(name).into_owned(), value);
        }
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_name() {
        let text = b"numa_hit 2146361\nnuma_miss 0\n";
        let counters = parse(text, |_| true).unwrap();
        assert_eq!(counters["numa_hit"], 2_146_361);
        assert_eq!(counters.len(), 2);
        assert_eq!(parse(text, |name| name.ends_with(b"miss")).unwrap().len(), 1);
        for wanted in [true, false] {
            assert!(parse(b"numa_hit x\n", |_| wanted).is_err());
            let error = parse(b"a 1\nb\n", |_| wanted).unwrap_err();
            assert!(error.to_string().starts_with("line 2:"));
        }
    }
}
