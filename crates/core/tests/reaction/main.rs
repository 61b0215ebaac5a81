//! How soon `auto` acts after a jam begins, and what comes of it, on programs of several kinds.

mod world;

use rondpoint_core::controller::{Controller, Settings, Step};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::{Witness, run};
use rondpoint_core::model::Model;
use rondpoint_core::plan::{Mechanism, PageMove, Reason};
use rondpoint_core::policy::{Pace, by_name};
use rondpoint_core::trial::{Judged, Verdict};
use rondpoint_core::{Action, Nanos, Outcome, Plan, Policy, Proposal, Random, Topology};
use world::{NODES, PID, Phase, THREADS, World};

/// All threads on memory that one of them touched, most of the time waiting for it.
const PARALLEL: Phase = Phase { until_ms: 0, threads: 8, work: 60.0, private: true };
/// One thread on its own memory.
const SERIAL: Phase = Phase { until_ms: 0, threads: 1, work: 600.0, private: true };

impl Phase {
    fn until(self, until_ms: u64) -> Self {
        Self { until_ms, ..self }
    }
}

/// Keeps the verdicts.
struct Verdicts(Vec<Judged>);

impl Witness for Verdicts {
    fn step(&mut self, step: &Step, _: &[Outcome]) {
        self.0.extend(step.judged.iter().cloned());
    }
}

fn manage(world: World) -> World {
    watched(world).0
}

fn watched(world: World) -> (World, Vec<Judged>) {
    under((by_name("auto").expect("built in").make)(None).expect("the default"), world)
}

fn under(policy: Box<dyn Policy>, mut world: World) -> (World, Vec<Judged>) {
    let settings = Settings { seed: 3, guard: GuardSettings::acting() };
    let mut controller = Controller::new(world.topology.clone(), vec![policy], settings);
    let mut verdicts = Verdicts(Vec::new());
    match run(&mut world, &mut controller, &mut verdicts) {
        Ok(()) => (world, verdicts.0),
    }
}

/// Brings all pages to node 0 as soon as all threads run, once: a mistake.
struct Jams {
    pages: Vec<PageMove>,
}

impl Policy for Jams {
    fn propose(&mut self, model: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        let busy = model.threads.iter().filter(|thread| thread.cpu_share > 0.5).count();
        if busy < THREADS || self.pages.is_empty() {
            return Vec::new();
        }
        let pages = std::mem::take(&mut self.pages);
        let action = Action::MovePages { pid: PID, mechanism: Mechanism::CoLocation, pages };
        vec![Proposal { policy: "jams", action, reason: Reason::Other("a mistake".into()) }]
    }

    fn pace(&self, _: usize) -> Pace {
        Pace { shortest: Nanos::from_millis(100), ..Pace::every(self.period()) }
    }
}

/// When pages first moved after this time.
fn acted_after(world: &World, ms: u64) -> Option<Nanos> {
    let moves =
        |plan: &Plan| plan.steps.iter().any(|step| matches!(step.action, Action::MovePages { .. }));
    let begins = Nanos::from_millis(ms);
    let acted = world.plans.iter().find(|(at, plan)| *at > begins && moves(plan))?;
    Some(acted.0.since(begins))
}

#[test]
fn a_parallel_phase_after_seconds_of_serial_work_is_acted_on_within_three_tenths() {
    for serial_ms in [1_130, 2_450, 3_770, 5_010, 9_290] {
        let phases = [SERIAL.until(serial_ms), PARALLEL.until(serial_ms + 2_000)];
        let world = manage(World::new(4_000, &phases, true));
        let acted = acted_after(&world, serial_ms).expect("it acts");
        println!(
            "{serial_ms}: {acted}, {:?}, {} looks, {} rested",
            world.shares(),
            world.looks,
            world.rested
        );
        assert!(acted <= Nanos::from_millis(300), "{serial_ms}: {acted}");
        assert!(world.shares().iter().all(|share| *share > 0.15), "{:?}", world.shares());
    }
}

