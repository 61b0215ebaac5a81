//! Applications that may use some nodes only, nodes without CPUs, and shared pages that most
//! threads of one node use.

use super::interleave::Interleaving;
use super::preset::{Draw, STEADY};
use super::*;
use crate::index_set::NodeSet;
use crate::matrix::Matrix;
use crate::model::{Thread, Traffic};
use crate::topology::synthetic;
use crate::units::{Bytes, Tid};

/// Number of the first page.
const FIRST_PAGE: u64 = 16;

fn machine() -> Topology {
    synthetic::parse("node:4 core:4").expect("a machine")
}

/// Traffic of four nodes. `rates[node]` comes from each node, and each node divides it among the
/// controllers in proportion to `loads`.
fn traffic(rates: [f64; 4], loads: [f64; 4]) -> Traffic {
    let total: f64 = loads.iter().sum();
    Traffic::new(Matrix::from_fn(4, |from, holding| rates[from] * loads[holding] / total))
}

/// Traffic with these loads of the controllers, drawn alike by all nodes.
fn load(loads: [f64; 4]) -> Traffic {
    let total: f64 = loads.iter().sum();
    traffic([total / 4.0; 4], loads)
}

fn nodes(of: &[usize]) -> NodeSet {
    of.iter().copied().collect()
}

/// Adds an application with this traffic and this many sampled pages on each node, with accesses
/// `(node, number)` to each page.
fn add_app(
    model: &mut Model,
    allowed: Option<NodeSet>,
    traffic: Traffic,
    pages: [u64; 4],
    accesses: &[(u16, u32)],
) {
    let (index, thread) = (model.apps.len(), model.threads.len());
    let pid = index as u32 + 1;
    let mut app = App::new(Pid(pid), thread..thread + 1);
    (app.traffic, app.allowed_nodes) = (Some(traffic), allowed);
    model.apps.push(app);
    model.threads.push(Thread::new(Tid(pid), index, 0, machine().all_cpus()));
    let homes = pages.iter().zip(0..).flat_map(|(count, home)| (0..*count).map(move |_| home));
    for (page, home) in (FIRST_PAGE..).zip(homes) {
        for (node, count) in accesses {
            for _ in 0..*count {
                model.pages.record(
                    index as u32,
                    page << PAGE_SHIFT,
                    PAGE_SHIFT,
                    home,
                    *node,
                    false,
                );
            }
        }
    }
}

/// A model of a machine with these loads of the controllers.
fn model(traffic: Traffic) -> Model {
    let mut model = Model::empty(4);
    model.sensing.confidence = 1.0;
    model.traffic = Some(traffic);
    model
}

/// Targets of the pages that an application is to move, by whether the reason is of a kind.
fn targets(model: &Model, preset: &Preset, pid: u32, of: fn(&CarrefourReason) -> bool) -> Vec<u16> {
    let mut policy = Carrefour::new(preset.clone());
    let round = policy.propose(model, &machine(), &mut Random::new(1));
    let mut targets = Vec::new();
    for proposal in round {
        let (Action::MovePages { pid: mover, pages, .. }, Reason::Carrefour(reason)) =
            (&proposal.action, &proposal.reason)
        else {
            continue;
        };
        if *mover == Pid(pid) && of(reason) {
            targets.extend(pages.iter().map(|page| page.to));
        }
    }
    targets
}

fn is_interleaving(reason: &CarrefourReason) -> bool {
    matches!(reason, CarrefourReason::Interleaving { .. })
}

fn is_most_used(reason: &CarrefourReason) -> bool {
    matches!(reason, CarrefourReason::MostUsed { .. })
}

/// Of 80 on one node and 20 on the other, 30 leave: 37.5 % of the pages.
#[test]
fn an_application_of_two_nodes_spreads_its_pages_evenly_over_them() {
    let loads = load([80.0, 20.0, 0.0, 0.0]);
    let interleaving = Interleaving::among(&nodes(&[0, 1]), &loads, &machine(), Draw::Excess);
    let target = |page| interleaving.target(0, page, None, &mut Random::new(1));
    let left: Vec<usize> = (0..10_000).filter_map(target).collect();
    assert!(left.iter().all(|node| *node == 1));
    assert!(left.len().abs_diff(3_750) < 20, "{} of 10,000", left.len());
}

#[test]
fn where_the_nodes_of_an_application_are_even_it_is_not_interleaved() {
    let interleaved = |allowed: &[usize], preset: &Preset| {
        let (loads, accesses) = (load([50.0, 50.0, 0.0, 0.0]), [(0, 2), (1, 3)]);
        let mut model = model(loads.clone());
        add_app(&mut model, Some(nodes(allowed)), loads, [50, 50, 0, 0], &accesses);
        targets(&model, preset, 1, is_interleaving).len()
    };
    for preset in [&FINAL, &STEADY] {
        assert_eq!(interleaved(&[0, 1], preset), 0, "{}", preset.name);
        assert!(interleaved(&[0, 1, 2, 3], preset) > 20, "{}", preset.name);
    }
}

