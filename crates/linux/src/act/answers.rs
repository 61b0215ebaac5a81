//! The kernel's last answers about the masks and the cpuset of each process, which hold for a while
//! if the process hardly runs.
//!
//! Another manager may change the mask or the cpuset of such a process, or the process its own.
//! This is seen when its files are read again, and else after [`HOLDS`]. Before a mask is changed,
//! and at the end, the kernel is asked anyway.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::observation::{Exemption, Observation, ProcessObservation};
use rondpoint_core::{CpuSet, Nanos, Pid, Tid};

use super::Identity;

/// Time for which the answers about a process hold that hardly runs (our choice).
const HOLDS: Nanos = Nanos::from_secs(10);

/// Threads that the program itself has bound, with their masks.
pub(super) type Bound = Vec<(Identity, Tid, CpuSet)>;

/// Answers by process.
#[derive(Debug, Default)]
pub(super) struct Answers {
    known: BTreeMap<Pid, Answer>,
    /// Processes of this look whose answers hold.
    hold: BTreeSet<Pid>,
    processes: usize,
}

#[derive(Debug)]
struct Answer {
    at: Nanos,
    started: Nanos,
    /// Whether another manager has put the process into a cpuset.
    is_elsewhere: bool,
    threads: Vec<(Tid, CpuSet, Option<Exemption>)>,
    bound: Bound,
}

impl Answer {
    fn is_of(&self, process: &ProcessObservation) -> bool {
        let tids = || process.threads.iter().map(|thread| thread.tid);
        self.started == process.started && tids().eq(self.threads.iter().map(|(tid, ..)| *tid))
    }
}

impl Answers {
    /// Begins a look. Processes in `still` have hardly run since their files were read.
    pub(super) fn begin(&mut self, observation: &Observation, still: &BTreeSet<Pid>) {
        let Self { known, hold, processes } = self;
        let holds = |process: &ProcessObservation| {
            let answer = known.get(&process.pid)?;
            let is_fresh = observation.at.since(answer.at) < HOLDS;
            let holds = is_fresh && still.contains(&process.pid) && answer.is_of(process);
            holds.then_some(process.pid)
        };
        *hold = observation.processes.iter().filter_map(holds).collect();
        *processes = observation.processes.len();
        if known.len() > *processes {
            let there: BTreeSet<Pid> = observation.processes.iter().map(|one| one.pid).collect();
            known.retain(|pid, _| there.contains(pid));
        }
    }

    /// Whether the kernel need not be asked about any process of this look.
    pub(super) fn are_all_known(&self) -> bool {
        self.hold.len() == self.processes
    }

    /// Completes a process by the last answers, if they hold. Returns its bound threads.
    pub(super) fn repeat(&self, process: &mut ProcessObservation) -> Option<Bound> {
        let answer = self.known.get(&process.pid).filter(|_| self.hold.contains(&process.pid))?;
        if answer.is_elsewhere {
            process.exempt = process.exempt.or(Some(Exemption::OtherManager));
        }
        for (one, (_, allowed, exempt)) in process.threads.iter_mut().zip(&answer.threads) {
            one.allowed.clone_from(allowed);
            one.exempt = *exempt;
        }
        Some(answer.bound.clone())
    }

    /// Keeps the answers about a process that were completed at time `at`.
    pub(super) fn keep(
        &mut self,
        process: &ProcessObservation,
        at: Nanos,
        is_elsewhere: bool,
        bound: &[(Identity, Tid, CpuSet)],
    ) {
        let threads = process.threads.iter();
        let threads = threads.map(|one| (one.tid, one.allowed.clone(), one.exempt)).collect();
        let (started, bound) = (process.started, bound.to_vec());
        let answer = Answer { at, started, is_elsewhere, threads, bound };
        self.known.insert(process.pid, answer);
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::observation::ThreadObservation;
    use rondpoint_core::topology::synthetic;

    use super::*;
    use crate::Root;
    use crate::act::Actor;
    use crate::sleeper::Sleeper;

    #[test]
    fn the_kernel_is_asked_seldom_about_a_process_that_does_not_run() {
        let sleeper = Sleeper::start();
        let process = sleeper.identity();
        let folder = tempfile::tempdir().unwrap();
        let root = Root::captured(folder.path());
        let own = root.in_proc(process.pid.to_string());
        std::fs::create_dir_all(&own).unwrap();
        let machine = synthetic::parse("node:1 core:64").unwrap();
        let mut actor = Actor::new(root, machine, Pid(1));
        // Another manager has put it into another cpuset than the first process of the tree.
        let first = actor.root.in_proc("1");
        std::fs::create_dir_all(&first).unwrap();
        std::fs::write(first.join("cpuset"), "/home\n").unwrap();
        let mut exempt = |at_s: u64, cpuset: &str, is_still: bool, started: Nanos| {
            std::fs::write(own.join("cpuset"), format!("{cpuset}\n")).unwrap();
            let thread =
                ThreadObservation { tid: Tid(process.pid.0), ..ThreadObservation::default() };
            let one = ProcessObservation {
                pid: process.pid,
                started,
                threads: vec![thread],
                ..ProcessObservation::default()
            };
            let at = Nanos::from_secs(at_s);
            let mut seen = Observation { at, processes: vec![one], ..Observation::default() };
            let still = BTreeSet::from_iter(is_still.then_some(process.pid));
            actor.follow(&mut seen, &still);
            let process = &seen.processes[0];
            assert!(!process.threads[0].allowed.is_empty(), "the mask is told in any case");
            process.exempt
        };
        let (started, other) = (process.started, Some(Exemption::OtherManager));
        assert_eq!(exempt(100, "/home", true, started), None);
        assert_eq!(exempt(101, "/other", true, started), None, "it holds for a while");
        assert_eq!(exempt(109, "/other", true, started), None);
        assert_eq!(exempt(110, "/other", true, started), other, "but not for ever");
        assert_eq!(exempt(111, "/home", true, started), other);
        assert_eq!(exempt(112, "/home", false, started), None, "it runs");
        assert_eq!(exempt(113, "/other", true, Nanos(1)), other, "another process has its number");
    }
}
