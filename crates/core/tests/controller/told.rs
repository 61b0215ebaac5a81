//! What a policy is told in a step, and in which order.

use crate::world::{PID, Twist, World};
use rondpoint_core::controller::{Controller, Settings};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::run;
use rondpoint_core::plan::{Choice, Refusal};
use rondpoint_core::policy::{Policy, views::Views};
use rondpoint_core::trial::Judged;
use rondpoint_core::{
    Action, CpuSet, Model, Nanos, Outcome, Plan, Proposal, Random, Reason, Tid, Topology,
};
use std::cell::RefCell;
use std::rc::Rc;

/// Policies that want to do the same.
const OWN: &str = "listener";
const OTHER: &str = "other";

/// The change of speed for which the policy chooses its step.
const PROMISE: f64 = 0.5;

/// What a policy was told.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    /// Trials that ended: what each was predicted to bring.
    Judged(Nanos, Vec<Option<f64>>),
    /// It was asked.
    Asked {
        at: Nanos,
        /// Threads with a mask of ours.
        narrowed: Vec<Tid>,
        /// A trial holds up the same step of another policy.
        is_held_up: bool,
    },
}

/// Sends its thread to the CPUs of node 1 once, and keeps what it is told.
struct Listener {
    log: Rc<RefCell<Vec<Told>>>,
    is_done: bool,
}

fn wish(policy: &'static str, topology: &Topology) -> Proposal {
    let cpus: CpuSet = topology.cpus_of_node(1).clone();
    let action = Action::SetAffinity { pid: PID, tid: Tid(PID.0), cpus, via: None };
    Proposal { policy, action, reason: Reason::Other("a test".to_string()) }
}

impl Policy for Listener {
    fn propose(&mut self, _: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        let wish = (!self.is_done).then(|| wish(OWN, topology));
        wish.into_iter().collect()
    }

    fn propose_due(
        &mut self,
        views: &Views<'_>,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        let model = views.due(0).expect("its one lane is due");
        let narrowed = model.threads.iter().filter(|thread| thread.is_narrowed);
        let refused = (views.permits())(wish(OTHER, topology)).refused;
        self.log.borrow_mut().push(Told::Asked {
            at: model.at,
            narrowed: narrowed.map(|thread| thread.tid).collect(),
            is_held_up: refused.iter().any(|one| one.refusal == Refusal::TrialRunning),
        });
        self.propose(model, topology, random)
    }

    fn learn(&mut self, plan: &Plan, _: &[Outcome]) {
        self.is_done |= !plan.steps.is_empty();
    }

    fn take_choice(&mut self) -> Choice {
        Choice { predicted: [(PID, PROMISE)].into(), ..Choice::default() }
    }

    fn judge(&mut self, judged: &[Judged], now: Nanos) {
        if !judged.is_empty() {
            let predicted = judged.iter().map(|one| one.predicted).collect();
            self.log.borrow_mut().push(Told::Judged(now, predicted));
        }
    }
}

/// What the policy was told, and when its step was done.
fn told() -> (Vec<Told>, Nanos) {
    let log = Rc::default();
    let policy = Box::new(Listener { log: Rc::clone(&log), is_done: false });
    let mut world = World::new(1_000, 24, Twist::default());
    let settings = Settings { seed: 3, guard: GuardSettings::acting() };
    let mut controller = Controller::new(world.topology.clone(), vec![policy], settings);
    match run(&mut world, &mut controller, &mut ()) {
        Ok(()) => {}
    }
    let done = world.plans.iter().position(Plan::acts).expect("its step is done");
    assert_eq!(world.plans[done].predicted, [(PID, PROMISE)].into());
    let log = log.borrow().clone();
    let asked = log.iter().filter_map(|one| match one {
        Told::Asked { at, .. } => Some(*at),
        Told::Judged(..) => None,
    });
    // The first look has no window, and a plan all the same.
    let at = asked.clone().nth(done - 1).expect("it is asked in each window");
    (log, at)
}

#[test]
fn a_policy_is_told_which_masks_are_narrowed_from_the_step_after_on() {
    let (log, done) = told();
    let mut seen = (0, 0);
    for one in &log {
        let Told::Asked { at, narrowed, .. } = one else { continue };
        let expected: &[Tid] = if *at > done { &[Tid(PID.0)] } else { &[] };
        assert_eq!(narrowed, expected, "at {at:?}, done at {done:?}");
        *(if *at > done { &mut seen.1 } else { &mut seen.0 }) += 1;
    }
    assert!(seen.0 > 1 && seen.1 > 1, "{seen:?}");
}

#[test]
fn a_trial_is_judged_before_a_policy_is_asked_in_the_same_step() {
    let (log, done) = told();
    let judged = log.iter().position(|one| matches!(one, Told::Judged(..))).expect("a verdict");
    let Told::Judged(at, ref predicted) = log[judged] else { panic!("{:?}", log[judged]) };
    assert_eq!(predicted.len(), 1, "{log:?}");
    // The verdict first, then the question of the same window.
    let asked_at = |one: &Told| matches!(one, Told::Asked { at: asked, .. } if *asked == at);
    assert_eq!(log.iter().position(asked_at), Some(judged + 1), "{log:?}");
    for (place, one) in log.iter().enumerate() {
        let Told::Asked { at, is_held_up, .. } = one else { continue };
        assert_eq!(*is_held_up, *at > done && place < judged, "at {at:?}: {log:?}");
    }
}

#[test]
fn a_trial_is_compared_with_the_change_for_which_the_policy_chose_its_step() {
    let (log, _) = told();
    let judged = log.iter().find_map(|one| match one {
        Told::Judged(_, predicted) => Some(predicted.as_slice()),
        Told::Asked { .. } => None,
    });
    assert_eq!(judged, Some([Some(PROMISE)].as_slice()));
}
