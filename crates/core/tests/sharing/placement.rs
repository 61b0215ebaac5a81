//! Where groups go and what they may not cost.

use crate::notation::decide;
use expect_test::{Expect, expect};
use rondpoint_core::policy::sharing::Preset;

fn check(text: &str, expected: Expect) {
    check_with(&Preset::KAMALI, text, expected);
}

fn check_with(preset: &Preset, text: &str, expected: Expect) {
    expected.assert_eq(&decide(preset, text));
}

#[test]
fn sharers_go_where_most_of_their_accesses_are_served() {
    check(
        "cores 4 4\n 0 on 0 data=1,9\n 1 on 0 data=3,4\n 2 on 1\n share 0-1:7 1-2:5",
        expect![[r#"
        0 0→1 joins a group of 3 (weakest 5)
        1 0→1 joins a group of 3 (weakest 5)
    "#]],
    );
}

#[test]
fn without_samples_of_data_they_go_where_most_of_them_are() {
    check(
        "cores 4 4\n 0 on 0\n 1 on 1\n 2 on 1\n share 0-1:7 1-2:5",
        expect![[r#"
        0 0→1 joins a group of 3 (weakest 5)
    "#]],
    );
}

#[test]
fn threads_that_share_nothing_stay() {
    check(
        "cores 4 4\n 0 on 0 data=0,9\n 1 on 1 data=9,0",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn two_groups_on_full_nodes_change_places_with_others() {
    check(
        "cores 2 2
        0 on 0
        1 on 1
        2 on 0 data=9,0
        3 on 1 data=9,0
        share 0-1:9",
        expect![[r#"
            1 1→0 joins a group of 2 (weakest 9)
            2 0→1 makes room
        "#]],
    );
}

#[test]
fn a_group_that_would_saturate_memory_is_split_where_it_shares_least() {
    let text = "cores 4 4
        0 on 0 mem=0.3
        1 on 1 mem=0.3
        2 on 0 mem=0.3
        3 on 1 mem=0.3
        share 0-1:20 1-2:6 2-3:15";
    check(
        text,
        expect![[r#"
        1 1→0 joins a group of 2 (weakest 20)
        2 0→1 joins a group of 2 (weakest 15)
    "#]],
    );
    check_with(
        &Preset::TAM,
        text,
        expect![[r#"
        1 1→0 joins a group of 4 (weakest 6)
        3 1→0 joins a group of 4 (weakest 6)
    "#]],
    );
}

#[test]
fn a_group_larger_than_a_node_is_split_or_skipped() {
    let text = "cores 2 2
        0 on 0
        1 on 1
        2 on 1
        3 on 0
        share 0-1:20 1-2:6 2-3:15";
    check(
        text,
        expect![[r#"
        1 1→0 joins a group of 2 (weakest 20)
        3 0→1 joins a group of 2 (weakest 15)
    "#]],
    );
    check_with(
        &Preset::AUTHOR,
        text,
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn the_balance_of_the_load_is_never_given_up() {
    // Both nodes are full with threads that may not leave; the two sharers stay apart.
    check(
        "cores 2 2
        0 on 0
        1 on 1
        2 on 0 fixed
        3 on 1 only=1
        share 0-1:9",
        expect![[r#"
            nothing
        "#]],
    );
}

#[test]
fn sleeping_threads_need_no_core() {
    check(
        "cores 2 2\n 0 on 0\n 1 on 1\n 2 on 0 load=0\n 3 on 0 load=0\n share 0-1:9",
        expect![[r#"
        1 1→0 joins a group of 2 (weakest 9)
    "#]],
    );
}

#[test]
fn a_thread_that_may_not_go_keeps_the_group_where_it_may() {
    check(
        "cores 4 4\n 0 on 0 only=0 data=0,9\n 1 on 1 data=0,9\n share 0-1:9",
        expect![[r#"
        1 1→0 joins a group of 2 (weakest 9)
    "#]],
    );
}

#[test]
fn nodes_without_cores_hold_no_group() {
    check(
        "cores 2 2 0\n 0 on 0 data=0,1,9\n 1 on 1 data=0,1,9\n share 0-1:9",
        expect![[r#"
        0 0→1 joins a group of 2 (weakest 9)
    "#]],
    );
}

#[test]
fn threads_that_make_room_take_their_memory_with_them() {
    // Thread 1 does not fit beside twelve small ones, by CPU time and by memory; with them gone it
    // does.
    let small = |index| format!("{index} on 1 load=0.09 mem=0.05\n");
    let crowd: String = (2..14).map(small).collect();
    let text =
        format!("cores 2 2\n 0 on 1 data=0,9 mem=0.2\n 1 on 0 mem=0.25\n {crowd} share 0-1:9");
    check(
        &text,
        expect![[r#"
        1 0→1 joins a group of 2 (weakest 9)
        2 1→0 makes room
        3 1→0 makes room
        4 1→0 makes room
        5 1→0 makes room
        6 1→0 makes room
        7 1→0 makes room
        8 1→0 makes room
        9 1→0 makes room
        10 1→0 makes room
        11 1→0 makes room
        12 1→0 makes room
        13 1→0 makes room
    "#]],
    );
}

#[test]
fn a_thread_that_sleeps_makes_no_core_free_and_stays() {
    // A main thread that waits for its workers comes first in the order, for it presses on nothing
    // and has no data.
    check(
        "cores 2 2\n 0 on 0 load=0.01\n 1 on 0 data=9,0\n 2 on 0\n 3 on 1\n share 1-3:9",
        expect![[r#"
        2 0→1 makes room
        3 1→0 joins a group of 2 (weakest 9)
    "#]],
    );
}

#[test]
fn threads_that_ask_for_more_than_a_node_bears_may_be_joined_where_exchanges_are_counted() {
    // Two threads fill buffers on one node, and each asks memory for more than a node bears. The
    // threads that read the buffers are elsewhere.
    let text = "cores 2 2\n 0 on 0 mem=1.2\n 1 on 0 mem=1.3\n 2 on 1 mem=0.1\n 3 on 1 mem=0.1\n
        share 0-2:9 1-3:9";
    check(
        text,
        expect![[r#"
        nothing
    "#]],
    );
    check_with(
        &Preset::EXCHANGING,
        text,
        expect![[r#"
            1 0→1 joins a group of 2 (weakest 9)
            2 1→0 joins a group of 2 (weakest 9)
        "#]],
    );
}

#[test]
fn memory_that_would_be_used_up_exactly_is_too_much() {
    check(
        "cores 4 4\n 0 on 0 mem=0.5\n 1 on 1 mem=0.5\n share 0-1:9",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        "cores 4 4\n 0 on 0 mem=0.5\n 1 on 1 mem=0.4\n share 0-1:9",
        expect![[r#"
        1 1→0 joins a group of 2 (weakest 9)
    "#]],
    );
}
