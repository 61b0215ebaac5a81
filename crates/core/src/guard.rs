//! The guard admits proposals or refuses them with a typed reason. Only the guard knows budgets,
//! cool-downs, allowed CPUs and nodes, exempt processes and undone changes. Every proposal passes
//! it.
//!
//! In a step, undo actions come first, then proposals in the order of the policies. A proposal may
//! be admitted in part, for example pages up to the budget. The refused part is reported. When in
//! doubt, the guard refuses.

mod budget;
mod history;
mod pages;
mod settings;
mod threads;

pub use settings::GuardSettings;

use self::budget::Budget;
use self::history::History;
use self::threads::{exchanges, thread_of};
use crate::accounts::Accounts;
use crate::ledger::Ledger;
use crate::model::{App, Model};
use crate::observation::Exemption;
use crate::plan::{
    Action, Kind, NodeMove, Permitted, Proposal, Reason, Refusal, Refused, Sampling,
};
use crate::topology::Topology;
use crate::trial::Trials;
use crate::units::{Bytes, Nanos, Pid, Tid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// The guard: settings, budgets, and the history of moves and failures.
#[derive(Debug, Clone)]
pub struct Guard {
    settings: GuardSettings,
    bytes: Vec<Budget>,
    calls: Budget,
    history: History,
    failures: BTreeMap<(Pid, Kind), Failure>,
    /// Number of failed trials of each process.
    failed_trials: BTreeMap<Pid, u32>,
    /// Cycles between samples at the highest rate of all policies, if they declare one.
    full_sampling: Option<u64>,
    /// Fewest cycles between samples that a policy ever asked for.
    fastest_sampling: BTreeMap<Option<Pid>, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Failure {
    times: u32,
    until: Nanos,
}

/// Inputs of the guard in a step.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The model of the last window.
    pub model: &'a Model,
    /// The machine.
    pub topology: &'a Topology,
    /// Time that movers have spent on each process.
    pub accounts: &'a Accounts,
    /// State of the trials.
    pub standing: Standing<'a>,
    /// The present changes.
    pub ledger: &'a Ledger,
}

/// The programs and the machine.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) model: &'a Model,
    pub(crate) topology: &'a Topology,
}

impl Scene<'_> {
    fn site(&self) -> Site<'_> {
        Site { model: self.model, topology: self.topology }
    }
}

/// State of the trials in a step.
#[derive(Clone, Copy)]
pub struct Standing<'a> {
    /// The present.
    pub now: Nanos,
    /// Processes with a running trial, and its policy.
    pub running: &'a BTreeMap<Pid, &'static str>,
    /// Processes with too few windows to compare with after an action.
    pub unready: &'a BTreeSet<Pid>,
    /// All trials, with the waits after trials without a gain.
    pub tried: &'a Trials,
}

/// Steps of the present plan that were admitted or refused so far.
#[derive(Default)]
struct Verdicts {
    admitted: Vec<Proposal>,
    refused: Vec<Refused>,
    moved_threads: BTreeSet<Tid>,
    stayed_threads: BTreeSet<Tid>,
    exchanges: BTreeMap<Tid, Proposal>,
    /// Whether the indivisible placement of this step is admitted. Decided with its first part.
    whole: Option<bool>,
    /// Bytes that the admitted moves bring to each node.
    planned_bytes: BTreeMap<usize, u64>,
}

impl Verdicts {
    fn refuse(&mut self, proposal: Proposal, refusal: Refusal) {
        self.stayed_threads.extend(proposal.action.tid());
        self.refused.push(Refused { proposal, refusal });
    }
}

impl Guard {
    /// A guard with full budgets.
    #[must_use]
    pub fn new(settings: GuardSettings, node_count: usize) -> Self {
        let bytes =
            alloc::vec![Budget::new(settings.bytes_per_s_per_node as f64, Nanos(0)); node_count];
        let calls = Budget::new(f64::from(settings.calls_per_s), Nanos(0));
        Self {
            settings,
            bytes,
            calls,
            history: History::default(),
            failures: BTreeMap::new(),
            failed_trials: BTreeMap::new(),
            full_sampling: None,
            fastest_sampling: BTreeMap::new(),
        }
    }

    /// Settings of the guard.
    #[must_use]
    pub fn settings(&self) -> &GuardSettings {
        &self.settings
    }

