//! State that the daemon keeps for its clients: the last window, the last decisions, sums.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::discriminant;
use std::rc::Rc;

use rondpoint_core::controller::{Input, Step};
use rondpoint_core::host::Witness;
use rondpoint_core::model::{App, Pages};
use rondpoint_core::plan::{Action, Kind, Outcome, Reason, Refusal, StepResult};
use rondpoint_core::trial::{Judged, Verdict};
use rondpoint_core::{Model, Nanos, Pid, Topology};

use super::metrics::{FailedSteps, Moved};
use crate::compared;
use crate::control::protocol::{Decision, Event, Totals, Verdicts};
use crate::run::{cause, told};
use crate::story::words::percent;

/// Decisions that are remembered: some hundred bytes each.
const MOST_DECISIONS: usize = 1_000;
/// Proposals held back that are remembered of one step: a policy may propose thousands of moves.
const MOST_HELD: usize = 16;

/// Shared by the loop's witness and by the code that answers questions: one thread.
pub(super) type Shared = Rc<RefCell<Board>>;

/// See the module.
pub(super) struct Board {
    /// For the kernel's numbers of nodes and CPUs.
    topology: Topology,
    page_bytes: u64,
    /// The last window, without its pages.
    pub(super) window: Option<Model>,
    /// What placement costs the processes of the window, by cause, once a client has asked for it.
    pub(super) losses: OnceCell<BTreeMap<Pid, BTreeMap<String, f64>>>,
    pub(super) decisions: VecDeque<Decision>,
    pub(super) totals: Totals,
    pub(super) tallies: BTreeMap<Pid, Tally>,
    /// What was done to each process since this was taken last.
    pub(super) moved: BTreeMap<Pid, Moved>,
    pub(super) failed_steps: FailedSteps,
    /// Processes that were changed since their last verdict.
    on_trial: BTreeSet<Pid>,
    /// Counts up with each look.
    pub(super) looks: u64,
    /// When it looked last, since boot.
    pub(super) at: Nanos,
    last: u64,
    held: BTreeMap<(Option<Pid>, Kind), std::mem::Discriminant<Refusal>>,
}

/// What was done to a process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) started: Nanos,
    pub(super) moved_bytes: u64,
    pub(super) moved_threads: u64,
    pub(super) verdicts: Verdicts,
}

/// The loop's witness.
pub(super) struct Note(pub(super) Shared);

impl Witness for Note {
    fn input(&mut self, input: &Input) {
        let mut board = self.0.borrow_mut();
        board.looks += 1;
        board.at = input.observation.at;
    }

    fn step(&mut self, step: &Step, outcomes: &[Outcome]) {
        self.0.borrow_mut().take_in(step, outcomes);
    }
}

impl Board {
    pub(super) fn new(topology: &Topology) -> Shared {
        let board = Self {
            topology: topology.clone(),
            page_bytes: rondpoint_linux::syscall::memory::page_bytes() as u64,
            window: None,
            losses: OnceCell::new(),
            decisions: VecDeque::new(),
            totals: Totals::default(),
            tallies: BTreeMap::new(),
            moved: BTreeMap::new(),
            failed_steps: FailedSteps::new(),
            on_trial: BTreeSet::new(),
            looks: 0,
            at: Nanos(0),
            last: 0,
            held: BTreeMap::new(),
        };
        tracing::debug!(nodes = topology.node_count(), "the board is empty");
        Rc::new(RefCell::new(board))
    }

    /// Those after this number that are to be shown, oldest first.
    pub(super) fn decisions(
        &self,
        after: u64,
        is_shown: impl Fn(&Decision) -> bool,
    ) -> Vec<Decision> {
        let new = self.decisions.iter().filter(|decision| decision.number > after);
        new.filter(|decision| is_shown(decision)).cloned().collect()
    }

