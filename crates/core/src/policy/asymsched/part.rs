//! Parts: blocks that share a cluster (glued through a common node, or of different node kinds) and
//! are placed together.
//!
//! For every node set that a part could take, its options list the ways to split the set among its
//! blocks. An option is dropped if another one beats it in value and in bytes that stay. Most parts
//! are one block, with one option for each set.

use super::problem::{Block, Problem};
use super::set_bandwidth::SetBandwidth;
use super::subset::{Mask, subsets};
use alloc::vec;
use alloc::vec::Vec;

/// Largest number of ways to split sets among blocks that are listed (our choice). Beyond it the
/// tables cost more than they save.
const MAX_SPLITS: u64 = 1_000_000;

/// One way for a part to use a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    /// Weighted bandwidth inside the part, in the problem's unit.
    pub(super) value: u64,
    /// Bytes that stay.
    pub(super) kept: u64,
    /// Index in [`Part::splits`] of the set of its first block; unused for a single block.
    split: u32,
}

/// Blocks that are placed together, and their options by set.
#[derive(Debug)]
pub(super) struct Part {
    blocks: Vec<usize>,
    /// Current nodes of the part.
    pub(super) home: Mask,
    /// Number of its nodes.
    pub(super) size: u32,
    /// Sets that the part can take, ascending.
    pub(super) sets: Vec<Mask>,
    /// Index of the first choice of each set, and the number of choices at the end.
    starts: Vec<u32>,
    choices: Vec<Choice>,
    /// For parts of several blocks: the sets of each choice, block after block.
    splits: Vec<Mask>,
    /// Position in `sets` by the bits of the set; `u32::MAX` for sets it cannot take.
    position: Vec<u32>,
}

impl Part {
    /// The parts of a problem, or `None` if there are more than [`MAX_SPLITS`] ways to split sets
    /// among their blocks.
    pub(super) fn all(problem: &Problem, inside: &SetBandwidth) -> Option<Vec<Part>> {
        let groups = groups(problem);
        let work: u64 = groups.iter().map(|blocks| splits_of(problem, blocks)).sum();
        (work <= MAX_SPLITS)
            .then(|| groups.into_iter().map(|blocks| Self::new(problem, inside, blocks)).collect())
    }

    fn new(problem: &Problem, inside: &SetBandwidth, blocks: Vec<usize>) -> Self {
        let home = blocks.iter().fold(0, |all, &k| all | problem.blocks[k].home);
        let mut part = Self {
            size: home.count_ones(),
            home,
            blocks,
            sets: Vec::new(),
            starts: Vec::new(),
            choices: Vec::new(),
            splits: Vec::new(),
            position: vec![u32::MAX; 1 << problem.count],
        };
        for set in subsets(problem.all(), part.size) {
            part.add(problem, inside, set);
        }
        part.starts.push(part.choices.len() as u32);
        part
    }

    /// Adds a set with its choices, if the part can take it.
    fn add(&mut self, problem: &Problem, inside: &SetBandwidth, set: Mask) {
        let start = self.choices.len();
        if let [block] = self.blocks[..] {
            if set & !problem.blocks[block].targets == 0 && problem.is_fast(set) {
                let value = problem.weight[(block, block)] * inside.inside(set);
                self.choices.push(Choice {
                    value,
                    kept: problem.bytes(set & problem.blocks[block].home),
                    split: 0,
                });
            }
        } else {
            let mut front = Front::default();
            let splitter = Splitter { problem, inside, blocks: &self.blocks };
            splitter.split(0, set, &mut Vec::new(), 0, 0, &mut front);
            for (choice, sets) in front.choices {
                self.choices.push(Choice { split: self.splits.len() as u32, ..choice });
                self.splits.extend(sets);
            }
        }
        if self.choices.len() > start {
            self.position[set as usize] = self.sets.len() as u32;
            self.sets.push(set);
            self.starts.push(start as u32);
        }
    }

    /// Choices for a set; none if the part cannot take it.
    pub(super) fn choices(&self, set: Mask) -> &[Choice] {
        let position = self.position[set as usize];
        if position == u32::MAX { &[] } else { self.choices_at(position as usize) }
    }

