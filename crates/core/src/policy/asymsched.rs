//! AsymSched: which nodes a group of communicating nodes occupies, on machines with links that
//! differ in bandwidth and direction.
//!
//! Lepers, Quéma and Fedorova, "Thread and Memory Placement on NUMA Systems: Asymmetry Matters",
//! USENIX ATC 2015. Bandwidth counts more than hops: some pairs two hops apart have more of it than
//! pairs one hop apart. All threads of a node move together, so the number of nodes and the threads
//! on each stay the same.
//!
//! The steps:
//!
//! 1. [`cluster`] joins the nodes of a process with threads that use each other's memory or caches.
//! 2. [`search`] finds the placement that moves least among those within 10 % of the best weighted
//!    bandwidth.
//! 3. [`decision`] drops it if it costs some application more than 5 % of its run time.
//! 4. `memory` follows the threads page by page for two seconds. All of it follows if more than 90
//!    % of the accesses still go to the old nodes. Copies of its pages are dropped before.
//! 5. With our preset, memory away from all threads of its process (`away`) follows too, also where
//!    the threads stay.
//!
//! It never moves threads of one node apart and never touches exempt threads; a node with an exempt
//! thread is left alone. It cannot see sharing between processes, nor anything inside a node. The
//! paper enumerates all placements. The search here does not, and is exact up to 16 nodes.

mod away;
pub mod cluster;
pub mod decision;
mod least_movement;
mod local;
mod memory;
mod part;
pub mod preset;
pub mod problem;
mod reading;
mod reason;
pub mod search;
pub mod search_cache;
pub mod set_bandwidth;
mod subset;
mod table;
mod wide;

pub use decision::{Decision, Situation, Verdict, decide};
pub use preset::Preset;
pub use reason::{AsymSchedReason, PlacementReason};

use self::away::with_images;
use self::decision::Cost;
use self::memory::{Measured, Phase, Request, State};
use self::reading::Reading;
use self::search_cache::SearchCache;
use super::{Policy, Registered, carrefour};
use crate::model::{App, Model, Thread};
use crate::plan::{
    Action, Kind, Mechanism, NodeMove, Outcome, Plan, Proposal, Reason, Sampling, StepResult,
};
use crate::random::Random;
use crate::topology::Topology;
use crate::units::{Bytes, Nanos, Pid};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// AsymSched's entry in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: "asymsched",
    about: "whole nodes of threads, then their memory: the node sets with the most bandwidth between them",
    presets: &["measured", "published", "filtered", "equal-weights", "to-accessor"],
    make: |name| {
        let preset =
            Preset::ALL.into_iter().find(|preset| name.is_none_or(|name| name == preset.name))?;
        Some(Box::new(AsymSched::new(preset)) as Box<dyn Policy>)
    },
    in_auto: None,
};

/// Sampling while memory follows threads: Carrefour's accurate rate. AsymSched's own rate is not
/// published.
const ACCURATE: Sampling = carrefour::preset::FINAL.sampling.accurate;
/// Sampling at all other times: Carrefour's cheap rate, a fourth of the accurate one.
const CHEAP: Sampling = carrefour::preset::FINAL.sampling.cheap;

/// AsymSched with its state across intervals.
#[derive(Debug, Clone)]
pub struct AsymSched {
    preset: Preset,
    searches: SearchCache,
    states: BTreeMap<Pid, State>,
    measured: Measured,
    /// Time of the last decision.
    decided: Option<Nanos>,
    /// The last decision.
    last: Option<Decision>,
}

impl AsymSched {
    /// A policy of this preset without observations.
    #[must_use]
    pub fn new(preset: Preset) -> Self {
        Self {
            preset,
            searches: SearchCache::new(),
            states: BTreeMap::new(),
            measured: Measured::default(),
            decided: None,
            last: None,
        }
    }

    /// Whether some process is being moved: from the proposal for its threads until its memory has
    /// followed.
    #[must_use]
    pub fn is_any_moving(&self) -> bool {
        self.states.values().any(|state| state.phase != Phase::Stable)
    }

