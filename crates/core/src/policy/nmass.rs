//! N-MASS: on which processor single-threaded processes run, trading data locality against contention for the shared cache.
//!
//! Majo and Gross, "Memory Management in NUMA Multicore Systems", ISMM 2011. [`maximum_local`] puts the processes with the highest
//! NUMA penalty at home; [`refine`] then shifts the cheapest of them away while that evens out the pressure on the caches, never
//! past the pressure at which the link between the processors saturates. Memory is never moved.
//!
//! [`map`] is the algorithm on plain numbers; `penalty` says how dear remote memory is and how that is known; `trigger` says when to
//! run at all. What it cannot do: more processes than cores, processes with several threads, memory on several nodes.

mod candidates;
mod mapping;
mod maximum_local;
mod penalty;
mod preset;
mod refine;
mod trigger;

pub use mapping::{Cause, Mapping, Place, Process, Processor, map};
pub use maximum_local::maximum_local;
pub use penalty::{Penalty, PenaltySource, Profile, ProfilePoint, regression};
pub use preset::{Preset, Refinement};
pub use refine::refine;
pub use trigger::Due;

use self::candidates::Candidate;
use self::penalty::SidesSeen;
use self::trigger::{Remembered, Trigger};
use super::{Policy, Registered};
use crate::model::Model;
use crate::plan::{Action, Proposal, Reason};
use crate::random::Random;
use crate::topology::Topology;
use crate::units::{Nanos, Pid};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// Its line in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: "nmass",
    about: "single-threaded processes: locality against last-level cache pressure",
    presets: &["published", "printed", "swap", "maximum-local"],
    make: |name| {
        let preset =
            Preset::ALL.into_iter().find(|preset| name.is_none_or(|name| name == preset.name))?;
        Some(Box::new(NMass::new(preset)) as Box<dyn Policy>)
    },
};

/// State of the policy.
#[derive(Debug, Clone)]
pub struct NMass {
    preset: Preset,
    trigger: Trigger,
    /// What is known of each process from earlier epochs.
    known: BTreeMap<Pid, Known>,
    profiles: BTreeMap<Pid, Profile>,
}

/// What is remembered of a process.
#[derive(Debug, Clone, Default)]
struct Known {
    sides: SidesSeen,
    /// Instructions that it retired while it was watched: its place in its profile.
    instructions: f64,
}

/// Why it proposes something: the numbers of one process at the time of the run.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "reason", rename = "nmass"))]
pub struct NMassReason {
    /// Last-level cache misses per 1000 instructions.
    pub mpki: f64,
    /// NUMA penalty, and how it is known.
    pub penalty: Penalty,
    /// Node of its memory.
    pub home: usize,
    /// Node where it ran.
    pub from: usize,
    /// Node where it shall run.
    pub to: usize,
    /// Which step of the algorithm decided.
    pub cause: Cause,
    /// Pressure that no target may reach, MPKI.
    pub threshold_mpki: f64,
    /// What made the algorithm run.
    pub due: Due,
}

/// Pressure that the memory of a node bears on this machine, MPKI.
pub(super) fn threshold_mpki(topology: &Topology) -> f64 {
    Preset::PUBLISHED.for_topology(topology).threshold_mpki
}

impl NMass {
    /// A policy that knows no process yet.
    #[must_use]
    pub fn new(preset: Preset) -> Self {
        Self {
            preset,
            trigger: Trigger::default(),
            known: BTreeMap::new(),
            profiles: BTreeMap::new(),
        }
    }

    /// Gives a process the profile of its program, from separate runs. Its penalty then comes from there.
    pub fn set_profile(&mut self, pid: Pid, profile: Profile) {
        self.profiles.insert(pid, profile);
    }

    /// Takes in what the epoch showed of each candidate; who is gone is forgotten.
    fn observe(&mut self, candidates: &[Candidate], elapsed: Nanos) {
        let is_candidate =
            |pid: &Pid| candidates.binary_search_by_key(pid, |candidate| candidate.pid).is_ok();
        self.known.retain(|pid, _| is_candidate(pid));
        for candidate in candidates {
            let known = self.known.entry(candidate.pid).or_default();
            known.instructions += candidate.instructions_per_s * elapsed.seconds();
            if let Some(cpi) = candidate.cycles_per_instruction {
                known.sides.observe(candidate.node == candidate.home, cpi, candidate.mpki);
            }
        }
    }

    fn penalty(&self, candidate: &Candidate) -> Penalty {
        let known = self.known.get(&candidate.pid).cloned().unwrap_or_default();
        let profile = self.profiles.get(&candidate.pid);
        let point = profile.and_then(|profile| profile.at(known.instructions as u64));
        penalty::best_known(point, &known.sides, candidate.mpki)
    }

    fn due(&mut self, candidates: &[Candidate], now: Nanos) -> Option<Due> {
        let epoch = candidates.iter().map(|candidate| {
            (
                candidate.pid,
                Remembered { mpki: candidate.mpki, home: candidate.home, domain: candidate.domain },
            )
        });
        self.trigger.end_epoch(now, epoch.collect(), self.preset.trigger)
    }

    fn run(
        &mut self,
        candidates: &[Candidate],
        model: &Model,
        topology: &Topology,
        due: Due,
    ) -> Vec<Proposal> {
        let preset = self.preset.clone().for_topology(topology);
        let (processors, domains) = candidates::processors(model, topology, candidates);
        let penalties: Vec<Penalty> =
            candidates.iter().map(|candidate| self.penalty(candidate)).collect();
        let processes: Vec<Process> = candidates
            .iter()
            .zip(&penalties)
            .map(|(candidate, penalty)| candidate.process(penalty, topology))
            .collect();
        let mapping = map(&processes, &processors, &preset);
        let mut proposals = Vec::new();
        for place in &mapping.places {
            let (candidate, domain) = (&candidates[place.process], domains[place.processor]);
            self.trigger.expect_in(candidate.pid, domain);
            if domain == candidate.domain {
                continue;
            }
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
            proposals.push(Proposal {
                policy: REGISTERED.name,
                action: Action::SetAffinity {
                    pid: candidate.pid,
                    tid: candidate.tid,
                    cpus,
                    via: Some(place.cpu),
                },
                reason: Reason::NMass(reason),
            });
        }
        proposals
    }
}

impl Policy for NMass {
    fn propose(&mut self, model: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        if !self.trigger.epoch_is_over(model.at, self.preset.epoch) {
            return Vec::new();
        }
        let candidates = candidates::candidates(model, topology);
        self.observe(&candidates, model.elapsed);
        let due = self.due(&candidates, model.at);
        due.map_or_else(Vec::new, |due| self.run(&candidates, model, topology, due))
    }

    fn period(&self) -> Nanos {
        self.preset.epoch
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
