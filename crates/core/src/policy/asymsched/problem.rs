//! The placement problem as the search sees it: blocks of nodes, a symmetric bandwidth, and the
//! cost of emptying each node.
//!
//! All arithmetic is in integers, so that ties are ties and the result is the same on every
//! machine. Bandwidth is in whole MB/s, weights are in a power-of-two fraction. This module knows
//! no processes and no clocks.

use super::cluster::Cluster;
use super::subset::{Mask, first, nodes};
use crate::matrix::Matrix;
use alloc::vec;
use alloc::vec::Vec;

/// Largest number of nodes that the search can place: the bits of a word. The largest machines with
/// asymmetric links known to us have 32.
pub const MAX_SEARCH_NODES: usize = 64;
/// Bits of the largest value of a placement. With [`SCORE_SHIFT`] and a multiple of the bytes a
/// score stays below 2⁵⁹.
const VALUE_BITS: u32 = 48;
/// Bits of the fraction of a weight. 2⁻²⁴ of ln(requests) is far below the precision of a counter.
const WEIGHT_FRACTION_BITS: u32 = 24;
/// Fraction bits of a score, which is `value << SCORE_SHIFT` plus a multiple of the bytes that
/// stay.
pub(super) const SCORE_SHIFT: u32 = 10;

/// Largest value of either term of a score.
pub(super) const SCORE_CEILING: u64 = 1 << (VALUE_BITS + SCORE_SHIFT);

const _: () = assert!(
    VALUE_BITS + SCORE_SHIFT <= 58,
    "two scores must stay far from the mark of an impossible placement"
);

/// Nodes that belong to the same clusters and may go to the same nodes. They are interchangeable,
/// so only the *set* of their targets matters. The occupants of a node are the threads on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// Current nodes of its occupants.
    pub(super) home: Mask,
    /// Nodes that its occupants may go to.
    pub(super) targets: Mask,
}

/// A placement problem: the input of the searches.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub(super) count: usize,
    /// `B[i][j] + B[j][i]` in MB/s, zero on the diagonal.
    pub(super) pair: Vec<u64>,
    pub(super) blocks: Vec<Block>,
    /// Weight of a pair of nodes, by their blocks; the diagonal is for two nodes of one block.
    pub(super) weight: Matrix<u64>,
    /// Units of `weight` in a weight of one.
    weight_unit: f64,
    /// Bytes that move when the occupants of a node move, by node.
    pub(super) memory: Vec<u64>,
    /// Occupied nodes of no cluster. Their occupants go where the blocks leave room.
    pub(super) others: Mask,
    /// By node, the nodes with which its occupants may be exchanged.
    pub(super) kinds: Vec<Mask>,
    /// Share of the best value that is good enough, in thousandths.
    pub(super) slack_permille: u64,
    /// By node, the nodes with a slow link to or from it. The set of a block must have no such
    /// pair.
    pub(super) slow: Vec<Mask>,
}

/// The input of [`Problem::new`].
#[derive(Debug, Clone)]
pub struct Parts<'a> {
    /// Bandwidth in MB/s by `[accessing][holding]`.
    pub bandwidth_mb_s: &'a Matrix<f64>,
    /// Clusters with weights.
    pub clusters: &'a [Cluster],
    /// By node, the bytes that move with its occupants.
    pub memory_bytes: &'a [u64],
    /// Nodes with any managed thread.
    pub occupied: Mask,
    /// By node, the nodes to which its occupants may go, itself included: an equivalence.
    pub kinds: &'a [Mask],
    /// Share of the best value that is good enough, in thousandths.
    pub slack_permille: u64,
    /// Bandwidth in MB/s below which a link is slow; `None`: no link is.
    pub slowest_link_mb_s: Option<f64>,
}

/// By node, the node that its occupants go to; `None` for a node without occupants.
pub type Placement = Vec<Option<usize>>;

