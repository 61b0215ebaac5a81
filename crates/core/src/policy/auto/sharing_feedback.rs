//! Whether it helped a process to bring its threads together, by SAM (phase C) or by samples that
//! name them. The measure is SAM's own: the lines that they fetch from the caches of other nodes.
//!
//! Some lines are fetched from other nodes wherever the threads are. One kind is written by more
//! threads than a node has room for. The other belongs to threads that the counters cannot tell
//! from those that the joining is for. No mapping mends that, and the check window finds nothing
//! worse. Such a process would be rearranged as often as the guard allows, for as long as it runs,
//! and its counters would never rest.

use super::veto::Veto;
use crate::model::{App, Model};
use crate::plan::{Outcome, Plan, Proposal, Reason, StepResult};
use crate::policy::sam::{Phase, SamReason, Side};
use crate::policy::sharing::SharingReason;
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Intervals from the first step of a joining to its verdict (our choice). Most joinings are
/// complete after one or two. A thread's own lines, left where it was, come to it for about as
/// long.
const JUDGED_AFTER: usize = 10;
/// This many of the last of them are compared with up to as many from before the joining (our
/// choice).
const COMPARED: usize = 5;
/// It helped if at most this part of the exchanges is left (our choice). Four threads that all
/// share, one on each of four nodes of two CPUs, keep two thirds where they end in pairs.
const HELPED_BELOW: f64 = 0.75;
/// How long it is not tried again after the first time. Each further time doubles that (our choice,
/// as the guard does for undone actions).
const BACK_OFF: Nanos = Nanos::from_secs(5);
/// The most doublings: five minutes and a third.
const MAX_DOUBLINGS: u32 = 6;

/// One process.
#[derive(Debug, Clone, Default)]
struct Process {
    started: Nanos,
    /// Its exchanges, per second of CPU time and thread, in the last intervals in which they were
    /// counted.
    recent: Vec<f64>,
    joining: Option<Joining>,
    /// Times in a row that it was in vain.
    failures: u32,
    left_until: Nanos,
    /// Before and after the last time that it was in vain, events per second.
    rates: (f64, f64),
}

/// A joining that has not been judged yet.
#[derive(Debug, Clone)]
struct Joining {
    before: f64,
    intervals: usize,
}

/// All processes.
#[derive(Debug, Clone)]
pub(super) struct SharingFeedback {
    now: Nanos,
    /// Which steps bring a thread to those it exchanges data with.
    joins: fn(&Proposal) -> bool,
    processes: BTreeMap<Pid, Process>,
}

impl SharingFeedback {
    /// Nothing was brought together yet.
    pub(super) fn of(joins: fn(&Proposal) -> bool) -> Self {
        Self { now: Nanos(0), joins, processes: BTreeMap::new() }
    }

    /// Takes in one interval and judges what is due; processes that ended are forgotten.
    pub(super) fn observe(&mut self, model: &Model) {
        self.now = model.at;
        self.processes.retain(|pid, process| {
            model.app(*pid).is_some_and(|app| app.started == process.started)
        });
        for app in &model.apps {
            let Some(exchanged) = exchanged_per_s(model, app) else { continue };
            let fresh = || Process { started: app.started, ..Process::default() };
            self.processes.entry(app.pid).or_insert_with(fresh).take_in(exchanged, model.at);
        }
    }

    /// What was done of a plan begins a joining, or goes on with one.
    pub(super) fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        let of_plan = outcomes.iter().filter(|outcome| outcome.plan == plan.number);
        for outcome in of_plan.filter(|outcome| outcome.result == StepResult::Done) {
            let step = plan.steps.get(outcome.step).filter(|step| (self.joins)(step));
            let process = step
                .and_then(|step| step.action.pid())
                .and_then(|pid| self.processes.get_mut(&pid));
            process.into_iter().for_each(Process::begin);
        }
    }

    /// Whether threads of a process were brought together a moment ago and the verdict is due.
    pub(super) fn is_judged(&self, pid: Pid) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.joining.is_some())
    }

    /// Whether that is so for some process.
    pub(super) fn is_judging(&self) -> bool {
        self.processes.values().any(|process| process.joining.is_some())
    }

    /// A process in which that was in vain is left.
    pub(super) fn in_vain(&self, pid: Pid) -> Option<Veto> {
        let process = self.processes.get(&pid)?;
        let left = process.left_until.since(self.now);
        let (before_per_s, after_per_s) = process.rates;
        (left > Nanos(0)).then_some(Veto::InVain { before_per_s, after_per_s, left })
    }
}