    /// Admits or refuses each proposal.
    pub fn admit(
        &mut self,
        proposals: Vec<Proposal>,
        scene: &Scene<'_>,
    ) -> (Vec<Proposal>, Vec<Refused>) {
        let now = scene.model.at;
        self.pass_time(now);
        let mut verdicts = Verdicts { exchanges: exchanges(&proposals), ..Verdicts::default() };
        let bulk: BTreeSet<Pid> = proposals.iter().filter_map(bulk_of).collect();
        let placement: Vec<Proposal> =
            proposals.iter().filter(|one| one.reason.is_indivisible()).cloned().collect();
        for proposal in proposals {
            if matches!(proposal.reason, Reason::Undo(_)) {
                self.admit_undo(proposal, scene, &mut verdicts);
                continue;
            }
            let checked = self.check_subject(&proposal, scene, &bulk).and_then(|()| {
                self.check_placement(&proposal, &placement, scene, &bulk, &mut verdicts)
            });
            match checked {
                Ok(()) => self.admit_one(proposal, scene, &bulk, &mut verdicts),
                Err(refusal) => verdicts.refuse(proposal, refusal),
            }
        }
        (verdicts.admitted, verdicts.refused)
    }

    /// Notes a failed trial of a process and its kinds of action. Each kind is then refused for a
    /// time that doubles with each failure.
    pub fn note_failure(&mut self, pid: Pid, kinds: &[Kind], now: Nanos) {
        for kind in kinds {
            let fresh = Failure { times: 0, until: now };
            let failure = self.failures.entry((pid, *kind)).or_insert(fresh);
            let doubled = self.settings.back_off.0.saturating_mul(1 << failure.times.min(20));
            failure.times += 1;
            failure.until = now + Nanos(doubled);
        }
        *self.failed_trials.entry(pid).or_default() += 1;
    }

    /// Trials of a process that failed so far.
    #[must_use]
    pub fn failures(&self, pid: Pid) -> u32 {
        self.failed_trials.get(&pid).copied().unwrap_or(0)
    }

    /// Forgets what concerns processes that are gone.
    pub fn forget_gone(&mut self, is_there: impl Fn(Pid) -> bool) {
        self.failures.retain(|(pid, _), _| is_there(*pid));
        self.failed_trials.retain(|pid, _| is_there(*pid));
        self.fastest_sampling.retain(|pid, _| pid.is_none_or(&is_there));
    }

    fn pass_time(&mut self, now: Nanos) {
        self.bytes.iter_mut().for_each(|budget| budget.refill(now));
        self.calls.refill(now);
        self.history.forget_old(now, &self.settings);
    }

    /// Checks the proposal as a whole: permission, confidence, exemptions, trials, locks, failures
    /// and the time of movers.
    fn check_subject(
        &self,
        proposal: &Proposal,
        scene: &Scene<'_>,
        bulk: &BTreeSet<Pid>,
    ) -> Result<(), Refusal> {
        if let Action::SetSampling { .. } = proposal.action {
            return Ok(()); // it changes what we read, not where anything is
        }
        if !self.settings.act {
            return Err(Refusal::ObserveOnly);
        }
        let (confidence, needed) = (scene.model.sensing.confidence, self.settings.min_confidence);
        if confidence < needed {
            return Err(Refusal::LowConfidence { confidence, needed });
        }
        let pid = proposal.action.pid().ok_or(Refusal::Malformed)?;
        let app = scene.model.app(pid).ok_or(Refusal::Unknown)?;
        self.check_exempt(app)?;
        self.check_trials(proposal, &scene.standing)?;
        let kind = proposal.action.kind();
        // Copies may be dropped in the same step, before a bulk move.
        let takes_back = matches!(proposal.action, Action::Unreplicate { .. });
        if bulk.contains(&pid) && kind.moves_pages() && !takes_back {
            return Err(Refusal::Locked);
        }
        self.check_time(app, scene)
    }

    /// The part of a step that trials, the latest moves of its pages and thread, and the room on
    /// the nodes permit now. Budgets of bytes, calls and time are not checked here.
    pub(crate) fn permit(
        &self,
        step: Proposal,
        standing: &Standing<'_>,
        site: Site<'_>,
    ) -> Permitted {
        let checked = self.check_trials(&step, standing);
        match checked.and_then(|()| self.check_residence(&step, standing.now)) {
            Ok(()) => self.permit_pages(step, site, standing.now),
            Err(refusal) => {
                Permitted { step: None, refused: vec![Refused { proposal: step, refusal }] }
            }
        }
    }

    /// Checks that no trial of another policy runs, and that no wait after a failed or useless
    /// trial holds.
    fn check_trials(&self, proposal: &Proposal, standing: &Standing<'_>) -> Result<(), Refusal> {
        let kind = proposal.action.kind();
        let Some(pid) = proposal.action.pid().filter(|_| kind != Kind::Sampling) else {
            return Ok(());
        };
        if standing.unready.contains(&pid) {
            return Err(Refusal::TooEarly);
        }
        if standing.running.get(&pid).is_some_and(|policy| *policy != proposal.policy) {
            return Err(Refusal::TrialRunning);
        }
        self.check_failures(pid, kind, standing.now)?;
        match standing.tried.wait(pid, proposal.policy, kind) {
            Some(left) => Err(Refusal::InVain { left }),
            None => Ok(()),
        }
    }

