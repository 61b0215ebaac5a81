//! Sizes as people write them: `64K`, `16G`, `1.5M`, or plain bytes. Powers of 1024.

use serde::{Deserialize, Deserializer, de};

const UNITS: [(char, u64); 4] = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40)];

/// The bytes of a size such as `64K`, `16G`, `1.5M` or plain bytes. `None` for any other text or a
/// fraction of a byte.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
    let (number, factor) = match unit {
        Some((letter, factor)) => (text.strip_suffix(*letter)?, *factor),
        None => (text, 1),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let digits = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let bytes = number.parse::<f64>().ok().filter(|_| digits)? * factor as f64;
    (bytes.fract() == 0.0 && bytes < 2f64.powi(53)).then_some(bytes as u64)
}

/// The text of a size, in the largest unit that divides it.
pub(crate) fn format(bytes: u64) -> String {
    let unit = UNITS.iter().rev().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    match unit {
        Some((letter, factor)) => format!("{}{letter}", bytes / factor),
        None => bytes.to_string(),
    }
}

/// Deserializes a size: a TOML string like `"64K"` or an integer of bytes.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a size like \"512K\", \"16G\" or a number of bytes")]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    match Size::deserialize(deserializer)? {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Text(text) => parse(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "expected a size like \"512K\", \"16G\" or a number of bytes, got \"{text}\""
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_write_alike() {
        for (text, bytes) in [("64K", 65536), ("16G", 16 << 30), ("1.5M", 3 << 19), ("0", 0)] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        assert_eq!(format(3 << 19), "1536K");
        assert_eq!(format(100), "100");
        assert_eq!(format(0), "0");
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "G", "-1K", "1e3", "12Q", "0.3", "nan", "99999999999T", " 1K"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
