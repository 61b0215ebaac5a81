//! Runs a slice of the swarm, and tests that its checkers can fail.

use super::*;
use crate::catalogue;
use crate::parallel;
use crate::workload::{Program, Waits};

/// Short cases: an unoptimised core decides in these tests.
fn short(seed: u64) -> Case {
    let mut case = Case::draw(seed, &Ranges::frozen());
    case.seconds = 12.0;
    case.faults_until_s = 4.0;
    case
}

/// Seeds of the slice: the first ones, and those of [`HOLDING`].
const SLICE: [u64; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 9, 13, 23, 47, 54, 81, 86];
/// Short cases that hold masks at their end, so that undo has work, under `auto` and `sam`.
const HOLDING: [u64; 8] = [0, 9, 13, 23, 47, 54, 81, 86];

/// What needs time, rest and no harm, is for `./x sim`.
fn early(broken: &[Broken]) -> Vec<&Broken> {
    broken.iter().filter(|one| !["no harm", "convergence"].contains(&one.rule.as_str())).collect()
}

#[test]
fn a_slice_of_the_swarm_breaks_no_rule() {
    for seed in SLICE {
        let case = short(seed);
        let broken = run(&case).broken;
        assert!(early(&broken).is_empty(), "seed {seed}: {broken:?}: {case:#?}");
    }
}

/// Cases of full length, under all rules. The seeds are the first ones, not chosen by a result.
#[test]
fn whole_calm_cases_come_to_rest_and_lose_nothing() {
    let ranges = Ranges::frozen();
    let results =
        parallel::map(&[1, 2, 3, 4, 5], |seed| run(&Mode::Calm.case(*seed, &ranges)), |_| {});
    let broken: Vec<_> = results.iter().filter(|result| !result.broken.is_empty()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(results.iter().all(|result| result.speed.is_some()), "{results:#?}");
}

/// Short cases with rare faults.
fn harsh(seed: u64) -> Case {
    Case { seconds: 12.0, faults_until_s: 6.0, ..Case::harsh(seed, &Ranges::frozen()) }
}

#[test]
fn a_slice_with_rare_faults_breaks_no_rule() {
    for seed in SLICE {
        let case = harsh(seed);
        let broken = run(&case).broken;
        assert!(early(&broken).is_empty(), "seed {seed}: {broken:?}: {case:#?}");
    }
}

#[test]
fn a_harsh_case_is_the_drawn_one_with_rare_faults_beside() {
    let ranges = Ranges::frozen();
    let mut rare = 0;
    for seed in 0..100 {
        let (drawn, harsh) = (Mode::Drawn.case(seed, &ranges), Mode::Harsh.case(seed, &ranges));
        let mut rates = harsh.faults.expect("it has faults");
        rare += usize::from(rates.cpu_unplugged > 0.0);
        rates = faults::Rates {
            cpu_unplugged: 0.0,
            memory_unplugged: 0.0,
            ledger: 0.0,
            back: 0.0,
            masks: 0.0,
            frozen_exits: 0.0,
            ..rates
        };
        let faults = drawn.faults.or_else(|| Some(faults::Rates::default()));
        assert_eq!(Some(rates), faults);
        let (faults, seconds) = (harsh.faults, harsh.seconds);
        assert_eq!(harsh, Case { faults, seconds, ..drawn });
    }
    assert!((30..70).contains(&rare), "{rare}");
}

#[test]
fn a_ledger_that_forgets_one_mask_is_caught_in_the_slice() {
    let mut caught = 0;
    for seed in HOLDING {
        assert!(SLICE.contains(&seed));
        let forgot = std::cell::Cell::new(false);
        let undo = |ledger: &Ledger| {
            let mut actions = ledger.restore();
            forgot.set(actions.pop().is_some());
            actions
        };
        let broken = managed_and_undone(&short(seed), &mut (), undo).broken;
        let found = early(&broken).iter().any(|one| one.rule == "undo");
        assert_eq!(found, forgot.get(), "seed {seed}: {broken:?}");
        caught += usize::from(found);
    }
    assert!(caught >= 4, "only {caught} cases hold masks; choose other seeds for the slice");
}

/// Neither a case that breaks a rule nor the order of the rules hides another rule.
#[test]
fn a_case_that_never_rests_is_asked_to_undo_and_has_a_speed() {
    let ranges = Ranges::frozen();
    let short = |seed| Case { seconds: 8.0, ..Mode::Calm.case(seed, &ranges) };
    let breaks_both = |case: &Case| {
        let broken = managed_and_undone(case, &mut (), |_| Vec::new()).broken;
        ["convergence", "undo"].iter().all(|rule| broken.iter().any(|one| one.rule == *rule))
    };
    let case = (0..40).map(short).find(breaks_both).expect("8 s have no rest of 10 s");
    let result = run(&case);
    assert!(result.broken.iter().any(|one| one.rule == "convergence"), "{result:?}");
    assert!(result.speed.is_some(), "{result:?}");
}

#[test]
fn a_case_that_never_rests_and_is_slow_breaks_both_rules() {
    let case = Case { seconds: 8.0, ..Mode::Calm.case(0, &Ranges::frozen()) };
    let broken = vec![Broken::new("convergence", "a test".to_string())];
    let work = vec![1.0; unmanaged(&case, FirstPlace::Touch).len()];
    let slow = Managed { work, ended: true, broken, steps: 1, digest: String::new() };
    let result = judge(&case, slow);
    let rules: Vec<&str> = result.broken.iter().map(|one| one.rule.as_str()).collect();
    assert_eq!(rules, ["convergence", "no harm"]);
    assert!(result.speed.is_some_and(|speed| speed < HARM), "{result:?}");
}

#[test]
fn a_calm_case_is_the_drawn_one_under_auto_and_without_faults() {
    let ranges = Ranges::frozen();
    for seed in 0..100 {
        let (drawn, calm) = (Mode::Drawn.case(seed, &ranges), Mode::Calm.case(seed, &ranges));
        assert_eq!((calm.policy.as_str(), calm.faults, calm.seconds), ("auto", None, 60.0));
        assert_eq!((&calm.machine, &calm.programs), (&drawn.machine, &drawn.programs));
        if drawn.policy == "auto" && drawn.faults.is_none() {
            assert_eq!(calm, drawn);
        }
    }
}

#[test]
fn results_of_drawn_cases_are_no_results_of_calm_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results");
    let all = |mode| run_all(mode, 0, 0, Some(&path), |_| {}).map(|report| report.kept);
    let line = format!(
        r#"{{"format":2,"of":"swarm {}","result":{{"seed":0,"policy":"sam","faults":true,
        "speed":null,"broken":[],"steps":1,"digest":""}}}}"#,
        Ranges::digest()
    );
    std::fs::write(&path, line.replace('\n', "") + "\n").unwrap();
    assert_eq!(all(Mode::Drawn).unwrap(), 0);
    let told = format!("{:#}", all(Mode::Calm).unwrap_err());
    assert!(told.contains("line 1: result of swarm ") && told.contains("calm swarm"), "{told}");
}

