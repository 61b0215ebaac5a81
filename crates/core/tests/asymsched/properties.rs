//! What must hold for every situation, drawn at random.

use proptest::prelude::*;
use rondpoint_core::policy::asymsched::decision::{
    AppView, Situation, Verdict, weighted_bandwidth,
};
use rondpoint_core::policy::asymsched::search::Found;
use rondpoint_core::policy::asymsched::search_cache::SearchCache;
use rondpoint_core::policy::asymsched::{Decision, Preset, decide};
use rondpoint_core::{Bytes, Matrix, Nanos, Pid};

/// Up to eight nodes, up to four applications on any of them, some short of time.
fn situations() -> impl Strategy<Value = Situation> {
    (2_usize..9).prop_flat_map(|count| {
        let rates = prop::collection::vec(1_u32..8, count * count);
        let apps = prop::collection::vec(app(count), 1..5);
        let kinds = prop::collection::vec(0_u8..4, count);
        (rates, apps, kinds).prop_map(move |(rates, apps, kinds)| Situation {
            bandwidth: Matrix::from_fn(count, |i, j| f64::from(rates[i * count + j]) * 1e9),
            kinds: (0..count).map(|node| like(&kinds, node)).collect(),
            apps,
        })
    })
}

/// Three quarters of the nodes are of one kind, the others alone.
fn like(kinds: &[u8], node: usize) -> u64 {
    let is_like = |&other: &usize| other == node || kinds[other] > 0 && kinds[node] > 0;
    (0..kinds.len()).filter(is_like).map(|other| 1 << other).sum()
}

fn app(count: usize) -> impl Strategy<Value = AppView> {
    let requests = prop::collection::vec(prop_oneof![Just(0_u32), 1_u32..1_000_000], count * count);
    let memory = prop::collection::vec(0_u64..8, count);
    (1_u64..1 << count, requests, memory, 1_u64..400).prop_map(
        move |(nodes, requests, memory, seconds)| AppView {
            pid: Pid(1),
            nodes,
            traffic_per_s: Some(Matrix::from_fn(count, |i, j| f64::from(requests[i * count + j]))),
            memory: memory.into_iter().map(|gigabytes| Bytes(gigabytes << 30)).collect(),
            run_time: Nanos::from_secs(seconds),
            migration_time: Nanos(0),
        },
    )
}

fn run(situation: &Situation) -> Decision {
    decide(situation, &Preset::PUBLISHED, 0.3, &mut SearchCache::new())
}