    fn check_exempt(&self, app: &App) -> Result<(), Refusal> {
        if let Some(exemption) = app.exempt {
            return Err(Refusal::Exempt { exemption });
        }
        if self.settings.opted_out.contains(app.pid.0 as usize) {
            return Err(Refusal::Exempt { exemption: Exemption::OptedOut });
        }
        if self.has_given_up(app.pid) {
            return Err(Refusal::Exempt { exemption: Exemption::GivenUp });
        }
        Ok(())
    }

    /// Whether a process is exempt because too many of its trials failed.
    pub(crate) fn has_given_up(&self, pid: Pid) -> bool {
        self.failures(pid) >= self.settings.max_failures
    }

    fn check_failures(&self, pid: Pid, kind: Kind, now: Nanos) -> Result<(), Refusal> {
        match self.failures.get(&(pid, kind)) {
            Some(failure) if now < failure.until => {
                Err(Refusal::Undone { left: failure.until.since(now) })
            }
            _ => Ok(()),
        }
    }

    fn check_time(&self, app: &App, scene: &Scene<'_>) -> Result<(), Refusal> {
        let spent = scene.accounts.unproven(app.pid);
        let time = app.run_time(scene.model).max(app.cpu_time);
        let share = (time.0 as f64 * self.settings.mover_share) as u64;
        let allowed = Nanos(share).max(self.settings.mover_allowance);
        if spent > allowed {
            return Err(Refusal::TimeBudget { spent, allowed });
        }
        Ok(())
    }

    fn admit_one(
        &mut self,
        proposal: Proposal,
        scene: &Scene<'_>,
        bulk: &BTreeSet<Pid>,
        verdicts: &mut Verdicts,
    ) {
        match &proposal.action {
            Action::SetSampling { .. } => self.admit_sampling(proposal, scene, verdicts),
            Action::SetAffinity { .. } => self.admit_affinity(proposal, scene, bulk, verdicts),
            Action::MoveProcessMemory { .. } => self.admit_bulk(proposal, scene, verdicts),
            Action::MovePages { .. } | Action::Replicate { .. } | Action::Unreplicate { .. } => {
                self.admit_pages(proposal, scene, verdicts);
            }
        }
    }

    /// An undo action needs no budget: only its process or thread must exist. A thread that has
    /// chosen a mask of its own since the change keeps it.
    fn admit_undo(&mut self, proposal: Proposal, scene: &Scene<'_>, verdicts: &mut Verdicts) {
        let exemption = match &proposal.action {
            Action::SetAffinity { pid, tid, .. } => {
                thread_of(scene.model, *pid, *tid).map(|thread| thread.exempt)
            }
            action => action.pid().and_then(|pid| scene.model.app(pid)).map(|_| None),
        };
        match exemption {
            Some(None) => verdicts.admitted.push(proposal),
            Some(Some(exemption)) => verdicts.refuse(proposal, Refusal::Exempt { exemption }),
            None => verdicts.refuse(proposal, Refusal::Unknown),
        }
    }

    /// Scales the budget of samples to this rate instead of the first requested one.
    pub fn expect_sampling(&mut self, cycles: Option<u64>) {
        self.full_sampling = cycles;
    }

    /// Cycles between samples at the highest rate of all policies, within the budget. `None` if no
    /// policy declares a rate.
    #[must_use]
    pub fn full_sampling(&self, topology: &Topology) -> Option<u64> {
        let full = self.full_sampling?;
        Some(stretched(full, full, self.settings.samples_per_s_per_cpu, topology))
    }

    /// Admits a sampling rate within the budget of samples per second and CPU. The fastest rate
    /// ever requested for a process is scaled down to the budget. Slower rates are scaled by the
    /// same factor, so an adaptive rate stays adaptive.
    fn admit_sampling(
        &mut self,
        mut proposal: Proposal,
        scene: &Scene<'_>,
        verdicts: &mut Verdicts,
    ) {
        if let Action::SetSampling { pid, sampling: Sampling::Every { cycles, .. } } =
            &mut proposal.action
        {
            let full = self.full_sampling.unwrap_or(*cycles);
            let fastest = self.fastest_sampling.entry(*pid).or_insert(full);
            *fastest = (*fastest).min(*cycles).max(1);
            let budget = self.settings.samples_per_s_per_cpu;
            *cycles = stretched(*cycles, *fastest, budget, scene.topology);
        }
        verdicts.admitted.push(proposal);
    }

