//! Whether counting slows a program much. The cost arises at each switch of a thread on or off a
//! CPU, and at the birth of each task.
//!
//! Measured (*emulated*, with programs in a slow motion of 10):
//! - Two threads that meet at 700 barriers a second lose at most 3 % by counters and samples. Their
//!   own speed differs by 10 % (docs/results/watch-barriers.md).
//! - Eight threads that start one child after the other, 113 a second, lose 9 to 11 % while their
//!   tasks are counted (docs/results/watch-children.md).

use super::IDLE_CPUS;
use crate::observation::{Observation, ProcessObservation, ThreadObservation};
use crate::units::Tid;

/// Time slices per second of CPU time above which counting costs too much (our choice).
const DEAR_SLICES: f64 = 500.0;
/// A birth counts as this many time slices (our choice).
const SLICES_OF_A_BIRTH: f64 = 500.0;

/// Whether counting cost too much for any running process between two observations. `false` if the
/// kernel does not count slices or births.
pub(crate) fn is_dear(before: &Observation, now: &Observation) -> bool {
    let elapsed = now.at.since(before.at).seconds();
    let mut all_seconds = 0.0;
    for process in &now.processes {
        let Some(earlier) = same_process(before, process) else { continue };
        let (slices, seconds) = slices_and_seconds(earlier, process);
        all_seconds += seconds;
        if seconds > IDLE_CPUS * elapsed && slices > DEAR_SLICES * seconds {
            return true;
        }
    }
    // Births count even if no process runs: a process that starts many others may only wait for
    // them.
    now.births.unwrap_or(0) as f64 * SLICES_OF_A_BIRTH > DEAR_SLICES * all_seconds
}

fn slices_and_seconds(before: &ProcessObservation, now: &ProcessObservation) -> (f64, f64) {
    let of_thread = |thread: &ThreadObservation| {
        let earlier = same_thread(before, thread.tid)?;
        let slices = thread.slices.zip(earlier.slices);
        let slices = slices.map_or(0, |(now, before)| now.saturating_sub(before));
        Some((slices as f64, thread.cpu_time.since(earlier.cpu_time).seconds()))
    };
    let threads = now.threads.iter().filter_map(of_thread);
    threads.fold((0.0, 0.0), |(slices, seconds), (more, longer)| (slices + more, seconds + longer))
}

fn same_process<'a>(
    before: &'a Observation,
    process: &ProcessObservation,
) -> Option<&'a ProcessObservation> {
    let place = before.processes.binary_search_by_key(&process.pid, |other| other.pid).ok()?;
    Some(&before.processes[place]).filter(|other| other.started == process.started)
}

fn same_thread(process: &ProcessObservation, tid: Tid) -> Option<&ThreadObservation> {
    let place = process.threads.binary_search_by_key(&tid, |other| other.tid).ok()?;
    Some(&process.threads[place])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Nanos, Pid};
    use alloc::vec;

    /// A thread has run for 5 s. In the next second it is put on a CPU `slices` times and runs for
    /// `ms` milliseconds.
    fn check(births: Option<u64>, slices: Option<u64>, ms: u64) -> bool {
        let at = |second, slices: Option<u64>, ms, births| {
            let cpu_time = Nanos::from_millis(5000 + ms);
            let threads = vec![ThreadObservation {
                tid: Tid(8),
                cpu_time,
                slices: slices.map(|more| 90_000 + more),
                ..ThreadObservation::default()
            }];
            let process =
                ProcessObservation { pid: Pid(7), threads, ..ProcessObservation::default() };
            let at = Nanos::from_secs(second);
            Observation { at, births, processes: vec![process], ..Observation::default() }
        };
        is_dear(&at(9, slices.map(|_| 0), 0, None), &at(10, slices, ms, births))
    }

    #[test]
    fn counting_is_dear_for_a_process_that_often_sleeps_for_the_time_it_runs() {
        assert!(!check(None, Some(240), 500));
        assert!(check(None, Some(260), 500));
        assert!(!check(None, Some(260), 50), "a daemon that hardly runs");
        assert!(!check(None, None, 500), "a kernel that does not tell");
    }

    #[test]
    fn counting_is_dear_for_a_process_that_starts_many() {
        assert!(!check(Some(1), Some(0), 1000));
        assert!(check(Some(2), Some(0), 1000));
        assert!(check(Some(1), Some(0), 0), "a process that only waits for its children");
        assert!(!check(Some(0), Some(0), 0));
    }
}
