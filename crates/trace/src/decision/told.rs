//! What a decision says, in the core's types: for what shows recordings.

use rondpoint_core::plan::Action;
use rondpoint_core::trial::{Comparison, Verdict};
use rondpoint_core::{Pid, plan};
use serde_json::Value;

use super::Decision;
use crate::wire;

/// What a policy wanted: done, or refused.
#[derive(Debug, Clone, PartialEq)]
pub struct Told<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// What it wanted.
    pub action: Action,
    /// Why, for people.
    pub because: &'a str,
    /// Why it was not done; `None` = it is part of the plan.
    pub veto: Option<Veto<'a>>,
}

/// Why a proposal was not done.
#[derive(Debug, Clone, PartialEq)]
pub struct Veto<'a> {
    /// The rule's name, as `too-early` or `held: no-room`: the same for all numbers.
    pub rule: String,
    /// The same for people, with the numbers.
    pub because: &'a str,
}

/// A trial that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial<'a> {
    /// Process.
    pub pid: Pid,
    /// The policy that acted.
    pub policy: &'a str,
    /// Plans that took part.
    pub plans: &'a [u64],
    /// What came of it.
    pub verdict: Verdict,
    /// What the verdict was made from, before and after.
    pub comparison: Comparison,
    /// Relative change of speed that was predicted.
    pub predicted: Option<f64>,
}

impl Decision {
    /// Number of its plan; 0 = nothing was decided.
    #[must_use]
    pub fn plan_number(&self) -> u64 {
        self.plan.number
    }

    /// What was wanted: the plan's steps in order, then what was refused.
    pub fn told(&self) -> impl Iterator<Item = Told<'_>> {
        let steps = self.plan.steps.iter().map(|step| told(step, None));
        steps.chain(self.plan.refused.iter().map(|refused| {
            let veto = Veto { rule: rule(&refused.refusal), because: &refused.because };
            told(&refused.proposal, Some(veto))
        }))
    }

    /// Trials that ended.
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

/// The name of a rule, out of an explanation in the words of the program that wrote it.
fn rule(refusal: &Value) -> String {
    let name = refusal["refusal"].as_str().unwrap_or("refused");
    match refusal["held"]["rule"].as_str() {
        Some(rule) => format!("{name}: {rule}"),
        None => name.to_string(),
    }
}
