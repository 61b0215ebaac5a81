//! Pauses of counting in the loop: when they come, what ends them, and that nothing is measured
//! across one.

use rondpoint_core::controller::{Controller, Settings};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::run;
use rondpoint_core::plan::Sampling;
use rondpoint_core::policy::{Policy, by_name};
use rondpoint_core::{Action, Model, Nanos, Proposal, Random, Reason, Topology};
use std::cell::RefCell;
use std::rc::Rc;

use super::world::{Twist, World};

/// What a policy was shown: when, for how long, and at how many instructions a second of the first
/// thread.
type Shown = Rc<RefCell<Vec<(u64, u64, f64)>>>;

/// Does nothing; it decides once in this time.
struct Idle(Shown, Nanos);

impl Policy for Idle {
    fn propose(&mut self, model: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        let speed = model.threads[0].rates.instructions_per_s.expect("counted");
        let seconds = |time: Nanos| time.0 / 1_000_000_000;
        self.0.borrow_mut().push((seconds(model.at), seconds(model.elapsed), speed));
        Vec::new()
    }

    fn period(&self) -> Nanos {
        self.1
    }
}

fn pauses(policy: Box<dyn Policy>, twist: Twist, guard: GuardSettings) -> Vec<(u64, u64)> {
    let mut world = World::new(1_000, 40, twist);
    world.pauses = Some(Vec::new());
    let mut controller =
        Controller::new(world.topology.clone(), vec![policy], Settings { seed: 3, guard });
    match run(&mut world, &mut controller, &mut ()) {
        Ok(()) => world.pauses.unwrap_or_default(),
    }
}

fn idle(period_s: u64) -> (Box<dyn Policy>, Shown) {
    let shown = Shown::default();
    (Box::new(Idle(Rc::clone(&shown), Nanos::from_secs(period_s))), shown)
}

#[test]
fn a_policy_with_nothing_to_do_rests_longer_and_longer_and_decides_in_between() {
    let (policy, shown) = idle(1);
    let pauses = pauses(policy, Twist::default(), GuardSettings::acting());
    // Three windows are watched first, for a trial needs them.
    assert_eq!(pauses[..4], [(5, 7), (8, 12), (13, 17), (18, 22)], "{pauses:?}");
    let shown = shown.borrow();
    let after: Vec<u64> = shown.iter().map(|(at, ..)| *at).filter(|at| *at > 5).collect();
    assert_eq!(after[..3], [8, 13, 18]);
    // What ran uncounted is in no window.
    let (_, _, first) = shown[0];
    for (at, seconds, speed) in shown.iter() {
        assert_eq!(*seconds, 1, "at {at}");
        assert!((speed / first - 1.0).abs() < 0.02, "at {at}: {speed} after {first}");
    }
}

#[test]
fn a_process_that_pays_much_for_being_counted_rests_sooner() {
    let began = |slices_per_s| {
        let twist = Twist { slices_per_s, ..Twist::default() };
        let pauses = pauses(idle(1).0, twist, GuardSettings::acting());
        pauses[0]
    };
    assert_eq!(began(Some(100)), began(None));
    assert_eq!(began(Some(10_000)), (4, 5), "as soon as there is something to compare with");
}

#[test]
fn a_policy_that_decides_seldom_does_so_between_rests_all_the_same() {
    let (policy, shown) = idle(5);
    pauses(policy, Twist::default(), GuardSettings::acting());
    let shown = shown.borrow();
    let late = shown.iter().filter(|(at, ..)| *at > 10);
    assert!(late.clone().count() >= 4, "{shown:?}");
    assert!(late.clone().all(|(_, seconds, _)| *seconds == 1), "{shown:?}");
}

#[test]
fn a_manager_that_may_only_watch_does_not_rest() {
    let (policy, _) = idle(1);
    assert_eq!(pauses(policy, Twist::default(), GuardSettings::default()), []);
}

#[test]
fn another_use_of_cpus_ends_a_rest() {
    let (policy, _) = idle(1);
    let twist = Twist { phase_change_at: Some(15), ..Twist::default() };
    let pauses = pauses(policy, twist, GuardSettings::acting());
    // What it does from then on is quiet for two seconds, and it pauses as long.
    assert_eq!(pauses[2..4], [(13, 16), (18, 20)], "{pauses:?}");
}

/// Does nothing, but looks closely in each fourth second that it is asked: the second of each four.
struct Looks(u64);

const CLOSELY: u64 = 1_000_000;

impl Policy for Looks {
    fn propose(&mut self, model: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        self.0 += 1;
        let cycles = match self.0 % 4 {
            1 => CLOSELY,
            2 => 4 * CLOSELY,
            _ => return Vec::new(),
        };
        let sampling = Sampling::Every { cycles, tracked_pages: 1_000 };
        let action = Action::SetSampling { pid: Some(model.apps[0].pid), sampling };
        vec![Proposal { policy: "looks", action, reason: Reason::Other("a test".into()) }]
    }

    fn full_sampling(&self) -> Option<u64> {
        Some(CLOSELY)
    }
}

#[test]
fn a_closer_look_that_finds_nothing_is_waited_for_and_does_not_end_the_quiet() {
    let pauses = pauses(Box::new(Looks(0)), Twist::default(), GuardSettings::acting());
    // Decisions 1, 5, 9 … look closely, so there is no rest before the next.
    assert_eq!(pauses[..4], [(5, 7), (9, 13), (14, 18), (19, 23)], "{pauses:?}");
}

/// Pages move second by second, and each trial is judged: no rest before all that is over.
#[test]
fn nobody_rests_while_something_is_done_or_tried() {
    let policy = (by_name("carrefour").expect("built in").make)(None).expect("the default");
    let mut world = World::new(1_000, 40, Twist::default());
    world.pauses = Some(Vec::new());
    let settings = Settings { seed: 3, guard: GuardSettings::acting() };
    let mut controller = Controller::new(world.topology.clone(), vec![policy], settings);
    match run(&mut world, &mut controller, &mut ()) {
        Ok(()) => {}
    }
    let shares = world.shares();
    assert!(shares.iter().all(|share| (0.1..0.4).contains(share)), "it repairs: {shares:?}");
    let first = world.pauses.expect("it can pause").first().map(|(began, _)| *began);
    let last = world.plans.iter().rposition(|plan| !plan.steps.is_empty());
    assert!(first.expect("it pauses in the end") > 8, "{first:?}, last plan {last:?}");
}

/// A rest may come a tenth too early. With one just before the end of the first epoch of `auto`, a
/// second, Carrefour was never asked (emulated, sam-spread).
#[test]
fn a_rest_that_comes_early_does_not_cut_off_the_epoch() {
    let auto = (by_name("auto").expect("built in").make)(None).expect("the default");
    let earliest = Nanos(auto.settles_within().0 / 10 * 9);
    assert!(earliest > Nanos::from_secs(1), "{earliest}");
}
