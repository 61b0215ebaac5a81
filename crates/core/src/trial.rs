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
mod open;
mod phase;
mod together;
mod waits;

pub(crate) use measure::PHASE_CHANGE;
pub use measure::{Comparison, Measure, Verdict};
pub use noise::Change;
pub(crate) use noise::LEAST_NOISE;
pub(crate) use phase::Phase;

use crate::limits::{MAX_TRIAL_WINDOWS, MIN_TRIAL_WINDOWS};
use crate::model::Model;
use crate::plan::{Action, Kind, Outcome, Plan, Reason};
use crate::units::{Nanos, Pid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use self::open::Trial;
use self::together::Together;
pub(crate) use self::waits::Wait;
use self::waits::{Waits, Warnings};

/// A trial that ended.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Judged {
    /// Process.
    pub pid: Pid,
    /// The policy that acted.
    pub policy: &'static str,
    /// Plans that took part.
    pub plans: Vec<u64>,
    /// Kinds of its actions.
    pub kinds: Vec<Kind>,
    /// The verdict.
    pub verdict: Verdict,
    /// Before and after.
    pub comparison: Comparison,
    /// Relative change of speed that the cost model predicted, 0.1 = 10 % faster; `None` if it
    /// could not price the actions.
    pub predicted: Option<f64>,
}

impl Judged {
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

    /// Opens a trial for each process of an admitted plan, or joins an open one. A trial that makes
    /// no other policy wait ends without a verdict when another policy acts, so that one verdict is
    /// not about both. Returns the plans of such trials, by process.
    pub fn begin(&mut self, plan: &Plan) -> Vec<(Pid, Vec<u64>)> {
        let together = Together::of(plan);
        let mut ended = Vec::new();
        for step in &plan.steps {
            if matches!(step.reason, Reason::Undo(_))
                || matches!(step.action, Action::SetSampling { .. })
            {
                continue;
            }
            let Some(pid) = step.action.pid() else { continue };
            let Some(watched) = self.apps.get_mut(&pid) else { continue };
            let gives_way = |one: &mut Trial| one.gives_way_to(step.policy, plan.number);
            if let Some(open) = watched.trial.take_if(gives_way) {
                ended.push((pid, open.plans.keys().copied().collect()));
                watched.history = open.left();
            }
            let history = &mut watched.history;
            let begin = || Trial::new(step.policy, core::mem::take(history), self.now);
            let trial = watched.trial.get_or_insert_with(begin);
            trial.join(plan, step, pid);
            if step.action.kind() == Kind::Affinity {
                together.note(pid, plan.number, trial);
            }
        }
        ended
    }

