//! Step 2: the placement to use (ALGORITHMS 3.4), and its certainty.
//!
//! Up to 16 nodes the answer is exact in both criteria, by tables. Beyond that, or where
//! overlapping clusters make the tables too large, a bounded branch and bound gives the best
//! placement it finds. Its answer has an upper bound of the value and a lower bound of the
//! movement.

use super::least_movement;
use super::part::Part;
use super::problem::{Placement, Problem};
use super::set_bandwidth::{MAX_TABLE_NODES, SetBandwidth};
use super::subset::Mask;
use super::table::{Aim, Stages};
use super::wide;
use alloc::vec::Vec;

/// A placement and its bounds. Values are in the problem's integer unit and comparable only inside
/// one problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// By node, the node that its threads go to.
    pub placement: Placement,
    /// Weighted bandwidth of the current placement.
    pub current: u64,
    /// Weighted bandwidth of `placement`.
    pub value: u64,
    /// Largest weighted bandwidth found.
    pub best: u64,
    /// A placement with the weighted bandwidth `best`.
    pub best_placement: Placement,
    /// Upper bound on the weighted bandwidth of any placement.
    pub best_bound: u64,
    /// Bytes that `placement` moves.
    pub moved_bytes: u64,
    /// Lower bound on the bytes that any placement within the slack of `best` moves.
    pub moved_bytes_bound: u64,
}

impl Found {
    /// Whether both criteria are proven.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.best == self.best_bound && self.moved_bytes == self.moved_bytes_bound
    }

    /// Distance of `best` from its upper bound, as a share of the bound; 0: proven optimal.
    #[must_use]
    pub fn gap(&self) -> f64 {
        if self.best_bound == 0 {
            0.0
        } else {
            (self.best_bound - self.best) as f64 / self.best_bound as f64
        }
    }
}

/// The node sets and bounds of a search, before they become a [`Found`].
pub(super) struct Answer {
    /// Node set of each block in the chosen placement.
    pub(super) sets: Vec<Mask>,
    /// Node set of each block in a best placement.
    pub(super) best_sets: Vec<Mask>,
    /// Largest value found.
    pub(super) best: u64,
    /// Upper bound on the value of any placement.
    pub(super) best_bound: u64,
    /// Upper bound on the bytes that any good enough placement keeps in place.
    pub(super) kept_bound: u64,
}

/// Finds the placement that moves least among those within the slack of the best. Ties go to the
/// current placement, then to the larger value, then to the lowest sets in block order. Inside a
/// set, threads that can stay do, and the others take the lowest nodes.
#[must_use]
pub fn search(problem: &Problem, cache: &mut SetBandwidth) -> Found {
    let answer = exact(problem, cache).unwrap_or_else(|| {
        let relaxed = problem.with_slow_links();
        exact(&relaxed, cache).unwrap_or_else(|| wide::search(&relaxed))
    });
    let total = problem.bytes(problem.occupied());
    Found {
        placement: problem.placement(&answer.sets),
        current: problem.value(&problem.homes()),
        value: problem.value(&answer.sets),
        best: answer.best,
        best_placement: problem.placement(&answer.best_sets),
        best_bound: answer.best_bound,
        moved_bytes: total - problem.kept(&answer.sets),
        moved_bytes_bound: total - answer.kept_bound,
    }
}

/// The exact search by tables. `None` if the problem is too large for them, or if no placement
/// avoids the slow links.
pub(super) fn exact(problem: &Problem, cache: &mut SetBandwidth) -> Option<Answer> {
    if problem.count > MAX_TABLE_NODES {
        return None;
    }
    cache.prepare(problem.count, &problem.pair);
    let parts = Part::all(problem, cache)?;
    let stages = Stages::new(problem, &parts);
    let back = stages.back_table(Aim::VALUE, |_, _| true);
    let homes = problem.homes();
    let current = problem.value(&homes);
    let best = u64::try_from(back[problem.all() as usize]).ok()?;
    let best_sets = stages.trace(Aim::VALUE, &back);
    // With slow links skipped, the current placement may be better than all that are left.
    let (best, best_sets) =
        if current >= best { (current, homes.clone()) } else { (best, best_sets) };
    let threshold = problem.threshold(best);
    if current >= threshold {
        let kept_bound = problem.kept(&homes);
        return Some(Answer { sets: homes, best_sets, best, best_bound: best, kept_bound });
    }
    let least = least_movement::search(&stages, threshold, best_sets.clone(), &back);
    Some(Answer {
        sets: least.sets,
        best_sets,
        best,
        best_bound: best,
        kept_bound: least.kept_bound,
    })
}
