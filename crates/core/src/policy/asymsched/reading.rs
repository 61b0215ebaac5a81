//! From a model of the machine to the plain numbers of a decision: nodes with CPUs, allowed
//! targets, traffic of memory and caches.

use super::away::{AwayMemory, memory_away, with_hosts};
use super::decision::{AppView, Situation};
use super::preset::Preset;
use super::problem::MAX_SEARCH_NODES;
use super::subset::Mask;
use crate::index_set::CpuSet;
use crate::matrix::Matrix;
use crate::model::{App, Model, Thread, Traffic};
use crate::topology::Topology;
use crate::units::{Bytes, Nanos, Pid};
use alloc::vec::Vec;

/// A situation, with the nodes and applications behind its indices.
pub(super) struct Reading {
    pub(super) situation: Situation,
    /// The topology's index of each node of the situation: the nodes with CPUs, ascending.
    pub(super) nodes: Vec<usize>,
    /// The model's index of each application of the situation.
    pub(super) apps: Vec<usize>,
    /// By application, its memory on nodes without its threads. Empty if the preset leaves it.
    pub(super) away: Vec<Vec<AwayMemory>>,
}

/// Whether a thread must stay: it or its process is exempt, or the process's memory is not known.
fn is_bound(app: &App, thread: &Thread) -> bool {
    app.exempt.is_some() || thread.exempt.is_some() || app.memory.is_none()
}

impl Reading {
    /// Reads the model. `None` if bandwidth is not known or the machine has more nodes with CPUs
    /// than the search can place.
    pub(super) fn new(
        model: &Model,
        topology: &Topology,
        migration_time: &dyn Fn(Pid) -> Nanos,
        preset: &Preset,
    ) -> Option<Self> {
        let (nodes, bandwidth) = nodes_to_choose(topology)?;
        let movable = |app: &App| app.exempt.is_none() && app.memory.is_some();
        let apps: Vec<usize> =
            (0..model.apps.len()).filter(|&index| movable(&model.apps[index])).collect();
        let view = |&index: &usize| {
            view(model, topology, &model.apps[index], &nodes, migration_time, preset)
        };
        let mut views: Vec<AppView> = apps.iter().map(view).collect();
        let away = views.iter_mut().map(|view| assign_to_hosts(view, preset)).collect();
        let situation = Situation { bandwidth, kinds: kinds(model, topology, &nodes), apps: views };
        Some(Self { situation, nodes, apps, away })
    }
}

/// Finds an application's memory on nodes without its threads, and counts requests to it as
/// requests to its host.
fn assign_to_hosts(view: &mut AppView, preset: &Preset) -> Vec<AwayMemory> {
    if !preset.gathers {
        return Vec::new();
    }
    let away = memory_away(view, preset.negligible_share);
    view.traffic_per_s = view.traffic_per_s.take().map(|traffic| with_hosts(&traffic, &away));
    away
}

fn view(
    model: &Model,
    topology: &Topology,
    app: &App,
    nodes: &[usize],
    migration_time: &dyn Fn(Pid) -> Nanos,
    preset: &Preset,
) -> AppView {
    let occupied = occupied(model, topology, app, nodes, preset);
    let memory = app.memory.as_deref().unwrap_or_default();
    AppView {
        pid: app.pid,
        nodes: occupied,
        traffic_per_s: traffic_per_s(app, nodes),
        memory: nodes.iter().map(|&node| memory.get(node).copied().unwrap_or(Bytes(0))).collect(),
        run_time: app.run_time(model),
        migration_time: migration_time(app.pid),
    }
}

/// Nodes with a running thread of the application that may be moved.
fn occupied(
    model: &Model,
    topology: &Topology,
    app: &App,
    nodes: &[usize],
    preset: &Preset,
) -> Mask {
    let threads = model.threads_of(app).iter();
    let threads = threads.filter(|thread| !is_bound(app, thread) && preset.is_awake(thread));
    threads.fold(0, |all, thread| all | bit_of(topology.node_of_cpu(thread.cpu), nodes))
}

