//! The whole loop on a small simulated host: it repairs, converges, undoes harm, and is the same
//! for the same seed.

mod lanes;
mod pauses;
mod periods;
mod told;
mod undo;
mod world;

use rondpoint_core::controller::{Controller, Settings, Step};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::{Witness, run};
use rondpoint_core::plan::{NodeMove, Refusal};
use rondpoint_core::policy::{Policy, by_name};
use rondpoint_core::trial::{Judged, Verdict};
use rondpoint_core::{
    Action, CpuSet, Model, Nanos, Outcome, Pid, Plan, Proposal, Random, Reason, Tid, Topology,
};
use std::cell::RefCell;
use std::rc::Rc;
use world::{PID, Twist, World};

struct Run {
    world: World,
    controller: Controller,
    judged: Vec<Judged>,
}

fn manage(policy: Box<dyn Policy>, twist: Twist, windows: u64, guard: GuardSettings) -> Run {
    let mut world = World::new(1_000, windows, twist);
    let settings = Settings { seed: 3, guard };
    let mut controller = Controller::new(world.topology.clone(), vec![policy], settings);
    let mut diary = Diary(Vec::new());
    match run(&mut world, &mut controller, &mut diary) {
        Ok(()) => Run { world, controller, judged: diary.0 },
    }
}

/// Keeps the verdicts.
struct Diary(Vec<Judged>);

impl Witness for Diary {
    fn step(&mut self, step: &Step, _: &[Outcome]) {
        self.0.extend(step.judged.clone());
    }
}

fn carrefour(twist: Twist, windows: u64) -> Run {
    let policy = (by_name("carrefour").expect("built in").make)(None).expect("the default");
    manage(policy, twist, windows, GuardSettings::acting())
}

fn moves(plan: &Plan) -> usize {
    let pages = |step: &Proposal| match &step.action {
        Action::MovePages { pages, .. } => pages.len(),
        _ => 0,
    };
    plan.steps.iter().map(pages).sum()
}

#[test]
fn pages_spread_until_the_controllers_are_even_and_then_rest() {
    let run = carrefour(Twist::default(), 40);
    let shares = run.world.shares();
    assert!(shares.iter().all(|share| (0.1..0.35).contains(share)), "{shares:?}");
    // Nothing moves after the imbalance is repaired.
    let last_move = run.world.plans.iter().rposition(|plan| moves(plan) > 0).expect("some moves");
    assert!(last_move < 10, "still moving in window {last_move}");
    assert_eq!(
        run.judged.first().map(|trial| trial.verdict),
        Some(Verdict::Better),
        "{:?}",
        run.judged
    );
    let planned: usize = run.world.plans.iter().map(moves).sum();
    assert_eq!(run.controller.accounts().of(PID).interleaved.moved, planned as u64);
}

#[test]
fn nothing_is_done_before_three_windows_were_seen() {
    let run = carrefour(Twist::default(), 12);
    let first = run.world.plans.iter().position(|plan| moves(plan) > 0).expect("some moves");
    assert_eq!(first, 3, "window 0 has no rates, windows 1 to 3 are the three before");
    let early = run.world.plans[1].refused.iter().any(|one| one.refusal == Refusal::TooEarly);
    assert!(early, "it was wanted and refused");
}

#[test]
fn what_makes_it_worse_is_undone_page_by_page_and_finally_left_alone() {
    let run = carrefour(Twist { moves_hurt: true, ..Twist::default() }, 120);
    assert_eq!(
        run.judged.first().map(|trial| trial.verdict),
        Some(Verdict::Worse),
        "{:?}",
        run.judged
    );
    assert_eq!(run.world.shares(), [1.0, 0.0, 0.0, 0.0], "all pages are back");
    let undone =
        |plan: &&Plan| plan.steps.iter().any(|step| matches!(step.reason, Reason::Undo(_)));
    let times = run.world.plans.iter().filter(undone).count();
    assert!((1..=3).contains(&times), "undone {times} times");
    let quiet = run.world.plans[80..].iter().all(|plan| moves(plan) == 0);
    assert!(quiet, "left alone after three failures");
}

