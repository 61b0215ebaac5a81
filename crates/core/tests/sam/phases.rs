//! Each phase on its own: destinations in their order, threads that are spared, the end of the
//! interval.

use crate::notation::Session;
use expect_test::{Expect, expect};
use rondpoint_core::policy::sam::Preset;

fn check(text: &str, expected: Expect) {
    check_with(Preset::SLIDES, text, expected);
}

fn check_with(preset: Preset, text: &str, expected: Expect) {
    expected.assert_eq(&Session::new(preset).step(text));
}

#[test]
fn a_quiet_machine_is_left_alone() {
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 coh=0.9 mem=0.9 rdr=0.9 | T2 snp\n 1: T3 mem | -",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn a_rate_at_its_threshold_is_no_problem_yet() {
    for preset in Preset::ALL {
        let text = "2 sockets 2 cores 1 thread\n 0: T1 coh=1 | T2 rdr=1\n 1: T3 mem=1 | T4 snp=1";
        assert_eq!(Session::new(preset).step(text), "nothing\n");
    }
    // The sum of a socket decides, then each thread's own rate: the limit of these sockets is 10
    // M/s, of a thread 3.75 M/s.
    check(
        "2 sockets 4 cores 1 thread\n 0: T1 mem=1 | T2 mem=1 | T3 mem=1\n 1: - | -",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        "2 sockets 4 cores 1 thread\n 0: T1 mem=1.1 | T2 mem=1.1 | T3 mem=1\n 1: - | -",
        expect![[r#"
        B: T1 0.0→1.4
    "#]],
    );
}

#[test]
fn coherent_threads_prefer_an_idle_cpu() {
    check(
        "2 sockets 3 cores 1 thread\n 0: T1 coh | T2 | -\n 1: T3 coh | T4 | T5",
        expect![[r#"
        C: T3 1.3→0.2
    "#]],
    );
}

#[test]
fn then_a_cpu_bound_thread_gives_way() {
    check(
        "2 sockets 3 cores 1 thread\n 0: T1 coh | T2 mem | T6\n 1: T3 coh | T4 mem | T5 mem",
        expect![[r#"
        C: T3 1.3→0.2 for T6 (CpuBound)
    "#]],
    );
}

#[test]
fn then_a_memory_bound_thread_that_thereby_goes_home() {
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 coh | T2 mem rdr home1\n 1: T3 coh | T4 mem cpus3",
        expect![[r#"
        C: T3 1.2→0.1 for T2 (Homeward)
    "#]],
    );
}

#[test]
fn then_any_memory_bound_thread_and_the_interval_ends() {
    // T6 could go home to socket 0, but a compromise is judged before anything else is done.
    check(
        "2 sockets 3 cores 1 thread
        0: T1 coh | T2 mem | T5 snp
        1: T3 coh | T4 mem | T6 snp rdr",
        expect![[r#"
            C: T3 1.3→0.1 for T2 (MemoryBound)
        "#]],
    );
}

#[test]
fn threads_that_share_inside_their_socket_never_give_way() {
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 coh | T2 snp\n 1: T3 coh | T4 snp",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn a_group_goes_where_it_takes_fewer_moves() {
    check(
        "2 sockets 4 cores 1 thread\n 0: T1 coh | - | - | -\n 1: T2 coh | T3 coh | T4 coh | -",
        expect![[r#"
        C: T1 0.0→1.7
    "#]],
    );
}

#[test]
fn only_threads_of_one_process_are_gathered_where_processes_are_known() {
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 coh p1 | -\n 1: T2 coh p2 | -",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        "2 sockets 4 cores 1 thread
        0: T1 coh p1 | T2 coh p2 | T3 coh p2 | -
        1: T4 coh p1 | T5 coh p1 | T6 coh p2 | -",
        expect![[r#"
            C: T1 0.0→1.7
            C: T6 1.6→0.3
        "#]],
    );
}

#[test]
fn four_sockets_gather_pairwise() {
    check(
        "4 sockets 2 cores 1 thread
        0: T1 coh p1 | -
        1: T2 coh p2 | -
        2: T3 coh p1 | -
        3: T4 coh p2 | -",
        expect![[r#"
            C: T3 2.4→0.1
            C: T4 3.6→1.3
        "#]],
    );
}

#[test]
fn two_threads_on_each_others_data_change_places() {
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 rdr | -\n 1: T2 rdr | -",
        expect![[r#"
        R: T1 0.0→1.2 for T2 (Homeward)
    "#]],
    );
}

#[test]
fn a_thread_away_goes_to_an_idle_core_at_home() {
    check(
        "2 sockets 2 cores 2 threads\n 0: T1 rdr\n 1: T2 | T3",
        expect![[r#"
        R: T1 0.0→1.6
    "#]],
    );
    check(
        "2 sockets 2 cores 2 threads\n 0: T1 rdr\n 1: T2 | - | T3 | -",
        expect![[r#"
        R: T1 0.0→1.5
    "#]],
    );
}

#[test]
fn else_a_cpu_bound_thread_makes_room_unless_its_own_data_is_there() {
    check(
        "2 sockets 1 cores 1 thread\n 0: T1 rdr\n 1: T2",
        expect![[r#"
        R: T1 0.0→1.1 for T2 (CpuBound)
    "#]],
    );
    check(
        "2 sockets 1 cores 1 thread\n 0: T1 rdr\n 1: T2 mem",
        expect![[r#"
        nothing
    "#]],
    );
    let mut session = Session::new(Preset::SLIDES);
    session.step("2 sockets 1 cores 1 thread\n 0: T2 rdr\n 1: busy");
    expect![[r#"
        nothing
    "#]]
    .assert_eq(&session.step("2 sockets 1 cores 1 thread\n 0: T1 rdr\n 1: T2"));
}

#[test]
fn a_thread_that_was_not_counted_may_be_anything_and_makes_no_room() {
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 rdr home1 | T2\n 1: T3 uncounted | T4 uncounted",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 rdr home1 | T2\n 1: T3 uncounted | T4",
        expect![[r#"
        R: T1 0.0→1.3 for T4 (CpuBound)
    "#]],
    );
}

/// Prefetching fetches lines before a load asks for them, so few remote accesses are counted: T1
/// has none.
#[test]
fn known_homes_draw_threads_that_prefetch_their_remote_accesses() {
    let text = "2 sockets 2 cores 1 thread\n 0: T1 mem home1 | T2 home1\n 1: - | -";
    check(
        text,
        expect![[r#"
        nothing
    "#]],
    );
    check_with(
        Preset::WITH_HOMES,
        text,
        expect![[r#"
        R: T1 0.0→1.2
    "#]],
    );
}

#[test]
fn with_known_homes_a_thread_that_is_away_makes_room_and_none_that_is_at_home() {
    check_with(
        Preset::WITH_HOMES,
        "3 sockets 1 cores 1 thread\n 0: T1 mem home1\n 1: T2 mem home2\n 2: T3 mem home2",
        expect![[r#"
        R: T1 0.0→1.1 for T2 (Away)
    "#]],
    );
    check_with(
        Preset::WITH_HOMES,
        "2 sockets 1 cores 1 thread\n 0: T1 mem home1\n 1: T2 mem home1",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn pages_say_which_of_four_sockets_is_home() {
    check(
        "4 sockets 1 cores 1 thread\n 0: T1 rdr home2\n 1: -\n 2: -\n 3: -",
        expect![[r#"
        R: T1 0.0→2.2
    "#]],
    );
}

#[test]
fn without_pages_sockets_are_tried_once_each() {
    let mut session = Session::new(Preset::SLIDES);
    expect![[r#"
        R: T1 0.0→1.1
    "#]]
    .assert_eq(&session.step("4 sockets 1 cores 1 thread\n 0: T1 rdr"));
    expect![[r#"
        R: T1 1.1→2.2
    "#]]
    .assert_eq(&session.step("4 sockets 1 cores 1 thread\n 1: T1 rdr"));
    expect![[r#"
        R: T1 2.2→3.3
    "#]]
    .assert_eq(&session.step("4 sockets 1 cores 1 thread\n 2: T1 rdr"));
    expect![[r#"
        nothing
    "#]]
    .assert_eq(&session.step("4 sockets 1 cores 1 thread\n 3: T1 rdr"));
}

#[test]
fn interleaved_data_sends_nobody_anywhere() {
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 rdr scattered | -\n 1: - | -",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn half_of_the_difference_leaves_a_saturated_socket() {
    check(
        "2 sockets 5 cores 1 thread\n 0: T1 mem | T2 mem | T3 mem | T4 mem | T5 mem\n 1: T6 mem | -",
        expect![[r#"
        B: T1 0.0→1.6
        B: T2 0.1→1.7
    "#]],
    );
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 mem | T2 mem\n 1: T3 mem | -",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        "2 sockets 4 cores 1 thread\n 0: T1 mem | T2 mem | T3 mem | T4 mem\n 1: T5 | T6 snp | T7 | T8 coh",
        expect![[r#"
        B: T1 0.0→1.4 for T5 (CpuBound)
        B: T2 0.1→1.6 for T7 (CpuBound)
    "#]],
    );
}

#[test]
fn threads_that_are_known_to_be_at_home_do_not_leave_for_bandwidth() {
    let text = "2 sockets 4 cores 1 thread\n 0: T1 mem home0 | T2 mem home0 | T3 mem | T4 mem home1\n 1: - | -";
    check(
        text,
        expect![[r#"
        B: T3 0.2→1.4
        B: T4 0.3→1.5
    "#]],
    );
    check_with(
        Preset::AUTHOR,
        text,
        expect![[r#"
        B: T1 0.0→1.4
        B: T2 0.1→1.5
    "#]],
    );
}

#[test]
fn a_socket_with_coherence_keeps_its_bandwidth_problem_but_not_in_mph() {
    let text = "2 sockets 4 cores 1 thread\n 0: T1 mem | T2 mem | T3 mem | T4 snp\n 1: - | -";
    check(
        text,
        expect![[r#"
        nothing
    "#]],
    );
    check_with(
        Preset::MPH,
        text,
        expect![[r#"
        B: T1 0.0→1.4
    "#]],
    );
}

#[test]
fn mph_does_not_exchange_with_cpu_bound_threads_and_spares_sharers() {
    check_with(
        Preset::MPH,
        "2 sockets 1 cores 1 thread\n 0: T1 rdr\n 1: T2",
        expect![[r#"
        nothing
    "#]],
    );
    check_with(
        Preset::MPH,
        "2 sockets 2 cores 1 thread\n 0: T1 rdr snp p1 | T2 p1\n 1: - | -",
        expect![[r#"
        nothing
    "#]],
    );
    check_with(
        Preset::MPH,
        "2 sockets 2 cores 1 thread\n 0: T1 rdr snp p1 | T2 p2\n 1: - | -",
        expect![[r#"
        R: T1 0.0→1.2
    "#]],
    );
}

#[test]
fn cpus_that_are_not_allowed_or_not_ours_are_no_destination() {
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 rdr cpus0,1 | -\n 1: - | -",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 rdr | -\n 1: busy | busy",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        "2 sockets 2 cores 1 thread\n 0: T1 rdr cpus0,3 | -\n 1: - | -",
        expect![[r#"
        R: T1 0.0→1.3
    "#]],
    );
    check(
        "2 sockets 1 cores 1 thread\n 0: T1 rdr\n 1: T2 cpus1",
        expect![[r#"
        nothing
    "#]],
    );
}
