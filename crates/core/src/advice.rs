//! Advises nodes for a new program: the fewest nodes with room for it, the nearest to each other,
//! the emptiest.
//!
//! Sets grow node by node from each node in turn, so the work is at most cubic in the number of
//! nodes.

use alloc::vec::Vec;

use crate::topology::Topology;
use crate::{Bytes, NodeSet};

/// CPU time and memory: what a program wants, or what a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// Thousandths of a CPU.
    pub milli_cpus: u64,
    /// Memory.
    pub bytes: Bytes,
}

/// One node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Supply {
    /// CPU time and memory that are unused now.
    pub free: Amount,
    /// Thousandths of a CPU, used or not.
    pub all_milli_cpus: u64,
}

/// How well the nodes hold the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// Their idle CPUs and their free memory suffice.
    Free,
    /// Their free memory suffices, and the program shares their CPUs with other programs.
    SharedCpus,
    /// Not even all nodes together have the CPUs and the free memory.
    Short,
}

/// The advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The nodes; never empty where any may be used.
    pub nodes: NodeSet,
    /// How well the nodes hold the program.
    pub fit: Fit,
}

/// Advises nodes among `usable` for a program that wants `wanted`; `supplies` is by node.
#[must_use]
pub fn advise(
    topology: &Topology,
    usable: &NodeSet,
    supplies: &[Supply],
    wanted: Amount,
) -> Advice {
    let total: Vec<Amount> = supplies
        .iter()
        .map(|one| Amount { milli_cpus: one.all_milli_cpus, bytes: one.free.bytes })
        .collect();
    let free: Vec<Amount> = supplies.iter().map(|one| one.free).collect();
    for (fit, amounts) in [(Fit::Free, &free), (Fit::SharedCpus, &total)] {
        let search = Search { topology, usable, amounts, free: &free, wanted };
        if let Some(nodes) = search.best() {
            return Advice { nodes, fit };
        }
    }
    Advice { nodes: usable.clone(), fit: Fit::Short }
}

struct Search<'a> {
    topology: &'a Topology,
    usable: &'a NodeSet,
    /// CPU time and memory of each node that the search may use.
    amounts: &'a [Amount],
    /// Unused CPU time and memory of each node: decides between sets that are equally good.
    free: &'a [Amount],
    wanted: Amount,
}

/// How good a set is; the least is the best.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    nodes: usize,
    /// Sum of the costs of all pairs.
    spread: u64,
    /// Permille of the free CPUs or of the free memory that the program takes, the larger of both.
    load: u64,
}