impl Process {
    fn take_in(&mut self, exchanged: f64, now: Nanos) {
        if self.recent.len() == COMPARED {
            self.recent.remove(0);
        }
        self.recent.push(exchanged);
        let Some(joining) = &mut self.joining else { return };
        joining.intervals += 1;
        if joining.intervals < JUDGED_AFTER {
            return;
        }
        let (before, after) = (joining.before, self.mean());
        self.joining = None;
        if after < HELPED_BELOW * before {
            self.failures = 0;
            return;
        }
        self.left_until = now + Nanos(BACK_OFF.0 << self.failures.min(MAX_DOUBLINGS));
        self.failures += 1;
        self.rates = (before, after);
    }

    /// Takes in a step of a joining. Without rates from before it there is nothing to compare.
    fn begin(&mut self) {
        if self.joining.is_none() && !self.recent.is_empty() {
            self.joining = Some(Joining { before: self.mean(), intervals: 0 });
        }
    }

    fn mean(&self) -> f64 {
        self.recent.iter().sum::<f64>() / self.recent.len() as f64
    }
}

/// A step of SAM's phase C.
pub(super) fn by_counters(step: &Proposal) -> bool {
    let Reason::Sam(SamReason::Move { phase: Phase::Coherence, side, .. }) = &step.reason else {
        return false;
    };
    *side == Side::Mover
}

/// A step of the `sharing` policy that brings a thread to others.
pub(super) fn by_samples(step: &Proposal) -> bool {
    matches!(step.reason, Reason::Sharing(SharingReason::Join { .. }))
}

