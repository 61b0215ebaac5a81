//! How long threads stay on a node, by process.
//!
//! A page that moves to the only node that accesses it gains until its thread leaves that node. The
//! kernel moves threads that may run on several nodes, most of all where more threads run than CPUs
//! are there.

use crate::model::Model;
use crate::topology::Topology;
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;

/// Time after which an interval counts half (our choice). It is long enough for some moves of
/// threads, and shorter than most phases.
const HALF_LIFE: Nanos = Nanos::from_secs(10);

/// Experience with the threads of all processes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Stays {
    of: BTreeMap<Pid, Stay>,
}

/// CPU time of a process's threads, and how often they left a node, each weighted by its CPU use.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Stay {
    ran_s: f64,
    left: f64,
}

impl Stays {
    /// Learns from an interval, and forgets processes that are gone. Threads whose masks Rondpoint
    /// narrowed stay where it put them, and their changes of node are its own.
    pub(super) fn observe(&mut self, model: &Model, topology: &Topology) {
        self.of.retain(|pid, _| model.app(*pid).is_some());
        let elapsed = model.elapsed.seconds();
        let faded = libm::exp2(-elapsed / HALF_LIFE.seconds());
        let node = |cpu| topology.node_of_cpu(cpu);
        for app in &model.apps {
            let stay = self.of.entry(app.pid).or_default();
            (stay.ran_s, stay.left) = (stay.ran_s * faded, stay.left * faded);
            for thread in model.threads_of(app) {
                stay.ran_s += thread.cpu_share * elapsed;
                let has_left = thread.cpu_before.is_some_and(|cpu| node(cpu) != node(thread.cpu));
                if has_left && !thread.is_narrowed {
                    stay.left += thread.cpu_share;
                }
            }
        }
    }

    /// Mean time that a thread of a process stays on a node; `None` if none was seen to leave.
    pub(super) fn of(&self, pid: Pid) -> Option<Nanos> {
        let stay = self.of.get(&pid).filter(|stay| stay.left > 0.0)?;
        Some(Nanos((1e9 * stay.ran_s / stay.left) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::model::{App, Thread};
    use crate::topology::synthetic;
    use crate::units::Tid;
    use alloc::format;

    /// Seconds that threads stay after intervals of 0.1 s, on two nodes of two CPUs. There is a
    /// letter for each thread and interval. `s` = it stays, `m` = it moves to the other node. `n` =
    /// it moves and Rondpoint narrowed its mask, `i` = it moves and is idle.
    fn stays(intervals: &str) -> Option<f64> {
        let topology = synthetic::parse("node:2 core:2").expect("a machine");
        let mut stays = Stays::default();
        for threads in intervals.split_whitespace() {
            let mut model = Model::empty(2);
            model.elapsed = Nanos::from_millis(100);
            for (number, how) in threads.chars().enumerate() {
                let mut thread = Thread::new(Tid(number as u32), 0, 2, CpuSet::first(4));
                thread.cpu_before = Some(if how == 's' { 3 } else { 0 });
                thread.is_narrowed = how == 'n';
                thread.cpu_share = if how == 'i' { 0.0 } else { 1.0 };
                model.threads.push(thread);
            }
            model.apps.push(App::new(Pid(1), 0..model.threads.len()));
            stays.observe(&model, &topology);
        }
        stays.of(Pid(1)).map(Nanos::seconds)
    }

    #[test]
    fn threads_stay_for_their_time_over_their_moves() {
        let after = |intervals: &str| stays(intervals).expect("some moved");
        assert!((after("mm mm mm mm") - 0.1).abs() < 0.01, "each interval");
        assert!(
            (after("ms ss ss ss ss") - 1.0).abs() < 0.05,
            "one move in a second of two threads"
        );
        assert!(after(&format!("mm {}", "ss ".repeat(400))) > 20.0, "long ago");
    }

    #[test]
    fn threads_that_stay_or_that_rondpoint_moved_leave_no_node() {
        assert_eq!(stays("ss ss"), None);
        assert_eq!(stays("nn nn"), None);
        assert_eq!(stays("ii ss"), None, "an idle thread accesses no page");
    }
}
