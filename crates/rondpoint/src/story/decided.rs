//! Decisions at a moment: actions, vetoes and verdicts. Actions of one kind for one process are one
//! deed.

use std::collections::BTreeMap;

use rondpoint_core::controller::Step;
use rondpoint_core::cost::{Partners, predicted};
use rondpoint_core::plan::{Action, Mechanism, Proposal};
use rondpoint_core::{Model, Pid, Topology, trial};
use rondpoint_trace::{Decision, Trial};
use serde::Serialize;

use super::measured::{Done, Predicted};
use crate::compared::{self, Compared};

/// What a policy wanted with one process at one moment: done, or not.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Deed {
    pub(crate) policy: String,
    /// Process; `None` = the machine.
    pub(crate) pid: Option<u32>,
    pub(crate) kind: Kind,
    /// Actions that it is made of.
    pub(crate) actions: usize,
    /// Pages that are named one by one, each of its own size.
    pub(crate) pages: u64,
    /// What they and whole memories hold, in bytes.
    pub(crate) bytes: u64,
    /// Nodes from and to which memory moves, with how many pages; no number for whole memories.
    pub(crate) routes: Vec<Route>,
    /// Threads by the nodes that they may use then.
    pub(crate) threads: Vec<ThreadMove>,
    /// Whether the process stands still meanwhile.
    pub(crate) frozen: bool,
    /// Cycles between two samples; `None` = no samples.
    pub(crate) sample_every: Option<u64>,
    /// Why it was wanted, in the words of the program that recorded it; the first action's.
    pub(crate) because: String,
    /// Why it was not done; `None` = it was.
    pub(crate) veto: Option<Veto>,
    /// What it was to bring.
    pub(crate) predicted: Predicted,
    /// What the host did of it.
    pub(crate) came_of_it: Done,
    /// Index of the verdict on it.
    pub(crate) verdict: Option<usize>,
}

/// What kind of action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Pages to the only node that uses them.
    CoLocation,
    /// Pages spread over nodes.
    Interleaving,
    /// Pages away from the only node that uses them, which holds them.
    Offloading,
    /// Pages after their threads.
    Following,
    Replication,
    EndOfReplication,
    Threads,
    Memory,
    Sampling,
}

/// A way that memory takes, by the kernel's numbers of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Route {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) pages: Option<u64>,
}

/// Threads that get the same nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ThreadMove {
    /// The kernel's numbers, as it writes lists: `0-3,8`.
    pub(crate) nodes: String,
    pub(crate) tids: Vec<u32>,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Veto {
    /// The rule: the same for all numbers.
    pub(crate) rule: String,
    /// The rule with its numbers; the first action's.
    pub(crate) because: String,
}

/// A trial that ended.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verdict {
    /// Index of its moment.
    #[serde(skip)]
    pub(crate) moment: usize,
    pub(crate) pid: u32,
    pub(crate) policy: String,
    pub(crate) plans: Vec<u64>,
    pub(crate) verdict: trial::Verdict,
    /// Relative change of speed, 0.1 = 10 % faster: the program's own count of work, instructions,
    /// or what else was compared.
    pub(crate) measured: Option<f64>,
    /// Half width of its 95 % interval.
    pub(crate) noise: Option<f64>,
    /// What the verdict was made from.
    pub(crate) compared: Vec<Compared>,
    /// Relative change of speed that was predicted when it was done.
    pub(crate) predicted: Option<f64>,
}

impl Verdict {
    pub(super) fn of(moment: usize, trial: &Trial<'_>) -> Self {
        let change = trial.comparison.speed().or(trial.comparison.combined);
        Self {
            moment,
            pid: trial.pid.0,
            policy: trial.policy.to_string(),
            plans: trial.plans.to_vec(),
            verdict: trial.verdict,
            measured: change.map(|change| change.change),
            noise: change.map(|change| change.noise),
            compared: compared::of(&trial.comparison),
            predicted: trial.predicted,
        }
    }
}

impl Deed {
    /// Whether it changes more than how closely is looked.
    pub(crate) fn acts(&self) -> bool {
        self.kind != Kind::Sampling
    }

    /// Whether it was done, so that a trial judges it.
    pub(crate) fn is_tried(&self) -> bool {
        self.veto.is_none() && self.acts()
    }

    fn new(told: &rondpoint_trace::Told<'_>, kind: Kind) -> Self {
        Self {
            policy: told.policy.to_string(),
            pid: told.action.pid().map(|pid| pid.0),
            kind,
            actions: 0,
            pages: 0,
            bytes: 0,
            routes: Vec::new(),
            threads: Vec::new(),
            frozen: false,
            sample_every: None,
            because: told.because.to_string(),
            veto: told
                .veto
                .as_ref()
                .map(|veto| Veto { rule: veto.rule.clone(), because: veto.because.to_string() }),
            predicted: Predicted::default(),
            came_of_it: Done::default(),
            verdict: None,
        }
    }

    fn is_like(&self, told: &rondpoint_trace::Told<'_>, kind: Kind) -> bool {
        let rule = told.veto.as_ref().map(|veto| &veto.rule);
        self.kind == kind
            && self.pid == told.action.pid().map(|pid| pid.0)
            && self.policy == told.policy
            && self.veto.as_ref().map(|veto| &veto.rule) == rule
    }