impl Search<'_> {
    /// The best of the sets that grow from each node; `None` where not even all nodes hold it.
    fn best(&self) -> Option<NodeSet> {
        let grown = self.usable.iter().filter_map(|seed| self.grow(seed));
        grown.min_by_key(|nodes| self.rank(nodes))
    }

    fn holds(&self, nodes: &NodeSet) -> bool {
        let sum = sum(self.amounts, nodes);
        sum.milli_cpus >= self.wanted.milli_cpus && sum.bytes >= self.wanted.bytes
    }

    /// Adds the nearest node until the set holds the program, then removes nodes that are not
    /// needed.
    fn grow(&self, seed: usize) -> Option<NodeSet> {
        let mut nodes: NodeSet = [seed].into_iter().collect();
        while !self.holds(&nodes) {
            let missing = sum(self.amounts, &nodes);
            let helps = |node: &usize| {
                let one = self.amounts[*node];
                (one.milli_cpus > 0 && missing.milli_cpus < self.wanted.milli_cpus)
                    || (one.bytes.0 > 0 && missing.bytes < self.wanted.bytes)
            };
            let others = self.usable.difference(&nodes);
            let next = others.iter().filter(helps).min_by_key(|&node| {
                let far: u64 = nodes.iter().map(|member| self.cost(node, member)).sum();
                (far, self.load(&[node].into_iter().collect()))
            })?;
            nodes.insert(next);
        }
        for node in nodes.clone().iter() {
            nodes.remove(node);
            if nodes.is_empty() || !self.holds(&nodes) {
                nodes.insert(node);
            }
        }
        Some(nodes)
    }

    fn rank(&self, nodes: &NodeSet) -> Rank {
        let pairs = nodes.iter().flat_map(|a| nodes.iter().map(move |b| (a, b)));
        let spread = pairs.filter(|(a, b)| a < b).map(|(a, b)| self.cost(a, b)).sum();
        Rank { nodes: nodes.len(), spread, load: self.load(nodes) }
    }

    /// Cost of using two nodes together. With measured bandwidth: picoseconds for a kilobyte in
    /// both directions, otherwise the sum of their distances.
    fn cost(&self, a: usize, b: usize) -> u64 {
        const PICO: f64 = 1e12;
        const KILO: f64 = 1e3;
        let distance = || {
            let topology = self.topology;
            u64::from(topology.distance(a, b)) + u64::from(topology.distance(b, a))
        };
        let Some(bandwidth) = self.topology.bandwidth() else { return distance() };
        let one = |from, to| match bandwidth[(from, to)] {
            rate if rate > 0.0 => (PICO * KILO / rate) as u64,
            // A node without CPUs reads nothing, so this direction costs nothing.
            _ => 0,
        };
        one(a, b) + one(b, a)
    }

    fn load(&self, nodes: &NodeSet) -> u64 {
        let free = sum(self.free, nodes);
        let permille = |wanted: u64, free: u64| {
            (u128::from(wanted) * 1000 / u128::from(free.max(1))).min(u64::MAX.into()) as u64
        };
        let cpus = permille(self.wanted.milli_cpus, free.milli_cpus);
        let memory = permille(self.wanted.bytes.0, free.bytes.0);
        cpus.max(memory)
    }
}

