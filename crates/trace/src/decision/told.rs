//! What a decision says, in the core's types: for what shows recordings.

use rondpoint_core::plan::Action;
use rondpoint_core::trial::{Comparison, Verdict};
use rondpoint_core::{Pid, plan};
use serde_json::Value;

use super::Decision;
use crate::wire;

/// A proposal of a policy, in the plan or refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Told<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The proposed action.
    pub action: Action,
    /// The policy's reason, as text.
    pub because: &'a str,
    /// The guard's refusal; `None` if the action is part of the plan.
    pub veto: Option<Veto<'a>>,
}

/// The guard's refusal of a proposal.
#[derive(Debug, Clone, PartialEq)]
pub struct Veto<'a> {
    /// Name of the rule without numbers, such as `too-early` or `held: no-room`.
    pub rule: String,
    /// The refusal as text, with its numbers.
    pub because: &'a str,
}

/// A trial that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial<'a> {
    /// Process of the trial.
    pub pid: Pid,
    /// Policy whose actions were tried.
    pub policy: &'a str,
    /// Numbers of the plans with these actions.
    pub plans: &'a [u64],
    /// Result of the trial.
    pub verdict: Verdict,
    /// Measurements before and after the actions.
    pub comparison: Comparison,
    /// Predicted change of speed, as a share.
    pub predicted: Option<f64>,
}

impl Decision {
    /// Number of the plan; 0 for an empty decision.
    #[must_use]
    pub fn plan_number(&self) -> u64 {
        self.plan.number
    }

    /// All proposals: the steps of the plan in order, then the refused ones.
    pub fn told(&self) -> impl Iterator<Item = Told<'_>> {
        let steps = self.plan.steps.iter().map(|step| told(step, None));
        steps.chain(self.plan.refused.iter().map(|refused| {
            let veto = Veto { rule: rule(&refused.refusal), because: &refused.because };
            told(&refused.proposal, Some(veto))
        }))
    }

    /// The trials that ended with this decision.
    pub fn trials(&self) -> impl Iterator<Item = Trial<'_>> {
        self.judged.iter().map(wire::Judged::told)
    }
}

fn told<'a>(proposal: &'a wire::Proposal, veto: Option<Veto<'a>>) -> Told<'a> {
    Told {
        policy: &proposal.policy,
        action: plan::Action::from(proposal.action.clone()),
        because: &proposal.because,
        veto,
    }
}

/// The name of the rule in a refusal, which has the format of the program that wrote it.
fn rule(refusal: &Value) -> String {
    let name = refusal["refusal"].as_str().unwrap_or("refused");
    match refusal["held"]["rule"].as_str() {
        Some(rule) => format!("{name}: {rule}"),
        None => name.to_string(),
    }
}
