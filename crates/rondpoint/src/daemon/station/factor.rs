//! "Is NUMA a factor here?": what placement costs the managed processes together.

use rondpoint_core::cost::{Price, lost_to_latency};
use rondpoint_core::model::{App, Deviation, Traffic};
use rondpoint_core::{Model, Topology};

use crate::control::protocol::Factor;

/// The answer of a window. Each process weighs as much as it uses CPUs; one whose latency is not
/// known does not count.
pub(super) fn factor(window: &Model, topology: &Topology) -> Factor {
    let lost = |app: &App| Some((app.cpu_percent, lost_to_latency(window, topology, app)?));
    let known: Vec<(f64, Price)> = window.apps.iter().filter_map(lost).collect();
    let weight: f64 = known.iter().map(|(weight, _)| weight).sum();
    let mean = |of: fn(&Price) -> f64| {
        let sum: f64 = known.iter().map(|(weight, price)| weight * of(price)).sum();
        (weight > 0.0).then(|| sum / weight)
    };
    let traffic = window.traffic.as_ref();
    Factor {
        lost_share: mean(|price| price.likely),
        least_lost_share: mean(|price| price.least),
        local_share: traffic.and_then(Traffic::local_percent).map(|percent| percent / 100.0),
        imbalance_percent: traffic
            .and_then(|one| one.imbalance_percent(Deviation::Population, topology)),
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::model::Thread;
    use rondpoint_core::topology::synthetic;
    use rondpoint_core::{CpuSet, Matrix, Pid, Tid};

    use super::*;

    /// Two nodes with a busy thread on each; an access to idle local memory takes 200 cycles.
    fn machine() -> Topology {
        synthetic::parse("node:2 core:2 mhz:2000").expect("a machine")
    }

    /// A window with programs of two threads that wait for memory 80 % of their time. Of each: CPU
    /// use in percent, and the mean latency of its accesses, if it is known. `remote` is the share
    /// of all accesses that node 1 makes to node 0, in place of its own memory.
    fn window(programs: &[(f64, Option<f64>)], remote: f64) -> Model {
        let mut window = Model::empty(2);
        for (index, (cpu_percent, latency)) in programs.iter().enumerate() {
            let first = window.threads.len();
            for cpu in [0, 2] {
                let tid = Tid(window.threads.len() as u32 + 1);
                let mut thread = Thread::new(tid, index, cpu, CpuSet::first(4));
                (thread.cpu_share, thread.rates.stall_share) = (cpu_percent / 200.0, Some(0.8));
                window.threads.push(thread);
            }
            let mut app = App::new(Pid(index as u32 + 1), first..first + 2);
            app.cpu_percent = *cpu_percent;
            (app.latency_cycles, app.latency_accesses) = (*latency, 1e6);
            window.apps.push(app);
        }
        let rate = |from: usize, to: usize| match (from, to) {
            (0, 0) => 50.0,
            (1, 0) => 100.0 * remote,
            (1, 1) => 50.0 - 100.0 * remote,
            _ => 0.0,
        };
        window.traffic = Some(Traffic::new(Matrix::from_fn(2, rate)));
        window
    }

    #[test]
    fn it_is_a_factor_where_a_controller_is_jammed() {
        // All memory is on node 0, and an access takes four times as long as an idle local one.
        let found = factor(&window(&[(200.0, Some(800.0))], 0.5), &machine());
        let lost = found.lost_share.expect("known");
        assert!((lost - 0.6).abs() < 1e-9, "three fourths of the wait: {lost}");
        assert!(found.least_lost_share > Some(0.59), "a million accesses leave little doubt");
        assert_eq!(found.local_share, Some(0.5));
        assert!(found.imbalance_percent > Some(99.0), "one controller has all: {found:?}");
    }

    #[test]
    fn it_is_none_where_each_thread_waits_for_idle_local_memory_only() {
        let found = factor(&window(&[(200.0, Some(200.0))], 0.0), &machine());
        assert_eq!((found.lost_share, found.least_lost_share), (Some(0.0), Some(0.0)));
        assert_eq!((found.local_share, found.imbalance_percent), (Some(1.0), Some(0.0)));
    }

    #[test]
    fn a_program_weighs_as_much_as_it_runs_and_one_that_is_not_seen_does_not_count() {
        let lost = |programs: &[_]| factor(&window(programs, 0.5), &machine()).lost_share;
        let near = |found: Option<f64>, expected: f64| {
            assert!(found.is_some_and(|found| (found - expected).abs() < 1e-9), "{found:?}");
        };
        near(lost(&[(100.0, Some(800.0)), (200.0, Some(200.0))]), 0.2);
        near(lost(&[(100.0, Some(800.0)), (200.0, None)]), 0.6);
        assert_eq!(lost(&[(200.0, None)]), None, "not known is not none");
        assert_eq!(lost(&[]), None, "and so it is without a process");
        assert_eq!(lost(&[(0.0, Some(800.0))]), None, "or where none ran");
    }
}