    /// The moves that the memory of a process still follows: each node that its threads left, with
    /// the node that they took. Empty for other processes.
    #[must_use]
    pub fn on_the_way(&self, pid: Pid) -> &[NodeMove] {
        match self.states.get(&pid).map(|state| &state.phase) {
            Some(Phase::Moved(moves) | Phase::Following { moves, .. }) => moves,
            Some(Phase::Stable | Phase::Proposed(_) | Phase::Bulk) | None => &[],
        }
    }

    /// Whether memory of a process follows its threads or comes to them. The full migration at the
    /// end counts if threads moved, because the price of their move included it. All memory that
    /// comes to threads that stayed has a price of its own.
    #[must_use]
    pub fn moves_memory(&self, pid: Pid) -> bool {
        let is_last = |state: &State| state.phase == Phase::Bulk && state.after_threads;
        !self.on_the_way(pid).is_empty() || self.states.get(&pid).is_some_and(is_last)
    }

    /// Time spent so far on moving the memory of a process (`A_tm`).
    #[must_use]
    pub fn migration_time(&self, pid: Pid) -> Nanos {
        self.states.get(&pid).map_or(Nanos(0), |state| state.migration_time)
    }

    /// The last decision, for reports. Its indices are those of the [`Situation`]: nodes with CPUs
    /// and managed applications, both ascending.
    #[must_use]
    pub fn last_decision(&self) -> Option<&Decision> {
        self.last.as_ref()
    }

    /// Seconds to migrate 10⁹ bytes. This host's own migrations give it if the preset measures and
    /// enough memory was moved, else the preset.
    #[must_use]
    pub fn seconds_per_gb(&self) -> f64 {
        let measured = self.measured.seconds_per_gb().filter(|_| self.preset.measures_cost);
        measured.unwrap_or(self.preset.seconds_per_gb)
    }

    /// Keeps one state for each process of the model. A reused pid gets a new one.
    fn update_states(&mut self, model: &Model) {
        self.states
            .retain(|pid, state| model.app(*pid).is_some_and(|app| app.started == state.started));
        for app in &model.apps {
            self.states
                .entry(app.pid)
                .or_insert_with(|| State { started: app.started, ..State::default() });
        }
    }

