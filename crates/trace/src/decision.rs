//! What was decided, as the file has it, and how two decisions differ.

mod difference;
mod told;

pub use difference::Difference;
pub use told::{Told, Trial, Veto};

use rondpoint_core::controller::Step;
use rondpoint_core::plan;
use serde_json::Value;

use crate::wire;

/// A plan and the verdicts that came with it, recorded or made now.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Decision {
    pub(crate) plan: wire::Plan,
    pub(crate) judged: Vec<wire::Judged>,
}

/// How much a plan does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Actions.
    pub actions: usize,
    /// Pages that they move or copy, one by one. Pages of a whole process's memory are not counted.
    pub pages: usize,
    /// Threads that they restrict.
    pub threads: usize,
}

impl From<&Step> for Decision {
    fn from(step: &Step) -> Self {
        Self { plan: (&step.plan).into(), judged: step.judged.iter().map(Into::into).collect() }
    }
}

impl Decision {
    /// How much it does.
    #[must_use]
    pub fn extent(&self) -> Extent {
        let mut extent = Extent::default();
        for step in &self.plan.steps {
            extent.actions += 1;
            extent.pages += step.action.pages();
            extent.threads += usize::from(step.action.is_of_thread());
        }
        extent
    }

    /// Whether it moves or binds anything. Another rate of sampling does not.
    #[must_use]
    pub fn places(&self) -> bool {
        self.plan.steps.iter().any(|step| !step.action.is_of_sampling())
    }

    /// Trials that it judged.
    #[must_use]
    pub fn judged(&self) -> usize {
        self.judged.len()
    }

    /// Where a later decision on the same input differs first. The words of an explanation may
    /// change, and it may say more than it did: neither is a difference.
    #[must_use]
    pub fn difference(&self, now: &Self) -> Option<Difference> {
        if self == now {
            return None;
        }
        difference::first(&self.json(), &now.json())
    }

    /// As JSON, in the format of the file.
    #[must_use]
    pub fn json(&self) -> Value {
        // By way of text, as what was recorded went: the same numbers are then the same.
        serde_json::from_str(&self.line()).unwrap_or_default()
    }

    /// As one line of JSON: what a digest of many decisions takes.
    #[must_use]
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// For people: actions with their reasons, what was refused, verdicts; a line or two for each.
    #[must_use]
    pub fn text(&self) -> String {
        let proposal = |proposal: &wire::Proposal| {
            let action = plan::Action::from(proposal.action.clone());
            format!("{action}\n     {}: {}\n", proposal.policy, proposal.because)
        };
        let mut text = String::new();
        for (place, step) in self.plan.steps.iter().enumerate() {
            text += &format!("  {}. {}", place + 1, proposal(step));
        }
        for refused in &self.plan.refused {
            text += &format!("  refused: {}", proposal(&refused.proposal));
            text += &format!("     {}\n", refused.because);
        }
        for judged in &self.judged {
            let plans: Vec<String> = judged.plans.iter().map(u64::to_string).collect();
            text += &format!(
                "  plan {} of {} for {}: {}\n",
                plans.join(", "),
                judged.policy,
                judged.pid,
                judged.verdict.text()
            );
        }
        text
    }
}
