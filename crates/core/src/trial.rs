//! Trials: each action is checked by comparing windows before and after it, and is undone if it did
//! harm.
//!
//! The last windows of each process are kept. The first action of a policy opens a trial. The
//! windows of the present phase before it become the reference. Further actions of the same policy
//! join the trial. Actions of other policies wait, unless the trial promised less than a trial can
//! tell from noise.
//!
//! A trial includes later steps that complete its action. If memory follows threads, windows count
//! from the arrival of the memory. Before that the threads are far from their memory, and a verdict
//! would undo the move. The trial is judged three windows after the last action, later if threads
//! moved and it looks like harm within the noise, or after [`MAX_TRIAL_WINDOWS`]:
//! - The change is the mean of the available measures. The noise comes from the variance of the
//!   windows (`noise`).
//! - A change for the worse beyond the noise is undone. The verdict "better" needs more than
//!   instructions per second, because a thread that spins at a barrier raises them.
//! - Processes whose threads one plan moved are judged together (`together`).

mod measure;
mod noise;
mod phase;
#[cfg(test)]
mod tests;
mod together;
mod waits;

pub(crate) use measure::PHASE_CHANGE;
pub use measure::{Comparison, Measure, Verdict};
pub use noise::Change;
pub(crate) use noise::LEAST_NOISE;
pub(crate) use phase::Phase;

use crate::limits::{MAX_TRIAL_WAIT, MAX_TRIAL_WINDOWS, MIN_TRIAL_WINDOWS};
use crate::model::Model;
use crate::plan::{Action, Kind, Outcome, Plan, Reason};
use crate::units::{Nanos, Pid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use self::together::Together;
pub(crate) use self::waits::Wait;
use self::waits::{Waits, Warnings};

/// A trial that ended.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Judged {
    /// Process.
    pub pid: Pid,
    /// The policy that acted. Of several, the one that promised most.
    pub policy: &'static str,
    /// Plans that took part.
    pub plans: Vec<u64>,
    /// Kinds of their actions.
    pub kinds: Vec<Kind>,
    /// Kinds of actions by the policy that took them.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub acts: Vec<(&'static str, Kind)>,
    /// The verdict.
    pub verdict: Verdict,
    /// Before and after.
    pub comparison: Comparison,
    /// Relative change of speed that the cost model predicted, 0.1 = 10 % faster; `None` if it
    /// could not price the actions.
    pub predicted: Option<f64>,
}

impl Judged {
    /// Whether this policy took one of the actions.
    #[must_use]
    pub fn is_of(&self, policy: &str) -> bool {
        self.acts.iter().any(|(one, _)| *one == policy)
    }

    /// The measured change that a prediction is compared with: that of the program's own count of
    /// work, or else of instructions.
    #[must_use]
    pub fn speed(&self) -> Option<Change> {
        self.comparison.speed()
    }

