//! Changes from outside of the programs: masks, stops, dropped copies.

use rondpoint_core::model::Traffic;
use rondpoint_core::{CpuSet, Pid, Tid};

use super::Plant;
use super::need::Running;
use super::solve::Rate;

/// `ESRCH`: no such thread.
const ESRCH: i32 = 3;
/// `EINVAL`: no CPU of the mask can be used.
const EINVAL: i32 = 22;

/// What a report says about a whole run.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(crate) struct Tally {
    /// DRAM requests that the own node answered, percent.
    pub(crate) local_percent: f64,
    /// 100 · sd / mean of the requests by controller.
    pub(crate) imbalance_percent: f64,
    /// Mean latency of a DRAM request, cycles.
    pub(crate) latency_cycles: f64,
    /// Mean use of the links, percent.
    pub(crate) link_percent: f64,
    /// 100 · sd / mean of the use by link.
    pub(crate) link_imbalance_percent: f64,
    /// Useful instructions by cycle of a busy CPU.
    pub(crate) ipc: f64,
    /// Misses of the last-level cache per 1,000 useful instructions.
    pub(crate) mpki: f64,
    /// DRAM requests per microsecond.
    pub(crate) requests_per_us: f64,
    /// Pages that were moved or copied.
    pub(crate) pages_moved: u64,
    /// Threads that got a mask.
    pub(crate) threads_moved: u64,
}

impl Plant {
    /// The place of a thread that still runs.
    pub(crate) fn thread_of(&self, pid: Pid, tid: Tid) -> Option<usize> {
        let process = self.processes.iter().find(|process| process.pid == pid)?;
        let place = process.threads.start + tid.0.checked_sub(pid.0)? as usize;
        let is_there = process.runs() && process.threads.contains(&place);
        is_there.then_some(place).filter(|&place| !self.threads[place].finished)
    }

    /// The place of a process that still runs.
    pub(crate) fn process_of(&self, pid: Pid) -> Option<usize> {
        self.processes.iter().position(|process| process.pid == pid && process.runs())
    }

    /// Gives a thread a mask, by way of a CPU where one is named.
    pub(crate) fn set_mask(
        &mut self,
        (pid, tid): (Pid, Tid),
        cpus: &CpuSet,
        via: Option<usize>,
    ) -> Result<(), i32> {
        let thread = self.thread_of(pid, tid).ok_or(ESRCH)?;
        let usable = self.usable(thread);
        let allowed = cpus.intersection(&usable);
        if allowed.is_empty() {
            return Err(EINVAL);
        }
        let here = self.threads[thread].cpu;
        let target = via.filter(|cpu| usable.contains(*cpu));
        let target = target.or((!allowed.contains(here)).then(|| self.idlest(&allowed)));
        self.threads[thread].mask = allowed;
        if let Some(cpu) = target.filter(|cpu| *cpu != here) {
            self.run_on(thread, cpu);
        }
        self.totals.threads_moved += 1;
        Ok(())
    }

    pub(super) fn idlest(&self, cpus: &CpuSet) -> usize {
        let loads = self.loads();
        cpus.iter().min_by(|a, b| loads[*a].total_cmp(&loads[*b]).then(a.cmp(b))).unwrap_or(0)
    }

    /// Lets every thread of a process stand still.
    pub(crate) fn stall(&mut self, process: usize, ns: f64) {
        for thread in self.processes[process].threads.clone() {
            self.threads[thread].debt_ns += ns;
        }
    }

    /// Lets something else run for a while on the idlest CPU: a manager, a copying thread. It
    /// takes its fair share from the threads that run there.
    pub(crate) fn occupy(&mut self, ns: f64) {
        self.occupy_one_of(&self.online(), ns);
    }

    /// The same for a manager that stays on one node, drawn from the seed.
    pub(crate) fn occupy_by_manager(&mut self, ns: f64) {
        let nodes = self.topology.compute_nodes();
        let draw = self.chances.of(super::chance::Purpose::Manager, rondpoint_core::Nanos(0), 0);
        let node = nodes.iter().nth((draw * nodes.len() as f64) as usize).unwrap_or(0);
        let near = self.topology.cpus_of_node(node).intersection(&self.online());
        let cpus = if near.is_empty() { self.online() } else { near };
        self.occupy_one_of(&cpus, ns);
    }

