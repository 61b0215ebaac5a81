//! The cost model fitted to a window: groups of threads of each process. The fit makes the model
//! reproduce the measured present.
//!
//! The counts give the speed of threads between misses and the number of misses under way. So the
//! model has to predict only the effect of other places for threads or pages.

use super::charges::Charges;
use super::flows::{by_memory, flows};
use super::group::{Group, node_of};
use super::lines::{Named, Unseen, all_lines, count_far, own_lines, spread_lines};
use super::partners::Partners;
use super::solve::{self, Waits};
use super::waiting::{by_progress, expected, ipc_alone};
use super::{crowd, fit};
use crate::model::{App, Model, Thread};
use crate::topology::Topology;
use crate::units::Pid;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// Least share of a group's time without waits. Counts of different events never agree exactly, so
/// the computed share may be too small.
pub(super) const LEAST_WORK: f64 = 0.02;
/// Weight of a group's samples beside those of one thread, in samples (our choice).
const PRIOR_SAMPLES: f64 = 8.0;

/// The fitted model of all processes in a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    pub(super) charges: Charges,
    /// Ascending by pid.
    pub(super) processes: Vec<Process>,
    /// Load on each server, and the wait at each server.
    pub(super) load: Vec<f64>,
    pub(super) waits: Waits,
    /// Usable CPUs of each node, and the demand of all threads there in CPUs.
    pub(super) cpus: Vec<f64>,
    pub(super) wanted: Vec<f64>,
    /// Part of that demand by threads that run on any node with a free CPU.
    pub(super) unpinned: Vec<f64>,
    /// Misses per µs of the threads behind each cache.
    pub(super) pressure: Vec<f64>,
    /// CPU time that all processes lose per µs for each extra cycle of wait at a server.
    pub(super) exposure: Vec<f64>,
    /// Threads with partners that samples named.
    pub(super) named: Named,
    /// Lines that partners exchange and no counter shows.
    pub(super) unseen: Unseen,
    /// Threads that ran on several nodes in turn, by place in the model: each cache with its share
    /// of the thread's time.
    pub(super) wandering: BTreeMap<usize, Vec<(usize, f64)>>,
    /// Threads that run on any node with a free CPU, by place in the model.
    pub(super) unpinned_threads: BTreeSet<usize>,
}

/// One process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// Its groups of threads at present.
    pub(super) groups: Vec<Group>,
    pub(super) evidence: Evidence,
}

/// The evidence behind the fit of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub struct Evidence {
    /// Whether stalled cycles were counted. Otherwise the most misses that a core has under way
    /// gives the waits.
    pub counts_stalls: bool,
    /// Number of accesses over which latency was measured; 0 = only the machine's latency is known.
    pub latency_accesses: f64,
    /// Whether traffic from node to node was counted or sampled. Otherwise the place of the memory
    /// gives it.
    pub knows_traffic: bool,
}

impl Facts {
    /// Fits the model to a window.
    #[must_use]
    pub fn of(model: &Model, topology: &Topology) -> Self {
        Self::with_partners(model, topology, Partners::none())
    }

    /// As [`Facts::of`], with partners of threads that samples named.
    #[must_use]
    pub fn with_partners(model: &Model, topology: &Topology, partners: &Partners) -> Self {
        let mut charges = Charges::of(topology);
        let load = fit::present_load(model, &charges);
        fit::fit_links(&mut charges, model, &load);
        fit::fit_capacity(&mut charges, model, &load);
        let waits = Waits::at(&charges, &load);
        let named = partners.shares(model);
        let mut facts = Self {
            cpus: (0..topology.node_count())
                .map(|node| topology.usable(topology.cpus_of_node(node)).len() as f64)
                .collect(),
            wanted: vec![0.0; topology.node_count()],
            unpinned: vec![0.0; topology.node_count()],
            pressure: vec![0.0; topology.domain_count()],
            exposure: charges.no_load(),
            processes: Vec::with_capacity(model.apps.len()),
            unseen: partners.unseen(model, topology, &named),
            named,
            wandering: BTreeMap::new(),
            unpinned_threads: BTreeSet::new(),
            charges,
            load,
            waits,
        };
        let crowded = crowd::crowded(model, topology, &facts.cpus);
        facts.wandering = crowd::wandering(model, topology, &crowded);
        facts.unpinned_threads =
            crowd::unpinned_threads(model, topology, &crowded, &facts.wandering);
        for app in &model.apps {
            let process = facts.process(model, topology, app, &crowded);
            for group in &process.groups {
                facts.wanted[group.node] += group.wanted;
                facts.unpinned[group.node] += group.unpinned;
                facts.pressure[group.domain] += group.misses * group.cpus;
                solve::add_exposure(&facts.charges, &mut facts.exposure, group, 1.0);
            }
            facts.processes.push(process);
        }
        for group in facts.processes.iter_mut().flat_map(|process| &mut process.groups) {
            group.pressure = facts.pressure[group.domain];
        }
        facts
    }

