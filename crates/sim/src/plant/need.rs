//! The work of each running thread in an epoch: compute time, misses by node, lines from other
//! caches.

use std::collections::BTreeMap;

use super::cache::Resident;
use super::chance::Purpose;
use super::lock::{Holders, Section};
use super::{EPOCH, Now, Plant, Process, Thread};
use crate::workload::Waits;

/// A thread in this epoch.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) thread: usize,
    pub(crate) process: usize,
    pub(crate) node: usize,
    /// Time on a CPU in the epoch, ns.
    pub(crate) busy_ns: f64,
    /// Part of the epoch in which it did not stand still for debts, ns.
    pub(crate) awake_ns: f64,
    /// Time of an instruction apart from misses and far transfers, ns.
    pub(super) base_ns: f64,
    /// Accesses beyond the private caches in an instruction.
    pub(crate) accesses: f64,
    /// Misses of the last-level cache in an instruction.
    pub(crate) misses: f64,
    /// Share of the misses that bring in a line to write it.
    pub(crate) written: f64,
    pub(crate) outstanding: f64,
    /// Share of its misses by holding node; nodes without a share are left out.
    pub(crate) shares: Vec<(usize, f64)>,
    /// Lines from caches of the same domain in an instruction.
    pub(crate) near: f64,
    /// Lines from caches of other domains in an instruction, by their node.
    pub(crate) far: Vec<(usize, f64)>,
    /// How it waits for the other threads of its process at barriers.
    pub(crate) waits: Waits,
    /// How it passes the time for which it waits, at barriers or for its lock.
    pub(crate) idles: Waits,
    /// The part of its work inside of a lock.
    pub(super) section: Option<Section>,
}

/// What an instruction that accesses some regions needs.
struct Reads {
    /// Share of the accesses that miss the last-level cache, and that miss it to write.
    missed: f64,
    written: f64,
    /// Share of the misses by holding node; nodes without a share are left out.
    shares: Vec<(usize, f64)>,
}

/// Sharing threads of one process by the domain that they run in.
type Circle = BTreeMap<usize, u32>;

impl Plant {
    /// What each active thread needs.
    pub(super) fn needs(&self) -> Vec<Running> {
        let loads = self.loads();
        let bursts: Vec<f64> = (0..self.processes.len())
            .map(|index| {
                let burst = self.processes[index].program.burst;
                let chance = self.chances.of(Purpose::Burst, self.now, index);
                (1.0 + burst * (2.0 * chance - 1.0)) * self.processes[index].in_burst(self.now)
            })
            .collect();
        let cores = self.cores(&loads);
        let resident = self.resident(&self.uses());
        let circles: Vec<Vec<Circle>> =
            self.processes.iter().map(|process| self.circles(process)).collect();
        let peers: Vec<Vec<usize>> =
            (0..self.processes.len()).map(|process| self.peer_threads(process)).collect();
        let holders = self.holders();
        let mut needs = Vec::new();
        for index in 0..self.threads.len() {
            if self.threads[index].active {
                let of = &self.threads[index];
                let burst = bursts[of.process];
                let mut need = self.need(index, burst, cores[of.cpu], (&resident, &holders));
                let others = (loads[of.cpu] - of.ready).max(0.0);
                need.busy_ns = need.awake_ns / (1.0 + others);
                self.add_transfers(&mut need, &circles[of.process]);
                self.add_messages(&mut need, &peers[of.process]);
                needs.push(need);
            }
        }
        needs
    }

    /// Domain, group and weight of every use of memory.
    fn uses(&self) -> Vec<(usize, usize, f64)> {
        let mut uses = Vec::new();
        for thread in self.threads.iter().filter(|thread| thread.active) {
            let process = &self.processes[thread.process];
            let phase = process.phase(thread.done);
            let domain = self.topology.domain_of_cpu(thread.cpu);
            for region in 0..process.program.regions.len() {
                let group = process.group_of(region, thread.number, phase.rotate);
                let share = process.program.share_of(region);
                let rate =
                    process.program.accesses_per_kilo * phase.intensity * share * thread.ready;
                uses.push((domain, group, rate));
            }
        }
        uses
    }

    /// Pace of each CPU: slower where another thread runs on the same core.
    fn cores(&self, loads: &[f64]) -> Vec<f64> {
        let cpus = self.topology.cpus();
        let cores = cpus.iter().map(|cpu| cpu.core).max().map_or(0, |last| last + 1);
        let mut busy = vec![0.0; cores];
        for (cpu, load) in cpus.iter().zip(loads) {
            busy[cpu.core] += load.min(1.0);
        }
        let pace = |others: f64| (1.0 - others) + self.truth.shared_core * others;
        let others = |cpu: usize, core: usize| (busy[core] - loads[cpu].min(1.0)).clamp(0.0, 1.0);
        cpus.iter().enumerate().map(|(cpu, of)| pace(others(cpu, of.core))).collect()
    }

