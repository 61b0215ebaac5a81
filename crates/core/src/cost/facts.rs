//! What the cost model knows of a window: the groups of threads of each process. They are fitted so
//! that the model's present equals what was measured.
//!
//! How fast threads work between misses and how many misses they have under way follow from what
//! was counted. So what is left to the model is what changes when threads or pages go elsewhere.

use super::charges::Charges;
use super::flows::{by_memory, flows};
use super::group::{Group, node_of};
use super::lines::{Named, count_far, own_lines, spread_lines};
use super::partners::Partners;
use super::solve::{self, Waits};
use crate::model::{App, Model, Thread, Traffic, TrafficSource};
use crate::topology::Topology;
use crate::units::Pid;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Least part of its time that a group has left without its waits. Counts of several events never
/// fit each other exactly.
const LEAST_WORK: f64 = 0.02;
/// Factors between which the capacity of controllers is fitted to the measured latency (our
/// choice). Counts leave out write-backs, and data sheets promise more than is reached.
const FITS: (f64, f64) = (0.5, 1.5);
/// Steps of that fit: each halves what is left of the range.
const FIT_STEPS: usize = 24;
/// Samples of a thread below which its own say less than those of its group (our choice).
const PRIOR_SAMPLES: f64 = 8.0;
/// Samples of a thread below which they say nothing of where it ran (our choice).
const MIN_WANDERING: u32 = 16;
/// CPU use of a node from which on its threads may wait for CPUs (our choice).
const CROWDED: f64 = 0.9;

/// What is known of the machine's processes over a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    pub(super) charges: Charges,
    /// Ascending by pid.
    pub(super) processes: Vec<Process>,
    /// Load of all together on each server, and how long each makes wait.
    pub(super) load: Vec<f64>,
    pub(super) waits: Waits,
    /// CPUs of each node that may be used, and what all threads there ask for.
    pub(super) cpus: Vec<f64>,
    pub(super) wanted: Vec<f64>,
    /// Misses in a µs of the threads behind each cache.
    pub(super) pressure: Vec<f64>,
    /// CPU time in µs that all processes together lose in a µs for each cycle that a server makes
    /// wait longer.
    pub(super) exposure: Vec<f64>,
    /// Threads that samples named partners of.
    pub(super) named: Named,
    /// Threads that took turns on CPUs of several nodes, by place in the model. With each cache its
    /// share of their time.
    pub(super) wandering: BTreeMap<usize, Vec<(usize, f64)>>,
}

/// One process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// How it runs now.
    pub(super) groups: Vec<Group>,
    pub(super) evidence: Evidence,
}

/// What the fit of a process rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub struct Evidence {
    /// Cycles that wait for memory were counted; else the core's bound on misses under way tells.
    pub counts_stalls: bool,
    /// Accesses over which latency was measured; 0 = the machine's alone tells.
    pub latency_accesses: f64,
    /// Which node asks which memory was counted or sampled; else the place of the memory tells.
    pub knows_traffic: bool,
}

impl Facts {
    /// Fits the model to a window.
    #[must_use]
    pub fn of(model: &Model, topology: &Topology) -> Self {
        Self::with_partners(model, topology, Partners::none())
    }