    /// Number of the last decision.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Whether a change of a process waits for its verdict.
    pub(super) fn is_on_trial(&self, pid: Pid) -> bool {
        self.on_trial.contains(&pid)
    }

    /// Decisions begin anew: no verdict comes on what was done before.
    pub(super) fn forget_trials(&mut self) {
        self.on_trial.clear();
    }

    /// Trials begin and end as those of the controller, which forgets a process that is in no
    /// window.
    fn note_trials(&mut self, step: &Step, outcomes: &[Outcome], apps: &[App]) {
        self.on_trial.retain(|pid| {
            let is_there = apps.binary_search_by_key(pid, |app| app.pid).is_ok();
            is_there && step.judged.iter().all(|judged| judged.pid != *pid)
        });
        for outcome in outcomes.iter().filter(|outcome| outcome.result.has_effect()) {
            let Some(proposal) = step.plan.steps.get(outcome.step) else { continue };
            let is_tried = proposal.action.kind() != Kind::Sampling
                && !matches!(proposal.reason, Reason::Undo(_));
            self.on_trial.extend(proposal.action.pid().filter(|_| is_tried));
        }
    }

    fn take_in(&mut self, step: &Step, outcomes: &[Outcome]) {
        let Some(window) = &step.window else { return };
        self.forget_gone(&window.apps);
        self.note_trials(step, outcomes, &window.apps);
        let judged: Vec<Decision> = step.judged.iter().map(|one| self.judged(one)).collect();
        judged.into_iter().for_each(|decision| self.enter(decision));
        self.totals.plans += u64::from(step.plan.acts());
        for (index, proposal) in step.plan.steps.iter().enumerate() {
            let Some(outcome) = outcomes.iter().find(|outcome| outcome.step == index) else {
                continue;
            };
            if proposal.action.kind() == Kind::Sampling {
                continue;
            }
            self.count(&proposal.action, &outcome.result);
            self.held.retain(|(pid, _), _| *pid != proposal.action.pid());
            let decision = Decision {
                pid: proposal.action.pid().map(|pid| pid.0),
                plan: step.plan.number,
                policy: proposal.policy.to_string(),
                kind: name(proposal.action.kind()).to_string(),
                action: proposal.action.on(&self.topology).to_string(),
                reason: proposal.reason.on(&self.topology).to_string(),
                detail: told(&outcome.result),
                ..self.blank(Event::Step)
            };
            self.enter(decision);
        }
        self.hold_back(step);
        self.window = Some(without_pages(window));
        self.losses = OnceCell::new();
    }

    /// Each cause once for each process and kind, until something of that process is done.
    fn hold_back(&mut self, step: &Step) {
        let mut told = 0;
        for refused in &step.plan.refused {
            let action = &refused.proposal.action;
            if action.kind() == Kind::Sampling {
                continue;
            }
            self.totals.held += 1;
            let known =
                self.held.insert((action.pid(), action.kind()), discriminant(&refused.refusal));
            if known == Some(discriminant(&refused.refusal)) || told >= MOST_HELD {
                continue;
            }
            told += 1;
            let decision = Decision {
                pid: action.pid().map(|pid| pid.0),
                plan: step.plan.number,
                policy: refused.proposal.policy.to_string(),
                kind: name(action.kind()).to_string(),
                action: action.on(&self.topology).to_string(),
                reason: refused.proposal.reason.on(&self.topology).to_string(),
                detail: {
                    let refusal = refused.refusal.on(&self.topology);
                    format!("{refusal} ({})", cause(&refused.refusal))
                },
                ..self.blank(Event::Held)
            };
            self.enter(decision);
        }
    }

