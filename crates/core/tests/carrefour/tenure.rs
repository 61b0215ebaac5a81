//! Co-location that is in vain: what was brought to its users is used by others in the next round.

use super::notation::{carrefour, proposals, render};
use super::rounds::learn;
use rondpoint_core::plan::{Reason, StepResult};
use rondpoint_core::policy::carrefour::Carrefour;
use rondpoint_core::{Action, CpuSet, Nanos, Outcome, Pid, Plan, Policy as _, Proposal, Tid};

/// A round on two nodes in which half of the accesses are remote; every co-located page moves. How
/// many those are, and why the rate of sampling changes, if it does. The first part is what was
/// brought before, the second lies where it was touched first.
fn round(policy: &mut Carrefour, pages: &[&str]) -> (usize, String) {
    round_in_which(policy, pages, true)
}

fn round_in_which(policy: &mut Carrefour, pages: &[&str], they_move: bool) -> (usize, String) {
    let lines: String = pages.iter().map(|line| format!("\npages {line}")).collect();
    let text = format!("node:2 core:4\nmatrix 40 40 / 40 40\napp 1{lines}");
    let steps = proposals(policy, &text, 1);
    let moved = |step: &rondpoint_core::Proposal| match &step.action {
        Action::MovePages { pages, .. } => pages.len(),
        _ => 0,
    };
    let (sampling, moves): (Vec<_>, Vec<_>) =
        steps.iter().cloned().partition(|step| matches!(step.action, Action::SetSampling { .. }));
    let pages = moves.iter().map(moved).sum();
    learn(policy, steps, if they_move { pages as u64 } else { 0 });
    (pages, render(&sampling))
}

#[test]
fn what_is_used_by_others_in_the_next_round_makes_co_location_pause() {
    let mut policy = carrefour("steady");
    let (mine, yours) =
        (["20 home 0: 1x4", "20 home 0: 0x4"], ["20 home 1: 0x4", "20 home 0: 1x4"]);
    assert_eq!(round(&mut policy, &mine).0, 20);
    let (pages, why) = round(&mut policy, &yours);
    assert_eq!(pages, 0, "the second part is not brought to a thread that loses it in a second");
    assert!(why.contains("80 of 80 accesses of co-located pages come from elsewhere"), "{why}");
    // After two rounds they still change hands: four more, then eight.
    let back = ["20 home 1: 1x4", "20 home 0: 0x4"];
    let pauses: Vec<usize> = (2..14)
        .map(|turn| round(&mut policy, if turn % 2 == 0 { &back } else { &yours }).0)
        .collect();
    assert_eq!(pauses, [0; 12]);
}

/// Moves a thread of the process for some other policy.
fn move_thread(policy: &mut Carrefour) {
    let cpus: CpuSet = [0].into_iter().collect();
    let action = Action::SetAffinity { pid: Pid(1), tid: Tid(1), cpus, via: None };
    let step = Proposal { policy: "sam", action, reason: Reason::Other("a test".into()) };
    let result = StepResult::Done;
    let outcome = Outcome { plan: 7, step: 0, result, spent: Nanos(0), frozen: Nanos(0) };
    policy.learn(&Plan { number: 7, steps: vec![step], ..Plan::default() }, &[outcome]);
}

#[test]
fn pages_with_other_users_because_a_policy_moved_threads_make_nothing_pause() {
    let second = |threads_move: bool| {
        let mut policy = carrefour("steady");
        assert_eq!(round(&mut policy, &["20 home 0: 1x4", "20 home 0: 0x4"]).0, 20);
        if threads_move {
            move_thread(&mut policy);
        }
        round(&mut policy, &["20 home 1: 0x4", "20 home 0: 1x4"]).0
    };
    assert_eq!([false, true].map(second), [0, 40]);
}

#[test]
fn a_policy_that_moves_threads_in_every_round_does_not_keep_pages_going() {
    let mut policy = carrefour("steady");
    let (mine, yours) =
        (["20 home 0: 1x4", "20 home 1: 0x4"], ["20 home 1: 0x4", "20 home 0: 1x4"]);
    let moved = |turn: usize| {
        let pages = round(&mut policy, if turn.is_multiple_of(2) { &mine } else { &yours }).0;
        move_thread(&mut policy);
        pages
    };
    let moved: Vec<usize> = (0..4).map(moved).collect();
    assert_eq!(moved, [40, 40, 0, 0]);
}

#[test]
fn what_changed_hands_once_is_brought_after_one_pause() {
    let mut policy = carrefour("steady");
    round(&mut policy, &["20 home 0: 1x4", "20 home 0: 0x4"]);
    let swapped = ["20 home 1: 0x4", "20 home 0: 1x4"];
    let brought: Vec<usize> = (0..3).map(|_| round(&mut policy, &swapped).0).collect();
    assert_eq!(brought, [0, 0, 40]);
}

#[test]
fn pages_that_stay_with_the_threads_they_came_to_bring_the_next() {
    let mut policy = carrefour("steady");
    assert_eq!(round(&mut policy, &["20 home 0: 1x4", "20 home 0: 0x4"]).0, 20);
    assert_eq!(round(&mut policy, &["20 home 1: 1x4", "20 home 0: 1x4"]).0, 20);
}

#[test]
fn one_thread_that_goes_elsewhere_does_not_make_the_others_wait() {
    let mut policy = carrefour("steady");
    assert_eq!(round(&mut policy, &["20 home 0: 1x4", "20 home 0: 0x4"]).0, 20);
    assert_eq!(round(&mut policy, &["5 home 1: 0x4", "15 home 1: 1x4", "20 home 0: 1x4"]).0, 25);
}

#[test]
fn after_the_pause_it_is_tried_again() {
    let mut policy = carrefour("steady");
    round(&mut policy, &["20 home 0: 1x4", "20 home 0: 0x4"]);
    let settled = ["20 home 1: 1x4", "20 home 0: 1x4"];
    assert_eq!(round(&mut policy, &["20 home 1: 0x4", "20 home 0: 1x4"]).0, 0);
    assert_eq!(round(&mut policy, &settled).0, 0, "two rounds, whatever the second shows");
    assert_eq!(round(&mut policy, &settled).0, 20);
}

#[test]
fn pages_that_somebody_took_back_are_not_in_vain_while_their_user_stays() {
    let mut policy = carrefour("steady");
    round(&mut policy, &["20 home 0: 1x4", "20 home 0: 0x4"]);
    assert_eq!(round(&mut policy, &["20 home 0: 1x4", "20 home 0: 0x4"]).0, 20);
}

#[test]
fn pages_that_nobody_could_move_were_not_brought() {
    let mut policy = carrefour("steady");
    round_in_which(&mut policy, &["20 home 0: 1x4", "20 home 0: 0x4"], false);
    assert_eq!(round(&mut policy, &["20 home 0: 0x4", "20 home 0: 1x4"]).0, 20);
}

#[test]
fn a_few_accesses_tell_nothing() {
    let mut policy = carrefour("steady");
    round(&mut policy, &["20 home 0: 1x4", "20 home 0: 0x4"]);
    assert_eq!(round(&mut policy, &["1 home 1: 0x4", "20 home 0: 1x4"]).0, 21);
}

#[test]
fn the_published_variants_bring_pages_in_each_round() {
    let mut policy = carrefour("final");
    round(&mut policy, &["20 home 0: 1x4", "20 home 0: 0x4"]);
    assert_eq!(round(&mut policy, &["20 home 1: 0x4", "20 home 0: 1x4"]).0, 40);
}