    /// Best estimate of the change of speed. Moves of pages leave misses as they are, so there the
    /// latency tells it too. If it contradicts the instructions, these are believed.
    #[must_use]
    pub fn won(&self) -> Option<Change> {
        let moved_pages = self.kinds.iter().all(|kind| kind.moves_pages());
        let is_told = self.comparison.progress.is_some();
        let by_latency = self.comparison.by_latency.filter(|_| moved_pages && !is_told);
        match (self.speed(), by_latency) {
            (Some(speed), Some(by_latency)) => {
                let apart = (speed.change - by_latency.change).abs();
                Some(match apart <= speed.noise + by_latency.noise {
                    true => speed.with(by_latency),
                    false => speed,
                })
            }
            (one, other) => one.or(other),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Trial {
    /// Plans that took part.
    plans: BTreeMap<u64, Part>,
    /// Plans of the trial that also moved threads of other processes.
    together: BTreeSet<u64>,
    /// Processes with which this one exchanged places.
    partners: BTreeSet<Pid>,
    before: Vec<Measure>,
    after: Vec<Measure>,
    quiet: usize,
    /// Time of its first plan.
    began: Nanos,
    /// Movers' time since the last window.
    moving: Nanos,
    /// Time since which windows are left out, because pages move in them or the action is not
    /// complete.
    waiting_since: Option<Nanos>,
}

/// The part of a plan in a trial.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    /// Kinds of actions by policy, in the order of the steps.
    acts: Vec<(&'static str, Kind)>,
    /// Predicted change of speed.
    predicted: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Watched {
    started: Nanos,
    history: Vec<Measure>,
    trial: Option<Trial>,
    waits: Waits,
}

/// The trials of all processes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trials {
    now: Nanos,
    apps: BTreeMap<Pid, Watched>,
    warnings: Warnings,
}

impl Trials {
    /// Adds one window to each process and judges the trials that are due. A trial waits while its
    /// policy is still completing the action (`under_way`).
    pub fn observe(&mut self, window: &Model, under_way: impl Fn(Pid) -> bool) -> Vec<Judged> {
        self.now = window.at;
        self.apps.retain(|pid, watched| {
            window.app(*pid).is_some_and(|app| app.started == watched.started)
        });
        // A process without CPU time has ended or has just begun; only samples showed it.
        for app in window.apps.iter().filter(|app| app.cpu_time > Nanos(0)) {
            let watched = self.apps.entry(app.pid).or_default();
            watched.started = app.started;
            watched.take_in(Measure::of(window, app), under_way(app.pid), window);
        }
        let due = together::due(&self.trials().collect());
        due.into_iter().flat_map(|group| self.judge(&group)).collect()
    }

    /// Judges the trials of a group of processes and ends them. Some stay open, and are judged
    /// again after other processes of the group were moved back.
    fn judge(&mut self, group: &[Pid]) -> Vec<Judged> {
        let mut judged = Vec::with_capacity(group.len());
        let mut partners = Vec::with_capacity(group.len());
        for pid in group {
            let Some(trial) = self.trial(*pid) else { continue };
            judged.push(trial.judged(*pid));
            partners.push(trial.partners.clone());
        }
        let again = together::settle(&mut judged, &partners);
        judged.retain(|one| !again.contains(&one.pid));
        for pid in again {
            self.trial(pid).into_iter().for_each(Trial::begin_again);
        }
        for one in &judged {
            let Some(watched) = self.apps.get_mut(&one.pid) else { continue };
            let Some(ended) = watched.trial.take() else { continue };
            let last = ended.after.last().copied().unwrap_or_default();
            let took = self.now.since(ended.began);
            watched.waits.learn(one, took, last, self.now);
            self.warnings.learn(one, took, self.now);
            let stays = Some(ended).filter(|_| !one.verdict.is_undone());
            watched.history = stays.map_or_else(Vec::new, Trial::into_history);
        }
        judged
    }

    /// Opens a trial for each process of an admitted plan, or joins an open one.
    pub fn begin(&mut self, plan: &Plan) {
        let together = Together::of(plan);
        for step in &plan.steps {
            if matches!(step.reason, Reason::Undo(_))
                || matches!(step.action, Action::SetSampling { .. })
            {
                continue;
            }
            let Some(pid) = step.action.pid() else { continue };
            let Some(watched) = self.apps.get_mut(&pid) else { continue };
            let history = &mut watched.history;
            let trial = watched.trial.get_or_insert_with(|| Trial {
                plans: BTreeMap::new(),
                together: BTreeSet::new(),
                partners: BTreeSet::new(),
                before: core::mem::take(history),
                after: Vec::new(),
                quiet: 0,
                began: self.now,
                moving: Nanos(0),
                waiting_since: None,
            });
            let predicted = plan.predicted.get(&pid).copied();
            let first = Part { acts: Vec::new(), predicted };
            let act = (step.policy, step.action.kind());
            let part = trial.plans.entry(plan.number).or_insert(first);
            if !part.acts.contains(&act) {
                part.acts.push(act);
            }
            if act.1 == Kind::Affinity {
                together.note(pid, step.policy, plan.number, trial);
            }
            trial.quiet = 0;
        }
    }

    /// Removes a plan from the trial of a process if the host did none of its steps there. Removes
    /// a trial without plans.
    pub fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        let step_of = |outcome: &Outcome| {
            let step = plan.steps.get(outcome.step).filter(|_| outcome.plan == plan.number)?;
            (step.action.kind() != Kind::Sampling).then_some(step)
        };
        let changed: BTreeSet<Pid> = outcomes
            .iter()
            .filter(|outcome| outcome.result.has_effect())
            .filter_map(|outcome| step_of(outcome)?.action.pid())
            .collect();
        for outcome in outcomes {
            let pid = step_of(outcome).and_then(|step| step.action.pid());
            let trial = pid.and_then(|pid| self.trial(pid));
            trial.into_iter().for_each(|trial| trial.moving += outcome.spent.max(outcome.frozen));
        }
        for (pid, watched) in self.apps.iter_mut().filter(|(pid, _)| !changed.contains(pid)) {
            let touched = plan.steps.iter().any(|step| step.action.pid() == Some(*pid));
            let Some(trial) = watched.trial.as_mut().filter(|_| touched) else { continue };
            trial.plans.remove(&plan.number);
            trial.together.remove(&plan.number);
            if trial.plans.is_empty() {
                watched.history = core::mem::take(&mut trial.before);
                watched.trial = None;
            }
        }
    }

    /// Processes with a trial that makes other policies wait, and the policy of each trial.
    #[must_use]
    pub fn running(&self) -> BTreeMap<Pid, &'static str> {
        let trials = self.trials().filter(|(_, trial)| !trial.is_open_to_all());
        trials.map(|(pid, trial)| (pid, trial.policy())).collect()
    }

    /// Time for which a policy must not repeat this kind of action, after its latest trials.
    #[must_use]
    pub fn wait(&self, pid: Pid, policy: &'static str, kind: Kind) -> Option<Nanos> {
        let own = self.apps.get(&pid)?.waits.left(policy, kind, self.now);
        own.max(self.warnings.left(policy, kind, self.now))
    }

    fn trial(&mut self, pid: Pid) -> Option<&mut Trial> {
        self.apps.get_mut(&pid)?.trial.as_mut()
    }

    fn trials(&self) -> impl Iterator<Item = (Pid, &Trial)> {
        self.apps.iter().filter_map(|(pid, watched)| Some((*pid, watched.trial.as_ref()?)))
    }

    /// Whether short windows are needed: a trial is open, or a process has too few windows for one.
    #[must_use]
    pub fn need_windows(&self) -> bool {
        self.apps.is_empty() || self.trials().next().is_some() || !self.unready().is_empty()
    }

    /// Processes with too few windows to act on them.
    #[must_use]
    pub fn unready(&self) -> BTreeSet<Pid> {
        let unready = |watched: &Watched| {
            watched.trial.is_none() && watched.history.len() < MIN_TRIAL_WINDOWS
        };
        self.apps.iter().filter(|(_, watched)| unready(watched)).map(|(pid, _)| *pid).collect()
    }
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

impl Watched {
    /// Adds a window to the trial or, without one, to the history. A trial leaves out the first
    /// window after an action, which contains the action's cost. It leaves out windows in which
    /// moving pages took a larger share of the time than the least noise. For a bounded time it
    /// also leaves out windows in which the action is not complete.
    fn take_in(&mut self, measure: Measure, under_way: bool, window: &Model) {
        self.waits.take_in(&measure, window.at);
        match &mut self.trial {
            None => {
                // The first window of a new process has no counts, so it is no reference.
                if measure.is_counted() && !self.history.iter().any(Measure::is_counted) {
                    self.history.clear();
                }
                self.history.push(measure);
                if self.history.len() > MAX_TRIAL_WINDOWS / 2 {
                    self.history.remove(0);
                }
            }
            Some(trial) => {
                let moving = core::mem::take(&mut trial.moving);
                let is_at_work = moving.seconds() > LEAST_NOISE * window.elapsed.seconds();
                let is_left_out = (is_at_work || under_way) && trial.waits(window.at);
                if !is_left_out {
                    trial.quiet += 1;
                    trial.after.push(measure);
                } else if is_at_work {
                    // The first window after an action.
                    trial.quiet = 1;
                }
            }
        }
    }
}

impl Trial {
    /// Whether the trial may leave out a window. The limit of time begins at the first call.
    fn waits(&mut self, now: Nanos) -> bool {
        now.since(*self.waiting_since.get_or_insert(now)) < MAX_TRIAL_WAIT
    }

    /// Whether steps of any policy may join the trial. Its predicted change is below the noise, so
    /// other policies would wait for a verdict that says nothing.
    fn is_open_to_all(&self) -> bool {
        self.predicted().is_some_and(|change| change.abs() < LEAST_NOISE)
    }

    /// Predicted change of speed by all of its plans together.
    fn predicted(&self) -> Option<f64> {
        let with = |so_far: f64, more: &Part| Some((1.0 + so_far) * (1.0 + more.predicted?) - 1.0);
        self.plans.values().try_fold(0.0, with)
    }

    /// The policy whose plan promised most; the first one on a tie. An unknown promise is the
    /// largest.
    fn policy(&self) -> &'static str {
        let size = |part: &Part| part.predicted.map_or(f64::INFINITY, f64::abs);
        let parts = self.plans.values().rev();
        let most = parts.max_by(|one, other| size(one).total_cmp(&size(other)));
        most.and_then(|part| part.acts.first()).map_or("", |(policy, _)| policy)
    }

    /// Kinds of actions by the policy that took them, ascending.
    fn acts(&self) -> BTreeSet<(&'static str, Kind)> {
        self.plans.values().flat_map(|part| part.acts.iter().copied()).collect()
    }

    fn moved_threads(&self) -> bool {
        self.plans.values().any(|part| part.acts.iter().any(|(_, kind)| *kind == Kind::Affinity))
    }

    /// The windows after the last action, without the first one; at least the last three.
    fn windows(&self) -> &[Measure] {
        let windows = (self.quiet - 1).max(MIN_TRIAL_WINDOWS);
        &self.after[self.after.len() - windows..]
    }

    /// The verdict for its process alone.
    fn judged(&self, pid: Pid) -> Judged {
        let comparison = Comparison::between(last_phase(&self.before), self.windows());
        let acts = self.acts();
        let kinds: BTreeSet<Kind> = acts.iter().map(|(_, kind)| *kind).collect();
        Judged {
            pid,
            policy: self.policy(),
            plans: self.plans.keys().copied().collect(),
            kinds: kinds.into_iter().collect(),
            acts: acts.into_iter().collect(),
            verdict: comparison.verdict(self.moved_threads()),
            comparison,
            predicted: self.predicted(),
        }
    }

    /// Restarts the count of windows because other processes of the group move back now. The
    /// windows before the action stay the reference.
    fn begin_again(&mut self) {
        self.after.clear();
        self.quiet = 0;
        self.waiting_since = None;
    }

    /// The windows after the action become the reference of the next trial, even after a change of
    /// phase. Otherwise a program that changes often would never have the three windows that a
    /// trial needs.
    fn into_history(self) -> Vec<Measure> {
        let windows = self.windows();
        windows[windows.len().saturating_sub(MAX_TRIAL_WINDOWS / 2)..].to_vec()
    }
}
