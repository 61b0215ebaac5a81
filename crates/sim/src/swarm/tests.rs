//! Runs a slice of the swarm, and tests that its checkers can fail.

use super::*;
use crate::workload::Waits;
use rondpoint_core::{CpuSet, Proposal, Reason, Tid};

/// Short cases: an unoptimised core decides in these tests.
fn short(seed: u64) -> Case {
    let mut case = Case::draw(seed, &Ranges::frozen());
    case.seconds = 12.0;
    case.faults_until_s = 4.0;
    case
}

#[test]
fn a_slice_of_the_swarm_breaks_no_rule() {
    for seed in 0..8 {
        let case = short(seed);
        // What needs time, rest and no harm, is for `./x sim`.
        let late = ["no harm", "convergence"];
        let broken = run(&case).broken.filter(|broken| !late.contains(&broken.rule.as_str()));
        assert_eq!(broken, None, "seed {seed}: {case:#?}");
    }
}

/// Whether each process is left alone at some time of 60 s, by the seconds between its changes.
fn rests(every: &[u64]) -> bool {
    let mut case = short(0);
    (case.faults, case.seconds) = (None, 60.0);
    let mut rests = Rests { steady: true, ..Rests::new(&case) };
    for second in 1..60 {
        for (pid, _) in (1..).zip(every).filter(|(_, every)| second % **every == 0) {
            let action = Action::SetAffinity {
                pid: Pid(pid),
                tid: Tid(pid),
                cpus: CpuSet::first(1),
                via: None,
            };
            let step =
                Proposal { policy: "test", action, reason: Reason::Other("a test".to_string()) };
            rests.learn(Nanos::from_secs(second), &Plan { steps: vec![step], ..Plan::default() });
        }
    }
    rests.check(end(&case)).is_ok()
}

#[test]
fn each_process_must_be_left_alone_for_ten_seconds_though_not_all_at_once() {
    assert!(rests(&[]) && rests(&[11, 12, 13]));
    assert!(!rests(&[3]) && !rests(&[12, 8]));
}

#[test]
fn a_seed_gives_the_same_case_and_the_same_plans() {
    let one = run(&short(3));
    let again = run(&short(3));
    assert_eq!((&one.digest, one.speed), (&again.digest, again.speed));
    assert_ne!(run(&short(4)).digest, again.digest);
}

#[test]
fn the_ranges_can_be_read_and_have_a_digest() {
    let ranges = Ranges::frozen();
    assert_eq!(Ranges::digest().len(), 14);
    for seed in 0..200 {
        let case = Case::draw(seed, &ranges);
        let scene = case.scene();
        assert!(scene.machine.cpu_count() > 0);
        assert!(case.programs.iter().all(|program| program.threads > 0));
        assert!(case.programs.iter().any(|program| program.waits != Waits::Sleep) || seed > 0);
    }
}

#[test]
fn a_case_shrinks_until_nothing_smaller_fails() {
    let ranges = Ranges::frozen();
    let large = |case: &Case| case.programs.len() > 1 && case.programs[1].threads > 7;
    let case = (0..1000).map(|seed| Case::draw(seed, &ranges)).find(large).expect("a large case");
    let fails = |case: &Case| case.programs.iter().any(|program| program.threads > 3);
    let smaller = shrink::smallest(&case, fails);
    assert_eq!((smaller.programs.len(), smaller.programs[0].regions.len()), (1, 1));
    assert!((4..8).contains(&smaller.programs[0].threads), "{smaller:#?}");
    assert_eq!(smaller.faults, None);
}

/// The clients of a server that is left out work without requests.
#[test]
fn a_case_with_a_service_shrinks_to_one_that_can_run() {
    let ranges = Ranges::frozen();
    let has_clients = |case: &Case| case.programs.iter().any(|program| program.name == "clients");
    let case = (0..100).map(|seed| Case::draw(seed, &ranges)).find(has_clients).expect("a service");
    let processes: u32 = case.programs.iter().map(|program| program.instances).sum();
    assert_eq!(case.limits.len(), processes as usize);
    let smaller = shrink::smallest(&case, has_clients);
    assert_eq!(smaller.programs.len(), 1);
    assert_eq!(smaller.programs[0].requests, None);
}

#[test]
fn a_mask_that_no_ledger_knows_breaks_the_undo_rule() {
    let case = short(1);
    let mut world = World::new(&case.scene(), FirstPlace::Touch, Rival::Nothing);
    world.pass();
    let settings = Settings::default();
    let controller = Controller::new(world.plant.topology.clone(), Vec::new(), settings);
    assert_eq!(restore(&mut world.plant, &controller), Ok(()));
    world.plant.threads[0].mask = rondpoint_core::CpuSet::new();
    let broken = restore(&mut world.plant, &controller).expect_err("a mask is off");
    assert_eq!(broken.rule, "undo");
}

#[test]
fn a_lost_page_breaks_the_conservation_rule() {
    let case = short(1);
    let mut world = World::new(&case.scene(), FirstPlace::Touch, Rival::Nothing);
    let conservation = Conservation::new(&world.plant);
    world.pass();
    assert_eq!(conservation.check_plant(&world.plant), Ok(()));
    world.plant.free_pages[0] -= 1;
    let broken = conservation.check_plant(&world.plant).expect_err("a page is lost");
    assert_eq!(broken.rule, "conservation");
}
