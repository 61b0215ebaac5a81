//! Plans, and what became of them.

use rondpoint_core::plan::{self, Mechanism as CoreMechanism, StepResult};
use rondpoint_core::{Bytes, Nanos, Pid, Tid};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::names;
use super::number::Set;

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) number: u64,
    pub(crate) steps: Vec<Proposal>,
    pub(crate) inverses: Vec<Inverse>,
    pub(crate) refused: Vec<Refused>,
}

impl Plan {
    /// 64-bit words of its sets after they are expanded.
    pub(crate) fn words(&self) -> u64 {
        let steps = self.steps.iter().map(|step| &step.action);
        let refused = self.refused.iter().map(|refused| &refused.proposal.action);
        let undone = self.inverses.iter().filter_map(|inverse| inverse.action.as_ref());
        steps.chain(refused).chain(undone).map(Action::words).sum()
    }
}

/// A proposal of a policy with its reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Proposal {
    pub(crate) policy: String,
    pub(crate) action: Action,
    /// The policy's reason as JSON. Its fields are not part of the format and may change.
    pub(crate) reason: Value,
    /// The reason as text.
    pub(crate) because: String,
}

/// A proposal that the guard refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refused {
    pub(crate) proposal: Proposal,
    /// The guard's refusal as JSON. Its fields are not part of the format and may change.
    pub(crate) refusal: Value,
    /// The refusal as text.
    pub(crate) because: String,
}

/// The action that undoes a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Inverse {
    plan: u64,
    step: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<Action>,
    exact: bool,
}

/// A change of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", deny_unknown_fields)]
pub(crate) enum Action {
    #[serde(rename = "move-pages")]
    MovePages { pid: u32, mechanism: Mechanism, pages: Vec<PageMove> },
    #[serde(rename = "replicate")]
    Replicate { pid: u32, pages: Vec<PageMove> },
    #[serde(rename = "unreplicate")]
    Unreplicate { pid: u32, pages: Vec<PageMove> },
    #[serde(rename = "set-affinity")]
    SetAffinity {
        pid: u32,
        tid: u32,
        cpus: Set,
        #[serde(skip_serializing_if = "Option::is_none")]
        via: Option<usize>,
    },
    #[serde(rename = "move-process-memory")]
    MoveProcessMemory { pid: u32, nodes: Vec<(usize, usize)>, freeze: bool, memory_bytes: u64 },
    #[serde(rename = "set-sampling")]
    SetSampling {
        #[serde(skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        every: Option<Sampling>,
    },
}

/// `[address, shift, from, to]`.
type PageMove = (u64, u8, u16, u16);

/// A sampling rate; absent for off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sampling {
    cycles: u64,
    tracked_pages: usize,
}

names! {
    Mechanism for CoreMechanism {
        CoLocation = "co-location",
        Interleaving = "interleaving",
        Offloading = "offloading",
        Following = "following",
    }
}

/// The outcome of a step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Outcome {
    plan: u64,
    step: usize,
    result: Result,
    spent_ns: u64,
    frozen_ns: u64,
}

/// The result of a step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Result {
    #[serde(rename = "done")]
    Done,
    #[serde(rename = "pages")]
    Pages(PageCounts),
    #[serde(rename = "gone")]
    Gone,
    #[serde(rename = "unsupported")]
    Unsupported,
    /// Refused with the kernel's error number.
    #[serde(rename = "refused")]
    Refused(i32),
}

/// Results for the pages of a step, in base pages of 4 KiB.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageCounts {
    moved: u64,
    in_place: u64,
    /// Absent in traces of older programs, which means 0.
    #[serde(default, skip_serializing_if = "is_none")]
    elsewhere: u64,
    absent: u64,
    busy: u64,
    no_memory: u64,
    failed: u64,
    collapsed: u64,
}

impl From<&plan::Plan> for Plan {
    fn from(plan: &plan::Plan) -> Self {
        Self {
            number: plan.number,
            steps: plan.steps.iter().map(Into::into).collect(),
            inverses: plan.inverses.iter().map(Into::into).collect(),
            refused: plan.refused.iter().map(Into::into).collect(),
        }
    }
}

impl From<&plan::Proposal> for Proposal {
    fn from(proposal: &plan::Proposal) -> Self {
        Self {
            policy: proposal.policy.to_string(),
            action: (&proposal.action).into(),
            reason: explanation(&proposal.reason),
            because: proposal.reason.to_string(),
        }
    }
}

impl From<&plan::Refused> for Refused {
    fn from(refused: &plan::Refused) -> Self {
        Self {
            proposal: (&refused.proposal).into(),
            refusal: explanation(&refused.refusal),
            because: refused.refusal.to_string(),
        }
    }
}

/// The core's serialization of a reason or refusal. It is null for a type that JSON cannot hold,
/// such as a map with keys that are no text.
fn explanation(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or(Value::Null)
}

impl From<&plan::Inverse> for Inverse {
    fn from(inverse: &plan::Inverse) -> Self {
        Self {
            plan: inverse.plan,
            step: inverse.step,
            action: inverse.action.as_ref().map(Into::into),
            exact: inverse.exact,
        }
    }
}

impl Action {
    /// Number of single pages that the action moves or copies.
    pub(crate) fn pages(&self) -> usize {
        match self {
            Self::MovePages { pages, .. }
            | Self::Replicate { pages, .. }
            | Self::Unreplicate { pages, .. } => pages.len(),
            Self::SetAffinity { .. }
            | Self::MoveProcessMemory { .. }
            | Self::SetSampling { .. } => 0,
        }
    }

    /// 64-bit words of its CPU set after it is expanded.
    fn words(&self) -> u64 {
        match self {
            Self::SetAffinity { cpus, .. } => cpus.words(),
            _ => 0,
        }
    }

