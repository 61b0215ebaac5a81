//! From a model to proposals: the candidates, when the policy runs, and what it says.

use expect_test::{Expect, expect};
use rondpoint_core::model::{App, Model, Thread};
use rondpoint_core::policy::nmass::{NMass, Preset, Profile, ProfilePoint};
use rondpoint_core::topology::{PenaltyLine, Topology, synthetic};
use rondpoint_core::{Bytes, Nanos, Pid, Policy, Random, Tid};
use std::fmt::Write;

/// One line a process: `pid cpu mpki home [ipc]`; a second thread is `+` after it. One epoch a
/// call.
fn model(topology: &Topology, second: u64, text: &str) -> Model {
    let mut model = Model::empty(topology.node_count());
    model.at = Nanos::from_secs(second);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |place: usize| words[place].parse::<f64>().expect("a number");
        let first = model.threads.len();
        for extra in 0..=usize::from(words.contains(&"+")) {
            let tid = Tid(number(0) as u32 + extra as u32);
            let mut thread =
                Thread::new(tid, model.apps.len(), number(1) as usize, topology.all_cpus());
            thread.rates.mpki = Some(number(2));
            thread.rates.ipc = words.get(4).and_then(|ipc| ipc.parse().ok());
            thread.rates.instructions_per_s = Some(1e9);
            model.threads.push(thread);
        }
        let mut app = App::new(Pid(number(0) as u32), first..model.threads.len());
        let home = number(3) as usize;
        app.memory = Some(
            (0..topology.node_count())
                .map(|node| Bytes::from_gib(u64::from(node == home)))
                .collect(),
        );
        model.apps.push(app);
    }
    model.check(topology).expect("a model without contradictions");
    model
}

fn decide(policy: &mut NMass, topology: &Topology, second: u64, text: &str) -> String {
    let proposals = policy.propose(&model(topology, second, text), topology, &mut Random::new(0));
    let mut out = String::new();
    for proposal in proposals {
        writeln!(out, "{}: {}", proposal.action, proposal.reason).expect("strings take text");
    }
    out
}

fn check(machine: &str, text: &str, expected: Expect) {
    let topology = synthetic::parse(machine).expect("a machine");
    expected.assert_eq(&decide(&mut NMass::new(Preset::PUBLISHED), &topology, 1, text));
}

