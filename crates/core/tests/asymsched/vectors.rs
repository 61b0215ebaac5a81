//! Golden decisions: ALGORITHMS 3.9 and the rules of 3.3 to 3.5, text in, text out.

use crate::notation::{decide_text, situation};
use expect_test::{Expect, expect};
use rondpoint_core::policy::asymsched::decision::{decide, weighted_bandwidth};
use rondpoint_core::policy::asymsched::search_cache::SearchCache;
use rondpoint_core::policy::asymsched::{Preset, Verdict};

const VECTOR: &str = "
    rates 0 3 1 1 / 3 0 1 1 / 1 1 0 7 / 1 1 7 0
    app 0,1 0>1:3e9 1>0:3e9 memory 1,1,0,0 ran 100
    app 2,3 2>3:5000 3>2:5000 memory 0,0,1,1 ran 100";

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&decide_text(text, &Preset::PUBLISHED));
}

/// All permutations of `0..count` in lexicographic order.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    let extend = |start: &Vec<usize>| {
        let next = (0..count).filter(|next| !start.contains(next));
        next.map(|next| [start.clone(), vec![next]].concat()).collect::<Vec<_>>()
    };
    (0..count).fold(vec![vec![]], |shorter, _| shorter.iter().flat_map(extend).collect())
}

