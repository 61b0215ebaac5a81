//! Collects processes whose threads and memory moved to other nodes. Policies then apply their
//! knowledge of the old nodes to the new ones.

use crate::model::Model;
use crate::plan::{Action, Outcome, Plan, Reason, StepResult};
use crate::policy::asymsched::{self, AsymSchedReason};
use crate::policy::renamed::Renamed;
use crate::units::Pid;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Changes of the nodes of processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Renaming {
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

    /// The changes since the last call of processes that still run, in their order.
    pub(super) fn take(&mut self, model: &Model) -> Vec<Renamed> {
        self.last.retain(|pid, _| model.app(*pid).is_some());
        self.untold.retain(|one| model.app(one.pid).is_some());
        core::mem::take(&mut self.untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::plan::{Proposal, Undo};
    use crate::policy::asymsched::PlacementReason;
    use crate::units::{Nanos, Tid};

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
        let mut model = Model::empty(2);
        model.apps = Vec::from([crate::model::App::new(PID, 0..0)]);
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
        learn(&mut renaming, moved());
        learn(&mut renaming, undo());
        let home = told(&mut renaming).iter().fold(0, |node, images| images[node]);
        assert_eq!(home, 0, "a thread of node 0");
    }
}
