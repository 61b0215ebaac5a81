//! The slides' example: two sockets of two cores. T1 and T3 share data. T2 and T4 use memory: T2's
//! is on socket 1 and T4's on socket 0.
//!
//! 16 mappings of four threads to two sockets means up to four threads a socket: two hardware
//! threads a core. The counters are made from the mapping, so the loop is closed: what SAM moves it
//! sees in the next interval.

use crate::notation::{Session, apply, print};
use expect_test::{Expect, expect};
use rondpoint_core::Tid;
use rondpoint_core::policy::sam::{Layout, Preset, Running, Thresholds, Use};

/// Sockets of T1 to T4; CPUs are filled in order.
type Mapping = [usize; 4];

const HOME_OF_T2: usize = 1;
const HOME_OF_T4: usize = 0;

fn place(layout: &Layout, mapping: Mapping) -> Vec<Use> {
    let mut uses = vec![Use::Idle; layout.cpu_count()];
    for (thread, socket) in mapping.into_iter().enumerate() {
        let idle = layout.sockets[socket].cpus.iter().copied().find(|&cpu| uses[cpu] == Use::Idle);
        let running = Running { tid: Tid(thread as u32 + 1), ..Running::default() };
        uses[idle.expect("four CPUs a socket")] = Use::Thread(running);
    }
    uses
}

fn mapping(layout: &Layout, uses: &[Use]) -> Mapping {
    [1, 2, 3, 4].map(|tid| {
        let is_thread =
            |cpu_use: &Use| cpu_use.thread().is_some_and(|running| running.tid == Tid(tid));
        let cpu = uses.iter().position(is_thread).expect("no thread is lost");
        layout.socket_of_cpu[cpu].expect("every CPU has a socket")
    })
}

/// What the counters of each thread show in this mapping.
fn measure(layout: &Layout, uses: &mut [Use], thresholds: &Thresholds) {
    let sockets = mapping(layout, uses);
    let together = sockets[0] == sockets[2];
    for cpu_use in uses {
        let Use::Thread(running) = cpu_use else { continue };
        match running.tid {
            Tid(1 | 3) => {
                running.coherence = if together { 0.0 } else { 2.0 * thresholds.coherence };
                running.sharing = if together { 2.0 * thresholds.coherence } else { 0.0 };
            }
            Tid(tid) => {
                let home = if tid == 2 { HOME_OF_T2 } else { HOME_OF_T4 };
                let is_remote = sockets[tid as usize - 1] != home;
                running.memory = 2.0 * thresholds.memory_thread;
                running.remote = if is_remote { 2.0 * thresholds.remote } else { 0.0 };
            }
        }
    }
}

/// Runs intervals until nothing moves, at most ten.
fn run(preset: Preset, start: Mapping) -> (String, Mapping) {
    let layout = Layout::regular(2, 2, 2);
    let mut session = Session::new(preset);
    let mut uses = place(&layout, start);
    let mut out = String::new();
    for _ in 0..10 {
        measure(&layout, &mut uses, &session.thresholds);
        let moves = session.moves(&layout, &uses);
        out += &print(&layout, &uses, &moves);
        if moves.is_empty() {
            break;
        }
        apply(&mut uses, &moves);
    }
    (out, mapping(&layout, &uses))
}

fn check(preset: Preset, start: Mapping, expected: Expect) {
    let (steps, end) = run(preset, start);
    expected.assert_eq(&format!("{steps}T1-T4 on {end:?}"));
}

#[test]
fn sharers_come_together_then_memory_users_go_home_then_bandwidth_is_balanced() {
    check(
        Preset::SLIDES,
        [0, 0, 1, 1],
        expect![[r#"
        C: T3 1.4→0.2
        R: T2 0.1→1.5 for T4 (Homeward)
        nothing
        T1-T4 on [0, 1, 0, 0]"#]],
    );
}

#[test]
fn the_authors_code_repairs_remote_accesses_first() {
    check(
        Preset::AUTHOR,
        [0, 0, 1, 1],
        expect![[r#"
        R: T2 0.1→1.5 for T4 (Homeward)
        C: T3 1.4→0.2
        nothing
        T1-T4 on [0, 1, 0, 0]"#]],
    );
}

#[test]
fn every_start_ends_with_nothing_left_to_repair() {
    for preset in [Preset::SLIDES, Preset::AUTHOR] {
        for start in 0..16_usize {
            let start = [0, 1, 2, 3].map(|thread| start >> thread & 1);
            let (steps, end) = run(preset.clone(), start);
            assert!(steps.ends_with("nothing\n"), "{} from {start:?}:\n{steps}", preset.name);
            assert_eq!(end[0], end[2], "{} from {start:?}: T1 and T3 share\n{steps}", preset.name);
            assert_eq!(
                (end[1], end[3]),
                (HOME_OF_T2, HOME_OF_T4),
                "{} from {start:?}\n{steps}",
                preset.name
            );
        }
    }
}
