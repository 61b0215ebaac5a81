//! Reasons of proposals and refusals, typed, with the numbers that led to them. Text is made only
//! for printing.
//!
//! Each policy defines its own reasons beside its code. [`Reason`] joins them into one type.

use super::NodeMove;
use crate::observation::Exemption;
use crate::policy::asymsched::{AsymSchedReason, PlacementReason};
use crate::policy::auto::Veto;
use crate::policy::carrefour::CarrefourReason;
use crate::policy::gather::GatherReason;
use crate::policy::home::HomeReason;
use crate::policy::nmass::NMassReason;
use crate::policy::sam::{Phase, SamReason, Side};
use crate::policy::sharing::SharingReason;
use crate::units::{Bytes, Nanos, SignedPercent, Tid};
use crate::worth::Worth;
use alloc::vec::Vec;
use core::fmt;

/// Reason of a proposal.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(untagged))]
pub enum Reason {
    /// Pages that congest a controller or a link.
    Carrefour(CarrefourReason),
    /// Threads placed by locality and cache pressure.
    NMass(NMassReason),
    /// A group of nodes with more bandwidth.
    AsymSched(AsymSchedReason),
    /// Sharing, remote memory or bandwidth of sockets.
    Sam(SamReason),
    /// Threads that share data.
    Sharing(SharingReason),
    /// Threads on crowded CPUs, pinned to the node of their data.
    Home(HomeReason),
    /// All threads of a process, brought to one node.
    Gather(GatherReason),
    /// A trial found the change worse, so it is undone.
    Undo(Undo),
    /// Reason of a policy that is not built in, as text with its numbers.
    Other(alloc::string::String),
}

/// The verdict of the trial that led to an undo.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Undo {
    /// Plan that is undone.
    pub plan: u64,
    /// Change of the combined measure, relative (−0.1 = 10 % worse).
    pub change: f64,
    /// Noise that it exceeded, relative.
    pub noise: f64,
}

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "refusal", rename_all = "kebab-case")
)]
pub enum Refusal {
    /// The manager only observes.
    ObserveOnly,
    /// The model is not trusted enough.
    LowConfidence {
        /// Confidence of the model.
        confidence: f64,
        /// Least confidence.
        needed: f64,
    },
    /// The process or thread is not to be touched.
    Exempt {
        /// Why.
        exemption: Exemption,
    },
    /// No such process or thread in the model.
    Unknown,
    /// No CPU of the mask is allowed to the thread, or none is left that is not isolated.
    NoAllowedCpu,
    /// The process may not have memory on the target node.
    NodeNotAllowed {
        /// Target.
        node: usize,
    },
    /// The memory policy of these pages was not read yet, so the process may have bound them. Or
    /// they belong to a copy of a file, which stays on its node.
    PolicyUnread,
    /// A node has no memory, or not enough free.
    NoMemory {
        /// Target.
        node: usize,
        /// Free there.
        free: Bytes,
    },
    /// Bytes per second to or from a node are used up.
    ByteBudget {
        /// Node.
        node: usize,
        /// Left.
        left: Bytes,
    },
    /// Calls per second are used up.
    CallBudget,
    /// The page or thread is already there.
    AlreadyThere,
    /// The page or thread moved too recently.
    Residence {
        /// How long it has to stay.
        left: Nanos,
    },
    /// The page or thread moved too often.
    PingPong {
        /// Moves in the window.
        moves: u32,
    },
    /// A trial undid the same kind of change before.
    Undone {
        /// How long it stays refused.
        left: Nanos,
    },
    /// Trials of the same kind of change found no gain.
    InVain {
        /// How long it is not tried again.
        left: Nanos,
    },
    /// The process has too few windows to compare with after the change.
    TooEarly,
    /// A trial of this process is running: no other change until it is judged.
    TrialRunning,
    /// A bulk move of the process is in the same step.
    Locked,
    /// The manager's movers used more than their share of the run time.
    TimeBudget {
        /// Spent.
        spent: Nanos,
        /// Allowed.
        allowed: Nanos,
    },
    /// The other half of an exchange, or a part of an indivisible placement, was refused.
    PartnerRefused,
    /// Another policy of higher priority moved the same subject in this step.
    Conflict,
    /// A rule of `auto` gave another policy priority.
    #[cfg_attr(feature = "serde", serde(rename = "held"))]
    Vetoed {
        /// The rule.
        #[cfg_attr(feature = "serde", serde(rename = "held"))]
        veto: Veto,
    },
    /// The cost model predicts no gain above its cost.
    Worth {
        /// The worth; `None` if too little is known to price it.
        worth: Option<Worth>,
    },
    /// The action does not make sense on this topology (a CPU or node that is not there, an empty
    /// list).
    Malformed,
}

