//! Exact optimum over all placements of up to 16 nodes without enumerating them: dynamic
//! programming over node sets.
//!
//! Parts are placed one after the other. The best continuation depends on the set of used nodes,
//! not on the node of each part. There are at most 3ᴺ/2 steps instead of N!, and two million for
//! the worst case at N = 16. The same tables with a multiplier on the bytes that stay (a Lagrangian
//! relaxation) bound the least movement from below.

use super::part::{Choice, Part};
use super::problem::{Problem, SCORE_SHIFT};
use super::subset::{Mask, subsets};
use alloc::vec;
use alloc::vec::Vec;

/// The score of an impossible placement. Real scores are below 2⁵⁹, so a sum with it stays below
/// [`IMPOSSIBLE`]` / 2`. Three such scores add without overflow.
pub(super) const IMPOSSIBLE: i64 = -(1 << 61);

/// The quantity that a table maximises: the value alone, or the value and a multiple of the bytes
/// that stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Aim {
    pub(super) shift: u32,
    pub(super) per_byte: i64,
}

impl Aim {
    /// Weighted bandwidth and nothing else.
    pub(super) const VALUE: Self = Self { shift: 0, per_byte: 0 };

    /// Value scaled up, plus `per_byte` for every byte that stays.
    pub(super) const fn with_bytes(per_byte: i64) -> Self {
        Self { shift: SCORE_SHIFT, per_byte }
    }

    pub(super) fn score(self, value: u64, kept: u64) -> i64 {
        ((value as i64) << self.shift) + self.per_byte * kept as i64
    }
}

/// The stages of a problem with parts placed in order.
pub(super) struct Stages<'a> {
    pub(super) problem: &'a Problem,
    pub(super) parts: &'a [Part],
    /// Number of nodes used before each part, and after the last.
    used: Vec<u32>,
    /// Current nodes of the parts before each stage.
    home_in_front: Vec<Mask>,
    /// Bytes of the occupants, by node set.
    bytes: Vec<u64>,
}

/// Best score by node set. The number of nodes in a set tells its stage, so all stages share one
/// table.
pub(super) type Table = Vec<i64>;

impl<'a> Stages<'a> {
    pub(super) fn new(problem: &'a Problem, parts: &'a [Part]) -> Self {
        let mut used = vec![0];
        let mut home_in_front = vec![0];
        for (stage, part) in parts.iter().enumerate() {
            used.push(used[stage] + part.size);
            home_in_front.push(home_in_front[stage] | part.home);
        }
        let mut bytes = vec![0; 1 << problem.count];
        for set in 1..bytes.len() {
            bytes[set] = bytes[set & (set - 1)] + problem.memory[set.trailing_zeros() as usize];
        }
        Self { problem, parts, used, home_in_front, bytes }
    }

    pub(super) fn all(&self) -> Mask {
        self.problem.all()
    }

    /// Every set of nodes that the parts before a stage may use; `stage == parts.len()` for all
    /// parts.
    pub(super) fn used_sets(&self, stage: usize) -> impl Iterator<Item = Mask> + use<> {
        subsets(self.all(), self.used[stage])
    }

    /// By set of *used* nodes: the best score of the parts before a stage on exactly these nodes.
    /// `alive` selects the used sets of a stage to compute.
    pub(super) fn front_table(&self, aim: Aim, alive: impl Fn(usize, Mask) -> bool) -> Table {
        let mut table = vec![IMPOSSIBLE; 1 << self.problem.count];
        table[0] = 0;
        for (stage, part) in self.parts.iter().enumerate() {
            let scores = self.scores(part, aim);
            for used in self.used_sets(stage + 1).filter(|&used| alive(stage + 1, used)) {
                let with = |set: Mask| scores[set as usize] + table[(used & !set) as usize];
                table[used as usize] =
                    subsets(used, part.size).map(with).fold(IMPOSSIBLE, i64::max);
            }
        }
        table
    }

    /// By set of *available* nodes: the best score of a stage and those after it on them.
    pub(super) fn back_table(&self, aim: Aim, alive: impl Fn(usize, Mask) -> bool) -> Table {
        let mut table = vec![IMPOSSIBLE; 1 << self.problem.count];
        let all = self.all();
        for used in self.used_sets(self.parts.len()) {
            table[(all & !used) as usize] = aim.score(0, self.others_kept(all & !used));
        }
        for (stage, part) in self.parts.iter().enumerate().rev() {
            let scores = self.scores(part, aim);
            for available in
                self.used_sets(stage).filter(|&used| alive(stage, used)).map(|used| all & !used)
            {
                let with = |set: Mask| scores[set as usize] + table[(available & !set) as usize];
                table[available as usize] =
                    subsets(available, part.size).map(with).fold(IMPOSSIBLE, i64::max);
            }
        }
        table
    }

    /// The sets of a best placement, read off a table of [`Stages::back_table`]: the smallest set
    /// for each part in turn.
    pub(super) fn trace(&self, aim: Aim, table: &Table) -> Vec<Mask> {
        let mut sets = vec![0; self.problem.blocks.len()];
        let mut available = self.all();
        for part in self.parts {
            let wanted = table[available as usize];
            let reaches = |set: Mask, choice: &Choice| {
                aim.score(choice.value, choice.kept) + table[(available & !set) as usize] == wanted
            };
            let found = subsets(available, part.size).find_map(|set| {
                part.choices(set)
                    .iter()
                    .find(|choice| reaches(set, choice))
                    .map(|choice| (set, *choice))
            });
            let (set, choice) = found.expect("a table's maximum has a set that reaches it");
            part.write(set, choice, &mut sets);
            available &= !set;
        }
        sets
    }

    /// Bytes of occupants of no cluster that stay when the parts leave exactly this set.
    pub(super) fn others_kept(&self, left: Mask) -> u64 {
        self.bytes[(self.problem.others & left) as usize]
    }

    /// Most bytes that the parts before a stage can keep when they use exactly this set.
    pub(super) fn may_keep_in_front(&self, stage: usize, used: Mask) -> u64 {
        self.bytes[(self.home_in_front[stage] & used) as usize]
    }

    /// Most bytes that a placement can keep when the parts before a stage use exactly this set.
    pub(super) fn may_keep(&self, stage: usize, used: Mask) -> u64 {
        let behind = self.problem.occupied() & !self.home_in_front[stage];
        self.may_keep_in_front(stage, used) + self.bytes[(behind & !used) as usize]
    }

    /// By node set, the best score of a part alone.
    fn scores(&self, part: &Part, aim: Aim) -> Table {
        let mut scores = vec![IMPOSSIBLE; 1 << self.problem.count];
        for (position, &set) in part.sets.iter().enumerate() {
            let best = part
                .choices_at(position)
                .iter()
                .map(|choice| aim.score(choice.value, choice.kept))
                .max();
            scores[set as usize] = best.unwrap_or(IMPOSSIBLE);
        }
        scores
    }
}
