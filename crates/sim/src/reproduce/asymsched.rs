//! AsymSched's machine: the bandwidth between two nodes, and the gain by a choice of nodes.
//!
//! The program is of Streamcluster's kind: sixteen threads on two of eight nodes read one table.
//! Its demand is fitted on the slides' two times of one program, 277 s and 149 s. That these are
//! the times on the worst and the best nodes is [inferred]. Its length, the time with local, idle
//! memory, is the shorter one. The slides have no other number of a program.

use rondpoint_core::policy::Policy;
use rondpoint_core::policy::by_name;
use rondpoint_machine::Machine;
use serde::{Deserialize, Serialize};

use super::{Cell, Report, Use, cell, manage};
use crate::catalogue;
use crate::parallel;
use crate::plant::{FirstPlace, Truth};
use crate::rivals::Rival;
use crate::run;
use crate::sensors::Pmu;
use crate::workload::{Program, Region, Touched, Used, Waits, Workload};
use crate::world::{Scene, World};

const FITTED: &str = include_str!("../../../../fitting/asymsched.toml");

/// Demand between which the fit looks, misses in 1,000 instructions.
const DEMAND: [f64; 2] = [2.0, 100.0];
/// Times of the same program, executed twice, seconds [AsymSched-slides]. That they are those on
/// the worst and the best nodes is [inferred].
const WORST_S: f64 = 277.0;
const BEST_S: f64 = 149.0;
/// Simulated time for which links are measured, seconds.
const MEASURED_S: f64 = 2.0;

fn program(threads: u32, accesses_per_kilo: f64, seconds: f64) -> Workload {
    let region = Region {
        mib: 256.0,
        touched: Touched::First,
        used: Used::All,
        share: 1.0,
        writes: 0.0,
        reuse: 0.0,
        lives_s: 0.0,
    };
    let program = Program {
        name: "streamcluster".to_string(),
        threads,
        instances: 1,
        start_s: 0.0,
        seconds,
        pinned: false,
        waits: Waits::Spin,
        cycles_per_instruction: 1.3,
        accesses_per_kilo,
        outstanding: 3.8,
        transfers_per_kilo: 0.0,
        sharers: 0,
        burst: 0.0,
        regions: vec![region],
        requests: None,
        phases: Vec::new(),
        ..Program::default()
    };
    let name = "streamcluster".to_string();
    Workload { title: name.clone(), name, stops_s: 0.0, programs: vec![program] }
}

fn scene(machine: &Machine, workload: Workload, truth: Option<Truth>, seed: u64) -> Scene {
    Scene { pmu: Pmu::Ibs, truth, ..Scene::new(machine.clone(), workload, seed) }
}

/// A program with threads and pages on some nodes.
fn world(scene: &Scene, on: &[usize], of: &[usize], pin: bool) -> World {
    let mut world = World::new(scene, FirstPlace::Touch, Rival::Nothing);
    // The paper's placements are given: no thread leaves its nodes by itself.
    world.plant.truth.wander_per_s = 0.0;
    let cpus: Vec<usize> =
        on.iter().flat_map(|&node| world.plant.topology.cpus_of_node(node).iter()).collect();
    world.plant.arrange(0, &cpus, of, pin);
    world
}

/// GB/s that a node draws from another one, all its CPUs together.
fn drawn(machine: &Machine, accessing: usize, holding: usize) -> f64 {
    let workload = program(machine.nodes[accessing].cpus, 60.0, 100.0);
    let scene = scene(machine, workload, Some(Truth::middle()), 1);
    let mut world = world(&scene, &[accessing], &[holding], true);
    while world.plant.now.seconds() < MEASURED_S {
        world.pass();
    }
    world.plant.traffic[(accessing, holding)] * 64.0 / 1e9 / MEASURED_S
}

/// Run times on every pair of nodes, and of AsymSched from the worst pair.
struct Pairs {
    best: f64,
    worst: f64,
    mean: f64,
    asymsched: f64,
}

