//! Tests of trials: what is compared, and what ends one.

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
            trials.begin(&plan);
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
    trials.begin(&plan(1, "little", 0.002));
    assert_eq!(trials.running(), BTreeMap::new());
    assert!(trials.need_windows(), "it is judged all the same");
    trials.begin(&plan(2, "much", 0.2));
    assert_eq!(trials.running(), BTreeMap::from([(Pid(1), "much")]));
    let judged: Vec<_> = (0..4).flat_map(|_| trials.observe(&window(1.2), |_| false)).collect();
    let told: Vec<_> = judged.iter().map(|one| (one.policy, one.plans.clone())).collect();
    assert_eq!(told, [("much", alloc::vec![1, 2])]);
}

#[test]
fn each_policy_of_an_open_trial_is_told_of_its_own_actions() {
    let plan = |number, policy, action: Action, change| {
        let reason = Reason::Other("a test".into());
        let steps = alloc::vec![crate::plan::Proposal { policy, action, reason }];
        Plan { number, steps, predicted: [(Pid(1), change)].into(), ..Plan::default() }
    };
    let mechanism = crate::plan::Mechanism::CoLocation;
    let pages = Action::MovePages { pid: Pid(1), mechanism, pages: Vec::new() };
    let cpus = crate::index_set::CpuSet::first(1);
    let tid = crate::units::Tid(1);
    let thread = Action::SetAffinity { pid: Pid(1), tid, cpus, via: None };
    let judged = |is_refused: bool| {
        let mut trials = Trials::default();
        (0..4).for_each(|_| drop(trials.observe(&window(1.0), |_| false)));
        trials.begin(&plan(1, "threads", thread.clone(), 0.004));
        let second = plan(2, "pages", pages.clone(), 0.002);
        trials.begin(&second);
        if is_refused {
            trials.learn(&second, &[]);
        }
        let mut all = (0..5).flat_map(|_| trials.observe(&window(1.0), |_| false));
        all.next().expect("it is judged")
    };
    let both = judged(false);
    assert_eq!((both.policy, both.kinds.len()), ("threads", 2), "it promised more");
    assert_eq!(both.acts, [("pages", Kind::Pages(mechanism)), ("threads", Kind::Affinity)]);
    let one = judged(true);
    assert_eq!(one.acts, [("threads", Kind::Affinity)], "the other did nothing");
    assert_eq!(one.kinds, [Kind::Affinity]);
    // The policy of threads waits, and neither waits for what the other did.
    let mut waits = Waits::default();
    waits.learn(&both, Nanos::from_secs(1), Measure::default(), Nanos(0));
    let left = |policy, kind| waits.left(policy, kind, Nanos(0));
    assert!(left("threads", Kind::Affinity).is_some());
    assert_eq!(left("pages", Kind::Affinity), None);
}

#[test]
fn what_was_before_leaves_out_another_phase() {
    let window = |threads| Measure { threads, cpu_percent: 100.0 * threads, ..Measure::default() };
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
