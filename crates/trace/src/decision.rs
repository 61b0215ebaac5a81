//! What was decided, as the file has it, and how two decisions differ.

mod difference;
mod told;

pub use difference::Difference;
pub use told::{Told, Trial, Veto};

use rondpoint_core::controller::Step;
use rondpoint_core::plan;
use serde_json::Value;

use crate::wire;

/// A plan and the verdicts on ended trials, recorded or of today.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Decision {
    pub(crate) plan: wire::Plan,
    pub(crate) judged: Vec<wire::Judged>,
}

/// Size of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Number of actions.
    pub actions: usize,
    /// Number of single pages that they move or copy. Moves of a whole process's memory do not
    /// count.
    pub pages: usize,
    /// Number of threads whose masks they set.
    pub threads: usize,
}

impl From<&Step> for Decision {
    fn from(step: &Step) -> Self {
        Self { plan: (&step.plan).into(), judged: step.judged.iter().map(Into::into).collect() }
    }
}

impl Decision {
    /// Size of the decision's plan.
    #[must_use]
    pub fn extent(&self) -> Extent {
        let mut extent = Extent::default();
        for step in &self.plan.steps {
            extent.actions += usize::from(!step.action.is_of_sampling());
            extent.pages += step.action.pages();
            extent.threads += usize::from(step.action.is_of_thread());
        }
        extent
    }

    /// Whether the plan moves or binds anything. A change of the sampling rate does not count.
    #[must_use]
    pub fn places(&self) -> bool {
        self.plan.steps.iter().any(|step| !step.action.is_of_sampling())
    }

    /// Number of trials that ended with it.
    #[must_use]
    pub fn judged(&self) -> usize {
        self.judged.len()
    }

    /// The first difference to a later decision on the same input. The wording of an explanation is
    /// not compared, nor are fields that the later explanation adds.
    #[must_use]
    pub fn difference(&self, now: &Self) -> Option<Difference> {
        if self == now {
            return None;
        }
        difference::first(&self.json(), &now.json())
    }

    /// The decision as JSON, in the format of the file.
    #[must_use]
    pub fn json(&self) -> Value {
        // Goes through text, as recorded decisions do, so that equal numbers stay equal.
        serde_json::from_str(&self.line()).unwrap_or_default()
    }

    /// The decision as one line of JSON, the input of a digest over decisions.
    #[must_use]
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The decision as text: actions with reasons, refused proposals and verdicts, one or two lines
    /// each.
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
