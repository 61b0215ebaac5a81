//! Numbers, words and lines in byte strings: what all the kernel's formats are made of.

use super::ParseError;

/// The lines of a file, with their numbers from 1 and without their ends.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes.split(|&byte| byte == b'\n').enumerate().map(|(index, line)| (index + 1, line))
}

/// The words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A decimal number without a sign.
#[must_use]
pub fn decimal(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A hexadecimal number without a prefix.
#[must_use]
pub fn hexadecimal(word: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()
}

/// A file that holds one decimal number, as most of sysfs do.
///
/// # Errors
/// Anything else.
pub fn single_number(bytes: &[u8]) -> Result<u64, ParseError> {
    decimal(bytes.trim_ascii()).ok_or_else(|| ParseError::new(1, "one decimal number", bytes))
}

/// A file of decimal numbers on one line, as `node*/distance`.
///
/// # Errors
/// A word that is no number, or no number at all.
pub fn number_row(bytes: &[u8]) -> Result<Vec<u64>, ParseError> {
    let row: Option<Vec<u64>> = words(bytes).map(decimal).collect();
    row.filter(|row| !row.is_empty())
        .ok_or_else(|| ParseError::new(1, "decimal numbers on one line", bytes))
}

/// A cache size as sysfs writes it (`32K`, `16384K`, `2M`), in bytes.
///
/// # Errors
/// Anything else.
pub fn size(bytes: &[u8]) -> Result<u64, ParseError> {
    let text = bytes.trim_ascii();
    let (number, factor) = match text.last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    decimal(number)
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| ParseError::new(1, "a size such as 32K", bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_or_none() {
        assert_eq!(size(b"32K\n").unwrap(), 32 << 10);
        assert_eq!(size(b"2M").unwrap(), 2 << 20);
        assert_eq!(size(b"77").unwrap(), 77);
        for bad in [&b""[..], b"K", b"1T", b"-4K", b"99999999999999999999K", b"18014398509481984K"]
        {
            assert!(size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn rows_of_numbers_are_numbers_only() {
        assert_eq!(number_row(b"10 21 21\n").unwrap(), [10, 21, 21]);
        let error = number_row(b"10 x").unwrap_err().to_string();
        assert_eq!(error, "line 1: expected decimal numbers on one line, found `10 x`");
        assert!(number_row(b"\n").is_err());
    }
}
