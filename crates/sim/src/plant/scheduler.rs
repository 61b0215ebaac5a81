//! The kernel's scheduler: spreads threads over the CPUs of their masks, lets them take turns on
//! crowded CPUs, and moves some without need.

use super::chance::Purpose;
use super::{EPOCH, Plant, Thread};
use crate::workload::Waits;
use rondpoint_core::CpuSet;

/// A CPU with less load than this is idle when a thread wakes.
pub(crate) const IDLE: f64 = 0.05;
/// Load by which another CPU must be better for a thread, beside its own. The kernel's balancing
/// has such a margin (`imbalance_pct`).
const MARGIN: f64 = 0.25;
/// Moves per second of a thread that shares its CPU while others of the node have one of their own.
/// Five endless loops on four CPUs got equal time within half a second (Linux 6.12 in the lab).
/// Three on two CPUs got it within a quarter (6.18 on a host).
const TURNS_PER_S: f64 = 4.0;
/// The same to a CPU of another node. Nine endless loops ran on two nodes of four CPUs each (Linux
/// 6.12 in the lab). One in a second changed the node, and all got equal time within two.
const FAR_TURNS_PER_S: f64 = 0.5;

impl Plant {
    /// Active threads on each CPU, each by the share of the time for which it is ready to run.
    pub(crate) fn loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.topology.cpu_count()];
        self.threads.iter().filter(|t| t.active).for_each(|t| loads[t.cpu] += t.ready);
        loads
    }

    /// Puts new threads on the idlest CPU of the idlest node of their masks, as fork balancing
    /// does. The first node is drawn: on Linux it is the node on which the shell ran.
    pub(super) fn fork(&mut self, threads: std::ops::Range<usize>) {
        let mut loads = self.loads();
        let nodes = self.topology.node_count();
        let first = self.chances.of(Purpose::Start, self.now, threads.start);
        let first = (first * nodes as f64) as usize;
        let mut by_node = vec![0.0; nodes];
        for (cpu, load) in loads.iter().enumerate() {
            by_node[self.topology.node_of_cpu(cpu)] += load;
        }
        for thread in threads {
            let key = |cpu: usize| {
                let node = self.topology.node_of_cpu(cpu);
                let crowd = by_node[node] / self.topology.cpus_of_node(node).len().max(1) as f64;
                (crowd, loads[cpu], (node + nodes - first) % nodes)
            };
            let idlest = |&a: &usize, &b: &usize| {
                let (a, b) = (key(a), key(b));
                a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
            };
            let cpu = self.threads[thread].mask.iter().min_by(idlest).unwrap_or(0);
            loads[cpu] += 1.0;
            by_node[self.topology.node_of_cpu(cpu)] += 1.0;
            self.threads[thread].cpu = cpu;
            if self.processes[self.threads[thread].process].program.pinned {
                let only: CpuSet = [cpu].into_iter().collect();
                self.threads[thread].allowed = only.clone();
                self.threads[thread].mask = only;
            }
        }
    }

    /// Wakes threads that slept at barriers on the CPU that is idle first, where threads share
    /// CPUs: in an epoch, two of them change places.
    pub(super) fn wake(&mut self) {
        let loads = self.loads();
        let sleeps = |thread: &Thread| {
            let process = &self.processes[thread.process];
            process.program.waits == Waits::Sleep && process.threads.len() > 1
        };
        let woken = |&index: &usize| {
            let thread = &self.threads[index];
            thread.active && loads[thread.cpu] > 1.0 && sleeps(thread)
        };
        let woken: Vec<usize> = (0..self.threads.len()).filter(woken).collect();
        for (place, &one) in woken.iter().enumerate().skip(1) {
            let chance = self.chances.of(Purpose::Wake, self.now, one);
            let other = woken[(chance * (place + 1) as f64) as usize];
            let (here, there) = (self.threads[one].cpu, self.threads[other].cpu);
            let may = self.threads[one].mask.contains(there);
            if here != there && may && self.threads[other].mask.contains(here) {
                self.run_on(one, there);
                self.run_on(other, here);
            }
        }
    }

    /// Moves threads off crowded CPUs, and now and then one to an idle CPU without need.
    pub(super) fn balance(&mut self) {
        let mut loads = self.loads();
        let least = |loads: &[f64]| loads.iter().copied().fold(f64::INFINITY, f64::min);
        let mut least_load = least(&loads);
        let idle = least_load < IDLE;
        let wander = self.truth.wander_per_s * EPOCH.seconds();
        for index in 0..self.threads.len() {
            let thread = &self.threads[index];
            if !thread.active {
                continue;
            }
            let here = thread.cpu;
            let outside = !thread.mask.contains(here);
            let wanders = idle && self.chances.of(Purpose::Wander, self.now, index) < wander;
            let ready = thread.ready;
            // Where no CPU has two threads fewer, no move is a gain and the search is left out.
            if !outside && !wanders && least_load + ready + MARGIN >= loads[here] {
                continue;
            }
            let node = self.topology.node_of_cpu(here);
            let far = |cpu: usize| match wanders {
                true => 0,
                false => self.topology.distance(node, self.topology.node_of_cpu(cpu)),
            };
            let better = |a: &usize, b: &usize| {
                loads[*a].total_cmp(&loads[*b]).then(far(*a).cmp(&far(*b))).then(a.cmp(b))
            };
            let others = self.threads[index].mask.iter().filter(|cpu| *cpu != here);
            let Some(best) = others.min_by(better) else { continue };
            let gain =
                loads[best] + ready + MARGIN < loads[here] || (wanders && loads[best] < IDLE);
            if outside || gain {
                loads[here] -= ready;
                loads[best] += ready;
                least_load = least(&loads);
                self.run_on(index, best);
            }
        }
        self.take_turns(&mut loads);
    }

    /// Lets threads that share a CPU change to a CPU with less load. That one is then as crowded as
    /// the old one was, so all threads get the same time in the long run.
    fn take_turns(&mut self, loads: &mut [f64]) {
        if loads.iter().all(|load| *load <= 1.0 + MARGIN) {
            return;
        }
        for index in 0..self.threads.len() {
            let thread = &self.threads[index];
            let (here, ready) = (thread.cpu, thread.ready);
            let drawn = self.chances.of(Purpose::Turn, self.now, index) / EPOCH.seconds();
            let is_crowded = thread.active && loads[here] > (1.0 + MARGIN).max(ready);
            if !is_crowded || drawn >= TURNS_PER_S {
                continue;
            }
            let node = self.topology.node_of_cpu(here);
            // What is left of the draw is even in 0.0..1.0 and draws the CPU.
            let (reach, draw) = match drawn < FAR_TURNS_PER_S {
                true => (&thread.mask, drawn / FAR_TURNS_PER_S),
                false => {
                    let near = (drawn - FAR_TURNS_PER_S) / (TURNS_PER_S - FAR_TURNS_PER_S);
                    (self.topology.cpus_of_node(node), near)
                }
            };
            let is_open = |cpu: &usize| {
                let there = self.topology.node_of_cpu(*cpu);
                let is_less = loads[*cpu] + MARGIN < loads[here] && thread.mask.contains(*cpu);
                is_less && (there == node || self.crowd(there, loads) < self.crowd(node, loads))
            };
            let open: Vec<usize> = reach.iter().filter(is_open).collect();
            let least = open.iter().map(|cpu| loads[*cpu]).fold(f64::INFINITY, f64::min);
            let idlest: Vec<usize> = open.into_iter().filter(|cpu| loads[*cpu] <= least).collect();
            let place = (draw * idlest.len() as f64) as usize;
            if let Some(&cpu) = idlest.get(place) {
                loads[here] -= ready;
                loads[cpu] += ready;
                self.run_on(index, cpu);
            }
        }
    }

    /// Mean load of a node's CPUs.
    fn crowd(&self, node: usize, loads: &[f64]) -> f64 {
        let cpus = self.topology.cpus_of_node(node);
        cpus.iter().map(|cpu| loads[cpu]).sum::<f64>() / cpus.len().max(1) as f64
    }

    /// Lets a thread go on at another CPU. It fills its private caches again, and its share of a
    /// last-level cache where that is another one.
    pub(crate) fn run_on(&mut self, thread: usize, cpu: usize) {
        let before = std::mem::replace(&mut self.threads[thread].cpu, cpu);
        let far = self.topology.domain_of_cpu(before) != self.topology.domain_of_cpu(cpu);
        let caches = &self.machine.caches;
        let shared = caches.llc.bytes as f64 * self.machine.domain_count() as f64
            / self.machine.cpu_count() as f64;
        let bytes = caches.l2.bytes as f64 + if far { shared } else { 0.0 };
        let node = self.topology.nearest_memory(self.topology.node_of_cpu(cpu));
        let latency = self.machine.nodes[node].controller.as_ref().map_or(100.0, |c| c.latency_ns);
        let outstanding = f64::from(self.machine.core.outstanding_misses);
        self.threads[thread].debt_ns += bytes / super::solve::LINE * latency / outstanding;
    }
}
