//! Placements beyond the tables: branch and bound over single nodes, local search as the fallback,
//! and bounds for both.
//!
//! Slow links are not skipped here: the bound already leaves them aside.
//!
//! Work is bounded in steps, not in time (this crate has no clock), so the same input gives the
//! same answer on every machine.

mod assignment;
mod branch;
mod movement;
mod relaxation;

use super::local;
use super::problem::Problem;
use super::search::Answer;
use super::set_bandwidth::MAX_TABLE_NODES;
use branch::{Branch, Goal};
use relaxation::{Partial, Relaxation};

/// Steps of branch and bound for the value, and as many for the movement (our choice). One step
/// costs 10 to 30 µs at 32 nodes.
const STEPS: u32 = 6_000;
/// Steps on a machine of at most [`MAX_TABLE_NODES`] nodes, where overlapping clusters made the
/// tables too large (our choice).
const STEPS_OF_FEW_NODES: u32 = 2_000;

/// The best placement found within the steps, with bounds.
pub(super) fn search(problem: &Problem) -> Answer {
    let homes = problem.homes();
    let current = problem.value(&homes);
    let kept = problem.kept(&homes);
    let relaxation = Relaxation::new(problem);
    let root = Partial::empty(problem);
    let steps = if problem.count > MAX_TABLE_NODES { STEPS } else { STEPS_OF_FEW_NODES };
    let best_sets = local::best(problem);
    let incumbent = problem.value(&best_sets);
    let mut branch = Branch::new(problem, &relaxation, Goal::Best { incumbent }, steps);
    branch.explore(&root);
    let best_bound = branch.bound();
    let best_sets = branch.into_found().unwrap_or(best_sets);
    let best = problem.value(&best_sets);
    let threshold = problem.threshold(best);
    if current >= threshold {
        return Answer { sets: homes, best_sets, best, best_bound, kept_bound: kept };
    }
    let least = movement::search(problem, &relaxation, threshold, best_sets.clone(), steps);
    Answer { sets: least.sets, best_sets, best, best_bound, kept_bound: least.kept_bound }
}

#[cfg(test)]
mod tests {
    use super::super::cluster::Cluster;
    use super::super::problem::{Parts, Problem};
    use super::super::search::exact;
    use super::super::set_bandwidth::SetBandwidth;
    use super::search;
    use crate::matrix::Matrix;
    use crate::random::Random;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Random rates, clusters that may overlap, random memory.
    fn problem(random: &mut Random, count: usize) -> Problem {
        let mut rates = Matrix::filled(count, 0.0);
        (0..count * count)
            .for_each(|at| rates[(at / count, at % count)] = (1000 + random.below(6000)) as f64);
        let clusters: Vec<Cluster> = (0..1 + random.below(3))
            .map(|app| Cluster {
                app,
                nodes: random.next_u64() & ((1 << count) - 1),
                traffic_per_s: 1e6,
                weight: 5.0 + random.unit(),
            })
            .filter(|cluster| cluster.nodes.count_ones() >= 2)
            .collect();
        let occupied = clusters
            .iter()
            .fold(random.next_u64() & ((1 << count) - 1), |all, cluster| all | cluster.nodes);
        let memory_bytes: Vec<u64> = (0..count).map(|_| random.below(20) as u64).collect();
        Problem::new(&Parts {
            bandwidth_mb_s: &rates,
            clusters: &clusters,
            memory_bytes: &memory_bytes,
            occupied,
            kinds: &vec![(1 << count) - 1; count],
            slack_permille: 900,
            slowest_link_mb_s: None,
        })
    }

    #[test]
    fn bounds_enclose_the_truth_and_small_problems_are_proven() {
        let mut random = Random::new(11);
        let mut proven = 0;
        for case in 0..300 {
            let problem = problem(&mut random, 2 + case % 7);
            let truth = exact(&problem, &mut SetBandwidth::new()).expect("small enough for tables");
            let found = search(&problem);
            assert!(
                found.best <= truth.best && truth.best <= found.best_bound,
                "value of case {case}"
            );
            if found.best == truth.best {
                let kept = problem.kept(&found.sets);
                assert!(
                    problem.value(&found.sets) >= problem.threshold(truth.best),
                    "case {case} is good enough"
                );
                assert!(
                    kept <= truth.kept_bound && truth.kept_bound <= found.kept_bound,
                    "bytes of case {case}"
                );
                proven += u32::from(found.best == found.best_bound && kept == found.kept_bound);
            }
        }
        assert!(proven >= 290, "{proven} of 300 proven");
    }
}
