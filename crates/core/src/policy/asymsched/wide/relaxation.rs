//! An upper bound for partly filled blocks: the Gilmore-Lawler bound (Gilmore 1962, Lawler 1963) in
//! its form for node sets.
//!
//! Each free node is offered to each block at the value that it would add with the best neighbours.
//! Pairs with nodes already placed count exactly. Pairs with nodes still to come count with the
//! fastest free ones, half of each pair on either side. The most valuable assignment of nodes to
//! open slots at these prices is never below the best completion.

use super::super::problem::Problem;
use super::super::subset::{Mask, nodes};
use super::assignment::{self, FORBIDDEN};
use alloc::vec;
use alloc::vec::Vec;

/// A partial placement: blocks with some of their nodes.
#[derive(Debug, Clone)]
pub(super) struct Partial {
    /// By block, the nodes that it has.
    pub(super) sets: Vec<Mask>,
    /// By block, the nodes that it may still get.
    pub(super) open: Vec<Mask>,
    /// By block, the number of nodes that it still needs.
    pub(super) missing: Vec<u32>,
    /// Nodes that no block has.
    pub(super) free: Mask,
}

impl Partial {
    /// Blocks without nodes.
    pub(super) fn empty(problem: &Problem) -> Self {
        Self {
            sets: vec![0; problem.blocks.len()],
            open: problem.blocks.iter().map(|block| block.targets).collect(),
            missing: problem.blocks.iter().map(|block| block.home.count_ones()).collect(),
            free: problem.all(),
        }
    }

    /// Gives a node to a block. Panics if the node is not free or the block is full.
    pub(super) fn take(&mut self, block: usize, node: usize) {
        assert!(
            self.missing[block] > 0 && self.free >> node & 1 == 1,
            "node {node} is not free for block {block}"
        );
        self.sets[block] |= 1 << node;
        self.missing[block] -= 1;
        self.free &= !(1 << node);
    }

    pub(super) fn is_full(&self) -> bool {
        self.missing.iter().all(|missing| *missing == 0)
    }
}

/// Twice the value that each free node adds to each block at most, so that halves stay whole.
pub(super) struct Gains {
    blocks: usize,
    doubled: Vec<i64>,
}

impl Gains {
    pub(super) fn of(&self, node: usize, block: usize) -> i64 {
        self.doubled[node * self.blocks + block]
    }
}

/// The tables for the bound.
pub(super) struct Relaxation<'a> {
    problem: &'a Problem,
    /// By node, the other nodes by falling bandwidth to it.
    nearest: Vec<Vec<u8>>,
}

impl<'a> Relaxation<'a> {
    pub(super) fn new(problem: &'a Problem) -> Self {
        let sorted = |node: usize| {
            let mut others: Vec<u8> = (0..problem.count)
                .filter(|&other| other != node)
                .map(|other| other as u8)
                .collect();
            others.sort_by_key(|&other| core::cmp::Reverse(problem.pair(node, usize::from(other))));
            others
        };
        Self { problem, nearest: (0..problem.count).map(sorted).collect() }
    }

    /// Upper bound on the value of any completion; `None` if there is no completion.
    pub(super) fn bound(&self, partial: &Partial, gains: &Gains) -> Option<u64> {
        let free: Vec<usize> = nodes(partial.free).collect();
        let slots: Vec<usize> =
            (0..partial.sets.len()).flat_map(|k| (0..partial.missing[k]).map(move |_| k)).collect();
        if slots.len() > free.len() {
            return None;
        }
        let most = assignment::most(slots.len(), free.len(), |slot, column| {
            gains.of(free[column], slots[slot])
        })?;
        Some(self.problem.value(&partial.sets) + most as u64 / 2)
    }

    /// The gains of free nodes; [`FORBIDDEN`] where a block may not use a node.
    pub(super) fn gains(&self, partial: &Partial) -> Gains {
        let blocks = partial.sets.len();
        let mut doubled = vec![FORBIDDEN; self.problem.count * blocks];
        for node in nodes(partial.free) {
            let best = self.best_sums(node, partial);
            for block in (0..blocks)
                .filter(|&block| partial.missing[block] > 0 && partial.open[block] >> node & 1 == 1)
            {
                doubled[node * blocks + block] = self.gain(node, block, partial, &best) as i64;
            }
        }
        Gains { blocks, doubled }
    }

    /// Twice the value that `node` adds to `block` at most. `best`: see [`Self::best_sums`].
    fn gain(&self, node: usize, block: usize, partial: &Partial, best: &[u64]) -> u64 {
        let mut doubled = 0;
        for other in 0..partial.sets.len() {
            let weight = self.problem.weight[(block, other)];
            if weight > 0 {
                let placed: u64 =
                    nodes(partial.sets[other]).map(|there| self.problem.pair(node, there)).sum();
                let coming = partial.missing[other] - u32::from(other == block);
                doubled += weight * (2 * placed + best[coming as usize]);
            }
        }
        doubled
    }

    /// Sums of the bandwidth to the fastest 0, 1, 2, … free nodes, MB/s.
    fn best_sums(&self, node: usize, partial: &Partial) -> Vec<u64> {
        let most = partial.missing.iter().copied().max().unwrap_or(0) as usize;
        let mut sums = vec![0];
        let free = self.nearest[node]
            .iter()
            .map(|&other| usize::from(other))
            .filter(|&other| partial.free >> other & 1 == 1);
        free.take(most)
            .for_each(|other| sums.push(sums[sums.len() - 1] + self.problem.pair(node, other)));
        // With too few free nodes the bound finds no assignment, so these sums do not matter.
        sums.resize(most + 1, sums[sums.len() - 1]);
        sums
    }
}