#[test]
fn a_case_in_a_file_is_checked_by_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("case.json");
    let good = Mode::Drawn.case(1, &Ranges::frozen());
    let load = |case: &Case| {
        std::fs::write(&path, serde_json::to_string(case).unwrap()).unwrap();
        Case::load(&path).map_err(|error| format!("{error:#}"))
    };
    assert_eq!(load(&good).as_ref(), Ok(&good));
    let rates = crate::faults::Rates { busy: 2.0, ..Default::default() };
    let crowd = |one: &Program| Program { threads: 1000, instances: 1000, ..one.clone() };
    let crowd = good.programs.iter().map(crowd).collect();
    for (bad, expected) in [
        (Case { machine: "nodes=0".to_string(), ..good.clone() }, "case.json: machine"),
        (Case { policy: "none".to_string(), ..good.clone() }, "none"),
        (Case { pmu: "x".to_string(), ..good.clone() }, "pmu x: expected"),
        (Case { programs: Vec::new(), ..good.clone() }, "at least one program"),
        (Case { programs: crowd, ..good.clone() }, "threads × instances"),
        (Case { seconds: -1.0, ..good.clone() }, "seconds: expected 0 to 100000 s, got -1"),
        (Case { faults: Some(rates), ..good.clone() }, "faults: expected rates"),
    ] {
        let told = load(&bad).expect_err(expected);
        assert!(told.contains(expected) && told.contains("case.json"), "{told}");
    }
}

