//! Time that each process loses under a placement, by cause.

use super::charges::Charges;
use super::crowd::Demand;
use super::facts::{Facts, Process};
use super::group::Group;
use super::placement::Placement;
use super::solve::{Runner, Touched, Waits, add_exposure, add_flow, settle};
use crate::units::Pid;
use alloc::vec::Vec;
use core::fmt;

/// Exponent by which misses fall with a thread's share of the last-level cache. The rule of thumb
/// is 0.5 (Hartstein and others, "Cache miss behavior: is it √2?", 2006); a stream has 0. No
/// counter distinguishes them, so the middle is used.
const CROWDING: f64 = 0.25;

/// A cause of lost time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Cause {
    /// Distance to memory of other nodes.
    RemoteDram,
    /// The queue of a memory controller.
    ControllerQueue,
    /// The queue on a link.
    LinkQueue,
    /// Lines that come from other caches.
    Coherence,
    /// Misses because other processes use the cache.
    CrowdedCache,
    /// Waiting for a CPU that another thread uses.
    WaitingForCpu,
}

/// All causes, in order.
pub const CAUSES: [Cause; 6] = [
    Cause::RemoteDram,
    Cause::ControllerQueue,
    Cause::LinkQueue,
    Cause::Coherence,
    Cause::CrowdedCache,
    Cause::WaitingForCpu,
];

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RemoteDram => "remote memory",
            Self::ControllerQueue => "queue at a memory controller",
            Self::LinkQueue => "queue on a link",
            Self::Coherence => "lines from other caches",
            Self::CrowdedCache => "crowded cache",
            Self::WaitingForCpu => "waiting for a CPU",
        })
    }
}

/// Loss of a process, in nanoseconds per second of its demand for CPU time.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ProcessLoss {
    /// Process.
    pub pid: Pid,
    /// Demand of its threads in CPUs.
    pub cpus: f64,
    /// ns lost per second of demand, in the order of [`CAUSES`].
    pub ns_per_s: [f64; CAUSES.len()],
    /// Speed relative to now: 1.1 = 10 % faster.
    pub pace: f64,
}

impl ProcessLoss {
    /// ns lost per second by all causes together: below 10⁹.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.ns_per_s.iter().sum()
    }

    /// ns lost per second by one cause.
    #[must_use]
    pub fn by(&self, cause: Cause) -> f64 {
        self.ns_per_s[cause as usize]
    }

    /// CPUs that its threads get.
    #[must_use]
    pub fn served(&self) -> f64 {
        self.cpus * (1.0 - self.by(Cause::WaitingForCpu) / 1e9)
    }

    /// The cause of the largest loss.
    #[must_use]
    pub fn worst(&self) -> Cause {
        CAUSES.into_iter().max_by(|a, b| self.by(*a).total_cmp(&self.by(*b))).unwrap_or(CAUSES[0])
    }
}

/// Losses under a placement.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Lost {
    /// Processes with a place in the placement, ascending by pid.
    pub processes: Vec<ProcessLoss>,
    /// Additional loss of all other processes, in ns of CPU time per second; negative if they gain.
    /// It has two causes: queues for memory, and queues for CPUs.
    pub others_ns_per_s: f64,
    /// Highest use of a controller, 1 = full.
    pub busiest_controller: f64,
}

impl Lost {
    /// The loss of a process.
    #[must_use]
    pub fn of(&self, pid: Pid) -> Option<&ProcessLoss> {
        let place = self.processes.binary_search_by_key(&pid, |one| one.pid).ok()?;
        self.processes.get(place)
    }
}

/// Computes the loss of each process under a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostModel;

impl CostModel {
    /// Losses of the processes of a placement. Other processes stay in place and send as much
    /// traffic as now. Their additional loss is one figure for all of them.
    #[must_use]
    pub fn lost(&self, facts: &Facts, placement: &Placement) -> Lost {
        Priced::new(facts, placement).lost()
    }
}