    /// Proposals for the memory of the applications whose threads moved.
    fn follow(&mut self, model: &Model) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        for (index, app) in model.apps.iter().enumerate() {
            let seconds_per_gb = self.seconds_per_gb();
            let state =
                self.states.get_mut(&app.pid).expect("every application of the model has a state");
            let Some(request) = state.step(model, index, &self.preset) else { continue };
            let step = request.proposal(app, state, &self.preset, (model.at, seconds_per_gb));
            if step.action.kind() == Kind::Bulk {
                proposals.extend(dropped_copies(app, &step));
            }
            proposals.push(step);
        }
        proposals
    }

    /// Proposes sampling rates where they change. Samples find the pages that must follow. In a
    /// stable process a few samples show which threads use which memory.
    fn sample(&mut self, model: &Model) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        for app in &model.apps {
            let Some(state) = self.states.get_mut(&app.pid) else { continue };
            let follows = state.wants_samples();
            let sampling = if follows { ACCURATE } else { CHEAP };
            if state.sampling != Some(sampling) {
                state.sampling = Some(sampling);
                proposals.push(Proposal {
                    policy: REGISTERED.name,
                    action: Action::SetSampling { pid: Some(app.pid), sampling },
                    reason: Reason::AsymSched(AsymSchedReason::Sampling { follows }),
                });
            }
        }
        proposals
    }

    /// Proposes a placement of the threads, unless some process is still being moved.
    fn place(&mut self, model: &Model, topology: &Topology) -> Vec<Proposal> {
        // The host's wake-up may come up to a tenth of a period early.
        let period = self.preset.period.0 - self.preset.period.0 / 10;
        let is_due = self.decided.is_none_or(|at| model.at.since(at).0 >= period);
        if !is_due || self.is_any_moving() {
            return Vec::new();
        }
        self.decided = Some(model.at);
        let migration_time = |pid| self.states[&pid].migration_time;
        let Some(reading) = Reading::new(model, topology, &migration_time, &self.preset) else {
            return Vec::new();
        };
        let seconds_per_gb = self.seconds_per_gb();
        let decision = decide(&reading.situation, &self.preset, seconds_per_gb, &mut self.searches);
        let mut proposals = Vec::new();
        match decision.verdict {
            Verdict::Move => {
                for cost in &decision.costs {
                    let app = &model.apps[reading.apps[cost.app]];
                    let (away, from_nodes_without_threads) = self.gather(&reading, &decision, cost);
                    let cost = cost.plus(from_nodes_without_threads, seconds_per_gb);
                    let steps = steps(&decision, &reading, &cost, from_nodes_without_threads);
                    proposals.extend(move_threads(model, topology, app, &steps, &self.preset));
                    let moves = steps.iter().map(|step| NodeMove { from: step.from, to: step.to });
                    self.states.entry(app.pid).or_default().phase =
                        Phase::Proposed(moves.chain(away).collect());
                }
            }
            Verdict::Stay => self.gather_for_staying_threads(model, &reading, &decision),
            Verdict::Symmetric | Verdict::NoCluster | Verdict::OverBudget => {}
        }
        self.last = Some(decision);
        proposals
    }

    /// The moves that bring an application's memory on nodes without its threads to them, and the
    /// size of that memory. Empty where these moves would exceed the application's budget.
    fn gather(
        &self,
        reading: &Reading,
        decision: &Decision,
        cost: &Cost,
    ) -> (Vec<NodeMove>, Bytes) {
        let image = |node| {
            let moved = decision.moves().find(|(from, _)| *from == node);
            moved.map_or(node, |(_, to)| to)
        };
        let (moves, memory) = with_images(&reading.away[cost.app], image);
        if cost.plus(memory, self.seconds_per_gb()).is_over() {
            return (Vec::new(), Bytes(0));
        }
        let of_machine = |(from, to)| NodeMove { from: reading.nodes[from], to: reading.nodes[to] };
        (moves.into_iter().map(of_machine).collect(), memory)
    }

    /// Starts to bring memory to well-placed threads from nodes where the application has none. It
    /// starts only above the preset's `least_remote_share` of the application's requests.
    fn gather_for_staying_threads(
        &mut self,
        model: &Model,
        reading: &Reading,
        decision: &Decision,
    ) {
        for cluster in &decision.clusters {
            let away = reading.away[cluster.app].iter();
            if away.map(|part| part.share).sum::<f64>() < self.preset.least_remote_share {
                continue;
            }
            let cost = reading.situation.apps[cluster.app].cost(cluster.app, &self.preset);
            let (moves, _) = self.gather(reading, decision, &cost);
            let pid = model.apps[reading.apps[cluster.app]].pid;
            self.states.entry(pid).or_default().gather(moves, model.at);
        }
    }
}

impl Policy for AsymSched {
    fn propose(&mut self, model: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        self.update_states(model);
        let following = self.follow(model);
        let mut proposals =
            if following.is_empty() { self.place(model, topology) } else { following };
        proposals.extend(self.sample(model));
        proposals
    }

    fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        let own = plan.results(outcomes).filter(|(step, _)| step.policy == REGISTERED.name);
        for (step, outcome) in own {
            let Some(state) = step.action.pid().and_then(|pid| self.states.get_mut(&pid)) else {
                continue;
            };
            match (&step.action, &outcome.result, &step.reason) {
                // The threads went back, so their memory must not follow the cancelled move.
                (Action::SetAffinity { .. }, _, Reason::Undo(_)) => state.phase = Phase::Stable,
                (_, StepResult::Done, Reason::AsymSched(AsymSchedReason::Placement(_))) => {
                    if let Phase::Proposed(moves) = &mut state.phase {
                        state.phase = Phase::Moved(core::mem::take(moves));
                        state.after_threads = true;
                    }
                }
                (Action::MovePages { .. }, ..) => state.migration_time += outcome.spent,
                (Action::MoveProcessMemory { .. }, result, _) => {
                    state.migration_time += outcome.spent.max(outcome.frozen);
                    if let StepResult::Pages(counts) = result {
                        self.measured.add(counts.moved, outcome.spent);
                    }
                }
                _ => {}
            }
        }
    }

    /// True until the memory has followed, the full migration at the end included.
    fn is_under_way(&self, pid: Pid) -> bool {
        let is_bulk = |state: &State| state.phase == Phase::Bulk;
        !self.on_the_way(pid).is_empty() || self.states.get(&pid).is_some_and(is_bulk)
    }

    fn wants_samples(&self, pid: Pid) -> bool {
        self.states.get(&pid).is_some_and(State::wants_samples)
    }

    fn full_sampling(&self) -> Option<u64> {
        ACCURATE.cycles()
    }

    fn period(&self) -> Nanos {
        self.preset.period
    }
}

