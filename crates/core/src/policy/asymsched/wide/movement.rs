//! The second criterion beyond the tables: a good placement by local search, and a lower bound of
//! the movement.
//!
//! Sets of nodes with occupants that may move are tried in order of their bytes. The relaxation
//! proves for a set that it cannot reach the threshold with all other occupants in place. The bytes
//! of such sets are a lower bound; the first set that reaches the threshold is the optimum.

use super::super::least_movement::Least;
use super::super::local;
use super::super::problem::Problem;
use super::super::subset::{Mask, nodes};
use super::branch::{Branch, Goal};
use super::relaxation::{Partial, Relaxation};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Steps of branch and bound for one set of movers (our choice). A set that needs more stays open.
const STEPS_A_SET: u32 = 300;

/// A placement of at least `threshold` that moves little, with a bound on the bytes that any such
/// placement keeps in place.
pub(super) fn search(
    problem: &Problem,
    relaxation: &Relaxation<'_>,
    threshold: u64,
    best_sets: Vec<Mask>,
    steps: u32,
) -> Least {
    let total = problem.bytes(problem.occupied());
    let good = local::good_enough(problem, threshold, best_sets);
    let moved = total - problem.kept(&good);
    let (found, tried_bound) = try_movers(problem, relaxation, threshold, moved, steps);
    let sets = found.map_or(good, |found| local::descend(problem, &found, threshold));
    let moved = total - problem.kept(&sets);
    Least { sets, kept_bound: total - tried_bound.min(moved) }
}

/// Tries sets of movers with rising bytes until one reaches the threshold or moves `moved` bytes.
/// Returns the placement, if one was found, and a lower bound on the bytes that a good enough
/// placement moves.
fn try_movers(
    problem: &Problem,
    relaxation: &Relaxation<'_>,
    threshold: u64,
    moved: u64,
    mut steps: u32,
) -> (Option<Vec<Mask>>, u64) {
    let mut bound = 0;
    let mut is_settled = true;
    for (bytes, movers) in Movers::new(problem) {
        if is_settled {
            bound = bytes.min(moved);
        }
        if bytes >= moved || steps == 0 {
            break;
        }
        let allowed = steps.min(STEPS_A_SET);
        let mut branch =
            Branch::new(problem, relaxation, Goal::AtLeast { value: threshold }, allowed);
        branch.explore(&with_movers(problem, movers));
        steps -= (allowed - branch.steps_left()).max(1);
        is_settled &= branch.is_complete();
        if let Some(found) = branch.into_found() {
            return (Some(found), bound);
        }
    }
    (None, bound)
}

/// The partial placement in which all occupants stay, except those of `movers`.
fn with_movers(problem: &Problem, movers: Mask) -> Partial {
    let mut partial = Partial::empty(problem);
    for (block, own) in problem.blocks.iter().enumerate() {
        nodes(own.home & !movers).for_each(|node| partial.take(block, node));
    }
    partial.free &= !(problem.others & !movers);
    partial
}

/// Sets of occupied nodes in order of their bytes, then of their bits.
struct Movers {
    /// Nodes by rising bytes. A rank is an index here.
    order: Vec<usize>,
    /// Bytes of the occupants, by rank.
    bytes: Vec<u64>,
    /// `(bytes, ranks as bits, highest rank)` of sets to return. Each set enters once, from the set
    /// without its highest rank or with that rank one lower.
    queue: BTreeSet<(u64, u64, usize)>,
}

impl Movers {
    fn new(problem: &Problem) -> Self {
        let mut order: Vec<usize> = nodes(problem.occupied()).collect();
        order.sort_by_key(|&node| (problem.memory[node], node));
        let bytes: Vec<u64> = order.iter().map(|&node| problem.memory[node]).collect();
        let first = bytes.first().map(|&bytes| (bytes, 1, 0));
        Self { order, bytes, queue: first.into_iter().collect() }
    }
}

impl Iterator for Movers {
    type Item = (u64, Mask);
    fn next(&mut self) -> Option<(u64, Mask)> {
        let (bytes, ranks, last) = self.queue.pop_first()?;
        if last + 1 < self.order.len() {
            let next = self.bytes[last + 1];
            self.queue.insert((bytes + next, ranks | 1 << (last + 1), last + 1));
            self.queue.insert((
                bytes - self.bytes[last] + next,
                ranks & !(1 << last) | 1 << (last + 1),
                last + 1,
            ));
        }
        Some((bytes, nodes(ranks).map(|rank| 1 << self.order[rank]).sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn movers_come_by_bytes_and_each_once() {
        let movers = Movers {
            order: vec![2, 0, 5],
            bytes: vec![1, 2, 4],
            queue: BTreeSet::from([(1, 1, 0)]),
        };
        let all: Vec<(u64, Mask)> = movers.collect();
        let expected = [
            (1, 0b100),
            (2, 0b1),
            (3, 0b101),
            (4, 0b10_0000),
            (5, 0b10_0100),
            (6, 0b10_0001),
            (7, 0b10_0101),
        ];
        assert_eq!(all, expected);
    }
}