    /// Whether the action sets a sampling rate.
    pub(crate) fn is_of_sampling(&self) -> bool {
        matches!(self, Self::SetSampling { .. })
    }

    /// Whether the action sets a thread's mask.
    pub(crate) fn is_of_thread(&self) -> bool {
        matches!(self, Self::SetAffinity { .. })
    }
}

fn page(page: &plan::PageMove) -> PageMove {
    (page.address, page.shift, page.from, page.to)
}

fn core_page((address, shift, from, to): PageMove) -> plan::PageMove {
    plan::PageMove { address, shift, from, to }
}

impl From<&plan::Action> for Action {
    fn from(action: &plan::Action) -> Self {
        let moves = |pages: &[plan::PageMove]| pages.iter().map(page).collect();
        match action {
            plan::Action::MovePages { pid, mechanism, pages } => {
                Self::MovePages { pid: pid.0, mechanism: (*mechanism).into(), pages: moves(pages) }
            }
            plan::Action::Replicate { pid, pages } => {
                Self::Replicate { pid: pid.0, pages: moves(pages) }
            }
            plan::Action::Unreplicate { pid, pages } => {
                Self::Unreplicate { pid: pid.0, pages: moves(pages) }
            }
            plan::Action::SetAffinity { pid, tid, cpus, via } => {
                Self::SetAffinity { pid: pid.0, tid: tid.0, cpus: Set::from(cpus), via: *via }
            }
            plan::Action::MoveProcessMemory { pid, nodes, freeze, memory } => {
                Self::MoveProcessMemory {
                    pid: pid.0,
                    nodes: nodes.iter().map(|node| (node.from, node.to)).collect(),
                    freeze: *freeze,
                    memory_bytes: memory.0,
                }
            }
            plan::Action::SetSampling { pid, sampling } => Self::SetSampling {
                pid: pid.map(|pid| pid.0),
                every: match *sampling {
                    plan::Sampling::Off => None,
                    plan::Sampling::Every { cycles, tracked_pages } => {
                        Some(Sampling { cycles, tracked_pages })
                    }
                },
            },
        }
    }
}

impl From<Action> for plan::Action {
    fn from(action: Action) -> Self {
        let moves = |pages: Vec<PageMove>| pages.into_iter().map(core_page).collect();
        match action {
            Action::MovePages { pid, mechanism, pages } => {
                Self::MovePages { pid: Pid(pid), mechanism: mechanism.into(), pages: moves(pages) }
            }
            Action::Replicate { pid, pages } => {
                Self::Replicate { pid: Pid(pid), pages: moves(pages) }
            }
            Action::Unreplicate { pid, pages } => {
                Self::Unreplicate { pid: Pid(pid), pages: moves(pages) }
            }
            Action::SetAffinity { pid, tid, cpus, via } => {
                Self::SetAffinity { pid: Pid(pid), tid: Tid(tid), cpus: cpus.expand(), via }
            }
            Action::MoveProcessMemory { pid, nodes, freeze, memory_bytes } => {
                let node = |(from, to)| plan::NodeMove { from, to };
                Self::MoveProcessMemory {
                    pid: Pid(pid),
                    nodes: nodes.into_iter().map(node).collect(),
                    freeze,
                    memory: Bytes(memory_bytes),
                }
            }
            Action::SetSampling { pid, every } => Self::SetSampling {
                pid: pid.map(Pid),
                sampling: match every {
                    None => plan::Sampling::Off,
                    Some(Sampling { cycles, tracked_pages }) => {
                        plan::Sampling::Every { cycles, tracked_pages }
                    }
                },
            },
        }
    }
}

impl From<&plan::Outcome> for Outcome {
    fn from(outcome: &plan::Outcome) -> Self {
        Self {
            plan: outcome.plan,
            step: outcome.step,
            result: match &outcome.result {
                StepResult::Done => Result::Done,
                StepResult::Pages(counts) => Result::Pages(counts.into()),
                StepResult::Gone => Result::Gone,
                StepResult::Unsupported => Result::Unsupported,
                StepResult::Refused { errno } => Result::Refused(*errno),
            },
            spent_ns: outcome.spent.0,
            frozen_ns: outcome.frozen.0,
        }
    }
}

impl From<Outcome> for plan::Outcome {
    fn from(outcome: Outcome) -> Self {
        Self {
            plan: outcome.plan,
            step: outcome.step,
            result: match outcome.result {
                Result::Done => StepResult::Done,
                Result::Pages(counts) => StepResult::Pages(counts.into()),
                Result::Gone => StepResult::Gone,
                Result::Unsupported => StepResult::Unsupported,
                Result::Refused(errno) => StepResult::Refused { errno },
            },
            spent: Nanos(outcome.spent_ns),
            frozen: Nanos(outcome.frozen_ns),
        }
    }
}

fn is_none(pages: &u64) -> bool {
    *pages == 0
}

impl From<&plan::PageCounts> for PageCounts {
    fn from(counts: &plan::PageCounts) -> Self {
        let plan::PageCounts {
            moved,
            in_place,
            elsewhere,
            absent,
            busy,
            no_memory,
            failed,
            collapsed,
        } = *counts;
        Self { moved, in_place, elsewhere, absent, busy, no_memory, failed, collapsed }
    }
}

impl From<PageCounts> for plan::PageCounts {
    fn from(counts: PageCounts) -> Self {
        let PageCounts { moved, in_place, elsewhere, absent, busy, no_memory, failed, collapsed } =
            counts;
        Self { moved, in_place, elsewhere, absent, busy, no_memory, failed, collapsed }
    }
}