    fn judged(&mut self, judged: &Judged) -> Decision {
        let tally = self.tallies.entry(judged.pid).or_default();
        for verdicts in [&mut tally.verdicts, &mut self.totals.verdicts] {
            *match judged.verdict {
                Verdict::Better => &mut verdicts.better,
                Verdict::Worse | Verdict::Returned => &mut verdicts.worse,
                Verdict::Unclear => &mut verdicts.unclear,
                Verdict::PhaseChange | Verdict::Traded | Verdict::NoWayBack => &mut verdicts.other,
            } += 1;
        }
        let kinds: Vec<&str> = judged.kinds.iter().map(|kind| name(*kind)).collect();
        let measured = match compared::of(&judged.comparison).as_slice() {
            [] => "nothing to compare".to_string(),
            compared => format!("measured {}", compared::told(compared)),
        };
        let predicted = judged
            .predicted
            .map_or(String::new(), |predicted| format!("; predicted {}", percent(predicted)));
        Decision {
            pid: Some(judged.pid.0),
            plan: judged.plans.last().copied().unwrap_or(0),
            policy: judged.policy.to_string(),
            kind: kinds.join("+"),
            action: verdict(judged.verdict).to_string(),
            detail: measured + &predicted,
            ..self.blank(Event::Judged)
        }
    }

    fn blank(&self, event: Event) -> Decision {
        Decision {
            number: 0,
            at_s: self.at.seconds(),
            pid: None,
            plan: 0,
            policy: String::new(),
            event,
            kind: String::new(),
            action: String::new(),
            reason: String::new(),
            detail: String::new(),
        }
    }

    fn enter(&mut self, mut decision: Decision) {
        self.last += 1;
        decision.number = self.last;
        let Decision { pid, plan, policy, action, reason, detail, .. } = &decision;
        match decision.event {
            Event::Held => tracing::debug!(pid, plan, policy, action, detail, "held back"),
            Event::Step => tracing::info!(pid, plan, policy, action, reason, detail, "step"),
            Event::Judged => tracing::info!(pid, plan, policy, action, detail, "judged"),
        }
        self.decisions.push_back(decision);
        if self.decisions.len() > MOST_DECISIONS {
            self.decisions.pop_front();
        }
    }

    fn count(&mut self, action: &Action, result: &StepResult) {
        let failure = match result {
            StepResult::Done | StepResult::Pages(_) => None,
            StepResult::Gone => Some("gone"),
            StepResult::Unsupported => Some("unsupported"),
            StepResult::Refused { .. } => Some("refused"),
        };
        if let Some(cause) = failure {
            self.totals.failed_steps += 1;
            *self.failed_steps.entry((name(action.kind()), cause)).or_default() += 1;
            return;
        }
        let (mut bytes, mut threads) = (0, 0);
        if let StepResult::Pages(counts) = result {
            // Large pages are counted as pages of their own size.
            let size = match action {
                Action::MovePages { pages, .. } if !pages.is_empty() => {
                    pages.iter().map(|page| page.bytes().0).sum::<u64>() / pages.len() as u64
                }
                _ => self.page_bytes,
            };
            bytes = counts.moved * size;
        }
        match action.kind() {
            Kind::Affinity => {
                threads = 1;
                self.totals.thread_steps += 1;
            }
            Kind::Bulk => self.totals.bulk_steps += 1,
            _ => self.totals.page_steps += 1,
        }
        self.totals.moved_bytes += bytes;
        if let Some(pid) = action.pid() {
            let tally = self.tallies.entry(pid).or_default();
            tally.moved_bytes += bytes;
            tally.moved_threads += threads;
            *self.moved.entry(pid).or_default() += Moved { bytes, threads };
        }
    }

    /// Forgets the sums of processes that have ended. One that sleeps is in no window.
    pub(super) fn keep_tallies(&mut self, lives: impl Fn(Pid) -> bool) {
        self.tallies.retain(|pid, _| lives(*pid));
    }

    fn forget_gone(&mut self, apps: &[App]) {
        for app in apps {
            let tally = self.tallies.entry(app.pid).or_default();
            if tally.started != app.started {
                *tally = Tally { started: app.started, ..Tally::default() };
            }
        }
        let is_there = |pid: &Pid| apps.binary_search_by_key(pid, |app| app.pid).is_ok();
        self.held.retain(|(pid, _), _| pid.as_ref().is_none_or(is_there));
    }
}

