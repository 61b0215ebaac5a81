//! Brings all threads of a process to one node, and its memory after them, where they fit.
//!
//! Threads of a service use each other's data: any of them answers any request. On several nodes, a
//! part of their accesses is remote wherever the pages lie, and no move of pages or of single
//! threads wins anything. On one node all accesses are local, and lines go through one cache.
//! numad(8) places processes in this way by default. Here the cost model decides: it prices the
//! queue at the one controller and the crowd in the one cache. Outside of `auto` nothing is priced.
//! A trial undoes a loss there, unless all memory has followed.
//!
//! A process fits a node if each of its running threads has a core there that no other process
//! uses, and its memory fits too. Sampled pages, and pages between them, follow the threads for
//! [`FOLLOWING`]. If most remote accesses are left then, all memory follows at once. Then the trial
//! is judged. Carrefour brings the rest later. If the threads on the node want more than its CPUs,
//! the process may use all nodes again.

mod pages;
mod reason;
mod room;

pub use self::reason::GatherReason;

use self::room::Room;

use super::carrefour::preset::FINAL;
use super::renamed::Renamed;
use super::{Policy, Registered};
use crate::index_set::CpuSet;
use crate::limits::RESERVE_SHARE;
use crate::model::{App, Model, Thread};
use crate::plan::{
    Action, Kind, Mechanism, NodeMove, Outcome, Plan, Proposal, Reason, Sampling, StepResult,
};
use crate::random::Random;
use crate::topology::Topology;
use crate::trial::Judged;
use crate::units::{Bytes, Nanos, Pid};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// Its line in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: "gather",
    about: "threads that use the same data: all to one node, and their memory after them",
    presets: &[],
    make: |preset| preset.is_none().then(|| Box::new(Gather::default()) as Box<dyn Policy>),
    in_auto: Some(|| Box::new(Gather::default())),
};

/// Time for which pages follow the threads before the trial is judged (our choice: that of
/// AsymSched).
const FOLLOWING: Nanos = Nanos::from_secs(2);
/// Time between two decisions (our choice: that of Carrefour).
const PERIOD: Nanos = Nanos::from_secs(1);
/// Least age of a process (our choice). A younger process still starts its threads.
const YOUNG: Nanos = Nanos::from_millis(500);
/// Least share of its accesses that is remote, for a process to be gathered (our choice). Below it
/// the cost model finds no gain that a trial could tell from noise.
const LEAST_REMOTE: f64 = 0.05;
/// Least share of a process's CPU time that its running threads use (our choice). Threads that
/// sleep most of the time have little to win, and may wait for another process on another node.
const MOST_OF_IT: f64 = 0.9;
/// Share of the former remote accesses above which all memory follows at the end of [`FOLLOWING`]
/// (our choice). It is too large to be sampled in that time, or its pages were refused.
const MOST_LEFT: f64 = 0.5;
/// The rate at which pages are sampled while they follow.
const ACCURATE: Sampling = FINAL.sampling.accurate;

/// State of the policy.
#[derive(Debug, Clone, Default)]
pub struct Gather {
    gathered: BTreeMap<Pid, Gathered>,
}

/// A process that was brought to a node.
#[derive(Debug, Clone)]
struct Gathered {
    /// Start time of the process. It tells a reused pid.
    started: Nanos,
    node: usize,
    /// Share of its accesses that was remote before.
    remote: f64,
    phase: Phase,
    /// Whether a thread was released since.
    is_released: bool,
}

#[derive(Debug, Clone)]
enum Phase {
    /// The move of its threads was proposed.
    Proposed,
    /// Its threads have moved. Pages follow from the next decision on.
    Moved,
    /// Pages follow until this time. These were sent already.
    Following { until: Nanos, sent: BTreeSet<u64> },
    /// The move of all its memory was proposed.
    Bulk,
    /// It stays there until it is released. After it has left, it is as if it was never gathered.
    Settled,
}

impl Gather {
    /// Forgets processes that ended, and proposals that were not carried out.
    fn forget(&mut self, model: &Model) {
        self.gathered.retain(|pid, gathered| {
            let is_same = model.app(*pid).is_some_and(|app| app.started == gathered.started);
            is_same && !matches!(gathered.phase, Phase::Proposed)
        });
    }