impl Problem {
    /// Groups nodes into blocks and converts bandwidth and weights to integers.
    ///
    /// # Panics
    /// If there are more than [`MAX_SEARCH_NODES`] nodes or tables of different sizes: the caller
    /// checks its input.
    #[must_use]
    pub fn new(parts: &Parts<'_>) -> Self {
        let count = parts.bandwidth_mb_s.size();
        assert!(count <= MAX_SEARCH_NODES, "{count} nodes do not fit the search");
        assert!(
            parts.memory_bytes.len() == count && parts.kinds.len() == count,
            "tables of different sizes"
        );
        let pair = pairs(parts.bandwidth_mb_s);
        let weighing: Vec<&Cluster> =
            parts.clusters.iter().filter(|cluster| cluster.weight > 0.0).collect();
        let (blocks, members) = blocks(parts, &weighing);
        let clustered = blocks.iter().fold(0, |all, block| all | block.home);
        let (weight, weight_unit) = weights(&weighing, &members, &blocks, &pair);
        let slow = slow_pairs(parts.bandwidth_mb_s, parts.slowest_link_mb_s);
        Self {
            count,
            pair,
            blocks,
            weight,
            weight_unit,
            memory: parts.memory_bytes.to_vec(),
            others: parts.occupied & !clustered,
            kinds: parts.kinds.to_vec(),
            slack_permille: parts.slack_permille,
            slow,
        }
    }

    /// A value of this problem converted to weight × MB/s, the unit of `P_wbw`.
    #[must_use]
    pub fn weighted_mb_s(&self, value: u64) -> f64 {
        value as f64 / self.weight_unit
    }

    /// All nodes.
    pub(super) fn all(&self) -> Mask {
        first(self.count)
    }

    /// Bandwidth between two nodes, both directions together, MB/s.
    pub(super) fn pair(&self, i: usize, j: usize) -> u64 {
        self.pair[i * self.count + j]
    }

    /// Bytes of the occupants of a set of nodes.
    pub(super) fn bytes(&self, mask: Mask) -> u64 {
        nodes(mask).map(|node| self.memory[node]).sum()
    }

    /// Nodes with occupants.
    pub(super) fn occupied(&self) -> Mask {
        self.blocks.iter().fold(self.others, |all, block| all | block.home)
    }

    /// The sets of the current placement.
    pub(super) fn homes(&self) -> Vec<Mask> {
        self.blocks.iter().map(|block| block.home).collect()
    }

    /// Sum of `pair` over all pairs with one node in each set, each pair once if the sets are the
    /// same.
    pub(super) fn between(&self, a: Mask, b: Mask) -> u64 {
        let sum: u64 = nodes(a).map(|i| nodes(b).map(|j| self.pair(i, j)).sum::<u64>()).sum();
        if a == b { sum / 2 } else { sum }
    }

    /// Weighted bandwidth of an assignment of sets to blocks.
    pub(super) fn value(&self, sets: &[Mask]) -> u64 {
        let mut value = 0;
        for (k, &a) in sets.iter().enumerate() {
            value += self.weight[(k, k)] * self.between(a, a);
            for (l, &b) in sets.iter().enumerate().skip(k + 1) {
                if self.weight[(k, l)] > 0 {
                    value += self.weight[(k, l)] * self.between(a, b);
                }
            }
        }
        value
    }

    /// Bytes that stay in place under an assignment of sets to blocks. Occupants stay if their node
    /// is in the set of their block, or if they are in no block and no block takes their node.
    pub(super) fn kept(&self, sets: &[Mask]) -> u64 {
        let taken = sets.iter().fold(0, |all, set| all | set);
        let blocks: Mask =
            sets.iter().zip(&self.blocks).fold(0, |all, (set, block)| all | set & block.home);
        self.bytes(blocks | self.others & !taken)
    }

    /// The least value of a good enough placement when the best value is `best`.
    pub(super) fn threshold(&self, best: u64) -> u64 {
        best * self.slack_permille / 1000
            + u64::from(!(best * self.slack_permille).is_multiple_of(1000))
    }

    /// The placement that moves least for these sets. Occupants stay if they can; the others fill
    /// the free nodes in ascending order.
    pub(super) fn placement(&self, sets: &[Mask]) -> Placement {
        let mut placement = vec![None; self.count];
        let mut free = self.all();
        for (block, &set) in self.blocks.iter().zip(sets) {
            fill(&mut placement, block.home, set);
            free &= !set;
        }
        let displaced = nodes(self.others & !free);
        nodes(self.others & free).for_each(|node| placement[node] = Some(node));
        free &= !self.others;
        for node in displaced {
            let target = nodes(free & self.kinds[node])
                .next()
                .expect("as many nodes of a kind are free as are displaced");
            placement[node] = Some(target);
            free &= !(1 << target);
        }
        placement
    }