/// The rest is small: some hundred bytes a thread.
fn without_pages(window: &Model) -> Model {
    Model {
        at: window.at,
        elapsed: window.elapsed,
        sensing: window.sensing,
        traffic: window.traffic.clone(),
        latency_cycles: window.latency_cycles,
        link_use: window.link_use.clone(),
        free_memory: window.free_memory.clone(),
        apps: window
            .apps
            .iter()
            .map(|app| App { mappings: None, replicas: None, ..app.clone() })
            .collect(),
        threads: window.threads.clone(),
        shared: rondpoint_core::model::SharedMemory::default(),
        pages: Pages::new(1, 1),
        touches: Vec::new(),
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Pages(_) => "pages",
        Kind::Replication => "replication",
        Kind::Affinity => "affinity",
        Kind::Bulk => "bulk",
        Kind::Sampling => "sampling",
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better: it stays",
        Verdict::Worse => "worse: it goes back",
        Verdict::Unclear => "no clear difference: it stays",
        Verdict::PhaseChange => "the program does something else now: no comparison",
        Verdict::Traded => "worse, but others gained more: it stays",
        Verdict::NoWayBack => "worse, and it cannot be undone",
        Verdict::Returned => "not worse, but it goes back with another",
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::plan::{Plan, Proposal};
    use rondpoint_core::topology::synthetic;
    use rondpoint_core::{CpuSet, Tid};

    use super::*;

    /// A step that changes a process, with its result.
    fn changed(board: &mut Board, pid: Pid, result: StepResult) {
        let cpus = CpuSet::first(1);
        let action = Action::SetAffinity { pid, tid: Tid(pid.0), cpus, via: None };
        let reason = Reason::Other("a test".to_string());
        let steps = vec![Proposal { policy: "test", action, reason }];
        let plan = Plan { number: 1, steps, ..Plan::default() };
        let outcome = Outcome { plan: 1, step: 0, result, spent: Nanos(0), frozen: Nanos(0) };
        let window = Some(Model::empty(2));
        board.take_in(&Step { plan, window, ..Step::default() }, &[outcome]);
    }

    #[test]
    fn what_was_done_to_a_process_is_known_while_it_sleeps_and_until_it_ends() {
        let board = Board::new(&synthetic::parse("node:2 core:1").unwrap());
        let mut board = board.borrow_mut();
        changed(&mut board, Pid(7), StepResult::Done);
        changed(&mut board, Pid(8), StepResult::Done);
        board.keep_tallies(|_| true);
        assert_eq!(board.tallies[&Pid(7)].moved_threads, 1, "it was in no window since");
        board.keep_tallies(|pid| pid == Pid(8));
        assert!(!board.tallies.contains_key(&Pid(7)) && board.tallies.contains_key(&Pid(8)));
    }

    #[test]
    fn a_change_is_on_trial_until_its_verdict_or_until_the_process_is_in_no_window() {
        let board = Board::new(&synthetic::parse("node:2 core:1").unwrap());
        let mut board = board.borrow_mut();
        changed(&mut board, Pid(7), StepResult::Refused { errno: 1 });
        assert!(!board.is_on_trial(Pid(7)), "nothing was changed");
        changed(&mut board, Pid(7), StepResult::Done);
        assert!(board.is_on_trial(Pid(7)) && !board.is_on_trial(Pid(8)));
        changed(&mut board, Pid(8), StepResult::Done);
        assert!(board.is_on_trial(Pid(8)) && !board.is_on_trial(Pid(7)), "it sleeps or has ended");
        board.forget_trials();
        assert!(!board.is_on_trial(Pid(8)), "decisions begin anew");
    }
}