    fn is_settled(&self, pid: Pid) -> bool {
        self.gathered.get(&pid).is_some_and(|one| matches!(one.phase, Phase::Settled))
    }

    fn of_app(
        &mut self,
        model: &Model,
        topology: &Topology,
        load: &Load,
        index: usize,
    ) -> Vec<Proposal> {
        let app = &model.apps[index];
        if let Some(gathered) = self.gathered.get_mut(&app.pid) {
            let node = gathered.node;
            let steps = gathered.follow(model, topology, index);
            if !matches!(gathered.phase, Phase::Settled) {
                return steps;
            }
            if !(gathered.is_released && has_left(model, topology, app, node)) {
                return [steps, release(model, topology, load, app, node)].concat();
            }
        }
        let Some((node, remote, reason)) = place(model, topology, load, app) else {
            return Vec::new();
        };
        let (started, phase) = (app.started, Phase::Proposed);
        let gathered = Gathered { started, node, remote, phase, is_released: false };
        self.gathered.insert(app.pid, gathered);
        let movable = || {
            let threads = model.threads_of(app).iter().filter(|thread| thread.exempt.is_none());
            let with_cpus = threads.map(|thread| (thread, thread.usable_on(node, topology)));
            with_cpus.filter(|(_, cpus)| !cpus.is_empty())
        };
        let running = movable().filter(|(thread, _)| thread.is_running());
        let places = Room::of(model, topology, app, node).places(topology, running);
        let to_node = |(thread, cpus): (&Thread, CpuSet)| {
            affinity(app, thread, cpus, places.get(&thread.tid).copied(), reason)
        };
        movable().map(to_node).collect()
    }
}

impl Gathered {
    /// Pages that follow the threads now, and the rate at which they are sampled.
    fn follow(&mut self, model: &Model, topology: &Topology, index: usize) -> Vec<Proposal> {
        let app = &model.apps[index];
        let sampling = |follows| {
            let sampling = if follows { ACCURATE } else { Sampling::Off };
            let action = Action::SetSampling { pid: Some(app.pid), sampling };
            let reason = Reason::Gather(GatherReason::Sampling { follows });
            Proposal { policy: REGISTERED.name, action, reason }
        };
        let (until, mut sent) = match core::mem::replace(&mut self.phase, Phase::Settled) {
            Phase::Moved => (model.at + FOLLOWING, BTreeSet::new()),
            Phase::Following { until, sent } => (until, sent),
            Phase::Bulk => return Vec::new(),
            other => {
                self.phase = other;
                return Vec::new();
            }
        };
        let left = until.since(model.at);
        // The decision nearest to the end is the last one, because the host may be early or late.
        if left.0 <= PERIOD.0 / 2 {
            return core::iter::once(sampling(false))
                .chain(self.rest(model, topology, app))
                .collect();
        }
        let pages = pages::towards(model, index, self.node, &mut sent);
        self.phase = Phase::Following { until, sent };
        let mut steps = vec![sampling(true)];
        if !pages.is_empty() {
            let action = Action::MovePages { pid: app.pid, mechanism: Mechanism::Following, pages };
            let reason = Reason::Gather(GatherReason::Follows { node: self.node, left });
            steps.push(Proposal { policy: REGISTERED.name, action, reason });
        }
        steps
    }

    /// The move of all memory on other nodes, if most remote accesses are left although all threads
    /// have come.
    fn rest(&mut self, model: &Model, topology: &Topology, app: &App) -> Option<Proposal> {
        let threads = model.threads_of(app).iter();
        let running: Vec<&Thread> = threads.filter(|thread| thread.is_running()).collect();
        if running.iter().any(|thread| topology.node_of_cpu(thread.cpu) != self.node) {
            return None;
        }
        let least = LEAST_REMOTE.max(MOST_LEFT * self.remote);
        let remote = remote_share(app, &running).filter(|now| *now > least)?;
        let held = app.memory.as_ref()?;
        let nodes = NodeMove::all_to(self.node, held);
        let memory = nodes.iter().fold(Bytes(0), |all, step| all + held[step.from]);
        if nodes.is_empty() {
            return None;
        }
        self.phase = Phase::Bulk;
        let action = Action::MoveProcessMemory { pid: app.pid, nodes, freeze: false, memory };
        let remote_percent = 100.0 * remote;
        let reason = Reason::Gather(GatherReason::Rest { node: self.node, remote_percent });
        Some(Proposal { policy: REGISTERED.name, action, reason })
    }
}

