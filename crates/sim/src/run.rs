//! One run: takes a scene and a contender, returns times and sums.

use std::fs::File;
use std::path::Path;

use rondpoint_core::controller::{Controller, Settings};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::{self, Witness};
use rondpoint_core::{Nanos, Policy};
use rondpoint_trace::{Header, PolicyChoice, Recorder, TraceError, Writer};
use serde::Serialize;

use crate::contender::Contender;
use crate::host::SimHost;
use crate::oracle;
use crate::plant::{FirstPlace, Plant, Tally};
use crate::rivals::{Balancing, Late, Numad, Rival};
use crate::sensors::Pmu;
use crate::workload::Program;
use crate::world::{Scene, World};

/// A program that takes this many times as long as it should is given up.
const PATIENCE: f64 = 60.0;

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Each process, in the workload's order.
    pub processes: Vec<ProcessTime>,
    /// Sums over the machine and the run.
    #[serde(flatten)]
    pub(crate) tally: Tally,
}

/// How long a process ran.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessTime {
    /// Its program.
    pub program: String,
    /// Seconds from its start to its end; `None` = it was given up or killed.
    pub seconds: Option<f64>,
    /// The kernel killed it: its memory did not fit the machine.
    pub killed: bool,
    /// Mean time from a request to its reply, µs; `None` if it sends no requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_us: Option<f64>,
    /// The median of these times, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_median_us: Option<f64>,
    /// The time that one reply of a hundred exceeds, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_p99_us: Option<f64>,
}

impl Outcome {
    pub(crate) fn of(plant: &Plant) -> Self {
        let processes = plant
            .times()
            .map(|(process, seconds)| {
                let replies = process.replies();
                ProcessTime {
                    program: process.program.name.clone(),
                    seconds,
                    killed: process.killed,
                    reply_us: replies.map(|times| times.mean_us),
                    reply_median_us: replies.map(|times| times.median_us),
                    reply_p99_us: replies.map(|times| times.p99_us),
                }
            })
            .collect();
        Self { processes, tally: plant.tally() }
    }

    /// Speed against another run of the same workload: the geometric mean over the processes, above
    /// 1 where this one is faster. `None` if a process was given up or killed.
    #[must_use]
    pub fn speed_against(&self, other: &Self) -> Option<f64> {
        let pairs = self.processes.iter().zip(&other.processes);
        let logs: Option<Vec<f64>> =
            pairs.map(|(own, other)| Some((other.seconds? / own.seconds?).ln())).collect();
        let logs = logs.filter(|logs| !logs.is_empty())?;
        Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }

    /// Time until the last process ended, seconds.
    #[must_use]
    pub fn seconds(&self) -> Option<f64> {
        let all: Option<Vec<f64>> = self.processes.iter().map(|process| process.seconds).collect();
        Some(all?.into_iter().fold(0.0, f64::max))
    }
}

/// Runs a scene under a contender.
///
/// # Errors
/// A policy that does not exist.
pub fn run(scene: &Scene, contender: &Contender) -> Result<Outcome, TraceError> {
    let place = FirstPlace::Touch;
    Ok(match contender {
        Contender::FirstTouch => unmanaged(scene, place, Rival::Nothing),
        Contender::Interleave => unmanaged(scene, FirstPlace::Interleave, Rival::Nothing),
        Contender::InterleaveLate => unmanaged(scene, place, Rival::Late(Late::new())),
        Contender::AutoNuma => unmanaged(scene, place, balancing()),
        Contender::Numad => unmanaged(scene, place, Rival::Numad(Numad::new())),
        Contender::Oracle => oracle::best(scene),
        Contender::Managed(choices) => managed(scene, choices, &mut ())?,
    })
}

fn balancing() -> Rival {
    Rival::Balancing(Box::new(Balancing::new()))
}

