//! How long threads stay on a node, by process.
//!
//! A page that moves to the only node that accesses it gains until its thread leaves that node. The
//! kernel moves threads that may run on several nodes, most of all where more threads run than CPUs
//! are there.

use crate::model::{Model, Thread};
use crate::topology::Topology;
use crate::units::{Nanos, Pid, Tid};
use alloc::collections::BTreeMap;

/// Time after which an interval counts half (our choice). It is long enough for some moves of
/// threads, and shorter than most phases.
const HALF_LIFE: Nanos = Nanos::from_secs(10);
/// Seconds that a thread is taken to have run before it was first seen to leave (our choice: the
/// pause of a quiet process's looks).
const FIRST_S: f64 = 1.0;
/// A thread that was last seen to leave so long ago that it counts for less than this stays.
const FORGOTTEN: f64 = 0.05;

/// Experience with the threads of all processes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Stays {
    /// Threads that left a node lately.
    of_thread: BTreeMap<(Pid, Tid), Stay>,
    /// Mean stay of the threads of each process with such a thread, each weighted by its CPU use.
    of_process: BTreeMap<Pid, Nanos>,
}

/// CPU time of a thread, and how often it left a node. Both fade.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stay {
    ran_s: f64,
    left: f64,
    /// When the thread was last seen.
    at: Nanos,
}

impl Stays {
    /// Learns from an interval, and forgets what is gone. `longest` = a stay that counts as one
    /// without end. Threads whose masks Rondpoint narrowed stay where it put them: their changes of
    /// node are its own.
    pub(super) fn observe(&mut self, model: &Model, topology: &Topology, longest: Nanos) {
        self.of_process.clear();
        for app in &model.apps {
            let (mut sum, mut ran, mut leave) = (0.0, 0.0, false);
            for thread in model.threads_of(app) {
                let stay = self.stay(app.pid, thread, model, topology);
                leave |= stay.is_some();
                sum += thread.cpu_share * stay.map_or(longest, |stay| stay.min(longest)).seconds();
                ran += thread.cpu_share;
            }
            if leave && ran > 0.0 {
                self.of_process.insert(app.pid, Nanos((1e9 * sum / ran) as u64));
            }
        }
        self.of_thread.retain(|_, stay| stay.at == model.at && stay.left >= FORGOTTEN);
    }

    /// The stay of a thread that leaves nodes, after this interval too.
    fn stay(
        &mut self,
        pid: Pid,
        thread: &Thread,
        model: &Model,
        topology: &Topology,
    ) -> Option<Nanos> {
        let node = |cpu| topology.node_of_cpu(cpu);
        let leaves = thread.cpu_before.is_some_and(|cpu| node(cpu) != node(thread.cpu))
            && !thread.is_narrowed
            && thread.cpu_share > 0.0;
        let key = (pid, thread.tid);
        if leaves {
            let first = Stay { ran_s: FIRST_S, left: 0.0, at: model.at };
            self.of_thread.entry(key).or_insert(first).left += 1.0;
        }
        let stay = self.of_thread.get_mut(&key)?;
        let faded = libm::exp2(-model.elapsed.seconds() / HALF_LIFE.seconds());
        let ran_s = stay.ran_s * faded + thread.cpu_share * model.elapsed.seconds();
        *stay = Stay { ran_s, left: stay.left * faded, at: model.at };
        Some(Nanos((1e9 * stay.ran_s / stay.left) as u64))
    }

    /// Mean time that a thread of a process stays on a node; `None` if none was seen to leave.
    pub(super) fn of(&self, pid: Pid) -> Option<Nanos> {
        self.of_process.get(&pid).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::model::App;
    use crate::topology::synthetic;
    use alloc::format;

    const LONGEST: Nanos = Nanos::from_secs(30);

    /// Seconds that threads stay after intervals of 0.1 s, on two nodes of two CPUs. There is a
    /// letter for each thread and interval. `s` = it stays, `m` = it moves to the other node. `n` =
    /// it moves and Rondpoint narrowed its mask, `i` = it moves and is idle.
    fn stays(intervals: &str) -> Option<f64> {
        let topology = synthetic::parse("node:2 core:2").expect("a machine");
        let mut stays = Stays::default();
        for (index, threads) in intervals.split_whitespace().enumerate() {
            let mut model = Model::empty(2);
            model.elapsed = Nanos::from_millis(100);
            model.at = Nanos(index as u64 * model.elapsed.0);
            for (number, how) in threads.chars().enumerate() {
                let mut thread = Thread::new(Tid(number as u32), 0, 2, CpuSet::first(4));
                thread.cpu_before = Some(if how == 's' { 3 } else { 0 });
                thread.is_narrowed = how == 'n';
                thread.cpu_share = if how == 'i' { 0.0 } else { 1.0 };
                model.threads.push(thread);
            }
            model.apps.push(App::new(Pid(1), 0..model.threads.len()));
            stays.observe(&model, &topology, LONGEST);
        }
        stays.of(Pid(1)).map(Nanos::seconds)
    }

    #[test]
    fn threads_stay_for_their_time_over_their_moves() {
        let after = |intervals: &str| stays(intervals).expect("some moved");
        assert!(after(&"mm ".repeat(50)) < 0.2, "each interval");
        let seldom = after(&format!("mm {}", "ss ".repeat(50)));
        assert!((4.0..8.0).contains(&seldom), "once in 5 s: {seldom}");
        assert_eq!(stays(&format!("mm {}", "ss ".repeat(500))), None, "long ago");
    }

    #[test]
    fn one_thread_that_leaves_does_not_make_the_others_leave() {
        let mean = stays(&"msss ".repeat(50)).expect("one moved");
        assert!((20.0..25.0).contains(&mean), "three stay for 30 s: {mean}");
    }

    #[test]
    fn threads_that_stay_or_that_rondpoint_moved_leave_no_node() {
        assert_eq!(stays("ss ss"), None);
        assert_eq!(stays("nn nn"), None);
        assert_eq!(stays("ii ss"), None, "an idle thread accesses no page");
    }
}