    /// The evidence behind the fit of a process; `None` if the process did not run.
    #[must_use]
    pub fn evidence(&self, pid: Pid) -> Option<Evidence> {
        self.place(pid).map(|place| self.processes[place].evidence)
    }

    /// The same threads and memory on another machine with as many nodes and CPUs.
    #[must_use]
    pub(super) fn on_machine(&self, machine: &Topology) -> Self {
        let mut there = self.clone();
        there.charges = Charges::of(machine);
        // The other machine has other links, so only the groups' own load counts.
        there.load = there.charges.no_load();
        there.exposure = there.charges.no_load();
        for group in there.processes.iter_mut().flat_map(|process| &mut process.groups) {
            group.overlap = group.overlap.min(there.charges.outstanding.max(1.0));
            for (holding, share) in &group.shares {
                let per_us = group.misses * group.cpus * share;
                let way = (group.node, *holding);
                solve::add_flow(&there.charges, &mut there.load, way, per_us);
            }
            solve::add_exposure(&there.charges, &mut there.exposure, group, 1.0);
        }
        there.waits = Waits::at(&there.charges, &there.load);
        there
    }

    /// Index of a process.
    pub(super) fn place(&self, pid: Pid) -> Option<usize> {
        let place = self.processes.binary_search_by_key(&pid, |one| one.pid).ok()?;
        (!self.processes[place].groups.is_empty()).then_some(place)
    }

    fn process(&self, model: &Model, topology: &Topology, app: &App, crowded: &[bool]) -> Process {
        let threads = model.threads_of(app);
        let traffic = flows(app, threads, topology, &self.charges);
        let mut groups: BTreeMap<usize, Sums> = BTreeMap::new();
        let running = app.threads.clone().filter(|place| model.threads[*place].cpu_share > 0.0);
        for place in running {
            let thread = &model.threads[place];
            let here = [(topology.domain_of_cpu(thread.cpu), 1.0)];
            let parts = self.wandering.get(&place).map_or(&here[..], Vec::as_slice);
            for (domain, share) in parts {
                let is_unpinned = self.unpinned_threads.contains(&place);
                let sums = groups.entry(*domain).or_default();
                sums.add(thread, *share, is_unpinned);
                let unseen = share * thread.cpu_share * self.unseen_of(place);
                sums.lines += unseen;
                sums.unseen += unseen;
            }
        }
        let mut evidence = Evidence {
            counts_stalls: !groups.is_empty(),
            latency_accesses: app.latency_cycles.map_or(0.0, |_| app.latency_accesses),
            knows_traffic: traffic.is_some() || groups.values().all(|sums| sums.misses <= 0.0),
        };
        evidence.counts_stalls &= groups.values().all(|sums| sums.stalls_known);
        let flows = traffic.unwrap_or_else(|| by_memory(app, threads, topology));
        let on_node = |node: usize| {
            let here = groups.iter().filter(move |(domain, _)| node_of(topology, **domain) == node);
            here.map(|(_, sums)| sums.cpus).sum::<f64>()
        };
        let all: Vec<Group> = groups
            .iter()
            .map(|(domain, sums)| {
                let node = node_of(topology, *domain);
                let part = sums.cpus / on_node(node);
                self.group(sums, (node, *domain), flows.row(node), part, crowded[node])
            })
            .collect();
        let mut process = Process { pid: app.pid, groups: all, evidence };
        let known = (&self.named, &self.unseen);
        spread_lines(&mut process.groups, (model, topology), app, known);
        for (group, sums) in process.groups.iter_mut().zip(groups.values()) {
            count_far(group, (sums.lines, sums.far));
            self.fit(group, sums);
        }
        process
    }

