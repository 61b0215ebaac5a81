//! What holds for any machine and any threads.

use crate::notation::Session;
use proptest::prelude::*;
use rondpoint_core::policy::sam::{
    DataHome, Destination, Layout, Move, Phase, Preset, Running, Thresholds, Use,
};
use rondpoint_core::{CpuSet, Pid, Tid};

#[derive(Debug, Clone)]
struct Case {
    layout: Layout,
    uses: Vec<Use>,
}

fn running(sockets: usize, cpus: usize) -> impl Strategy<Value = Running> {
    let rate = || prop_oneof![2 => Just(0.0), 1 => 0.0..3.0];
    let home = prop_oneof![
        2 => Just(DataHome::Unknown),
        1 => Just(DataHome::Scattered),
        2 => (0..sockets).prop_map(DataHome::Socket),
    ];
    let allowed = prop_oneof![
        3 => Just(None),
        1 => proptest::collection::btree_set(0..cpus, 1..=cpus)
            .prop_map(|set| Some(set.into_iter().collect::<CpuSet>())),
    ];
    let pid = proptest::option::of((1_u32..4).prop_map(Pid));
    let base = Thresholds::TWO_SOCKET;
    (rate(), rate(), rate(), rate(), home, allowed, pid).prop_map(
        move |(coh, snp, mem, rdr, home, allowed, pid)| Running {
            tid: Tid(0),
            pid,
            coherence: coh * base.coherence,
            sharing: snp * base.coherence,
            memory: mem * base.memory_thread,
            remote: rdr * base.remote,
            home,
            allowed,
            ..Running::default()
        },
    )
}

fn case(sockets: impl Strategy<Value = usize>) -> impl Strategy<Value = Case> {
    (sockets, 1_usize..5, 1_usize..3).prop_flat_map(|(sockets, cores, threads)| {
        let layout = Layout::regular(sockets, cores, threads);
        let cpus = layout.cpu_count();
        let cpu_use = prop_oneof![
            3 => running(sockets, cpus).prop_map(Use::Thread),
            1 => Just(Use::Idle),
            1 => Just(Use::Reserved),
        ];
        proptest::collection::vec(cpu_use, cpus).prop_map(move |mut uses| {
            for (cpu, cpu_use) in uses.iter_mut().enumerate() {
                if let Use::Thread(running) = cpu_use {
                    running.tid = Tid(cpu as u32);
                }
            }
            Case { layout: layout.clone(), uses }
        })
    })
}

fn presets() -> impl Strategy<Value = Preset> {
    proptest::sample::select(Preset::ALL.to_vec())
}

fn decide(case: &Case, preset: &Preset) -> Vec<Move> {
    Session::new(preset.clone()).moves(&case.layout, &case.uses)
}

/// The case with the names of its two sockets exchanged. Who may run where would tell them apart.
fn exchanged(case: &Case) -> Case {
    let cpus = case.layout.cpu_count();
    let mut other = case.clone();
    for cpu in 0..cpus {
        other.uses[(cpu + cpus / 2) % cpus] = case.uses[cpu].clone();
    }
    for cpu_use in &mut other.uses {
        if let Use::Thread(Running { home: DataHome::Socket(home), .. }) = cpu_use {
            *home = 1 - *home;
        }
    }
    other
}

/// The problem that the interval repairs. Not which destinations it finds: they are taken greedily,
/// in the order of CPU numbers, and a random case was found in which one naming of two equal sockets
/// leaves an idle CPU for the second thread and the other only a swap with a CPU-bound one.
fn value(moves: &[Move]) -> Option<Phase> {
    moves.first().map(|chosen| chosen.phase)
}

proptest! {
    #[test]
    fn every_move_is_allowed_and_crosses_sockets(case in case(2_usize..5), preset in presets()) {
        for chosen in decide(&case, &preset) {
            let running = case.uses[chosen.from].thread().expect("only threads move");
            prop_assert!(running.may_use(chosen.to));
            prop_assert_ne!(case.layout.socket_of_cpu[chosen.from], case.layout.socket_of_cpu[chosen.to]);
            match &case.uses[chosen.to] {
                Use::Idle => prop_assert_eq!(chosen.destination, Destination::Idle),
                Use::Reserved => prop_assert!(false, "a CPU that is not ours"),
                Use::Thread(other) => prop_assert!(other.may_use(chosen.from)),
            }
        }
    }

    #[test]
    fn every_thread_has_at_most_one_destination(case in case(2_usize..5), preset in presets()) {
        let mut cpus: Vec<usize> =
            decide(&case, &preset).iter().flat_map(|chosen| [chosen.from, chosen.to]).collect();
        let all = cpus.len();
        cpus.sort_unstable();
        cpus.dedup();
        prop_assert_eq!(cpus.len(), all);
    }

    #[test]
    fn nothing_is_proposed_when_no_flag_is_set(mut case in case(2_usize..5), preset in presets()) {
        for cpu_use in &mut case.uses {
            if let Use::Thread(running) = cpu_use {
                // Sums of a socket stay below their thresholds too: at most eight threads.
                running.coherence /= 30.0;
                running.sharing /= 30.0;
                running.memory /= 30.0;
                running.remote /= 30.0;
            }
        }
        prop_assert_eq!(decide(&case, &preset), []);
    }

    #[test]
    fn threads_that_share_inside_their_socket_are_never_displaced(case in case(2_usize..5), preset in presets()) {
        let thresholds = Session::new(preset.clone()).thresholds;
        for chosen in decide(&case, &preset) {
            if let Some(other) = case.uses[chosen.to].thread() {
                let both_go_home = chosen.phase == Phase::Remote && chosen.destination == Destination::Homeward;
                prop_assert!(both_go_home || other.sharing <= thresholds.coherence);
            }
        }
    }

    #[test]
    fn a_remote_or_compromise_step_ends_the_interval(case in case(2_usize..5)) {
        let moves = decide(&case, &Preset::SLIDES);
        let has = |phase| moves.iter().any(|chosen| chosen.phase == phase);
        let compromise = moves.iter().any(|chosen| chosen.destination == Destination::MemoryBound);
        prop_assert!(!(compromise && (has(Phase::Remote) || has(Phase::Bandwidth))));
        prop_assert!(!(has(Phase::Remote) && has(Phase::Bandwidth)));
    }

    #[test]
    fn names_of_equal_sockets_do_not_matter(mut case in case(Just(2))) {
        for cpu_use in &mut case.uses {
            if let Use::Thread(running) = cpu_use {
                running.allowed = None;
            }
        }
        prop_assert_eq!(value(&decide(&case, &Preset::SLIDES)), value(&decide(&exchanged(&case), &Preset::SLIDES)));
    }

    #[test]
    fn the_same_input_gives_the_same_moves(case in case(2_usize..5), preset in presets()) {
        prop_assert_eq!(decide(&case, &preset), decide(&case, &preset));
    }
}