#[test]
fn the_conformance_vector_swaps_the_two_applications() {
    check(
        VECTOR,
        expect![[r#"
            Move 0→2 1→3 2→0 3→1
            staying 264.035 chosen 370.472 best 370.472 exact
            app 0 2.0 GB 0.60 of 5.00 s
            app 1 2.0 GB 0.60 of 5.00 s
        "#]],
    );
}

#[test]
fn the_conformance_vector_has_the_published_weights_values_and_index() {
    let situation = situation(VECTOR);
    let decision = decide(&situation, &Preset::PUBLISHED, 0.3, &mut SearchCache::new());
    let weights: Vec<String> =
        decision.clusters.iter().map(|cluster| format!("{:.6}", cluster.weight)).collect();
    assert_eq!(weights, ["22.515025", "9.210340"]);
    let mut values: Vec<String> = Vec::new();
    let found = decision.found.expect("a placement was looked for");
    let mut index = None;
    for (place, permutation) in permutations(4).into_iter().enumerate() {
        let placement = permutation.into_iter().map(Some).collect();
        let value = weighted_bandwidth(&situation.bandwidth, &decision.clusters, &placement);
        values.push(format!("{value:.1}"));
        index = index.or((placement == found.placement).then_some(place));
    }
    assert_eq!(index, Some(16));
    let count = |value: &str| values.iter().filter(|other| *other == value).count();
    assert_eq!(count("264034917044.7"), 4, "staying");
    assert_eq!(count("370472396518.3"), 4, "the swap");
    assert_eq!(count("63450731356.3"), 16, "everything between");
    assert_eq!(format!("{:.1}", 0.9 * decision.best.expect("a search")), "333425156866.5");
}

#[test]
fn one_application_over_its_budget_blocks_all() {
    check(
        "rates 0 3 1 1 / 3 0 1 1 / 1 1 0 7 / 1 1 7 0
         app 0,1 0>1:3e9 1>0:3e9 memory 1,1,0,0 ran 100
         app 2,3 2>3:5000 3>2:5000 memory 0,0,1,1 ran 11.9",
        expect![[r#"
            OverBudget 0→2 1→3 2→0 3→1
            staying 264.035 chosen 370.472 best 370.472 exact
            app 0 2.0 GB 0.60 of 5.00 s
            app 1 2.0 GB 0.60 of 0.60 s
        "#]],
    );
}

/// Ten GB need 60 s of run time; memory that was migrated before counts.
#[test]
fn the_budget_is_a_rate_limit() {
    let run = |ran: &str| {
        let text = format!(
            "rates 0 1 9 / 1 0 1 / 9 1 0\n app 0,1 0>1:1e6 1>0:1e6 memory 0,10,0 ran {ran}"
        );
        decide_text(&text, &Preset::PUBLISHED).lines().next().expect("a verdict").to_string()
    };
    assert_eq!(run("59.9"), "OverBudget 1→2");
    assert_eq!(run("60.1"), "Move 1→2");
    assert_eq!(run("60.1 migrated 1"), "OverBudget 1→2");
    assert_eq!(run("81 migrated 1"), "Move 1→2");
}

#[test]
fn the_least_movement_within_the_slack_wins_over_the_most_bandwidth() {
    // {1,2} would have 10, {0,2} has 9.5 and leaves the heavy node 0 in place.
    check(
        "rates 0 1 4.75 / 1 0 5 / 4.75 5 0
         app 0,1 0>1:1e6 1>0:1e6 memory 8,1,0 ran 1000",
        expect![[r#"
            Move 1→2
            staying 29.017 chosen 137.832 best 145.087 exact
            app 0 1.0 GB 0.30 of 50.00 s
        "#]],
    );
}

#[test]
fn within_ten_percent_of_the_best_nothing_moves() {
    check(
        "rates 0 9 10 / 9 0 1 / 10 1 0
         app 0,1 0>1:1e6 1>0:1e6 memory 8,1,0 ran 1000",
        expect![[r#"
            Stay
            staying 261.156 chosen 261.156 best 290.173 exact
        "#]],
    );
}

#[test]
fn applications_on_one_node_are_glued() {
    // The second application's thread on node 1 goes where the first one's goes, and pays for its
    // own memory.
    check(
        "rates 0 1 9 / 1 0 1 / 9 1 0
         app 0,1 0>1:1e6 1>0:1e6 memory 1,1,0 ran 1000
         app 1 1>0:1e6 memory 5,2,0 ran 1000",
        expect![[r#"
            Move 1→2
            staying 29.017 chosen 261.156 best 261.156 exact
            app 0 1.0 GB 0.30 of 50.00 s
            app 1 2.0 GB 0.60 of 50.00 s
        "#]],
    );
}

#[test]
fn an_unclustered_application_makes_room() {
    check(
        "rates 0 1 9 / 1 0 1 / 9 1 0
         app 0,1 0>1:1e6 1>0:1e6 memory 1,1,0 ran 1000
         app 2 memory 0,0,1 ran 1000",
        expect![[r#"
            Move 1→2 2→1
            staying 29.017 chosen 261.156 best 261.156 exact
            app 0 1.0 GB 0.30 of 50.00 s
            app 1 1.0 GB 0.30 of 50.00 s
        "#]],
    );
}

#[test]
fn a_symmetric_machine_and_a_single_node_have_nothing_to_decide() {
    check(
        "rates 0 5 5.4 / 5 0 5 / 5.4 5 0\n app 0,1 0>1:1e6 1>0:1e6 memory 1,1 ran 1000",
        expect!["Symmetric\n"],
    );
    check(
        "rates 0 1 9 / 1 0 1 / 9 1 0\n app 0 0>1:1e6 memory 1,1 ran 1000",
        expect!["NoCluster\n"],
    );
    check(
        "rates 0 1 9 / 1 0 1 / 9 1 0\n app 0,1 0>1:0.4 memory 1,1 ran 1000",
        expect!["NoCluster\n"],
    );
}

#[test]
fn equal_weights_serve_the_light_cluster_as_well_as_the_heavy_one() {
    let text = "rates 0 3 1 1 / 3 0 1 1 / 1 1 0 7 / 1 1 7 0
                app 0,1 0>1:3e9 1>0:3e9 memory 1,1,0,0 ran 100
                app 2,3 2>3:5000 3>2:5000 memory 0,0,1,1 ran 100";
    assert!(decide_text(text, &Preset::EQUAL_WEIGHTS).starts_with("Stay\nstaying 20.000"));
}

/// While the numbers hardly change, the last search proves that staying is right; when they do, a
/// new one finds what to do.
#[test]
fn a_steady_machine_is_not_searched_again() {
    let mut searches = SearchCache::new();
    let mut step = |heavy: &str, light: &str| {
        let text = format!(
            "rates 0 7 1 1 / 7 0 1 1 / 1 1 0 3 / 1 1 3 0
             app 0,1 0>1:{heavy} memory 1,1,0,0 ran 1000
             app 2,3 2>3:{light} memory 0,0,1,1 ran 1000"
        );
        let decision = decide(&situation(&text), &Preset::PUBLISHED, 0.3, &mut searches);
        format!("{:?} searched {}", decision.verdict, decision.found.is_some())
    };
    assert_eq!(step("3e9", "5000"), "Stay searched true");
    assert_eq!(step("4e9", "5100"), "Stay searched false");
    assert_eq!(step("5000", "3e9"), "Move searched true");
}

/// A placement over budget is not searched for again at each decision, but judged again.
#[test]
fn a_refused_placement_is_judged_again_and_taken_when_affordable() {
    let mut searches = SearchCache::new();
    let mut verdicts = String::new();
    for second in 50..64 {
        let text = format!(
            "rates 0 1 9 / 1 0 1 / 9 1 0\n app 0,1 0>1:1e6 1>0:1e6 memory 0,10,0 ran {second}.5"
        );
        let decision = decide(&situation(&text), &Preset::PUBLISHED, 0.3, &mut searches);
        verdicts += if decision.verdict == Verdict::Move { "M" } else { "-" };
    }
    assert_eq!(verdicts, "----------MMMM");
}
