//! Collects processes whose threads and memory moved to other nodes. Policies then apply their
//! knowledge of the old nodes to the new ones.

use crate::model::Model;
use crate::plan::{Action, Outcome, Plan, Reason, StepResult};
use crate::policy::asymsched::{self, AsymSchedReason};
use crate::policy::renamed::Renamed;
use crate::units::Pid;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Changes of each process.
#[derive(Debug, Clone, Default)]
pub(super) struct Renaming {
    /// Those that the policies have not been told yet.
    untold: BTreeMap<Pid, Renamed>,
    /// The last one that they were told, to take it back if its trial is undone.
    told: BTreeMap<Pid, Renamed>,
    /// The ways back of undone ones that they have not been told yet.
    back: Vec<Renamed>,
}

impl Renaming {
    /// Learns from the outcomes of a plan.
    pub(super) fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        for outcome in outcomes.iter().filter(|outcome| outcome.plan == plan.number) {
            let Some(step) = plan.steps.get(outcome.step) else { continue };
            let (Action::SetAffinity { pid, tid, .. }, StepResult::Done) =
                (&step.action, &outcome.result)
            else {
                continue;
            };
            match &step.reason {
                Reason::AsymSched(AsymSchedReason::Placement(placement)) => {
                    let renamed = self.untold.entry(*pid).or_insert_with(|| Renamed::of(*pid));
                    renamed.add(*tid, placement.from, placement.to);
                }
                Reason::Undo(_) if step.policy == asymsched::REGISTERED.name => {
                    self.back.extend(self.told.remove(pid).map(|told| told.turned()));
                }
                _ => {}
            }
        }
    }

    /// The processes that changed nodes since the last call and still run.
    pub(super) fn take(&mut self, model: &Model) -> Vec<Renamed> {
        let runs = |pid: &Pid| model.app(*pid).is_some();
        self.told.retain(|pid, _| runs(pid));
        let mut taken = core::mem::take(&mut self.untold);
        taken.retain(|pid, _| runs(pid));
        self.told.extend(taken.clone());
        let back = core::mem::take(&mut self.back).into_iter().filter(|one| runs(&one.pid));
        back.chain(taken.into_values()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::plan::{Proposal, Undo};
    use crate::policy::asymsched::PlacementReason;
    use crate::units::{Nanos, Tid};

    #[test]
    fn a_change_of_nodes_that_is_undone_is_told_as_the_way_back() {
        let (mut renaming, mut model) = (Renaming::default(), Model::empty(2));
        model.apps = Vec::from([crate::model::App::new(Pid(1), 0..0)]);
        let mut told = |reason: Reason| {
            let cpus = CpuSet::first(1);
            let action = Action::SetAffinity { pid: Pid(1), tid: Tid(1), cpus, via: None };
            let step = Proposal { policy: asymsched::REGISTERED.name, action, reason };
            let plan = Plan { steps: Vec::from([step]), ..Plan::default() };
            let (spent, frozen) = (Nanos(0), Nanos(0));
            let done =
                Outcome { plan: plan.number, step: 0, result: StepResult::Done, spent, frozen };
            renaming.learn(&plan, &[done]);
            let told = renaming.take(&model);
            told.iter().map(|one| [0, 1].map(|node| one.image(node))).collect::<Vec<_>>()
        };
        let placement = PlacementReason { from: 0, to: 1, ..PlacementReason::default() };
        let undo = || Reason::Undo(Undo { plan: 1, change: -0.1, noise: 0.01 });
        assert!(told(undo()).is_empty(), "nothing is known to be undone");
        let moved = Reason::AsymSched(AsymSchedReason::Placement(placement));
        assert_eq!(told(moved), [[1, 1]]);
        assert_eq!(told(undo()), [[0, 0]]);
        assert!(told(undo()).is_empty(), "each change is taken back once");
    }
}