    /// Removes a plan from the trial of a process if the host did none of its steps there. Removes
    /// a trial without plans.
    pub fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        let mut changed = BTreeSet::new();
        let results = plan.results(outcomes);
        for (step, outcome) in results.filter(|(step, _)| step.action.kind() != Kind::Sampling) {
            let Some(pid) = step.action.pid() else { continue };
            if outcome.result.has_effect() {
                changed.insert(pid);
            }
            let trial = self.trial(pid).into_iter();
            trial.for_each(|trial| trial.moving += outcome.spent.max(outcome.frozen));
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
        trials.map(|(pid, trial)| (pid, trial.policy)).collect()
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

impl Watched {
    /// Adds a window to the trial or, without one, to the history.
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
            Some(trial) => trial.take_in(measure, under_way, window),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::App;

    #[test]
    fn what_came_before_counting_is_not_compared_with_and_a_gap_in_it_is() {
        let mut watched = Watched::default();
        for instructions_per_s in [None, None, Some(1.0), None, Some(2.0)] {
            let window = Measure { instructions_per_s, ..Measure::default() };
            watched.take_in(window, false, &Model::empty(1));
        }
        let kept: Vec<_> = watched.history.iter().map(|window| window.instructions_per_s).collect();
        assert_eq!(kept, [Some(1.0), None, Some(2.0)]);
    }

    #[test]
    fn a_process_known_by_samples_only_is_not_waited_for() {
        let mut trials = Trials::default();
        for window in 1..=MIN_TRIAL_WINDOWS {
            let mut model = Model::empty(1);
            // The second process of each window is a new one, with a number of its own.
            let pids = [Pid(1), Pid(10 + window as u32)];
            model.apps = pids.map(|pid| App::new(pid, 0..0)).into();
            model.apps[0].cpu_time = Nanos(1);
            trials.observe(&model, |_| false);
        }
        assert!(!trials.need_windows());
    }

    /// A window of a quarter of a second in which the process makes this progress per second.
    fn window(progress: f64) -> Model {
        let mut model = Model::empty(1);
        let app = App { progress_per_s: Some(progress), ..App::new(Pid(1), 0..0) };
        model.apps.push(App { cpu_percent: 100.0, cpu_time: Nanos(1), ..app });
        model.elapsed = Nanos::from_millis(250);
        model
    }

    /// The verdicts, each with the number of windows before it. In fourteen windows pages move for
    /// `spent` each, and progress is halved. Then progress is a fifth faster than before.
    fn verdicts(spent: Nanos) -> Vec<(usize, Verdict)> {
        let pages = Vec::new();
        let mechanism = crate::plan::Mechanism::CoLocation;
        let action = Action::MovePages { pid: Pid(1), mechanism, pages };
        let reason = Reason::Other("a test".into());
        let steps = alloc::vec![crate::plan::Proposal { policy: "test", action, reason }];
        let mut trials = Trials::default();
        let mut judged = Vec::new();
        (0..4).for_each(|_| drop(trials.observe(&window(1.0), |_| false)));
        for number in 1..=20 {
            let moves = number <= 14;
            if moves {
                let plan = Plan { number, steps: steps.clone(), ..Plan::default() };
                assert_eq!(trials.begin(&plan), []);
                let result = crate::plan::StepResult::Done;
                let frozen = Nanos(0);
                let outcome = Outcome { plan: number, step: 0, result, spent, frozen };
                trials.learn(&plan, &[outcome]);
            }
            let ended = trials.observe(&window(if moves { 0.5 } else { 1.2 }), |_| false);
            judged.extend(ended.iter().map(|one| (number as usize, one.verdict)));
        }
        judged
    }

    #[test]
    fn windows_in_which_pages_move_are_the_cost_of_an_action_and_not_its_effect() {
        assert_eq!(verdicts(Nanos::from_millis(100)), [(17, Verdict::Better)]);
        let quick = verdicts(Nanos::from_millis(1));
        assert_eq!(quick.first(), Some(&(12, Verdict::Worse)), "moving is not what slows it down");
    }

    #[test]
    fn a_trial_that_promised_less_than_noise_makes_no_other_policy_wait() {
        let plan = |number, policy, change| {
            let (mechanism, pages) = (crate::plan::Mechanism::CoLocation, Vec::new());
            let action = Action::MovePages { pid: Pid(1), mechanism, pages };
            let reason = Reason::Other("a test".into());
            let steps = alloc::vec![crate::plan::Proposal { policy, action, reason }];
            Plan { number, steps, predicted: [(Pid(1), change)].into(), ..Plan::default() }
        };
        let mut trials = Trials::default();
        (0..4).for_each(|_| drop(trials.observe(&window(1.0), |_| false)));
        assert_eq!(trials.begin(&plan(1, "little", 0.002)), []);
        assert_eq!(trials.running(), BTreeMap::new());
        assert!(trials.need_windows(), "it is judged all the same");
        trials.observe(&window(1.0), |_| false);
        let ended = trials.begin(&plan(2, "much", 0.2));
        assert_eq!(ended, [(Pid(1), alloc::vec![1])], "its own verdict would be about both");
        assert_eq!(trials.running(), BTreeMap::from([(Pid(1), "much")]));
        let judged: Vec<_> = (0..4).flat_map(|_| trials.observe(&window(0.5), |_| false)).collect();
        let told: Vec<_> =
            judged.iter().map(|one| (one.policy, one.plans.clone(), one.verdict)).collect();
        assert_eq!(told, [("much", alloc::vec![2], Verdict::Worse)]);
    }
}
