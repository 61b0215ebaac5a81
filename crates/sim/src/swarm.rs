//! The seeded swarm: draws machine, programs, sensors, faults and policy from one seed, and checks
//! rules in every step.
//!
//! During faults, no rule may be broken (safety). After the faults, each process must be left alone
//! (liveness). Without faults, no program may be slower than under first touch by more than noise
//! (no harm). A failed assertion is a broken rule too, so it does not end the swarm. A seed repeats
//! its case exactly.

mod case;
mod ranges;
mod report;
mod rests;
mod shrink;

use std::path::Path;

use rondpoint_core::controller::{Controller, Input, Settings};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::{Host as _, Witness};
use rondpoint_core::ledger::Ledger;
use rondpoint_core::plan::{Action, Outcome};
use rondpoint_core::{Nanos, Policy};
use rondpoint_trace::{Decision, PolicyChoice, TraceError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub(crate) use crate::checkers::Broken;
use crate::checkers::{self, Conservation, View};
use crate::faults::{self, Faults};
use crate::host::SimHost;
use crate::parallel::caught;
use crate::plant::{FirstPlace, Plant};
use crate::results::{self, Kept};
use crate::rivals::{Balancing, Numad, Rival};
use crate::sensors::Pmu;
use crate::world::World;
pub(crate) use case::Case;
pub(crate) use ranges::Ranges;
pub(crate) use report::Report;
use rests::Rests;
pub(crate) use shrink::shrink;

/// A speed below this, against first touch, is harm: the goal for the worst of 10,000 seeds.
pub(crate) const HARM: f64 = 0.95;
/// Names of rules that code tells apart.
const NO_HARM: &str = "no harm";
const NO_PANIC: &str = "no panic";
const CONSERVATION: &str = "conservation";

/// Which cases a swarm runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// As drawn: any policy, and faults in most cases.
    Drawn,
    /// All under `auto` and without faults.
    Calm,
    /// As drawn, with rare faults beside.
    Harsh,
}

impl Mode {
    /// The case of a seed.
    pub(crate) fn case(self, seed: u64, ranges: &Ranges) -> Case {
        match self {
            Self::Drawn => Case::draw(seed, ranges),
            Self::Calm => Case::calm(seed, ranges),
            Self::Harsh => Case::harsh(seed, ranges),
        }
    }

    /// The swarm's name, and the digest of the ranges, for a file of results.
    fn of(self) -> String {
        let name = match self {
            Self::Drawn => "swarm",
            Self::Calm => "calm swarm",
            Self::Harsh => "harsh swarm",
        };
        let rare = if self == Self::Harsh { format!(" {:?}", faults::RARE) } else { String::new() };
        format!("{name} {}{}", Ranges::digest(), rare)
    }
}

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Result {
    pub(crate) seed: u64,
    pub(crate) policy: String,
    /// Whether faults struck.
    pub(crate) faults: bool,
    /// Work done against first touch in the same time, without faults: the geometric mean over
    /// processes. Absent if the case did not reach its end.
    pub(crate) speed: Option<f64>,
    /// Every rule that was broken, at its first break.
    pub(crate) broken: Vec<Broken>,
    /// Steps of the controller.
    pub(crate) steps: u64,
    /// Of all plans, in order.
    pub(crate) digest: String,
}

impl Kept for Result {
    fn number(&self) -> u64 {
        self.seed
    }
}

/// Runs cases, with those that `path` holds already taken from there, and each result written to
/// it at once. The report says how many were taken.
///
/// # Errors
/// The file cannot be read, written or understood, or is of other ranges or another mode.
pub(crate) fn run_all(
    mode: Mode,
    first: u64,
    cases: u64,
    path: Option<&Path>,
    progress: impl Fn(usize) + Sync,
) -> anyhow::Result<Report> {
    let ranges = Ranges::frozen();
    let seeds: Vec<u64> = (0..cases).map(|number| first.wrapping_add(number)).collect();
    let one = |seed| {
        let result = run(&mode.case(seed, &ranges));
        for broken in &result.broken {
            eprintln!("seed {seed}: {}", broken.rule);
        }
        Ok(result)
    };
    let found = results::each(&seeds, path, &mode.of(), one, progress)?;
    Ok(Report { kept: found.kept, ..Report::of(mode, first, &found.results) })
}

