//! Applies the other placement or machine to each window.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use rondpoint_core::controller::{Controller, Input, Step};
use rondpoint_core::cost::{Bill, Facts, MoveCosts, Placement, Quote, Sampled, Seen};
use rondpoint_core::plan::{Action, PageMove, Proposal, StepResult};
use rondpoint_core::{Model, Nanos, Observation, Outcome, Pid, Tid, Topology};
use rondpoint_machine::Machine;
use rondpoint_trace::{Header, PolicyChoice};

use super::Question;
use crate::policies;

/// Pages that are remembered as moved: beyond them a recording says nothing more.
const MOST_PAGES: usize = 1 << 20;

/// What is different from the recording.
pub(super) enum Other {
    /// Policies decide; their actions so far hold in later windows.
    Policies(Box<Decided>),
    /// Memory lies otherwise from the beginning on.
    Place(Place),
    /// Another machine.
    Machine(String, Box<Topology>),
}

/// Where memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Local,
    Interleave,
    /// A node, and the kernel's number of it.
    Node(usize, u32),
}

/// A controller with other policies, and what it decided so far.
pub(super) struct Decided {
    names: String,
    controller: Controller,
    outcomes: Vec<Outcome>,
    /// By process and address.
    pages: BTreeMap<(Pid, u64), (PageMove, Proposal)>,
    /// Masks of threads, and memory of whole processes, in the order in which they were decided.
    others: BTreeMap<(Pid, Option<Tid>), Proposal>,
}

impl Other {
    /// Whether it decides from what it sees, so that another manager's work would mislead it.
    pub(super) fn decides(&self) -> bool {
        matches!(self, Self::Policies(_))
    }

    pub(super) fn of(question: &Question, header: &Header) -> Result<Self> {
        if let Some(word) = &question.place {
            return Ok(Self::Place(Place::parse(word, &header.topology)?));
        }
        if let Some(path) = &question.machine {
            let machine = Machine::load(path)?;
            let topology = machine.topology();
            let sizes = |of: &Topology| (of.node_count(), of.cpu_count());
            let (here, there) = (sizes(&header.topology), sizes(&topology));
            if here != there {
                bail!(
                    "{}: describes {} nodes and {} CPUs, the recorded machine has {} and {}",
                    path.display(),
                    there.0,
                    there.1,
                    here.0,
                    here.1
                );
            }
            return Ok(Self::Machine(machine.name, Box::new(topology)));
        }
        let mut header = header.clone();
        header.policies = question.policy.iter().map(|word| PolicyChoice::parse(word)).collect();
        // Otherwise all that a mere recording could show is that nothing may be done.
        header.guard.act = true;
        let names: Vec<String> = header.policies.iter().map(ToString::to_string).collect();
        Ok(Self::Policies(Box::new(Decided {
            names: names.join(", "),
            controller: policies::controller(&header)?,
            outcomes: Vec::new(),
            pages: BTreeMap::new(),
            others: BTreeMap::new(),
        })))
    }

    /// The difference, in words.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Policies(decided) => format!("policy {}", decided.names),
            Self::Place(Place::Local) => "memory beside its threads".to_string(),
            Self::Place(Place::Interleave) => "memory interleaved".to_string(),
            Self::Place(Place::Node(_, number)) => format!("memory on node {number}"),
            Self::Machine(name, _) => format!("machine {name}"),
        }
    }

    /// The host was looked at.
    pub(super) fn see(&mut self, now: &Observation) {
        if let Self::Policies(decided) = self {
            decided.see(now);
        }
    }

    /// What would have been otherwise in a window.
    pub(super) fn quote(&self, window: &Model, topology: &Topology) -> (Facts, Quote) {
        let facts = Facts::of(window, topology);
        let now = Placement::unchanged();
        let quote = match self {
            Self::Policies(decided) => {
                let steps = decided.steps();
                let pages = Sampled::of(window, topology);
                let seen = Seen { model: window, pages: &pages, topology, facts: &facts };
                let nothing = MoveCosts { page_ns: 0.0, thread_ns: 0.0 };
                let steps: Vec<_> = steps.iter().collect();
                Quote::of(seen, &now, &Bill::of(seen, &steps, &nothing))
            }
            Self::Place(place) => {
                let placed = window.apps.iter().fold(now.clone(), |placed, app| match place {
                    Place::Local => placed.local(&facts, app.pid, topology),
                    Place::Interleave => {
                        let nodes: Vec<usize> = topology.controllers().iter().collect();
                        placed.interleaved(&facts, app.pid, &nodes)
                    }
                    Place::Node(node, _) => placed.interleaved(&facts, app.pid, &[*node]),
                });
                Quote::between(&facts, &now, &placed)
            }
            Self::Machine(_, machine) => Quote::on_machine(&facts, machine),
        };
        (facts, quote)
    }
}

