//! Tests of bulk moves and of faults that strike actions.

use super::*;
use crate::catalogue;
use crate::faults::Rates;
use crate::plant::{FirstPlace, Truth};
use crate::rivals::Rival;
use crate::world::Scene;
use rondpoint_core::plan::Inverse;
use rondpoint_core::units::Bytes;
use rondpoint_core::{Proposal, Reason};

/// A host with one program of which all memory is on node 0.
fn host() -> SimHost {
    let scene = Scene {
        pmu: Pmu::Ibs,
        truth: Some(Truth::middle()),
        ..Scene::new(
            catalogue::machine("nodes=2 cpus=2 memory=4G").expect("a machine"),
            catalogue::workload("read-shared").expect("a workload"),
            3,
        )
    };
    let mut world = World::new(&scene, FirstPlace::Touch, Rival::Nothing);
    world.plant.truth.wander_per_s = 0.0;
    world.plant.arrange(0, &[0, 1, 2, 3], &[0], true);
    world.pass();
    SimHost::new(world, None, Nanos::from_secs(100))
}

/// Moves all memory of node 0 to node 1 in bulk.
fn move_memory(host: &mut SimHost, freeze: bool) -> Outcome {
    let pid = host.world.plant.processes[0].pid;
    let nodes = vec![NodeMove { from: 0, to: 1 }];
    let action = Action::MoveProcessMemory { pid, nodes, freeze, memory: Bytes(0) };
    let step = Proposal { policy: "test", action, reason: Reason::Other("a test".to_string()) };
    host.act(&Plan { number: 1, steps: vec![step], ..Plan::default() }, 0)
}

/// Share of the move's time for which a thread of the process could not run.
fn stopped(freeze: bool) -> (f64, Outcome) {
    let mut host = host();
    let stands = |host: &SimHost| {
        let plant = &host.world.plant;
        let thread = plant.processes[0].threads.end - 1;
        plant.threads[thread].debt_ns - plant.threads[thread].counts.cpu_ns
    };
    let (began, before) = (host.world.plant.now(), stands(&host));
    let outcome = move_memory(&mut host, freeze);
    let passed = host.world.plant.now().since(began).0 as f64;
    let stood = passed + stands(&host) - before;
    (stood / outcome.spent.0 as f64, outcome)
}

#[test]
fn a_process_stands_still_for_a_bulk_move_only_while_it_is_frozen() {
    let (stood, outcome) = stopped(true);
    assert!(stood > 0.9, "{stood}");
    assert_eq!(outcome.frozen, outcome.spent);
    let (stood, outcome) = stopped(false);
    assert!(stood > 0.0 && stood < 0.1, "{stood}");
    assert_eq!(outcome.frozen, Nanos(0));
}

#[test]
fn a_bulk_move_leaves_pages_that_are_busy_or_find_no_memory() {
    let mut host = host();
    let whole = host.world.plant.pages_by_node(0)[0];
    let rates = Rates { busy: 0.2, no_memory: 0.2, ..Rates::default() };
    host.faults = Some(Faults::new(rates, Nanos::from_secs(50), 7));
    let StepResult::Pages(counts) = move_memory(&mut host, false).result else {
        panic!("its pages were counted");
    };
    let left = counts.busy + counts.no_memory;
    assert_eq!(counts.moved + left, whole);
    assert!(counts.busy > whole / 10 && counts.no_memory > whole / 10, "{counts:?}");
    assert_eq!(host.world.plant.pages_by_node(0), [left, counts.moved]);
}

/// The host with faults that always strike.
fn faulty(rates: Rates) -> SimHost {
    let mut host = host();
    host.faults = Some(Faults::new(rates, Nanos::from_secs(50), 7));
    host
}

#[test]
fn a_process_that_ends_while_it_is_frozen_leaves_no_page() {
    let mut host = faulty(Rates { frozen_exits: 1.0, ..Rates::default() });
    let conservation = crate::checkers::Conservation::new(&host.world.plant);
    let StepResult::Pages(counts) = move_memory(&mut host, true).result else {
        panic!("half of its pages had moved");
    };
    assert!(counts.moved > 0);
    assert!(host.world.plant.is_over());
    assert_eq!(conservation.check_plant(&host.world.plant), Ok(()));
    assert_eq!(move_memory(&mut host, true).result, StepResult::Gone);
    let mut host = faulty(Rates { frozen_exits: 1.0, ..Rates::default() });
    move_memory(&mut host, false);
    assert!(!host.world.plant.is_over(), "it was not frozen");
}

/// The results of a plan that gives two threads a mask.
fn give_masks(host: &mut SimHost) -> Vec<StepResult> {
    let pid = host.world.plant.processes[0].pid;
    let give = |number: usize| {
        let tid = host.world.plant.threads[number].tid;
        let cpus = [number].into_iter().collect();
        let action = Action::SetAffinity { pid, tid, cpus, via: None };
        Proposal { policy: "test", action, reason: Reason::Other("a test".to_string()) }
    };
    let steps: Vec<Proposal> = [0, 1].map(give).into();
    let cpus = host.world.plant.topology.all_cpus();
    let tid = host.world.plant.threads[0].tid;
    let action = Action::SetAffinity { pid, tid, cpus, via: None };
    let inverses = vec![Inverse { plan: 1, step: 0, action: Some(action), exact: true }];
    let plan = Plan { number: 1, steps, inverses, ..Plan::default() };
    let Ok(outcomes) = host.apply(&Step { plan, ..Step::default() });
    outcomes.into_iter().map(|outcome| outcome.result).collect()
}

#[test]
fn nothing_is_done_whose_inverse_cannot_be_written() {
    let mut host = faulty(Rates { ledger: 1.0, ..Rates::default() });
    let masks = |host: &SimHost| {
        host.world.plant.threads.iter().map(|thread| thread.mask.clone()).collect::<Vec<_>>()
    };
    let before = masks(&host);
    assert_eq!(give_masks(&mut host), [(); 2].map(|()| StepResult::Refused { errno: 28 }));
    assert_eq!(masks(&host), before);
}

#[test]
fn masks_are_refused_for_a_while_from_one_on() {
    let mut host = faulty(Rates { masks: 0.3, ..Rates::default() });
    let forbidden = StepResult::Refused { errno: 1 };
    let results: Vec<StepResult> = (0..10).flat_map(|_| give_masks(&mut host)).collect();
    let first = results.iter().position(|result| *result == forbidden).expect("it strikes");
    assert!(first > 0 && results[..first].iter().all(|result| *result == StepResult::Done));
    assert!(results[first..].iter().all(|result| *result == forbidden));
    host.world.plant.now += Nanos::from_secs(60);
    assert_eq!(give_masks(&mut host), [StepResult::Done, StepResult::Done]);
}
