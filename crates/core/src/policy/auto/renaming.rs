//! Collects processes whose threads and memory moved to other nodes. Policies then apply their
//! knowledge of the old nodes to the new ones.

use crate::model::Model;
use crate::plan::{Action, Outcome, Plan, Reason, StepResult};
use crate::policy::asymsched::AsymSchedReason;
use crate::policy::renamed::Renamed;
use crate::units::Pid;
use alloc::collections::BTreeMap;

/// Changes of each process that the policies have not been told yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Renaming {
    untold: BTreeMap<Pid, Renamed>,
}

impl Renaming {
    /// Learns from the outcomes of a plan.
    pub(super) fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        for outcome in outcomes.iter().filter(|outcome| outcome.plan == plan.number) {
            let Some(step) = plan.steps.get(outcome.step) else { continue };
            if let (Action::SetAffinity { pid, tid, .. }, StepResult::Done) =
                (&step.action, &outcome.result)
                && let Reason::AsymSched(AsymSchedReason::Placement(placement)) = &step.reason
            {
                let renamed = self.untold.entry(*pid).or_insert_with(|| Renamed::of(*pid));
                renamed.add(*tid, placement.from, placement.to);
            }
        }
    }

    /// The processes that changed nodes since the last call and still run.
    pub(super) fn take<'a>(&mut self, model: &'a Model) -> impl Iterator<Item = Renamed> + use<'a> {
        let taken = core::mem::take(&mut self.untold).into_values();
        taken.filter(|renamed| model.app(renamed.pid).is_some())
    }
}