/// The node to which a process is to be brought, the remote share of its accesses, and the reason.
/// `None` if it fits no node or has nothing to win.
fn place(
    model: &Model,
    topology: &Topology,
    load: &Load,
    app: &App,
) -> Option<(usize, f64, GatherReason)> {
    let has_copies = app.replicas.as_ref().is_some_and(|copies| !copies.is_empty());
    let may_move = app.exempt.is_none() && app.policy_read.is_none() && !has_copies;
    if !may_move || app.run_time(model) < YOUNG {
        return None;
    }
    let running: Vec<&Thread> =
        model.threads_of(app).iter().filter(|thread| thread.is_running()).collect();
    let nodes: BTreeSet<usize> = running.iter().map(|t| topology.node_of_cpu(t.cpu)).collect();
    let remote = remote_share(app, &running)?;
    let run_time: f64 = running.iter().map(|thread| thread.cpu_share).sum();
    let is_theirs = 100.0 * run_time >= MOST_OF_IT * app.cpu_percent;
    if running.len() < 2 || !is_theirs || remote < LEAST_REMOTE {
        return None;
    }
    let memory = app.memory.as_ref()?;
    let all: u64 = memory.iter().map(|bytes| bytes.0).sum();
    let here = |node: usize| running.iter().filter(|t| topology.node_of_cpu(t.cpu) == node).count();
    let has_room = |node: usize| {
        let comes = all - memory[node].0;
        let reserve = (topology.memory(node).0 as f64 * RESERVE_SHARE) as u64;
        let free = model.free_memory.as_ref();
        comes == 0 || free.is_none_or(|free| free[node].0 >= comes + reserve)
    };
    let fits = |node: &usize| {
        let free = load.cores[*node].saturating_sub(load.running[*node] - here(*node));
        let may = |thread: &&Thread| {
            thread.exempt.is_none() && !thread.usable_on(*node, topology).is_empty()
        };
        topology.has_memory(*node)
            && app.may_use_node(*node)
            && has_room(*node)
            && running.len() <= free
            && running.iter().all(may)
    };
    let best = (0..topology.node_count())
        .filter(fits)
        .max_by_key(|&node| (memory[node], here(node), usize::MAX - node))?;
    let reason = GatherReason::Threads {
        node: best,
        threads: running.len(),
        nodes: nodes.len(),
        remote_percent: 100.0 * remote,
        memory: Bytes(all - memory[best].0),
    };
    Some((best, remote, reason))
}

/// Share of a process's accesses that goes to other nodes: by its traffic, or else by the counters
/// of its threads. `None` if neither is known.
fn remote_share(app: &App, threads: &[&Thread]) -> Option<f64> {
    if let Some(traffic) = &app.traffic {
        return traffic.local_percent().map(|local| 1.0 - local / 100.0);
    }
    let counted = threads.iter().filter_map(|thread| {
        let rates = &thread.rates;
        Some((thread.cpu_share, rates.remote_dram_per_s?, rates.memory_per_s?))
    });
    let (remote, all) = counted.fold((0.0, 0.0), |(remote, all), (share, of, rate)| {
        (remote + share * of, all + share * rate)
    });
    (all > 0.0).then(|| (remote / all).clamp(0.0, 1.0))
}

/// Whether the threads of a process may run on other nodes again, and some do. A release that was
/// undone has narrowed them again.
fn has_left(model: &Model, topology: &Topology, app: &App, node: usize) -> bool {
    let threads = model.threads_of(app);
    let is_away = |thread: &Thread| thread.is_running() && topology.node_of_cpu(thread.cpu) != node;
    threads.iter().any(is_away) && !threads.iter().any(|thread| thread.is_narrowed)
}

/// Lets the threads of a process run on all nodes again, if its threads and others there want more
/// than its CPUs.
fn release(
    model: &Model,
    topology: &Topology,
    load: &Load,
    app: &App,
    node: usize,
) -> Vec<Proposal> {
    let cpus = topology.usable(topology.cpus_of_node(node)).len();
    let threads = load.running[node];
    let is_crowded = match load.wanted[node] {
        Some(wanted) => wanted > cpus as f64,
        None => threads > cpus,
    };
    if !is_crowded {
        return Vec::new();
    }
    let is_held = |one: &&Thread| {
        one.exempt.is_none() && one.is_narrowed && topology.node_of_cpu(one.cpu) == node
    };
    let held = model.threads_of(app).iter().filter(is_held);
    let reason = GatherReason::Release { node, threads, cpus };
    held.map(|t| affinity(app, t, topology.usable(&t.allowed), None, reason)).collect()
}