    fn occupy_one_of(&mut self, cpus: &CpuSet, ns: f64) {
        let cpu = self.idlest(cpus);
        let here = self.threads.iter_mut().filter(|thread| thread.active && thread.cpu == cpu);
        let crowd: Vec<_> = here.collect();
        let each = ns / (crowd.len() + 1) as f64;
        crowd.into_iter().for_each(|thread| thread.debt_ns += each);
    }

    /// Writes take copies back, page by page.
    pub(super) fn collapse(&mut self, running: &[Running], rates: &[Rate]) {
        if self.groups.iter().all(|group| group.copied == 0) {
            return;
        }
        let mut writes = vec![0.0; self.groups.len()];
        for (of, rate) in running.iter().zip(rates) {
            let process = &self.processes[of.process];
            let thread = &self.threads[of.thread];
            let rotate = process.phase(thread.done).rotate;
            for region in 0..process.program.regions.len() {
                let group = process.group_of(region, thread.number, rotate);
                let accesses =
                    rate.useful * of.busy_ns * of.accesses * process.program.share_of(region);
                writes[group] += accesses * self.groups[group].writes;
            }
        }
        for (group, writes) in writes.into_iter().enumerate() {
            let of = &self.groups[group];
            if of.copied == 0 || writes <= 0.0 {
                continue;
            }
            let written = 1.0 - (-writes / of.homes.len() as f64).exp();
            let copied: Vec<usize> = of.copied_pages().collect();
            let process = of.process;
            let hit: Vec<usize> =
                copied.into_iter().filter(|_| self.random.unit() < written).collect();
            let cost = hit.len() as f64 * self.truth.collapse_ns;
            self.processes[process].faults += hit.len() as u64;
            for page in hit {
                self.drop_copies(group, page, true);
            }
            let threads = self.processes[process].threads.len() as f64;
            self.stall(process, cost / threads);
        }
    }

    /// Sums over the run so far.
    pub(crate) fn tally(&self) -> Tally {
        let totals = &self.totals;
        let of = |node: usize| self.traffic.column(node).sum::<f64>();
        let all: f64 = self.topology.memory_nodes().iter().map(of).sum();
        // As policies see it.
        let capacity = Traffic::relative_capacity(&self.topology);
        let controllers = self.topology.controllers();
        let load: Vec<f64> = controllers.iter().map(|node| of(node) / capacity[node]).collect();
        let local: f64 = (0..self.traffic.size()).map(|node| self.traffic[(node, node)]).sum();
        let ns = self.now.0 as f64;
        let carried = |(bytes, link): (&f64, &rondpoint_machine::Link)| {
            bytes / ns.max(1.0) / (link.bandwidth_mb_s / 1000.0)
        };
        let links: Vec<f64> =
            self.link_bytes.iter().zip(&self.machine.links).map(carried).collect();
        let misses = totals.misses.max(1.0);
        Tally {
            local_percent: 100.0 * local / all.max(1.0),
            imbalance_percent: imbalance(&load),
            latency_cycles: totals.latency_ns / misses / self.machine.cycle_ns(),
            link_percent: 100.0 * links.iter().sum::<f64>() / links.len().max(1) as f64,
            link_imbalance_percent: imbalance(&links),
            ipc: totals.instructions / totals.cycles.max(1.0),
            mpki: 1000.0 * totals.misses / totals.instructions.max(1.0),
            requests_per_us: totals.misses / (ns / 1000.0).max(1.0),
            pages_moved: totals.pages_moved,
            threads_moved: totals.threads_moved,
        }
    }
}

fn imbalance(values: &[f64]) -> f64 {
    use rondpoint_core::model::{Deviation, imbalance_percent};
    imbalance_percent(values, Deviation::Population).unwrap_or(0.0)
}
