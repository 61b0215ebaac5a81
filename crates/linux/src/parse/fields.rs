//! Numbers, words and lines in byte strings: what all the kernel's formats are made of.
//!
//! NUL counts as white space. tar(1) stores a live sysfs attribute as 4096 bytes, the size that
//! stat(2) reports: the text, then NUL bytes.

use super::ParseError;

/// Whether a byte is white space or padding of the kernel's files.
#[must_use]
pub fn is_space(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || *byte == 0
}

/// The text without white space and padding at both ends.
#[must_use]
pub fn trim(text: &[u8]) -> &[u8] {
    let Some(first) = text.iter().position(|byte| !is_space(byte)) else { return &[] };
    let last = text.iter().rposition(|byte| !is_space(byte)).unwrap_or(first);
    &text[first..=last]
}

/// The text without white space and padding at its end.
#[must_use]
pub fn trim_end(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !is_space(byte)).map_or(0, |last| last + 1);
    &text[..end]
}

/// The lines of a file with their numbers from 1, without newlines.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = bytes.split(|&byte| byte == b'\n').enumerate();
    lines.map(|(index, line)| (index + 1, trim_end(line)))
}

/// The words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(is_space).filter(|word| !word.is_empty())
}

/// Parses a decimal number: digits only, no sign.
#[must_use]
pub fn decimal(word: &[u8]) -> Option<u64> {
    number(word, 10)
}

/// Parses a hexadecimal number: digits only, no prefix, no sign.
#[must_use]
pub fn hexadecimal(word: &[u8]) -> Option<u64> {
    number(word, 16)
}

/// Parses a number. Unlike `str::parse`, it refuses `+`.
fn number(word: &[u8], radix: u32) -> Option<u64> {
    let digit = |byte: &u8| char::from(*byte).to_digit(radix).map(u64::from);
    let add = |sum: u64, byte: &u8| sum.checked_mul(radix.into())?.checked_add(digit(byte)?);
    if word.is_empty() { None } else { word.iter().try_fold(0, add) }
}

/// Parses a file with one decimal number, as most of sysfs have.
///
/// # Errors
/// Anything else.
pub fn single_number(bytes: &[u8]) -> Result<u64, ParseError> {
    decimal(trim(bytes)).ok_or_else(|| ParseError::new(1, "one decimal number", bytes))
}

/// Parses a file with one hexadecimal number, such as `block_size_bytes`.
///
/// # Errors
/// Anything else.
pub fn single_hexadecimal(bytes: &[u8]) -> Result<u64, ParseError> {
    hexadecimal(trim(bytes)).ok_or_else(|| ParseError::new(1, "one hexadecimal number", bytes))
}

/// Parses a file with decimal numbers on one line, such as `node*/distance`.
///
/// # Errors
/// A word is no number, or there is no number.
pub fn number_row(bytes: &[u8]) -> Result<Vec<u64>, ParseError> {
    let row: Option<Vec<u64>> = words(bytes).map(decimal).collect();
    row.filter(|row| !row.is_empty())
        .ok_or_else(|| ParseError::new(1, "decimal numbers on one line", bytes))
}

/// Parses a cache size of sysfs (`32K`, `16384K`, `2M`) into bytes.
///
/// # Errors
/// Anything else.
pub fn size(bytes: &[u8]) -> Result<u64, ParseError> {
    let text = trim(bytes);
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
    fn a_number_is_digits_and_nothing_else() {
        assert_eq!(
            (decimal(b"18446744073709551615"), hexadecimal(b"fF")),
            (Some(u64::MAX), Some(255))
        );
        for bad in [&b""[..], b"+1", b"-1", b" 1", b"1_0", b"18446744073709551616", b"1\0"] {
            assert_eq!(decimal(bad), None, "{bad:?}");
        }
        for bad in [&b""[..], b"+1", b"0x1", b"g", b"10000000000000000"] {
            assert_eq!(hexadecimal(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn padding_is_white_space_everywhere() {
        let padded = |text: &[u8]| [text, b"\n", &[0; 100]].concat();
        assert_eq!(single_number(&padded(b"0")).unwrap(), 0);
        assert_eq!(single_hexadecimal(&padded(b"8000000")).unwrap(), 128 << 20);
        assert_eq!(number_row(&padded(b"10 20")).unwrap(), [10, 20]);
        assert_eq!(size(&padded(b"32K")).unwrap(), 32 << 10);
        let text = padded(b"a\0\r");
        let found: Vec<(usize, &[u8])> =
            lines(&text).filter(|(_, line)| !line.is_empty()).collect();
        assert_eq!(found, [(1, &b"a"[..])]);
        assert!(single_number(b"1\x002\n").is_err(), "two numbers");
        assert!(single_number(&[0; 4096]).is_err() && trim(&[0; 9]).is_empty());
    }

    #[test]
    fn rows_of_numbers_are_numbers_only() {
        assert_eq!(number_row(b"10 21 21\n").unwrap(), [10, 21, 21]);
        let error = number_row(b"10 x").unwrap_err().to_string();
        assert_eq!(error, "line 1: expected decimal numbers on one line, found `10 x`");
        assert!(number_row(b"\n").is_err());
    }
}