/// Sends a thread to the other CPUs in each step, which changes nothing in this world.
struct Restless(usize);

impl Policy for Restless {
    fn propose(&mut self, model: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        self.0 += 1;
        let (count, rounds) = (model.threads.len(), self.0 / model.threads.len());
        let thread = model.threads[self.0 % count].tid;
        let cpus = topology.cpus_of_node((self.0 + rounds) % topology.node_count()).clone();
        let action = Action::SetAffinity { pid: PID, tid: thread, cpus, via: None };
        vec![Proposal { policy: "restless", action, reason: Reason::Other("a test".to_string()) }]
    }
}

#[test]
fn what_wins_nothing_is_tried_at_ever_longer_distances() {
    let run = manage(Box::new(Restless(0)), Twist::default(), 240, GuardSettings::acting());
    let unclear = |trial: &Judged| trial.verdict == Verdict::Unclear;
    assert!(!run.judged.is_empty() && run.judged.iter().all(unclear), "{:?}", run.judged);
    let acts: Vec<bool> = run.world.plans.iter().map(|plan| !plan.steps.is_empty()).collect();
    let quiet: Vec<usize> = acts
        .split(|acts| *acts)
        .map(<[bool]>::len)
        .filter(|windows| *windows > rondpoint_core::limits::MIN_TRIAL_WINDOWS + 1)
        .collect();
    assert!(quiet.len() >= 3 && quiet.is_sorted(), "{quiet:?}");
    assert!(quiet.iter().any(|windows| *windows > 60), "a minute of peace in four: {quiet:?}");
    let told =
        |plan: &Plan| plan.refused.iter().any(|one| one.refusal.to_string().contains("vain"));
    assert!(run.world.plans.iter().any(told), "the report says why");
}

#[test]
fn a_phase_change_voids_the_trial() {
    let run = carrefour(Twist { phase_change_at: Some(6), ..Twist::default() }, 14);
    assert_eq!(
        run.judged.first().map(|trial| trial.verdict),
        Some(Verdict::PhaseChange),
        "{:?}",
        run.judged
    );
}

#[test]
fn instructions_alone_confirm_nothing() {
    let run = carrefour(Twist { spins: true, ..Twist::default() }, 20);
    let first = run.judged.first().expect("a verdict");
    assert!(first.comparison.instructions.is_some_and(|change| change.change > 0.3), "{first:?}");
    assert_ne!(first.verdict, Verdict::Better, "{first:?}");
}

#[test]
fn refused_pages_and_a_process_that_ends_are_outcomes() {
    let busy = carrefour(Twist { pages_busy: true, ..Twist::default() }, 20);
    let account = busy.controller.accounts().of(PID);
    assert_eq!(account.interleaved.moved, 0);
    assert!(account.interleaved.busy > 0);
    assert!(busy.judged.is_empty(), "what was not done is not judged: {:?}", busy.judged);
    let ended = carrefour(Twist { exits_at: Some(5), ..Twist::default() }, 12);
    assert_eq!(ended.controller.accounts().iter().count(), 0, "its account is closed");
    assert!(ended.world.plans[6..].iter().all(|plan| plan.steps.is_empty()));
}

#[test]
fn the_same_seed_gives_the_same_plans() {
    let (one, other) = (carrefour(Twist::default(), 15), carrefour(Twist::default(), 15));
    assert_eq!(one.world.plans, other.world.plans);
}

#[test]
fn observing_changes_nothing() {
    let policy = (by_name("carrefour").expect("built in").make)(None).expect("the default");
    let run = manage(policy, Twist::default(), 12, GuardSettings::default());
    assert_eq!(run.world.shares(), [1.0, 0.0, 0.0, 0.0]);
    assert!(run.judged.is_empty());
}

/// Sends all memory of node 0 to node 1 as soon as it may, once.
#[derive(Default)]
struct Sweeping {
    done: bool,
}

