//! Doing what a plan says, with an outcome for every step. Nothing here decides anything.
//!
//! A refusal of the kernel, a process that has gone and a page that cannot move are outcomes.

pub mod pages;

use std::time::Instant;

use rondpoint_core::plan::{Action, Outcome, Plan, Proposal, StepResult};
use rondpoint_core::{Nanos, Pid, Topology};

use crate::observe::tasks::started;
use crate::parse::stat;
use crate::root::{self, Root};

/// A process as it was when it was observed: its number alone may belong to another by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Its number.
    pub pid: Pid,
    /// When it started, since boot.
    pub started: Nanos,
}

impl Identity {
    /// The process that has this number now; `None` where there is none, or only its remains.
    #[must_use]
    pub fn of(root: &Root, pid: Pid) -> Option<Self> {
        let bytes = root::read_optional(&root.in_proc(format!("{pid}/stat"))).ok()??;
        let found = stat::parse(&bytes).ok().filter(|found| found.state != 'Z')?;
        Some(Self { pid, started: started(&found) })
    }

    /// Whether it is still the same process.
    #[must_use]
    pub fn is_there(&self, root: &Root) -> bool {
        Self::of(root, self.pid) == Some(*self)
    }
}

/// Does the steps of plans on the running machine.
#[derive(Debug, Clone)]
pub struct Actor {
    root: Root,
    topology: Topology,
}

impl Actor {
    /// For the machine that `topology` describes.
    #[must_use]
    pub fn new(root: Root, topology: Topology) -> Self {
        Self { root, topology }
    }

    /// Does one step. `started` says when the step's process started.
    #[must_use]
    pub fn step(&self, plan: &Plan, step: usize, started: Option<Nanos>) -> Outcome {
        let begin = Instant::now();
        let result = plan.steps.get(step).map_or(StepResult::Gone, |one| self.act(one, started));
        let spent = Nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Outcome { plan: plan.number, step, result, spent, frozen: Nanos(0) }
    }

    fn act(&self, proposal: &Proposal, started: Option<Nanos>) -> StepResult {
        let there =
            |pid| started.is_some_and(|started| Identity { pid, started }.is_there(&self.root));
        match &proposal.action {
            Action::MovePages { pid, .. } if !there(*pid) => StepResult::Gone,
            Action::MovePages { pid, pages, .. } => {
                pages::relocate(&pages::Live, *pid, pages, &self.topology)
            }
            // Linux has no page replication without a patch; threads and whole processes are not moved here yet.
            Action::Replicate { .. }
            | Action::Unreplicate { .. }
            | Action::SetAffinity { .. }
            | Action::MoveProcessMemory { .. }
            | Action::SetSampling { .. } => StepResult::Unsupported,
        }
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::plan::{Mechanism, PageMove, Reason};
    use rondpoint_core::topology::synthetic;

    use super::*;
    use crate::syscall::memory::{Anonymous, page_bytes};

    fn plan(pid: Pid, address: u64) -> Plan {
        let pages = vec![PageMove { address, shift: 12, from: 0, to: 0 }];
        let action = Action::MovePages { pid, mechanism: Mechanism::CoLocation, pages };
        let reason = Reason::Other("a test".to_string());
        let steps = vec![Proposal { policy: "test", action, reason }];
        Plan { number: 7, steps, ..Plan::default() }
    }

    #[test]
    fn a_number_that_belongs_to_another_process_by_now_is_gone() {
        let actor = Actor::new(Root::live(), synthetic::parse("node:1 core:1").unwrap());
        let own = Identity::of(&Root::live(), Pid(std::process::id())).unwrap();
        let memory = Anonymous::new(page_bytes()).unwrap();
        memory.touch_every(page_bytes());
        let plan = plan(own.pid, memory.address());
        let now = actor.step(&plan, 0, Some(own.started));
        assert!(matches!(now.result, StepResult::Pages(counts) if counts.in_place == 1), "{now:?}");
        let earlier = Nanos(own.started.0 - 1);
        assert_eq!(actor.step(&plan, 0, Some(earlier)).result, StepResult::Gone);
        assert_eq!(actor.step(&plan, 0, None).result, StepResult::Gone);
    }
}
