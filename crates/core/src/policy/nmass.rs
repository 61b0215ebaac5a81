//! N-MASS: places single-threaded processes on processors, by data locality and contention for the
//! shared cache.
//!
//! Majo and Gross, "Memory Management in NUMA Multicore Systems", ISMM 2011. [`maximum_local()`]
//! puts the processes with the highest NUMA penalty at home. [`refine()`] then shifts the cheapest
//! of them away while that evens out the pressure on the caches. It never passes the pressure at
//! which the link between the processors saturates. Memory is never moved.
//!
//! [`map`] is the algorithm on plain numbers. `penalty` has the cost of remote memory and its
//! source. `trigger` decides when the algorithm runs. Not covered: more processes than cores,
//! processes with several threads, memory on several nodes.

mod candidates;
mod mapping;
mod maximum_local;
mod misses;
mod penalty;
mod preset;
mod refine;
mod trigger;

pub use mapping::{Cause, Mapping, Place, Process, Processor, map};
pub use maximum_local::maximum_local;
pub use penalty::{PUBLISHED_LINE, Penalty, PenaltySource, Profile, ProfilePoint, line};
pub use preset::{Preset, Refinement};
pub use refine::refine;
pub use trigger::Due;

use self::candidates::Candidate;
use self::misses::{PhaseMisses, Placements};
use self::penalty::CpiBySide;
use self::trigger::{ProcessEpoch, Trigger};
use super::renamed::Renamed;
use super::{Policy, Registered};
use crate::model::Model;
use crate::plan::{Action, Proposal, Reason};
use crate::random::Random;
use crate::topology::{PenaltyLine, Topology};
use crate::units::{Nanos, Pid};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// N-MASS's entry in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: "nmass",
    about: "single-threaded processes: locality against last-level cache pressure",
    presets: &["steady", "published", "printed", "swap", "maximum-local"],
    make: |name| {
        let preset =
            Preset::ALL.into_iter().find(|preset| name.is_none_or(|name| name == preset.name))?;
        Some(Box::new(NMass::new(preset)) as Box<dyn Policy>)
    },
    in_auto: Some(|| Box::new(NMass::new(Preset::STEADY))),
};

/// N-MASS with its state across epochs.
#[derive(Debug, Clone)]
pub struct NMass {
    preset: Preset,
    trigger: Trigger,
    placements: Placements,
    states: BTreeMap<Pid, ProcessState>,
    profiles: BTreeMap<Pid, Profile>,
}

/// State kept for a process.
#[derive(Debug, Clone, Default)]
struct ProcessState {
    cpi: CpiBySide,
    misses: PhaseMisses,
    /// Instructions retired since observation began: the position in the process's profile.
    instructions: f64,
}

/// Why N-MASS moves a process: its numbers at the time of the run.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "reason", rename = "nmass"))]
pub struct NMassReason {
    /// Last-level cache misses per 1000 instructions.
    pub mpki: f64,
    /// NUMA penalty and its source.
    pub penalty: Penalty,
    /// Node of the process's memory.
    pub home: usize,
    /// Node that the process leaves.
    pub from: usize,
    /// Node that the process joins.
    pub to: usize,
    /// The step of the algorithm that decided.
    pub cause: Cause,
    /// Pressure that no target may reach, MPKI.
    pub threshold_mpki: f64,
    /// Why the algorithm ran.
    pub due: Due,
}

/// Cache pressure that saturates the interconnect of this machine, MPKI.
pub(super) fn threshold_mpki(topology: &Topology) -> f64 {
    Preset::PUBLISHED.for_topology(topology).threshold_mpki
}

impl NMass {
    /// A policy of this preset without observations.
    #[must_use]
    pub fn new(preset: Preset) -> Self {
        Self {
            preset,
            trigger: Trigger::default(),
            placements: Placements::default(),
            states: BTreeMap::new(),
            profiles: BTreeMap::new(),
        }
    }

    /// Sets the profile of a process's program, from separate runs. The penalty of the process then
    /// comes from it.
    pub fn set_profile(&mut self, pid: Pid, profile: Profile) {
        self.profiles.insert(pid, profile);
    }

    /// Adds one epoch of each candidate and forgets processes that ended.
    fn observe(&mut self, candidates: &[Candidate], elapsed: Nanos) {
        let is_candidate =
            |pid: &Pid| candidates.binary_search_by_key(pid, |candidate| candidate.pid).is_ok();
        self.states.retain(|pid, _| is_candidate(pid));
        let domains = candidates.iter().map(|candidate| (candidate.pid, candidate.domain));
        self.placements.observe(domains);
        for candidate in candidates {
            let state = self.states.entry(candidate.pid).or_default();
            let is_settled = self.placements.is_settled(candidate.pid);
            state.misses.observe(candidate.mpki, is_settled, self.preset.trigger);
            state.instructions += candidate.instructions_per_s * elapsed.seconds();
            if let Some(cpi) = candidate.cycles_per_instruction {
                state.cpi.observe(candidate.node == candidate.home, cpi, candidate.mpki);
            }
        }
    }

    fn penalty(&self, candidate: &Candidate, line: &PenaltyLine) -> Penalty {
        let state = self.states.get(&candidate.pid).cloned().unwrap_or_default();
        let profile = self.profiles.get(&candidate.pid);
        let point = profile.and_then(|profile| profile.at(state.instructions as u64));
        penalty::best_known(point, &state.cpi, line, candidate.mpki)
    }