impl Policy for Sweeping {
    fn propose(&mut self, model: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        let memory = model.apps[0].memory.as_ref().expect("known")[0];
        let nodes = vec![NodeMove { from: 0, to: 1 }];
        let action = Action::MoveProcessMemory { pid: PID, nodes, freeze: false, memory };
        let reason = Reason::Other("no reason".to_string());
        let sweep = Proposal { policy: "sweeping", action, reason };
        if self.done { Vec::new() } else { vec![sweep] }
    }

    fn learn(&mut self, plan: &Plan, _: &[Outcome]) {
        self.done |= !plan.steps.is_empty();
    }
}

#[test]
fn what_cannot_be_told_apart_any_more_is_not_said_to_be_undone() {
    let sweep = |elsewhere: usize| {
        let mut world = World::new(1_000, 20, Twist { moves_hurt: true, ..Twist::default() });
        world.homes[..elsewhere].fill(1);
        let settings = Settings { seed: 3, guard: GuardSettings::acting() };
        let policy = Box::new(Sweeping::default());
        let mut controller = Controller::new(world.topology.clone(), vec![policy], settings);
        let mut diary = Diary(Vec::new());
        match run(&mut world, &mut controller, &mut diary) {
            Ok(()) => (diary.0[0].verdict, world.shares()[1]),
        }
    };
    assert_eq!(sweep(0), (Verdict::Worse, 0.0), "the way back is the way of all of it");
    assert_eq!(sweep(100), (Verdict::NoWayBack, 1.0), "some was there before");
}

/// Wants everything everywhere: masks outside the machine and what is allowed.
struct Reckless;

impl Policy for Reckless {
    fn propose(&mut self, model: &Model, _: &Topology, random: &mut Random) -> Vec<Proposal> {
        let wish = |thread: &rondpoint_core::model::Thread| {
            let cpus: CpuSet = (0..3).map(|_| random.below(24)).collect();
            let action = Action::SetAffinity { pid: PID, tid: thread.tid, cpus, via: Some(23) };
            Proposal { policy: "reckless", action, reason: Reason::Other("no reason".to_string()) }
        };
        model.threads.iter().map(wish).collect()
    }
}

#[test]
fn a_reckless_policy_cannot_leave_the_machine_and_restoring_undoes_it() {
    let run = manage(Box::new(Reckless), Twist::default(), 60, GuardSettings::acting());
    let all = run.world.topology.all_cpus();
    assert!(!run.world.masks.is_empty());
    assert!(run.world.masks.values().all(|mask| !mask.is_empty() && mask.is_subset(&all)));
    let mut masks = run.world.masks.clone();
    for action in run.controller.ledger().restore() {
        if let Action::SetAffinity { tid, cpus, .. } = action {
            masks.insert(tid, cpus);
        }
    }
    let restored: Vec<(&Tid, &CpuSet)> = masks.iter().filter(|(_, mask)| **mask != all).collect();
    assert!(restored.is_empty(), "{restored:?}");
}

/// Moves one thread as soon as it may, and is busy with that for some more seconds.
struct Completing {
    left: u32,
    begun: bool,
}

impl Policy for Completing {
    fn propose(&mut self, model: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        let thread = &model.threads[0];
        if self.begun {
            self.left = self.left.saturating_sub(1);
            return Vec::new();
        }
        let cpus = topology.cpus_of_node(1).clone();
        let action = Action::SetAffinity { pid: PID, tid: thread.tid, cpus, via: None };
        let reason = Reason::Other("no reason".to_string());
        vec![Proposal { policy: "completing", action, reason }]
    }

    fn learn(&mut self, plan: &Plan, _: &[Outcome]) {
        self.begun |= !plan.steps.is_empty();
    }

    fn is_under_way(&self, _: Pid) -> bool {
        self.begun && self.left > 0
    }
}

/// When trials end.
struct Ends(Vec<Nanos>);

impl Witness for Ends {
    fn step(&mut self, step: &Step, _: &[Outcome]) {
        let at = step.window.as_ref().map(|window| window.at);
        self.0.extend(at.filter(|_| !step.judged.is_empty()));
    }
}

