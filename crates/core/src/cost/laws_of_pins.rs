//! Laws of pins where threads take turns on CPUs. All threads compute and use no memory, so a pin
//! can only move CPU time from one thread to another.

use super::facts::Facts;
use super::placement::Placement;
use super::quote::{Bill, MoveCosts, Quote};
use super::seen::{Sampled, Seen};
use crate::model::{App, Model, Thread};
use crate::plan::{Action, Proposal, Reason};
use crate::topology::{Topology, synthetic};
use crate::units::{Pid, Tid};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use proptest::prelude::*;

/// A thread: its process, its CPU, and whether its own mask keeps it on its node.
type Place = (u32, usize, bool);

/// Threads on two nodes, each always ready to run.
fn scene(cpus_of_node: usize, places: &[Place]) -> (Topology, Model) {
    let machine = format!("node:2 core:{cpus_of_node} mhz:2000");
    let topology = synthetic::parse(&machine).expect("a machine");
    let mut model = Model::empty(2);
    for pid in 1..=2 {
        let first = model.threads.len();
        for (number, (_, cpu, stays)) in places.iter().enumerate().filter(|(_, one)| one.0 == pid) {
            let node = topology.cpus_of_node(topology.node_of_cpu(*cpu));
            let allowed = if *stays { node.clone() } else { topology.all_cpus() };
            let mut thread = Thread::new(Tid(number as u32), pid as usize - 1, *cpu, allowed);
            let beside = places.iter().filter(|(_, other, _)| other == cpu).count() as f64;
            (thread.cpu_share, thread.queued_share) = (1.0 / beside, Some(1.0 - 1.0 / beside));
            model.threads.push(thread);
        }
        model.apps.push(App::new(Pid(pid), first..model.threads.len()));
    }
    (topology, model)
}

/// The price of pins of threads of process 1 to nodes, without the cost of moving. Threads of other
/// processes, and those that have to stay, are left out.
fn price(topology: &Topology, model: &Model, pins: &[(u32, usize)]) -> Quote {
    let may_move = |tid: u32| {
        let own = model.threads_of(&model.apps[0]).iter().find(|thread| thread.tid == Tid(tid));
        own.is_some_and(|thread| thread.allowed == topology.all_cpus())
    };
    let pin = |(tid, node): &(u32, usize)| {
        let cpus = topology.cpus_of_node(*node).clone();
        let action = Action::SetAffinity { pid: Pid(1), tid: Tid(*tid), cpus, via: None };
        Proposal { policy: "test", action, reason: Reason::Other(String::from("a test")) }
    };
    let steps: Vec<Proposal> = pins.iter().filter(|(tid, _)| may_move(*tid)).map(pin).collect();
    let steps: Vec<&Proposal> = steps.iter().collect();
    let facts = Facts::of(model, topology);
    let pages = Sampled::of(model, topology);
    let seen = Seen { model, pages: &pages, topology, facts: &facts };
    let bill = Bill::of(seen, &steps, &MoveCosts::of(topology));
    Quote::of(seen, &Placement::unchanged(), &bill)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// What one thread gets, another one loses.
    #[test]
    fn a_pin_makes_no_cpu_time(
        cpus in 1..3_usize,
        places in prop::collection::vec((1..3_u32, 0..2_usize, any::<bool>()), 1..9),
        pins in prop::collection::btree_map(0..8_u32, 0..2_usize, 1..8),
    ) {
        // The kernel gives each CPU of a node as many threads.
        let mut next = [0; 2];
        let place = |(pid, node, stays): &(u32, usize, bool)| {
            next[*node] += 1;
            (*pid, node * cpus + (next[*node] - 1) % cpus, *stays)
        };
        let places: Vec<Place> = places.iter().map(place).collect();
        let (topology, model) = scene(cpus, &places);
        let pins: Vec<(u32, usize)> = pins.into_iter().collect();
        let quote = price(&topology, &model, &pins);
        prop_assert!(quote.won.likely < 1e-9, "{places:?} {pins:?}: {quote:?}");
    }
}

/// A process that may not leave node 0, and two threads that may: three threads on two CPUs. All
/// get two thirds of a CPU, because the two that may move take turns beside the other.
fn two_beside_one() -> (Topology, Model) {
    scene(1, &[(2, 0, true), (1, 0, false), (1, 1, false)])
}

#[test]
fn cpu_time_that_a_pin_takes_from_another_process_is_no_gain() {
    let (topology, model) = two_beside_one();
    let quote = price(&topology, &model, &[(1, 0)]);
    let own = quote.changes[0];
    assert!((own.speed.likely - 0.125).abs() < 1e-9, "it gets 1.5 of 1.33 CPUs: {quote:?}");
    assert!(quote.won.likely.abs() < 1e-9 && quote.won.least < -0.05, "{quote:?}");
}

#[test]
fn a_thread_that_is_pinned_where_it_runs_loses_the_freedom_to_run_elsewhere() {
    let (topology, mut model) = two_beside_one();
    // Both were seen on both nodes.
    for thread in &mut model.threads[..2] {
        thread.ran_on = Some([50, 50].into());
    }
    let quote = price(&topology, &model, &[(1, 1), (2, 1)]);
    assert!((quote.changes[0].speed.likely + 0.25).abs() < 1e-6, "1 of 1.33 CPUs: {quote:?}");
    assert!(quote.won.least < -0.05, "{quote:?}");
    // On node 0 they would share its CPU with the other process.
    let quote = price(&topology, &model, &[(1, 0), (2, 0)]);
    assert!(quote.changes[0].speed.likely < -0.4, "{quote:?}");
}
