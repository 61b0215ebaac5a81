//! SAM-MPH: the order of placement, the fall-backs, and the history behind them.
//!
//! An application is a line: `p1 8 threads on 0 high spc=200 ipc=0.5`; `high` is steady in high
//! coherence, `steady` in coherence.

use crate::notation::parse;
use expect_test::{Expect, expect};
use rondpoint_core::Pid;
use rondpoint_core::policy::sam::{AppView, Apps, Layout, Thresholds, Use, place};
use std::fmt::Write;

fn parse_app(line: &str) -> AppView {
    let words: Vec<&str> = line.split_whitespace().collect();
    let value = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.parse().ok());
    let number = |place: usize| words[place].parse().expect("a number");
    AppView {
        pid: Pid(words[0]
            .strip_prefix('p')
            .and_then(|pid| pid.parse().ok())
            .expect("p and a number")),
        threads: number(1),
        socket: number(4),
        is_high: words.contains(&"high"),
        is_steady: words.contains(&"high") || words.contains(&"steady"),
        stalls_per_event: value("spc="),
        instructions_per_cycle: value("ipc="),
    }
}

fn check(machine: (usize, usize, usize), apps: &str, expected: Expect) {
    let layout = Layout::regular(machine.0, machine.1, machine.2);
    let apps: Vec<AppView> =
        apps.lines().map(str::trim).filter(|line| !line.is_empty()).map(parse_app).collect();
    let mut out = String::new();
    for placement in place(&layout, &apps, &Thresholds::FOUR_SOCKET) {
        write!(out, "p{} {:?}:", placement.pid, placement.rule).expect("text");
        for (socket, threads) in placement.sockets {
            write!(out, " {threads} on {socket}").expect("text");
        }
        out.push('\n');
    }
    expected.assert_eq(&out);
}

const FOUR_SOCKETS: (usize, usize, usize) = (4, 10, 2);

#[test]
fn the_process_that_stalls_longest_chooses_first() {
    check(
        FOUR_SOCKETS,
        "p1 20 threads on 0 high spc=100 ipc=0.5
         p2 12 threads on 0 high spc=300 ipc=0.5
         p3 10 threads on 3 high spc=200 ipc=1.5",
        expect![[r#"
            p2 HighCoherence: 12 on 0
            p1 HighCoherence: 20 on 1
            p3 OwnCores: 10 on 3
        "#]],
    );
}

#[test]
fn latency_bound_applications_share_cores_and_others_get_cores_of_their_own() {
    check(
        FOUR_SOCKETS,
        "p1 16 threads on 0 steady ipc=0.4
         p2 10 threads on 1 steady ipc=1.2
         p3 12 threads on 2 steady ipc=1.1",
        expect![[r#"
            p1 LatencyBound: 16 on 0
            p3 OwnCores: 10 on 2 2 on 1
            p2 OwnCores: 10 on 3
        "#]],
    );
}

#[test]
fn an_application_larger_than_a_socket_is_spread_from_the_roomiest_on() {
    check(
        FOUR_SOCKETS,
        "p1 15 threads on 1 high spc=9 ipc=0.5\n p2 30 threads on 0 steady ipc=0.5",
        expect![[r#"
        p1 HighCoherence: 15 on 1
        p2 LatencyBound: 20 on 0 10 on 2
    "#]],
    );
    check(
        (2, 4, 2),
        "p1 3 threads on 1 high spc=9 ipc=0.5\n p2 10 threads on 0 steady ipc=0.5",
        expect![[r#"
        p1 HighCoherence: 3 on 1
        p2 LatencyBound: 8 on 0 2 on 1
    "#]],
    );
}

#[test]
fn the_limits_of_ipc_and_stalls_are_where_they_are_published() {
    // IPC below 0.7 shares cores; below 1.4 and with stalls it goes first.
    check(
        FOUR_SOCKETS,
        "p1 4 threads on 0 steady ipc=0.69\n p2 4 threads on 1 steady ipc=0.7",
        expect![[r#"
        p1 LatencyBound: 4 on 0
        p2 OwnCores: 4 on 1
    "#]],
    );
    check(
        FOUR_SOCKETS,
        "p1 4 threads on 0 high spc=1 ipc=1.39\n p2 4 threads on 1 high spc=1 ipc=1.4",
        expect![[r#"
        p1 HighCoherence: 4 on 0
        p2 OwnCores: 4 on 1
    "#]],
    );
    check(
        FOUR_SOCKETS,
        "p1 4 threads on 0 high spc=0 ipc=0.5",
        expect![[r#"
        p1 LatencyBound: 4 on 0
    "#]],
    );
}

#[test]
fn without_room_the_mask_is_released() {
    check(
        (2, 2, 1),
        "p1 2 threads on 0 high spc=9 ipc=0.5\n p2 6 threads on 1 steady ipc=0.5",
        expect![[r#"
        p1 HighCoherence: 2 on 0
        p2 Released:
    "#]],
    );
}

#[test]
fn single_threads_and_unknown_applications_are_left_alone() {
    check(
        FOUR_SOCKETS,
        "p1 1 threads on 0 high spc=9 ipc=0.5\n p2 4 threads on 1\n p3 4 threads on 2 steady",
        expect![],
    );
}

/// Intervals with and without coherence; whether the application counts as steady after each.
fn steady_after(intervals: &str) -> String {
    let thresholds = Thresholds::FOUR_SOCKET;
    let mut apps = Apps::default();
    let mut steady = String::new();
    for interval in intervals.chars() {
        let coherence = if interval == '1' { "coh" } else { "" };
        let text = format!("2 sockets 2 cores 1 thread\n 0: T1 p1 {coherence} | -\n 1: T2 p1 | -");
        let (layout, uses) = parse(&text, &thresholds);
        apps.observe(&uses, &thresholds, |_| true);
        steady.push(if apps.views(&layout, &uses)[0].is_steady { '1' } else { '0' });
    }
    steady
}

#[test]
fn four_intervals_make_steady_and_a_flicker_does_not() {
    assert_eq!(steady_after("11111"), "00011");
    assert_eq!(steady_after("1000000000000000100000"), "0000000000000000000000");
    assert_eq!(steady_after("111100000000000000"), "000111111111111100");
}

#[test]
fn stalls_and_ipc_of_an_old_phase_are_forgotten() {
    let thresholds = Thresholds::FOUR_SOCKET;
    let mut apps = Apps::default();
    let mut observe = |cell: &str| {
        let (layout, mut uses) =
            parse(&format!("2 sockets 1 cores 1 thread\n 0: {cell}"), &thresholds);
        if let Use::Thread(running) = &mut uses[0] {
            running.stalls_per_coherence = Some(300.0);
            running.instructions_per_cycle = Some(0.5);
        }
        apps.observe(&uses, &thresholds, |_| true);
        apps.views(&layout, &uses)[0].stalls_per_event
    };
    for _ in 0..4 {
        observe("T1 p1 coh");
    }
    assert_eq!(observe("T1 p1"), Some(300.0));
    for _ in 0..11 {
        observe("T1 p1");
    }
    assert_eq!(observe("T1 p1"), None);
}