    /// What accesses of a thread with these shares of its regions need.
    fn reads(
        &self,
        thread: &Thread,
        phase: Now,
        resident: &Resident,
        share_of: impl Fn(usize) -> f64,
    ) -> Reads {
        let process = &self.processes[thread.process];
        let node = self.topology.node_of_cpu(thread.cpu);
        let domain = self.topology.domain_of_cpu(thread.cpu);
        let mut shares = vec![0.0; self.topology.node_count()];
        let (mut missed, mut written) = (0.0, 0.0);
        for region in 0..process.program.regions.len() {
            let group = process.group_of(region, thread.number, phase.rotate);
            let kept = resident[domain].get(&group).copied().unwrap_or(0.0);
            let group = &self.groups[group];
            let misses = share_of(region) * (1.0 - group.reuse * kept);
            group.add_shares(node, misses, &mut shares);
            missed += misses;
            written += misses * group.writes;
        }
        let scale = if missed > 0.0 { 1.0 / missed } else { 0.0 };
        let shares = shares.into_iter().enumerate().filter(|(_, share)| *share > 0.0);
        let shares = shares.map(|(node, share)| (node, share * scale)).collect();
        Reads { missed, written: written * scale, shares }
    }

    fn need(
        &self,
        index: usize,
        burst: f64,
        core: f64,
        (resident, holders): (&Resident, &Holders),
    ) -> Running {
        let thread = &self.threads[index];
        let process = &self.processes[thread.process];
        let program = &process.program;
        let phase = process.phase(thread.done);
        let accesses = program.accesses_per_kilo / 1000.0 * phase.intensity * burst;
        let reads = self.reads(thread, phase, resident, |region| program.share_of(region));
        let outstanding = self.outstanding(program);
        let llc_ns = self.machine.caches.llc.latency_ns;
        let awake_ns = EPOCH.0 as f64 - thread.debt_ns.min(EPOCH.0 as f64 * 0.95);
        let base_ns = |missed: f64| {
            program.cycles_per_instruction * self.machine.cycle_ns() / core
                + accesses * (1.0 - missed) * llc_ns / outstanding
        };
        let waits = if process.threads.len() > 1 { program.waits } else { Waits::Never };
        let at_lock = program.lock.as_ref().map_or(Waits::Never, |lock| lock.waits);
        let mut need = Running {
            thread: index,
            process: thread.process,
            node: self.topology.node_of_cpu(thread.cpu),
            busy_ns: awake_ns,
            awake_ns,
            base_ns: base_ns(reads.missed),
            accesses,
            misses: accesses * reads.missed,
            written: reads.written,
            outstanding,
            shares: reads.shares,
            near: 0.0,
            far: Vec::new(),
            waits,
            idles: if waits == Waits::Never { at_lock } else { waits },
            section: None,
        };
        if let Some(lock) = &program.lock {
            let only = |region| if region == lock.region { 1.0 } else { 0.0 };
            let inside = self.reads(thread, phase, resident, only);
            let cost = (base_ns(inside.missed), accesses * inside.missed, inside.shares);
            self.add_section(&mut need, cost, holders);
        }
        need
    }

    /// Active threads by circle of sharers and domain.
    fn circles(&self, process: &Process) -> Vec<Circle> {
        let mut circles = Vec::new();
        if process.program.transfers_per_kilo > 0.0 {
            circles.resize(process.threads.len(), Circle::new());
            for thread in &self.threads[process.threads.clone()] {
                if thread.active {
                    let domain = self.topology.domain_of_cpu(thread.cpu);
                    *circles[process.circle_of(thread.number)].entry(domain).or_insert(0) += 1;
                }
            }
        }
        circles
    }

    /// Adds lines that come from the caches of the threads that share with this one.
    fn add_transfers(&self, need: &mut Running, circles: &[Circle]) {
        let thread = &self.threads[need.thread];
        let process = &self.processes[need.process];
        let Some(circle) = circles.get(process.circle_of(thread.number)) else { return };
        let others = circle.values().sum::<u32>().saturating_sub(1);
        if others == 0 {
            return;
        }
        let all = process.program.transfers_per_kilo / 1000.0 / f64::from(others);
        let own = self.topology.domain_of_cpu(thread.cpu);
        let mut far: BTreeMap<usize, f64> = need.far.drain(..).collect();
        let mut near = 0.0;
        for (&domain, &count) in circle {
            match domain == own {
                true => near = all * f64::from(count - 1),
                false => {
                    *far.entry(self.node_of_domain[domain]).or_insert(0.0) +=
                        all * f64::from(count);
                }
            }
        }
        need.near += near;
        need.base_ns += near * self.machine.transfer_ns.same_domain_ns;
        need.far = far.into_iter().collect();
    }
}