#[test]
fn a_case_that_panics_breaks_a_rule_and_leaves_a_recording() {
    let case = Case { policy: "none".to_string(), ..short(1) };
    let result = run(&case);
    let [broken] = result.broken.as_slice() else { panic!("{result:?}") };
    assert_eq!((broken.rule.as_str(), result.speed), ("no panic", None));
    assert!(broken.what.contains("a case names a policy"), "{broken:?}");
    assert!(breaks(&case, "no panic") && !breaks(&case, "budget"));
    let folder = tempfile::tempdir().unwrap();
    assert!(record(&case, &folder.path().join("trace")).is_ok());
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

#[test]
fn a_case_with_a_lock_and_bursts_shrinks_to_one_without_them_that_can_run() {
    let mut case = Case { seconds: 1.0, faults: None, ..short(0) };
    case.limits.clear();
    let [locked, bursts] = ["locked", "bursts"].map(|name| catalogue::workload(name).unwrap());
    case.programs = vec![Program { threads: 4, ..locked.programs[0].clone() }];
    case.programs[0].bursts.clone_from(&bursts.programs[0].bursts);
    // With all of these it runs, and with the region of the lock gone it has to as well.
    let fails = |case: &Case| {
        World::new(&case.scene(), FirstPlace::Touch, Rival::Nothing).pass();
        case.programs[0].threads > 3
    };
    let smaller = shrink::smallest(&case, fails);
    let program = &smaller.programs[0];
    assert_eq!((program.threads, program.regions.len()), (4, 1));
    assert_eq!((&program.lock, &program.bursts), (&None, &None));
    // Where the lock is needed, its region stays.
    let fails = |case: &Case| {
        World::new(&case.scene(), FirstPlace::Touch, Rival::Nothing).pass();
        case.programs[0].lock.is_some()
    };
    let smaller = shrink::smallest(&case, fails);
    let program = &smaller.programs[0];
    assert_eq!((program.regions.len(), &program.bursts), (2, &None));
}

#[test]
fn only_a_case_whose_demand_and_processes_stay_is_steady() {
    let steady = (0..100).map(short).find(Case::is_steady).expect("a steady case");
    let with = |change: &dyn Fn(&mut Program)| {
        let mut case = steady.clone();
        change(&mut case.programs[0]);
        case.is_steady()
    };
    let bursts = || catalogue::workload("bursts").unwrap().programs[0].bursts.clone();
    assert!(!with(&|program| program.bursts = bursts()));
    assert!(!with(&|program| (program.instances, program.every_s) = (2, 1.0)));
    assert!(with(&|program| (program.instances, program.every_s) = (1, 1.0)));
}

#[test]
fn every_shrunk_case_that_a_page_names_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    for page in ["swarm", "swarm-calm", "swarm-harsh"] {
        // A page without shrunk cases has no folder.
        for entry in std::fs::read_dir(folder.join(page)).into_iter().flatten() {
            let path = entry.unwrap().path();
            assert!(Case::load(&path).is_ok(), "{}", path.display());
        }
    }
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

/// Limits go by number of process. Each of six processes has one of its own here.
#[test]
fn limits_stay_with_their_processes_as_programs_shrink() {
    let ranges = Ranges::frozen();
    let wide = |case: &Case| case.programs.len() == 2 && case.programs[0].requests.is_none();
    let mut case = (0..100).map(|seed| Case::draw(seed, &ranges)).find(wide).expect("two programs");
    case.programs.iter_mut().for_each(|program| program.instances = 3);
    case.limits = (1..=6).map(|nodes| (nodes, false)).collect();
    // Each program's first process keeps its limit.
    let fails = |case: &Case| {
        let first = |program: usize| {
            case.programs[..program].iter().map(|one| one.instances as usize).sum::<usize>()
        };
        case.programs.len() == 2 && case.limits[first(0)].0 == 1 && case.limits[first(1)].0 == 4
    };
    let smaller = shrink::smallest(&case, fails);
    assert_eq!(smaller.limits, [(1, false), (4, false)]);
    let second = |case: &Case| case.limits.first() == Some(&(4, false));
    assert_eq!(shrink::smallest(&case, |case| fails(case) || second(case)).limits, [(4, false)]);
}

#[test]
fn a_mask_that_no_ledger_knows_breaks_the_undo_rule() {
    let case = short(1);
    let mut world = World::new(&case.scene(), FirstPlace::Touch, Rival::Nothing);
    world.pass();
    let settings = Settings::default();
    let controller = Controller::new(world.plant.topology.clone(), Vec::new(), settings);
    assert_eq!(restore(&mut world.plant, controller.ledger().restore()), Ok(()));
    world.plant.threads[0].mask = rondpoint_core::CpuSet::new();
    let broken =
        restore(&mut world.plant, controller.ledger().restore()).expect_err("a mask is off");
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
    assert!(is_lost(&[broken]), "a world that lost a page is not run on");
}
