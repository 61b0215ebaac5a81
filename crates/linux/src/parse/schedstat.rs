//! `/proc/PID/task/TID/schedstat`: time on a CPU, time waiting for one, number of time slices.

use super::ParseError;
use super::fields::number_row;

/// Scheduling statistics of a thread since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedStat {
    /// Time spent on a CPU, ns.
    pub running_ns: u64,
    /// Time spent runnable but waiting, ns.
    pub waiting_ns: u64,
    /// Number of times that it was put on a CPU.
    pub slices: u64,
}

/// Parses the three numbers.
///
/// # Errors
/// Fewer than three, or no numbers.
pub fn parse(bytes: &[u8]) -> Result<SchedStat, ParseError> {
    match number_row(bytes)?[..] {
        [running_ns, waiting_ns, slices, ..] => Ok(SchedStat { running_ns, waiting_ns, slices }),
        _ => Err(ParseError::new(1, "three numbers", bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers_are_read() {
        let stat = parse(b"644113 100 1\n").unwrap();
        assert_eq!(stat, SchedStat { running_ns: 644_113, waiting_ns: 100, slices: 1 });
        assert!(parse(b"1 2\n").is_err());
    }
}
