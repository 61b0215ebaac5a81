//! Why AsymSched proposes something, with the numbers.

use crate::units::{Bytes, Nanos};
use core::fmt;

/// Why AsymSched proposes an action.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "reason", rename_all = "kebab-case")
)]
pub enum AsymSchedReason {
    /// The threads of a node go to another, because the new node sets have more bandwidth.
    Placement(PlacementReason),
    /// A thread is pinned to its node while other threads of its process move.
    Staying {
        /// Node of the thread.
        node: usize,
    },
    /// The sampling rate changes.
    Sampling {
        /// Whether the process is being moved, so that its pages have to be found.
        follows: bool,
    },
    /// Accessed pages follow the threads: threads moved, or memory was on nodes without them.
    Following {
        /// Time left in this phase.
        left: Nanos,
    },
    /// All memory on the old nodes moves, because accesses still go there.
    FullMigration {
        /// Percent of accesses to the old nodes.
        old_percent: f64,
        /// Percent above which all memory moves.
        limit_percent: f64,
        /// Expected duration, seconds.
        seconds: f64,
    },
}

/// The numbers of a placement. Weighted bandwidth is weight × bytes per second, summed over
/// clusters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PlacementReason {
    /// Node that the threads leave.
    pub from: usize,
    /// Node that the threads take.
    pub to: usize,
    /// Number of clusters.
    pub clusters: usize,
    /// Weighted bandwidth of the current placement.
    pub staying: f64,
    /// Weighted bandwidth of the proposed placement.
    pub chosen: f64,
    /// Weighted bandwidth of the best placement found.
    pub best: f64,
    /// Distance of `best` from the upper bound, as a share of the bound; 0: proven optimal.
    pub best_gap: f64,
    /// Memory of this application that comes to its threads from nodes without them.
    pub from_nodes_without_threads: Bytes,
    /// Memory that the whole placement moves.
    pub moved: Bytes,
    /// Lower bound on the memory that any good enough placement moves; equal to `moved`: proven.
    pub moved_at_least: Bytes,
    /// Time to move this application's memory, past migrations included, seconds.
    pub seconds: f64,
    /// Budget of this application, seconds.
    pub allowed_seconds: f64,
}

impl AsymSchedReason {
    /// The same with each node renamed.
    #[must_use]
    pub(crate) fn renamed(mut self, name: impl Fn(usize) -> usize) -> Self {
        match &mut self {
            Self::Placement(PlacementReason { from, to, .. }) => {
                (*from, *to) = (name(*from), name(*to));
            }
            Self::Staying { node } => *node = name(*node),
            Self::Sampling { .. } | Self::Following { .. } | Self::FullMigration { .. } => {}
        }
        self
    }
}

impl fmt::Display for AsymSchedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placement(placement) => placement.fmt(f),
            Self::Staying { node } => write!(f, "stays on node {node}, which keeps its part"),
            Self::Sampling { follows: true } => {
                f.write_str("pages that are accessed are to be found")
            }
            Self::Sampling { follows: false } => f.write_str("no memory is on the way"),
            Self::Following { left } => {
                write!(f, "pages that are accessed follow its threads for {left} yet")
            }
            Self::FullMigration { old_percent, limit_percent, seconds } => write!(
                f,
                "{old_percent:.1} % of its accesses still go to the nodes it left (limit {limit_percent:.1}), about {seconds:.1} s"
            ),
        }
    }
}

impl fmt::Display for PlacementReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gain = if self.staying > 0.0 {
            100.0 * (self.chosen / self.staying - 1.0)
        } else {
            f64::INFINITY
        };
        let of_best = if self.best > 0.0 { 100.0 * self.chosen / self.best } else { 100.0 };
        write!(
            f,
            "node {}→{}: weighted bandwidth {gain:+.1} % ({of_best:.1} % of the best",
            self.from, self.to
        )?;
        if self.best_gap > 0.0 {
            write!(f, " found, at most {:.1} % below the true best", 100.0 * self.best_gap)?;
        }
        write!(f, "), moves {}", self.moved)?;
        if self.moved_at_least < self.moved {
            write!(f, " (at least {})", self.moved_at_least)?;
        }
        if self.from_nodes_without_threads > Bytes(0) {
            write!(f, " and {} from nodes without its threads", self.from_nodes_without_threads)?;
        }
        let [cost, budget] = [self.seconds, self.allowed_seconds].map(|s| Nanos((s * 1e9) as u64));
        write!(f, ", {cost} of a budget of {budget}")
    }
}