/// Runs a case and checks everything about it.
pub(crate) fn run(case: &Case) -> Result {
    caught(|| judge(case, managed(case, &mut ()))).unwrap_or_else(|what| Result {
        seed: case.seed,
        policy: case.policy.clone(),
        faults: case.faults.is_some(),
        speed: None,
        broken: vec![Broken::new(NO_PANIC, what)],
        steps: 0,
        digest: String::new(),
    })
}

/// The result of a managed run. Without faults, its work is compared with first touch.
fn judge(case: &Case, managed: Managed) -> Result {
    let Managed { work, ended, mut broken, steps, digest } = managed;
    let compared = ended && case.faults.is_none();
    let base = compared.then(|| unmanaged(case, FirstPlace::Touch));
    let speed = base.and_then(|base| against(&work, &base));
    if let Some(speed) = speed.filter(|speed| *speed < HARM) {
        let what = format!("{speed:.3} of first touch's work, expected {HARM} or more");
        broken.push(Broken::new(NO_HARM, what));
    }
    let (policy, faults) = (case.policy.clone(), case.faults.is_some());
    Result { seed: case.seed, policy, faults, speed, broken, steps, digest }
}

/// Whether a case breaks a rule.
fn breaks(case: &Case, rule: &str) -> bool {
    let broken = match rule {
        NO_HARM | NO_PANIC => run(case).broken,
        // The other rules do not need the run under first touch.
        _ => caught(|| managed(case, &mut ()).broken).unwrap_or_default(),
    };
    broken.iter().any(|broken| broken.rule == rule)
}

/// Runs a case and writes a trace of it. That of a case that panics has the steps before.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn record(case: &Case, path: &Path) -> std::result::Result<(), TraceError> {
    let choices = [PolicyChoice::parse(&case.policy)];
    let mut recorder = crate::run::recorder(&case.scene(), &choices, path)?;
    // `run` tells of a panic.
    let _ = caught(|| managed(case, &mut recorder));
    recorder.finish().map(|_| ())
}

/// Work done under rivals and policies against first touch, in the same time. `None` if a broken
/// rule stopped the case.
pub(crate) fn speeds(case: &Case, contenders: &[&str]) -> Vec<Option<f64>> {
    let base = unmanaged(case, FirstPlace::Touch);
    let speed = |name: &&str| -> Option<f64> {
        let work = match *name {
            "interleave" => unmanaged(case, FirstPlace::Interleave),
            "autonuma" => {
                let rival = Rival::Balancing(Box::new(Balancing::new()));
                beside(case, FirstPlace::Touch, rival)
            }
            "numad" => beside(case, FirstPlace::Touch, Rival::Numad(Numad::new())),
            policy => {
                let case = Case { policy: policy.to_string(), ..case.clone() };
                let managed = managed(&case, &mut ());
                managed.ended.then_some(managed.work)?
            }
        };
        against(&work, &base)
    };
    contenders.iter().map(speed).collect()
}

/// Runs a case and shows a witness each step.
pub(crate) fn watch(case: &Case, witness: &mut impl Witness) {
    managed(case, witness);
}

