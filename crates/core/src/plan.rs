//! Actions, proposals, plans and outcomes, as plain data.

mod reason;
mod shown;

pub use reason::{Reason, Refusal, Undo};
pub use shown::Shown;

use crate::index_set::CpuSet;
use crate::units::{Bytes, Nanos, Pid, Tid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// One change of the host. Nodes and CPUs are indices of the topology.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "action", rename_all = "kebab-case")
)]
pub enum Action {
    /// Move these pages of a process, each to its node, in as few calls as possible.
    MovePages {
        /// Process.
        pid: Pid,
        /// The mechanism that proposed it.
        mechanism: Mechanism,
        /// Pages and their targets.
        pages: Vec<PageMove>,
    },
    /// Give every node that runs threads of the process its own copy of these pages.
    Replicate {
        /// Process.
        pid: Pid,
        /// Pages.
        pages: Vec<PageMove>,
    },
    /// Drop the copies of these pages.
    Unreplicate {
        /// Process.
        pid: Pid,
        /// Pages; the target is the node of the copy that stays.
        pages: Vec<PageMove>,
    },
    /// Restrict a thread to these CPUs.
    SetAffinity {
        /// Process of the thread.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// Its new mask.
        cpus: CpuSet,
        /// Put it on this CPU first, then widen to `cpus` (SAM: exact CPU, then all CPUs of the
        /// destination).
        via: Option<usize>,
    },
    /// Move the memory of a whole process from node to node.
    MoveProcessMemory {
        /// Process.
        pid: Pid,
        /// Source and target nodes. Sources are distinct. All moves count as simultaneous: memory
        /// that arrives on a source does not move on.
        nodes: Vec<NodeMove>,
        /// Stop the process meanwhile.
        freeze: bool,
        /// Memory that was resident on the sources at the time of the proposal.
        memory: Bytes,
    },
    /// Change how often addresses are sampled.
    SetSampling {
        /// Process, or all.
        pid: Option<Pid>,
        /// The new rate.
        sampling: Sampling,
    },
}

/// Kinds of actions. Failures, waits and locks are counted by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Kind {
    /// Page moves of one mechanism.
    Pages(Mechanism),
    /// Replication, on or off.
    Replication,
    /// Affinity of threads.
    Affinity,
    /// Memory of a whole process.
    Bulk,
    /// Sampling rate.
    Sampling,
}

impl Kind {
    /// Whether it moves or copies single pages.
    #[must_use]
    pub fn moves_pages(self) -> bool {
        matches!(self, Self::Pages(_) | Self::Replication)
    }
}

/// Which of Carrefour's and AsymSched's page mechanisms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Mechanism {
    /// To the only node that accesses the page.
    CoLocation,
    /// To a node drawn at random, away from busy controllers.
    Interleaving,
    /// To a node drawn at random, for pages that only their own node accesses.
    Offloading,
    /// To the new node of their threads, as the pages are accessed there.
    Following,
}

/// A page, its node and its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PageMove {
    /// First address.
    pub address: u64,
    /// log2 of its size.
    pub shift: u8,
    /// Node that holds the page now. The page moves only from this node.
    pub from: u16,
    /// Target node.
    pub to: u16,
}

/// A source and a target node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct NodeMove {
    /// Source.
    pub from: usize,
    /// Target.
    pub to: usize,
}

impl NodeMove {
    /// Moves of all memory on other nodes to `node`, of a process with so much memory on each node.
    #[must_use]
    pub fn all_to(node: usize, memory: &[Bytes]) -> Vec<Self> {
        let held = memory.iter().enumerate().filter(|(_, bytes)| bytes.0 > 0);
        let sources = held.map(|(from, _)| from).filter(|from| *from != node);
        sources.map(|from| Self { from, to: node }).collect()
    }
}

/// How often addresses are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Sampling {
    /// Counters only.
    Off,
    /// One sample every `cycles` cycles of each CPU, at most `tracked_pages` pages tracked.
    Every {
        /// Cycles.
        cycles: u64,
        /// Pages.
        tracked_pages: usize,
    },
}

impl Sampling {
    /// Cycles between two samples; `None` without sampling.
    #[must_use]
    pub fn cycles(self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Every { cycles, .. } => Some(cycles),
        }
    }

    /// Pages that are tracked; `None` without sampling.
    #[must_use]
    pub fn tracked_pages(self) -> Option<usize> {
        match self {
            Self::Off => None,
            Self::Every { tracked_pages, .. } => Some(tracked_pages),
        }
    }
}

/// An action that a policy proposes, with its reason.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Proposal {
    /// The policy's name.
    pub policy: &'static str,
    /// What.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub action: Action,
    /// The reason, with the numbers that led to it.
    pub reason: Reason,
}

/// A proposal that the guard did not admit, whole or in part.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Refused {
    /// The proposal, or the refused part of it.
    pub proposal: Proposal,
    /// The reason of the refusal.
    pub refusal: Refusal,
}

/// How to undo one step.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Inverse {
    /// Plan of the step.
    pub plan: u64,
    /// Index of the step in it.
    pub step: usize,
    /// The action that undoes it. `None` for sampling rates, which are reset at the end anyway.
    /// `None` also if undoing would move more memory than the step moved.
    pub action: Option<Action>,
    /// Whether the action restores the first state exactly.
    pub exact: bool,
}

/// Steps to carry out now, in this order.
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Plan {
    /// Number of the plan, counted by the controller from 1.
    pub number: u64,
    /// Admitted proposals.
    pub steps: Vec<Proposal>,
    /// The inverse of each step, written to the ledger before any step is carried out.
    pub inverses: Vec<Inverse>,
    /// Refused proposals, for reports.
    pub refused: Vec<Refused>,
    /// Relative change of speed that the steps are to bring, by process. Processes without a
    /// prediction are left out.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub predicted: BTreeMap<Pid, f64>,
}