fn limit(scene: &Scene) -> Nanos {
    let programs = scene.workload.programs.iter();
    let ends = |one: &Program| one.start_s + one.seconds + one.every_s * f64::from(one.instances);
    let longest = programs.map(ends).fold(0.0, f64::max);
    let crowd: f64 = scene.workload.programs.iter().map(|one| f64::from(one.instances)).sum();
    Nanos((PATIENCE * longest * crowd.max(1.0) * 1e9) as u64)
}

fn unmanaged(scene: &Scene, place: FirstPlace, rival: Rival) -> Outcome {
    finish(World::new(scene, place, rival), scene)
}

/// Lets a world run to its end.
pub(crate) fn finish(mut world: World, scene: &Scene) -> Outcome {
    let limit = limit(scene);
    while !world.plant.is_over() && world.plant.now() < limit {
        world.pass();
    }
    Outcome::of(&world.plant)
}

/// Runs a scene under policies and writes a trace of it.
///
/// # Errors
/// The file cannot be written, or a policy does not exist.
pub(crate) fn record(
    scene: &Scene,
    choices: &[PolicyChoice],
    path: &Path,
) -> Result<(), TraceError> {
    let mut recorder = recorder(scene, choices, path)?;
    managed(scene, choices, &mut recorder)?;
    recorder.finish().map(|_| ())
}

/// A trace of a scene that has only its header.
pub(crate) fn recorder(
    scene: &Scene,
    choices: &[PolicyChoice],
    path: &Path,
) -> Result<Recorder, TraceError> {
    let header = Header {
        written_by: format!("rondpoint-sim {}", env!("CARGO_PKG_VERSION")),
        unix_s: None,
        host: Some(scene.machine.name.clone()),
        command: vec!["simulated".to_string(), scene.workload.name.clone()],
        policies: choices.to_vec(),
        seed: scene.seed,
        guard: guard(scene),
        topology: scene.machine.topology(),
        notes: vec!["simulated".to_string()],
    };
    let file = File::create(path).map_err(|source| TraceError::File {
        path: path.to_path_buf(),
        attempted: "write",
        source,
    })?;
    Ok(Recorder::new(Writer::new(file, path, &header)?))
}

/// Runs a scene under policies and shows a witness each step.
///
/// # Errors
/// A policy does not exist.
pub(crate) fn managed(
    scene: &Scene,
    choices: &[PolicyChoice],
    witness: &mut impl Witness,
) -> Result<Outcome, TraceError> {
    let policies: Result<Vec<Box<dyn Policy>>, TraceError> =
        choices.iter().map(PolicyChoice::make).collect();
    Ok(with_policies(scene, policies?, guard(scene), witness))
}

fn guard(scene: &Scene) -> GuardSettings {
    GuardSettings::acting().for_machine(&scene.machine.topology())
}

/// Runs a scene under policies, as `rondpoint run` does.
pub(crate) fn with_policies(
    scene: &Scene,
    policies: Vec<Box<dyn Policy>>,
    guard: GuardSettings,
    witness: &mut impl Witness,
) -> Outcome {
    // Without a PMU the manager lives on the hint faults of the kernel's balancing.
    let rival = if scene.pmu == Pmu::None { balancing() } else { Rival::Nothing };
    let world = World::new(scene, FirstPlace::Touch, rival);
    manage(world, scene, policies, guard, witness)
}

/// Lets a world run to its end under policies.
pub(crate) fn manage(
    world: World,
    scene: &Scene,
    policies: Vec<Box<dyn Policy>>,
    guard: GuardSettings,
    witness: &mut impl Witness,
) -> Outcome {
    let settings = Settings { seed: scene.seed, guard };
    let mut controller = Controller::new(scene.machine.topology(), policies, settings);
    let mut host = SimHost::new(world, controller.full_sampling(), limit(scene));
    host.world.manager_share = scene.manager_share;
    let Ok(()) = host::run(&mut host, &mut controller, witness);
    Outcome::of(&host.world.plant)
}
