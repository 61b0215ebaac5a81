//! SAM on two sockets: means and extremes over programs that the paper does not describe.
//!
//! Every input is drawn: half of the programs share little, as PARSEC's do, half share much, as
//! ALS, SGD and SVD do.

use rondpoint_core::Random;
use rondpoint_core::policy::{Policy, by_name};
use rondpoint_machine::Machine;

use super::{Report, Use, cell, manage};
use crate::catalogue;
use crate::contender::Contender;
use crate::parallel;
use crate::plant::FirstPlace;
use crate::rivals::Rival;
use crate::run::{self, Outcome, ProcessTime};
use crate::sensors::Pmu;
use crate::workload::{Program, Region, Touched, Used, Waits, Workload};
use crate::world::{Scene, World};

/// Programs alone, and mixes of two.
const PROGRAMS: usize = 12;

/// One program that shares much and one that shares little.
pub(super) fn programs() -> Vec<Program> {
    let one = |(number, name): (usize, &str)| Program {
        name: name.to_string(),
        ..program(number, 10, |low, high| super::middle([low, high]))
    };
    [(0, "sharing"), (1, "quiet")].map(one).into()
}

/// `between` chooses a value in a range.
fn program(number: usize, threads: u32, mut between: impl FnMut(f64, f64) -> f64) -> Program {
    let shares = number.is_multiple_of(2);
    let transfers = if shares { between(1.0, 5.0) } else { between(0.0, 0.3) };
    Program {
        name: format!("{}{number}", if shares { "sharing" } else { "quiet" }),
        threads,
        instances: 1,
        start_s: 0.0,
        seconds: 12.0,
        pinned: false,
        waits: Waits::Never,
        cycles_per_instruction: between(0.6, 1.2),
        accesses_per_kilo: between(1.0, 20.0),
        outstanding: between(2.0, 5.0),
        transfers_per_kilo: transfers,
        sharers: 0,
        burst: 0.1,
        regions: vec![Region {
            mib: between(8.0, 32.0),
            touched: Touched::Own,
            used: Used::Own,
            share: 1.0,
            writes: 0.3,
            reuse: between(0.2, 0.8),
            lives_s: 0.0,
        }],
        requests: None,
        phases: Vec::new(),
        ..Program::default()
    }
}

/// What came of programs under Linux and under SAM.
struct Result {
    /// Speed of SAM over Linux.
    speed: f64,
    /// Spread of the programs' speeds against their own alone, under Linux and SAM.
    spreads: [f64; 2],
}

fn scene(machine: &Machine, programs: Vec<Program>, seed: u64) -> Scene {
    let workload = Workload { name: "sam".into(), title: "sam".into(), stops_s: 0.0, programs };
    let machine = machine.clone();
    Scene { pmu: Pmu::Pebs, ..Scene::new(machine, workload, seed) }
}

fn linux(scene: &Scene) -> Outcome {
    run::run(scene, &Contender::FirstTouch).expect("no policy takes part")
}

fn result(machine: &Machine, programs: Vec<Program>, seed: u64) -> Result {
    let scene = scene(machine, programs, seed);
    let base = linux(&scene);
    let policy: Box<dyn Policy> =
        by_name("sam").and_then(|policy| (policy.make)(None)).expect("sam is built in");
    let begun = World::new(&scene, FirstPlace::Touch, Rival::Nothing);
    let managed = manage(begun, &scene, policy);
    let alone = |program: &Program| linux(&self::scene(machine, vec![program.clone()], seed));
    let alone: Vec<Outcome> = scene.workload.programs.iter().map(alone).collect();
    Result {
        speed: managed.speed_against(&base).unwrap_or(0.0),
        spreads: [&base, &managed].map(|outcome| spread(outcome, &alone)),
    }
}

