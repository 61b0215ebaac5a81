//! The lines `cpuN` of `/proc/stat` (proc_stat(5)): CPU time by what it was spent on.

use super::ParseError;
use super::fields::{decimal, lines, words};

/// Time of one CPU since boot, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTime {
    /// Time of work of any kind, virtual machines' guests included.
    pub busy: u64,
    /// Idle time, waiting for devices included.
    pub idle: u64,
}

/// Positions of the idle times among the numbers of a line.
const IDLE: usize = 3;
const IO_WAIT: usize = 4;
/// Number of the numbers to add. Later ones are guests' times, which the first two include.
const LAST: usize = 7;

/// The kernel's numbers of all CPUs that are online, with their times.
///
/// # Errors
/// A line of a CPU without four numbers.
pub fn parse(bytes: &[u8]) -> Result<Vec<(u32, CpuTime)>, ParseError> {
    let mut all = Vec::new();
    for (number, line) in lines(bytes) {
        let mut parts = words(line);
        let name = parts.next().unwrap_or_default();
        // The line `cpu` is the sum of the others.
        let Some(digits) = name.strip_prefix(b"cpu").filter(|rest| !rest.is_empty()) else {
            continue;
        };
        let fail = || ParseError::new(number, "cpuN and at least 4 numbers", line);
        let cpu = decimal(digits).and_then(|cpu| u32::try_from(cpu).ok()).ok_or_else(fail)?;
        let times: Option<Vec<u64>> = parts.map(decimal).collect();
        let times = times.filter(|times| times.len() > IDLE).ok_or_else(fail)?;
        let mut time = CpuTime::default();
        for (place, ticks) in times.into_iter().take(LAST + 1).enumerate() {
            let sum = if matches!(place, IDLE | IO_WAIT) { &mut time.idle } else { &mut time.busy };
            *sum = sum.saturating_add(ticks);
        }
        all.push((cpu, time));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_idleness_are_told_apart_and_guests_are_not_counted_twice() {
        let text = b"cpu  11 0 0 9\ncpu0 1 2 3 40 50 6 7 8 1 2\ncpu12 1 0 0 4\nintr 5\n";
        let expected = [(0, CpuTime { busy: 27, idle: 90 }), (12, CpuTime { busy: 1, idle: 4 })];
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let error = parse(b"cpu 1\ncpu0 1 2 3\n").unwrap_err().to_string();
        assert_eq!(error, "line 2: expected cpuN and at least 4 numbers, found `cpu0 1 2 3`");
        assert!(parse(b"cpux 1 2 3 4\n").is_err());
        assert!(parse(b"cpu0 1 2 3 -4\n").is_err());
    }
}
