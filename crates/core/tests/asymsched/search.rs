//! The placement search against enumeration: both criteria and all ties, on random machines and on
//! the 8-node machine of the paper.

use crate::brute_force;
use crate::case::Case;
use rondpoint_core::Random;
use rondpoint_core::policy::asymsched::search::search;
use rondpoint_core::policy::asymsched::set_bandwidth::SetBandwidth;

/// The search must return what enumeration returns: best value, chosen value, bytes, and the
/// placement itself.
fn check(case: &Case) {
    let expected = brute_force::best(case);
    let problem = case.problem();
    let found = search(&problem, &mut SetBandwidth::new());
    let text = case.to_string();
    assert!(found.is_exact(), "not proven: {text}");
    assert_eq!(problem.weighted_mb_s(found.best), expected.best, "best value of {text}");
    assert_eq!(found.moved_bytes, expected.moved_bytes, "bytes of {text}");
    assert_eq!(problem.weighted_mb_s(found.value), expected.value, "chosen value of {text}");
    assert_eq!(found.placement, expected.placement, "placement of {text}");
    assert!(found.value >= found.current.min(found.best), "never worse than staying: {text}");
}

#[test]
fn a_thousand_random_machines_agree_with_enumeration() {
    let mut random = Random::new(3);
    for _ in 0..1000 {
        check(&Case::random(&mut random, 8, false));
    }
}

#[test]
fn ties_are_broken_as_enumeration_breaks_them() {
    let mut random = Random::new(4);
    for _ in 0..400 {
        check(&Case::random(&mut random, 7, true));
    }
}

#[test]
fn the_papers_matrix_agrees_with_enumeration_for_every_shape() {
    let mut random = Random::new(5);
    for shape in [
        &[2][..],
        &[3],
        &[4],
        &[5],
        &[8],
        &[2, 2],
        &[4, 4],
        &[3, 3],
        &[2, 2, 2],
        &[2, 2, 2, 2],
        &[3, 5],
        &[2, 3, 3],
    ] {
        for _ in 0..4 {
            check(&Case::on_the_papers_machine(&mut random, shape));
        }
    }
}

#[test]
fn overlapping_clusters_move_together_and_agree_with_enumeration() {
    let mut random = Random::new(6);
    for _ in 0..150 {
        check(&Case::overlapping(&mut random, 7));
    }
}

#[test]
fn nodes_of_different_kinds_keep_their_kind() {
    let mut random = Random::new(7);
    for _ in 0..150 {
        let mut case = Case::random(&mut random, 7, false);
        case.kinds = case.kinds.iter().map(|_| random.below(2)).collect();
        check(&case);
    }
}

/// Sixteen nodes: too many permutations, but few enough set partitions.
#[test]
fn sixteen_nodes_agree_with_enumeration_of_set_partitions() {
    let mut random = Random::new(8);
    for shape in [&[8, 8][..], &[8], &[2, 2, 2], &[12, 2], &[3, 3], &[4, 2]] {
        check(&Case::shaped(&mut random, 16, shape, false));
    }
}
