//! Branch and bound over "is this node in this block": the larger gain first, the bound of
//! [`super::relaxation`] to cut.

use super::super::problem::Problem;
use super::super::subset::{Mask, nodes};
use super::relaxation::{Gains, Partial, Relaxation};
use alloc::vec::Vec;

/// The goal of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// The largest value, if it is above this known one.
    Best { incumbent: u64 },
    /// Any placement of at least this value.
    AtLeast { value: u64 },
}

/// A search in progress.
pub(super) struct Branch<'a> {
    problem: &'a Problem,
    relaxation: &'a Relaxation<'a>,
    goal: Goal,
    /// The largest known value. Only larger values are searched.
    incumbent: u64,
    /// The placement found with this value.
    found: Option<Vec<Mask>>,
    /// The largest bound of the branches left unexplored because the steps ran out.
    open_bound: u64,
    steps: u32,
}

impl<'a> Branch<'a> {
    pub(super) fn new(
        problem: &'a Problem,
        relaxation: &'a Relaxation<'a>,
        goal: Goal,
        steps: u32,
    ) -> Self {
        let incumbent = match goal {
            Goal::Best { incumbent } => incumbent,
            Goal::AtLeast { value } => value.saturating_sub(1),
        };
        Self { problem, relaxation, goal, incumbent, found: None, open_bound: 0, steps }
    }

    /// Upper bound on the value of any completion of the explored placement.
    pub(super) fn bound(&self) -> u64 {
        self.incumbent.max(self.open_bound)
    }

    /// Whether no unexplored branch can have a larger value.
    pub(super) fn is_complete(&self) -> bool {
        self.open_bound <= self.incumbent
    }

    pub(super) fn steps_left(&self) -> u32 {
        self.steps
    }

    /// The best placement found above the incumbent, if any.
    pub(super) fn into_found(self) -> Option<Vec<Mask>> {
        self.found
    }

    /// Explores all completions of a partial placement. Each level gives a node to a block or
    /// closes a block to a node. The recursion is at most nodes × blocks deep; the bound cuts far
    /// earlier.
    pub(super) fn explore(&mut self, partial: &Partial) {
        let gains = self.relaxation.gains(partial);
        let Some(bound) = self.relaxation.bound(partial, &gains) else { return };
        if bound <= self.incumbent || self.is_reached() {
            return;
        }
        if partial.is_full() {
            self.incumbent = bound;
            self.found = Some(partial.sets.clone());
            return;
        }
        if self.steps == 0 {
            self.open_bound = self.open_bound.max(bound);
            return;
        }
        self.steps -= 1;
        let (block, node) = self.choose(partial, &gains);
        let mut with = partial.clone();
        with.take(block, node);
        self.explore(&with);
        let mut without = partial.clone();
        for twin in self.twins(partial, block) {
            without.open[twin] &= !(1 << node);
        }
        self.explore(&without);
    }

    fn is_reached(&self) -> bool {
        matches!(self.goal, Goal::AtLeast { value } if self.incumbent >= value)
    }

    /// The block and node to branch on. A partly filled block comes first, then the one with most
    /// weight × missing nodes. Of the nodes, the one with the largest gain.
    fn choose(&self, partial: &Partial, gains: &Gains) -> (usize, usize) {
        let unfinished = (0..partial.sets.len()).filter(|&block| partial.missing[block] > 0);
        let begun = |block: usize| {
            (
                partial.sets[block] != 0,
                self.problem.weight[(block, block)] * u64::from(partial.missing[block]),
            )
        };
        let block = unfinished
            .max_by_key(|&block| (begun(block), core::cmp::Reverse(block)))
            .expect("a block is unfinished");
        let node = nodes(partial.free)
            .max_by_key(|&node| (gains.of(node, block), core::cmp::Reverse(node)));
        (block, node.expect("a bound exists, so a node is free"))
    }

    /// The block itself and, while it is empty, the empty blocks that are interchangeable with it.
    /// A node that the first of them cannot use in any placement cannot be used in the others.
    fn twins(&self, partial: &Partial, block: usize) -> Vec<usize> {
        let is_twin = |other: usize| {
            partial.sets[block] == 0
                && partial.sets[other] == 0
                && partial.missing[other] == partial.missing[block]
                && partial.open[other] == partial.open[block]
                && self.are_alike(block, other)
        };
        (0..partial.sets.len()).filter(|&other| other == block || is_twin(other)).collect()
    }

    /// Whether two blocks have the same weights inside and to every other block.
    fn are_alike(&self, a: usize, b: usize) -> bool {
        let weight = &self.problem.weight;
        let others = (0..weight.size()).filter(|&c| c != a && c != b);
        weight[(a, a)] == weight[(b, b)]
            && others.into_iter().all(|c| weight[(a, c)] == weight[(b, c)])
    }
}
