//! Local search: exchange the occupants of two nodes as long as that helps, from several starts.

use super::problem::{Problem, SCORE_CEILING, SCORE_SHIFT};
use super::subset::{Mask, nodes};
use super::table::Aim;
use crate::random::Random;
use alloc::vec;
use alloc::vec::Vec;

/// Restarts from a perturbed placement (our choice). Each costs about 0.2 ms at 32 nodes.
const RESTARTS: usize = 60;
/// Random exchanges that perturb a placement (our choice).
const SHAKES: usize = 4;
/// Largest number of multipliers tried (our choice).
const MULTIPLIERS: u32 = 8;
/// Seed of the perturbations. It is fixed, so that equal problems have equal results.
const SEED: u64 = 0x5eed_a53d;

/// The placement of the largest value that the local search finds.
pub(super) fn best(problem: &Problem) -> Vec<Mask> {
    let mut random = Random::new(SEED);
    let mut best = Seats::new(problem, &problem.homes());
    best.climb(Aim::VALUE);
    for _ in 0..RESTARTS {
        let mut next = best.clone();
        next.shake(&mut random);
        next.climb(Aim::VALUE);
        if next.score(Aim::VALUE) > best.score(Aim::VALUE) {
            best = next;
        }
    }
    best.sets()
}

/// A placement of at least `threshold` that moves little, from a best placement. The search climbs
/// the value plus a multiple of the bytes that stay. The multiple is the slope between a good
/// enough placement and one that moves too little.
pub(super) fn good_enough(problem: &Problem, threshold: u64, best_sets: Vec<Mask>) -> Vec<Mask> {
    let homes = problem.homes();
    let mut good = descend(problem, &best_sets, threshold);
    let mut lazy = (problem.value(&homes), problem.kept(&homes));
    for _ in 0..MULTIPLIERS {
        let (value, kept) = (problem.value(&good), problem.kept(&good));
        if value <= lazy.0 || lazy.1 <= kept {
            break;
        }
        let per_byte =
            (((value - lazy.0) << SCORE_SHIFT) / (lazy.1 - kept)).clamp(1, SCORE_CEILING / lazy.1);
        let aim = Aim::with_bytes(per_byte as i64);
        let mut found = climb(problem, &homes, aim);
        if problem.value(&found) < threshold {
            lazy = (problem.value(&found), problem.kept(&found));
            found = climb(problem, &good, aim);
        }
        if problem.value(&found) >= threshold && problem.are_fast(&found) {
            let next = descend(problem, &found, threshold);
            if problem.kept(&next) > kept {
                good = next;
            }
        }
    }
    good
}

/// The local optimum of the aim above a placement: no exchange raises its score.
fn climb(problem: &Problem, sets: &[Mask], aim: Aim) -> Vec<Mask> {
    let mut seats = Seats::new(problem, sets);
    seats.climb(aim);
    seats.sets()
}

/// Improves a good enough placement by exchanges until none moves less, or moves as much with more
/// value. All placements on the way are good enough.
pub(super) fn descend(problem: &Problem, sets: &[Mask], threshold: u64) -> Vec<Mask> {
    let mut best = sets.to_vec();
    let mut rank = (problem.kept(&best), problem.value(&best));
    // Every round raises the rank; far fewer rounds than nodes squared are needed, and that is the
    // bound.
    for _ in 0..problem.count * problem.count {
        let seats = Seats::new(problem, &best);
        let better = seats.exchanges().filter_map(|(i, j)| {
            let value = (seats.score(Aim::VALUE) + seats.change(Aim::VALUE, i, j)) as u64;
            let mut next = seats.clone();
            next.exchange(i, j);
            let sets = next.sets();
            let is_good = value >= threshold && problem.are_fast(&sets);
            is_good.then(|| ((problem.kept(&sets), value), sets))
        });
        match better.max_by_key(|(rank, _)| *rank) {
            Some((next, sets)) if next > rank => (rank, best) = (next, sets),
            _ => break,
        }
    }
    best
}

/// A placement as the block on each node.
#[derive(Clone)]
struct Seats<'a> {
    problem: &'a Problem,
    block: Vec<Option<usize>>,
}

impl<'a> Seats<'a> {
    fn new(problem: &'a Problem, sets: &[Mask]) -> Self {
        let mut block = vec![None; problem.count];
        for (k, &set) in sets.iter().enumerate() {
            nodes(set).for_each(|node| block[node] = Some(k));
        }
        Self { problem, block }
    }

    /// The node set of each block.
    fn sets(&self) -> Vec<Mask> {
        let mut sets = vec![0; self.problem.blocks.len()];
        for (node, block) in self.block.iter().enumerate() {
            if let Some(k) = block {
                sets[*k] |= 1 << node;
            }
        }
        sets
    }

    fn score(&self, aim: Aim) -> i64 {
        let sets = self.sets();
        aim.score(self.problem.value(&sets), self.problem.kept(&sets))
    }

    /// Applies the best exchange until none raises the score. The bound on their number is far
    /// above any number observed.
    fn climb(&mut self, aim: Aim) {
        for _ in 0..self.problem.count * self.problem.count {
            let best = self
                .exchanges()
                .map(|(i, j)| (self.change(aim, i, j), i, j))
                .max_by_key(|(gain, ..)| *gain);
            match best {
                Some((gain, i, j)) if gain > 0 => self.exchange(i, j),
                _ => break,
            }
        }
    }

    fn shake(&mut self, random: &mut Random) {
        let pairs: Vec<(usize, usize)> = self.exchanges().collect();
        for _ in 0..SHAKES.min(pairs.len()) {
            let (i, j) = pairs[random.below(pairs.len())];
            if self.may(i, j) {
                self.exchange(i, j);
            }
        }
    }

    fn exchange(&mut self, i: usize, j: usize) {
        self.block.swap(i, j);
    }

    /// Pairs of nodes with different blocks that may change places.
    fn exchanges(&self) -> impl Iterator<Item = (usize, usize)> {
        let count = self.problem.count;
        (0..count)
            .flat_map(move |i| (i + 1..count).map(move |j| (i, j)))
            .filter(|&(i, j)| self.may(i, j))
    }

    fn may(&self, i: usize, j: usize) -> bool {
        self.block[i] != self.block[j] && self.problem.kinds[i] >> j & 1 == 1
    }

    /// The change of the score by an exchange of the blocks on nodes `i` and `j`.
    fn change(&self, aim: Aim, i: usize, j: usize) -> i64 {
        let (a, b) = (self.block[i], self.block[j]);
        let mut gain = 0;
        for (node, block) in self.block.iter().enumerate() {
            let Some(c) = block.filter(|_| node != i && node != j) else { continue };
            let heavier = self.weight(b, c) - self.weight(a, c);
            gain +=
                heavier * (self.problem.pair(i, node) as i64 - self.problem.pair(j, node) as i64);
        }
        let stays = |node: usize, block: Option<usize>| {
            if self.is_home(node, block) { self.problem.memory[node] as i64 } else { 0 }
        };
        let kept = stays(i, b) + stays(j, a) - stays(i, a) - stays(j, b);
        (gain << aim.shift) + aim.per_byte * kept
    }

    fn weight(&self, a: Option<usize>, c: usize) -> i64 {
        a.map_or(0, |a| self.problem.weight[(a, c)] as i64)
    }

    /// Whether the threads now on `node` can stay when `block` has it.
    fn is_home(&self, node: usize, block: Option<usize>) -> bool {
        match block {
            Some(k) => self.problem.blocks[k].home >> node & 1 == 1,
            None => self.problem.others >> node & 1 == 1,
        }
    }
}