#[test]
fn the_penalty_follows_the_line_that_was_found_on_the_machine() {
    let mut description =
        synthetic::parse("node:2 core:1").expect("a machine").description().clone();
    let line = PenaltyLine { intercept: 1.0, slope_per_mpki: 0.04, most: 1.75 };
    description.calibrated.penalty = Some(line);
    let topology = Topology::new(description).expect("fits");
    let mut policy = NMass::new(Preset::PUBLISHED);
    expect![[r#"
        thread 1 of 1 to CPU 0, then CPUs 0: 10.0 MPKI, penalty 1.40 (regression), home 0, 1→0: a core at home is free
    "#]]
    .assert_eq(&decide(&mut policy, &topology, 1, "1 1 10 0"));
}

#[test]
fn heavy_processes_leave_a_crowded_cache() {
    check(
        "node:2 core:4",
        "1 0 30 0
         2 1 22 0
         3 2 18 0
         4 3 25 0",
        expect![[r#"
            thread 2 of 2 to CPU 5, then CPUs 4-7: 22.0 MPKI, penalty 1.38 (regression), home 0, 0→1: pressures 77.0/23.8 become 55.0/54.1 MPKI, limit 60.0
            thread 3 of 3 to CPU 4, then CPUs 4-7: 18.0 MPKI, penalty 1.32 (regression), home 0, 0→1: pressures 95.0/0.0 become 77.0/23.8 MPKI, limit 60.0
        "#]],
    );
}

#[test]
fn a_process_away_from_home_comes_back_when_a_core_is_free() {
    check(
        "node:2 core:4",
        "1 5 10 0\n 2 4 10 1",
        expect![[r#"
        thread 1 of 1 to CPU 0, then CPUs 0-3: 10.0 MPKI, penalty 1.20 (regression), home 0, 1→0: a core at home is free
    "#]],
    );
}

#[test]
fn nothing_moves_when_everyone_is_at_home_and_caches_are_even() {
    check("node:2 core:4", "1 0 10 0\n 2 4 10 1", expect![]);
}

#[test]
fn processes_with_threads_are_not_candidates_and_keep_their_cores() {
    check(
        "node:2 core:2",
        "1 0 10 0 +\n 3 2 10 0\n 4 3 12 0",
        expect![[r#"
        thread 4 of 4 to CPU 1, then CPUs 0-1: 12.0 MPKI, penalty 1.23 (regression), home 0, 1→0: a core at home is free
    "#]],
    );
}

#[test]
fn it_runs_again_only_on_a_change_of_more_than_a_fifth() {
    let topology = synthetic::parse("node:2 core:4").expect("a machine");
    let mut policy = NMass::new(Preset::PUBLISHED);
    let mut run = |second, text: &str| decide(&mut policy, &topology, second, text).lines().count();
    assert_eq!(run(1, "1 0 10 0\n 2 1 10 0"), 1, "both started");
    assert_eq!(run(2, "1 0 11 0\n 2 4 10 0"), 0, "10 % is no change");
    assert_eq!(run(3, "1 0 30 0\n 2 4 10 0"), 0, "a change, but it is best so");
    assert_eq!(run(4, "1 0 30 0\n 2 1 10 0"), 1, "Linux took it back");
    assert_eq!(run(4, "1 0 90 0\n 2 1 10 0"), 0, "the epoch is not over");
}

#[test]
fn a_cache_that_one_fills_alone_without_a_miss_is_not_taken_for_empty() {
    let topology = synthetic::parse("node:2 core:4").expect("a machine");
    let second = |preset| {
        let mut policy = NMass::new(preset);
        let first = "1 0 42 0\n 2 1 42 0\n 3 2 28 0\n 4 3 22 0";
        assert_eq!(decide(&mut policy, &topology, 1, first).lines().count(), 1, "one goes");
        decide(&mut policy, &topology, 2, "1 0 39 0\n 2 1 39 0\n 3 2 28 0\n 4 4 0.7 0")
    };
    expect![[r#"
        thread 3 of 3 to CPU 5, then CPUs 4-7: 28.0 MPKI, penalty 1.47 (regression), home 0, 0→1: pressures 106.0/0.7 become 78.0/41.9 MPKI, limit 60.0
    "#]].assert_eq(&second(Preset::PUBLISHED));
    expect![""].assert_eq(&second(Preset::STEADY));
}

#[test]
fn the_penalty_is_measured_once_both_sides_were_seen() {
    let topology = synthetic::parse("node:2 core:1").expect("a machine");
    let mut policy = NMass::new(Preset::PUBLISHED);
    decide(&mut policy, &topology, 1, "1 0 20 0 1.0\n 2 1 10 1 1.0");
    // It ran on node 1 for an epoch, at 0.8 of its local speed; now its core at home is free.
    let text = decide(&mut policy, &topology, 2, "1 1 20 0 0.8");
    expect![[r#"
        thread 1 of 1 to CPU 0, then CPUs 0: 20.0 MPKI, penalty 1.25 (both sides seen), home 0, 1→0: a core at home is free
    "#]].assert_eq(&text);
}

#[test]
fn a_profile_tells_the_penalty_by_retired_instructions() {
    let topology = synthetic::parse("node:2 core:1").expect("a machine");
    let mut policy = NMass::new(Preset::PUBLISHED);
    let point = |instructions, penalty| ProfilePoint { instructions, mpki: 20.0, penalty };
    policy.set_profile(Pid(1), Profile::new(vec![point(0, 1.2), point(2_000_000_000, 1.4)]));
    expect![[r#"
        thread 1 of 1 to CPU 0, then CPUs 0: 20.0 MPKI, penalty 1.20 (profile), home 0, 1→0: a core at home is free
    "#]].assert_eq(&decide(&mut policy, &topology, 1, "1 1 20 0"));
    expect![[r#"
        thread 1 of 1 to CPU 0, then CPUs 0: 20.0 MPKI, penalty 1.40 (profile), home 0, 1→0: a core at home is free
    "#]].assert_eq(&decide(&mut policy, &topology, 2, "1 1 20 0"));
}

#[test]
fn clear_samples_tell_the_home_and_pages_where_they_do_not() {
    let topology = synthetic::parse("node:2 core:4").expect("a machine");
    let moved = |accesses: [u32; 2], memory: Option<[u64; 2]>| {
        let mut model = model(&topology, 1, "1 5 10 0");
        model.threads[0].accesses_by_node = Some(accesses.into());
        model.apps[0].memory = memory.map(|gib| gib.map(Bytes::from_gib).into());
        NMass::new(Preset::PUBLISHED).propose(&model, &topology, &mut Random::new(0)).len()
    };
    assert_eq!(moved([18, 2], None), 1, "home is node 0, it runs on node 1");
    assert_eq!(moved([2, 18], None), 0);
    assert_eq!(moved([6, 5], None), 0, "chance");
    assert_eq!(
        moved([18, 2], Some([1, 2])),
        1,
        "the pages of its program are where they were read"
    );
    assert_eq!(moved([5, 6], Some([2, 1])), 1, "pages say more than chance");
    assert_eq!(moved([6, 5], Some([1, 1])), 0, "half is no home");
}

#[test]
fn a_process_that_hardly_runs_needs_no_core() {
    let topology = synthetic::parse("node:2 core:1").expect("a machine");
    let moved = |share| {
        let mut model = model(&topology, 1, "1 0 30 0\n 2 1 20 0");
        model.threads[0].cpu_share = share;
        NMass::new(Preset::PUBLISHED).propose(&model, &topology, &mut Random::new(0)).len()
    };
    assert_eq!((moved(1.0), moved(0.1), moved(0.09)), (0, 0, 1));
}

#[cfg(feature = "serde")]
#[test]
fn reasons_are_data() {
    let topology = synthetic::parse("node:2 core:4").expect("a machine");
    let model = model(&topology, 1, "1 5 10 0\n 2 4 10 1");
    let proposals = NMass::new(Preset::PUBLISHED).propose(&model, &topology, &mut Random::new(0));
    expect![[r#"
        [
          {
            "policy": "nmass",
            "action": "set-affinity",
            "pid": 1,
            "tid": 1,
            "cpus": [
              0,
              1,
              2,
              3
            ],
            "via": 0,
            "reason": {
              "reason": "nmass",
              "mpki": 10.0,
              "penalty": {
                "value": 1.2,
                "source": "regression"
              },
              "home": 0,
              "from": 1,
              "to": 0,
              "cause": "home",
              "threshold_mpki": 60.0,
              "due": {
                "started": 1
              }
            }
          }
        ]"#]]
    .assert_eq(&serde_json::to_string_pretty(&proposals).expect("plain data"));
}