/// The situation with nodes renamed.
fn renamed(situation: &Situation, to: &[usize]) -> Situation {
    let count = to.len();
    let mut from = vec![0; count];
    (0..count).for_each(|node| from[to[node]] = node);
    let matrix = |old: &Matrix<f64>| Matrix::from_fn(count, |i, j| old[(from[i], from[j])]);
    let mask = |old: u64| {
        (0..count).filter(|&node| old >> node & 1 == 1).map(|node| 1_u64 << to[node]).sum()
    };
    let app = |app: &AppView| AppView {
        nodes: mask(app.nodes),
        traffic_per_s: app.traffic_per_s.as_ref().map(matrix),
        memory: (0..count).map(|node| app.memory[from[node]]).collect(),
        ..app.clone()
    };
    Situation {
        bandwidth: matrix(&situation.bandwidth),
        kinds: (0..count).map(|node| mask(situation.kinds[from[node]])).collect(),
        apps: situation.apps.iter().map(app).collect(),
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_placement_is_never_worse_than_staying_and_never_below_the_slack(situation in situations()) {
        let decision = run(&situation);
        prop_assert!(decision.chosen >= decision.staying * (1.0 - 1e-9));
        let best = decision.best.unwrap_or_default();
        prop_assert!(decision.chosen >= 0.9 * best * (1.0 - 1e-6));
        prop_assert!(best >= decision.chosen * (1.0 - 1e-9));
    }

    #[test]
    fn occupants_go_to_distinct_nodes_of_their_kind(situation in situations()) {
        let decision = run(&situation);
        let Some(found) = &decision.found else { return Ok(()) };
        let occupied = situation.apps.iter().fold(0, |all, app| all | app.nodes);
        let mut taken = 0_u64;
        for (node, target) in found.placement.iter().enumerate() {
            prop_assert_eq!(target.is_some(), occupied >> node & 1 == 1);
            if let Some(target) = *target {
                prop_assert!(situation.kinds[node] >> target & 1 == 1);
                prop_assert!(taken >> target & 1 == 0);
                taken |= 1 << target;
            }
        }
    }

    #[test]
    fn to_move_is_to_gain_within_every_budget(situation in situations()) {
        let decision = run(&situation);
        let is_over = decision.costs.iter().any(|cost| cost.seconds > cost.allowed_seconds);
        match decision.verdict {
            Verdict::Move => {
                prop_assert!(decision.moves().next().is_some() && !is_over);
                prop_assert!(decision.chosen > decision.staying);
            }
            Verdict::OverBudget => prop_assert!(is_over),
            _ => prop_assert!(decision.moves().next().is_none()),
        }
    }

    #[test]
    fn carried_out_it_stays(situation in situations()) {
        let decision = run(&situation);
        let Some(found) = decision.found.as_ref().filter(|_| decision.verdict == Verdict::Move) else { return Ok(()) };
        let value = weighted_bandwidth(&situation.bandwidth, &decision.clusters, &found.placement);
        // Everyone renamed as placed, on the machine as it was.
        let mut to: Vec<usize> = Vec::new();
        let free = |to: &[usize], node: usize| (0..found.placement.len()).find(|n| !to.contains(n) && !found.placement.contains(&Some(*n))).unwrap_or(node);
        for (node, target) in found.placement.iter().enumerate() {
            to.push(target.unwrap_or_else(|| free(&to, node)));
        }
        let mut after = renamed(&situation, &to);
        after.bandwidth = situation.bandwidth.clone();
        after.kinds.clone_from(&situation.kinds);
        let again = run(&after);
        prop_assert!(close(again.staying, value));
        prop_assert_eq!(again.verdict, Verdict::Stay);
    }

    #[test]
    fn names_of_nodes_do_not_change_values(situation in situations(), seed in any::<u64>()) {
        let count = situation.kinds.len();
        let mut to: Vec<usize> = (0..count).collect();
        let mut random = rondpoint_core::Random::new(seed);
        (1..count).for_each(|last| to.swap(last, random.below(last + 1)));
        let (one, other) = (run(&situation), run(&renamed(&situation, &to)));
        prop_assert_eq!(one.verdict, other.verdict);
        prop_assert!(close(one.staying, other.staying) && close(one.best.unwrap_or_default(), other.best.unwrap_or_default()));
        let exact = |decision: &Decision| decision.found.as_ref().is_none_or(Found::is_exact);
        if exact(&one) && exact(&other) {
            prop_assert!(close(one.chosen, other.chosen), "{} {}", one.chosen, other.chosen);
            let moved = |decision: &Decision| decision.found.as_ref().map(|found| found.moved_bytes);
            prop_assert_eq!(moved(&one), moved(&other));
        }
    }

    /// Rates that wander by up to a half, and another machine between: what earlier searches left
    /// changes no verdict.
    #[test]
    fn earlier_searches_change_nothing(situation in situations(), other in situations(), factors in prop::collection::vec(0.5_f64..1.5, 6)) {
        let mut searches = SearchCache::new();
        for (step, factor) in factors.iter().enumerate() {
            let mut now = situation.clone();
            if let Some(traffic) = &mut now.apps[0].traffic_per_s {
                *traffic = traffic.map(|rate| rate * factor);
            }
            if step == 3 {
                let _ = decide(&other, &Preset::PUBLISHED, 0.3, &mut searches);
            }
            let (with, without) = (decide(&now, &Preset::PUBLISHED, 0.3, &mut searches), run(&now));
            // A refused placement may be kept although another one, cheaper or dearer, became
            // better meanwhile.
            if with.verdict != Verdict::OverBudget && without.verdict != Verdict::OverBudget {
                prop_assert_eq!(with.verdict, without.verdict);
                prop_assert_eq!(with.moves().collect::<Vec<_>>(), without.moves().collect::<Vec<_>>());
            }
        }
    }
}
