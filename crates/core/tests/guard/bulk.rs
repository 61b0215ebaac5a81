//! Moves of all memory of a process: nodes, budgets, room and the freeze.

use super::check;
use super::scene::{Stage, bulk, move_pages};
use expect_test::expect;
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::{Action, Bytes, Nanos, NodeSet};

#[test]
fn bulk_migration_locks_the_process_and_makes_room_for_itself() {
    let mut stage = Stage::new();
    stage.model.apps[0].memory = Some(vec![Bytes(3 << 30), Bytes(2 << 30), Bytes(0), Bytes(0)]);
    stage.set_free(&[1 << 30, 2 << 30, 1 << 30, 8 << 30]);
    check(
        &mut stage,
        vec![
            move_pages(1, &[(0x1000, 0, 1)]),
            bulk(1, &[(0, 1), (1, 0)], true),
            bulk(2, &[(0, 0)], false),
            bulk(3, &[(0, 1), (0, 2)], false),
        ],
        expect![[r#"
            admit move 5.0 GiB of 1: 0→1 1→0
            refuse move 1 page of 1 (co-location): 1 × 0→1: another action has the process
            refuse move 5.0 GiB of 2: 0→0: no such CPU or node, or nothing to do
            refuse move 5.0 GiB of 3: 0→1 0→2: no such CPU or node, or nothing to do
        "#]],
    );
    // 5 GiB at 256 MiB/s: both nodes are in debt for 20 s and everything else waits.
    stage.model.at += Nanos::from_secs(10);
    check(
        &mut stage,
        vec![move_pages(2, &[(0x1000, 0, 1), (0x2000, 2, 3)])],
        expect![[r#"
            admit move 1 page of 2 (co-location): 1 × 2→3
            refuse move 1 page of 2 (co-location): 1 × 0→1: budget of node 0: 0 B left
        "#]],
    );
    let mut full = Stage::new();
    full.model.apps[0].memory = Some(vec![Bytes(3 << 30), Bytes(0), Bytes(0), Bytes(0)]);
    full.set_free(&[1 << 30, 1 << 30, 1 << 30, 1 << 30]);
    check(
        &mut full,
        vec![bulk(1, &[(0, 1)], false)],
        expect![[r#"
            refuse move 5.0 GiB of 1: 0→1: node 1 has 696.3 MiB free
        "#]],
    );
}

#[test]
fn a_node_has_room_for_the_memory_of_all_sources_or_takes_none() {
    let mut stage = Stage::new();
    stage.model.apps[0].memory = Some(vec![Bytes(3 << 30), Bytes(0), Bytes(3 << 30), Bytes(0)]);
    stage.set_free(&[1 << 30, 5 << 30, 1 << 30, 1 << 30]);
    check(
        &mut stage,
        vec![bulk(1, &[(0, 1), (2, 1)], false), bulk(1, &[(0, 1)], false)],
        expect![[r#"
            admit move 5.0 GiB of 1: 0→1
            refuse move 5.0 GiB of 1: 0→1 2→1: node 1 has 4.7 GiB free
        "#]],
    );
}

/// Of the 480 MiB, the guard keeps 328.
#[test]
fn two_processes_do_not_fill_the_room_of_one() {
    let mut stage = Stage::new();
    for app in &mut stage.model.apps[..2] {
        app.memory = Some(vec![Bytes(100 << 20), Bytes(0), Bytes(0), Bytes(0)]);
    }
    stage.set_free(&[1 << 30, 480 << 20, 1 << 30, 1 << 30]);
    check(
        &mut stage,
        vec![bulk(1, &[(0, 1)], false), bulk(2, &[(0, 1)], false)],
        expect![[r#"
            admit move 5.0 GiB of 1: 0→1
            refuse move 5.0 GiB of 2: 0→1: node 1 has 52.3 MiB free
        "#]],
    );
}

#[test]
fn memory_goes_only_between_nodes_that_there_are_and_to_those_allowed() {
    let mut stage = Stage::new();
    stage.model.apps[0].allowed_nodes = Some(NodeSet::first(2));
    check(
        &mut stage,
        vec![
            bulk(1, &[(2, 1)], false),
            bulk(1, &[(0, 2)], false),
            bulk(2, &[], false),
            bulk(2, &[(4, 0)], false),
            bulk(2, &[(0, 4)], false),
        ],
        expect![[r#"
            admit move 5.0 GiB of 1: 2→1
            refuse move 5.0 GiB of 1: 0→2: node 2 is not allowed to the process
            refuse move 5.0 GiB of 2:: no such CPU or node, or nothing to do
            refuse move 5.0 GiB of 2: 4→0: no such CPU or node, or nothing to do
            refuse move 5.0 GiB of 2: 0→4: no such CPU or node, or nothing to do
        "#]],
    );
}

#[test]
fn a_node_in_debt_or_without_room_takes_and_sends_no_memory() {
    // Bytes of process 1 on node 0, bytes free on node 1, and what process 2 did before.
    let told = |resident: u64, free: u64, spent: &[(usize, usize)]| {
        let mut stage = Stage::new();
        stage.model.apps[0].memory = Some(vec![Bytes(resident), Bytes(0), Bytes(0), Bytes(0)]);
        stage.model.apps[1].memory = Some(vec![Bytes(1 << 30); 4]);
        stage.set_free(&[8 << 30, free, 8 << 30, 8 << 30]);
        if !spent.is_empty() {
            assert!(stage.admit(vec![bulk(2, spent, false)]).starts_with("admit"));
        }
        stage.admit(vec![bulk(1, &[(0, 1)], false)])
    };
    let reserve = (16 << 30) / 50;
    assert!(told(1 << 20, reserve + (1 << 20), &[]).starts_with("admit"), "all that is free");
    assert!(told((1 << 20) + 1, reserve + (1 << 20), &[]).ends_with("node 1 has 1.0 MiB free\n"));
    for (spent, expected) in [
        ((0, 2), "budget of node 0: 0 B left\n"),
        ((2, 1), "budget of node 1: 0 B left\n"),
        ((2, 3), "admit move 5.0 GiB of 1: 0→1\n"),
    ] {
        let told = told(1 << 20, 8 << 30, &[spent]);
        assert!(told.ends_with(expected), "{told}");
    }
}

#[test]
fn a_process_is_frozen_only_where_its_user_allows_it_and_a_policy_asks() {
    let frozen = |allowed: bool, asked: bool| {
        let mut stage = Stage::with(GuardSettings { freeze: allowed, ..GuardSettings::acting() });
        let steps = stage.plan(vec![bulk(1, &[(0, 1)], asked)]).steps;
        matches!(steps[0].action, Action::MoveProcessMemory { freeze: true, .. })
    };
    assert_eq!([frozen(true, true), frozen(true, false)], [true, false]);
    assert_eq!([frozen(false, true), frozen(false, false)], [false, false]);
}
