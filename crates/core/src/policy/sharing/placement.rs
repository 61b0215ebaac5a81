//! Chooses a node for each group of sharers: the node that serves most of their accesses, if its
//! CPUs and memory have the capacity.
//!
//! The load stays balanced. No node gets more threads than cores, or more demand than the busiest
//! node had, unless it has spare CPU time. Threads without a group are moved away to make room.

use super::clusters::Cluster;
use super::preset::{Hold, Oversized, Preset};
use crate::model::RUNNING_SHARE;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Largest number of splits in one round (our choice). Further groups that no node holds are left
/// alone.
const MAX_SPLITS: usize = 1024;
/// Largest number of nodes tried for a group, the best first. Inferred: sharers far from their data
/// gain little.
const MAX_TRIED_NODES: usize = 4;

/// A thread as input of the placement.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sharer {
    /// The node on which the thread runs.
    pub node: usize,
    /// CPU time per wall time, 0..=1.
    pub demand: f64,
    /// Share of a node's memory capacity that the thread uses: its misses per second or its MPKI
    /// over the node's limit.
    pub pressure: f64,
    /// Sampled accesses, by the node that served them.
    pub accesses: Vec<u32>,
    /// By node, whether the thread may move there; empty for all nodes.
    pub may_use: Vec<bool>,
    /// Whether the thread must stay. Its demand and its pressure count all the same.
    pub is_fixed: bool,
}

impl Sharer {
    fn is_running(&self) -> bool {
        self.demand >= RUNNING_SHARE
    }

    /// Whether the thread may be moved to or pinned on a node.
    fn may_go(&self, node: usize) -> bool {
        !self.is_fixed && self.may_use.get(node).copied().unwrap_or(self.may_use.is_empty())
    }
}

/// The role of a thread that changes its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The thread joins its group.
    Member {
        /// Threads in the group.
        group: usize,
        /// Common samples of the weakest pair that connects the group.
        weakest: u32,
    },
    /// The thread makes room for a group.
    Displaced,
}

/// A thread that changes its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shift {
    /// Index of the thread.
    pub thread: u32,
    /// Node that the thread leaves.
    pub from: usize,
    /// Node that the thread joins.
    pub to: usize,
    /// Role of the thread.
    pub role: Role,
}

/// A thread that is pinned with its group on the node where it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// Index of the thread.
    pub thread: u32,
    /// Node of the thread.
    pub node: usize,
    /// Threads in the group.
    pub group: usize,
}

/// Result of the placement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placed {
    /// Threads that change their node.
    pub shifts: Vec<Shift>,
    /// Threads of groups to pin where they run; empty if no thread changes its node. Otherwise the
    /// kernel would move them away from their group, sooner if many other threads are pinned.
    pub stays: Vec<Stay>,
}

/// Places groups on nodes, the largest first. `cores`: physical cores of each node, zero without
/// CPUs.
#[must_use]
pub fn place(
    threads: &[Sharer],
    cores: &[usize],
    clusters: Vec<Cluster>,
    preset: &Preset,
) -> Placed {
    let mut assignment = Assignment::new(threads, cores, preset);
    assignment.raise_pressure_limit(&clusters);
    let mut placed: Vec<Vec<u32>> = Vec::new();
    let mut queue: VecDeque<Cluster> = clusters.into();
    let mut splits = 0;
    while let Some(cluster) = queue.pop_front() {
        let nodes = assignment.preferences(&cluster);
        let is_placed = nodes.into_iter().any(|node| assignment.place(&cluster, node));
        if is_placed {
            placed.push(cluster.threads);
        } else if preset.oversized == Oversized::Split && splits < MAX_SPLITS {
            splits += 1;
            queue.extend(cluster.split());
        }
    }
    let shifts = assignment.shifts();
    Placed { stays: assignment.stays(&placed), shifts }
}

/// Load of one node.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    /// Running threads.
    threads: usize,
    /// Sum of the threads' demands, CPUs.
    demand: f64,
    /// Sum of the threads' pressures, as a share of the capacity.
    pressure: f64,
}

