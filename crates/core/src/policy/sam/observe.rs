//! From the model to SAM's input: one thread for each CPU, sockets, and the place of data.

use super::latest::Rates;
use super::view::{DataHome, Layout, Running, Use};
use crate::index_set::IndexSet;
use crate::model::{App, MIN_HOME_SHARE, Model, SampledHome, Thread};
use crate::topology::Topology;
use crate::units::Bytes;
use alloc::vec;
use alloc::vec::Vec;

/// SAM's sockets and the nodes behind them. Each node with CPUs is one socket, in node order.
pub(super) struct Sockets {
    pub(super) layout: Layout,
    node_of_socket: Vec<usize>,
    socket_of_node: Vec<Option<usize>>,
}

impl Sockets {
    /// The sockets of a topology. Isolated CPUs belong to none.
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

    /// The node of a socket.
    pub(super) fn node(&self, socket: usize) -> usize {
        self.node_of_socket[socket]
    }

    /// The socket of a node; `None` for a node without CPUs.
    pub(super) fn socket(&self, node: usize) -> Option<usize> {
        self.socket_of_node[node]
    }
}

/// The state of each CPU, and the model's index of the thread on it. Of several threads on one CPU
/// it is the busiest. `latest`: the rates of each thread of the model.
pub(super) fn uses(
    model: &Model,
    topology: &Topology,
    sockets: &Sockets,
    latest: &[Rates],
) -> (Vec<Use>, Vec<Option<usize>>) {
    let mut busiest: Vec<Option<usize>> = vec![None; topology.cpu_count()];
    for (index, thread) in model.threads.iter().enumerate() {
        let is_busier = |other: usize| model.threads[other].cpu_share < thread.cpu_share;
        if thread.is_running() && busiest[thread.cpu].is_none_or(is_busier) {
            busiest[thread.cpu] = Some(index);
        }
    }
    let cpu_use = |(cpu, thread): (usize, &Option<usize>)| match *thread {
        _ if topology.cpu(cpu).isolated => Use::Reserved,
        None => Use::Idle,
        Some(index) => running(model, &model.threads[index], &latest[index], sockets),
    };
    let uses = busiest.iter().enumerate().map(cpu_use).collect();
    (uses, busiest)
}

/// The thread as SAM sees it; reserved if it or its process is exempt.
fn running(model: &Model, thread: &Thread, rates: &Rates, sockets: &Sockets) -> Use {
    let app = &model.apps[thread.app];
    if app.exempt.or(thread.exempt).is_some() {
        return Use::Reserved;
    }
    Use::Thread(Running {
        tid: thread.tid,
        pid: Some(app.pid),
        // An unknown rate sets no flag.
        coherence: rates.coherence.unwrap_or(0.0),
        sharing: rates.sharing.unwrap_or(0.0),
        memory: rates.memory.unwrap_or(0.0),
        remote: rates.remote.unwrap_or(0.0),
        instructions_per_cycle: thread.rates.ipc,
        stalls_per_coherence: thread.rates.stalls_per_coherence,
        home: home(app, thread, sockets),
        is_uncounted: rates.is_incomplete,
        majority_socket: majority_node(thread).and_then(|node| sockets.socket(node)),
        allowed: Some(thread.allowed.clone()),
    })
}

/// The node with more than half of a thread's sampled accesses.
fn majority_node(thread: &Thread) -> Option<usize> {
    let accesses = thread.accesses_by_node.as_ref()?;
    let total: u32 = accesses.iter().sum();
    accesses.iter().position(|&count| 2 * count > total)
}

/// The place of a thread's data, by its own access samples, else by the pages of its process. The
/// pages of a process with several threads count only if one node holds more than
/// [`MIN_HOME_SHARE`].
fn home(app: &App, thread: &Thread, sockets: &Sockets) -> DataHome {
    // The data of a node without CPUs is remote from every socket, as scattered data is.
    let on = |node: usize| sockets.socket(node).map_or(DataHome::Scattered, DataHome::Socket);
    match thread.sampled_home() {
        SampledHome::Node(node) => return on(node),
        SampledHome::Scattered => return DataHome::Scattered,
        SampledHome::Unknown => {}
    }
    let Some(memory) =
        app.memory.as_ref().filter(|memory| memory.iter().any(|bytes| *bytes > Bytes(0)))
    else {
        return DataHome::Unknown;
    };
    let total: Bytes = memory.iter().fold(Bytes(0), |sum, bytes| sum + *bytes);
    let home = memory.iter().position(|bytes| bytes.0 as f64 > MIN_HOME_SHARE * total.0 as f64);
    match home.map_or(DataHome::Scattered, on) {
        DataHome::Scattered if app.threads.len() > 1 => DataHome::Unknown,
        home => home,
    }
}
