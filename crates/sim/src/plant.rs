//! The simulated machine: threads, pages, queues and a kernel scheduler, advanced in epochs.
//!
//! The machine, here called the plant, has constants that are drawn around those of the machine
//! file and hidden from the manager. It has effects that the core's cost model does not know. These
//! are write-backs, bursts, mixed streams at a controller, cold caches after a move, and a
//! scheduler that moves threads.

mod act;
mod build;
mod cache;
mod chance;
mod counts;
mod hotplug;
mod lives;
mod lock;
mod memory;
mod need;
mod queues;
mod replies;
mod scheduler;
mod service;
mod shortage;
mod solve;
#[cfg(test)]
mod tests;
mod truth;

use rondpoint_core::observation::Exemption;
use rondpoint_core::units::Nanos;
use rondpoint_core::{CpuSet, Matrix, NodeSet, Pid, Random, Tid, Topology};
use rondpoint_machine::Machine;
use std::collections::BTreeMap;

use crate::workload::{Program, Used, Waits};
pub(crate) use act::Tally;
pub(crate) use counts::ThreadCounts;
pub(crate) use memory::{Group, Moved};
pub(crate) use need::Running;
pub(crate) use scheduler::IDLE;
pub(crate) use solve::Rate;
pub use truth::Truth;

/// Simulated time of one epoch. Rates are constant within an epoch.
pub(crate) const EPOCH: Nanos = Nanos::from_millis(50);

/// Where Linux puts new pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstPlace {
    /// On the node of the thread that touches them first.
    Touch,
    /// On all nodes with memory in turn, as `numactl --interleave=all` says.
    Interleave,
}

/// One thread.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    pub(crate) tid: Tid,
    pub(crate) process: usize,
    /// Place among the threads of its process.
    pub(crate) number: usize,
    pub(crate) cpu: usize,
    /// The program's own mask.
    pub(crate) allowed: CpuSet,
    /// The mask now.
    pub(crate) mask: CpuSet,
    /// Instructions done of its work.
    pub(crate) done: f64,
    pub(crate) finished: bool,
    /// Runs in this epoch: not finished and not idle in a serial phase.
    pub(crate) active: bool,
    /// Share of the last epoch for which it ran or waited for a CPU. Below 1 for threads that wait
    /// for requests or replies.
    pub(crate) ready: f64,
    /// Nanoseconds that it stands still in the coming epochs.
    pub(crate) debt_ns: f64,
    pub(crate) counts: ThreadCounts,
}

/// One process.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) program: Program,
    pub(crate) threads: std::ops::Range<usize>,
    /// The process that answers its requests.
    pub(crate) asks: Option<usize>,
    /// Its groups of pages, by region and part.
    pub(crate) groups: Vec<Vec<usize>>,
    /// Instructions of each thread.
    pub(crate) work: f64,
    /// When it starts.
    due: Nanos,
    /// Requests that wait at it, of those that come at a fixed rate.
    backlog: f64,
    /// Those of epochs in which none of its threads ran, one entry by client and epoch.
    unheard: Vec<service::Unheard>,
    pub(crate) started: Option<Nanos>,
    pub(crate) ended: Option<Nanos>,
    /// The kernel ended it because memory was short.
    pub(crate) killed: bool,
    pub(crate) moved_by_kernel: u64,
    /// Page faults after the first touch: hint faults and collapses of copies.
    pub(crate) faults: u64,
    /// Nodes of its cpuset; `None` = all.
    pub(crate) allowed_nodes: Option<NodeSet>,
    /// Why managers must leave it alone; `None` = they may manage it.
    pub(crate) exempt: Option<Exemption>,
    pub(crate) counts: counts::ProcessCounts,
}

/// What a program does at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) intensity: f64,
    pub(crate) rotate: usize,
    /// Running threads; 0 = all.
    active: usize,
}

impl Process {
    pub(crate) fn runs(&self) -> bool {
        self.started.is_some() && self.ended.is_none()
    }

    /// Whether it answers requests of others. It ends when nobody asks any more.
    pub(crate) fn answers(&self) -> bool {
        self.program.requests.as_ref().is_some_and(|requests| requests.to.is_empty())
    }