/// Nodes with CPUs and the bandwidth between them in bytes per second. `None` if that is not known
/// or there are more than the search can place.
fn nodes_to_choose(topology: &Topology) -> Option<(Vec<usize>, Matrix<f64>)> {
    let bandwidth = topology.bandwidth()?;
    let nodes: Vec<usize> = topology.compute_nodes().iter().collect();
    let between = Matrix::from_fn(nodes.len(), |i, j| bandwidth[(nodes[i], nodes[j])]);
    (nodes.len() <= MAX_SEARCH_NODES).then_some((nodes, between))
}

fn bit_of(node: usize, nodes: &[usize]) -> Mask {
    nodes.iter().position(|&other| other == node).map_or(0, |place| 1 << place)
}

/// Requests per second to memory and to other nodes' caches together, `[accessing][holding]`.
/// `None` if neither is known.
fn traffic_per_s(app: &App, nodes: &[usize]) -> Option<Matrix<f64>> {
    let memory = app.traffic.as_ref();
    if memory.is_none() && app.cache_traffic.is_none() {
        return None;
    }
    let rate = |traffic: Option<&Traffic>, i: usize, j: usize| {
        traffic.map_or(0.0, |traffic| traffic.requests_per_us[(nodes[i], nodes[j])] * 1e6)
    };
    let both = |i, j| rate(memory, i, j) + rate(app.cache_traffic.as_ref(), i, j);
    Some(Matrix::from_fn(nodes.len(), both))
}

/// By node, the nodes of the same kind as bits. Two nodes are of one kind if they have equally many
/// usable CPUs and both or neither have memory. Every application may also use both or neither. A
/// node with a thread that must stay is the only one of its kind.
fn kinds(model: &Model, topology: &Topology, nodes: &[usize]) -> Vec<u64> {
    let mut bound: Mask = 0;
    for app in &model.apps {
        for thread in model.threads_of(app).iter().filter(|thread| is_bound(app, thread)) {
            bound |= bit_of(topology.node_of_cpu(thread.cpu), nodes);
        }
    }
    let usable_cpus = |&node: &usize| topology.usable(topology.cpus_of_node(node));
    let usable: Vec<CpuSet> = nodes.iter().map(usable_cpus).collect();
    let open: Vec<Mask> =
        model.apps.iter().map(|app| open_nodes(model, app, nodes, &usable)).collect();
    // A node with a thread of a process that may not use the node as a whole stays as it is.
    for (app, open) in model.apps.iter().zip(&open) {
        for thread in model.threads_of(app) {
            bound |= bit_of(topology.node_of_cpu(thread.cpu), nodes) & !open;
        }
    }
    let key = |place: usize| {
        let alone = (bound >> place & 1 == 1).then_some(place);
        let may: Vec<bool> = open.iter().map(|open| open >> place & 1 == 1).collect();
        (usable[place].len(), topology.has_memory(nodes[place]), alone, may)
    };
    let keys: Vec<_> = (0..nodes.len()).map(key).collect();
    let kind = |place: usize| {
        (0..nodes.len()).filter(|&other| keys[other] == keys[place]).map(|other| 1 << other).sum()
    };
    (0..nodes.len()).map(kind).collect()
}

/// Nodes on which the application may have memory and every one of its threads has a CPU.
fn open_nodes(model: &Model, app: &App, nodes: &[usize], usable: &[CpuSet]) -> Mask {
    let mut open: Mask = (0..nodes.len())
        .filter(|&place| app.may_use_node(nodes[place]))
        .map(|place| 1 << place)
        .sum();
    let mut last: Option<&CpuSet> = None;
    for thread in model.threads_of(app) {
        // Threads of a process mostly have the same mask, so repeated masks are skipped.
        if last != Some(&thread.allowed) {
            let reaches = |place: &usize| usable[*place].intersects(&thread.allowed);
            open &= (0..nodes.len()).filter(reaches).map(|place| 1 << place).sum::<Mask>();
            last = Some(&thread.allowed);
        }
    }
    open
}