/// A placement with the demand on CPUs and caches that it causes.
struct Priced<'a> {
    facts: &'a Facts,
    placed: Vec<(&'a Process, &'a [Group])>,
    demand: Demand,
    /// CPUs that all other processes get, less those that they get at present.
    others_cpus: f64,
    /// Misses by cache.
    pressure: Vec<f64>,
}

impl<'a> Priced<'a> {
    fn new(facts: &'a Facts, placement: &'a Placement) -> Self {
        let mut placed = Vec::with_capacity(placement.placed.len());
        let (mut wanted, mut unpinned) = (facts.wanted.clone(), facts.unpinned.clone());
        let mut pressure = facts.pressure.clone();
        let processes = placement.placed.iter().map(|(place, _)| &facts.processes[*place]);
        for now in processes.flat_map(|process| &process.groups) {
            wanted[now.node] -= now.wanted;
            unpinned[now.node] -= now.unpinned;
            pressure[now.domain] -= now.misses * now.cpus;
        }
        let (others_wanted, others_unpinned) = (wanted.clone(), unpinned.clone());
        for (place, groups) in &placement.placed {
            for then in groups {
                wanted[then.node] += then.wanted;
                unpinned[then.node] += then.unpinned;
                pressure[then.domain] += then.misses * then.cpus;
            }
            placed.push((&facts.processes[*place], groups.as_slice()));
        }
        let demand = Demand::new(wanted, unpinned, &facts.cpus);
        let present = Demand::new(facts.wanted.clone(), facts.unpinned.clone(), &facts.cpus);
        let others = |demand: &Demand| demand.served_to(&others_wanted, &others_unpinned);
        let others_cpus = others(&demand) - others(&present);
        Self { facts, placed, demand, others_cpus, pressure }
    }

    fn lost(&self) -> Lost {
        let facts = self.facts;
        let charges = &facts.charges;
        let mut others = facts.load.clone();
        let mut exposure = facts.exposure.clone();
        let mut touched = Touched::none(charges);
        for now in self.placed.iter().flat_map(|(process, _)| &process.groups) {
            for (holding, share) in &now.shares {
                let per_us = now.misses * now.cpus * share;
                add_flow(charges, &mut others, (now.node, *holding), -per_us);
            }
            add_exposure(charges, &mut exposure, now, -1.0);
            touched.add(charges, now);
        }
        exposure.iter_mut().for_each(|exposed| *exposed = exposed.max(0.0));
        others.iter_mut().for_each(|load| *load = load.max(0.0));
        let runners: Vec<Vec<Runner<'_>>> = self
            .placed
            .iter()
            .map(|(_, groups)| groups.iter().map(|group| self.runner(group)).collect())
            .collect();
        let all: Vec<Runner<'_>> = runners.iter().flatten().copied().collect();
        all.iter().for_each(|runner| touched.add(charges, runner.group));
        let waits = settle(charges, &others, &facts.waits, &touched, &all);
        let longer = |server: usize| waits.0[server] - facts.waits.0[server];
        let others_us: f64 = touched.iter().map(|server| longer(server) * exposure[server]).sum();
        let of = |((process, _), runners): (&(&Process, &[Group]), &Vec<Runner<'_>>)| {
            self.process(process, runners, &waits)
        };
        let mut processes: Vec<ProcessLoss> = self.placed.iter().zip(&runners).map(of).collect();
        processes.sort_by_key(|loss| loss.pid);
        Lost {
            processes,
            others_ns_per_s: 1e9 * (others_us - self.others_cpus),
            busiest_controller: busiest(charges, &others, &all, &waits),
        }
    }

