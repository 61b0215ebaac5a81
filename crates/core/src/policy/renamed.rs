//! Threads that moved to other nodes together with their memory.

use crate::units::{Pid, Tid};
use alloc::collections::{BTreeMap, BTreeSet};

/// The new nodes of the threads and the memory of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    /// The process.
    pub pid: Pid,
    /// Its threads that moved.
    pub tids: BTreeSet<Tid>,
    images: BTreeMap<usize, usize>,
}

impl Renamed {
    /// A process of which no thread has moved yet.
    #[must_use]
    pub fn of(pid: Pid) -> Self {
        Self { pid, tids: BTreeSet::new(), images: BTreeMap::new() }
    }

    /// Adds a thread that moved from one node to another, with all threads of that node.
    pub fn add(&mut self, tid: Tid, from: usize, to: usize) {
        self.tids.insert(tid);
        self.images.insert(from, to);
    }

    /// The way back of the threads and the memory.
    #[must_use]
    pub fn turned(&self) -> Self {
        let images = self.images.iter().map(|(from, to)| (*to, *from)).collect();
        Self { images, ..self.clone() }
    }

    /// The new node of the threads and the memory of a node.
    #[must_use]
    pub fn image(&self, node: usize) -> usize {
        self.images.get(&node).copied().unwrap_or(node)
    }
}
