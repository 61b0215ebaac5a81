//! What the authors' code does otherwise, as a preset where it is a rule and as a comparison where
//! it is a slip.

use crate::notation::{Session, apply, parse};
use expect_test::{Expect, expect};
use rondpoint_core::policy::sam::{Layout, Preset, Use};

fn check(preset: Preset, text: &str, expected: Expect) {
    expected.assert_eq(&Session::new(preset).step(text));
}

#[test]
fn order_remote_before_coherence() {
    let both = "2 sockets 3 cores 1 thread\n 0: T1 coh | T2 rdr home1 | -\n 1: T3 coh | - | -";
    check(
        Preset::SLIDES,
        both,
        expect![[r#"
        C: T3 1.3→0.2
        R: T2 0.1→1.4
    "#]],
    );
    check(
        Preset::AUTHOR,
        both,
        expect![[r#"
        R: T2 0.1→1.4
    "#]],
    );
}

#[test]
fn all_coherent_threads_are_pulled_to_the_lower_socket() {
    let unrelated =
        "2 sockets 3 cores 1 thread\n 0: T1 coh p1 | - | -\n 1: T2 coh p2 | T3 coh p2 | -";
    check(
        Preset::SLIDES,
        unrelated,
        expect![[r#"
        nothing
    "#]],
    );
    check(
        Preset::AUTHOR,
        unrelated,
        expect![[r#"
        C: T2 1.3→0.1
        C: T3 1.4→0.2
    "#]],
    );
}

#[test]
fn the_index_slip_of_phase_b_would_exchange_inside_the_source_socket() {
    // No CPU of socket 1 is idle. The slip looks for a CPU-bound partner on socket 0 and finds T3:
    // an exchange that changes nothing.
    let text = "2 sockets 3 cores 1 thread\n 0: T1 mem | T2 mem | T3\n 1: T4 | T5 | T6";
    check(
        Preset::SLIDES,
        text,
        expect![[r#"
        B: T1 0.0→1.3 for T4 (CpuBound)
    "#]],
    );
    check(
        Preset::AUTHOR,
        text,
        expect![[r#"
        B: T1 0.0→1.3 for T4 (CpuBound)
    "#]],
    );
}

#[test]
fn half_of_the_threads_go_back_and_forth_between_sockets_near_the_threshold() {
    // Four threads at 1.1 of their share saturate a socket (limit 2.67), two do not; the other
    // socket has two of them.
    let thread = |n: usize| format!("T{n} mem=1.1");
    let cells = |range: std::ops::Range<usize>| range.map(thread).collect::<Vec<_>>().join(" | ");
    let text = format!("2 sockets 8 cores 1 thread\n 0: {}\n 1: {}", cells(0..4), cells(4..6));
    let counts = |preset| {
        let mut session = Session::new(preset);
        let (layout, mut uses) = parse(&text, &session.thresholds);
        let mut counts = Vec::new();
        for _ in 0..4 {
            let moves = session.moves(&layout, &uses);
            apply(&mut uses, &moves);
            counts.push(running_on(0, &layout, &uses));
        }
        counts
    };
    assert_eq!(counts(Preset::AUTHOR), [2, 4, 2, 4]);
    assert_eq!(counts(Preset::SLIDES), [3, 3, 3, 3]);
}

fn running_on(socket: usize, layout: &Layout, uses: &[Use]) -> usize {
    layout.sockets[socket].cpus.iter().filter(|&&cpu| uses[cpu].thread().is_some()).count()
}

#[test]
fn the_sticky_mark_keeps_a_thread_out_of_phase_b_for_ever() {
    let spread =
        "2 sockets 4 cores 1 thread\n 0: T1 mem | T2 mem | T3 mem | T4 mem\n 1: - | - | - | -";
    let after_quiet = |preset| {
        let mut session = Session::new(preset);
        session.step("2 sockets 4 cores 1 thread\n 0: busy | busy | busy | busy\n 1: T1 rdr cpus4 | T2 rdr cpus5");
        (0..16).for_each(|_| drop(session.step("2 sockets 4 cores 1 thread\n 0: T1 | T2\n 1: -")));
        session.step(spread)
    };
    expect![[r#"
        B: T1 0.0→1.4
        B: T2 0.1→1.5
    "#]]
    .assert_eq(&after_quiet(Preset::SLIDES));
    expect![[r#"
        B: T3 0.2→1.4
        B: T4 0.3→1.5
    "#]]
    .assert_eq(&after_quiet(Preset::AUTHOR));
}

#[test]
fn with_four_sockets_the_published_mark_takes_any_other_socket_for_home() {
    let away = "4 sockets 1 cores 1 thread\n 0: T1 rdr home3\n 1: -\n 2: -\n 3: -";
    check(
        Preset::SLIDES,
        away,
        expect![[r#"
        R: T1 0.0→3.3
    "#]],
    );
    check(
        Preset::AUTHOR,
        away,
        expect![[r#"
        R: T1 0.0→1.1
    "#]],
    );
}