/// The node of each thread during a round, and the resulting load of each node.
struct Assignment<'a> {
    threads: &'a [Sharer],
    /// Physical cores by node.
    cores: &'a [usize],
    preset: &'a Preset,
    /// Node by thread.
    node: Vec<usize>,
    /// Role by thread, if this round moved it.
    role: Vec<Option<Role>>,
    /// Load by node.
    loads: Vec<Load>,
    /// Threads by node, ascending.
    on_node: Vec<Vec<u32>>,
    /// Limit of the demand per core: that of the busiest node before the round, at least 1.
    busiest: f64,
    /// Highest pressure that cannot be avoided: of a node before the round, or of one group alone.
    most_pressed: f64,
}

impl<'a> Assignment<'a> {
    fn new(threads: &'a [Sharer], cores: &'a [usize], preset: &'a Preset) -> Self {
        let mut assignment = Self {
            threads,
            cores,
            preset,
            node: threads.iter().map(|thread| thread.node).collect(),
            role: vec![None; threads.len()],
            loads: vec![Load::default(); cores.len()],
            on_node: vec![Vec::new(); cores.len()],
            busiest: 1.0,
            most_pressed: 0.0,
        };
        for (index, thread) in threads.iter().enumerate() {
            assignment.add(index as u32, thread.node, 1.0);
        }
        let demands = (0..cores.len()).map(|node| assignment.demand_per_core(node));
        // Sums of the same numbers in another order differ in their last digits.
        assignment.busiest = demands.fold(1.0, f64::max) + 1e-9;
        let pressures = assignment.loads.iter().map(|load| load.pressure);
        assignment.most_pressed = pressures.fold(0.0, f64::max) + 1e-9;
        assignment
    }

    /// Raises the limit of pressure so that each group that fits the cores of a node may be placed.
    fn raise_pressure_limit(&mut self, clusters: &[Cluster]) {
        let most_cores = self.cores.iter().copied().max().unwrap_or(0);
        for cluster in clusters.iter().filter(|cluster| cluster.threads.len() <= most_cores) {
            let members = cluster.threads.iter();
            let pressure: f64 = members.map(|&thread| self.threads[thread as usize].pressure).sum();
            self.most_pressed = self.most_pressed.max(pressure + 1e-9);
        }
    }

    fn demand_per_core(&self, node: usize) -> f64 {
        if self.cores[node] == 0 { 0.0 } else { self.loads[node].demand / self.cores[node] as f64 }
    }

    /// Adds a thread to a node (`sign` 1) or removes it (−1).
    fn add(&mut self, thread: u32, node: usize, sign: f64) {
        let sharer = &self.threads[thread as usize];
        let load = &mut self.loads[node];
        load.demand += sign * sharer.demand;
        load.pressure += sign * sharer.pressure;
        let list = &mut self.on_node[node];
        let place = list.partition_point(|&other| other < thread);
        if sign > 0.0 {
            load.threads += usize::from(sharer.is_running());
            list.insert(place, thread);
        } else {
            load.threads -= usize::from(sharer.is_running());
            list.remove(place);
        }
    }

    fn shift(&mut self, thread: u32, to: usize) {
        let from = self.node[thread as usize];
        self.add(thread, from, -1.0);
        self.add(thread, to, 1.0);
        self.node[thread as usize] = to;
    }

