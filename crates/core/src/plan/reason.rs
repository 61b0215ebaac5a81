//! Why something is proposed or refused: typed, with the numbers that led to it. Text is made from
//! it only when printing.
//!
//! Each policy keeps its own reasons beside its code; here they become one type.

use crate::observation::Exemption;
use crate::policy::asymsched::AsymSchedReason;
use crate::policy::auto::Veto;
use crate::policy::carrefour::CarrefourReason;
use crate::policy::home::HomeReason;
use crate::policy::nmass::NMassReason;
use crate::policy::sam::{Phase, SamReason, Side};
use crate::policy::sharing::SharingReason;
use crate::units::{Bytes, Nanos, Tid};
use crate::worth::Worth;
use core::fmt;

/// Why something is proposed.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(untagged))]
pub enum Reason {
    /// Pages that congest a controller or a link.
    Carrefour(CarrefourReason),
    /// Locality against cache pressure.
    NMass(NMassReason),
    /// Groups of nodes with more bandwidth between them.
    AsymSched(AsymSchedReason),
    /// Sharing, remote memory or bandwidth of sockets.
    Sam(SamReason),
    /// Threads that share data.
    Sharing(SharingReason),
    /// The node of a thread's data, where threads take turns.
    Home(HomeReason),
    /// The check window found it worse than before: back to what it was.
    Undo(Undo),
    /// Reason of a policy that is not built in, as text with its numbers.
    Other(alloc::string::String),
}

/// The check window's verdict behind an undo.
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

/// Why a proposal was not admitted.
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
        /// Of the model.
        confidence: f64,
        /// Needed.
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
    /// Its memory policy was not read there yet: it may be one of its own. Or a copy of a file lies
    /// there, which stays on its node.
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
    /// It is so already.
    AlreadyThere,
    /// It moved too recently.
    Residence {
        /// How long it has to stay yet.
        left: Nanos,
    },
    /// It would go back and forth.
    PingPong {
        /// Moves in the window.
        moves: u32,
    },
    /// The same was undone before.
    Undone {
        /// How long it stays refused.
        left: Nanos,
    },
    /// Trials of the same found no gain.
    InVain {
        /// For how long it is left.
        left: Nanos,
    },
    /// The process has not been watched for long enough to tell afterwards whether it helped.
    TooEarly,
    /// A trial of this process is running: no other change until it is judged.
    TrialRunning,
    /// Another action has the process (bulk migration wins).
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
    /// One of several policies gave way to another by a rule of `auto`.
    #[cfg_attr(feature = "serde", serde(rename = "held"))]
    Vetoed {
        /// The rule.
        #[cfg_attr(feature = "serde", serde(rename = "held"))]
        veto: Veto,
    },
    /// It is not worth what it costs, by the cost model.
    Worth {
        /// What it would be worth; `None` where too little is known to price it.
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

    /// Whether the policy's proposals with such reasons are one placement: all of them or none.
    #[must_use]
    pub fn is_indivisible(&self) -> bool {
        matches!(self, Self::AsymSched(AsymSchedReason::Placement(_)))
    }

    /// The thread with which this one changes places, if it is one half of an exchange: both move
    /// or neither.
    #[must_use]
    pub fn exchanged_with(&self) -> Option<Tid> {
        match self {
            Self::Sam(SamReason::Move { side: Side::Partner { of }, .. }) => Some(*of),
            _ => None,
        }
    }

    /// The thread that joins this one, which stays for it.
    #[must_use]
    pub fn joined_by(&self) -> Option<Tid> {
        match self {
            Self::Sam(SamReason::Company { of, .. }) => Some(*of),
            _ => None,
        }
    }
}

impl Refusal {
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
            Self::Home(reason) => reason.fmt(f),
            Self::Undo(undo) => write!(
                f,
                "plan {} changed the measure by {:+.1} %, noise {:.1} %: undone",
                undo.plan,
                100.0 * undo.change,
                100.0 * undo.noise
            ),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ObserveOnly => write!(f, "only observing"),
            Self::LowConfidence { confidence, needed } => {
                write!(f, "confidence {confidence:.2}, {needed:.2} needed")
            }
            Self::Exempt { exemption } => write!(f, "not to be touched: {exemption:?}"),
            Self::Unknown => write!(f, "no such process or thread"),
            Self::NoAllowedCpu => write!(f, "no CPU of the mask is allowed to the thread"),
            Self::NodeNotAllowed { node } => write!(f, "node {node} is not allowed to the process"),
            Self::PolicyUnread => write!(f, "it may have a memory policy of its own there"),
            Self::NoMemory { node, free } => write!(f, "node {node} has {free} free"),
            Self::ByteBudget { node, left } => write!(f, "budget of node {node}: {left} left"),
            Self::CallBudget => write!(f, "calls per second used up"),
            Self::AlreadyThere => write!(f, "it is so already"),
            Self::Residence { left } => write!(f, "stays {left} more"),
            Self::PingPong { moves } => write!(f, "moved {moves} times in the window"),
            Self::Undone { left } => write!(f, "was undone, refused for {left}"),
            Self::InVain { left } => write!(f, "tried in vain, left for {left}"),
            Self::TooEarly => write!(f, "not watched for long enough yet"),
            Self::TrialRunning => write!(f, "a trial is running"),
            Self::Locked => write!(f, "another action has the process"),
            Self::TimeBudget { spent, allowed } => {
                write!(f, "movers spent {spent}, {allowed} allowed")
            }
            Self::PartnerRefused => write!(f, "a thread that should move with it stays"),
            Self::Vetoed { veto } => veto.fmt(f),
            Self::Worth { worth: Some(worth) } => worth.fmt(f),
            Self::Worth { worth: None } => write!(f, "too little is known to price it"),
            Self::Conflict => write!(f, "a policy of higher priority moved it"),
            Self::Malformed => write!(f, "no such CPU or node, or nothing to do"),
        }
    }
}