    /// A group under this placement. Its misses change with the other traffic through its cache.
    fn runner<'g>(&self, group: &'g Group) -> Runner<'g> {
        let crowd = self.pressure[group.domain] / group.pressure;
        let misses = match crowd.is_finite() && crowd > 0.0 {
            true => group.misses * libm::pow(crowd, CROWDING),
            false => group.misses,
        };
        Runner {
            group,
            cpus: self.demand.served(group.node, group.wanted, group.unpinned),
            fixed: group.work + self.facts.transfer_cycles(group),
            misses,
        }
    }

    fn process(&self, of: &Process, runners: &[Runner<'_>], waits: &Waits) -> ProcessLoss {
        let charges = &self.facts.charges;
        let mut sums = [0.0; CAUSES.len()];
        let (mut asked, mut done) = (0.0, 0.0);
        for runner in runners {
            let group = runner.group;
            let cycles = runner.cycles(charges, waits);
            asked += group.wanted;
            done += runner.cpus * charges.cycles_per_us / cycles;
            let causes = self.causes(runner, waits);
            for (sum, lost) in sums.iter_mut().zip(causes) {
                *sum += runner.cpus * lost / cycles;
            }
            sums[Cause::WaitingForCpu as usize] += group.wanted - runner.cpus;
        }
        let now: f64 = of.groups.iter().map(|group| group.cpus).sum();
        ProcessLoss {
            pid: of.pid,
            cpus: asked,
            ns_per_s: sums.map(|sum| 1e9 * sum / asked.max(1e-9)),
            pace: if now > 0.0 { done / now } else { 1.0 },
        }
    }

    /// Cycles lost by cause, of the cycles for the present work of a µs.
    fn causes(&self, runner: &Runner<'_>, waits: &Waits) -> [f64; CAUSES.len()] {
        let charges = &self.facts.charges;
        let group = runner.group;
        let nearest = charges.nearest[group.node];
        let (mut distance, mut controller, mut link) = (0.0, 0.0, 0.0);
        for (holding, share) in &group.shares {
            distance += share * (charges.idle[(group.node, *holding)] - nearest);
            controller += share * waits.0[*holding];
            let way = charges.way(group.node, *holding).iter();
            link += share * way.map(|server| waits.0[*server as usize]).sum::<f64>();
        }
        let own = group.misses * group.cpus;
        let alone = (own / self.pressure[group.domain].max(own)).min(1.0);
        let crowded = if own > 0.0 { 1.0 - libm::pow(alone, CROWDING) } else { 0.0 };
        let each = runner.misses / group.overlap;
        // Misses by crowding are charged at the cost of the nearest memory. Queues that they meet
        // count as queues.
        let coherence =
            self.facts.transfer_cycles(group) - (group.lines - group.unseen) * charges.same_domain;
        let kept = each * (1.0 - crowded);
        [
            kept * distance.max(0.0),
            kept * controller,
            kept * link,
            coherence.max(0.0),
            each * crowded * (nearest + distance.max(0.0) + controller + link),
            0.0,
        ]
    }
}

fn busiest(charges: &Charges, others: &[f64], runners: &[Runner<'_>], waits: &Waits) -> f64 {
    let mut load = others.to_vec();
    for of in runners {
        let per_us = of.cpus * charges.cycles_per_us / of.cycles(charges, waits) * of.misses;
        for (holding, share) in &of.group.shares {
            add_flow(charges, &mut load, (of.group.node, *holding), per_us * share);
        }
    }
    let used = charges.servers.iter().zip(&load).take(charges.nearest.len());
    used.map(|(server, load)| load / server.per_us).fold(0.0, f64::max)
}

/// Placements that equal the present.
impl Facts {
    /// All processes at their present places.
    #[must_use]
    pub fn everything(&self) -> Placement {
        let all = self.processes.iter().enumerate();
        let running = all.filter(|(_, process)| !process.groups.is_empty());
        Placement::at(running.map(|(place, of)| (place, of.groups.clone())).collect())
    }

    /// These processes at their present places.
    #[must_use]
    pub fn present(&self, pids: &[Pid]) -> Placement {
        let places = pids.iter().filter_map(|pid| self.place(*pid));
        let group = |place: usize| (place, self.processes[place].groups.clone());
        Placement::at(places.map(group).collect())
    }
}