    /// Up to [`MAX_TRIED_NODES`] nodes for a group, the best first. Nodes that served most accesses
    /// come first, then nodes with most members, then with the least demand, then the lower one.
    fn preferences(&self, cluster: &Cluster) -> Vec<usize> {
        let mut served = vec![0_u64; self.cores.len()];
        let mut members = vec![0_usize; self.cores.len()];
        for &thread in &cluster.threads {
            let sharer = &self.threads[thread as usize];
            members[self.node[thread as usize]] += 1;
            for (sum, &count) in served.iter_mut().zip(&sharer.accesses) {
                *sum += u64::from(count);
            }
        }
        let with_cores = (0..self.cores.len()).filter(|&node| self.cores[node] > 0);
        let mut nodes: Vec<(u64, usize, f64, usize)> = with_cores
            .map(|node| (served[node], members[node], self.demand_per_core(node), node))
            .collect();
        let by_use = |a: &(u64, usize, f64, usize), b: &(u64, usize, f64, usize)| {
            (b.0, b.1).cmp(&(a.0, a.1)).then(a.2.total_cmp(&b.2)).then(a.3.cmp(&b.3))
        };
        if nodes.len() > MAX_TRIED_NODES {
            nodes.select_nth_unstable_by(MAX_TRIED_NODES, by_use);
            nodes.truncate(MAX_TRIED_NODES);
        }
        nodes.sort_by(by_use);
        nodes.into_iter().map(|(.., node)| node).collect()
    }

    /// Moves a group to a node if the node can hold it. Returns false and changes nothing if not.
    fn place(&mut self, cluster: &Cluster, node: usize) -> bool {
        let stays = |thread: u32| self.node[thread as usize] == node;
        let may_join = |&thread: &u32| stays(thread) || self.threads[thread as usize].may_go(node);
        if !cluster.threads.iter().all(may_join) || self.is_hopeless(cluster, node) {
            return false;
        }
        let before: Vec<(u32, usize)> =
            cluster.threads.iter().map(|&thread| (thread, self.node[thread as usize])).collect();
        let roles: Vec<Option<Role>> =
            cluster.threads.iter().map(|&t| self.role[t as usize]).collect();
        let role = Role::Member { group: cluster.threads.len(), weakest: cluster.weakest() };
        for &thread in &cluster.threads {
            self.shift(thread, node);
            self.role[thread as usize] = Some(role);
        }
        let mut displaced: Vec<(u32, usize)> = Vec::new();
        let is_held = self.make_room(node, &mut displaced) && self.can_bear(node);
        if !is_held {
            displaced.into_iter().rev().for_each(|(thread, home)| {
                self.role[thread as usize] = None;
                self.shift(thread, home);
            });
            for ((thread, home), role) in before.into_iter().zip(roles) {
                self.shift(thread, home);
                self.role[thread as usize] = role;
            }
        }
        is_held
    }

    /// Moves threads without a group away until the node is not crowded. Returns whether that
    /// succeeded.
    fn make_room(&mut self, node: usize, displaced: &mut Vec<(u32, usize)>) -> bool {
        for thread in self.displaceable(node) {
            if !self.is_crowded(node) {
                break;
            }
            if let Some(to) = self.room_for(thread, node) {
                displaced.push((thread, node));
                self.role[thread as usize] = Some(Role::Displaced);
                self.shift(thread, to);
            }
        }
        !self.is_crowded(node)
    }

    /// Whether the node certainly cannot hold the group, so that no attempt is needed. Either it
    /// has more surplus threads than other nodes have free cores. Or the group fits without moving
    /// a thread away, but its pressure on memory is too high.
    fn is_hopeless(&self, cluster: &Cluster, node: usize) -> bool {
        let joins = cluster.threads.iter().filter(|&&thread| self.node[thread as usize] != node);
        let (mut running, mut demand, mut pressure) = (0, 0.0, 0.0);
        for sharer in joins.map(|&thread| &self.threads[thread as usize]) {
            running += usize::from(sharer.is_running());
            demand += sharer.demand;
            pressure += sharer.pressure;
        }
        let load = &self.loads[node];
        let excess = (load.threads + running).saturating_sub(self.cores[node]);
        let has_cpu_time = load.demand + demand <= self.busiest * self.cores[node] as f64;
        let too_much = excess == 0 && has_cpu_time && !self.bears(load.pressure + pressure);
        self.preset.spares_node && (too_much || excess > running + self.free_cores_elsewhere(node))
    }

    fn free_cores_elsewhere(&self, node: usize) -> usize {
        let free = |other: usize| self.cores[other].saturating_sub(self.loads[other].threads);
        (0..self.cores.len()).filter(|&other| other != node).map(free).sum()
    }

