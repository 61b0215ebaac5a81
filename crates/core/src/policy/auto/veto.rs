//! The rules by which one policy gives way to another, with the numbers that led to it.

use crate::cost::Price;
use crate::policy::home::Crowded;
use crate::units::Nanos;
use core::fmt;

/// Why `auto` left out a proposal.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "rule", rename_all = "kebab-case")
)]
pub enum Veto {
    /// The flag behind it was set in too few of the last 16 intervals.
    NotSteady {
        /// Intervals in which it was set.
        set: u32,
        /// It has to be set in more.
        above: u32,
    },
    /// Coherence first: a thread that exchanges data with others does not move for locality or
    /// cache pressure.
    SharesData,
    /// Its pages are spread on purpose: remote accesses are what that costs, and say nothing about
    /// where it should run.
    Interleaved {
        /// Percent of its memory.
        percent: f64,
        /// Limit.
        above: f64,
    },
    /// Elsewhere it would be as far from its data: as much of what its node asks for lies here.
    NoNearer {
        /// Requests to the node where it would go, per request to its own.
        ratio: f64,
        /// Needed.
        above: f64,
    },
    /// Too few samples say where its data is, and of more than two nodes the one where it is not
    /// tells nothing.
    HomeUnknown,
    /// More threads have their data there than can run there: the pages have to go, not the
    /// threads.
    NoRoom {
        /// Those threads.
        threads: usize,
        /// CPUs of that node.
        cpus: usize,
    },
    /// More threads than CPUs want to run, and SAM reckons with one on each.
    TakeTurns(Crowded),
    /// N-MASS sent it away from its data so that caches have room.
    LeftRemote,
    /// SAM moves another single-threaded process in this step: how the caches are shared is not
    /// what N-MASS would reckon with.
    CompanyChanges,
    /// Threads of its process on several nodes use each other's memory, and bandwidth differs.
    /// AsymSched alone chooses their nodes.
    NodesAreChosen,
    /// The thread stays, because its data comes to it.
    DataComes {
        /// What that takes of the application's time, past migrations included, seconds.
        seconds: f64,
        /// What it may take, seconds.
        allowed_seconds: f64,
    },
    /// Its threads were brought together before, and exchanged as much with other nodes as they had
    /// apart.
    InVain {
        /// Lines from caches of other nodes per second of a thread's CPU time, apart.
        before_per_s: f64,
        /// The same when they were together.
        after_per_s: f64,
        /// For how long it is left.
        left: Nanos,
    },
    /// Its process exchanges data, and samples will say in this epoch which threads do so with each
    /// other.
    SamplesFirst,
    /// Samples named those it shares data with, and it was brought to them: counters see one half
    /// of a pair alone.
    Together,
    /// Its pages were pulled to where N-MASS had put it: neither it nor they move for a while.
    Settling {
        /// For how long.
        left: Nanos,
    },
    /// Pages wait until the placement of threads has come to rest, and other moves of a thread at
    /// least for the next step.
    ThreadsMoved {
        /// Epochs since then.
        epochs: u64,
        /// Needed.
        needed: u64,
    },
    /// The threads that would change places win less than that costs, as far as samples prove it.
    Worthless {
        /// Won, as a share of one CPU's time.
        price: Price,
        /// What it costs, the same.
        cost: f64,
    },
    /// Where prices choose, moving pages of the process wins more, and Carrefour's turn comes soon.
    PagesFirst,
    /// Its memory follows its threads to other nodes.
    MemoryMoves,
    /// Its nodes change in this step: what was sampled says where the pages should have gone
    /// before.
    NodesChange,
}

impl Veto {
    /// Whether it will hold until one of the slower policies has changed something, so that asking
    /// again in 100 ms is of no use. Interleaved pages and data that is no nearer elsewhere hold
    /// for long too. But ten looks a second see sooner that a program then does something else.
    pub(super) fn lasts(self) -> bool {
        match self {
            Self::NodesAreChosen
            | Self::NoRoom { .. }
            | Self::TakeTurns(_)
            | Self::LeftRemote
            | Self::InVain { .. }
            | Self::Together => true,
            // Samples of a second say more than ten times those of a tenth.
            Self::HomeUnknown => true,
            _ => false,
        }
    }
}

impl fmt::Display for Veto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSteady { set, above } => {
                write!(f, "seen in {set} of the last 16 intervals, more than {above} needed")
            }
            Self::SharesData => {
                write!(f, "it exchanges data with others, and coherence comes first")
            }
            Self::Interleaved { percent, above } => {
                write!(f, "{percent:.1} % of its memory is interleaved, limit {above:.1}")
            }
            Self::NoNearer { ratio, above } => {
                write!(
                    f,
                    "{ratio:.2} requests to its home for one to its own node, more than {above:.1} needed"
                )
            }
            Self::HomeUnknown => write!(f, "too few samples yet to say where its data is"),
            Self::NoRoom { threads, cpus } => {
                write!(f, "{threads} threads have their data there, for {cpus} CPUs")
            }
            Self::TakeTurns(crowded) => crowded.fmt(f),
            Self::LeftRemote => write!(f, "N-MASS sent it away to make room in a cache"),
            Self::CompanyChanges => write!(f, "who else uses the caches changes in this step"),
            Self::NodesAreChosen => {
                write!(f, "its process uses several nodes' memory, and bandwidth chooses which")
            }
            Self::DataComes { seconds, allowed_seconds } => {
                write!(f, "its data comes to it, {seconds:.2} of {allowed_seconds:.2} s")
            }
            Self::InVain { before_per_s, after_per_s, left } => {
                let (before, after) = (before_per_s / 1e6, after_per_s / 1e6);
                write!(
                    f,
                    "its threads exchanged {before:.2} M/s between nodes and, brought together, {after:.2}: left for {left}"
                )
            }
            Self::SamplesFirst => {
                write!(f, "samples are asked first which threads share data with each other")
            }
            Self::Together => write!(f, "samples brought it to those it shares data with"),
            Self::Settling { left } => write!(f, "its pages came to it, settles for {left}"),
            Self::ThreadsMoved { epochs, needed } => {
                write!(f, "its threads rested for {epochs} of {needed} epochs")
            }
            Self::Worthless { price, cost } => write!(
                f,
                "would win {:.1} % of a CPU, at least {:.1} %; moving costs {:.1} %",
                100.0 * price.likely,
                100.0 * price.least,
                100.0 * cost
            ),
            Self::PagesFirst => write!(f, "moving its pages wins more, in Carrefour's next round"),
            Self::MemoryMoves => write!(f, "its memory is following its threads"),
            Self::NodesChange => write!(f, "its nodes change in this step"),
        }
    }
}