fn sum(amounts: &[Amount], nodes: &NodeSet) -> Amount {
    nodes.iter().fold(Amount::default(), |sum, node| Amount {
        milli_cpus: sum.milli_cpus.saturating_add(amounts[node].milli_cpus),
        bytes: Bytes(sum.bytes.0.saturating_add(amounts[node].bytes.0)),
    })
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::topology::synthetic;

    /// Idle CPUs and free GiB of each node; each node has 8 CPUs.
    fn check(
        distances: Option<&[[u32; 4]; 4]>,
        free: [(u64, u64); 4],
        wanted: (u64, u64),
        expected: &str,
    ) {
        let mut description = synthetic::describe("node:4 core:8").unwrap();
        if let Some(rows) = distances {
            description.distances = crate::Matrix::from_fn(4, |a, b| rows[a][b]);
        }
        let topology = Topology::new(description).unwrap();
        let supply = |(cpus, gib)| Supply {
            free: Amount { milli_cpus: 1000 * cpus, bytes: Bytes::from_gib(gib) },
            all_milli_cpus: 8000,
        };
        let supplies = free.map(supply);
        let wanted = Amount { milli_cpus: 1000 * wanted.0, bytes: Bytes::from_gib(wanted.1) };
        let advice = advise(&topology, &NodeSet::first(4), &supplies, wanted);
        assert_eq!(format!("{} {:?}", advice.nodes, advice.fit), expected);
    }

    /// Distances between four nodes: 0 and 3 are neighbours, and 1 and 2.
    const PAIRS: [[u32; 4]; 4] =
        [[10, 32, 32, 16], [32, 10, 16, 32], [32, 16, 10, 32], [16, 32, 32, 10]];

    #[test]
    fn one_node_that_holds_it_is_better_than_two_and_the_emptiest_is_best() {
        check(None, [(8, 16), (4, 16), (8, 16), (8, 16)], (4, 8), "0 Free");
        check(None, [(5, 16), (4, 16), (8, 9), (8, 16)], (4, 8), "3 Free");
        check(None, [(8, 1), (0, 16), (3, 16), (4, 8)], (4, 8), "3 Free");
    }

    #[test]
    fn two_nodes_are_neighbours() {
        check(Some(&PAIRS), [(8, 16), (8, 16), (8, 16), (8, 16)], (12, 8), "0,3 Free");
        check(Some(&PAIRS), [(2, 16), (8, 16), (8, 16), (8, 16)], (12, 8), "1-2 Free");
        check(Some(&PAIRS), [(8, 4), (8, 4), (8, 4), (8, 4)], (2, 7), "0,3 Free");
    }

    #[test]
    fn a_busy_machine_shares_cpus_and_a_full_one_gives_all_it_has() {
        check(None, [(0, 4), (1, 16), (0, 4), (0, 4)], (6, 8), "1 SharedCpus");
        check(None, [(8, 4), (8, 4), (8, 4), (8, 4)], (4, 17), "0-3 Short");
        check(None, [(8, 4), (8, 4), (8, 4), (8, 4)], (33, 1), "0-3 Short");
    }

    #[test]
    fn a_node_without_cpus_helps_with_memory_only() {
        check(Some(&PAIRS), [(8, 4), (8, 4), (8, 4), (0, 64)], (4, 20), "0,3 Free");
        check(None, [(0, 64), (8, 4), (8, 4), (8, 4)], (4, 2), "1 Free");
    }

    #[test]
    fn measured_bandwidth_counts_more_than_distance() {
        let mut description = synthetic::describe("node:3 core:2").unwrap();
        let rate = |a: usize, b: usize| if a.abs_diff(b) == 2 { 9e9 } else { 3e9 };
        description.bandwidth_bytes_per_s = Some(crate::Matrix::from_fn(3, rate));
        let topology = Topology::new(description).unwrap();
        let all = Amount { milli_cpus: 2000, bytes: Bytes(100) };
        let supplies = vec![Supply { free: all, all_milli_cpus: 2000 }; 3];
        let wanted = Amount { milli_cpus: 4000, bytes: Bytes(1) };
        let advice = advise(&topology, &NodeSet::first(3), &supplies, wanted);
        assert_eq!(format!("{}", advice.nodes), "0,2");
    }

    proptest! {
        #[test]
        fn what_fits_fits_and_no_node_of_it_can_be_spared(
            free in proptest::collection::vec((0u64..9, 0u64..9), 1..8),
            wanted in (0u64..20, 0u64..20),
        ) {
            let topology = synthetic::parse(&format!("node:{} core:8", free.len())).unwrap();
            let supplies: Vec<Supply> = free
                .iter()
                .map(|&(cpus, bytes)| Supply {
                    free: Amount { milli_cpus: cpus, bytes: Bytes(bytes) },
                    all_milli_cpus: cpus,
                })
                .collect();
            let usable = NodeSet::first(free.len());
            let wanted = Amount { milli_cpus: wanted.0, bytes: Bytes(wanted.1) };
            let advice = advise(&topology, &usable, &supplies, wanted);
            let amounts: Vec<Amount> = supplies.iter().map(|one| one.free).collect();
            let holds = |nodes: &NodeSet| {
                let sum = sum(&amounts, nodes);
                sum.milli_cpus >= wanted.milli_cpus && sum.bytes >= wanted.bytes
            };
            prop_assert!(!advice.nodes.is_empty() && advice.nodes.is_subset(&usable));
            prop_assert_eq!(holds(&advice.nodes), advice.fit == Fit::Free);
            prop_assert_eq!(holds(&usable), advice.fit == Fit::Free, "where all hold it some do");
            if advice.fit == Fit::Free && advice.nodes.len() > 1 {
                for node in advice.nodes.iter() {
                    let mut fewer = advice.nodes.clone();
                    fewer.remove(node);
                    prop_assert!(!holds(&fewer), "{} without {node}", advice.nodes);
                }
            }
        }
    }
}