    /// Choices for the set at this position of `sets`.
    pub(super) fn choices_at(&self, position: usize) -> &[Choice] {
        &self.choices[self.starts[position] as usize..self.starts[position + 1] as usize]
    }

    /// Writes the node set of each of the part's blocks for a choice.
    pub(super) fn write(&self, set: Mask, choice: Choice, into: &mut [Mask]) {
        match self.blocks[..] {
            [block] => into[block] = set,
            _ => {
                let sets = &self.splits[choice.split as usize..];
                self.blocks.iter().zip(sets).for_each(|(&block, &own)| into[block] = own);
            }
        }
    }
}

/// Enumerates all ways to split a set among several blocks, the first block's lowest set first.
struct Splitter<'a> {
    problem: &'a Problem,
    inside: &'a SetBandwidth,
    blocks: &'a [usize],
}

impl Splitter<'_> {
    /// Splits the nodes `left` among the blocks from index `at` on and offers the results to
    /// `front`. `value` and `kept` are those of the blocks before. Recursion is as deep as a part
    /// has blocks, at most [`super::set_bandwidth::MAX_TABLE_NODES`].
    fn split(
        &self,
        at: usize,
        left: Mask,
        sets: &mut Vec<Mask>,
        value: u64,
        kept: u64,
        front: &mut Front,
    ) {
        let Some(&block) = self.blocks.get(at) else {
            return front.offer(Choice { value, kept, split: 0 }, sets);
        };
        let Block { home, targets } = self.problem.blocks[block];
        for own in
            subsets(left & targets, home.count_ones()).filter(|&own| self.problem.is_fast(own))
        {
            let value = value + self.added(at, own, sets);
            let kept = kept + self.problem.bytes(own & home);
            sets.push(own);
            self.split(at + 1, left & !own, sets, value, kept, front);
            sets.pop();
        }
    }

    /// The value that a block adds with the set `own` to the blocks before it.
    fn added(&self, at: usize, own: Mask, sets: &[Mask]) -> u64 {
        let weight = |other: usize| self.problem.weight[(self.blocks[at], self.blocks[other])];
        let own_inside = self.inside.inside(own);
        let mut value = weight(at) * own_inside;
        for (other, &set) in sets.iter().enumerate().filter(|&(other, _)| weight(other) > 0) {
            value += weight(other)
                * (self.inside.inside(own | set) - own_inside - self.inside.inside(set));
        }
        value
    }
}

/// Blocks connected by weights, each group in block order, groups in order of their first block.
fn groups(problem: &Problem) -> Vec<Vec<usize>> {
    let count = problem.blocks.len();
    let mut group: Vec<usize> = (0..count).collect();
    for k in 0..count {
        for l in k + 1..count {
            if problem.weight[(k, l)] > 0 && group[k] != group[l] {
                let (low, high) = (group[k].min(group[l]), group[k].max(group[l]));
                group.iter_mut().filter(|g| **g == high).for_each(|g| *g = low);
            }
        }
    }
    let members = |root: usize| (0..count).filter(|&k| group[k] == root).collect();
    (0..count).filter(|&k| group[k] == k).map(members).collect()
}

/// Number of (set, split) pairs of a group: the cost of listing its options.
fn splits_of(problem: &Problem, blocks: &[usize]) -> u64 {
    let mut left = problem.count as u64;
    let mut work: u64 = 1;
    for &block in blocks {
        let size = u64::from(problem.blocks[block].home.count_ones());
        work = work.saturating_mul(binomial(left, size));
        left -= size;
    }
    work
}

fn binomial(of: u64, size: u64) -> u64 {
    (0..size).fold(1, |product: u64, i| product.saturating_mul(of - i) / (i + 1))
}

/// A Pareto front of choices with the sets of their blocks. No choice is at most as good as another
/// in both value and bytes that stay.
#[derive(Debug, Default)]
struct Front {
    choices: Vec<(Choice, Vec<Mask>)>,
}

impl Front {
    fn offer(&mut self, new: Choice, sets: &[Mask]) {
        if self.choices.iter().any(|(old, _)| old.value >= new.value && old.kept >= new.kept) {
            return;
        }
        self.choices.retain(|(old, _)| old.value > new.value || old.kept > new.kept);
        self.choices.push((new, sets.to_vec()));
    }
}