#[test]
fn a_trial_ends_later_by_as_long_as_its_policy_is_under_way() {
    let end = |left: u32| {
        let mut world = World::new(1_000, 30, Twist::default());
        let settings = Settings { seed: 3, guard: GuardSettings::acting() };
        let policy = Box::new(Completing { left, begun: false });
        let mut controller = Controller::new(world.topology.clone(), vec![policy], settings);
        let mut ends = Ends(Vec::new());
        match run(&mut world, &mut controller, &mut ends) {
            Ok(()) => ends.0[0],
        }
    };
    assert_eq!(end(6).since(end(1)), Nanos::from_secs(5));
}

/// Without samples each page shows one hint fault a second, from one node or the other.
#[test]
fn hint_faults_alone_repair_the_same_machine() {
    let run = carrefour(Twist { only_hint_faults: true, ..Twist::default() }, 30);
    let shares = run.world.shares();
    assert!(shares.iter().all(|share| (0.1..0.36).contains(share)), "{shares:?}");
    let planned: usize = run.world.plans.iter().map(moves).sum();
    assert!(planned < 2 * 1_000, "pages that moved are judged anew: {planned} moves of 1000 pages");
}

/// Carrefour, with a diary of the intervals that it was shown and whether it wanted something done.
struct Watched(Box<dyn Policy>, Rc<RefCell<Vec<(Nanos, bool)>>>);

impl Policy for Watched {
    fn propose(&mut self, model: &Model, to: &Topology, random: &mut Random) -> Vec<Proposal> {
        let proposals = self.0.propose(model, to, random);
        let moves = proposals.iter().any(|one| matches!(one.action, Action::MovePages { .. }));
        self.1.borrow_mut().push((model.elapsed, moves));
        proposals
    }

    /// Four of the world's windows.
    fn period(&self) -> Nanos {
        Nanos::from_secs(4)
    }
}

/// While pages move, traffic is in part that of the old placement: a policy that measures it moves
/// too much.
#[test]
fn what_a_policy_measures_begins_after_what_was_done() {
    let intervals = Rc::default();
    let policy = (by_name("carrefour").expect("built in").make)(None).expect("the default");
    let watched = Watched(policy, Rc::clone(&intervals));
    manage(Box::new(watched), Twist::default(), 24, GuardSettings::acting());
    let intervals = intervals.borrow();
    let acted = intervals.iter().position(|(_, moves)| *moves).expect("it acts");
    let before = &intervals[..=acted];
    assert!(before.iter().all(|(all, _)| *all == Nanos::from_secs(4)), "{intervals:?}");
    assert_eq!(intervals[acted + 1].0, Nanos::from_secs(3), "{intervals:?}");
}

#[test]
fn a_quiet_program_is_looked_at_once_a_period() {
    let policy = (by_name("observe").expect("built in").make)(None).expect("no preset");
    let run = manage(policy, Twist::default(), 10, GuardSettings::acting());
    assert_eq!(run.controller.period(), Nanos::from_secs(1));
}

/// A ledger outlives a controller: what the next one settles must be plans of its own.
#[test]
fn the_controller_after_another_counts_its_plans_on() {
    let before = carrefour(Twist::default(), 20);
    let plans = before.controller.last_plan_number();
    assert!(plans > 0 && before.judged.iter().all(|trial| trial.plans.iter().all(|p| *p <= plans)));
    let policy = (by_name("carrefour").expect("built in").make)(None).expect("the default");
    let settings = Settings { seed: 3, guard: GuardSettings::acting() };
    let mut world = World::new(1_000, 20, Twist::default());
    let mut controller =
        Controller::new(world.topology.clone(), vec![policy], settings).numbered_after(plans);
    let mut diary = Diary(Vec::new());
    match run(&mut world, &mut controller, &mut diary) {
        Ok(()) => {}
    }
    let settled: Vec<u64> = diary.0.iter().flat_map(|trial| trial.plans.clone()).collect();
    assert!(!settled.is_empty() && settled.iter().all(|plan| *plan > plans), "{settled:?}");
    assert!(world.plans.iter().filter(|plan| plan.acts()).all(|plan| plan.number > plans));
}
