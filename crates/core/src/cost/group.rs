//! A group is the threads of one process behind one cache. Prices are computed for groups.

use crate::topology::Topology;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Threads of one process behind one cache. Rates are of a µs of CPU time of one of them now.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Group {
    pub(super) node: usize,
    pub(super) domain: usize,
    /// Threads that run.
    pub(super) threads: f64,
    /// CPUs that they use now.
    pub(super) cpus: f64,
    /// CPUs that they would use without waiting for a CPU.
    pub(super) wanted: f64,
    /// Part of `wanted` by threads that run on any node with a free CPU.
    pub(super) unpinned: f64,
    /// Cycles in which they compute without waiting.
    pub(super) work: f64,
    pub(super) misses: f64,
    /// Requests for memory by the counters of single threads; 0 unless all are counted. It tells
    /// how the misses divide among the threads.
    pub(super) counted: f64,
    /// Number of misses under way at once.
    pub(super) overlap: f64,
    /// Share of the misses that each node's memory serves.
    pub(super) shares: Vec<(usize, f64)>,
    /// Lines that they exchange with threads of their process, near and far.
    pub(super) lines: f64,
    /// Part of these lines that was near when no counter showed it. Its cost there is part of
    /// `work`.
    pub(super) unseen: f64,
    /// Share of these lines that comes from other cache domains, by their node.
    pub(super) far: Vec<(usize, f64)>,
    /// Misses per µs of all threads behind the group's cache, when the counts were taken.
    pub(super) pressure: f64,
    /// The moved thread, by place in the model, if the group is one thread that a step moved.
    pub(super) thread: Option<usize>,
}

/// The node of a cache.
pub(super) fn node_of(topology: &Topology, domain: usize) -> usize {
    topology.cpus_of_domain(domain).iter().next().map_or(0, |cpu| topology.node_of_cpu(cpu))
}

/// The shares of each node, summed up, in the order of the nodes.
pub(super) fn summed(shares: impl Iterator<Item = (usize, f64)>) -> Vec<(usize, f64)> {
    let mut sums: BTreeMap<usize, f64> = BTreeMap::new();
    shares.for_each(|(node, share)| *sums.entry(node).or_default() += share);
    sums.into_iter().collect()
}