    /// Ends an epoch. Returns why a run is due, if one is.
    fn due(&mut self, candidates: &[Candidate], now: Nanos) -> Option<Due> {
        let epoch = candidates.iter().map(|candidate| {
            (
                candidate.pid,
                ProcessEpoch {
                    mpki: candidate.mpki,
                    home: candidate.home,
                    domain: candidate.domain,
                },
            )
        });
        self.trigger.end_epoch(now, epoch.collect(), self.preset.trigger)
    }

    /// Runs the algorithm for these candidates. Returns each with its new cache domain.
    fn run(
        &self,
        candidates: &[Candidate],
        model: &Model,
        topology: &Topology,
        due: Due,
    ) -> Vec<Placed> {
        let preset = self.preset.clone().for_topology(topology);
        let (processors, domains) = candidates::processors(model, topology, candidates);
        let line = penalty::line(topology);
        let mut candidates = candidates.to_vec();
        if preset.remembers_misses {
            let most = |pid: &Pid| self.states.get(pid).map(|state| state.misses.most());
            candidates.iter_mut().for_each(|one| one.mpki = most(&one.pid).unwrap_or(one.mpki));
        }
        let penalties: Vec<Penalty> =
            candidates.iter().map(|candidate| self.penalty(candidate, &line)).collect();
        let processes: Vec<Process> = candidates
            .iter()
            .zip(&penalties)
            .map(|(candidate, penalty)| candidate.process(penalty, topology))
            .collect();
        let mapping = map(&processes, &processors, &preset);
        let placed = |place: &Place| {
            let (candidate, domain) = (&candidates[place.process], domains[place.processor]);
            let reason = NMassReason {
                mpki: candidate.mpki,
                penalty: penalties[place.process],
                home: candidate.home,
                from: candidate.node,
                to: processors[place.processor].node,
                cause: place.cause,
                threshold_mpki: preset.threshold_mpki,
                due,
            };
            let cpus = topology.cpus_of_domain(domain).intersection(&candidate.allowed);
            let action = Action::SetAffinity {
                pid: candidate.pid,
                tid: candidate.tid,
                cpus,
                via: Some(place.cpu),
            };
            let reason = Reason::NMass(reason);
            let proposal = Proposal { policy: REGISTERED.name, action, reason };
            Placed {
                pid: candidate.pid,
                domain,
                proposal: (domain != candidate.domain).then_some(proposal),
            }
        };
        mapping.places.iter().map(placed).collect()
    }
}

/// The place of one process after a run.
struct Placed {
    pid: Pid,
    domain: usize,
    /// `None` if the process runs in this domain already.
    proposal: Option<Proposal>,
}

/// The cache domain that has the same rank on node `to` as `domain` has on `from`.
fn image_of_domain(topology: &Topology, domain: usize, from: usize, to: usize) -> Option<usize> {
    let of_node = |node: usize| {
        (0..topology.domain_count()).filter(move |&domain| {
            topology.cpus_of_domain(domain).intersects(topology.cpus_of_node(node))
        })
    };
    let place = of_node(from).position(|other| other == domain)?;
    of_node(to).nth(place)
}

impl Policy for NMass {
    fn propose(&mut self, model: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        if !self.trigger.epoch_is_over(model.at, self.preset.epoch) {
            return Vec::new();
        }
        let all = candidates::candidates(model, topology);
        self.observe(&all, model.elapsed);
        let Some(due) = self.due(&all, model.at) else { return Vec::new() };
        let placed = self.run(&all, model, topology, due);
        placed.iter().for_each(|placed| self.trigger.set_expected(placed.pid, placed.domain));
        placed.into_iter().filter_map(|placed| placed.proposal).collect()
    }

    fn rename(&mut self, topology: &Topology, renamed: &Renamed) {
        let image = |node| renamed.image(node);
        let of_domain = |domain: usize| {
            let node = topology.cpus_of_domain(domain).min().map(|cpu| topology.node_of_cpu(cpu));
            node.and_then(|node| image_of_domain(topology, domain, node, image(node)))
                .unwrap_or(domain)
        };
        self.trigger.relabel(renamed.pid, image, of_domain);
    }

    fn period(&self) -> Nanos {
        self.preset.epoch
    }

    /// Two epochs: a process that starts during one is placed at the end of the next.
    fn settles_within(&self) -> Nanos {
        Nanos(2 * self.preset.epoch.0)
    }
}

impl fmt::Display for NMassReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mpki, penalty, home, from, to, .. } = self;
        write!(
            f,
            "{mpki:.1} MPKI, penalty {:.2} ({}), home {home}, {from}→{to}: ",
            penalty.value, penalty.source
        )?;
        match self.cause {
            Cause::Home => write!(f, "a core at home is free"),
            Cause::HomeFull => write!(f, "no core at home is free"),
            Cause::Shifted { source_before, source_after, target_before, target_after } => write!(
                f,
                "pressures {source_before:.1}/{target_before:.1} become {source_after:.1}/{target_after:.1} MPKI, limit {:.1}",
                self.threshold_mpki
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::synthetic;

    #[test]
    fn a_cache_domain_has_its_image_at_the_same_place_of_the_other_node() {
        let topology = synthetic::parse("node:3 llc:2 core:2").expect("a machine");
        let image = |domain, from, to| image_of_domain(&topology, domain, from, to);
        assert_eq!([0, 1].map(|domain| image(domain, 0, 2)), [Some(4), Some(5)]);
        assert_eq!(image(5, 2, 1), Some(3));
        assert_eq!(image(5, 0, 1), None);
    }
}
