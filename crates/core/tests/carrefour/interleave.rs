//! The probabilities of interleaving (ALGORITHMS 1.5, conformance values), counted over many draws.

use rondpoint_core::model::Traffic;
use rondpoint_core::policy::carrefour::interleave::{Interleaving, Ranks};
use rondpoint_core::policy::carrefour::preset::Draw;
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Matrix, Random, Topology};

const DRAWS: u32 = 200_000;

fn machine() -> Topology {
    synthetic::parse("node:4 core:4").expect("a machine")
}

/// Share of pages of node `source` that go to each node. The share that stays is at the source's
/// place.
fn shares(topology: &Topology, loads: &[f64], source: usize, draw: Draw) -> Vec<f64> {
    let traffic =
        Traffic::new(Matrix::from_fn(loads.len(), |n, m| if n == 0 { loads[m] } else { 0.0 }));
    let interleaving = Interleaving::new(&traffic, topology, draw);
    let mut random = Random::new(42);
    let mut counts = vec![0_u32; loads.len()];
    for page in 0..DRAWS {
        let target = interleaving.target(source, page.into(), None, &mut random);
        counts[target.unwrap_or(source)] += 1;
    }
    counts.into_iter().map(|count| f64::from(count) / f64::from(DRAWS)).collect()
}

/// Four standard deviations of 200,000 draws are below 0.0045.
fn check(found: &[f64], expected: &[f64]) {
    let near =
        found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.0045);
    assert!(near, "found {found:?}, expected {expected:?}");
}

