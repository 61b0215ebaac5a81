//! Counters made from the mapping: what SAM moves it sees in the next interval. It must come to
//! rest.

use crate::notation::{Session, apply, print};
use proptest::prelude::*;
use rondpoint_core::policy::sam::{DataHome, Layout, Preset, Running, Thresholds, Use};
use rondpoint_core::{Pid, Tid};

/// What a thread does wherever it runs.
#[derive(Debug, Clone)]
struct Behaviour {
    /// It shares data with the others of its group.
    group: Option<u32>,
    /// Its misses as a share of the threshold of a thread.
    memory: f64,
    /// Where its data is.
    home: usize,
    /// Whether the pages tell.
    is_home_known: bool,
}

/// The counters of every thread in this mapping; threads are known by their number.
fn measure(layout: &Layout, uses: &mut [Use], threads: &[Behaviour]) {
    let thresholds = Thresholds::TWO_SOCKET;
    let socket_of = |uses: &[Use], thread: usize| {
        let is_it = |cpu_use: &Use| {
            cpu_use.thread().is_some_and(|running| running.tid == Tid(thread as u32))
        };
        uses.iter().position(is_it).and_then(|cpu| layout.socket_of_cpu[cpu])
    };
    let sockets: Vec<Option<usize>> =
        (0..threads.len()).map(|thread| socket_of(uses, thread)).collect();
    for cpu_use in uses.iter_mut() {
        let Use::Thread(running) = cpu_use else { continue };
        let own = running.tid.0 as usize;
        let behaviour = &threads[own];
        let others: Vec<usize> = (0..threads.len())
            .filter(|&other| {
                other != own && behaviour.group.is_some() && threads[other].group == behaviour.group
            })
            .collect();
        let apart = others.iter().filter(|&&other| sockets[other] != sockets[own]).count() as f64;
        let share = apart / (others.len() as f64).max(1.0);
        let together = if others.is_empty() { 0.0 } else { 1.0 - share };
        running.pid = behaviour.group.map(Pid);
        running.coherence = 3.0 * share * thresholds.coherence;
        running.sharing = 3.0 * together * thresholds.coherence;
        running.memory = behaviour.memory * thresholds.memory_thread;
        let is_remote = sockets[own] != Some(behaviour.home);
        running.remote = if is_remote { behaviour.memory * thresholds.remote } else { 0.0 };
        running.home = if behaviour.is_home_known {
            DataHome::Socket(behaviour.home)
        } else {
            DataHome::Unknown
        };
    }
}

fn behaviour(sockets: usize) -> impl Strategy<Value = Behaviour> {
    let memory = prop_oneof![Just(0.0), Just(2.0), 0.5..3.0];
    (proptest::option::of(1_u32..4), memory, 0..sockets, any::<bool>()).prop_map(
        |(group, memory, home, is_home_known)| Behaviour { group, memory, home, is_home_known },
    )
}

/// Machine, threads, and the CPU on which each begins.
fn scenario() -> impl Strategy<Value = (Layout, Vec<Behaviour>, Vec<usize>)> {
    (2_usize..5, 1_usize..5, 1_usize..3).prop_flat_map(|(sockets, cores, per_core)| {
        let layout = Layout::regular(sockets, cores, per_core);
        let cpus = layout.cpu_count();
        let start = Just((0..cpus).collect::<Vec<usize>>()).prop_shuffle();
        (Just(layout), proptest::collection::vec(behaviour(sockets), 1..=cpus), start)
    })
}

/// Moves of each thread until rest, and what happened as text; `Err` if it did not come to rest.
fn run(
    preset: &Preset,
    layout: &Layout,
    threads: &[Behaviour],
    start: &[usize],
) -> Result<(Vec<u32>, String), String> {
    let mut uses = vec![Use::Idle; layout.cpu_count()];
    for (thread, &cpu) in (0..threads.len()).zip(start) {
        uses[cpu] = Use::Thread(Running { tid: Tid(thread as u32), ..Running::default() });
    }
    let mut session = Session::new(preset.clone());
    let (mut moved, mut text) = (vec![0; threads.len()], String::new());
    for _ in 0..INTERVALS {
        measure(layout, &mut uses, threads);
        let moves = session.moves(layout, &uses);
        if moves.is_empty() {
            return Ok((moved, text));
        }
        text += &print(layout, &uses, &moves);
        for cpu in moves.iter().flat_map(|chosen| [chosen.from, chosen.to]) {
            if let Some(running) = uses[cpu].thread() {
                moved[running.tid.0 as usize] += 1;
            }
        }
        apply(&mut uses, &moves);
    }
    Err(text)
}

/// Intervals in which it must come to rest.
const INTERVALS: usize = 40;

proptest! {
    #[test]
    fn the_default_comes_to_rest((layout, threads, start) in scenario()) {
        let run = run(&Preset::SLIDES, &layout, &threads, &start);
        let (moved, text) = run.map_err(TestCaseError::fail)?;
        // Once to its group or out of the way, once to every socket where its data might be.
        let all = moved.iter().sum::<u32>() as usize;
        prop_assert!(all <= (layout.sockets.len() + 1) * threads.len(), "{moved:?}\n{text}");
    }
}

#[test]
fn the_published_rules_fetch_and_send_away_for_ever() {
    // Two sharers with data on different sockets: coherence brings them together, then one goes
    // home.
    let layout = Layout::regular(2, 2, 1);
    let sharer = |home| Behaviour { group: Some(1), memory: 2.0, home, is_home_known: true };
    let threads = [sharer(0), sharer(1)];
    assert!(run(&Preset::AUTHOR, &layout, &threads, &[0, 2]).is_err());
    let (moved, text) = run(&Preset::SLIDES, &layout, &threads, &[0, 2]).expect("it comes to rest");
    assert_eq!((moved.iter().sum::<u32>(), text.lines().count()), (1, 1), "{text}");
}
