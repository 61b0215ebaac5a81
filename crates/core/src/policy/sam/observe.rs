//! From the model to what SAM looks at: one thread a CPU, sockets, and where data is.

use super::view::{DataHome, Layout, Running, Use};
use crate::index_set::IndexSet;
use crate::model::{App, Model, Thread};
use crate::topology::Topology;
use crate::units::Bytes;
use alloc::vec;
use alloc::vec::Vec;

/// A thread below this share of a CPU does not count as running there [inferred; Carrefour's author code watches from 10 % on].
const MIN_CPU_SHARE: f64 = 0.10;
/// A node is home if it holds more than this share of the data (inferred).
const MIN_HOME_SHARE: f64 = 0.50;
/// Samples of a thread below which they say nothing about its home (inferred).
const MIN_SAMPLES: u32 = 8;

/// Nodes with CPUs as sockets.
pub(super) struct Sockets {
    pub(super) layout: Layout,
    node_of_socket: Vec<usize>,
    socket_of_node: Vec<Option<usize>>,
}

impl Sockets {
    /// Isolated CPUs belong to no socket.
    pub(super) fn new(topology: &Topology) -> Self {
        let node_of_socket: Vec<usize> = topology.compute_nodes().iter().collect();
        let mut socket_of_node = vec![None; topology.node_count()];
        for (socket, &node) in node_of_socket.iter().enumerate() {
            socket_of_node[node] = Some(socket);
        }
        let mut seen_cores = IndexSet::new();
        let place = |cpu: &crate::topology::Cpu| {
            if cpu.isolated {
                return None;
            }
            let is_first = !seen_cores.contains(cpu.core);
            seen_cores.insert(cpu.core);
            Some((socket_of_node[cpu.node]?, is_first))
        };
        let layout = Layout::new(topology.cpus().iter().map(place));
        Self { layout, node_of_socket, socket_of_node }
    }

    pub(super) fn node(&self, socket: usize) -> usize {
        self.node_of_socket[socket]
    }

    /// The socket of a node with CPUs.
    pub(super) fn socket(&self, node: usize) -> Option<usize> {
        self.socket_of_node[node]
    }
}

/// What every CPU does, and the index of its thread in the model.
pub(super) fn uses(
    model: &Model,
    topology: &Topology,
    sockets: &Sockets,
) -> (Vec<Use>, Vec<Option<usize>>) {
    let mut busiest: Vec<Option<usize>> = vec![None; topology.cpu_count()];
    for (index, thread) in model.threads.iter().enumerate() {
        let is_busier = |other: usize| model.threads[other].cpu_share < thread.cpu_share;
        if thread.cpu_share >= MIN_CPU_SHARE && busiest[thread.cpu].is_none_or(is_busier) {
            busiest[thread.cpu] = Some(index);
        }
    }
    let cpu_use = |(cpu, thread): (usize, &Option<usize>)| match *thread {
        _ if topology.cpu(cpu).isolated => Use::Reserved,
        None => Use::Idle,
        Some(index) => running(model, &model.threads[index], sockets),
    };
    let uses = busiest.iter().enumerate().map(cpu_use).collect();
    (uses, busiest)
}

fn running(model: &Model, thread: &Thread, sockets: &Sockets) -> Use {
    let app = &model.apps[thread.app];
    if app.exempt.or(thread.exempt).is_some() {
        return Use::Reserved;
    }
    let rates = &thread.rates;
    Use::Thread(Running {
        tid: thread.tid,
        pid: Some(app.pid),
        // A rate that could not be sensed sets no flag.
        coherence: rates.coherence_remote_per_s.unwrap_or(0.0),
        sharing: rates.coherence_local_per_s.unwrap_or(0.0),
        memory: rates.memory_per_s.unwrap_or(0.0),
        remote: rates.remote_dram_per_s.unwrap_or(0.0),
        instructions_per_cycle: rates.ipc,
        stalls_per_coherence: rates.stalls_per_coherence,
        home: home(app, thread, sockets),
        allowed: Some(thread.allowed.clone()),
    })
}

/// The thread's own samples say best; the pages of a process only if one node holds most of them, or if the thread is alone in it.
fn home(app: &App, thread: &Thread, sockets: &Sockets) -> DataHome {
    let sampled =
        thread.accesses_by_node.as_ref().filter(|counts| counts.iter().sum::<u32>() >= MIN_SAMPLES);
    if let Some(counts) = sampled {
        return dominant(counts.iter().map(|&count| f64::from(count)), sockets);
    }
    let Some(memory) =
        app.memory.as_ref().filter(|memory| memory.iter().any(|bytes| *bytes > Bytes(0)))
    else {
        return DataHome::Unknown;
    };
    match dominant(memory.iter().map(|bytes| bytes.0 as f64), sockets) {
        DataHome::Scattered if app.threads.len() > 1 => DataHome::Unknown,
        home => home,
    }
}

/// The socket with more than half; a node without CPUs is nobody's socket, so its data is as good as scattered.
fn dominant(shares: impl Iterator<Item = f64> + Clone, sockets: &Sockets) -> DataHome {
    let total: f64 = shares.clone().sum();
    let node = shares.clone().position(|share| share > MIN_HOME_SHARE * total);
    let socket = node.and_then(|node| sockets.socket_of_node[node]);
    socket.map_or(DataHome::Scattered, DataHome::Socket)
}
