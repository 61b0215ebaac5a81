//! When each policy is asked, and in which order.

use crate::scene::{Host, World, machine, pages, process, second};
use expect_test::expect;
use rondpoint_core::controller::{Controller, Input, Settings};
use rondpoint_core::plan::{Choice, Refusal, Refused, Sampling};
use rondpoint_core::policy::auto::Veto;
use rondpoint_core::policy::by_name;
use rondpoint_core::{
    Action, Model, Nanos, Observation, Policy, Proposal, Random, Reason, Topology,
};

#[test]
fn it_is_known_by_name_and_asked_as_often_as_sam() {
    let registered = by_name("auto").expect("it is built in");
    assert!((registered.make)(None).is_some());
    for preset in registered.presets {
        let policy = (registered.make)(Some(preset)).expect("one of its presets");
        assert_eq!(policy.period(), Nanos::from_millis(100), "{preset}");
    }
}

#[test]
fn where_no_thread_is_to_be_moved_sam_is_asked_with_the_others_until_one_is() {
    let topology = machine("node:2 core:8 mhz:2200");
    let mut world = World::new(topology.clone(), Host::Obeys);
    let mut look = |model: &Model| {
        world.step(model);
        world.wait()
    };
    let mut quiet = second(0, &topology);
    quiet.elapsed = Nanos::from_millis(100);
    let at = |tenths: u64| Nanos::from_millis(100 * tenths);
    let looks = (1..=10).map(|tenths| look(&Model { at: at(tenths), ..quiet.clone() }).0);
    let periods: Vec<u64> = looks.map(|period| period / 1_000_000).collect();
    // Four intervals would make a flag steady; then what is left of the epoch.
    assert_eq!(periods, [100, 100, 100, 600, 500, 400, 300, 200, 100, 1000]);
    assert_eq!(look(&busy(5, &topology)).0 / 1_000_000, 100);
}

/// A quarter of a second with work for three policies. Sharers are apart, node 0 is crowded, and
/// pages are away from the only node that uses them.
fn busy(number: u64, topology: &Topology) -> Model {
    let mut model = second(0, topology);
    model.at = Nanos::from_millis(250 * number);
    model.elapsed = Nanos::from_millis(250);
    for thread in process(&mut model, topology, 1, &[4, 12], &[0.1, 0.1], "") {
        thread.rates.coherence_remote_per_s = Some(2e6);
    }
    for (cpu, mpki) in [(0, 30.0), (1, 22.0), (2, 18.0), (3, 25.0)] {
        let threads = process(&mut model, topology, 2 + cpu as u32, &[cpu], &[0.1], "");
        threads[0].rates.mpki = Some(mpki);
        threads[0].rates.instructions_per_s = Some(1e9);
    }
    process(&mut model, topology, 9, &[13, 14], &[0.1, 0.1], "1>0:160");
    pages(&mut model, 5, 2, 0, &[1]);
    model
}

#[test]
fn sam_is_asked_at_once_the_others_once_a_second_and_what_wins_nothing_is_held() {
    let mut world = World::new(machine("node:2 core:8 mhz:2200"), Host::Refuses);
    let mut text = String::new();
    for number in 1..=4 {
        let model = busy(number, &world.topology);
        text += &format!("{} ms:\n{}", 250 * number, world.step(&model));
    }
    expect![[r#"
        250 ms:
        sam: thread 112 of 1 to CPU 5, then CPUs 0-7
        sam: thread 104 of 1 to CPUs 0-7
        500 ms:
        sam: thread 112 of 1 to CPU 5, then CPUs 0-7
        sam: thread 104 of 1 to CPUs 0-7
        750 ms:
        sam: thread 112 of 1 to CPU 5, then CPUs 0-7
        sam: thread 104 of 1 to CPUs 0-7
        1000 ms:
        sam: thread 112 of 1 to CPU 5, then CPUs 0-7
        sam: thread 104 of 1 to CPUs 0-7
        carrefour: move 2 pages of 9 (co-location): 2 × 0→1
        held: gather: thread 913 of 9 to CPUs 8-15; a policy of higher priority moved it
        held: gather: thread 914 of 9 to CPUs 8-15; a policy of higher priority moved it
        held: nmass: thread 402 of 4 to CPU 8, then CPUs 8-15; it is not worth it
        held: nmass: thread 301 of 3 to CPU 9, then CPUs 8-15; it is not worth it
    "#]]
    .assert_eq(&text);
}

/// Holds everything back, once each time that it is asked.
struct Shy;

impl Policy for Shy {
    fn propose(&mut self, _: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        Vec::new()
    }

    fn take_choice(&mut self) -> Choice {
        let action = Action::SetSampling { pid: None, sampling: Sampling::Off };
        let proposal = Proposal { policy: "shy", action, reason: Reason::Other("a test".into()) };
        let refused = Refused { proposal, refusal: Refusal::Vetoed { veto: Veto::MemoryMoves } };
        Choice { refused: vec![refused], ..Choice::default() }
    }
}

#[test]
fn a_controller_reports_what_a_policy_held_back() {
    let topology = machine("node:2 core:1");
    let mut controller = Controller::new(topology, vec![Box::new(Shy)], Settings::default());
    let mut at = |second: u64| {
        let observation = Observation { at: Nanos::from_secs(second), ..Observation::default() };
        controller.step(Input { observation, ..Input::default() }).plan
    };
    at(1);
    let plan = at(2);
    let held: Vec<String> = plan.refused.iter().map(|one| one.refusal.to_string()).collect();
    assert_eq!(held, ["its memory is following its threads"]);
    assert!(plan.steps.is_empty());
}

#[test]
fn intervals_that_are_a_little_short_make_no_policy_sit_an_epoch_out() {
    let mut world = World::new(machine("node:2 core:8 mhz:2200"), Host::Refuses);
    let mut asked = 0;
    for number in 1..=44 {
        // Each interval is 2 ms short: it takes eleven to a second.
        let mut model = busy(number, &world.topology);
        model.at = Nanos::from_millis(98 * number);
        model.elapsed = Nanos::from_millis(98);
        asked += usize::from(world.step(&model).contains("nmass"));
    }
    assert_eq!(asked, 4);
}
