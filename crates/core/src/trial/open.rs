//! An open trial of one process: its plans, its promise, and the windows before and after.

use super::noise::LEAST_NOISE;
use super::{Comparison, Judged, Measure};
use crate::limits::{MAX_TRIAL_WAIT, MAX_TRIAL_WINDOWS, MIN_TRIAL_WINDOWS};
use crate::model::Model;
use crate::plan::{Kind, Mechanism, Plan, Proposal};
use crate::units::{Nanos, Pid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A trial that is not judged yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trial {
    pub(super) policy: &'static str,
    /// Plans that took part, each with its predicted change of speed.
    pub(super) plans: BTreeMap<u64, Option<f64>>,
    pub(super) kinds: BTreeSet<Kind>,
    /// Plans of the trial that also moved threads of other processes.
    pub(super) together: BTreeSet<u64>,
    /// Processes with which this one exchanged places.
    pub(super) partners: BTreeSet<Pid>,
    pub(super) before: Vec<Measure>,
    pub(super) after: Vec<Measure>,
    pub(super) quiet: usize,
    /// Time of its first plan.
    pub(super) began: Nanos,
    /// Movers' time since the last window.
    pub(super) moving: Nanos,
    /// Time since which windows are left out, because pages move in them or the action is not
    /// complete.
    waiting_since: Option<Nanos>,
}

/// The windows of the present phase, at least the last one. Windows of earlier phases are no
/// reference for an action. One thread may have filled the memory then, or threads may have used
/// other parts of it.
fn last_phase(windows: &[Measure]) -> &[Measure] {
    let Some(last) = windows.last() else { return windows };
    let is_same = |window: &Measure| window.is_phase_of(last) && window.is_placed_as(last);
    let other = windows.iter().rposition(|window| !is_same(window));
    &windows[other.map_or(0, |place| place + 1)..]
}

impl Trial {
    /// A trial of a policy that begins now. `before` = the windows before it.
    pub(super) fn new(policy: &'static str, before: Vec<Measure>, now: Nanos) -> Self {
        Self {
            policy,
            plans: BTreeMap::new(),
            kinds: BTreeSet::new(),
            together: BTreeSet::new(),
            partners: BTreeSet::new(),
            before,
            after: Vec::new(),
            quiet: 0,
            began: now,
            moving: Nanos(0),
            waiting_since: None,
        }
    }

    /// Takes in a step of a plan for its process.
    pub(super) fn join(&mut self, plan: &Plan, step: &Proposal, pid: Pid) {
        if !self.plans.contains_key(&plan.number) {
            let promise = match self.is_completed_by(plan, pid) {
                true => Some(0.0),
                false => plan.predicted.get(&pid).copied(),
            };
            self.plans.insert(plan.number, promise);
            self.policy = step.policy;
        }
        self.kinds.insert(step.action.kind());
        self.quiet = 0;
    }

    /// Adds a window, or leaves it out. The first window after an action contains the action's
    /// cost. In others, moving pages took a larger share of the time than the least noise. For a
    /// bounded time, windows in which the action is not complete are left out too.
    pub(super) fn take_in(&mut self, measure: Measure, under_way: bool, window: &Model) {
        let moving = core::mem::take(&mut self.moving);
        let is_at_work = moving.seconds() > LEAST_NOISE * window.elapsed.seconds();
        let is_left_out = (is_at_work || under_way) && self.waits(window.at);
        if !is_left_out {
            self.quiet += 1;
            self.after.push(measure);
        } else if is_at_work {
            // The first window after an action.
            self.quiet = 1;
        }
    }

    /// Whether the trial may leave out a window. The limit of time begins at the first call.
    fn waits(&mut self, now: Nanos) -> bool {
        now.since(*self.waiting_since.get_or_insert(now)) < MAX_TRIAL_WAIT
    }

    /// Whether steps of any policy may join the trial. Its predicted change is below the noise, so
    /// other policies would wait for a verdict that says nothing.
    pub(super) fn is_open_to_all(&self) -> bool {
        self.predicted().is_some_and(|change| change.abs() < LEAST_NOISE)
    }

    /// Whether it ends because another policy acts in a later plan.
    pub(super) fn gives_way_to(&self, policy: &str, plan: u64) -> bool {
        self.policy != policy && self.is_open_to_all() && !self.plans.contains_key(&plan)
    }

    /// Whether a plan only lets the memory of a process follow threads that the trial moved. The
    /// promise of the threads' move includes that gain.
    fn is_completed_by(&self, plan: &Plan, pid: Pid) -> bool {
        let own = plan.steps.iter().filter(|step| step.action.pid() == Some(pid));
        let mut kinds = own.map(|step| step.action.kind()).filter(|kind| *kind != Kind::Sampling);
        let follows = |kind| matches!(kind, Kind::Pages(Mechanism::Following) | Kind::Bulk);
        self.kinds.contains(&Kind::Affinity) && kinds.all(follows)
    }

    /// Predicted change of speed by all of its plans together.
    fn predicted(&self) -> Option<f64> {
        let with = |so_far: f64, more: &Option<f64>| Some((1.0 + so_far) * (1.0 + (*more)?) - 1.0);
        self.plans.values().try_fold(0.0, with)
    }

    /// The windows after the last action, without the first one; at least the last three.
    fn windows(&self) -> &[Measure] {
        let windows = (self.quiet - 1).max(MIN_TRIAL_WINDOWS);
        &self.after[self.after.len() - windows..]
    }

    /// The verdict for its process alone.
    pub(super) fn judged(&self, pid: Pid) -> Judged {
        let moved_threads = self.kinds.contains(&Kind::Affinity);
        let comparison = Comparison::between(last_phase(&self.before), self.windows());
        Judged {
            pid,
            policy: self.policy,
            plans: self.plans.keys().copied().collect(),
            kinds: self.kinds.iter().copied().collect(),
            verdict: comparison.verdict(moved_threads),
            comparison,
            predicted: self.predicted(),
        }
    }

    /// Restarts the count of windows because other processes of the group move back now. The
    /// windows before the action stay the reference.
    pub(super) fn begin_again(&mut self) {
        self.after.clear();
        self.quiet = 0;
        self.waiting_since = None;
    }

    /// The reference of a trial of another policy that begins now: the windows after the action, or
    /// those before it if they are too few.
    pub(super) fn left(self) -> Vec<Measure> {
        if self.quiet > MIN_TRIAL_WINDOWS { self.into_history() } else { self.before }
    }

    /// The windows after the action become the reference of the next trial, even after a change of
    /// phase. Otherwise a program that changes often would never have the three windows that a
    /// trial needs.
    pub(super) fn into_history(self) -> Vec<Measure> {
        let windows = self.windows();
        windows[windows.len().saturating_sub(MAX_TRIAL_WINDOWS / 2)..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_leaves_out_another_phase() {
        let window =
            |threads| Measure { threads, cpu_percent: 100.0 * threads, ..Measure::default() };
        let kept = |threads: &[f64]| -> Vec<f64> {
            let windows: Vec<_> = threads.iter().map(|threads| window(*threads)).collect();
            last_phase(&windows).iter().map(|window| window.threads).collect()
        };
        assert_eq!(kept(&[1.0, 4.0, 4.0, 4.0]), [4.0, 4.0, 4.0]);
        assert_eq!(kept(&[4.0, 1.0, 4.0, 4.0, 4.0, 4.0]), [4.0; 4]);
        assert_eq!(kept(&[1.0, 1.0, 1.0, 4.0]), [4.0], "a program that has just been woken for");
        assert_eq!(kept(&[4.0, 5.0, 4.0, 4.0]), [4.0, 5.0, 4.0, 4.0]);
    }

    /// Threads exchange their parts of the data. They run as before, but on remote memory.
    #[test]
    fn what_was_before_leaves_out_another_placement() {
        let window = |local| Measure { local_percent: Some(local), ..Measure::default() };
        let kept = |local: &[f64]| -> Vec<Option<f64>> {
            let windows: Vec<_> = local.iter().map(|local| window(*local)).collect();
            last_phase(&windows).iter().map(|window| window.local_percent).collect()
        };
        assert_eq!(kept(&[99.0, 98.0, 2.0, 4.0]), [Some(2.0), Some(4.0)]);
        assert_eq!(kept(&[60.0, 40.0, 55.0]).len(), 3, "samples are few in a short window");
        let unknown = [Measure::default(), window(50.0)];
        assert_eq!(last_phase(&unknown).len(), 2);
    }

    /// Moves of the threads of a process, then of its pages after them, then of all its memory.
    #[test]
    fn memory_that_follows_threads_adds_nothing_to_their_promise() {
        use crate::index_set::CpuSet;
        use crate::plan::{Action, Reason};
        use crate::units::{Bytes, Tid};
        let pid = Pid(1);
        let pages = |mechanism| Action::MovePages { pid, mechanism, pages: Vec::new() };
        let threads = Action::SetAffinity { pid, tid: Tid(1), cpus: CpuSet::first(1), via: None };
        let (nodes, memory) = (Vec::new(), Bytes(1));
        let all = Action::MoveProcessMemory { pid, nodes, freeze: false, memory };
        let promised = |actions: &[(Action, f64)]| {
            let mut trial = Trial::new("test", Vec::new(), Nanos(0));
            for (number, (action, predicted)) in (1..).zip(actions) {
                let reason = Reason::Other("a test".into());
                let step = Proposal { policy: "test", action: action.clone(), reason };
                let steps = alloc::vec![step.clone()];
                let predicted = [(pid, *predicted)].into();
                trial.join(&Plan { number, steps, predicted, ..Plan::default() }, &step, pid);
            }
            trial.predicted().expect("each is predicted")
        };
        let follows = (pages(Mechanism::Following), 0.1);
        let completed = promised(&[(threads.clone(), 0.2), follows.clone(), (all, 0.3)]);
        assert!((completed - 0.2).abs() < 1e-9, "{completed}");
        let two_rounds = promised(&[(pages(Mechanism::CoLocation), 0.2), follows]);
        assert!((two_rounds - 0.32).abs() < 1e-9, "no thread was moved: {two_rounds}");
        let both = promised(&[(threads, 0.2), (pages(Mechanism::Interleaving), 0.1)]);
        assert!((both - 0.32).abs() < 1e-9, "a gain of its own: {both}");
    }
}
