//! Whether being counted is dear to a program: it pays each time that a thread goes on or off a CPU, and for each task that is born.
//!
//! Measured (*emulated*, in a slow motion of 10): two threads that sleep at 7,500 barriers a second run at 0.82 of their speed, which is
//! 24 µs a sleep; eight threads that map, fill and unmap memory at 0.8; eight processes that start one child after the other, 55 a second, at 0.88,
//! which is 20 ms a child. On metal, without slow motion, a tenth of that is expected (inferred); 128 inherited events that count nothing
//! made a birth and an end 1.1 ms longer on a busy virtual machine.

use crate::observation::{Observation, ProcessObservation, ThreadObservation};
use crate::units::Tid;

/// Above so many time slices in a second on a CPU it is dear: 2.4 % in slow motion, a tenth of that without (our choice).
const DEAR_SLICES: f64 = 1000.0;
/// A birth costs about as much as so many time slices.
const SLICES_OF_A_BIRTH: f64 = 500.0;

/// Whether it was between two observations. `false` where nothing tells.
pub(crate) fn is_dear(before: &Observation, now: &Observation) -> bool {
    let mut slices = now.births.unwrap_or(0) as f64 * SLICES_OF_A_BIRTH;
    let mut seconds = 0.0;
    for process in &now.processes {
        let Some(earlier) = same_process(before, process) else { continue };
        for thread in &process.threads {
            let Some(earlier) = same_thread(earlier, thread.tid) else { continue };
            let count = |thread: &ThreadObservation| thread.slices.unwrap_or(0);
            slices += count(thread).saturating_sub(count(earlier)) as f64;
            seconds += thread.cpu_time.since(earlier.cpu_time).seconds();
        }
    }
    slices > DEAR_SLICES * seconds
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

    /// A thread that had run for 5 s, after so many more slices and milliseconds on a CPU.
    fn check(births: Option<u64>, slices: Option<u64>, ms: u64) -> bool {
        let at = |slices: Option<u64>, ms, births| {
            let cpu_time = Nanos::from_millis(5000 + ms);
            let threads = vec![ThreadObservation {
                tid: Tid(8),
                cpu_time,
                slices,
                ..ThreadObservation::default()
            }];
            let process =
                ProcessObservation { pid: Pid(7), threads, ..ProcessObservation::default() };
            Observation { births, processes: vec![process], ..Observation::default() }
        };
        is_dear(&at(slices.map(|_| 90_000), 0, None), &at(slices.map(|n| 90_000 + n), ms, births))
    }

    #[test]
    fn it_is_dear_to_who_often_sleeps_for_the_time_that_it_runs() {
        assert!(!check(None, Some(90), 100));
        assert!(check(None, Some(110), 100));
        assert!(check(None, Some(3), 1), "a daemon that hardly runs");
        assert!(!check(None, None, 100), "a kernel that does not tell");
        assert!(!check(None, Some(0), 0), "nobody ran");
    }

    #[test]
    fn it_is_dear_to_who_bears_many() {
        assert!(!check(Some(1), Some(0), 1000));
        assert!(check(Some(3), Some(0), 1000));
        assert!(check(Some(1), Some(0), 0), "who only waits for its children");
    }
}