impl Reason {
    /// Whether a thread may be moved before its residence is over: only to bring sharers together
    /// (SAM's phase C).
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        matches!(self, Self::Sam(SamReason::Move { phase: Phase::Coherence, .. }))
    }

    /// Whether the proposals of the policy with such reasons are one placement, done as a whole or
    /// not at all. The pins of threads that stay belong to it: without them, the kernel moves these
    /// threads away.
    #[must_use]
    pub fn is_indivisible(&self) -> bool {
        use AsymSchedReason::{Placement, Staying};
        matches!(self, Self::AsymSched(Placement(_) | Staying { .. }))
    }

    /// Whether the proposal is a part of a placement of all threads of a process. Memory follows
    /// them.
    #[must_use]
    pub fn moves_all_threads(&self) -> bool {
        self.is_indivisible() || matches!(self, Self::Gather(GatherReason::Threads { .. }))
    }

    /// The moves of memory that will follow the thread, which moves with all threads of its node or
    /// of its process. `held` = memory of the process by node.
    #[must_use]
    pub fn memory_follows(&self, held: &[Bytes]) -> Vec<NodeMove> {
        match self {
            Self::Gather(GatherReason::Threads { node, .. }) => NodeMove::all_to(*node, held),
            Self::AsymSched(AsymSchedReason::Placement(PlacementReason { from, to, .. })) => {
                Vec::from([NodeMove { from: *from, to: *to }])
            }
            _ => Vec::new(),
        }
    }

    /// The thread with which this thread changes places, if the proposal is one half of an
    /// exchange. Both move or neither.
    #[must_use]
    pub fn exchanged_with(&self) -> Option<Tid> {
        match self {
            Self::Sam(SamReason::Move { side: Side::Partner { of }, .. }) => Some(*of),
            _ => None,
        }
    }

    /// The thread that joins this thread, which stays in place for it.
    #[must_use]
    pub fn joined_by(&self) -> Option<Tid> {
        match self {
            Self::Sam(SamReason::Company { of, .. }) => Some(*of),
            _ => None,
        }
    }
}

impl Refusal {
    /// Whether a page or thread is refused for its own moves of before, and the others of its step
    /// are not.
    #[must_use]
    pub fn is_of_subject(&self) -> bool {
        matches!(self, Self::Residence { .. } | Self::PingPong { .. })
    }

    /// Whether two refusals differ in their numbers at most.
    #[must_use]
    pub fn same_cause(&self, other: &Self) -> bool {
        core::mem::discriminant(self) == core::mem::discriminant(other)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Carrefour(reason) => reason.fmt(f),
            Self::NMass(reason) => reason.fmt(f),
            Self::AsymSched(reason) => reason.fmt(f),
            Self::Sam(reason) => reason.fmt(f),
            Self::Sharing(reason) => reason.fmt(f),
            Self::Gather(reason) => reason.fmt(f),
            Self::Home(reason) => reason.fmt(f),
            Self::Undo(undo) => write!(
                f,
                "plan {} changed the measure by {:.1}, noise {:.1} %: undone",
                undo.plan,
                SignedPercent(undo.change),
                100.0 * undo.noise
            ),
            Self::Other(text) => f.write_str(text),
        }
    }
}