/// Its cpuset was narrowed after its memory was allocated.
#[test]
fn shared_pages_leave_nodes_that_their_application_may_not_use_any_more() {
    let loads = load([40.0, 30.0, 30.0, 0.0]);
    let mut model = model(loads.clone());
    add_app(&mut model, Some(nodes(&[1, 2])), loads, [100, 50, 50, 0], &[(1, 3), (2, 3)]);
    for preset in [&FINAL, &STEADY] {
        let mut targets = targets(&model, preset, 1, is_interleaving);
        let all = targets.len();
        targets.retain(|node| [1, 2].contains(node));
        assert!(all >= 80 && targets.len() == all, "{}: {all}", preset.name);
    }
}

#[test]
fn each_application_leaves_a_node_by_the_loads_of_its_own_nodes() {
    let (all, each) = (load([160.0, 40.0, 0.0, 0.0]), load([80.0, 20.0, 0.0, 0.0]));
    let mut model = model(all);
    add_app(&mut model, Some(nodes(&[0, 1])), each.clone(), [400, 0, 0, 0], &[(0, 3), (1, 3)]);
    add_app(&mut model, None, each, [400, 0, 0, 0], &[(0, 3), (1, 3)]);
    let left = |pid, preset: &Preset| {
        let targets = targets(&model, preset, pid, is_interleaving);
        let to = |node| targets.iter().filter(|target| **target == node).count();
        (to(1), to(2) + to(3))
    };
    let (near, far) = left(1, &STEADY);
    assert!(near.abs_diff(150) < 15 && far == 0, "{near} {far}");
    let (near, far) = left(2, &STEADY);
    assert!((near + far).abs_diff(275) < 20 && far > 100, "{near} {far}");
    // By the published rule a page leaves with the share of its node, if it draws another node.
    let (near, far) = left(1, &FINAL);
    assert!(near.abs_diff(256) < 40 && far == 0, "{near} {far}");
}

#[test]
fn copies_need_room_on_each_node_with_cpus_and_leave_to_be_there() {
    let mut description = synthetic::describe("node:3 core:2").expect("a machine");
    description.cpus.retain(|cpu| cpu.node != 2);
    let topology = Topology::new(description).expect("a machine");
    let may_replicate = |percent: [u64; 3], allowed: Option<&[usize]>| {
        let mut model = Model::empty(3);
        let free = |node: usize| Bytes(topology.memory(node).0 / 100 * percent[node] + 99);
        model.free_memory = Some((0..3).map(free).collect());
        model.traffic = Some(Traffic::new(Matrix::filled(3, 30.0)));
        let mut app = App::new(Pid(1), 0..1);
        (app.traffic, app.read_percent) = (model.traffic.clone(), Some(99.0));
        app.allowed_nodes = allowed.map(|nodes| nodes.iter().copied().collect());
        model.apps.push(app);
        model.threads.push(Thread::new(Tid(1), 0, 0, topology.all_cpus()));
        let gates = Gates::judge(&FINAL, &model, &topology, &model.apps[0]).expect("a busy one");
        gates.mechanisms.replication
    };
    assert!(may_replicate([50, 50, 0], None));
    assert!(!may_replicate([49, 49, 100], None));
    // Each node with CPUs would get a copy.
    assert!(may_replicate([50, 50, 0], Some(&[0, 1])));
    assert!(!may_replicate([50, 50, 0], Some(&[0, 2])));
}

/// Number of pages of a round that go to node 1, which uses each of them most, though all
/// controllers serve alike. `rates[node]` of the traffic comes from each node.
fn gathered_at_node_1(rates: [f64; 4]) -> usize {
    let even = traffic(rates, [25.0; 4]);
    let mut model = model(even.clone());
    add_app(&mut model, None, even, [50; 4], &[(0, 3), (1, 20)]);
    let targets = targets(&model, &STEADY, 1, is_most_used);
    assert!(targets.iter().all(|node| *node == 1));
    targets.len()
}

#[test]
fn shared_pages_stay_spread_where_their_users_would_jam_one_controller() {
    assert_eq!(gathered_at_node_1([7.0, 79.0, 7.0, 7.0]), 0, "interleaving would take them away");
    assert_eq!(gathered_at_node_1([22.0, 30.0, 24.0, 24.0]), 150);
    assert_eq!(gathered_at_node_1([70.0, 10.0, 10.0, 10.0]), 150, "node 1 has room for its own");
}
