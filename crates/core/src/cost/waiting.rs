//! Estimates the share of its time for which an application waits for memory, on processors without
//! stall counters, such as AMD's.
//!
//! By Little's law, the number of misses under way is the rate of misses times their latency. A
//! core has a bounded number of misses under way. So the measured misses keep at least so many
//! whole cores waiting. This is a lower bound: a core with fewer misses under way waits for a
//! longer time.
//!
//! How many a program has under way is not counted either, and it differs by a factor of ten. Its
//! instructions per cycle tell more. A thread that needs five cycles for an instruction, and has
//! misses for as many, waits for most of them.

use super::CLOCK_HZ;
use crate::model::{App, Thread, TrafficSource};
use crate::topology::Topology;

/// Most misses that one core has under way, if calibration did not measure it. Intel's Golden Cove
/// keeps this many for its second-level cache (64-IA-32 Optimization Reference Manual). Older cores
/// and AMD's keep fewer.
const MOST_UNDER_WAY: f64 = 48.0;
/// Usual number of misses under way of a waiting thread: first-level caches since 2008 have 8 to 16
/// buffers.
const USUALLY_UNDER_WAY: f64 = 10.0;
/// Cycles per instruction of a thread that does not wait for memory (our choice). Cores since 2010
/// retire four instructions and more in a cycle, but branches and the near caches slow them down.
const CYCLES_OF_WORK: f64 = 1.0;
/// The same, at most (our choice): a chain of loads from the second-level cache takes twelve, but
/// hardly any program does only that.
const MOST_CYCLES_OF_WORK: f64 = 2.5;

/// Pace of a thread beside another one on its core, relative to its pace alone (our choice). Two
/// hardware threads do 1.1 to 1.4 times the work of one.
const BESIDE_ANOTHER: f64 = 0.6;

/// Instructions per cycle of a thread if it had its core alone.
pub(super) fn ipc_alone(thread: &Thread) -> Option<f64> {
    Some(thread.rates.ipc? / (1.0 - thread.core_shared * (1.0 - BESIDE_ANOTHER)))
}

/// Share of its cycles for which a thread with so many instructions per cycle waits, for memory or
/// for anything else.
pub(super) fn by_progress(instructions_per_cycle: f64) -> f64 {
    beside_work(CYCLES_OF_WORK, instructions_per_cycle)
}

fn beside_work(cycles: f64, instructions_per_cycle: f64) -> f64 {
    (1.0 - cycles * instructions_per_cycle).max(0.0)
}

/// The expected wait for memory. Its lower bound is the wait with the usual number of misses under
/// way. Its upper bound is the wait for anything, or the misses one after the other if that is
/// less.
pub(super) fn expected(usual: f64, one_by_one: f64, anything: f64) -> f64 {
    usual.midpoint(anything.min(one_by_one).max(usual))
}

/// Instructions per cycle of some threads, as if each had its core alone, weighted by CPU time.
/// `None` if one of them is not counted.
fn progress(threads: &[Thread]) -> Option<f64> {
    let (mut ran, mut sum) = (0.0, 0.0);
    for thread in threads.iter().filter(|thread| thread.cpu_share > 0.0) {
        (ran, sum) = (ran + thread.cpu_share, sum + thread.cpu_share * ipc_alone(thread)?);
    }
    (ran > 0.0).then(|| sum / ran)
}

/// The expected share and its lower bound; `None` if no rate of requests is known.
pub(super) fn waiting(
    topology: &Topology,
    app: &App,
    threads: &[Thread],
    latency_cycles: f64,
) -> Option<(f64, f64)> {
    // Hint faults give no rate of requests.
    let counted = app.traffic_source != TrafficSource::HintFaults;
    let per_us = app.traffic.as_ref().filter(|_| counted)?.total_per_us();
    let cpus = app.cpu_percent / 100.0;
    if cpus <= 0.0 {
        return None;
    }
    let cycles_per_us = topology.clock_hz().unwrap_or(CLOCK_HZ) / 1e6;
    let under_way = per_us * latency_cycles / cycles_per_us / cpus;
    let share = |most: f64| (under_way / most).min(1.0);
    let most = topology.costs().outstanding_misses.map_or(MOST_UNDER_WAY, |most| most.max(1.0));
    let (slowed, surely) = progress(threads).map_or((0.0, 0.0), |progress| {
        (by_progress(progress), beside_work(MOST_CYCLES_OF_WORK, progress))
    });
    let usual = share(most.min(USUALLY_UNDER_WAY));
    let likely = expected(usual, share(1.0), slowed);
    Some((likely, share(most).max(surely.min(share(1.0)).min(likely))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A thread that makes less progress with the same misses waits for at least as long. It
        /// never waits longer than its misses take one by one.
        #[test]
        fn less_progress_is_more_wait(usual in 0.0..0.5f64, more in 1.0..10.0f64, ipc in 0.0..4.0f64) {
            let one_by_one = (usual * more).min(1.0);
            let waits = |ipc| expected(usual, one_by_one, by_progress(ipc));
            prop_assert!(waits(ipc) >= waits(ipc + 0.1));
            prop_assert!((usual..=one_by_one.max(usual)).contains(&waits(ipc)));
        }
    }

    #[test]
    fn a_busy_neighbour_on_the_core_is_no_wait_for_memory() {
        let mut thread = Thread::new(crate::units::Tid(1), 0, 0, crate::CpuSet::first(1));
        thread.rates.ipc = Some(0.6);
        let waits = |thread: &Thread| by_progress(ipc_alone(thread).expect("it is counted"));
        assert!((waits(&thread) - 0.4).abs() < 1e-9);
        thread.core_shared = 1.0;
        assert!(waits(&thread).abs() < 1e-9, "it does as much as beside any neighbour");
    }

    #[test]
    fn a_thread_of_full_speed_waits_as_usual_and_a_slow_one_longer() {
        assert_eq!(expected(0.1, 1.0, by_progress(2.0)), 0.1);
        assert!(expected(0.1, 1.0, by_progress(0.2)) > 0.3);
        assert_eq!(expected(0.1, 0.1, by_progress(0.2)), 0.1, "its misses do not explain it");
    }
}
