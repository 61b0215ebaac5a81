//! What holds for any machine and any threads.

use crate::notation::{Session, apply};
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
    proptest::sample::select([&Preset::ALL[..], &[Preset::WITH_HOMES]].concat())
}

fn decide(case: &Case, preset: &Preset) -> Vec<Move> {
    Session::new(preset.clone()).moves(&case.layout, &case.uses)
}

/// The case with its equal sockets under other numbers: socket `s` becomes `names[s]`.
fn renamed(case: &Case, names: &[usize]) -> Case {
    let size = case.layout.cpu_count() / names.len();
    let renamed_cpu = |cpu: usize| names[cpu / size] * size + cpu % size;
    let mut other = case.clone();
    for (cpu, cpu_use) in case.uses.iter().enumerate() {
        let mut cpu_use = cpu_use.clone();
        if let Use::Thread(running) = &mut cpu_use {
            if let DataHome::Socket(home) = &mut running.home {
                *home = names[*home];
            }
            let allowed = running.allowed.take();
            running.allowed = allowed.map(|cpus| cpus.iter().map(renamed_cpu).collect());
        }
        other.uses[renamed_cpu(cpu)] = cpu_use;
    }
    other
}

/// A machine under two numberings.
fn case_and_renamed() -> impl Strategy<Value = (Case, Case)> {
    case(2_usize..5).prop_flat_map(|case| {
        let names: Vec<usize> = (0..case.layout.sockets.len()).collect();
        Just(names).prop_shuffle().prop_map(move |names| (case.clone(), renamed(&case, &names)))
    })
}

/// What happens in an interval, without the names of sockets. Of each move: phase, mover, what is
/// at its destination and the thread that changes places with it. Then the threads that are
/// together afterwards.
type Outcome = (Vec<(Phase, Tid, Destination, Option<Tid>)>, Vec<Vec<Tid>>);

fn outcome(case: &mut Case, session: &mut Session) -> Outcome {
    let moves = session.moves(&case.layout, &case.uses);
    let tid = |cpu: usize| case.uses[cpu].thread().map(|running| running.tid);
    let what = |chosen: &Move| {
        let mover = tid(chosen.from).expect("only threads move");
        (chosen.phase, mover, chosen.destination, tid(chosen.to))
    };
    let mut happened: Vec<_> = moves.iter().map(what).collect();
    happened.sort_unstable();
    apply(&mut case.uses, &moves);
    let mut together = vec![Vec::new(); case.layout.sockets.len()];
    for (cpu, cpu_use) in case.uses.iter().enumerate() {
        let socket = case.layout.socket_of_cpu[cpu].expect("every CPU has a socket");
        together[socket].extend(cpu_use.thread().map(|running| running.tid));
    }
    together.iter_mut().for_each(|threads| threads.sort_unstable());
    together.sort_unstable();
    (happened, together)
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
    fn names_of_equal_sockets_do_not_matter(
        (mut case, mut other) in case_and_renamed(),
        preset in proptest::sample::select(vec![Preset::SLIDES, Preset::PORT, Preset::MPH]),
    ) {
        let (mut here, mut there) = (Session::new(preset.clone()), Session::new(preset));
        // The second interval has marks that the first one made, on sockets of other names.
        for _ in 0..4 {
            prop_assert_eq!(outcome(&mut case, &mut here), outcome(&mut other, &mut there));
        }
    }

    #[test]
    fn the_same_input_gives_the_same_moves(case in case(2_usize..5), preset in presets()) {
        prop_assert_eq!(decide(&case, &preset), decide(&case, &preset));
    }
}