    /// A group before it is fitted.
    fn group(
        &self,
        sums: &Sums,
        (node, domain): (usize, usize),
        per_us: &[f64],
        part: f64,
        crowded: bool,
    ) -> Group {
        let total: f64 = per_us.iter().sum();
        let shares = per_us.iter().enumerate().filter(|(_, rate)| **rate > 0.0);
        Group {
            node,
            domain,
            threads: sums.threads.max(1.0),
            cpus: sums.cpus,
            wanted: sums.wanted(crowded),
            unpinned: sums.wanted(crowded) * sums.unpinned / sums.asked.max(f64::MIN_POSITIVE),
            work: self.charges.cycles_per_us,
            misses: total * part / sums.cpus,
            counted: if sums.misses_known { sums.misses / sums.cpus } else { 0.0 },
            overlap: 1.0,
            shares: shares.map(|(holding, rate)| (holding, rate / total)).collect(),
            lines: sums.lines / sums.cpus,
            unseen: sums.unseen / sums.cpus,
            far: Vec::new(),
            pressure: 0.0,
            thread: None,
        }
    }

    /// Finds work and overlap such that the model reproduces the group's speed.
    fn fit(&self, group: &mut Group, sums: &Sums) {
        let cycles = self.charges.cycles_per_us;
        let transfers = self.transfer_cycles(group);
        let most = (cycles * (1.0 - LEAST_WORK) - transfers).max(0.0);
        let latency = self.charges.latency(group.node, &group.shares, &self.waits);
        let wait = group.misses * latency;
        let stalled = match sums.stalls_known {
            true => cycles * sums.stalled / sums.cpus,
            false => {
                let other = (cycles * sums.slowed() - transfers).max(0.0);
                expected(wait / self.charges.outstanding, wait, other)
            }
        };
        let stalled = stalled.min(most).min(wait);
        if stalled > 0.0 {
            group.overlap = wait / stalled;
            group.work = (cycles - stalled - transfers).max(LEAST_WORK * cycles);
        } else {
            group.misses = 0.0;
            group.work = (cycles - transfers).max(LEAST_WORK * cycles);
        }
    }

    /// See [`all_lines`].
    pub(super) fn lines_of(&self, place: usize, thread: &Thread) -> Option<f64> {
        all_lines(place, thread, &self.unseen)
    }

    /// See [`Facts::unseen`].
    pub(super) fn unseen_of(&self, place: usize) -> f64 {
        self.unseen.get(&place).copied().unwrap_or(0.0)
    }

    /// Cycles that a group spends per µs on lines from other caches.
    pub(super) fn transfer_cycles(&self, group: &Group) -> f64 {
        let far: f64 = group.far.iter().map(|(_, share)| share).sum();
        let from =
            |(owner, share): &(usize, f64)| share * self.charges.transfer[(group.node, *owner)];
        let each = (1.0 - far) * self.charges.same_domain + group.far.iter().map(from).sum::<f64>();
        group.lines * each - group.unseen * self.charges.same_domain
    }

