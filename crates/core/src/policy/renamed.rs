//! Threads that exchanged their nodes for others, memory included.

use crate::units::{Pid, Tid};
use alloc::collections::{BTreeMap, BTreeSet};

/// What became of the nodes of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    /// The process.
    pub pid: Pid,
    /// Its threads that went.
    pub tids: BTreeSet<Tid>,
    images: BTreeMap<usize, usize>,
}

impl Renamed {
    /// A process of which nothing has gone yet.
    #[must_use]
    pub fn of(pid: Pid) -> Self {
        Self { pid, tids: BTreeSet::new(), images: BTreeMap::new() }
    }

    /// A thread went from one node to another, as all of that node.
    pub fn add(&mut self, tid: Tid, from: usize, to: usize) {
        self.tids.insert(tid);
        self.images.insert(from, to);
    }

    /// Where the occupants of a node went.
    #[must_use]
    pub fn image(&self, node: usize) -> usize {
        self.images.get(&node).copied().unwrap_or(node)
    }
}