impl Plan {
    /// The steps with these outcomes, each with its outcome. Outcomes of other plans are left out.
    pub fn results<'a>(
        &'a self,
        outcomes: &'a [Outcome],
    ) -> impl Iterator<Item = (&'a Proposal, &'a Outcome)> {
        let own = outcomes.iter().filter(|outcome| outcome.plan == self.number);
        own.filter_map(|outcome| Some((self.steps.get(outcome.step)?, outcome)))
    }

    /// Whether the plan changes more than sampling rates.
    #[must_use]
    pub fn acts(&self) -> bool {
        self.steps.iter().any(|step| step.action.kind() != Kind::Sampling)
    }
}

/// Divides a step into a permitted and a refused part, without regard to its worth. Steps that wait
/// for a trial of another policy are refused, and so are pages that moved recently.
pub type Permits<'a> = &'a dyn Fn(Proposal) -> Permitted;

/// The permitted and the refused parts of a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Permitted {
    /// The permitted part.
    pub step: Option<Proposal>,
    /// The refused parts, with reasons.
    pub refused: Vec<Refused>,
}

impl Permitted {
    /// A step that is permitted as a whole.
    #[must_use]
    pub fn all(step: Proposal) -> Self {
        Self { step: Some(step), refused: Vec::new() }
    }
}

/// What a policy chose among its own proposals.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Choice {
    /// Proposals that the policy itself refused, with the reasons, for reports.
    pub refused: Vec<Refused>,
    /// Relative change of speed that the chosen proposals together are to bring, by process. It is
    /// empty for a policy that prices nothing; the cost model predicts its changes.
    pub predicted: BTreeMap<Pid, f64>,
}

/// Outcome of one step of a plan.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Outcome {
    /// Number of the plan.
    pub plan: u64,
    /// Index of the step in it.
    pub step: usize,
    /// Result of the step.
    pub result: StepResult,
    /// How long the host worked on it.
    pub spent: Nanos,
    /// How long the process was stopped for it.
    pub frozen: Nanos,
}

/// Result of a step. A partial success is a success with counts. A refused action is a result, not
/// an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "result", rename_all = "kebab-case")
)]
pub enum StepResult {
    /// Done; for affinity and sampling.
    Done,
    /// Pages were moved or replicated.
    Pages(PageCounts),
    /// The subject ended before or meanwhile.
    Gone,
    /// The host has no such mechanism (replication without the kernel patch, sampling without a
    /// PMU).
    Unsupported,
    /// The host refused with this errno.
    Refused {
        /// The kernel's error number.
        errno: i32,
    },
}

impl StepResult {
    /// Whether the step changed anything.
    #[must_use]
    pub fn has_effect(&self) -> bool {
        match self {
            Self::Done => true,
            Self::Pages(counts) => counts.moved > 0,
            Self::Gone | Self::Unsupported | Self::Refused { .. } => false,
        }
    }
}

/// Results for the pages of a step, counted in base pages of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PageCounts {
    /// Moved, or replicated.
    pub moved: u64,
    /// Already where they should be.
    pub in_place: u64,
    /// On a node that is neither the planned source nor the target, and left there. The kernel or
    /// another program moved them, or no sample had shown their node.
    pub elsewhere: u64,
    /// Unmapped, zero or special pages.
    pub absent: u64,
    /// Pinned or under writeback (EBUSY).
    pub busy: u64,
    /// No memory on the target (ENOMEM).
    pub no_memory: u64,
    /// Refused for another cause (EACCES, EPERM, EIO …).
    pub failed: u64,
    /// Replicas that collapsed because of a write.
    pub collapsed: u64,
}

impl Action {
    /// The process that is changed; `None` for the machine.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        match self {
            Self::MovePages { pid, .. }
            | Self::Replicate { pid, .. }
            | Self::Unreplicate { pid, .. }
            | Self::SetAffinity { pid, .. }
            | Self::MoveProcessMemory { pid, .. } => Some(*pid),
            Self::SetSampling { pid, .. } => *pid,
        }
    }

    /// The thread whose mask is set; `None` for all that is no mask.
    #[must_use]
    pub fn tid(&self) -> Option<Tid> {
        match self {
            Self::SetAffinity { tid, .. } => Some(*tid),
            _ => None,
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::MovePages { mechanism, .. } => Kind::Pages(*mechanism),
            Self::Replicate { .. } | Self::Unreplicate { .. } => Kind::Replication,
            Self::SetAffinity { .. } => Kind::Affinity,
            Self::MoveProcessMemory { .. } => Kind::Bulk,
            Self::SetSampling { .. } => Kind::Sampling,
        }
    }
}

impl PageCounts {
    /// Each of the counts.
    pub fn each(&self) -> impl Iterator<Item = u64> {
        let Self { moved, in_place, elsewhere, absent, busy, no_memory, failed, collapsed } = *self;
        [moved, in_place, elsewhere, absent, busy, no_memory, failed, collapsed].into_iter()
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.moved += other.moved;
        self.in_place += other.in_place;
        self.elsewhere += other.elsewhere;
        self.absent += other.absent;
        self.busy += other.busy;
        self.no_memory += other.no_memory;
        self.failed += other.failed;
        self.collapsed += other.collapsed;
    }
}

impl PageMove {
    /// Size of the page. For a malformed page, which the guard refuses, the largest number.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes(1_u64.checked_shl(self.shift.into()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CoLocation => "co-location",
            Self::Interleaving => "interleaving",
            Self::Offloading => "offloading",
            Self::Following => "following",
        })
    }
}