    /// The phase of a thread that has done `done` instructions.
    pub(crate) fn phase(&self, done: f64) -> Now {
        let share = done / self.work;
        let phase = self.program.phases.iter().rev().find(|phase| phase.at <= share);
        phase.map_or(Now { intensity: 1.0, rotate: 0, active: 0 }, |phase| Now {
            intensity: phase.intensity,
            rotate: phase.rotate as usize,
            active: phase.active as usize,
        })
    }

    /// Factor on its demand in the epoch from `now` on: 1 in a burst.
    fn in_burst(&self, now: Nanos) -> f64 {
        let Some(bursts) = &self.program.bursts else { return 1.0 };
        let every = ((bursts.every_s * 1e9).round() as u64).max(1);
        let length = ((bursts.every_s * bursts.share * 1e9).round() as u64).min(every);
        let until = |time: u64| time / every * length + (time % every).min(length);
        let since = now.since(self.started.unwrap_or(now)).0;
        let share = (until(since + EPOCH.0) - until(since)) as f64 / EPOCH.0 as f64;
        share + (1.0 - share) * bursts.quiet
    }

    /// The group that a thread uses of a region.
    pub(crate) fn group_of(&self, region: usize, number: usize, rotate: usize) -> usize {
        let parts = &self.groups[region];
        let part = match self.program.regions[region].used {
            Used::All | Used::Own => number + rotate,
            Used::Next => number + rotate + 1,
            Used::Circle => self.circle_of(number + rotate),
        };
        parts[part % parts.len()]
    }

    /// The circle of threads with which a thread exchanges lines.
    pub(crate) fn circle_of(&self, number: usize) -> usize {
        number.checked_div(self.program.sharers as usize).unwrap_or(0)
    }
}

/// The machine with everything on it.
pub(crate) struct Plant {
    pub(crate) machine: Machine,
    pub(crate) topology: Topology,
    node_of_domain: Vec<usize>,
    pub(crate) truth: Truth,
    first_place: FirstPlace,
    /// When all programs are stopped.
    stops: Option<Nanos>,
    pub(crate) random: Random,
    chances: chance::Chances,
    pub(crate) now: Nanos,
    pub(crate) processes: Vec<Process>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) groups: Vec<memory::Group>,
    by_page: BTreeMap<u64, usize>,
    pub(crate) free_pages: Vec<u64>,
    unplugged_cpus: CpuSet,
    /// By node, pages of memory that was unplugged.
    pub(crate) unplugged_pages: Vec<u64>,
    pub(crate) queues: queues::Queues,
    /// Requests by `[accessing][holding]` since the beginning.
    pub(crate) traffic: Matrix<f64>,
    /// Lines that each node's controllers served, written ones included, since the beginning.
    pub(crate) controller_lines: Vec<f64>,
    pub(crate) link_bytes: Vec<f64>,
    pub(crate) totals: counts::Totals,
}

/// One epoch that passed.
pub(crate) struct Epoch {
    pub(crate) running: Vec<Running>,
    pub(crate) rates: Vec<Rate>,
}

