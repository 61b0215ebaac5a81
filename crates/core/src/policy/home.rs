//! Threads that take turns on crowded CPUs stay on the node of their data.
//!
//! SAM reckons with one thread on each CPU and N-MASS with no more processes than cores. Where more
//! threads want to run, the kernel takes a waiting thread to the CPU that is idle next. That CPU
//! may be on another node, and the thread's data stays behind. Example: sixteen threads with
//! barriers on the eight CPUs of carrefour-a have a fourth of their data on their own node, as
//! chance has it. They run 1.5 times as fast if each is kept where its data is
//! (docs/results/crowded-barriers.md). So a thread with samples that name one node is pinned to the
//! CPUs of that node, where the kernel goes on balancing.
//!
//! No node takes more than its share of the threads. Threads beyond the share are pinned to nodes
//! with room. Such a thread is away from its data on any node, and where it stays its data can
//! come. A node takes no thread if more than 1.5 times its share have their data there: then pages
//! have to go, not threads. Threads without a valid place are released. Ours: none of the four
//! systems looks at more threads than CPUs.

use super::renamed::Renamed;
use super::sam::{Basis, Thresholds};
use super::{Policy, Registered};
use crate::index_set::CpuSet;
use crate::model::{App, Model, SampledHome, Thread};
use crate::plan::{Action, Outcome, Plan, Proposal, Reason, StepResult};
use crate::random::Random;
use crate::topology::Topology;
use crate::units::{Nanos, Tid};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

const NAME: &str = "home";

/// Its line in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: NAME,
    about: "more threads than CPUs: each stays on the node of its data",
    presets: &[],
    make: |preset| preset.is_none().then(|| Box::new(Home::default()) as Box<dyn Policy>),
    in_auto: Some(|| Box::new(Home::default())),
};

/// This many running threads on four CPUs are a crowd (our choice). A helper beside a thread on
/// each CPU is none.
const CROWD_OF_FOUR: usize = 5;

/// A younger process does not count, for it may end as soon as it began (our choice).
const YOUNG: Nanos = Nanos::from_millis(500);

/// State of the policy.
#[derive(Debug, Clone, Default)]
pub struct Home {
    /// The node of each thread's data, as samples last told. A thread is not in it if its data is
    /// on several nodes or was never seen.
    homes: BTreeMap<Tid, usize>,
    /// The node that a mask of ours pins a thread to.
    pinned: BTreeMap<Tid, usize>,
}

/// Threads that take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Crowded {
    /// Running threads.
    pub threads: usize,
    /// CPUs that they have.
    pub cpus: usize,
}

/// Why it proposes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "reason", rename_all = "kebab-case")
)]
pub enum HomeReason {
    /// The thread is pinned to the node of its data.
    Hold {
        /// Where it ran.
        from: usize,
        /// Its home.
        node: usize,
        /// The crowd.
        crowded: Crowded,
    },
    /// The node of the thread's data has its share of threads, so it is pinned where room is left,
    /// and its data may come.
    Beside {
        /// Where it ran.
        from: usize,
        /// The node that it is pinned to.
        node: usize,
        /// Its home.
        home: usize,
        /// The crowd.
        crowded: Crowded,
    },
    /// The thread may run anywhere again: its data has left, or too many threads have their data
    /// there.
    Release {
        /// The node that it was pinned to.
        node: usize,
        /// Running threads with their data there.
        threads: usize,
        /// As many as that node takes.
        share: usize,
    },
}

/// Processes that may use the same CPUs.
struct Group<'a> {
    cpus: CpuSet,
    apps: Vec<&'a App>,
    /// Running threads on these CPUs, of whatever process.
    threads: usize,
}

impl Group<'_> {
    fn crowded(&self) -> Crowded {
        Crowded { threads: self.threads, cpus: self.cpus.len() }
    }

    /// As many threads as this node takes.
    fn share(&self, topology: &Topology, node: usize) -> usize {
        let cpus = self.cpus.intersection(topology.cpus_of_node(node)).len();
        (self.threads * cpus).div_ceil(self.cpus.len())
    }
}

impl Crowded {
    /// Whether this many threads on this many CPUs are a crowd.
    pub(crate) fn is_crowd(self) -> bool {
        4 * self.threads >= CROWD_OF_FOUR * self.cpus
    }
}

impl Home {
    fn observe(&mut self, model: &Model) {
        let alive: BTreeSet<Tid> = model.threads.iter().map(|thread| thread.tid).collect();
        self.homes.retain(|tid, _| alive.contains(tid));
        self.pinned.retain(|tid, _| alive.contains(tid));
        for thread in &model.threads {
            match thread.sampled_home() {
                SampledHome::Node(home) => self.homes.insert(thread.tid, home),
                SampledHome::Scattered => self.homes.remove(&thread.tid),
                SampledHome::Unknown => continue,
            };
        }
    }

