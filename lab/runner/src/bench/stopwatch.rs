//! Measures the host time of a guest program: wall time and QEMU's CPU time between the guest's
//! `Started` and `Finished` reports.
//!
//! The interval excludes boot and power-off. Its error is one poll at each end (5 ms). It includes
//! the loading of the program, and switching the model on and off. The alternative, whole runs less
//! runs that only boot, would subtract two large numbers, and charge a plugin for a slow boot.

use std::fs;
use std::path::Path;
use std::time::Instant;

use rondpoint_lab_init::Event;

/// Unit of the times in `/proc/PID/stat` (USER_HZ; 100 on every architecture that Linux has in
/// common).
const TICKS_PER_S: f64 = 100.0;

/// Host time of one guest program, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HostTime {
    pub(crate) wall_s: f64,
    /// User and system time of all of QEMU's threads: what other load on the host does not change
    /// much.
    pub(crate) cpu_s: f64,
}

/// Watches the report file.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    started: Option<(Instant, f64)>,
    finished: Option<(Instant, f64)>,
}

impl Stopwatch {
    /// One look: notes the time when an event is there for the first time.
    pub(crate) fn look(&mut self, pid: u32, report: &Path) {
        if self.finished.is_some() {
            return;
        }
        let text = fs::read_to_string(report).unwrap_or_default();
        let (started, finished) = seen(&text);
        if started && self.started.is_none() {
            self.started = now(pid);
        }
        if finished {
            self.finished = now(pid);
        }
    }

    /// The time between the two events; `None` if one of them was not seen.
    pub(crate) fn elapsed(&self) -> Option<HostTime> {
        let ((start, cpu_before), (end, cpu_after)) = (self.started?, self.finished?);
        let wall_s = end.duration_since(start).as_secs_f64();
        Some(HostTime { wall_s, cpu_s: cpu_after - cpu_before })
    }
}

fn now(pid: u32) -> Option<(Instant, f64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some((Instant::now(), cpu_seconds(&stat)?))
}

/// User plus system time in a line of `/proc/PID/stat`. The command's name may hold blanks and
/// brackets, so fields are counted from the last bracket (`man 5 proc_pid_stat`: fields 14 and 15).
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<f64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some((user + system) / TICKS_PER_S)
}

/// Whether `Started` and `Finished` are among the complete lines.
fn seen(text: &str) -> (bool, bool) {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let (mut started, mut finished) = (false, false);
    for line in complete.lines() {
        match serde_json::from_str(line) {
            Ok(Event::Started { .. }) => started = true,
            Ok(Event::Finished { .. }) => finished = true,
            _ => {}
        }
    }
    (started, finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_lines_count() {
        let started = r#"{"event":"started","kernel":"6.12","pmu":false}"#;
        assert_eq!(seen(started), (false, false));
        assert_eq!(seen(&format!("{started}\n{{\"event\":\"fin")), (true, false));
        let finished = r#"{"event":"finished","model_on_ns":0,"elapsed_ns":1,"ending":{"exit":0},"max_rss_kib":1,"vmstat":{}}"#;
        assert_eq!(seen(&format!("{started}\n{finished}\n")), (true, true));
        assert_eq!(seen("no json\n"), (false, false));
    }

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 0 10 0 0 0 250 50 0 0 20 0 1 0 99";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (a) S 1 7"), None);
        assert!(now(std::process::id()).is_some());
    }
}