impl Plant {
    /// Simulated time.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Whether every program has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.processes.iter().all(|process| process.ended.is_some())
    }

    /// Running time of each process in seconds. A stopped one has the time of its whole work at its
    /// mean pace. `None` while it runs, and where it was killed or did nothing.
    pub(crate) fn times(&self) -> impl Iterator<Item = (&Process, Option<f64>)> {
        self.processes.iter().map(|process| {
            let time = process.ended.zip(process.started).map(|(e, s)| e.since(s).seconds());
            let whole = process.work * process.threads.len() as f64;
            let most = if process.answers() { f64::INFINITY } else { process.work };
            let did = |thread: &Thread| thread.done.min(most);
            let done: f64 = self.threads[process.threads.clone()].iter().map(did).sum();
            let counts = !process.killed && done > 0.0;
            (process, time.filter(|_| counts).map(|time| time * whole / done))
        })
    }

    /// Lets one epoch pass.
    pub(crate) fn advance(&mut self) -> Epoch {
        self.start();
        self.renew();
        self.set_active();
        self.balance();
        self.wake();
        self.wake_for_messages();
        let running = self.needs();
        let rates = self.solve(&running);
        self.note_readiness(&running, &rates);
        self.count(&running, &rates);
        self.note_replies(&running, &rates);
        self.collapse(&running, &rates);
        self.progress(&running, &rates);
        self.now += EPOCH;
        self.end_programs();
        Epoch { running, rates }
    }

    /// Says which threads run in this epoch.
    fn set_active(&mut self) {
        for process in &self.processes {
            let first = &self.threads[process.threads.start];
            let active = process.phase(first.done).active;
            for thread in &mut self.threads[process.threads.clone()] {
                let chosen = active == 0 || thread.number < active;
                thread.active = process.runs() && !thread.finished && chosen;
            }
        }
    }

    fn progress(&mut self, running: &[Running], rates: &[Rate]) {
        for (of, rate) in running.iter().zip(rates) {
            let thread = &mut self.threads[of.thread];
            thread.done += rate.useful * of.busy_ns;
            thread.debt_ns = (thread.debt_ns - (EPOCH.0 as f64 - of.awake_ns)).max(0.0);
        }
        for process in &self.processes {
            let threads = &mut self.threads[process.threads.clone()];
            if process.program.waits != Waits::Never {
                let active = threads.iter().filter(|thread| thread.active);
                let least = active.map(|thread| thread.done).fold(f64::INFINITY, f64::min);
                if least.is_finite() {
                    threads.iter_mut().for_each(|thread| thread.done = least);
                }
            }
            let ends = |thread: &Thread| thread.done >= process.work && !process.answers();
            threads.iter_mut().for_each(|thread| thread.finished |= ends(thread));
        }
    }

    /// Ends the running process with the most threads before its work is done.
    pub(crate) fn end_one(&mut self) {
        let running = self.processes.iter().enumerate().filter(|(_, process)| process.runs());
        let victim = running.max_by_key(|(_, process)| process.threads.len()).map(|(one, _)| one);
        if let Some(victim) = victim {
            self.kill(victim);
        }
    }

    /// Ends a running process before its work is done.
    pub(crate) fn kill(&mut self, process: usize) {
        for thread in self.processes[process].threads.clone() {
            self.threads[thread].finished = true;
            self.threads[thread].active = false;
        }
        self.free_memory_of(process);
        self.processes[process].ended = Some(self.now);
    }

    /// Puts the threads of a process onto CPUs and its pages onto nodes, before it runs and at no
    /// cost. Pages of one thread go with it, shared ones in turn over `nodes`. Pinned threads stay.
    pub(crate) fn arrange(&mut self, process: usize, cpus: &[usize], nodes: &[usize], pin: bool) {
        self.start();
        for (number, thread) in self.processes[process].threads.clone().enumerate() {
            let cpu = cpus[number % cpus.len()];
            self.threads[thread].cpu = cpu;
            if pin {
                self.threads[thread].mask = [cpu].into_iter().collect();
            }
        }
        for (region, parts) in self.processes[process].groups.clone().into_iter().enumerate() {
            let own = self.processes[process].program.regions[region].used == Used::Own;
            for (part, group) in parts.into_iter().enumerate() {
                let near = self.near(process, part);
                let own = own && nodes.contains(&near);
                for page in 0..self.groups[group].homes.len() {
                    let to = if own { near } else { nodes[page % nodes.len()] };
                    // Where there is no room a page stays.
                    let _ = self.move_page(group, page, to);
                }
            }
        }
    }

    /// Confines a process to nodes before it starts, as a cpuset does.
    pub(crate) fn confine(&mut self, process: usize, nodes: &NodeSet) {
        let cpus: CpuSet =
            nodes.iter().flat_map(|node| self.topology.cpus_of_node(node).iter()).collect();
        for thread in self.processes[process].threads.clone() {
            self.threads[thread].allowed = cpus.clone();
            self.threads[thread].mask = cpus.clone();
        }
        self.processes[process].allowed_nodes = Some(nodes.clone());
    }

    fn end_programs(&mut self) {
        let stops = self.stops.is_some_and(|stops| self.now >= stops);
        for index in 0..self.processes.len() {
            let process = &self.processes[index];
            let is_done = match process.answers() {
                true => self.is_asked_no_more(index),
                false => self.threads[process.threads.clone()].iter().all(|one| one.finished),
            };
            if process.runs() && (stops || is_done) {
                self.free_memory_of(index);
                self.processes[index].ended = Some(self.now);
            }
        }
    }
}
