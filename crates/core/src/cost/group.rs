//! Threads of one process behind one cache: what prices are made of.

use crate::topology::Topology;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Threads of one process behind one cache. Rates are of a µs of CPU time of one of them now.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    pub(super) node: usize,
    pub(super) domain: usize,
    /// Threads that run.
    pub(super) threads: f64,
    /// CPUs that they have now.
    pub(super) cpus: f64,
    /// CPUs that they ask for.
    pub(super) wanted: f64,
    /// Part of these that threads ask for which run on whichever node has a CPU for them.
    pub(super) unpinned: f64,
    /// Cycles in which they wait for nothing.
    pub(super) work: f64,
    pub(super) misses: f64,
    /// Misses under way at once.
    pub(super) overlap: f64,
    /// Share of the misses to each node's memory.
    pub(super) shares: Vec<(usize, f64)>,
    /// Lines that they exchange with threads of their process, near and far.
    pub(super) lines: f64,
    /// Share of these lines that comes from other cache domains, by their node.
    pub(super) far: Vec<(usize, f64)>,
    /// Misses in a µs of all threads behind the cache where these counts come from.
    pub(super) pressure: f64,
    /// The thread, by place in the model, where it is one that a step moved.
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