    /// The accesses of one thread of a group, in the `share` of its time that it spends in the
    /// group. They follow from its own samples and counts or, without these, from its group.
    pub(super) fn thread_alone(
        &self,
        (place, thread): (usize, &Thread),
        group: &Group,
        share: f64,
    ) -> Group {
        let mut alone = group.clone();
        alone.threads = share;
        alone.cpus = (share * thread.cpu_share).min(group.cpus);
        let asked = thread.queued_share.map(|_| share * thread.wanted_share());
        let asked = asked.unwrap_or(group.wanted / group.cpus * alone.cpus);
        alone.wanted = asked.min(1.0).max(alone.cpus);
        alone.unpinned = if self.unpinned_threads.contains(&place) { alone.wanted } else { 0.0 };
        if let Some(accesses) = &thread.accesses_by_node {
            let samples: f64 = accesses.iter().map(|count| f64::from(*count)).sum();
            let mut shares: BTreeMap<usize, f64> = BTreeMap::new();
            for (node, share) in &group.shares {
                shares.insert(*node, PRIOR_SAMPLES * share);
            }
            for (node, count) in accesses.iter().enumerate().filter(|(_, count)| **count > 0) {
                *shares.entry(node).or_default() += f64::from(*count);
            }
            let all = samples + PRIOR_SAMPLES;
            alone.shares = shares.into_iter().map(|(node, count)| (node, count / all)).collect();
        }
        let rates = &thread.rates;
        if let (Some(own), Some(_)) = (rates.memory_per_s, rates.stall_share)
            && group.counted > 0.0
        {
            alone.misses = group.misses * own / 1e6 / group.counted;
            let mut sums = Sums::default();
            sums.add(thread, share, false);
            self.fit(&mut alone, &sums);
        }
        alone
    }
}

/// Sums over the threads of a group, weighted by CPU time where they are rates of it.
#[derive(Debug)]
struct Sums {
    threads: f64,
    cpus: f64,
    /// CPUs that they wait for; `None` if the kernel does not count it for each thread.
    queued: Option<f64>,
    /// Demand for CPUs of all threads, and of unpinned threads, as far as it is counted.
    asked: f64,
    unpinned: f64,
    stalled: f64,
    stalls_known: bool,
    /// Instructions per cycle, times CPUs; `None` if a thread is not counted.
    progress: Option<f64>,
    misses: f64,
    misses_known: bool,
    lines: f64,
    unseen: f64,
    /// Lines from other nodes, if both counts exist.
    far: Option<f64>,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            threads: 0.0,
            cpus: 0.0,
            queued: Some(0.0),
            asked: 0.0,
            unpinned: 0.0,
            stalled: 0.0,
            stalls_known: true,
            progress: Some(0.0),
            misses: 0.0,
            misses_known: true,
            lines: 0.0,
            unseen: 0.0,
            far: Some(0.0),
        }
    }
}

impl Sums {
    /// Adds a `share` of a thread's time.
    fn add(&mut self, thread: &Thread, share: f64, is_unpinned: bool) {
        let rates = &thread.rates;
        let running = share * f64::from(u8::from(thread.is_running()));
        let cpus = share * thread.cpu_share;
        self.threads += running;
        self.cpus += cpus;
        let queued = thread.queued_share.map(|_| thread.wanted_share() - thread.cpu_share);
        let asked = share * thread.wanted_share();
        self.asked += asked;
        self.unpinned += if is_unpinned { asked } else { 0.0 };
        self.queued = self.queued.zip(queued).map(|(sum, queued)| sum + share * queued);
        match rates.stall_share {
            Some(stalled) => self.stalled += cpus * stalled,
            None => self.stalls_known = false,
        }
        self.progress = self.progress.zip(ipc_alone(thread)).map(|(sum, ipc)| sum + cpus * ipc);
        self.misses += cpus * rates.memory_per_s.unwrap_or(0.0) / 1e6;
        self.misses_known &= rates.memory_per_s.is_some();
        let counted = [rates.coherence_remote_per_s, rates.coherence_local_per_s];
        self.far = match (self.far, counted) {
            (Some(far), [Some(remote), Some(_)]) => Some(far + cpus * remote / 1e6),
            _ => None,
        };
        self.lines += cpus * own_lines(thread).unwrap_or(0.0);
    }

    /// Share of their cycles for which they wait, by their instructions per cycle; 0 if unknown.
    fn slowed(&self) -> f64 {
        self.progress.map_or(0.0, |progress| by_progress(progress / self.cpus))
    }

    /// Demand of the threads in CPUs. Without counts, all threads of a `crowded` node are assumed
    /// to want a whole CPU.
    fn wanted(&self, crowded: bool) -> f64 {
        match self.queued {
            Some(queued) => self.cpus + queued,
            None if crowded => self.threads.max(self.cpus),
            None => self.cpus,
        }
    }
}