/// A run on two nodes that it does not leave, seconds.
fn pinned(scene: &Scene, pair: [usize; 2]) -> f64 {
    let outcome = run::finish(world(scene, &pair, &pair, true), scene);
    outcome.seconds().unwrap_or(f64::INFINITY)
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fitted {
    /// Misses in 1,000 instructions.
    accesses_per_kilo: f64,
}

const HEAD: &str = "\
# Made by `rondpoint simulate --fit asymsched` from the slides' two times of one program, 277 s and
# 149 s, as those on the worst and the best nodes [inferred]; fitting/README.md says how.
";

fn machine() -> Machine {
    catalogue::machine("asymsched-8").expect("the paper's machine comes along")
}

/// Fits what the baselines fix, as TOML.
pub(super) fn fit() -> String {
    let fitted = Fitted { accesses_per_kilo: fit_demand(&machine()) };
    format!("{HEAD}{}", toml::to_string(&fitted).expect("a plain number makes TOML"))
}

fn fitted() -> Fitted {
    toml::from_str(FITTED).expect("the fitted number is a part of the program")
}

/// The slides' program.
pub(super) fn programs() -> Vec<Program> {
    program(16, fitted().accesses_per_kilo, BEST_S).programs
}

/// The demand at which the worst and the best nodes of the matrix differ as published.
fn fit_demand(machine: &Machine) -> f64 {
    // By ALGORITHMS 3.10: no pair has more bandwidth than 0 and 1, none less than 4 and 7.
    let ratio = |mpki: f64| {
        let scene = scene(machine, program(16, mpki, 4.0), Some(Truth::middle()), 1);
        pinned(&scene, [4, 7]) / pinned(&scene, [0, 1])
    };
    super::bisect(DEMAND, WORST_S / BEST_S, ratio)
}

fn pairs(machine: &Machine, mpki: f64, seed: u64) -> Pairs {
    let scene = scene(machine, program(16, mpki, BEST_S), None, seed);
    let nodes = machine.nodes.len();
    let all = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| [a, b]));
    let timed: Vec<(f64, [usize; 2])> = all.map(|pair| (pinned(&scene, pair), pair)).collect();
    let worst = timed.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, [0, 1]));
    let best = timed.iter().map(|(time, _)| *time).fold(f64::INFINITY, f64::min);
    let policy: Box<dyn Policy> =
        by_name("asymsched").and_then(|policy| (policy.make)(None)).expect("asymsched is built in");
    let begun = world(&scene, &worst.1, &worst.1, false);
    let managed = manage(begun, &scene, policy);
    Pairs {
        best,
        worst: worst.0,
        mean: timed.iter().map(|(time, _)| time).sum::<f64>() / timed.len() as f64,
        asymsched: managed.seconds().unwrap_or(f64::INFINITY),
    }
}

/// The link matrix, and what placements are worth.
pub(super) fn report(draws: u64) -> Report {
    let machine = machine();
    let nodes = machine.nodes.len();
    let jobs: Vec<(usize, usize)> =
        (0..nodes).flat_map(|a| (0..nodes).filter(move |h| *h != a).map(move |h| (a, h))).collect();
    let measured = parallel::map(&jobs, |(a, h)| drawn(&machine, *a, *h), |_| {});
    let mut cells: Vec<Cell> = Vec::new();
    for ((a, h), simulated) in jobs.iter().zip(measured) {
        let row = format!("{a} from {h}");
        let names = ("Bandwidth of pairs of nodes", row.as_str(), "one reading node");
        let published = machine.bandwidth_mb_s(*a, *h) / 1000.0;
        cells.push(cell(names, (Use::Baseline, "GB/s"), published, &[simulated]));
    }
    let seeds: Vec<u64> = (1..=draws).collect();
    let mpki = fitted().accesses_per_kilo;
    let pairs = parallel::map(&seeds, |seed| pairs(&machine, mpki, *seed), |_| {});
    let of = |value: fn(&Pairs) -> f64| pairs.iter().map(value).collect::<Vec<f64>>();
    let table = "Two of eight nodes, sixteen threads";
    let rows: [(&str, Use, f64, Vec<f64>); 4] = [
        (
            "worst over best, time",
            Use::Baseline,
            WORST_S / BEST_S,
            of(|pairs| pairs.worst / pairs.best),
        ),
        ("over the mean, up to", Use::Prediction, 3.0, of(|pairs| pairs.mean / pairs.asymsched)),
        ("over random, up to", Use::Prediction, 3.18, of(|pairs| pairs.worst / pairs.asymsched)),
        ("best static over it", Use::Prediction, 1.0, of(|pairs| pairs.asymsched / pairs.best)),
    ];
    for (row, kind, published, values) in rows {
        cells.push(cell((table, row, "speed-up"), (kind, "x"), published, &values));
    }
    Report::new(("asymsched", "asymsched-8"), draws, cells, Vec::new())
        .note(format!(
            "The demand is fitted on 277 s over 149 s: {mpki:.1} misses in 1,000 instructions. The \
             slides have these times of one program; that they are the worst and the best nodes' is \
             inferred."
        ))
        .note(
            "The paper's extremes are over programs without published numbers. One program of its \
             kind does not reach them: the best pair of nodes has 2.3 times the bandwidth of the \
             worst.",
        )
        .note(
            "AsymSched begins on the worst pair of nodes. Its time there before the first decision \
             is a part of its time.",
        )
        .note(
            "Not simulated: 91 % over moving memory alone, since no source says how that moves it.",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fitted_demand_is_what_the_fit_gives_now() {
        assert_eq!(fit(), FITTED);
    }
}
