//! Processes that exchanged their nodes for others, memory included: what was learnt of the old
//! nodes holds for the new ones.

use crate::model::Model;
use crate::plan::{Action, Outcome, Plan, Reason, StepResult};
use crate::policy::asymsched::AsymSchedReason;
use crate::units::{Pid, Tid};
use alloc::collections::{BTreeMap, BTreeSet};

/// Threads of a process that exchanged its nodes for others.
#[derive(Debug, Clone, Default)]
pub(super) struct Renamed {
    pub(super) tids: BTreeSet<Tid>,
    images: BTreeMap<usize, usize>,
}

impl Renamed {
    /// Where the occupants of a node went.
    pub(super) fn image(&self, node: usize) -> usize {
        self.images.get(&node).copied().unwrap_or(node)
    }
}

/// By process, as far as policies have not been told.
#[derive(Debug, Clone, Default)]
pub(super) struct Renaming {
    untold: BTreeMap<Pid, Renamed>,
}

impl Renaming {
    /// Takes in what became of a plan.
    pub(super) fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        for outcome in outcomes.iter().filter(|outcome| outcome.plan == plan.number) {
            let Some(step) = plan.steps.get(outcome.step) else { continue };
            if let (Action::SetAffinity { pid, tid, .. }, StepResult::Done) =
                (&step.action, &outcome.result)
                && let Reason::AsymSched(AsymSchedReason::Placement(placement)) = &step.reason
            {
                let renamed = self.untold.entry(*pid).or_default();
                renamed.tids.insert(*tid);
                renamed.images.insert(placement.from, placement.to);
            }
        }
    }

    /// The processes that changed nodes since the last call and still run.
    pub(super) fn take(&mut self, model: &Model) -> BTreeMap<Pid, Renamed> {
        let mut taken = core::mem::take(&mut self.untold);
        taken.retain(|pid, _| model.app(*pid).is_some());
        taken
    }
}