fn against(own: &[f64], base: &[f64]) -> Option<f64> {
    let both = own.iter().zip(base).filter(|(_, base)| **base > 0.0);
    let logs: Vec<f64> = both.map(|(own, base)| (own / base).max(1e-9).ln()).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

struct Managed {
    work: Vec<f64>,
    /// Whether it reached the case's end.
    ended: bool,
    broken: Vec<Broken>,
    steps: u64,
    digest: String,
}

fn end(case: &Case) -> Nanos {
    Nanos((case.seconds * 1e9) as u64)
}

fn balancing(case: &Case) -> Rival {
    match case.scene().pmu {
        Pmu::None => Rival::Balancing(Box::new(Balancing::new())),
        _ => Rival::Nothing,
    }
}

/// Instructions done by each process.
fn work(plant: &Plant) -> Vec<f64> {
    let done = |process: &crate::plant::Process| {
        plant.threads[process.threads.clone()].iter().map(|thread| thread.done).sum()
    };
    plant.processes.iter().map(done).collect()
}

fn unmanaged(case: &Case, place: FirstPlace) -> Vec<f64> {
    beside(case, place, balancing(case))
}

/// Instructions done by each process beside a rival.
fn beside(case: &Case, place: FirstPlace, rival: Rival) -> Vec<f64> {
    let mut world = World::new(&case.scene(), place, rival);
    case.confine(&mut world.plant);
    while world.plant.now() < end(case) {
        world.pass();
    }
    work(&world.plant)
}

fn managed(case: &Case, witness: &mut impl Witness) -> Managed {
    managed_and_undone(case, witness, Ledger::restore)
}

/// Runs a case under its policy. A checker stops at its first break, and the run goes on. `undo`
/// gives the actions that restore the first masks at the end.
fn managed_and_undone(
    case: &Case,
    witness: &mut impl Witness,
    undo: impl Fn(&Ledger) -> Vec<Action>,
) -> Managed {
    let mut world = World::new(&case.scene(), FirstPlace::Touch, balancing(case));
    case.confine(&mut world.plant);
    let mut settings = GuardSettings::acting().for_machine(&world.plant.topology);
    // A process that ends while it is frozen has to be frozen first.
    settings.freeze |= case.faults.is_some_and(|rates| rates.frozen_exits > 0.0);
    let policy: Box<dyn Policy> =
        PolicyChoice::parse(&case.policy).make().expect("a case names a policy that there is");
    let seeded = Settings { seed: case.seed, guard: settings.clone() };
    let mut controller = Controller::new(world.plant.topology.clone(), vec![policy], seeded);
    let mut checkers = checkers::all(&world.plant, &settings);
    let conservation = Conservation::new(&world.plant);
    let mut host = SimHost::new(world, controller.full_sampling(), end(case));
    let until = Nanos((case.faults_until_s * 1e9) as u64);
    host.faults = case.faults.map(|rates| Faults::new(rates, until, case.seed ^ 0xfa17));
    let mut hash = Sha256::new();
    let mut broken: Vec<Broken> = Vec::new();
    let mut steps = 0;
    let mut rest = Rests::new(case);
    let mut outcomes: Vec<Outcome> = Vec::new();
    while !is_lost(&broken) {
        let period = controller.period();
        let Ok(seen) = match (controller.take_pause(), controller.take_watch()) {
            (Some(pause), _) => host.pause_counting(pause, period),
            (None, Some(watch)) => host.wait(watch, period),
            (None, None) => host.observe(period),
        };
        let Some(observation) = seen else { break };
        let seen = observation.clone();
        let input = Input { observation, outcomes };
        witness.input(&input);
        let step = controller.step(input);
        hash.update(Decision::from(&step).line());
        let at = host.world.plant.now();
        let Ok(results) = host.apply(&step);
        witness.step(&step, &results);
        outcomes = results;
        steps += 1;
        rest.learn(at, &step.plan);
        let view = View { seen: &seen, step: &step, outcomes: &outcomes, plant: &host.world.plant };
        checkers.retain_mut(|checker| match checker.check(&view) {
            Ok(()) => true,
            Err(one) => {
                broken.push(one);
                false
            }
        });
    }
    let ended = !is_lost(&broken);
    let plant = &mut host.world.plant;
    let work = work(plant);
    broken.extend(ended.then(|| rest.check(end(case)).err()).flatten());
    broken.extend(restore(plant, undo(controller.ledger())).err());
    if ended {
        broken.extend(conservation.check_plant(plant).err());
    }
    let digest = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Managed { work, ended, broken, steps, digest }
}

/// Whether conservation is broken. Such a world tells nothing more.
fn is_lost(broken: &[Broken]) -> bool {
    broken.iter().any(|one| one.rule == CONSERVATION)
}

/// These actions give every thread the mask that it had.
fn restore(plant: &mut Plant, undo: Vec<Action>) -> std::result::Result<(), Broken> {
    for action in undo {
        if let Action::SetAffinity { pid, tid, cpus, via } = action {
            // A thread that has ended needs no mask.
            let _ = plant.set_mask((pid, tid), &cpus, via);
        }
    }
    let online = plant.online();
    for thread in plant.threads.iter().filter(|thread| !thread.finished) {
        if thread.mask != thread.allowed.intersection(&online) {
            let (tid, mask, first) = (thread.tid, &thread.mask, &thread.allowed);
            let what = format!("thread {tid}: mask {mask} after undoing, at first {first}");
            return Err(Broken::new("undo", what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
