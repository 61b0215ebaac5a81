//! Measurements at a moment: figures of the window on which the controller decided.

use std::collections::BTreeMap;

use rondpoint_core::cost::{CAUSES, Cause, CostModel, Facts, Price, lost_to_latency};
use rondpoint_core::model::{App, Deviation, Rung, Traffic, TrafficSource};
use rondpoint_core::units::LINE_BYTES;
use rondpoint_core::{Bytes, Model, Pid, Topology, model};
use serde::Serialize;

/// Threads of one process that are kept, the busiest first. A screen shows fewer, and a recording
/// of thousands of threads over hours still fits into memory.
const MOST_THREADS: usize = 256;

/// What a window told. Nodes are indices of the recording's machine, whose numbers `nodes` has; a
/// value without a sensor is `None`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Known {
    /// The kernel's number of each node, in the order of all lists by node.
    pub(crate) nodes: Vec<u32>,
    /// Length of the window.
    pub(crate) seconds: f64,
    /// The best sensor that told something.
    pub(crate) sensor: Rung,
    /// 0 (nothing is known) to 1 (every source was read, nothing was lost).
    pub(crate) confidence: f64,
    /// Rates by `[accessing node][holding node]`, per microsecond.
    pub(crate) traffic_per_us: Option<Vec<Vec<f64>>>,
    /// What the rates count.
    pub(crate) unit: Unit,
    /// Accesses to the own node, of all.
    pub(crate) local_percent: Option<f64>,
    /// Standard deviation over mean of what the controllers serve.
    pub(crate) imbalance_percent: Option<f64>,
    /// Mean latency of an access to memory.
    pub(crate) latency_cycles: Option<f64>,
    /// What each node's memory serves.
    pub(crate) controllers: Vec<Served>,
    /// Use of each directed link, 0 to 1, in the order of the machine's links.
    pub(crate) link_use: Option<Vec<f64>>,
    /// Free memory by node.
    pub(crate) free_bytes: Option<Vec<u64>>,
    /// Managed processes, ascending by number.
    pub(crate) processes: Vec<Process>,
}

/// What rates of traffic count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    /// Cache lines that were asked of memory.
    Requests,
    /// Page faults of the kernel's NUMA balancing: proportions hold, rates do not.
    HintFaults,
}

/// What the memory of a node serves.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Served {
    /// Of what all nodes serve, in percent.
    pub(crate) of_all_percent: f64,
    /// Of the controller's bandwidth, in percent, where that is known.
    pub(crate) of_bandwidth_percent: Option<f64>,
}

/// A managed process.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// 100 is one CPU.
    pub(crate) cpu_percent: f64,
    /// Share of its CPU time that it loses because its accesses take longer than local ones on an
    /// idle machine.
    pub(crate) lost: Option<Price>,
    /// What the cost model says that it loses, by cause; empty where too little is known.
    pub(crate) lost_by_cause: Vec<Loss>,
    pub(crate) local_percent: Option<f64>,
    pub(crate) latency_cycles: Option<f64>,
    /// Its own accesses, per microsecond.
    pub(crate) per_us: Option<f64>,
    /// Resident memory by node.
    pub(crate) memory_bytes: Option<Vec<u64>>,
    /// Threads by the node on which they ran last.
    pub(crate) threads_by_node: Vec<u32>,
    /// The busiest threads, by number.
    pub(crate) threads: Vec<Thread>,
    /// Why it is not to be touched, if so.
    pub(crate) exempt: Option<String>,
}

/// What a process loses by one cause.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Loss {
    pub(crate) cause: Cause,
    /// Of the time that its threads ask for.
    pub(crate) percent: f64,
}

/// A thread.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) cpu: usize,
    /// The node of that CPU.
    pub(crate) node: usize,
    pub(crate) cpu_percent: f64,
    /// Share of its cycles in which it waits for memory.
    pub(crate) stalled_percent: Option<f64>,
    /// Sampled accesses by the node that holds the page.
    pub(crate) accesses_by_node: Option<Vec<u32>>,
}