    fn add(&mut self, action: &Action, topology: &Topology) {
        self.actions += 1;
        match action {
            Action::MovePages { pages, .. }
            | Action::Replicate { pages, .. }
            | Action::Unreplicate { pages, .. } => {
                self.pages += pages.len() as u64;
                self.bytes += pages.iter().map(|page| page.bytes().0).sum::<u64>();
                let mut routes: BTreeMap<(usize, usize), u64> = BTreeMap::new();
                let known = self.routes.iter();
                routes.extend(known.map(|way| ((way.from, way.to), way.pages.unwrap_or(0))));
                for page in pages {
                    let number = |node: u16| number_of(topology, node.into());
                    *routes.entry((number(page.from), number(page.to))).or_default() += 1;
                }
                let route = |((from, to), pages)| Route { from, to, pages: Some(pages) };
                self.routes = routes.into_iter().map(route).collect();
            }
            Action::SetAffinity { tid, cpus, via, .. } => {
                let known = |cpu: &usize| *cpu < topology.cpu_count();
                let cpus = via.map_or_else(|| cpus.iter().collect(), |cpu| vec![cpu]);
                let nodes = cpus.into_iter().filter(known).map(|cpu| topology.node_of_cpu(cpu));
                let nodes = topology.kernel_nodes(&nodes.collect()).to_string();
                match self.threads.iter_mut().find(|group| group.nodes == nodes) {
                    Some(group) => group.tids.push(tid.0),
                    None => self.threads.push(ThreadMove { nodes, tids: vec![tid.0] }),
                }
            }
            Action::MoveProcessMemory { nodes, freeze, memory, .. } => {
                let route = |way: &rondpoint_core::plan::NodeMove| Route {
                    from: number_of(topology, way.from),
                    to: number_of(topology, way.to),
                    pages: None,
                };
                self.routes.extend(nodes.iter().map(route));
                self.bytes += memory.0;
                self.frozen |= *freeze;
            }
            Action::SetSampling { sampling, .. } => self.sample_every = sampling.cycles(),
        }
    }
}

/// The kernel's number of a node; of one that the recording does not describe, its index.
fn number_of(topology: &Topology, node: usize) -> usize {
    let known = node < topology.node_count();
    if known { topology.kernel_node(node) as usize } else { node }
}

impl Kind {
    fn of(action: &Action) -> Self {
        match action {
            Action::MovePages { mechanism: Mechanism::CoLocation, .. } => Self::CoLocation,
            Action::MovePages { mechanism: Mechanism::Interleaving, .. } => Self::Interleaving,
            Action::MovePages { mechanism: Mechanism::Offloading, .. } => Self::Offloading,
            Action::MovePages { mechanism: Mechanism::Following, .. } => Self::Following,
            Action::Replicate { .. } => Self::Replication,
            Action::Unreplicate { .. } => Self::EndOfReplication,
            Action::SetAffinity { .. } => Self::Threads,
            Action::MoveProcessMemory { .. } => Self::Memory,
            Action::SetSampling { .. } => Self::Sampling,
        }
    }
}

/// A decision on its way into the story.
pub(super) struct Told<'a> {
    /// As it was recorded.
    pub(super) decision: &'a Decision,
    /// As it was made again, where that is the same.
    pub(super) step: Option<&'a Step>,
    /// What was known.
    pub(super) window: Option<&'a Model>,
    pub(super) topology: &'a Topology,
    /// With whom threads exchange data, as far as samples named it by then.
    pub(super) partners: &'a Partners,
}

impl Told<'_> {
    /// The deeds, and which of them each step of the plan is part of.
    pub(super) fn deeds(&self) -> (Vec<Deed>, Vec<usize>) {
        let mut deeds: Vec<Deed> = Vec::new();
        let (mut of_steps, mut of_all) = (Vec::new(), Vec::new());
        for told in self.decision.told() {
            let kind = Kind::of(&told.action);
            let found = deeds.iter().position(|deed| deed.is_like(&told, kind));
            let place = found.unwrap_or(deeds.len());
            if found.is_none() {
                deeds.push(Deed::new(&told, kind));
            }
            deeds[place].add(&told.action, self.topology);
            of_all.push(place);
            if told.veto.is_none() {
                of_steps.push(place);
            }
        }
        self.price(&mut deeds, &of_all);
        (deeds, of_steps)
    }

    /// What each deed was to bring. A chosen deed that alone changes its process has the change for
    /// which it was chosen, the others what they bring by themselves. The reasons of the recording
    /// are text; those of the decision that was made again are typed, and these are priced.
    fn price(&self, deeds: &mut [Deed], of_all: &[usize]) {
        let (Some(step), Some(window)) = (self.step, self.window) else { return };
        let refused = step.plan.refused.iter().map(|refused| &refused.proposal);
        let proposals: Vec<&Proposal> = step.plan.steps.iter().chain(refused).collect();
        if proposals.len() != of_all.len() {
            return;
        }
        let mut changes: BTreeMap<u32, usize> = BTreeMap::new();
        for pid in deeds.iter().filter(|deed| deed.is_tried()).filter_map(|deed| deed.pid) {
            *changes.entry(pid).or_default() += 1;
        }
        for (place, deed) in deeds.iter_mut().enumerate().filter(|(_, deed)| deed.acts()) {
            let own = proposals.iter().zip(of_all).filter(|(_, of)| **of == place);
            let own: Vec<Proposal> = own.map(|(proposal, _)| (*proposal).clone()).collect();
            let Some(pid) = deed.pid else { continue };
            let is_alone = deed.is_tried() && changes.get(&pid) == Some(&1);
            let pid = Pid(pid);
            let chosen_for = step.plan.predicted.get(&pid).copied().filter(|_| is_alone);
            let by_itself =
                || predicted(window, &[], self.topology, &own, self.partners).get(&pid).copied();
            deed.predicted = Predicted(chosen_for.or_else(by_itself));
        }
    }
}
