//! Why AsymSched proposes something, with the numbers.

use crate::units::{Bytes, Nanos};
use core::fmt;

/// Why it proposes something.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "reason", rename_all = "kebab-case")
)]
pub enum AsymSchedReason {
    /// The occupants of a node go to another: the node sets have more bandwidth between them.
    Placement(PlacementReason),
    /// A thread stays where the others of its process come nearer.
    Staying {
        /// Its node.
        node: usize,
    },
    /// A rate of sampling.
    Sampling {
        /// Whether a process is on the way, so that its pages have to be found.
        follows: bool,
    },
    /// Pages follow the threads as they are accessed: threads moved, or their memory was away from
    /// them.
    Following {
        /// For how long yet.
        left: Nanos,
    },
    /// Threads moved, but their accesses still go to the old nodes: all memory follows.
    FullMigration {
        /// Percent of accesses to the old nodes.
        old_percent: f64,
        /// Percent above which everything moves.
        limit_percent: f64,
        /// The expected duration, seconds.
        seconds: f64,
    },
}

/// The numbers of a placement. Weighted bandwidth is weight × bytes per second, summed over
/// clusters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PlacementReason {
    /// Node that is left.
    pub from: usize,
    /// Node that is taken.
    pub to: usize,
    /// Groups of nodes that belong together.
    pub clusters: usize,
    /// Weighted bandwidth of the current placement.
    pub staying: f64,
    /// Of the proposed one.
    pub chosen: f64,
    /// Of the best one found.
    pub best: f64,
    /// How far above `best` the true best may lie, as a share of it; 0 = proven.
    pub best_gap: f64,
    /// Memory of this application that comes to its threads from nodes where it has none.
    pub from_nodes_without_threads: Bytes,
    /// Memory that the whole placement moves.
    pub moved: Bytes,
    /// No placement that is good enough moves less than this; equal to `moved` = proven.
    pub moved_at_least: Bytes,
    /// The cost of moving in this application's time, past migrations included, seconds.
    pub seconds: f64,
    /// Its budget, seconds.
    pub allowed_seconds: f64,
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
