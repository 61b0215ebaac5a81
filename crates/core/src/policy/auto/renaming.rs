//! Collects processes whose threads and memory moved to other nodes. Policies then apply their
//! knowledge of the old nodes to the new ones.

use crate::model::Model;
use crate::plan::{Action, Outcome, Plan, Reason, StepResult};
use crate::policy::asymsched::{self, AsymSchedReason};
use crate::policy::renamed::Renamed;
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Changes of the nodes of processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Renaming {
    /// Start time of each process of the last interval. It tells a reused pid.
    started: BTreeMap<Pid, Nanos>,
    /// The last change of each process, to take it back if its trial is undone.
    last: BTreeMap<Pid, Renamed>,
    /// Changes that the policies have not been told yet, and ways back, in their order.
    untold: Vec<Renamed>,
}

impl Renaming {
    /// Learns from the outcomes of a plan.
    pub(super) fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        let mut moved: BTreeMap<Pid, Renamed> = BTreeMap::new();
        for (step, outcome) in plan.results(outcomes) {
            let (Action::SetAffinity { pid, tid, .. }, StepResult::Done) =
                (&step.action, &outcome.result)
            else {
                continue;
            };
            match &step.reason {
                Reason::AsymSched(AsymSchedReason::Placement(placement)) => {
                    let renamed = moved.entry(*pid).or_insert_with(|| Renamed::of(*pid));
                    renamed.add(*tid, placement.from, placement.to);
                }
                Reason::Undo(_) if step.policy == asymsched::REGISTERED.name => {
                    self.untold.extend(self.last.remove(pid).map(|last| last.turned()));
                }
                _ => {}
            }
        }
        self.untold.extend(moved.values().cloned());
        self.last.extend(moved);
    }

    /// The changes since the last call of processes that still run, in their order. A reused pid
    /// has none.
    pub(super) fn take(&mut self, model: &Model) -> Vec<Renamed> {
        let Self { started, last, untold } = self;
        let began = |pid| model.app(pid).map(|app| &app.started);
        let is_same = |pid| began(pid).is_some_and(|now| started.get(&pid) == Some(now));
        last.retain(|pid, _| is_same(*pid));
        untold.retain(|one| is_same(one.pid));
        *started = model.apps.iter().map(|app| (app.pid, app.started)).collect();
        core::mem::take(untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::model::App;
    use crate::plan::{Proposal, Undo};
    use crate::policy::asymsched::PlacementReason;
    use crate::units::Tid;

    const PID: Pid = Pid(1);

    fn learn(renaming: &mut Renaming, reason: Reason) {
        let (tid, cpus) = (Tid(1), CpuSet::first(1));
        let action = Action::SetAffinity { pid: PID, tid, cpus, via: None };
        let step = Proposal { policy: asymsched::REGISTERED.name, action, reason };
        let plan = Plan { steps: Vec::from([step]), ..Plan::default() };
        let (spent, frozen) = (Nanos(0), Nanos(0));
        let done = Outcome { plan: plan.number, step: 0, result: StepResult::Done, spent, frozen };
        renaming.learn(&plan, &[done]);
    }

    /// The new nodes of nodes 0 and 1 by each change that is told.
    fn told(renaming: &mut Renaming) -> Vec<[usize; 2]> {
        told_to(renaming, Nanos(0))
    }

    /// The same if the process with that number started then.
    fn told_to(renaming: &mut Renaming, started: Nanos) -> Vec<[usize; 2]> {
        let mut model = Model::empty(2);
        model.apps = Vec::from([App { started, ..App::new(PID, 0..0) }]);
        let taken = renaming.take(&model);
        taken.iter().map(|one| [0, 1].map(|node| one.image(node))).collect()
    }

    fn moved() -> Reason {
        let placement = PlacementReason { from: 0, to: 1, ..PlacementReason::default() };
        Reason::AsymSched(AsymSchedReason::Placement(placement))
    }

    fn undo() -> Reason {
        Reason::Undo(Undo { plan: 1, change: -0.1, noise: 0.01 })
    }

    #[test]
    fn a_change_of_nodes_that_is_undone_is_told_as_the_way_back() {
        let mut renaming = Renaming::default();
        let mut after = |reason| {
            learn(&mut renaming, reason);
            told(&mut renaming)
        };
        assert!(after(undo()).is_empty(), "nothing is known to be undone");
        assert_eq!(after(moved()), [[1, 1]]);
        assert_eq!(after(undo()), [[0, 0]]);
        assert!(after(undo()).is_empty(), "each change is taken back once");
    }

    #[test]
    fn a_change_of_nodes_that_is_undone_before_it_is_told_comes_to_nothing() {
        let mut renaming = Renaming::default();
        assert!(told(&mut renaming).is_empty(), "the process is seen first");
        learn(&mut renaming, moved());
        learn(&mut renaming, undo());
        let changes = told(&mut renaming);
        assert_eq!(changes.len(), 2);
        let home = changes.iter().fold(0, |node, images| images[node]);
        assert_eq!(home, 0, "a thread of node 0");
    }

    #[test]
    fn a_new_process_with_the_number_of_an_old_one_is_told_no_change_of_it() {
        let (old, new) = (Nanos(0), Nanos(1));
        let mut renaming = Renaming::default();
        told_to(&mut renaming, old);
        learn(&mut renaming, moved());
        assert!(told_to(&mut renaming, new).is_empty(), "what the old one was not told");
        learn(&mut renaming, undo());
        assert!(told_to(&mut renaming, new).is_empty(), "nor its way back");
        learn(&mut renaming, moved());
        assert_eq!(told_to(&mut renaming, new), [[1, 1]], "its own");
    }
}
