//! Why there are no copies.

use std::fmt;
use std::io;

use rondpoint_linux::LinuxError;

/// Why data has no copies, so that readers get the original.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// All threads of this process are nearest to the same memory.
    #[error("one memory node: the original is the nearest copy")]
    OneNode,
    /// The data is empty.
    #[error("the data is empty")]
    Empty,
    /// The copies exceed the caller's budget.
    #[error(
        "copies need {}{}; the budget is {}",
        Amount(*needed), Beside(*held), Amount(*budget)
    )]
    Budget {
        /// Bytes of all copies.
        needed: u64,
        /// Bytes of earlier versions' copies.
        held: u64,
        /// Bytes that the caller allows.
        budget: u64,
    },
    /// A node has too little memory.
    #[error("node {node} has {} for copies and needs {}", Amount(*free), Amount(*needed))]
    NodeFull {
        /// The kernel's number of the node.
        node: u32,
        /// Bytes of its copies.
        needed: u64,
        /// Bytes that copies may take there.
        free: u64,
    },
    /// The process's cgroup has too little memory.
    #[error(
        "the cgroup's memory limit leaves {} and copies need {}", Amount(*free), Amount(*needed)
    )]
    CgroupFull {
        /// Bytes of all copies.
        needed: u64,
        /// Bytes up to the limit.
        free: u64,
    },
    /// Too many pages of a copy are on other nodes.
    #[error("node {node}: {misplaced} of {sampled} sampled pages of its copy lie on other nodes")]
    Misplaced {
        /// The kernel's number of the node.
        node: u32,
        /// Sampled pages on other nodes.
        misplaced: u64,
        /// Sampled pages.
        sampled: u64,
    },
    /// Neither a memory policy nor a thread on the node's CPUs can place a copy.
    #[error("node {node}: no permission to place memory there: mbind: {mbind}; CPUs: {affinity}")]
    NoPermission {
        /// The kernel's number of the node.
        node: u32,
        /// Error of mbind(2).
        mbind: io::Error,
        /// Error of sched_setaffinity(2).
        affinity: io::Error,
    },
    /// A system call failed while a copy was made.
    #[error("node {node}: cannot {attempted}: {source}")]
    Copying {
        /// The kernel's number of the node.
        node: u32,
        /// `map memory`, `start a thread`, `read the file` or `protect memory`.
        attempted: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The machine cannot be read.
    #[error(transparent)]
    Machine(#[from] LinuxError),
}

impl Refusal {
    /// The refusal's number in C (`include/rondpoint_replica.h`).
    pub(crate) fn number(&self) -> i32 {
        match self {
            Self::OneNode => 1,
            Self::Empty => 2,
            Self::Budget { .. } => 3,
            Self::NodeFull { .. } => 4,
            Self::CgroupFull { .. } => 5,
            Self::Misplaced { .. } => 6,
            Self::NoPermission { .. } => 7,
            Self::Copying { .. } | Self::Machine(_) => 8,
        }
    }
}

/// Bytes for display, in the largest fitting unit.
pub(crate) struct Amount(pub(crate) u64);

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 1 << 20 => write!(formatter, "{bytes} bytes"),
            bytes if bytes < 10 << 30 => write!(formatter, "{} MiB", bytes >> 20),
            bytes => write!(formatter, "{} GiB", bytes >> 30),
        }
    }
}

/// Display of the bytes of earlier versions; empty for none.
struct Beside(u64);

impl fmt::Display for Beside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            held => write!(formatter, " beside {} of earlier ones", Amount(held)),
        }
    }
}