    /// As [`Facts::of`], where samples named partners of threads.
    #[must_use]
    pub fn with_partners(model: &Model, topology: &Topology, partners: &Partners) -> Self {
        let mut charges = Charges::of(topology);
        let load = present_load(model, &charges);
        fit_capacity(&mut charges, model, &load);
        let waits = Waits::at(&charges, &load);
        let mut facts = Self {
            cpus: (0..topology.node_count())
                .map(|node| topology.usable(topology.cpus_of_node(node)).len() as f64)
                .collect(),
            wanted: vec![0.0; topology.node_count()],
            pressure: vec![0.0; topology.domain_count()],
            exposure: charges.no_load(),
            processes: Vec::with_capacity(model.apps.len()),
            named: partners.shares(model),
            wandering: BTreeMap::new(),
            charges,
            load,
            waits,
        };
        let crowded = facts.crowded(model, topology);
        facts.wandering = wandering(model, topology, &crowded);
        for app in &model.apps {
            let process = facts.process(model, topology, app, &crowded);
            for group in &process.groups {
                facts.wanted[group.node] += group.wanted;
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

    /// What the fit of a process rests on; `None` for one that did not run.
    #[must_use]
    pub fn evidence(&self, pid: Pid) -> Option<Evidence> {
        self.place(pid).map(|place| self.processes[place].evidence)
    }

    /// The same threads and memory on another machine with as many nodes and CPUs.
    #[must_use]
    pub(super) fn on_machine(&self, machine: &Topology) -> Self {
        let mut there = self.clone();
        there.charges = Charges::of(machine);
        // The links are others, so load is that of the groups alone.
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

    /// The place of a process.
    pub(super) fn place(&self, pid: Pid) -> Option<usize> {
        let place = self.processes.binary_search_by_key(&pid, |one| one.pid).ok()?;
        (!self.processes[place].groups.is_empty()).then_some(place)
    }

    /// Nodes with all CPUs busy while more threads run there.
    fn crowded(&self, model: &Model, topology: &Topology) -> Vec<bool> {
        let mut use_and_threads = vec![(0.0, 0.0); self.cpus.len()];
        for thread in model.threads.iter().filter(|thread| thread.is_running()) {
            let node = &mut use_and_threads[topology.node_of_cpu(thread.cpu)];
            *node = (node.0 + thread.cpu_share, node.1 + 1.0);
        }
        let is_crowded = |((used, threads), cpus): (&(f64, f64), &f64)| {
            threads > cpus && *used >= CROWDED * cpus
        };
        use_and_threads.iter().zip(&self.cpus).map(is_crowded).collect()
    }

    fn process(&self, model: &Model, topology: &Topology, app: &App, crowded: &[bool]) -> Process {
        let threads = model.threads_of(app);
        let traffic = flows(app, threads, topology, &self.charges);
        let mut groups: BTreeMap<usize, Sums> = BTreeMap::new();
        let running = app.threads.clone().filter(|place| model.threads[*place].cpu_share > 0.0);
        for place in running {
            let thread = &model.threads[place];
            match self.wandering.get(&place) {
                Some(parts) => parts.iter().for_each(|(domain, share)| {
                    groups.entry(*domain).or_default().add(thread, *share);
                }),
                None => {
                    groups.entry(topology.domain_of_cpu(thread.cpu)).or_default().add(thread, 1.0);
                }
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
        spread_lines(&mut process.groups, (model, topology), app, &self.named);
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
            wanted: if crowded { sums.running.max(sums.cpus) } else { sums.cpus },
            work: self.charges.cycles_per_us,
            misses: total * part / sums.cpus,
            overlap: 1.0,
            shares: shares.map(|(holding, rate)| (holding, rate / total)).collect(),
            lines: sums.lines / sums.cpus,
            far: Vec::new(),
            pressure: 0.0,
            thread: None,
        }
    }

    /// Finds work and overlap such that the group needs a µs for what it did in one.
    fn fit(&self, group: &mut Group, sums: &Sums) {
        let cycles = self.charges.cycles_per_us;
        let transfers = self.transfer_cycles(group);
        let most = (cycles * (1.0 - LEAST_WORK) - transfers).max(0.0);
        let latency = self.charges.latency(group.node, &group.shares, &self.waits);
        let wait = group.misses * latency;
        let stalled = match sums.stalls_known {
            true => cycles * sums.stalled / sums.cpus,
            false => wait / self.charges.outstanding,
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

    /// Cycles for lines of other caches in what is done in a µs now.
    pub(super) fn transfer_cycles(&self, group: &Group) -> f64 {
        let far: f64 = group.far.iter().map(|(_, share)| share).sum();
        let from =
            |(owner, share): &(usize, f64)| share * self.charges.transfer[(group.node, *owner)];
        let each = (1.0 - far) * self.charges.same_domain + group.far.iter().map(from).sum::<f64>();
        group.lines * each
    }

    /// What one thread of a group asks for and where, in the `share` of its time that it spends in
    /// the group. Its own samples tell, as far as there are enough, else its group.
    pub(super) fn thread_alone(&self, thread: &Thread, group: &Group, share: f64) -> Group {
        let mut alone = group.clone();
        alone.threads = share;
        alone.cpus = (share * thread.cpu_share).min(group.cpus);
        alone.wanted = (group.wanted / group.cpus * alone.cpus).min(1.0).max(alone.cpus);
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
        alone
    }
}

/// Sums over the threads of a group, weighted by CPU time where they are rates of it.
#[derive(Debug)]
struct Sums {
    threads: f64,
    running: f64,
    cpus: f64,
    stalled: f64,
    stalls_known: bool,
    misses: f64,
    lines: f64,
    /// Of the lines, those from other nodes, where both are counted.
    far: Option<f64>,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            threads: 0.0,
            running: 0.0,
            cpus: 0.0,
            stalled: 0.0,
            stalls_known: true,
            misses: 0.0,
            lines: 0.0,
            far: Some(0.0),
        }
    }
}

impl Sums {
    /// Adds a `share` of a thread's time.
    fn add(&mut self, thread: &Thread, share: f64) {
        let rates = &thread.rates;
        let running = share * f64::from(u8::from(thread.is_running()));
        let cpus = share * thread.cpu_share;
        self.threads += running;
        self.running += running;
        self.cpus += cpus;
        match rates.stall_share {
            Some(stalled) => self.stalled += cpus * stalled,
            None => self.stalls_known = false,
        }
        self.misses += cpus * rates.memory_per_s.unwrap_or(0.0) / 1e6;
        let counted = [rates.coherence_remote_per_s, rates.coherence_local_per_s];
        self.far = match (self.far, counted) {
            (Some(far), [Some(remote), Some(_)]) => Some(far + cpus * remote / 1e6),
            _ => None,
        };
        self.lines += cpus * own_lines(thread).unwrap_or(0.0);
    }
}

/// Threads that ran on several nodes, one of which is crowded: there the kernel puts a thread on
/// whichever CPU is free next. Elsewhere a thread that ran on two nodes has moved once.
fn wandering(
    model: &Model,
    topology: &Topology,
    crowded: &[bool],
) -> BTreeMap<usize, Vec<(usize, f64)>> {
    let mut wandering = BTreeMap::new();
    if !crowded.contains(&true) {
        return wandering;
    }
    for (place, thread) in model.threads.iter().enumerate() {
        let Some(ran_on) = &thread.ran_on else { continue };
        let nodes = ran_on.iter().enumerate().filter(|(_, samples)| **samples > 0);
        let is_crowded = nodes.clone().any(|(node, _)| crowded[node]);
        let all: u32 = ran_on.iter().sum();
        if !is_crowded || nodes.clone().count() < 2 || all < MIN_WANDERING {
            continue;
        }
        let cache = |node: usize| {
            let last = Some(thread.cpu).filter(|cpu| topology.node_of_cpu(*cpu) == node);
            let cpu = last.or_else(|| topology.cpus_of_node(node).iter().next());
            cpu.map(|cpu| topology.domain_of_cpu(cpu))
        };
        let part = |(node, samples): (usize, &u32)| {
            Some((cache(node)?, f64::from(*samples) / f64::from(all)))
        };
        wandering.insert(place, nodes.filter_map(part).collect());
    }
    wandering
}

/// Load on every server: of the whole machine where it is counted, else of the applications.
fn present_load(model: &Model, charges: &Charges) -> Vec<f64> {
    let mut load = charges.no_load();
    let counted = model.apps.iter().filter(|app| app.traffic_source != TrafficSource::HintFaults);
    let all: Vec<&Traffic> = match &model.traffic {
        Some(traffic) => vec![traffic],
        None => counted.filter_map(|app| app.traffic.as_ref()).collect(),
    };
    for traffic in all {
        let flows = traffic.requests_per_us.cells().filter(|(_, _, rate)| *rate > 0.0);
        flows.for_each(|(a, h, rate)| solve::add_flow(charges, &mut load, (a, h), rate));
    }
    load
}

/// Scales the controllers so that their mean latency equals the measured one. A controller of
/// unknown capacity gets a capacity.
fn fit_capacity(charges: &mut Charges, model: &Model, load: &[f64]) {
    let latencies = model.apps.iter().filter_map(|app| {
        let traffic = app.traffic.as_ref()?;
        let weight = traffic.total_per_us();
        Some((traffic, app.latency_cycles?, weight)).filter(|_| weight > 0.0)
    });
    let apps: Vec<(&Traffic, f64, f64)> = latencies.collect();
    let weight: f64 = apps.iter().map(|(_, _, weight)| weight).sum();
    if weight <= 0.0 {
        return;
    }
    let measured = apps.iter().map(|(_, latency, weight)| latency * weight).sum::<f64>() / weight;
    let nodes = charges.nearest.len();
    let busiest = load[..nodes].iter().copied().fold(0.0, f64::max);
    let (mut small, mut large) = FITS;
    for server in &mut charges.servers[..nodes] {
        if server.per_us.is_infinite() && busiest > 0.0 {
            // The fit then searches from half of the load of the busiest node to a thousand times
            // that.
            server.per_us = busiest;
            (small, large) = (0.5, 1000.0);
        }
    }
    let flows: Vec<(usize, usize, f64)> = apps
        .iter()
        .flat_map(|(traffic, ..)| {
            traffic.requests_per_us.cells().filter(|(_, _, rate)| *rate > 0.0)
        })
        .collect();
    let mean = |factor: f64| {
        let waits = Waits::at_scaled(charges, load, factor);
        let of = |(a, h, rate): &(usize, usize, f64)| rate * charges.access(*a, *h, &waits);
        flows.iter().map(of).sum::<f64>() / weight
    };
    for _ in 0..FIT_STEPS {
        // Factors are searched by their ratio: the range may be wide.
        let middle = libm::sqrt(small * large);
        match mean(middle) > measured {
            true => small = middle,
            false => large = middle,
        }
    }
    charges.servers[..nodes].iter_mut().for_each(|server| *server = server.scaled(large));
}