    fn of_group<'a>(
        &self,
        group: &Group<'a>,
        model: &'a Model,
        topology: &Topology,
        thresholds: &Thresholds,
    ) -> Vec<Proposal> {
        let movable = || {
            let apps = group.apps.iter().filter(|app| app.exempt.is_none());
            apps.flat_map(|app| model.threads_of(app).iter().map(move |thread| (*app, thread)))
                .filter(|(_, thread)| thread.exempt.is_none() && thread.is_running())
        };
        let mut homed = vec![Vec::new(); topology.node_count()];
        for (_, thread) in movable() {
            let is_pinned = self.pinned.contains_key(&thread.tid);
            let home = self.homes.get(&thread.tid);
            let home = home.filter(|_| is_pinned || uses_memory(thread, thresholds));
            if let Some(&home) = home.filter(|home| !usable_on(thread, **home, topology).is_empty())
            {
                homed[home].push(thread);
            }
        }
        let is_drifting = group.crowded().is_crowd() && self.is_anybody_away(movable(), topology);
        let places = self.places(group, &mut homed, topology);
        let propose = |(app, thread): (&'a App, &'a Thread)| {
            let pinned = self.pinned.get(&thread.tid).copied();
            let (cpus, reason) = match (places.get(&thread.tid).copied(), pinned) {
                (Some(node), pinned) if pinned != Some(node) && is_drifting => {
                    let from = topology.node_of_cpu(thread.cpu);
                    let home = self.homes.get(&thread.tid).copied().unwrap_or(node);
                    let crowded = group.crowded();
                    (usable_on(thread, node, topology), pinned_to(from, node, home, crowded))
                }
                (None, Some(node)) => {
                    let (threads, share) = (homed[node].len(), group.share(topology, node));
                    let reason = HomeReason::Release { node, threads, share };
                    (topology.usable(&thread.allowed), reason)
                }
                _ => return None,
            };
            Some(affinity(app, thread, cpus, reason))
        };
        movable().filter_map(propose).collect()
    }

    /// The node on which each thread stays. That is its home: first come threads pinned there, then
    /// threads that run there. In a crowd, threads beyond the home's share stay on a node with
    /// room.
    fn places(
        &self,
        group: &Group<'_>,
        homed: &mut [Vec<&Thread>],
        topology: &Topology,
    ) -> BTreeMap<Tid, usize> {
        let mut places = BTreeMap::new();
        let mut room: Vec<usize> =
            (0..homed.len()).map(|node| group.share(topology, node)).collect();
        let mut beyond = Vec::new();
        for (node, threads) in homed.iter_mut().enumerate() {
            let share = room[node];
            if threads.len() > share + share / 2 {
                continue;
            }
            let is_here = |thread: &Thread| topology.node_of_cpu(thread.cpu) == node;
            threads.sort_by_key(|one| (self.pinned.get(&one.tid) != Some(&node), !is_here(one)));
            let (within, others) = threads.split_at(share.min(threads.len()));
            places.extend(within.iter().map(|thread| (thread.tid, node)));
            room[node] -= within.len();
            beyond.extend(others);
        }
        for thread in beyond.into_iter().filter(|_| group.crowded().is_crowd()) {
            let has_room =
                |node: &usize| room[*node] > 0 && !usable_on(thread, *node, topology).is_empty();
            let order = |node: &usize| {
                let is_pinned = self.pinned.get(&thread.tid) == Some(node);
                (is_pinned, topology.node_of_cpu(thread.cpu) == *node, room[*node])
            };
            if let Some(node) = (0..room.len()).filter(has_room).max_by_key(order) {
                places.insert(thread.tid, node);
                room[node] -= 1;
            }
        }
        places
    }

    /// Whether one of the threads is on another node than its data: which thread the kernel takes
    /// next is chance. While all are at home they may stay there by themselves.
    fn is_anybody_away<'a>(
        &self,
        mut threads: impl Iterator<Item = (&'a App, &'a Thread)>,
        topology: &Topology,
    ) -> bool {
        threads.any(|(_, thread)| {
            let home = self.homes.get(&thread.tid);
            home.is_some_and(|home| *home != topology.node_of_cpu(thread.cpu))
        })
    }
}

/// Where no counter tells, samples are enough.
fn uses_memory(thread: &Thread, thresholds: &Thresholds) -> bool {
    thread.rates.memory_per_s.is_none_or(|rate| rate > thresholds.memory_thread)
}

