//! Keeps threads on the node of their data if more threads run than there are CPUs.
//!
//! SAM assumes one thread on each CPU, and N-MASS no more processes than cores. If more threads
//! run, the kernel moves a waiting thread to the CPU that is idle next. That CPU may be on another
//! node than the thread's data. Example: sixteen threads with barriers run on the eight CPUs of
//! carrefour-a. By chance a fourth of each thread's data is on its node. They run 1.5 times as fast
//! if each is kept on the node of its data (docs/results/crowded-barriers.md). So a thread whose
//! samples name one node is pinned to the CPUs of that node. The kernel balances threads among
//! these CPUs.
//!
//! No node takes more than its share of the threads. Threads beyond the share are pinned to nodes
//! with room, and their data can follow them there. A node takes no thread if over 1.5 times its
//! share of threads have their data there: then pages have to move instead. Threads without a valid
//! place are released. This policy is ours: none of the four published systems handles more threads
//! than CPUs.

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

/// Least number of running threads for each four CPUs that count as crowded (our choice). A helper
/// thread beside one thread for each CPU should not count.
const CROWD_OF_FOUR: usize = 5;

/// Least age of a process that counts (our choice). A younger process may end as soon as it began.
const YOUNG: Nanos = Nanos::from_millis(500);

/// State of the policy.
#[derive(Debug, Clone, Default)]
pub struct Home {
    /// The node of each thread's data, by the last samples. Threads with data on several nodes, or
    /// without samples, are left out.
    homes: BTreeMap<Tid, usize>,
    /// The node to which this policy pinned a thread.
    pinned: BTreeMap<Tid, usize>,
}

/// Numbers of threads and CPUs where threads have to wait for CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Crowded {
    /// Running threads.
    pub threads: usize,
    /// CPUs that they may use.
    pub cpus: usize,
}

/// Reason of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "reason", rename_all = "kebab-case")
)]
pub enum HomeReason {
    /// The thread is pinned to the node of its data.
    Hold {
        /// Node where it ran.
        from: usize,
        /// Node of its data.
        node: usize,
        /// The crowd.
        crowded: Crowded,
    },
    /// The node of the thread's data has its share of threads already. So the thread is pinned to a
    /// node with room, and its data may follow.
    Beside {
        /// Node where it ran.
        from: usize,
        /// The node that it is pinned to.
        node: usize,
        /// Node of its data.
        home: usize,
        /// The crowd.
        crowded: Crowded,
    },
    /// The thread is released, because its data has moved or too many threads have their data on
    /// the node.
    Release {
        /// The node that it was pinned to.
        node: usize,
        /// Running threads with their data there.
        threads: usize,
        /// Number of threads that the node takes.
        share: usize,
    },
}

/// Processes that may use the same CPUs.
struct Group<'a> {
    cpus: CpuSet,
    apps: Vec<&'a App>,
    /// Running threads on these CPUs, of all processes.
    threads: usize,
}

impl Group<'_> {
    fn crowded(&self) -> Crowded {
        Crowded { threads: self.threads, cpus: self.cpus.len() }
    }

    /// Number of threads that this node takes.
    fn share(&self, topology: &Topology, node: usize) -> usize {
        let cpus = self.cpus.intersection(topology.cpus_of_node(node)).len();
        (self.threads * cpus).div_ceil(self.cpus.len())
    }
}

impl Crowded {
    /// Whether there are enough more threads than CPUs to act.
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
            if let Some(&home) = home.filter(|home| !thread.usable_on(**home, topology).is_empty())
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
                    (thread.usable_on(node, topology), pinned_to(from, node, home, crowded))
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

    /// The node to which each thread is pinned. This is the node of its data, as far as that node's
    /// share allows. Threads that are pinned there come first, then threads that run there. In a
    /// crowd, the other threads are pinned to a node with room.
    fn places(
        &self,
        group: &Group<'_>,
        homed: &mut [Vec<&Thread>],
        topology: &Topology,
    ) -> BTreeMap<Tid, usize> {
        let mut places = BTreeMap::new();
        let mut room: Vec<usize> =
            (0..homed.len()).map(|node| group.share(topology, node)).collect();
        let mut beyond: Vec<&Thread> = Vec::new();
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
                |node: &usize| room[*node] > 0 && !thread.usable_on(*node, topology).is_empty();
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

    /// Whether one of the threads runs on another node than that of its data. While all threads are
    /// at home no pinning is needed.
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

/// Whether a thread uses memory enough to be pinned. Without counters, samples are enough.
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

    /// A thread that gets a mask from another policy belongs to that policy from then on.
    fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        let results = plan.results(outcomes);
        for (step, _) in results.filter(|(_, outcome)| outcome.result == StepResult::Done) {
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

impl HomeReason {
    /// The same with each node renamed.
    #[must_use]
    pub(crate) fn renamed(mut self, name: impl Fn(usize) -> usize) -> Self {
        match &mut self {
            Self::Hold { from, node, .. } => (*from, *node) = (name(*from), name(*node)),
            Self::Beside { from, node, home, .. } => {
                (*from, *node, *home) = (name(*from), name(*node), name(*home));
            }
            Self::Release { node, .. } => *node = name(*node),
        }
        self
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

    /// Two threads on each of four CPUs. Only in the first second, samples name the nodes of their
    /// data.
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