impl Request {
    fn proposal(
        self,
        app: &App,
        state: &State,
        preset: &Preset,
        (now, seconds_per_gb): (Nanos, f64),
    ) -> Proposal {
        let (action, reason) = match self {
            Self::Pages(pages) => {
                let left = match state.phase {
                    Phase::Following { until, .. } => until.since(now),
                    _ => Nanos(0),
                };
                let action =
                    Action::MovePages { pid: app.pid, mechanism: Mechanism::Following, pages };
                (action, AsymSchedReason::Following { left })
            }
            Self::All { moves, memory, old_percent } => {
                let seconds = seconds_per_gb * memory.gigabytes();
                let action = Action::MoveProcessMemory {
                    pid: app.pid,
                    nodes: moves,
                    freeze: preset.freeze,
                    memory,
                };
                (
                    action,
                    AsymSchedReason::FullMigration {
                        old_percent,
                        limit_percent: preset.full_above_percent,
                        seconds,
                    },
                )
            }
        };
        Proposal { policy: REGISTERED.name, action, reason: Reason::AsymSched(reason) }
    }
}

/// The proposal to drop all copies of an application's pages before `step` moves its memory.
fn dropped_copies(app: &App, step: &Proposal) -> Option<Proposal> {
    let copies = app.replicas.as_ref().filter(|copies| !copies.is_empty())?;
    let action = carrefour::dropped(app, copies.iter().map(|copy| copy.address));
    Some(Proposal { policy: step.policy, action, reason: step.reason.clone() })
}

/// The reasons of one application's moves, one for each node that its threads leave.
fn steps(
    decision: &Decision,
    reading: &Reading,
    cost: &Cost,
    from_nodes_without_threads: Bytes,
) -> Vec<PlacementReason> {
    let found = decision.found.as_ref().expect("a decision to move has a placement");
    let own = reading.situation.apps[cost.app].nodes;
    let reason = |(from, to): (usize, usize)| PlacementReason {
        from: reading.nodes[from],
        to: reading.nodes[to],
        clusters: decision.clusters.len(),
        staying: decision.staying,
        chosen: decision.chosen,
        best: decision.best.unwrap_or(decision.chosen),
        best_gap: found.gap(),
        from_nodes_without_threads,
        moved: Bytes(found.moved_bytes),
        moved_at_least: Bytes(found.moved_bytes_bound),
        seconds: cost.seconds,
        allowed_seconds: cost.allowed_seconds,
    };
    decision.moves().filter(|(from, _)| own >> from & 1 == 1).map(reason).collect()
}

/// Proposals for the threads of a process that moves. Threads on a node of `steps` go to the CPUs
/// of its new node. The others are pinned where they are (our rule; the paper moves threads only).
/// With free masks the kernel's balancing moves them away again (emulated: within seconds). A
/// thread on a node where all threads of the process sleep is left alone.
fn move_threads(
    model: &Model,
    topology: &Topology,
    app: &App,
    steps: &[PlacementReason],
    preset: &Preset,
) -> Vec<Proposal> {
    if steps.is_empty() {
        return Vec::new();
    }
    let threads = || model.threads_of(app).iter();
    let node_of = |thread: &Thread| topology.node_of_cpu(thread.cpu);
    let is_taken =
        |node: usize| threads().any(|thread| preset.is_awake(thread) && node_of(thread) == node);
    let place = |thread: &Thread| {
        let node = node_of(thread);
        let step = steps.iter().find(|step| step.from == node);
        let (to, reason) = match step {
            Some(step) => (step.to, AsymSchedReason::Placement(*step)),
            None => (node, AsymSchedReason::Staying { node }),
        };
        let cpus = topology.usable(topology.cpus_of_node(to)).intersection(&thread.allowed);
        let action = Action::SetAffinity { pid: app.pid, tid: thread.tid, cpus, via: None };
        Proposal { policy: REGISTERED.name, action, reason: Reason::AsymSched(reason) }
    };
    let goes = |thread: &&Thread| thread.exempt.is_none() && is_taken(node_of(thread));
    threads().filter(goes).map(place).collect()
}