    /// Whether no block's set has a slow link.
    pub(super) fn are_fast(&self, sets: &[Mask]) -> bool {
        sets.iter().all(|&set| self.is_fast(set))
    }

    /// The problem with slow links allowed.
    pub(super) fn with_slow_links(&self) -> Self {
        Self { slow: vec![0; self.count], ..self.clone() }
    }

    /// Whether a set of one block has no slow link.
    pub(super) fn is_fast(&self, set: Mask) -> bool {
        nodes(set).all(|node| self.slow[node] & set == 0)
    }
}

/// Places the occupants of one block: those that can stay, then the others in ascending order.
fn fill(placement: &mut Placement, home: Mask, set: Mask) {
    nodes(home & set).for_each(|node| placement[node] = Some(node));
    nodes(home & !set)
        .zip(nodes(set & !home))
        .for_each(|(node, target)| placement[node] = Some(target));
}

/// Table of [`Problem::pair`], rounded to whole MB/s in each direction.
fn pairs(bandwidth_mb_s: &Matrix<f64>) -> Vec<u64> {
    let count = bandwidth_mb_s.size();
    let whole = bandwidth_mb_s.map(|mb_s| if mb_s > 0.0 { (mb_s + 0.5) as u64 } else { 0 });
    let cell = |i: usize, j: usize| if i == j { 0 } else { whole[(i, j)] + whole[(j, i)] };
    (0..count * count).map(|at| cell(at / count, at % count)).collect()
}

/// Table of [`Problem::slow`]: nodes with a link below `slowest` MB/s in either direction.
fn slow_pairs(bandwidth_mb_s: &Matrix<f64>, slowest: Option<f64>) -> Vec<Mask> {
    let count = bandwidth_mb_s.size();
    let is_slow = |i: usize, j: usize, limit| {
        i != j && (bandwidth_mb_s[(i, j)] < limit || bandwidth_mb_s[(j, i)] < limit)
    };
    let row = |i: usize| {
        slowest
            .map_or(0, |limit| (0..count).filter(|&j| is_slow(i, j, limit)).map(|j| 1 << j).sum())
    };
    (0..count).map(row).collect()
}

/// Blocks in order of their lowest node, and the indices of each block's clusters.
fn blocks(parts: &Parts<'_>, clusters: &[&Cluster]) -> (Vec<Block>, Vec<Vec<usize>>) {
    let mut blocks: Vec<Block> = Vec::new();
    let mut members: Vec<Vec<usize>> = Vec::new();
    for node in nodes(parts.occupied) {
        let own: Vec<usize> =
            (0..clusters.len()).filter(|&c| clusters[c].nodes >> node & 1 == 1).collect();
        if own.is_empty() {
            continue;
        }
        let targets = parts.kinds[node];
        match (0..blocks.len()).find(|&k| members[k] == own && blocks[k].targets == targets) {
            Some(k) => blocks[k].home |= 1 << node,
            None => {
                blocks.push(Block { home: 1 << node, targets });
                members.push(own);
            }
        }
    }
    (blocks, members)
}

/// Weight of a pair of nodes by their blocks, and the units in a weight of one. A weight is the sum
/// over the clusters of both nodes.
fn weights(
    clusters: &[&Cluster],
    members: &[Vec<usize>],
    blocks: &[Block],
    pair: &[u64],
) -> (Matrix<u64>, f64) {
    let shared = |k: usize, l: usize| {
        members[k]
            .iter()
            .filter(|c| members[l].contains(c))
            .map(|&c| clusters[c].weight)
            .sum::<f64>()
    };
    let exact = Matrix::from_fn(blocks.len(), shared);
    let placed = blocks.iter().map(|block| f64::from(block.home.count_ones())).sum::<f64>();
    let heaviest = exact.cells().map(|(_, _, weight)| weight).fold(0.0, f64::max);
    let fastest = pair.iter().copied().max().unwrap_or(0) as f64;
    let largest = heaviest * fastest * placed * placed / 2.0;
    assert!(largest.is_finite(), "bandwidths and weights are finite");
    let mut unit = f64::from(1_u32 << WEIGHT_FRACTION_BITS);
    while largest * unit >= (1_u64 << VALUE_BITS) as f64 {
        unit /= 2.0;
    }
    (exact.map(|weight| (weight * unit + 0.5) as u64), unit)
}
