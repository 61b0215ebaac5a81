//! Nodes with more running threads than CPUs, and the CPUs on which the kernel runs these threads.

use crate::model::{Model, Thread};
use crate::topology::Topology;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// Least number of samples that show where a thread ran (our choice).
const MIN_WANDERING: u32 = 16;
/// Demand for CPUs, as a share of a node's CPUs, from which on the node counts as crowded (our
/// choice).
const CROWDED: f64 = 0.9;

/// Whether each node is crowded: nearly all CPUs are in demand, and more threads run there than it
/// has CPUs. `cpus` = CPUs of each node.
pub(super) fn crowded(model: &Model, topology: &Topology, cpus: &[f64]) -> Vec<bool> {
    let mut wanted_and_threads = vec![(0.0, 0.0); cpus.len()];
    for thread in model.threads.iter().filter(|thread| thread.is_running()) {
        let node = &mut wanted_and_threads[topology.node_of_cpu(thread.cpu)];
        *node = (node.0 + thread.wanted_share(), node.1 + 1.0);
    }
    let is_crowded = |((wanted, threads), cpus): (&(f64, f64), &f64)| {
        threads > cpus && *wanted >= CROWDED * cpus
    };
    wanted_and_threads.iter().zip(cpus).map(is_crowded).collect()
}

/// Threads that ran on several nodes, at least one of them crowded. On crowded nodes the kernel
/// puts a thread on the CPU that is free next. On other nodes a thread that ran on two nodes has
/// moved once.
pub(super) fn wandering(
    model: &Model,
    topology: &Topology,
    crowded: &[bool],
) -> BTreeMap<usize, Vec<(usize, f64)>> {
    let mut wandering = BTreeMap::new();
    if !crowded.contains(&true) {
        return wandering;
    }
    for (place, thread) in model.threads.iter().enumerate() {
        let Some(ran_on) = &thread.ran_on else { continue };
        let nodes = ran_on.iter().enumerate().filter(|(_, samples)| **samples > 0);
        let is_crowded = nodes.clone().any(|(node, _)| crowded[node]);
        let all: u32 = ran_on.iter().sum();
        if !is_crowded || nodes.clone().count() < 2 || all < MIN_WANDERING {
            continue;
        }
        let cache = |node: usize| {
            let last = Some(thread.cpu).filter(|cpu| topology.node_of_cpu(*cpu) == node);
            let cpu = last.or_else(|| topology.cpus_of_node(node).iter().next());
            cpu.map(|cpu| topology.domain_of_cpu(cpu))
        };
        let part = |(node, samples): (usize, &u32)| {
            Some((cache(node)?, f64::from(*samples) / f64::from(all)))
        };
        wandering.insert(place, nodes.filter_map(part).collect());
    }
    wandering
}

/// Running threads that the kernel moves to the CPU that is idle next, by place in the model. They
/// may run on other nodes, and they are on a crowded node or wander to one.
pub(super) fn unpinned_threads(
    model: &Model,
    topology: &Topology,
    crowded: &[bool],
    wandering: &BTreeMap<usize, Vec<(usize, f64)>>,
) -> BTreeSet<usize> {
    let is_unpinned = |(place, thread): &(usize, &Thread)| {
        let node = topology.node_of_cpu(thread.cpu);
        let stays = thread.is_narrowed || thread.allowed.is_subset(topology.cpus_of_node(node));
        let moves = crowded[node] || wandering.contains_key(place);
        thread.is_running() && moves && !stays
    };
    model.threads.iter().enumerate().filter(is_unpinned).map(|(place, _)| place).collect()
}

/// Demand for the CPUs of all nodes, and how far it is met.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Demand {
    /// Demand in CPUs by node, and the part of it by unpinned threads.
    wanted: Vec<f64>,
    unpinned: Vec<f64>,
    /// CPUs of each node.
    cpus: Vec<f64>,
    /// Demand per CPU on the nodes over which unpinned threads are spread.
    level: f64,
}

impl Demand {
    pub(super) fn new(wanted: Vec<f64>, unpinned: Vec<f64>, cpus: &[f64]) -> Self {
        let bound = wanted.iter().zip(&unpinned).map(|(wanted, unpinned)| wanted - unpinned);
        let bound: Vec<(f64, f64)> = bound.zip(cpus.iter().copied()).collect();
        let level = level(&bound, unpinned.iter().sum());
        Self { wanted, unpinned, cpus: cpus.to_vec(), level }
    }

    /// CPUs that threads of a node get, of the CPUs that they want. Unpinned threads get the same
    /// share of their demand on each node.
    pub(super) fn served(&self, node: usize, wanted: f64, unpinned: f64) -> f64 {
        let bound = (self.wanted[node] - self.unpinned[node]) / self.cpus[node].max(1e-9);
        let here = bound.max(self.level).max(1.0);
        (wanted - unpinned) / here + unpinned / self.level.max(1.0)
    }

    /// CPUs that all threads get that demand `wanted` CPUs by node, and `unpinned` of these without
    /// a pin.
    pub(super) fn served_to(&self, wanted: &[f64], unpinned: &[f64]) -> f64 {
        let by_node = wanted.iter().zip(unpinned).enumerate();
        by_node.map(|(node, (wanted, unpinned))| self.served(node, *wanted, *unpinned)).sum()
    }
}

/// Demand on each CPU after the demand of unpinned threads, `unpinned` CPUs, was spread over the
/// nodes with the least demand. `nodes` has the demand of pinned threads and the CPUs of each node.
fn level(nodes: &[(f64, f64)], unpinned: f64) -> f64 {
    if unpinned <= 0.0 {
        return 0.0;
    }
    let mut nodes: Vec<(f64, f64)> =
        nodes.iter().copied().filter(|(_, cpus)| *cpus > 0.0).collect();
    nodes.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (mut asked, mut cpus) = (unpinned, 0.0);
    for (bound, of_node) in nodes {
        if cpus > 0.0 && asked / cpus <= bound / of_node {
            break;
        }
        (asked, cpus) = (asked + bound, cpus + of_node);
    }
    asked / cpus.max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::level;

    #[test]
    fn threads_that_may_run_anywhere_fill_the_nodes_of_which_least_is_asked() {
        let nodes = [(2.0, 2.0), (0.0, 2.0), (1.0, 2.0), (5.0, 2.0), (0.0, 0.0)];
        assert_eq!(level(&nodes, 0.0), 0.0);
        assert_eq!(level(&nodes, 1.0), 0.5, "all on the second");
        assert_eq!(level(&nodes, 3.0), 1.0, "until three ask for as much as they have");
        assert_eq!(level(&nodes, 1e6), (1e6 + 8.0) / 8.0);
    }
}