/// Processes with running threads, by the CPUs that those may use.
fn groups<'a>(model: &'a Model, topology: &Topology) -> Vec<Group<'a>> {
    let mut by_cpus: BTreeMap<CpuSet, Vec<&App>> = BTreeMap::new();
    let is_old = |app: &&App| app.run_time(model) >= YOUNG;
    for app in model.apps.iter().filter(is_old) {
        let running = model.threads_of(app).iter().filter(|thread| thread.is_running());
        let allowed = running.fold(CpuSet::new(), |all, thread| {
            if thread.allowed.is_subset(&all) { all } else { all.union(&thread.allowed) }
        });
        let cpus = topology.usable(&allowed);
        if !cpus.is_empty() {
            by_cpus.entry(cpus).or_default().push(app);
        }
    }
    let mut running = vec![0; topology.cpu_count()];
    let of_old = model.apps.iter().filter(is_old).flat_map(|app| model.threads_of(app));
    for thread in of_old.filter(|thread| thread.is_running()) {
        running[thread.cpu] += 1;
    }
    let group = |(cpus, apps): (CpuSet, Vec<&'a App>)| {
        let threads = cpus.iter().map(|cpu| running[cpu]).sum();
        Group { cpus, apps, threads }
    };
    by_cpus.into_iter().map(group).collect()
}

fn usable_on(thread: &Thread, node: usize, topology: &Topology) -> CpuSet {
    topology.usable(&topology.cpus_of_node(node).intersection(&thread.allowed))
}

fn pinned_to(from: usize, node: usize, home: usize, crowded: Crowded) -> HomeReason {
    match home == node {
        true => HomeReason::Hold { from, node, crowded },
        false => HomeReason::Beside { from, node, home, crowded },
    }
}

fn affinity(app: &App, thread: &Thread, cpus: CpuSet, reason: HomeReason) -> Proposal {
    Proposal {
        policy: NAME,
        action: Action::SetAffinity { pid: app.pid, tid: thread.tid, cpus, via: None },
        reason: Reason::Home(reason),
    }
}

impl Policy for Home {
    fn propose(&mut self, model: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        self.observe(model);
        let thresholds = Basis::Published.for_topology(topology);
        let groups = groups(model, topology);
        groups.iter().flat_map(|group| self.of_group(group, model, topology, &thresholds)).collect()
    }

    fn rename(&mut self, _: &Topology, renamed: &Renamed) {
        let went = self.homes.iter_mut().filter(|(tid, _)| renamed.tids.contains(tid));
        went.for_each(|(_, home)| *home = renamed.image(*home));
    }

    /// A thread that another policy gives a mask belongs to that policy from then on.
    fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        let done = outcomes
            .iter()
            .filter(|outcome| outcome.plan == plan.number && outcome.result == StepResult::Done);
        for step in done.filter_map(|outcome| plan.steps.get(outcome.step)) {
            let Action::SetAffinity { tid, .. } = step.action else { continue };
            match step.reason {
                Reason::Home(HomeReason::Hold { node, .. } | HomeReason::Beside { node, .. }) => {
                    self.pinned.insert(tid, node)
                }
                _ => self.pinned.remove(&tid),
            };
        }
    }
}

impl fmt::Display for HomeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold { from, node, crowded } if from == node => {
                write!(f, "stays on node {node}, where its data is: {crowded}")
            }
            Self::Hold { from, node, crowded } => {
                write!(f, "goes to its data, {from}→{node}: {crowded}")
            }
            Self::Beside { from, node, home, crowded } => write!(
                f,
                "{from}→{node}, for node {home}, where its data is, has its share: {crowded}"
            ),
            Self::Release { node, threads, share } => write!(
                f,
                "may leave node {node}: {threads} threads have their data there, its share is {share}"
            ),
        }
    }
}

impl fmt::Display for Crowded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} threads take turns on {} CPUs", self.threads, self.cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Thread;
    use crate::topology::synthetic;
    use crate::units::Pid;

    /// Two threads on each of four CPUs. Samples name their data only in the first second.
    fn model(topology: &Topology, nodes: Option<[usize; 8]>) -> Model {
        let mut model = Model::empty(2);
        model.at = Nanos::from_secs(10);
        model.apps.push(App::new(Pid(7), 0..8));
        for index in 0..8 {
            let mut thread = Thread::new(Tid(index as u32), 0, index / 2, topology.all_cpus());
            thread.cpu_share = 0.5;
            let touches =
                |node| nodes.map_or(0, |nodes| if nodes[index] == node { 100 } else { 0 });
            thread.accesses_by_node = Some((0..2).map(touches).collect());
            model.threads.push(thread);
        }
        model
    }

    #[test]
    fn after_a_change_of_nodes_data_is_where_it_went() {
        let topology = synthetic::parse("node:2 core:2 mhz:2200").expect("a machine");
        let proposed = |changed: &[u32]| {
            let mut home = Home::default();
            home.observe(&model(&topology, Some([1, 1, 1, 1, 0, 0, 0, 0])));
            let mut renamed = Renamed::of(Pid(7));
            for tid in changed {
                renamed.add(Tid(*tid), 0, 1);
                renamed.add(Tid(*tid), 1, 0);
            }
            home.rename(&topology, &renamed);
            home.propose(&model(&topology, None), &topology, &mut Random::new(0)).len()
        };
        assert_eq!(proposed(&[]), 8, "all are away from it");
        assert_eq!(proposed(&[0, 1, 2, 3, 4, 5, 6, 7]), 0, "all are with it");
    }
}
