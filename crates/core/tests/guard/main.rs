//! The guard: each refusal by a test that fails without it; text out.

mod bulk;
mod pages;
mod properties;
mod scene;

use expect_test::{Expect, expect};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::observation::Exemption;
use rondpoint_core::plan::{Kind, Mechanism, Undo};
use rondpoint_core::policy::sam::Phase;
use rondpoint_core::{Action, Bytes, Nanos, Reason};
use scene::{Stage, affinity, bulk, exchange, move_pages, placement, replicate, sampling, staying};

fn check(stage: &mut Stage, proposals: Vec<rondpoint_core::Proposal>, expected: Expect) {
    expected.assert_eq(&stage.admit(proposals));
}

#[test]
fn nothing_is_done_before_somebody_allows_it() {
    let mut stage = Stage::with(GuardSettings::default());
    check(
        &mut stage,
        vec![move_pages(1, &[(0x1000, 0, 1)]), affinity(1, 1, "0-3"), sampling(1, 65_000)],
        expect![[r#"
            admit sample 1: every 1150000 cycles, 30000 pages tracked
            refuse move 1 page of 1 (co-location): 1 × 0→1: only observing
            refuse thread 1 of 1 to CPUs 0-3: only observing
        "#]],
    );
}

#[test]
fn low_confidence_gives_an_empty_plan() {
    let mut stage = Stage::new();
    stage.model.sensing.confidence = 0.3;
    check(
        &mut stage,
        vec![move_pages(1, &[(0x1000, 0, 1)])],
        expect![[r#"
            refuse move 1 page of 1 (co-location): 1 × 0→1: confidence 0.30, 0.50 needed
        "#]],
    );
    stage.model.sensing.confidence = stage.guard.settings().min_confidence;
    assert!(stage.admit(vec![move_pages(1, &[(0x1000, 0, 1)])]).starts_with("admit"));
}

#[test]
fn exempt_unknown_and_opted_out_processes_are_not_touched() {
    let mut stage = Stage::with(GuardSettings {
        opted_out: [2].into_iter().collect(),
        ..GuardSettings::acting()
    });
    stage.model.apps[0].exempt = Some(Exemption::OwnMemoryPolicy);
    check(
        &mut stage,
        vec![
            move_pages(1, &[(0x1000, 0, 1)]),
            move_pages(2, &[(0x1000, 0, 1)]),
            move_pages(9, &[(0x1000, 0, 1)]),
            affinity(3, 31, "0"),
            affinity(3, 99, "0"),
            affinity(3, 30, "0"),
        ],
        expect![[r#"
            admit thread 30 of 3 to CPUs 0
            refuse move 1 page of 1 (co-location): 1 × 0→1: not to be touched: it has a memory policy of its own
            refuse move 1 page of 2 (co-location): 1 × 0→1: not to be touched: the user said so
            refuse move 1 page of 9 (co-location): 1 × 0→1: no such process or thread
            refuse thread 31 of 3 to CPUs 0: not to be touched: it is a real-time task
            refuse thread 99 of 3 to CPUs 0: no such process or thread
        "#]],
    );
}

#[test]
fn a_mask_is_cut_to_what_the_thread_may_use() {
    let mut stage = Stage::new();
    stage.model.threads[0].allowed = (0..6).collect();
    stage.isolate(5);
    check(
        &mut stage,
        vec![affinity(1, 10, "4-7"), affinity(1, 11, "99"), affinity(2, 20, "5")],
        expect![[r#"
            admit thread 10 of 1 to CPUs 4
            refuse thread 11 of 1 to CPUs 99: no CPU of the mask is allowed to the thread
            refuse thread 20 of 2 to CPUs 5: no CPU of the mask is allowed to the thread
        "#]],
    );
    check(
        &mut stage,
        vec![affinity(1, 10, "4,6")],
        expect![[r#"
            refuse thread 10 of 1 to CPUs 4,6: it is so already
        "#]],
    );
}

#[test]
fn a_cpu_that_the_machine_does_not_have_is_given_to_nobody() {
    let mut stage = Stage::new();
    stage.model.threads[0].allowed = (0..20).collect();
    let told = stage.admit(vec![affinity(1, 10, "16-19"), affinity(1, 10, "15-19")]);
    assert!(told.starts_with("admit thread 10 of 1 to CPUs 15\n"), "{told}");
    assert!(told.ends_with("no CPU of the mask is allowed to the thread\n"), "{told}");
}

#[test]
fn a_thread_stays_where_it_was_put_and_does_not_go_back_and_forth() {
    let mut stage = Stage::new();
    let mut at = |millis: u64, cpus: &str| {
        stage.model.at = Nanos::from_secs(100) + Nanos::from_millis(millis);
        stage.admit(vec![affinity(1, 10, cpus)])
    };
    assert_eq!(at(0, "0-3"), "admit thread 10 of 1 to CPUs 0-3\n");
    assert_eq!(
        at(300, "4-7"),
        "refuse thread 10 of 1 to CPUs 4-7: moved recently: stays 200.0 ms more\n"
    );
    assert_eq!(at(500, "4-7"), "admit thread 10 of 1 to CPUs 4-7\n");
    assert_eq!(at(1000, "0-3"), "admit thread 10 of 1 to CPUs 0-3\n");
    assert_eq!(at(9000, "4-7"), "refuse thread 10 of 1 to CPUs 4-7: moved 3 times in the window\n");
    assert_eq!(at(30_000, "4-7"), "admit thread 10 of 1 to CPUs 4-7\n");
}

#[test]
fn sharers_come_together_before_their_residence_is_over() {
    let mut stage = Stage::new();
    assert!(stage.admit(vec![affinity(1, 10, "0-3")]).starts_with("admit"));
    assert!(stage.admit(vec![affinity(1, 10, "4-7")]).starts_with("refuse"));
    assert!(stage.admit(vec![exchange(1, 10, "4-7", Phase::Remote, None)]).starts_with("refuse"));
    assert!(stage.admit(vec![exchange(1, 10, "4-7", Phase::Coherence, None)]).starts_with("admit"));
}

#[test]
fn threads_that_change_places_both_move_or_neither() {
    let pair = || {
        vec![
            exchange(1, 10, "4-7", Phase::Remote, None),
            exchange(2, 20, "0-3", Phase::Remote, Some(10)),
        ]
    };
    check(
        &mut Stage::new(),
        pair(),
        expect![[r#"
            admit thread 10 of 1 to CPUs 4-7
            admit thread 20 of 2 to CPUs 0-3
        "#]],
    );
    let mut stage = Stage::new();
    stage.model.threads[2].allowed = (8..12).collect();
    check(
        &mut stage,
        pair(),
        expect![[r#"
            refuse thread 10 of 1 to CPUs 4-7: a thread that should move with it stays
            refuse thread 20 of 2 to CPUs 0-3: no CPU of the mask is allowed to the thread
        "#]],
    );
    let mut stage = Stage::new();
    stage.model.apps[0].exempt = Some(Exemption::OtherManager);
    check(
        &mut stage,
        pair().into_iter().rev().collect(),
        expect![[r#"
            refuse thread 20 of 2 to CPUs 0-3: a thread that should move with it stays
            refuse thread 10 of 1 to CPUs 4-7: not to be touched: it is in a cpuset of another manager
        "#]],
    );
    let mut poor = Stage::with(GuardSettings { calls_per_s: 1, ..GuardSettings::acting() });
    assert_eq!(poor.admit(pair()).matches("refuse").count(), 2);
}

#[test]
fn a_placement_is_done_whole_or_not_at_all() {
    let wanted = || vec![placement(1, 10, "4-7"), placement(1, 11, "4-7"), placement(2, 20, "0-3")];
    check(
        &mut Stage::new(),
        wanted(),
        expect![[r#"
            admit thread 10 of 1 to CPUs 4-7
            admit thread 11 of 1 to CPUs 4-7
            admit thread 20 of 2 to CPUs 0-3
        "#]],
    );
    let mut stage = Stage::new();
    stage.model.threads[1].exempt = Some(Exemption::OwnAffinity);
    check(
        &mut stage,
        wanted(),
        expect![[r#"
            refuse thread 10 of 1 to CPUs 4-7: a thread that should move with it stays
            refuse thread 11 of 1 to CPUs 4-7: not to be touched: it has chosen its CPUs itself
            refuse thread 20 of 2 to CPUs 0-3: a thread that should move with it stays
        "#]],
    );
    // More threads than calls a second: all at once, and then a pause.
    let mut poor = Stage::with(GuardSettings { calls_per_s: 2, ..GuardSettings::acting() });
    let told = poor.admit([wanted(), vec![affinity(3, 30, "4-7")]].concat());
    assert_eq!(told.matches("admit").count(), 3, "{told}");
    assert!(told.ends_with("thread 30 of 3 to CPUs 4-7: calls per second used up\n"), "{told}");
    assert!(poor.admit(vec![affinity(3, 30, "0-3")]).ends_with("calls per second used up\n"));
}

#[test]
fn a_placement_waits_if_a_thread_that_stays_may_not_be_pinned() {
    let mut stage = Stage::new();
    stage.model.threads[1].exempt = Some(Exemption::OwnAffinity);
    check(
        &mut stage,
        vec![placement(1, 10, "4-7"), staying(1, 11, "0-3")],
        expect![[r#"
            refuse thread 10 of 1 to CPUs 4-7: a thread that should move with it stays
            refuse thread 11 of 1 to CPUs 0-3: not to be touched: it has chosen its CPUs itself
        "#]],
    );
}

#[test]
fn one_step_moves_a_thread_or_page_once_and_the_first_policy_wins() {
    check(
        &mut Stage::new(),
        vec![
            affinity(1, 10, "0-3"),
            affinity(1, 10, "4-7"),
            move_pages(1, &[(0x1000, 0, 1)]),
            move_pages(1, &[(0x1000, 0, 2), (0x2000, 0, 2)]),
        ],
        expect![[r#"
            admit thread 10 of 1 to CPUs 0-3
            admit move 1 page of 1 (co-location): 1 × 0→1
            admit move 1 page of 1 (co-location): 1 × 0→2
            refuse thread 10 of 1 to CPUs 4-7: a policy of higher priority moved it
            refuse move 1 page of 1 (co-location): 1 × 0→2: a policy of higher priority moved it
        "#]],
    );
}

#[test]
fn copies_are_taken_back_in_the_step_in_which_all_memory_goes() {
    let mut stage = Stage::new();
    stage.model.apps[0].memory = Some(vec![Bytes(1 << 20), Bytes(0), Bytes(0), Bytes(0)]);
    let mut back = replicate(1, &[(0x1000, 0)]);
    let Action::Replicate { pid, pages } = back.action else { panic!("it replicates") };
    back.action = Action::Unreplicate { pid, pages };
    check(
        &mut stage,
        vec![back, bulk(1, &[(0, 1)], false), replicate(1, &[(0x2000, 0)])],
        expect![[r#"
            admit unreplicate 1 page of 1
            admit move 5.0 GiB of 1: 0→1
            refuse replicate 1 page of 1: another action has the process
        "#]],
    );
}

#[test]
fn copies_need_room_on_every_node_and_dropping_them_needs_none() {
    let mut stage = Stage::new();
    stage.set_free(&[0, 8 << 30, 8 << 30, 0]);
    let mut back = replicate(1, &[(0x3000, 0)]);
    let Action::Replicate { pid, pages } = back.action else { panic!("it replicates") };
    back.action = Action::Unreplicate { pid, pages };
    check(
        &mut stage,
        vec![replicate(1, &[(0x1000, 0)]), back],
        expect![[r#"
            admit unreplicate 1 page of 1
            refuse replicate 1 page of 1: node 3 has 0 B free
        "#]],
    );
    // The page itself lies on the full node and needs no copy there.
    stage.set_free(&[0, 8 << 30, 8 << 30, 8 << 30]);
    check(
        &mut stage,
        vec![replicate(1, &[(0x5000, 0)])],
        expect![[r#"
            admit replicate 1 page of 1
        "#]],
    );
}

#[test]
fn another_policy_waits_for_the_verdict_and_nobody_acts_unwatched() {
    let mut stage = Stage::new();
    stage.trials.insert(rondpoint_core::Pid(1), "sam");
    stage.unready.insert(rondpoint_core::Pid(2));
    check(
        &mut stage,
        vec![
            move_pages(1, &[(0x1000, 0, 1)]),
            move_pages(2, &[(0x1000, 0, 1)]),
            move_pages(3, &[(0x1000, 0, 1)]),
        ],
        expect![[r#"
            admit move 1 page of 3 (co-location): 1 × 0→1
            refuse move 1 page of 1 (co-location): 1 × 0→1: a trial is running
            refuse move 1 page of 2 (co-location): 1 × 0→1: not watched for long enough yet
        "#]],
    );
}

#[test]
fn what_was_undone_waits_longer_each_time_and_in_the_end_for_ever() {
    let mut stage = Stage::new();
    let kind = Kind::Pages(Mechanism::CoLocation);
    let mut at = |seconds: u64, fails: bool| {
        let now = Nanos::from_secs(100 + seconds);
        stage.model.at = now;
        if fails {
            stage.guard.note_failure(
                rondpoint_core::Pid(1),
                &[kind, Kind::Bulk, Kind::Affinity],
                now,
            );
        }
        stage.admit(vec![move_pages(1, &[(seconds << 12, 0, 1)]), affinity(1, 10, "0-3")])
    };
    assert!(at(0, true).contains("(co-location): 1 × 0→1: was undone, refused for 5.0 s\n"));
    assert!(at(5, false).starts_with("admit move"));
    assert!(at(6, true).contains("was undone, refused for 10.0 s\n"));
    assert!(at(15, false).contains("was undone, refused for 1.0 s\n"));
    assert!(at(16, false).starts_with("admit move"));
    let given_up = at(17, true);
    assert_eq!(given_up.matches("earlier trials made it slower").count(), 2, "{given_up}");
}

#[test]
fn a_later_process_of_the_same_number_does_not_inherit_failures() {
    let mut stage = Stage::new();
    let pid = rondpoint_core::Pid(3);
    let failed = |stage: &mut Stage| {
        (0..3).for_each(|_| stage.guard.note_failure(pid, &[Kind::Affinity], stage.model.at));
        stage.guard.forget_gone(|_| true);
        stage.guard.failures(pid)
    };
    assert_eq!(failed(&mut stage), 3, "it is there");
    stage.guard.forget_gone(|_| false);
    assert_eq!(stage.guard.failures(pid), 0);
    assert!(stage.admit(vec![affinity(3, 30, "0-3")]).starts_with("admit"));
}

#[test]
fn a_thread_that_chose_a_mask_since_is_not_undone() {
    let mut stage = Stage::new();
    let undo = |tid| {
        let mut proposal = affinity(1, tid, "0-15");
        proposal.reason = Reason::Undo(Undo { plan: 1, change: -0.2, noise: 0.1 });
        proposal
    };
    stage.model.threads[1].exempt = Some(Exemption::OwnAffinity);
    check(
        &mut stage,
        vec![undo(10), undo(11), undo(19)],
        expect![[r#"
            admit thread 10 of 1 to CPUs 0-15
            refuse thread 11 of 1 to CPUs 0-15: not to be touched: it has chosen its CPUs itself
            refuse thread 19 of 1 to CPUs 0-15: no such process or thread
        "#]],
    );
}

#[test]
fn movers_stop_when_they_used_their_share_of_the_run_time() {
    let mut stage = Stage::new();
    stage.model.apps[0].started = Nanos::from_secs(80); // 20 s of run time allow 1 s
    stage.model.apps[1].started = Nanos::from_secs(80);
    stage.spend(2, Nanos::from_secs(1));
    assert!(stage.admit(vec![move_pages(2, &[(0x1000, 0, 1)])]).starts_with("admit"));
    stage.spend(1, Nanos::from_millis(1_001));
    check(
        &mut stage,
        vec![move_pages(1, &[(0x1000, 0, 1)])],
        expect![[r#"
            refuse move 1 page of 1 (co-location): 1 × 0→1: movers spent 1.0 s, 1.0 s allowed
        "#]],
    );
    stage.model.at = Nanos::from_secs(101);
    assert!(stage.admit(vec![move_pages(1, &[(0x1000, 0, 1)])]).starts_with("admit"));
}

#[test]
fn calls_and_samples_have_a_budget() {
    let mut stage = Stage::with(GuardSettings { calls_per_s: 2, ..GuardSettings::acting() });
    check(
        &mut stage,
        vec![
            affinity(1, 10, "0"),
            affinity(1, 11, "0"),
            affinity(2, 20, "0"),
            sampling(1, 65_000),
            sampling(1, 260_000),
            sampling(2, 5_000_000),
        ],
        expect![[r#"
            admit thread 10 of 1 to CPUs 0
            admit thread 11 of 1 to CPUs 0
            admit sample 1: every 1150000 cycles, 30000 pages tracked
            admit sample 1: every 4600000 cycles, 30000 pages tracked
            admit sample 2: every 5000000 cycles, 30000 pages tracked
            refuse thread 20 of 2 to CPUs 0: calls per second used up
        "#]],
    );
}

#[test]
fn without_calls_left_nothing_moves_at_all() {
    let mut stage = Stage::with(GuardSettings { calls_per_s: 1, ..GuardSettings::acting() });
    stage.model.apps[1].memory = Some(vec![Bytes(1 << 20), Bytes(0), Bytes(0), Bytes(0)]);
    check(
        &mut stage,
        vec![affinity(1, 10, "0"), bulk(2, &[(0, 1)], false), move_pages(3, &[(0x1000, 0, 1)])],
        expect![[r#"
            admit thread 10 of 1 to CPUs 0
            refuse move 5.0 GiB of 2: 0→1: calls per second used up
            refuse move 1 page of 3 (co-location): 1 × 0→1: calls per second used up
        "#]],
    );
    for last in [bulk(2, &[(0, 1)], false), move_pages(3, &[(0x1000, 0, 1)])] {
        let mut stage = Stage::with(GuardSettings { calls_per_s: 1, ..GuardSettings::acting() });
        assert!(stage.admit(vec![last]).starts_with("admit"), "the last call is there to be used");
    }
}

#[test]
fn a_low_rate_stays_low_where_it_is_asked_for_first() {
    let first = |full| {
        let mut stage = Stage::new();
        stage.guard.expect_sampling(full);
        let full = stage.guard.full_sampling(&stage.topology);
        (stage.admit(vec![sampling(1, 260_000)]), full)
    };
    let admitted = |cycles| format!("admit sample 1: every {cycles} cycles, 30000 pages tracked\n");
    assert_eq!(first(Some(65_000)), (admitted(4_600_000), Some(1_150_000)));
    assert_eq!(
        first(None),
        (admitted(1_150_000), None),
        "no policy says that there is a higher one"
    );
}
