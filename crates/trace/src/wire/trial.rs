//! Trials that ended.

use rondpoint_core::Pid;
use rondpoint_core::plan::Kind as CoreKind;
use rondpoint_core::trial::{self, Verdict as CoreVerdict};
use serde::{Deserialize, Serialize};

use super::names;
use super::number::Float;
use super::plan::Mechanism;
use crate::Trial;

/// A trial that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Judged {
    pub(crate) pid: u32,
    pub(crate) policy: String,
    pub(crate) plans: Vec<u64>,
    kinds: Vec<Kind>,
    pub(crate) verdict: Verdict,
    comparison: Comparison,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    predicted: Option<Float>,
}

/// The kind of actions that were tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    #[serde(rename = "pages")]
    Pages(Mechanism),
    #[serde(rename = "replication")]
    Replication,
    #[serde(rename = "affinity")]
    Affinity,
    #[serde(rename = "bulk")]
    Bulk,
    #[serde(rename = "sampling")]
    Sampling,
}

names! {
    Verdict for CoreVerdict {
        Better = "better",
        Worse = "worse",
        Unclear = "unclear",
        PhaseChange = "phase-change",
        NoWayBack = "no-way-back",
        Traded = "traded",
        Returned = "returned",
    }
}

/// Measurements before and after. Values that were not measured are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Comparison {
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slowest: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unstalled: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    combined: Option<Change>,
    phase: Float,
    misses: Float,
}

/// A relative change and its noise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    change: Float,
    noise: Float,
}

impl From<&trial::Judged> for Judged {
    fn from(judged: &trial::Judged) -> Self {
        Self {
            pid: judged.pid.0,
            policy: judged.policy.to_string(),
            plans: judged.plans.clone(),
            kinds: judged.kinds.iter().copied().map(Into::into).collect(),
            verdict: judged.verdict.into(),
            comparison: (&judged.comparison).into(),
            predicted: judged.predicted.map(Float),
        }
    }
}

impl Judged {
    /// The trial in the core's types.
    pub(crate) fn told(&self) -> Trial<'_> {
        Trial {
            pid: Pid(self.pid),
            policy: &self.policy,
            plans: &self.plans,
            verdict: self.verdict.into(),
            comparison: (&self.comparison).into(),
            predicted: self.predicted.map(|predicted| predicted.0),
        }
    }
}

impl From<CoreKind> for Kind {
    fn from(kind: CoreKind) -> Self {
        match kind {
            CoreKind::Pages(mechanism) => Self::Pages(mechanism.into()),
            CoreKind::Replication => Self::Replication,
            CoreKind::Affinity => Self::Affinity,
            CoreKind::Bulk => Self::Bulk,
            CoreKind::Sampling => Self::Sampling,
        }
    }
}

impl From<&Comparison> for trial::Comparison {
    fn from(comparison: &Comparison) -> Self {
        let change = |change: Option<Change>| {
            change.map(|one| trial::Change { change: one.change.0, noise: one.noise.0 })
        };
        Self {
            progress: change(comparison.progress),
            instructions: change(comparison.instructions),
            slowest: change(comparison.slowest),
            latency: change(comparison.latency),
            unstalled: change(comparison.unstalled),
            local: change(comparison.local),
            by_latency: None, // not recorded: it only feeds belief and waits
            combined: change(comparison.combined),
            phase: comparison.phase.0,
            misses: comparison.misses.0,
        }
    }
}

impl From<&trial::Comparison> for Comparison {
    fn from(comparison: &trial::Comparison) -> Self {
        let change = |change: Option<trial::Change>| {
            change.map(|one| Change { change: Float(one.change), noise: Float(one.noise) })
        };
        Self {
            progress: change(comparison.progress),
            instructions: change(comparison.instructions),
            slowest: change(comparison.slowest),
            latency: change(comparison.latency),
            unstalled: change(comparison.unstalled),
            local: change(comparison.local),
            combined: change(comparison.combined),
            phase: Float(comparison.phase),
            misses: Float(comparison.misses),
        }
    }
}