impl Known {
    /// Of a window; `counts_requests`: the machine's requests to memory were counted.
    pub(super) fn of(window: &Model, topology: &Topology, counts_requests: bool) -> Self {
        let traffic = window.traffic.as_ref();
        let faults =
            |app: &App| app.traffic.is_some() && app.traffic_source == TrafficSource::HintFaults;
        let mut lost = lost_by_cause(window, topology);
        let unit = match !counts_requests && window.apps.iter().any(faults) {
            true => Unit::HintFaults,
            false => Unit::Requests,
        };
        let nodes = (0..topology.node_count()).map(|node| topology.kernel_node(node)).collect();
        Self {
            nodes,
            seconds: window.elapsed.seconds(),
            sensor: window.sensing.rung,
            confidence: window.sensing.confidence,
            traffic_per_us: traffic.map(rows),
            unit,
            local_percent: traffic.and_then(Traffic::local_percent),
            imbalance_percent: traffic
                .and_then(|all| all.imbalance_percent(Deviation::Population, topology)),
            latency_cycles: window.latency_cycles,
            controllers: traffic.map_or_else(Vec::new, |all| served(all, topology, unit)),
            link_use: window.link_use.clone(),
            free_bytes: window.free_memory.as_deref().map(bytes),
            processes: window
                .apps
                .iter()
                .map(|app| Process {
                    lost_by_cause: lost.remove(&app.pid).unwrap_or_default(),
                    ..process(window, topology, app)
                })
                .collect(),
        }
    }

    /// The process with this number.
    pub(crate) fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.iter().find(|process| process.pid == pid)
    }
}

fn rows(traffic: &Traffic) -> Vec<Vec<f64>> {
    traffic.requests_per_us.rows().map(<[f64]>::to_vec).collect()
}

fn bytes(nodes: &[Bytes]) -> Vec<u64> {
    nodes.iter().map(|bytes| bytes.0).collect()
}

fn served(traffic: &Traffic, topology: &Topology, unit: Unit) -> Vec<Served> {
    let load = traffic.load_per_us();
    let all: f64 = load.iter().sum();
    let of_node = |(node, load): (usize, &f64)| Served {
        of_all_percent: if all > 0.0 { 100.0 * load / all } else { 0.0 },
        of_bandwidth_percent: topology
            .controller_bytes_per_s(node)
            .filter(|most| unit == Unit::Requests && *most > 0.0)
            .map(|most| 100.0 * load * 1e6 * LINE_BYTES as f64 / most),
    };
    load.iter().enumerate().map(of_node).collect()
}

/// What each process loses by cause, where its stalls or its latency are known.
pub(crate) fn lost_by_cause(window: &Model, topology: &Topology) -> BTreeMap<Pid, Vec<Loss>> {
    let facts = Facts::of(window, topology);
    let is_known = |pid: &Pid| {
        let evidence = facts.evidence(*pid);
        evidence.is_some_and(|one| one.counts_stalls || one.latency_accesses > 0.0)
    };
    let pids: Vec<Pid> = window.apps.iter().map(|app| app.pid).filter(is_known).collect();
    let lost = CostModel.lost(&facts, &facts.present(&pids));
    let by_cause = |process: &rondpoint_core::cost::ProcessLoss| {
        let percent = |cause| Loss { cause, percent: process.by(cause) / 1e7 };
        CAUSES.into_iter().map(percent).collect()
    };
    lost.processes.iter().map(|process| (process.pid, by_cause(process))).collect()
}

fn process(window: &Model, topology: &Topology, app: &App) -> Process {
    let mut threads_by_node = vec![0; topology.node_count()];
    let mut threads: Vec<&model::Thread> = window.threads_of(app).iter().collect();
    for thread in &threads {
        threads_by_node[topology.node_of_cpu(thread.cpu)] += 1;
    }
    threads.sort_by(|a, b| b.cpu_share.total_cmp(&a.cpu_share).then(a.tid.cmp(&b.tid)));
    threads.truncate(MOST_THREADS);
    threads.sort_by_key(|thread| thread.tid);
    Process {
        pid: app.pid.0,
        cpu_percent: app.cpu_percent,
        lost: lost_to_latency(window, topology, app),
        lost_by_cause: Vec::new(),
        local_percent: app.traffic.as_ref().and_then(Traffic::local_percent),
        latency_cycles: app.latency_cycles,
        per_us: app.traffic.as_ref().map(Traffic::total_per_us),
        memory_bytes: app.memory.as_deref().map(bytes),
        threads_by_node,
        threads: threads.into_iter().map(|thread| self::thread(topology, thread)).collect(),
        exempt: app.exempt.map(|exemption| exemption.to_string()),
    }
}

fn thread(topology: &Topology, thread: &model::Thread) -> Thread {
    Thread {
        tid: thread.tid.0,
        cpu: thread.cpu,
        node: topology.node_of_cpu(thread.cpu),
        cpu_percent: 100.0 * thread.cpu_share,
        stalled_percent: thread.rates.stall_share.map(|share| 100.0 * share),
        accesses_by_node: thread.accesses_by_node.clone(),
    }
}