impl Place {
    fn parse(word: &str, topology: &Topology) -> Result<Self> {
        match (word, word.strip_prefix("node:")) {
            ("local", _) => Ok(Self::Local),
            ("interleave", _) => Ok(Self::Interleave),
            (_, Some(number)) => {
                let number: Option<u32> = number.parse().ok();
                let found = number.and_then(|number| {
                    let node = topology.node_of_kernel_id(number)?;
                    topology.has_memory(node).then_some(Self::Node(node, number))
                });
                let nodes = topology.kernel_nodes(&topology.memory_nodes());
                found.with_context(|| {
                    format!("--place {word}: expected one of the nodes with memory, {nodes}")
                })
            }
            _ => bail!("--place {word}: expected local, interleave, or node:N"),
        }
    }
}

impl Decided {
    fn see(&mut self, now: &Observation) {
        let outcomes = std::mem::take(&mut self.outcomes);
        let step = self.controller.step(Input { observation: now.clone(), outcomes });
        self.outcomes = refused(&step);
        for proposal in step.plan.steps {
            self.take(proposal);
        }
    }

    fn take(&mut self, proposal: Proposal) {
        let Some(pid) = proposal.action.pid() else { return };
        match &proposal.action {
            Action::MovePages { mechanism, pages, .. } => {
                let action = Action::MovePages { pid, mechanism: *mechanism, pages: Vec::new() };
                let without = Proposal { action, ..proposal.clone() };
                for page in pages {
                    if self.pages.len() < MOST_PAGES {
                        self.pages.insert((pid, page.address), (*page, without.clone()));
                    }
                }
            }
            Action::SetAffinity { tid, .. } => {
                self.others.insert((pid, Some(*tid)), proposal);
            }
            Action::MoveProcessMemory { .. } => {
                self.others.insert((pid, None), proposal);
            }
            Action::Replicate { .. } | Action::Unreplicate { .. } | Action::SetSampling { .. } => {}
        }
    }

    /// All that was decided so far, as one plan.
    fn steps(&self) -> Vec<Proposal> {
        let mut steps: Vec<Proposal> = self.others.values().cloned().collect();
        let mut of: BTreeMap<Pid, Proposal> = BTreeMap::new();
        for ((pid, _), (page, proposal)) in &self.pages {
            let step = of.entry(*pid).or_insert_with(|| proposal.clone());
            if let Action::MovePages { pages, .. } = &mut step.action {
                pages.push(*page);
            }
        }
        steps.extend(of.into_values());
        steps
    }
}

/// The recorded program felt nothing; sampling goes on as it was recorded.
fn refused(step: &Step) -> Vec<Outcome> {
    let outcome = |(place, proposal): (usize, &Proposal)| Outcome {
        plan: step.plan.number,
        step: place,
        result: match proposal.action {
            Action::SetSampling { .. } => StepResult::Done,
            _ => StepResult::Refused { errno: EPERM },
        },
        spent: Nanos(0),
        frozen: Nanos(0),
    };
    step.plan.steps.iter().enumerate().map(outcome).collect()
}

/// Number of errno(3), the same on x86-64 and arm64.
const EPERM: i32 = 1;