/// What a running thread of a process fetches from caches of other nodes per second of its CPU
/// time, mean over those that were counted.
fn exchanged_per_s(model: &Model, app: &App) -> Option<f64> {
    let running = model.threads_of(app).iter().filter(|thread| thread.is_running());
    let rates: Vec<f64> = running.filter_map(|one| one.rates.coherence_remote_per_s).collect();
    (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::model::Thread;
    use crate::plan::Action;
    use crate::policy::sam::Destination;
    use crate::units::Tid;
    use alloc::vec;

    const PID: Pid = Pid(7);

    /// Intervals of 100 ms of one process with this rate of exchanges, in M/s.
    struct Scene {
        feedback: SharingFeedback,
        started: Nanos,
        intervals: u64,
    }

    impl Scene {
        fn new() -> Self {
            Self { feedback: SharingFeedback::of(by_counters), started: Nanos(0), intervals: 0 }
        }

        fn pass(&mut self, intervals: usize, rate: impl Into<Option<f64>>) {
            let rate = rate.into();
            for _ in 0..intervals {
                self.intervals += 1;
                let mut model = Model::empty(2);
                model.at = Nanos::from_millis(100 * self.intervals);
                let mut app = App::new(PID, 0..2);
                app.started = self.started;
                model.apps.push(app);
                let mut thread = Thread::new(Tid(7), 0, 0, CpuSet::first(1));
                thread.rates.coherence_remote_per_s = rate.map(|rate: f64| rate * 1e6);
                model.threads =
                    vec![thread.clone(), Thread { tid: Tid(8), cpu_share: 0.0, ..thread }];
                model.threads[1].rates.coherence_remote_per_s = Some(0.0);
                self.feedback.observe(&model);
            }
        }

        fn did(&mut self, phase: Phase, side: Side, result: StepResult) {
            let action =
                Action::SetAffinity { pid: PID, tid: Tid(7), cpus: CpuSet::first(1), via: None };
            let reason = Reason::Sam(SamReason::Move {
                phase,
                destination: Destination::Idle,
                side,
                rate_per_s: 1e6,
                threshold_per_s: 5e5,
                from: 0,
                to: 1,
            });
            let steps = vec![Proposal { policy: "sam", action, reason }];
            let plan = Plan { number: 1, steps, ..Plan::default() };
            let spent = Nanos(0);
            let outcome = Outcome { plan: 1, step: 0, result, spent, frozen: Nanos(0) };
            self.feedback.learn(&plan, &[outcome]);
        }

        fn join(&mut self) {
            self.did(Phase::Coherence, Side::Mover, StepResult::Done);
        }

        /// For how many seconds it is left.
        fn left_s(&self) -> Option<u64> {
            match self.feedback.in_vain(PID)? {
                Veto::InVain { left, .. } => Some(left.0 / 1_000_000_000),
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn a_process_that_exchanges_as_much_as_before_is_left_for_longer_each_time() {
        let mut scene = Scene::new();
        scene.pass(4, 1.0);
        scene.join();
        scene.pass(JUDGED_AFTER - 1, 0.8);
        assert_eq!(scene.left_s(), None, "not judged yet");
        scene.pass(1, 0.8);
        assert_eq!(scene.left_s(), Some(5));
        scene.pass(50, 0.8);
        assert_eq!(scene.left_s(), None);
        scene.join();
        scene.pass(JUDGED_AFTER, 0.8);
        assert_eq!(scene.left_s(), Some(10));
    }

    #[test]
    fn a_process_that_exchanges_less_is_not_left_and_counts_from_the_start_again() {
        let mut scene = Scene::new();
        scene.pass(4, 1.0);
        for (after, left) in [(0.9, Some(5)), (0.1, None), (0.1, Some(5))] {
            scene.join();
            scene.pass(JUDGED_AFTER, after);
            assert_eq!(scene.left_s(), left, "{after}");
            scene.pass(50, after);
        }
    }

    #[test]
    fn what_comes_shortly_after_a_step_does_not_count_and_more_steps_do_not_put_it_off() {
        let mut scene = Scene::new();
        scene.pass(4, 1.0);
        scene.join();
        scene.pass(4, 5.0);
        scene.join();
        scene.pass(1, 5.0);
        scene.pass(COMPARED, 0.0);
        assert_eq!(scene.left_s(), None);
        scene.join();
        scene.pass(COMPARED, 0.0);
        scene.join();
        scene.pass(COMPARED, 1.0);
        assert_eq!(scene.left_s(), Some(5), "judged ten intervals after the first of two");
    }

    #[test]
    fn only_a_process_that_was_joined_and_counted_is_judged() {
        for (phase, side, result) in [
            (Phase::Remote, Side::Mover, StepResult::Done),
            (Phase::Coherence, Side::Partner { of: Tid(9) }, StepResult::Done),
            (Phase::Coherence, Side::Mover, StepResult::Gone),
        ] {
            let mut scene = Scene::new();
            scene.pass(4, 1.0);
            scene.did(phase, side, result);
            scene.pass(2 * JUDGED_AFTER, 1.0);
            assert_eq!(scene.left_s(), None);
        }
        let mut scene = Scene::new();
        scene.pass(4, 1.0);
        scene.join();
        scene.pass(2 * JUDGED_AFTER, None);
        assert_eq!(scene.left_s(), None, "nothing was counted");
        scene.pass(JUDGED_AFTER, 1.0);
        assert_eq!(scene.left_s(), Some(5));
    }

    #[test]
    fn another_process_with_the_number_is_not_left() {
        let mut scene = Scene::new();
        scene.pass(4, 1.0);
        scene.join();
        scene.pass(JUDGED_AFTER, 1.0);
        scene.started = Nanos(1);
        scene.pass(1, 1.0);
        assert_eq!(scene.left_s(), None);
    }
}