#[test]
fn all_traffic_on_one_node_spreads_evenly_over_the_others() {
    check(
        &shares(&machine(), &[1.0, 0.0, 0.0, 0.0], 0, Draw::Exact),
        &[0.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0],
    );
    check(&shares(&machine(), &[1.0, 0.0, 0.0, 0.0], 1, Draw::Exact), &[0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn a_page_of_a_node_with_40_percent_leaves_with_0_32() {
    check(
        &shares(&machine(), &[40.0, 20.0, 20.0, 20.0], 0, Draw::Exact),
        &[0.68, 0.1067, 0.1067, 0.1067],
    );
}

#[test]
fn the_net_probability_is_the_share_times_the_lack_of_load() {
    let loads = [50.0, 30.0, 15.0, 5.0];
    let to = |target: usize| 0.5 * (1.0 - loads[target] / 100.0) / 3.0;
    check(
        &shares(&machine(), &loads, 0, Draw::Exact),
        &[1.0 - to(1) - to(2) - to(3), to(1), to(2), to(3)],
    );
}

/// Author code: 0 to 100 inclusive compared with ≤, so a node with 40 % is left with 41/101;
/// targets share 300 + 1 numbers.
#[test]
fn the_author_codes_integers_give_their_own_probabilities() {
    let leaves = 41.0 / 101.0;
    let expected = [
        1.0 - leaves * 240.0 / 301.0,
        leaves * 80.0 / 301.0,
        leaves * 80.0 / 301.0,
        leaves * 80.0 / 301.0,
    ];
    check(&shares(&machine(), &[40.0, 20.0, 20.0, 20.0], 0, Draw::IntegerPercent), &expected);
}

#[test]
fn nothing_leaves_without_traffic() {
    check(&shares(&machine(), &[0.0, 0.0, 0.0, 0.0], 2, Draw::Exact), &[0.0, 0.0, 1.0, 0.0]);
    check(
        &shares(&machine(), &[0.0, 0.0, 0.0, 0.0], 2, Draw::IntegerPercent),
        &[0.0, 0.0, 1.0, 0.0],
    );
}

#[test]
fn a_controller_with_half_the_bandwidth_counts_twice_and_is_drawn_half_as_often() {
    let mut description = synthetic::describe("node:3 core:4 gbs:10").expect("a machine");
    description.nodes[2].controller_bytes_per_s = Some(5e9);
    let topology = Topology::new(description).expect("a machine");
    // Use is 10, 10 and 20: shares 1/4, 1/4, 1/2; weights 3/4 · 1.2, 3/4 · 1.2, 1/2 · 0.6.
    let (weights, total) = ([0.9, 0.9, 0.3], 2.1);
    let to = |target: usize| 0.25 * weights[target] / total;
    check(
        &shares(&topology, &[10.0, 10.0, 10.0], 0, Draw::Exact),
        &[1.0 - to(1) - to(2), to(1), to(2)],
    );
}

#[test]
fn pages_of_a_memory_only_node_may_leave_and_none_goes_there() {
    let mut description = synthetic::describe("node:3 core:2").expect("a machine");
    description.cpus.retain(|cpu| cpu.node != 2);
    let topology = Topology::new(description).expect("a machine");
    check(&shares(&topology, &[0.0, 0.0, 9.0], 2, Draw::Exact), &[0.5, 0.5, 0.0]);
    check(&shares(&topology, &[9.0, 0.0, 0.0], 0, Draw::Exact), &[0.0, 1.0, 0.0]);
}

/// Half of what is on a node with twice the mean goes to where something lacks; all else stays.
#[test]
fn only_the_excess_leaves_and_only_for_nodes_below_the_mean() {
    let of = |source| shares(&machine(), &[50.0, 25.0, 15.0, 10.0], source, Draw::Excess);
    check(&of(0), &[0.5, 0.0, 0.5 * 0.4, 0.5 * 0.6]);
    check(&of(1), &[0.0, 1.0, 0.0, 0.0]);
    check(&of(3), &[0.0, 0.0, 0.0, 1.0]);
    check(&shares(&machine(), &[25.0; 4], 0, Draw::Excess), &[1.0, 0.0, 0.0, 0.0]);
}

/// Probabilities of our draw for pages that one node accesses, with this load of the controllers.
fn excess(loads: [f64; 4]) -> Interleaving {
    let traffic = Traffic::new(Matrix::from_fn(4, |n, m| if n == 0 { loads[m] } else { 0.0 }));
    Interleaving::new(&traffic, &machine(), Draw::Excess)
}

/// Each run of sixteen pages of a node with all the traffic is on the four nodes, four pages each,
/// within one.
#[test]
fn of_neighbouring_pages_each_node_gets_its_share() {
    let interleaving = excess([1.0, 0.0, 0.0, 0.0]);
    let mut random = Random::new(1);
    for start in [0, 1 << 35, 0x7_f123_4567, 0x7_ffff_fff0] {
        let pages = start..start + 1_000;
        let node_of = |page| interleaving.target(0, page, None, &mut random).unwrap_or(0);
        let nodes: Vec<usize> = pages.map(node_of).collect();
        for run in nodes.windows(16) {
            let on = |node| run.iter().filter(|page| **page == node).count();
            let counts = [on(0), on(1), on(2), on(3)];
            assert!(counts.iter().all(|count| (3..=5).contains(count)), "{start}: {counts:?}");
        }
    }
}

/// Pages whose low ranks left before leave for all nodes below the mean, not for the last one.
#[test]
fn the_pages_of_a_later_round_go_to_all_nodes_below_the_mean() {
    let mut interleaving = excess([40.0, 20.0, 20.0, 20.0]);
    let stayed =
        || (0..4_000_u64).filter(|page| page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 62 == 3);
    let mut ranks = Ranks::new(4, false);
    stayed().for_each(|page| ranks.note(0, page, 1));
    interleaving.choose_by(&[ranks]);
    let mut counts = [0_usize; 4];
    for page in stayed() {
        counts[interleaving.target(0, page, None, &mut Random::new(1)).unwrap_or(0)] += 1;
    }
    let count = stayed().count() as f64;
    let shares: Vec<f64> = counts.iter().map(|of| *of as f64 / count).collect();
    assert!((shares[0] - 0.625).abs() < 0.01, "{shares:?}");
    assert!(shares[1..].iter().all(|share| (share - 0.125).abs() < 0.01), "{shares:?}");
}

/// Where samples are few, almost all pages have none.
#[test]
fn a_single_sample_does_not_send_all_pages_to_one_node() {
    for first in 0..50 {
        let mut interleaving = excess([40.0, 0.0, 0.0, 0.0]);
        let mut ranks = Ranks::new(4, false);
        ranks.note(0, first, 1);
        interleaving.choose_by(&[ranks]);
        let mut counts = [0_usize; 4];
        for page in 0..2_048 {
            counts[interleaving.target(0, page, None, &mut Random::new(1)).unwrap_or(0)] += 1;
        }
        assert!(counts.iter().all(|count| *count < 1_100), "from {first} on: {counts:?}");
    }
}

/// Before any page has moved, a node's pages have all ranks, whichever pages a few samples show.
#[test]
fn a_few_samples_of_a_first_round_leave_each_node_its_share() {
    for samples in [1, 4, 16] {
        for seed in 0..50 {
            let (mut interleaving, mut random) = (excess([40.0, 0.0, 0.0, 0.0]), Random::new(seed));
            let mut ranks = Ranks::new(4, true);
            (0..samples).for_each(|_| ranks.note(0, random.below(2_048) as u64, 1));
            interleaving.choose_by(&[ranks]);
            let mut counts = [0_usize; 4];
            for page in 0..2_048 {
                counts[interleaving.target(0, page, None, &mut random).unwrap_or(0)] += 1;
            }
            let are_fair = counts.iter().all(|count| (307..=717).contains(count));
            assert!(are_fair, "{samples} samples, seed {seed}: {counts:?}");
        }
    }
}

/// The first round reaches the first half of the pages, the second round all of them. After it both
/// halves are even, though the excess was that of both together.
#[test]
fn the_second_round_takes_its_pages_from_where_the_first_took_none() {
    let half = 512;
    let mut node_of = vec![0_usize; 2 * half];
    for sampled in [half, 2 * half] {
        let on = |node| node_of.iter().filter(|of| **of == node).count();
        let mut interleaving = excess([0, 1, 2, 3].map(|node| on(node) as f64));
        let mut ranks = Ranks::new(4, false);
        for (page, node) in node_of[..sampled].iter().enumerate() {
            ranks.note(*node, page as u64, 1);
        }
        interleaving.choose_by(&[ranks]);
        for (page, node) in node_of[..sampled].iter_mut().enumerate() {
            let target = interleaving.target(*node, page as u64, None, &mut Random::new(1));
            *node = target.unwrap_or(*node);
        }
    }
    for part in node_of.chunks(half) {
        let on = |node| part.iter().filter(|of| **of == node).count();
        assert!([0, 1, 2, 3].iter().all(|node| (115..=141).contains(&on(*node))), "{part:?}");
    }
}

/// All threads use one page more than all others together, as the centres of k-means.
#[test]
fn a_page_with_most_of_the_accesses_does_not_send_the_others_to_one_node() {
    for heavy in 0..50 {
        let mut interleaving = excess([40.0, 0.0, 0.0, 0.0]);
        let mut ranks = Ranks::new(4, false);
        (0..2_048).step_by(128).for_each(|page| ranks.note(0, page, 1));
        ranks.note(0, heavy, 200);
        interleaving.choose_by(&[ranks]);
        let target = |page| interleaving.target(0, page, None, &mut Random::new(1));
        let targets: Vec<usize> = (0..2_048).filter_map(target).collect();
        let to = |node| targets.iter().filter(|target| **target == node).count();
        let most = [1, 2, 3].map(to).into_iter().max().unwrap_or(0);
        assert!(2 * most < targets.len() + 300, "{heavy}: {most} of {}", targets.len());
    }
}