    /// Whether the node has more running threads than cores (if the preset spares nodes) or too
    /// much demand.
    fn is_crowded(&self, node: usize) -> bool {
        let without_core = self.loads[node].threads > self.cores[node];
        without_core && self.preset.spares_node || self.demand_per_core(node) > self.busiest
    }

    /// Threads that may leave a crowded node, the first to leave in front. Running threads come
    /// first, because a sleeping thread frees no core. Then come threads with the least data on the
    /// node, then with most pressure.
    fn displaceable(&self, node: usize) -> Vec<u32> {
        if !self.is_crowded(node) {
            return Vec::new();
        }
        let here =
            |thread: u32| self.threads[thread as usize].accesses.get(node).copied().unwrap_or(0);
        let pressure = |thread: u32| self.threads[thread as usize].pressure;
        let sleeps = |thread: u32| !self.threads[thread as usize].is_running();
        let is_free = |thread: &u32| {
            self.role[*thread as usize].is_none() && !self.threads[*thread as usize].is_fixed
        };
        let mut candidates: Vec<u32> = self.on_node[node].iter().copied().filter(is_free).collect();
        candidates.sort_by(|&a, &b| {
            let by_need = (sleeps(a), here(a)).cmp(&(sleeps(b), here(b)));
            by_need.then(pressure(b).total_cmp(&pressure(a)))
        });
        candidates
    }

    /// The node with the least demand per core that has room for a thread.
    fn room_for(&self, thread: u32, leaving: usize) -> Option<usize> {
        let sharer = &self.threads[thread as usize];
        let fits = |&node: &usize| {
            let load = self.loads[node];
            let demand = (load.demand + sharer.demand) / self.cores[node] as f64;
            let pressure = load.pressure + sharer.pressure;
            let spared = load.threads < self.cores[node] && self.bears(pressure);
            demand <= self.busiest && (spared || !self.preset.spares_node)
        };
        (0..self.cores.len())
            .filter(|&node| node != leaving && self.cores[node] > 0 && sharer.may_go(node))
            .filter(fits)
            .min_by(|&a, &b| self.demand_per_core(a).total_cmp(&self.demand_per_core(b)))
    }

    /// Whether the pressure on a node's memory is allowed by the preset.
    fn can_bear(&self, node: usize) -> bool {
        !self.preset.spares_node || self.bears(self.loads[node].pressure)
    }

    /// Whether a pressure is below a node's capacity, or with the preset at most the highest
    /// unavoidable one.
    fn bears(&self, pressure: f64) -> bool {
        pressure < 1.0 || self.preset.bears_most_pressed && pressure <= self.most_pressed
    }

    /// The threads of placed groups to pin where they run. Empty if no thread changes its node or
    /// the preset releases threads.
    fn stays(&self, placed: &[Vec<u32>]) -> Vec<Stay> {
        if self.preset.hold == Hold::Release {
            return Vec::new();
        }
        let sharer = |thread: u32| &self.threads[thread as usize];
        let is_there = |thread: u32| self.node[thread as usize] == sharer(thread).node;
        let any_moves = !(0..self.threads.len() as u32).all(is_there);
        let stays = placed.iter().filter(|_| any_moves).flat_map(|threads| {
            let stay = |thread| Stay { thread, node: sharer(thread).node, group: threads.len() };
            let there = threads.iter().copied().filter(|&thread| is_there(thread));
            there.filter(|&thread| sharer(thread).may_go(sharer(thread).node)).map(stay)
        });
        let mut stays: Vec<Stay> = stays.collect();
        stays.sort_by_key(|stay| stay.thread);
        stays
    }

    fn shifts(&self) -> Vec<Shift> {
        let shift = |(thread, sharer): (usize, &Sharer)| {
            let (from, to) = (sharer.node, self.node[thread]);
            let role = self.role[thread].filter(|_| from != to)?;
            Some(Shift { thread: thread as u32, from, to, role })
        };
        self.threads.iter().enumerate().filter_map(shift).collect()
    }
}