/// Standard deviation of the programs' speeds against each one's speed alone.
fn spread(together: &Outcome, alone: &[Outcome]) -> f64 {
    let pairs = together.processes.iter().zip(alone);
    let speed = |(own, alone): (&ProcessTime, &Outcome)| {
        alone.seconds().zip(own.seconds).map_or(0.0, |(alone, own)| alone / own)
    };
    let speeds: Vec<f64> = pairs.map(speed).collect();
    let count = speeds.len() as f64;
    let mean = speeds.iter().sum::<f64>() / count;
    (speeds.iter().map(|speed| (speed - mean).powi(2)).sum::<f64>() / count).sqrt()
}

fn drawn(number: usize, threads: u32, random: &mut Random) -> Program {
    program(number, threads, |low, high| low + (high - low) * random.unit())
}

fn alone(machine: &Machine, number: usize, seed: u64) -> Result {
    let mut random = Random::new(seed.wrapping_mul(1000) + number as u64);
    // From a few threads to one for each physical core.
    let threads = 4 + 4 * random.below(5) as u32;
    result(machine, vec![drawn(number, threads, &mut random)], seed)
}

fn mixed(machine: &Machine, number: usize, seed: u64) -> Result {
    let mut random = Random::new(seed.wrapping_mul(1000) + 500 + number as u64);
    let one = drawn(2 * number, 10, &mut random);
    let other = drawn(number, 10, &mut random);
    result(machine, vec![one, other], seed)
}

/// Means and extremes.
pub(super) fn report(draws: u64) -> Report {
    let machine = catalogue::machine("sam-2").expect("the paper's machine comes along");
    let jobs: Vec<(u64, usize, bool)> = [false, true]
        .into_iter()
        .flat_map(|mix| {
            (1..=draws).flat_map(move |seed| (0..PROGRAMS).map(move |one| (seed, one, mix)))
        })
        .collect();
    let results = parallel::map(
        &jobs,
        |(seed, number, mix)| match mix {
            true => mixed(&machine, *number, *seed),
            false => alone(&machine, *number, *seed),
        },
        |_| {},
    );
    let speeds: Vec<f64> = results.iter().map(|result| result.speed).collect();
    let (single, mixes) = speeds.split_at(speeds.len() / 2);
    let mut cells = Vec::new();
    let printed = [("Standalone programs", [1.21, 0.99, 1.72]), ("Mixes", [1.16, 1.02, 1.36])];
    for ((table, printed), speeds) in printed.into_iter().zip([single, mixes]) {
        type Statistic = fn(&[f64]) -> f64;
        let statistics: [(&str, Statistic); 3] = [
            ("mean", |all| all.iter().sum::<f64>() / all.len() as f64),
            ("worst", |all| all.iter().copied().fold(f64::INFINITY, f64::min)),
            ("best", |all| all.iter().copied().fold(0.0, f64::max)),
        ];
        for ((row, statistic), published) in statistics.into_iter().zip(printed) {
            let values: Vec<f64> = speeds.chunks(PROGRAMS).map(statistic).collect();
            let names = (table, row, "speed over Linux");
            cells.push(cell(names, (Use::Prediction, "x"), published, &values));
        }
    }
    let fairness = "Mean spread of the speeds of a mix's programs";
    let rows = [("Linux", Use::Baseline, 0.18), ("SAM", Use::Prediction, 0.12)];
    for (index, (row, kind, published)) in rows.into_iter().enumerate() {
        let mean = |draw: &[Result]| {
            draw.iter().map(|one| one.spreads[index]).sum::<f64>() / draw.len() as f64
        };
        let values: Vec<f64> = results[results.len() / 2..].chunks(PROGRAMS).map(mean).collect();
        cells.push(cell((fairness, row, "speed against alone"), (kind, "x"), published, &values));
    }
    let report = Report::new(("sam", "sam-2"), draws, cells, Vec::new()).note(
        "No source says how the spread is computed. Here it is the standard deviation of the \
         programs' speeds, each against its own alone.",
    );
    report.note(
        "Every program is drawn, since the paper describes none: twelve alone and twelve mixes. The \
         drawn ones may share less than the paper's.",
    )
}