/// One window of the parallel phase is all that there is to compare with.
#[test]
fn what_hurts_a_program_that_has_just_begun_something_else_is_undone() {
    for serial_ms in [1_130, 2_450, 5_010] {
        let phases = [SERIAL.until(serial_ms), PARALLEL.until(serial_ms + 4_000)];
        let mut world = World::new(4_000, &phases, true);
        world.homes = (0..4_000).map(|page| page % NODES).collect();
        let page = |(page, home): (usize, &usize)| PageMove {
            address: (16 + page as u64) << 12,
            shift: 12,
            from: *home as u16,
            to: 0,
        };
        let pages = world.homes.iter().enumerate().filter(|(_, home)| **home > 0).map(page);
        let jams = Jams { pages: pages.collect() };
        let (world, judged) = under(Box::new(jams), world);
        let acted = acted_after(&world, serial_ms).expect("it acts");
        assert!(acted < Nanos::from_millis(600), "before there are three windows: {acted}");
        let verdicts: Vec<Verdict> = judged.iter().map(|one| one.verdict).collect();
        assert_eq!(verdicts, [Verdict::Worse], "{serial_ms}: {judged:?}");
        assert!(world.shares().iter().all(|share| *share > 0.2), "{:?}", world.shares());
    }
}

/// The guard lets nothing happen before three windows were seen. What it refuses until then is not
/// held against the mechanism that wanted it.
#[test]
fn a_program_that_is_parallel_from_the_start_is_acted_on_as_soon_as_may_be() {
    let world = manage(World::new(4_000, &[PARALLEL.until(2_000)], true));
    let acted = acted_after(&world, 0).expect("it acts");
    assert!(acted <= Nanos::from_millis(500), "{acted}");
}

/// Each thread works between its misses, so that there are few, and waits long for each, because
/// one controller serves all. Described with controllers four times as wide, the machine would take
/// the traffic for nothing.
#[test]
fn a_program_that_asks_for_little_and_waits_long_is_helped() {
    let look_ups = Phase { work: 60.0, private: false, ..PARALLEL };
    let phases = [SERIAL.until(1_500), look_ups.until(8_000)];
    let world = manage(World::on("node:4 core:2 gbs:12 mhz:2000", 4_000, &phases, true));
    let acted = acted_after(&world, 1_500).expect("it acts");
    assert!(acted <= Nanos::from_millis(500), "{acted}");
    assert!(world.shares().iter().all(|share| *share > 0.15), "{:?}", world.shares());
}

/// The same threads with little to fetch: no thread waits for another.
#[test]
fn a_program_that_waits_for_nobody_is_left_alone() {
    let phases = [Phase { work: 20_000.0, private: false, ..PARALLEL }.until(6_000)];
    let world = manage(World::new(4_000, &phases, true));
    assert_eq!(acted_after(&world, 0), None);
}

#[test]
fn one_thread_beside_its_memory_is_left_alone() {
    let world = manage(World::new(4_000, &[SERIAL.until(6_000)], true));
    assert!(world.plans.iter().all(|(_, plan)| !plan.acts()));
}

#[test]
fn a_steady_program_is_looked_at_seldom() {
    let world = manage(World::new(4_000, &[SERIAL.until(20_000)], true));
    assert!(world.looks < 30, "{} looks", world.looks);
    assert!(world.rested > Nanos::from_secs(11), "{} rested", world.rested);
}

#[test]
fn a_program_that_goes_back_and_forth_is_let_be_in_the_end() {
    // Half a second of each: what it does is usual.
    let phase = |number: u64| {
        let phase = if number.is_multiple_of(2) { SERIAL } else { Phase { threads: 3, ..SERIAL } };
        phase.until(500 * (number + 1))
    };
    let phases: Vec<Phase> = (0..60).map(phase).collect();
    let world = manage(World::new(4_000, &phases, true));
    assert!(world.looks < 200, "{} looks in 30 s", world.looks);
}

/// The queues of this world are not those of the cost model, and yet what is predicted to win more
/// wins more.
#[test]
fn what_is_predicted_to_win_more_wins_more() {
    let mut found = Vec::new();
    for (work, private) in [(60.0, true), (60.0, false), (300.0, true), (300.0, false)] {
        let jam = Phase { work, private, ..PARALLEL };
        let (_, judged) = watched(World::new(4_000, &[jam.until(4_000)], true));
        let both = |one: &Judged| Some((one.predicted?, one.speed()?.change));
        found.extend(judged.iter().filter_map(both));
    }
    assert_eq!(found.len(), 4, "{found:?}");
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert!(found[0].0 > 0.05, "{found:?}");
    assert!(found.windows(2).all(|pair| pair[0].1 < pair[1].1), "{found:?}");
}
