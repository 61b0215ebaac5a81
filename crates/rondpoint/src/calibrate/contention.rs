//! SAM's experiment for its bandwidth threshold (ALGORITHMS 4.3): an increasing number of
//! memory-bound threads on one socket, and the bandwidth of each.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::loads::{Loads, Order, Window};
use super::stream::together;

/// Threads slow each other where each gets this much less than one alone. Near saturation the
/// bandwidth that is available differs by about a tenth [SAM-slides].
const LOSS: f64 = 0.10;
/// Nothing but loads, and what it takes to make their addresses.
const MEMORY_BOUND: Loads = Loads { order: Order::Independent, rounds: 0 };

/// Bytes that a load brings.
const LINE_BYTES: f64 = 64.0;
/// Above this use a backlog adds to the bursts: no point of the slope (our choice).
const SATURATED: f64 = 0.95;
/// Over a smaller range of use a slope is noise (our choice).
const LEAST_RANGE: f64 = 0.15;

/// Threads that load at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Crowd {
    pub(super) threads: usize,
    /// Loads of memory in a second, of all of them.
    pub(super) per_s: f64,
}

/// One thread, two, … on these CPUs of one socket, until they slow each other.
pub(super) fn sweep(cpus: &[usize], words: &[AtomicU64], time: Duration) -> Result<Vec<Crowd>> {
    let mut crowds: Vec<Crowd> = Vec::new();
    for threads in 1..=cpus.len() {
        // The first ready thread says when, for all: making threads takes longer than a window may
        // be late.
        let window = OnceLock::new();
        let work = |part: &[AtomicU64]| {
            MEMORY_BOUND.per_s(part, *window.get_or_init(|| Window::soon(time)))
        };
        let rates = together(&cpus[..threads], words, work)?;
        let crowd = Crowd { threads, per_s: rates.into_iter().sum() };
        crowds.push(crowd);
        if is_slowed(&crowds[0], &crowd) {
            break;
        }
    }
    Ok(crowds)
}

fn each(crowd: &Crowd) -> f64 {
    crowd.per_s / crowd.threads as f64
}

fn is_slowed(alone: &Crowd, crowd: &Crowd) -> bool {
    each(crowd) < (1.0 - LOSS) * each(alone)
}

/// Loads of all threads in a second from which on each gets a tenth less than alone. Where all CPUs
/// of the socket together slow each other by less, it is what they draw: nothing is above that.
/// `None` for a socket of one CPU.
pub(super) fn threshold_per_s(crowds: &[Crowd]) -> Option<f64> {
    let [.., before, last] = crowds else { return None };
    let alone = &crowds[0];
    if !is_slowed(alone, last) {
        return Some(last.per_s);
    }
    let wanted = (1.0 - LOSS) * each(alone);
    let part = (each(before) - wanted) / (each(before) - each(last));
    Some(before.per_s + part * (last.per_s - before.per_s))
}

/// Loads that one thread keeps under way, by Little's law; `None` where the latency of a load alone
/// is not known.
pub(super) fn outstanding(crowds: &[Crowd], local_ns: f64) -> Option<f64> {
    let alone = crowds.first().filter(|_| local_ns > 0.0)?;
    Some((each(alone) * local_ns / 1e9).max(1.0))
}

/// ns that full use of the node's memory adds to an access before there is a backlog. This is the
/// slope of latency over use, by least squares. The latency of a crowd is that of one thread times
/// what each gets less. `None` where use hardly changed, or what the memory carries is not known.
pub(super) fn burst_ns(crowds: &[Crowd], local_ns: f64, controller_mb_s: f64) -> Option<f64> {
    let alone = crowds.first().filter(|_| local_ns > 0.0 && controller_mb_s > 0.0)?;
    let used = |crowd: &Crowd| crowd.per_s * LINE_BYTES / (controller_mb_s * 1e6);
    let points: Vec<(f64, f64)> = crowds
        .iter()
        .filter(|crowd| used(crowd) < SATURATED)
        .map(|crowd| (used(crowd), local_ns * each(alone) / each(crowd)))
        .collect();
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (use_mean, ns_mean) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - use_mean).powi(2)).sum();
    let slope: f64 =
        points.iter().map(|point| (point.0 - use_mean) * (point.1 - ns_mean)).sum::<f64>() / spread;
    let range = points.last()?.0 - points[0].0;
    (range >= LEAST_RANGE && slope.is_finite()).then(|| slope.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowds(each: &[f64]) -> Vec<Crowd> {
        let crowd = |(index, each): (usize, &f64)| Crowd {
            threads: index + 1,
            per_s: (index + 1) as f64 * each,
        };
        each.iter().enumerate().map(crowd).collect()
    }

    #[test]
    fn the_threshold_lies_where_each_gets_a_tenth_less_than_alone() {
        // 95 each at two, 85 each at three: 90 in the middle of 190 and 255.
        assert_eq!(threshold_per_s(&crowds(&[100.0, 95.0, 85.0])), Some(222.5));
        assert_eq!(threshold_per_s(&crowds(&[100.0, 80.0])), Some(130.0));
        assert_eq!(threshold_per_s(&crowds(&[100.0, 99.0, 98.0])), Some(294.0), "never slowed");
        assert_eq!(threshold_per_s(&crowds(&[100.0])), None);
    }

    #[test]
    fn latency_that_grows_with_use_is_the_burst_and_little_tells_what_is_under_way() {
        // One thread of 10 loads under way at 100 ns: 1e8 loads a second, 6.4 GB/s of 64.
        // Latency is 100 ns and 40 ns at full use, of which a tenth is there for one thread.
        let latency = |threads: f64| 100.0 + 4.0 * (threads - 1.0);
        let crowd = |threads: usize| Crowd {
            threads,
            per_s: threads as f64 * 1e8 * 100.0 / latency(threads as f64),
        };
        let crowds: Vec<Crowd> = (1..=4).map(crowd).collect();
        assert_eq!(outstanding(&crowds, 100.0), Some(10.0));
        assert_eq!(outstanding(&crowds, 0.0), None);
        let burst = burst_ns(&crowds, 100.0, 64_000.0).expect("a slope");
        assert!((40.0..50.0).contains(&burst), "{burst}");
        assert_eq!(burst_ns(&crowds[..1], 100.0, 64_000.0), None, "one point");
        assert_eq!(burst_ns(&crowds, 100.0, 640_000.0), None, "hardly used");
        assert_eq!(burst_ns(&[], 100.0, 64_000.0), None);
    }

    #[test]
    fn threads_are_added_one_by_one() {
        let cpu = rondpoint_linux::syscall::affinity::get(0).expect("allowed").iter().next();
        let cpu = cpu.expect("a CPU");
        let words: Vec<AtomicU64> = (0..65_536).map(AtomicU64::new).collect();
        // On one CPU two threads have half each.
        let found = sweep(&[cpu; 4], &words, Duration::from_millis(20)).expect("measured");
        assert!((2..=4).contains(&found.len()), "{found:?}");
        assert!(found.iter().zip(1..).all(|(crowd, threads)| crowd.threads == threads));
    }
}
