//! Why threads and pages are gathered, or released.

use crate::units::{Bytes, Nanos};
use core::fmt;

/// Reason of a proposal.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "reason", rename_all = "kebab-case")
)]
pub enum GatherReason {
    /// All threads of a process go to one node.
    Threads {
        /// The node.
        node: usize,
        /// Running threads.
        threads: usize,
        /// Number of nodes on which they run.
        nodes: usize,
        /// Accesses to other nodes, percent of all.
        remote_percent: f64,
        /// Memory on other nodes.
        memory: Bytes,
    },
    /// Pages follow the threads to this node.
    Follows {
        /// The node.
        node: usize,
        /// Time for which pages still follow.
        left: Nanos,
    },
    /// All memory on other nodes goes to this node at once.
    Rest {
        /// The node.
        node: usize,
        /// Accesses to other nodes that are left, percent of all.
        remote_percent: f64,
    },
    /// Samples name the pages that follow, or need not any more.
    Sampling {
        /// Pages follow.
        follows: bool,
    },
    /// The threads may run on all nodes again.
    Release {
        /// The node that they were held to.
        node: usize,
        /// Running threads there, of all processes.
        threads: usize,
        /// Its CPUs.
        cpus: usize,
    },
}

impl GatherReason {
    /// The same with each node renamed.
    #[must_use]
    pub(crate) fn renamed(mut self, name: impl Fn(usize) -> usize) -> Self {
        match &mut self {
            Self::Threads { node, .. }
            | Self::Follows { node, .. }
            | Self::Rest { node, .. }
            | Self::Release { node, .. } => *node = name(*node),
            Self::Sampling { .. } => {}
        }
        self
    }
}

impl fmt::Display for GatherReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads { node, threads, nodes, remote_percent, memory } => write!(
                f,
                "{threads} running threads on {nodes} node{} fit on node {node}; {remote_percent:.0} % of their accesses are remote; {memory} on other nodes",
                if *nodes == 1 { "" } else { "s" }
            ),
            Self::Follows { node, left } => {
                write!(f, "pages follow their threads to node {node}, for {left} more")
            }
            Self::Rest { node, remote_percent } => write!(
                f,
                "the rest of its memory follows to node {node}; {remote_percent:.0} % of its accesses are still remote"
            ),
            Self::Sampling { follows: true } => {
                write!(f, "to see the pages of threads that were gathered")
            }
            Self::Sampling { follows: false } => write!(f, "pages have followed their threads"),
            Self::Release { node, threads, cpus } => {
                write!(f, "{threads} threads run on the {cpus} CPUs of node {node}: all CPUs again")
            }
        }
    }
}
