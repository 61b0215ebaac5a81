//! Memory controllers as closed queues: threads with finite outstanding misses, each of which waits
//! the longer the more its controller is asked.
//!
//! The model is fitted to each window by itself: the threads' pace between misses and how many
//! misses they have under way follow from what was counted, and the capacity of the controllers
//! from the latency that was measured. So it says of the present what was seen, and what is left to
//! it is what changes when flows go elsewhere.

use super::{REMOTE_EXTRA, idle_local_cycles};
use crate::matrix::Matrix;
use crate::model::{App, Model, Thread, Traffic};
use crate::topology::Topology;
use alloc::vec;
use alloc::vec::Vec;

/// Latency at full use relative to that of an idle machine, less one: requests come in bursts, so
/// latency grows long before a controller is full. Carrefour's table 1 has 476 cycles at 45 % use
/// and about 200 on an idle machine.
const BURSTS: f64 = 3.0;
/// Beyond full use a queue grows until the threads that wait in it ask for no more.
const OVERFULL: f64 = 60.0;
/// Rounds in which flows and latencies come to agree, each a quarter of the way: what is left of a
/// difference after them is below a millionth.
const ROUNDS: usize = 60;
/// Steps of the search for the capacity: a factor of two each at first, then halves.
const SEARCH: usize = 60;

/// Threads of one application on one node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// Node where they run.
    pub(super) node: usize,
    /// CPUs that they keep busy.
    pub(super) cpus: f64,
    /// Cycles between two misses in which a thread does not wait.
    pub(super) work: f64,
    /// Misses under way at once.
    pub(super) overlap: f64,
    /// Share of the misses to each node's memory.
    pub(super) shares: Vec<f64>,
}

/// A machine's memory as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Queues {
    idle_cycles: f64,
    /// Cycles in a microsecond.
    cycles_per_us: f64,
    /// Requests/µs that each controller serves; infinite where nothing waits.
    capacity: f64,
    /// What others ask of each controller.
    others: Vec<f64>,
}

impl Queues {
    /// Fits the model to a window and one application; `None` where stalls, latency or traffic are
    /// not known.
    pub(super) fn fit(model: &Model, topology: &Topology, app: &App) -> Option<(Self, Vec<Group>)> {
        let (own, latency) = (app.traffic.as_ref()?, app.latency_cycles?);
        let load = own.load_per_us();
        let all = model.traffic.as_ref().map_or_else(|| load.clone(), Traffic::load_per_us);
        let others = all.iter().zip(&load).map(|(all, own)| (all - own).max(0.0)).collect();
        let mut queues = Self {
            idle_cycles: idle_local_cycles(topology),
            cycles_per_us: topology.clock_hz().unwrap_or(super::CLOCK_HZ) / 1e6,
            capacity: f64::INFINITY,
            others,
        };
        queues.capacity = queues.capacity_for(&own.requests_per_us, latency)?;
        let threads = model.threads_of(app);
        let group = |node| queues.group(&own.requests_per_us, &load, threads, topology, node);
        let groups: Vec<Group> = (0..load.len()).filter_map(group).collect();
        (!groups.is_empty()).then_some((queues, groups))
    }

    /// The capacity at which these flows have this mean latency.
    fn capacity_for(&self, flows: &Matrix<f64>, latency: f64) -> Option<f64> {
        let total: f64 = flows.rows().flatten().sum();
        if total <= 0.0 {
            return None;
        }
        let mut load = self.others.clone();
        flows.cells().for_each(|(_, holding, flow)| load[holding] += flow);
        let mean = |capacity: f64| {
            let queues = Self { capacity, ..self.clone() };
            let waits = queues.waits(&load);
            flows.cells().map(|(a, h, flow)| flow * queues.access(a, h, &waits)).sum::<f64>()
                / total
        };
        if mean(f64::INFINITY) >= latency {
            return Some(f64::INFINITY);
        }
        let busiest = load.iter().copied().fold(0.0, f64::max);
        let (mut small, mut large) = (0.5 * busiest, 2.0 * busiest);
        for _ in 0..SEARCH {
            match mean(large) > latency {
                true => (small, large) = (large, 2.0 * large),
                false => break,
            }
        }
        for _ in 0..SEARCH {
            let middle = 0.5 * (small + large);
            match mean(middle) > latency {
                true => small = middle,
                false => large = middle,
            }
        }
        Some(large)
    }

    fn group(
        &self,
        flows: &Matrix<f64>,
        load: &[f64],
        threads: &[Thread],
        topology: &Topology,
        node: usize,
    ) -> Option<Group> {
        let here = threads.iter().filter(|one| topology.node_of_cpu(one.cpu) == node);
        let (cpus, stalled) = here.fold((0.0, 0.0), |(cpus, stalled), one| {
            (cpus + one.cpu_share, stalled + one.cpu_share * one.rates.stall_share.unwrap_or(0.0))
        });
        let per_us: f64 = (0..load.len()).map(|holding| flows[(node, holding)]).sum();
        if per_us <= 0.0 || cpus <= 0.0 || stalled <= 0.0 {
            return None;
        }
        let shares: Vec<f64> =
            (0..load.len()).map(|holding| flows[(node, holding)] / per_us).collect();
        let cycles = cpus * self.cycles_per_us / per_us;
        let waited = cycles * (stalled / cpus).min(1.0);
        let all: Vec<f64> =
            self.others.iter().zip(load).map(|(others, own)| others + own).collect();
        let latency = self.latency(node, &shares, &self.waits(&all));
        Some(Group { node, cpus, work: cycles - waited, overlap: latency / waited, shares })
    }

    /// Cycles of an access to each controller, from its own node.
    fn waits(&self, load: &[f64]) -> Vec<f64> {
        let wait = |load: &f64| {
            let used = load / self.capacity;
            let over = (used - 1.0).max(0.0);
            self.idle_cycles * (1.0 + BURSTS * used.min(1.0) + OVERFULL * over)
        };
        load.iter().map(wait).collect()
    }

    fn access(&self, accessing: usize, holding: usize, waits: &[f64]) -> f64 {
        let away = if accessing == holding { 0.0 } else { REMOTE_EXTRA * self.idle_cycles };
        waits[holding] + away
    }

    fn latency(&self, node: usize, shares: &[f64], waits: &[f64]) -> f64 {
        let access = |(holding, share): (usize, &f64)| share * self.access(node, holding, waits);
        shares.iter().enumerate().map(access).sum()
    }

    /// Misses/µs of groups where flows and latencies agree.
    pub(super) fn pace(&self, groups: &[Group]) -> f64 {
        let mut load = self.others.clone();
        let mut waits = vec![self.idle_cycles; load.len()];
        let mut total = 0.0;
        for round in 0..ROUNDS {
            load.copy_from_slice(&self.others);
            total = 0.0;
            for group in groups {
                let latency = self.latency(group.node, &group.shares, &waits);
                let per_us =
                    group.cpus * self.cycles_per_us / (group.work + latency / group.overlap);
                total += per_us;
                for (load, share) in load.iter_mut().zip(&group.shares) {
                    *load += per_us * share;
                }
            }
            // Each round goes a part of the way, the smaller the later: two flows that take turns
            // at a full controller would else do so for ever.
            let step = 0.5 / (1.0 + 0.1 * round as f64);
            for (wait, now) in waits.iter_mut().zip(self.waits(&load)) {
                *wait += step * (now - *wait);
            }
        }
        total
    }
}
