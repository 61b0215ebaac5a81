//! `/proc/uptime` (proc_uptime(5)): seconds since boot, and seconds for which CPUs were idle.

use super::ParseError;
use super::fields::{decimal, words};

/// Hundredths of a second in nanoseconds.
const HUNDREDTH_NS: u64 = 10_000_000;

/// Idle time since boot, added up over all CPUs, in nanoseconds; waiting for devices is not
/// included.
///
/// # Errors
/// There is no second number with two decimal places.
pub fn idle_ns(bytes: &[u8]) -> Result<u64, ParseError> {
    let parsed = words(bytes).nth(1).and_then(|word| {
        let (seconds, hundredths) = word.split_at_checked(word.len().checked_sub(3)?)?;
        let hundredths = decimal(hundredths.strip_prefix(b".")?)?;
        let all = decimal(seconds)?.checked_mul(100)?.checked_add(hundredths)?;
        all.checked_mul(HUNDREDTH_NS)
    });
    parsed.ok_or_else(|| ParseError::new(1, "two times in seconds", bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_is_idle_time() {
        assert_eq!(idle_ns(b"13186.36 2873.72\n").unwrap(), 2_873_720_000_000);
        assert_eq!(idle_ns(b"0.00 0.05\n").unwrap(), 50_000_000);
        for wrong in ["", "5.00\n", "5.00 7\n", "5.00 -1.00\n", "5.00 99999999999999999999.00\n"] {
            assert!(idle_ns(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