    /// Admits a bulk move if each source appears once and the targets are allowed and have room. It
    /// may put the nodes' byte budgets into debt. Other moves then wait until the debt is paid.
    fn admit_bulk(&mut self, mut proposal: Proposal, scene: &Scene<'_>, verdicts: &mut Verdicts) {
        let may_freeze = self.settings.freeze;
        let Action::MoveProcessMemory { pid, nodes, freeze, .. } = &mut proposal.action else {
            return;
        };
        *freeze &= may_freeze;
        match self.check_bulk(*pid, nodes, scene, verdicts) {
            Err(refusal) => verdicts.refuse(proposal, refusal),
            Ok(moved) => {
                for (step, bytes) in moved {
                    self.bytes[step.from].take(bytes.0 as f64);
                    self.bytes[step.to].take(bytes.0 as f64);
                    *verdicts.planned_bytes.entry(step.to).or_insert(0) += bytes.0;
                }
                self.calls.take(1.0);
                verdicts.admitted.push(proposal);
            }
        }
    }

    /// Bytes that will move between each pair of nodes.
    fn check_bulk(
        &self,
        pid: Pid,
        nodes: &[NodeMove],
        scene: &Scene<'_>,
        verdicts: &Verdicts,
    ) -> Result<Vec<(NodeMove, Bytes)>, Refusal> {
        let app = scene.model.app(pid).ok_or(Refusal::Unknown)?;
        let count = scene.topology.node_count();
        let sources: BTreeSet<usize> = nodes.iter().map(|node| node.from).collect();
        if nodes.is_empty()
            || sources.len() != nodes.len()
            || nodes
                .iter()
                .any(|node| node.from >= count || node.to >= count || node.from == node.to)
        {
            return Err(Refusal::Malformed);
        }
        if self.calls.left() < 1.0 {
            return Err(Refusal::CallBudget);
        }
        if app.policy_read.is_some() {
            return Err(Refusal::PolicyUnread);
        }
        let resident = |node: usize| app.memory.as_ref().map_or(Bytes(0), |memory| memory[node]);
        let arrives = |at: usize| {
            let sources = nodes.iter().filter(|node| node.to == at).map(|node| node.from);
            sources.fold(Bytes(0), |sum, from| sum + resident(from))
        };
        for node in nodes {
            if !app.may_use_node(node.to) {
                return Err(Refusal::NodeNotAllowed { node: node.to });
            }
            for side in [node.from, node.to] {
                if self.bytes[side].left() <= 0.0 {
                    return Err(Refusal::ByteBudget { node: side, left: Bytes(0) });
                }
            }
            // Memory that leaves the target in the same action makes room there.
            let leaves = if sources.contains(&node.to) { resident(node.to) } else { Bytes(0) };
            let free = self.room(scene.site(), &verdicts.planned_bytes, node.to);
            if arrives(node.to) > free + leaves {
                return Err(Refusal::NoMemory { node: node.to, free });
            }
        }
        Ok(nodes.iter().map(|node| (*node, resident(node.from))).collect())
    }

    /// Free memory of a node beyond the reserve and beyond the bytes that are planned to go to each
    /// node. If free memory is not known, all memory of the node counts as free.
    fn room(&self, site: Site<'_>, planned: &BTreeMap<usize, u64>, node: usize) -> Bytes {
        let memory = site.topology.memory(node);
        let reserve = Bytes((memory.0 as f64 * self.settings.reserve_share) as u64);
        let free = site.model.free_memory.as_ref().map_or(memory, |free| free[node]);
        free - reserve - Bytes(planned.get(&node).copied().unwrap_or(0))
    }
}

/// Cycles between samples, stretched so that the fastest rate gives `samples_per_s` samples a
/// second.
fn stretched(cycles: u64, fastest: u64, samples_per_s: u32, topology: &Topology) -> u64 {
    let Some(clock_hz) = topology.clock_hz() else { return cycles };
    let least = clock_hz / f64::from(samples_per_s.max(1));
    libm::ceil(cycles as f64 * (least / fastest as f64).max(1.0)) as u64
}

fn bulk_of(proposal: &Proposal) -> Option<Pid> {
    match proposal.action {
        Action::MoveProcessMemory { pid, .. } => Some(pid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_number_was_given_up_begins_with_a_clean_record() {
        let (mut guard, pid) = (Guard::new(GuardSettings::default(), 1), Pid(3));
        (0..9).for_each(|_| guard.note_failure(pid, &[Kind::Affinity], Nanos(0)));
        guard.forget_gone(|_| true);
        assert!(guard.has_given_up(pid));
        guard.forget_gone(|_| false);
        assert!(!guard.has_given_up(pid));
        assert_eq!(guard.check_failures(pid, Kind::Affinity, Nanos(1)), Ok(()));
    }
}