/// The load of each node by all processes.
struct Load {
    /// Usable cores.
    cores: Vec<usize>,
    /// Running threads.
    running: Vec<usize>,
    /// CPUs that the threads want; `None` if the kernel does not count how long they wait.
    wanted: Vec<Option<f64>>,
}

impl Load {
    fn of(model: &Model, topology: &Topology) -> Self {
        let cores = |node| {
            let usable = topology.usable(topology.cpus_of_node(node));
            usable.iter().map(|cpu| topology.cpu(cpu).core).collect::<BTreeSet<usize>>().len()
        };
        let (mut running, mut wanted) =
            (vec![0; topology.node_count()], vec![Some(0.0); topology.node_count()]);
        for thread in &model.threads {
            let node = topology.node_of_cpu(thread.cpu);
            running[node] += usize::from(thread.is_running());
            let asked = thread.queued_share.map(|_| thread.wanted_share());
            wanted[node] = wanted[node].zip(asked).map(|(sum, asked)| sum + asked);
        }
        Self { cores: (0..topology.node_count()).map(cores).collect(), running, wanted }
    }
}

fn affinity(
    app: &App,
    thread: &Thread,
    cpus: CpuSet,
    via: Option<usize>,
    reason: GatherReason,
) -> Proposal {
    let action = Action::SetAffinity { pid: app.pid, tid: thread.tid, cpus, via };
    Proposal { policy: REGISTERED.name, action, reason: Reason::Gather(reason) }
}

impl Policy for Gather {
    fn propose(&mut self, model: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        self.forget(model);
        let load = Load::of(model, topology);
        let apps = 0..model.apps.len();
        apps.flat_map(|index| self.of_app(model, topology, &load, index)).collect()
    }

    fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        for (step, outcome) in plan.results(outcomes) {
            let Some(gathered) = step.action.pid().and_then(|pid| self.gathered.get_mut(&pid))
            else {
                continue;
            };
            match step.reason {
                _ if outcome.result != StepResult::Done => {}
                Reason::Gather(GatherReason::Threads { .. }) => gathered.phase = Phase::Moved,
                Reason::Gather(GatherReason::Release { .. }) => gathered.is_released = true,
                _ => {}
            }
        }
    }

    fn judge(&mut self, judged: &[Judged], _: Nanos) {
        let own = |one: &&Judged| one.policy == REGISTERED.name && one.verdict.is_undone();
        for one in judged.iter().filter(own) {
            // All memory that came stays, and so do the threads. They are released in a crowd.
            if one.kinds.contains(&Kind::Bulk) {
                continue;
            }
            let is_gathering = one.kinds.contains(&Kind::Pages(Mechanism::Following));
            // A release that was undone leaves the process where it was.
            if is_gathering || !self.is_settled(one.pid) {
                self.gathered.remove(&one.pid);
            }
        }
    }

    fn rename(&mut self, _: &Topology, renamed: &Renamed) {
        if let Some(gathered) = self.gathered.get_mut(&renamed.pid) {
            gathered.node = renamed.image(gathered.node);
        }
    }

    /// True until the pages have followed.
    fn is_under_way(&self, pid: Pid) -> bool {
        let phase = self.gathered.get(&pid).map(|gathered| &gathered.phase);
        matches!(phase, Some(Phase::Moved | Phase::Following { .. } | Phase::Bulk))
    }

    fn is_any_under_way(&self) -> bool {
        self.gathered.keys().any(|pid| self.is_under_way(*pid))
    }

    fn wants_samples(&self, pid: Pid) -> bool {
        let gathered = self.gathered.get(&pid);
        gathered.is_some_and(|one| matches!(one.phase, Phase::Following { .. }))
    }

    fn full_sampling(&self) -> Option<u64> {
        ACCURATE.cycles()
    }

    fn period(&self) -> Nanos {
        PERIOD
    }
}
