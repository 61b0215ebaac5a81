//! Finds the processes that N-MASS may place and the cores that are free for them. Converts the
//! model into the algorithm's plain numbers.

use super::{Penalty, Process, Processor};
use crate::CpuSet;
use crate::model::{App, Model, SampledHome, Thread};
use crate::topology::Topology;
use crate::units::{Bytes, Pid, Tid};
use alloc::vec::Vec;

/// Share of a process's memory above which a node is its home [inferred from "one home per
/// process"].
const MIN_HOME_SHARE: f64 = 0.50;

/// A single-threaded process with one home.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) pid: Pid,
    pub(super) tid: Tid,
    pub(super) mpki: f64,
    pub(super) cycles_per_instruction: Option<f64>,
    pub(super) instructions_per_s: f64,
    pub(super) home: usize,
    pub(super) cpu: usize,
    pub(super) node: usize,
    pub(super) domain: usize,
    pub(super) allowed: CpuSet,
}

impl Candidate {
    fn new(app: &App, thread: &Thread, topology: &Topology) -> Option<Self> {
        let is_exempt = app.exempt.or(thread.exempt).is_some();
        if is_exempt || !thread.is_running() {
            return None;
        }
        let allowed = topology.usable(&thread.allowed);
        Some(Self {
            pid: app.pid,
            tid: thread.tid,
            mpki: thread.rates.mpki?,
            cycles_per_instruction: thread.rates.cpi(),
            instructions_per_s: thread.rates.instructions_per_s.unwrap_or(0.0),
            home: home(app, thread, topology)?,
            cpu: thread.cpu,
            node: topology.node_of_cpu(thread.cpu),
            domain: topology.domain_of_cpu(thread.cpu),
            allowed,
        })
    }

    /// The candidate as input of the algorithm.
    pub(super) fn process(&self, penalty: &Penalty, topology: &Topology) -> Process {
        Process {
            mpki: self.mpki,
            penalty: penalty.value,
            home: self.home,
            cpu: first_of_core(self.cpu, topology),
            allowed: Some(self.allowed.clone()),
        }
    }
}

/// The processes that N-MASS may place, ascending by pid.
pub(super) fn candidates(model: &Model, topology: &Topology) -> Vec<Candidate> {
    let single_threaded = |app: &&App| app.threads.len() == 1;
    let of_app = |app: &App| Candidate::new(app, model.threads_of(app).first()?, topology);
    model.apps.iter().filter(single_threaded).filter_map(of_app).collect()
}

/// The home of a process: the node of most of its access samples, else of most of its resident
/// pages. The resident pages of a small process are mostly the program file, which is on the node
/// of its first reader. Scattered memory, or memory on a node without CPUs, is no home.
fn home(app: &App, thread: &Thread, topology: &Topology) -> Option<usize> {
    let resident = || {
        let memory = app.memory.as_ref()?;
        let total: Bytes = memory.iter().fold(Bytes(0), |sum, bytes| sum + *bytes);
        let home = app.home()?;
        (memory[home].0 as f64 > MIN_HOME_SHARE * total.0 as f64).then_some(home)
    };
    let home = match thread.sampled_home() {
        SampledHome::Node(node) => Some(node),
        SampledHome::Scattered | SampledHome::Unknown => resident(),
    };
    home.filter(|&node| !topology.cpus_of_node(node).is_empty())
}

/// The processors of a run, and the cache domain of each. Their cores are those that only
/// candidates use, with one CPU each. A domain without such a core is left out.
pub(super) fn processors(
    model: &Model,
    topology: &Topology,
    candidates: &[Candidate],
) -> (Vec<Processor>, Vec<usize>) {
    let mut own: Vec<Tid> = candidates.iter().map(|candidate| candidate.tid).collect();
    own.sort_unstable();
    let is_candidate = |thread: &Thread| own.binary_search(&thread.tid).is_ok();
    let busy = model.threads.iter().filter(|thread| thread.is_running() && !is_candidate(thread));
    let used: CpuSet = busy.filter_map(|thread| first_of_core(thread.cpu, topology)).collect();
    let free = |&cpu: &usize| {
        !topology.cpu(cpu).isolated
            && first_of_core(cpu, topology) == Some(cpu)
            && !used.contains(cpu)
    };
    (0..topology.domain_count())
        .filter_map(|domain| {
            let cpus: Vec<usize> = topology.cpus_of_domain(domain).iter().filter(free).collect();
            let node = topology.node_of_cpu(*cpus.first()?);
            Some((Processor { node, cpus }, domain))
        })
        .unzip()
}

/// The lowest CPU of a CPU's core that is not isolated.
fn first_of_core(cpu: usize, topology: &Topology) -> Option<usize> {
    let same = topology.cpus_of_domain(topology.domain_of_cpu(cpu));
    let core = topology.cpu(cpu).core;
    same.iter().find(|&other| topology.cpu(other).core == core && !topology.cpu(other).isolated)
}
