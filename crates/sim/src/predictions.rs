//! Compares the cost model's prediction for each trial with the measured change, over workloads,
//! machines and the swarm's cases.
//!
//! The plant does not use the cost model. The trials are those of the controller.
//!
//! A trial says something about the model only if both numbers are of the same change, and the
//! trial could see it ([`Standing`]). Where threads spin at barriers, the instructions of the
//! slowest thread are the measured work: the others execute instructions that are none.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use rondpoint_core::Outcome as StepOutcome;
use rondpoint_core::controller::{Input, Step};
use rondpoint_core::host::Witness;
use rondpoint_core::plan::{Kind, Mechanism};
use rondpoint_core::trial::{Change, Judged, Verdict};
use rondpoint_core::{Action, Observation, Pid, Plan, Tid, Topology};
use rondpoint_trace::PolicyChoice;
use serde::Serialize;

use crate::catalogue;
use crate::parallel;
use crate::rank_correlation::rank_correlation;
use crate::report::median;
use crate::run;
use crate::swarm::{self, Case, Ranges};
use crate::workload::{BUILT_IN, Waits};
use crate::world::Scene;

/// Policies with trials that are compared.
const POLICIES: [&str; 8] =
    ["auto", "carrefour", "sam", "nmass", "asymsched", "sharing", "gather", "home"];

/// One trial that ended with both numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Trial {
    /// Machine and workload, or the seed of a case.
    pub(crate) scene: String,
    pub(crate) policy: &'static str,
    /// What was done.
    pub(crate) mechanism: String,
    /// Relative changes of speed in percent.
    pub(crate) predicted: f64,
    pub(crate) measured: f64,
    /// Half of the measurement's interval.
    pub(crate) noise: f64,
    pub(crate) verdict: Verdict,
    pub(crate) standing: Standing,
}

/// Whether a trial says something about the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Standing {
    /// One of both changes is more than trivial, and more than the trial's noise.
    Clear,
    /// Neither is.
    Unclear,
    /// Most of the moved threads came to their old node in the last window before the move. The
    /// model priced the move from there, and no window before it shows them there.
    CameLate,
}

/// Trials of one mechanism.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Class {
    pub(crate) mechanism: String,
    pub(crate) trials: usize,
    /// Those of them that say something: error, correlation and signs are of these.
    pub(crate) clear: usize,
    /// Those whose threads came to their old node too late.
    pub(crate) came_late: usize,
    /// Of the trials that ended with a measurement: those without a prediction.
    pub(crate) unpriced: usize,
    /// Median of the distance between both, percentage points.
    pub(crate) median_error: Option<f64>,
    /// Spearman's, where there are enough trials.
    pub(crate) rank_correlation: Option<f64>,
    /// The same of all trials in which one of both changes is more than trivial, whatever the
    /// trial's noise and its windows were.
    pub(crate) rank_correlation_of_all: Option<f64>,
    /// Share of the trials in which both have the same sign, beyond the noise.
    pub(crate) same_sign: Option<f64>,
}

/// All trials and what they come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) kind: &'static str,
    pub(crate) classes: Vec<Class>,
    pub(crate) trials: Vec<Trial>,
}

/// A trial in which both changes are smaller says nothing about the model: percent (our choice).
const TRIVIAL: f64 = 2.0;
/// Fewest trials from which a rank correlation says something (our choice).
const FEWEST: usize = 5;

/// Collects trials that ended.
struct Ended {
    scene: String,
    topology: Topology,
    /// Whether all threads that wait for each other spin.
    spins: bool,
    /// Node of each thread at the last look, and at the one before.
    nodes: BTreeMap<Tid, usize>,
    before: BTreeMap<Tid, usize>,
    /// Plans, each with the processes whose threads came late.
    late: BTreeMap<u64, BTreeSet<Pid>>,
    trials: Vec<Trial>,
    unpriced: Vec<String>,
}

impl Witness for Ended {
    fn input(&mut self, input: &Input) {
        let nodes = self.nodes_of(&input.observation);
        self.before = std::mem::replace(&mut self.nodes, nodes);
    }

    fn step(&mut self, step: &Step, _: &[StepOutcome]) {
        step.judged.iter().for_each(|judged| self.take(judged));
        self.note(&step.plan);
    }
}

impl Ended {
    fn of(name: String, scene: &Scene) -> Self {
        let waits = scene.workload.programs.iter().map(|program| program.waits);
        let mut waiting = waits.filter(|waits| *waits != Waits::Never).peekable();
        Self {
            scene: name,
            topology: scene.machine.topology(),
            spins: waiting.peek().is_some() && waiting.all(|waits| waits == Waits::Spin),
            nodes: BTreeMap::new(),
            before: BTreeMap::new(),
            late: BTreeMap::new(),
            trials: Vec::new(),
            unpriced: Vec::new(),
        }
    }

    /// Notes of which processes a plan moves threads that have just come.
    fn note(&mut self, plan: &Plan) {
        let late = came_late(plan, &self.before, &self.nodes);
        if !late.is_empty() {
            self.late.insert(plan.number, late);
        }
    }

    fn nodes_of(&self, look: &Observation) -> BTreeMap<Tid, usize> {
        let threads = look.processes.iter().flat_map(|process| &process.threads);
        threads.map(|thread| (thread.tid, self.topology.node_of_cpu(thread.cpu))).collect()
    }

    fn standing(&self, judged: &Judged, speed: Change, predicted: f64) -> Standing {
        let late = |plan: &u64| self.late.get(plan).is_some_and(|pids| pids.contains(&judged.pid));
        if judged.plans.iter().any(late) {
            return Standing::CameLate;
        }
        let least = speed.noise.max(TRIVIAL / 100.0);
        match predicted.abs().max(speed.change.abs()) > least {
            true => Standing::Clear,
            false => Standing::Unclear,
        }
    }

    fn take(&mut self, judged: &Judged) {
        // A program that does something else now cannot be compared.
        let speed = measured(judged, self.spins);
        let Some(speed) = speed.filter(|_| judged.verdict != Verdict::PhaseChange) else {
            return;
        };
        let mechanism = mechanism(judged);
        let Some(predicted) = judged.predicted else {
            self.unpriced.push(mechanism);
            return;
        };
        self.trials.push(Trial {
            scene: self.scene.clone(),
            policy: judged.policy,
            mechanism,
            predicted: 100.0 * predicted,
            measured: 100.0 * speed.change,
            noise: 100.0 * speed.noise,
            verdict: judged.verdict,
            standing: self.standing(judged, speed, predicted),
        });
    }
}

/// The measured change of work. Threads that spin execute instructions while they wait for the
/// slowest one, which never waits.
fn measured(judged: &Judged, spins: bool) -> Option<Change> {
    let comparison = &judged.comparison;
    let slowest = comparison.slowest.filter(|_| spins && comparison.progress.is_none());
    slowest.or_else(|| judged.speed())
}

/// Processes of a plan of which most moved threads were on another node `before` the last window
/// than `now`, at its end.
fn came_late(
    plan: &Plan,
    before: &BTreeMap<Tid, usize>,
    now: &BTreeMap<Tid, usize>,
) -> BTreeSet<Pid> {
    let mut moved: BTreeMap<Pid, (usize, usize)> = BTreeMap::new();
    for step in &plan.steps {
        let Action::SetAffinity { pid, tid, .. } = &step.action else { continue };
        let (late, all) = moved.entry(*pid).or_default();
        let is_late = before.get(tid).zip(now.get(tid)).is_some_and(|(before, now)| before != now);
        *late += usize::from(is_late);
        *all += 1;
    }
    moved.into_iter().filter(|(_, (late, all))| 2 * late > *all).map(|(pid, _)| pid).collect()
}

fn mechanism(judged: &Judged) -> String {
    let names = judged.kinds.iter().map(|kind| match kind {
        Kind::Pages(Mechanism::CoLocation) => "pages to their node",
        Kind::Pages(Mechanism::Interleaving) => "pages interleaved",
        Kind::Pages(Mechanism::Offloading) => "pages away from their node",
        Kind::Pages(Mechanism::Following) => "pages after threads",
        Kind::Replication => "pages copied",
        Kind::Affinity => "threads moved",
        Kind::Bulk => "whole processes moved",
        Kind::Sampling => "sampling",
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Runs every workload on every machine under each policy, and so many cases of the swarm.
///
/// # Errors
/// A machine or workload that comes along is refused.
pub(crate) fn collect(
    seed: u64,
    runs: u64,
    cases: u64,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<Report> {
    let mut jobs: Vec<Job> = Vec::new();
    for machine in catalogue::machine_names() {
        for (workload, _) in BUILT_IN {
            for policy in POLICIES {
                let seeds = (0..runs).map(|run| seed.wrapping_add(run));
                jobs.extend(seeds.map(|seed| Job::Scene { machine, workload, policy, seed }));
            }
        }
    }
    jobs.extend((0..cases).map(|case| Job::Case(seed.wrapping_add(case))));
    let all = jobs.len();
    let ended = parallel::map(&jobs, Job::run, |done| progress(done, all));
    let ended: Vec<Ended> = ended.into_iter().collect::<Result<_>>()?;
    let unpriced = ended.iter().flat_map(|one| one.unpriced.clone()).collect();
    let trials = ended.into_iter().flat_map(|one| one.trials).collect();
    Ok(Report::of(trials, unpriced))
}

enum Job {
    Scene { machine: &'static str, workload: &'static str, policy: &'static str, seed: u64 },
    Case(u64),
}

impl Job {
    fn run(&self) -> Result<Ended> {
        match self {
            Self::Scene { machine, workload, policy, seed } => {
                let scene = catalogue::scene(machine, workload, *seed)?;
                let mut ended = Ended::of(format!("{workload} on {machine}"), &scene);
                run::managed(&scene, &[PolicyChoice::parse(policy)], &mut ended)?;
                Ok(ended)
            }
            Self::Case(seed) => {
                let mut case = Case::draw(*seed, &Ranges::frozen());
                (case.faults, case.policy) = (None, "auto".to_string());
                let mut ended = Ended::of(format!("case {seed}"), &case.scene());
                swarm::watch(&case, &mut ended);
                Ok(ended)
            }
        }
    }
}

impl Report {
    fn of(trials: Vec<Trial>, unpriced: Vec<String>) -> Self {
        let mut by: BTreeMap<&str, Vec<&Trial>> = BTreeMap::new();
        for trial in &trials {
            by.entry(&trial.mechanism).or_default().push(trial);
        }
        let mut missing: BTreeMap<&str, usize> = BTreeMap::new();
        for mechanism in &unpriced {
            *missing.entry(mechanism).or_default() += 1;
            by.entry(mechanism).or_default();
        }
        let every: Vec<&Trial> = trials.iter().collect();
        let mut classes = vec![Class::of("all", &every, unpriced.len())];
        classes.extend(by.iter().map(|(mechanism, trials)| {
            Class::of(mechanism, trials, missing.get(mechanism).copied().unwrap_or(0))
        }));
        Self { kind: "simulated", classes, trials }
    }

    /// The table for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "Predicted against measured (simulated)\n\n\
             {:<44} {:>7} {:>7} {:>9} {:>9} {:>13} {:>12} {:>10}\n",
            "what was done",
            "trials",
            "clear",
            "came late",
            "no price",
            "median error",
            "rank corr.",
            "same sign"
        );
        for class in &self.classes {
            let shown = |value: Option<f64>, digits: usize, unit: &str| {
                value.map_or("–".to_string(), |value| format!("{value:.digits$}{unit}"))
            };
            text += &format!(
                "{:<44} {:>7} {:>7} {:>9} {:>9} {:>13} {:>12} {:>10}\n",
                class.mechanism,
                class.trials,
                class.clear,
                class.came_late,
                class.unpriced,
                shown(class.median_error, 1, " points"),
                shown(class.rank_correlation, 2, ""),
                shown(class.same_sign.map(|share| 100.0 * share), 0, " %"),
            );
        }
        text
    }
}

impl Class {
    fn of(mechanism: &str, trials: &[&Trial], unpriced: usize) -> Self {
        let of = |standing| trials.iter().filter(move |one| one.standing == standing);
        let clear: Vec<&&Trial> = of(Standing::Clear).collect();
        let errors = clear.iter().map(|one| (one.predicted - one.measured).abs()).collect();
        let correlation = |of: &[&&Trial]| {
            let predicted: Vec<f64> = of.iter().map(|one| one.predicted).collect();
            let measured: Vec<f64> = of.iter().map(|one| one.measured).collect();
            rank_correlation(&predicted, &measured).filter(|_| of.len() >= FEWEST)
        };
        let is_trivial = |one: &Trial| one.predicted.abs().max(one.measured.abs()) <= TRIVIAL;
        let all: Vec<&&Trial> = trials.iter().filter(|one| !is_trivial(one)).collect();
        let proven: Vec<&&&Trial> =
            clear.iter().filter(|one| one.measured.abs() > one.noise).collect();
        let same = proven.iter().filter(|one| (one.predicted > 0.0) == (one.measured > 0.0));
        let same = same.count() as f64 / proven.len().max(1) as f64;
        Self {
            mechanism: mechanism.to_string(),
            trials: trials.len(),
            clear: clear.len(),
            came_late: of(Standing::CameLate).count(),
            unpriced,
            median_error: median(errors),
            rank_correlation: correlation(&clear),
            rank_correlation_of_all: correlation(&all),
            same_sign: (!proven.is_empty()).then_some(same),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rondpoint_core::trial::Comparison;
    use rondpoint_core::{CpuSet, Proposal, Reason};

    #[test]
    fn every_policy_that_acts_is_compared() {
        let idle = ["observe", "shuffle"];
        let registered = rondpoint_core::policy::POLICIES.iter().map(|policy| policy.name);
        for name in registered.filter(|name| !idle.contains(name)) {
            assert!(POLICIES.contains(&name), "{name}");
        }
    }

    #[test]
    fn trials_of_a_scene_have_both_numbers() {
        let job = Job::Scene {
            machine: "carrefour-a",
            workload: "read-shared",
            policy: "carrefour",
            seed: 1,
        };
        let ended = job.run().unwrap();
        let report = Report::of(ended.trials, ended.unpriced);
        let all = &report.classes[0];
        assert!(all.trials > 0 && all.median_error.is_some(), "{report:?}");
        assert!(report.text().contains("pages interleaved"), "{}", report.text());
    }

    /// A trial of a process with these changes, in percent.
    fn judged(instructions: (f64, f64), slowest: (f64, f64), plan: u64) -> Judged {
        let change =
            |(change, noise)| Some(Change { change: change / 100.0, noise: noise / 100.0 });
        let nothing = Comparison::between(&[], &[]);
        let (instructions, slowest) = (change(instructions), change(slowest));
        Judged {
            pid: Pid(1),
            policy: "test",
            plans: vec![plan],
            kinds: vec![Kind::Affinity],
            verdict: Verdict::Unclear,
            comparison: Comparison { instructions, slowest, ..nothing },
            predicted: Some(0.0),
        }
    }

    fn ended(workload: &str) -> Ended {
        let scene = catalogue::scene("sam-2", workload, 1).unwrap();
        Ended::of(workload.to_string(), &scene)
    }

    #[test]
    fn instructions_of_threads_that_spin_are_no_work() {
        let judged = judged((4.0, 1.0), (28.0, 1.0), 1);
        let measured = |workload: &str| {
            let mut ended = ended(workload);
            ended.take(&judged);
            ended.trials[0].measured.round()
        };
        assert_eq!(measured("partitioned"), 28.0, "threads spin at barriers");
        assert_eq!(measured("read-shared"), 4.0, "threads have their own share of the work");
        assert_eq!(measured("barriers"), 4.0, "threads sleep at barriers");
    }

    #[test]
    fn a_change_within_the_noise_of_its_trial_says_nothing() {
        let ended = ended("private");
        let of = |predicted, change, noise| {
            let judged = judged((change, noise), (change, noise), 1);
            ended.standing(&judged, judged.speed().unwrap(), predicted / 100.0)
        };
        assert_eq!(of(0.0, 3.6, 12.8), Standing::Unclear);
        assert_eq!(of(0.0, 3.6, 1.0), Standing::Clear, "a gain that was not predicted");
        assert_eq!(of(20.0, 3.6, 12.8), Standing::Clear, "a prediction that the trial excludes");
        assert_eq!(of(1.5, 1.5, 1.0), Standing::Unclear, "trivial");
    }

    /// The kernel moves a thread away from its memory, and a policy moves it back at once. The
    /// windows before the move show the thread at home.
    #[test]
    fn threads_that_have_just_come_are_in_no_window_before_their_move() {
        let move_of = |tid| {
            let action = Action::SetAffinity {
                pid: Pid(1),
                tid: Tid(tid),
                cpus: CpuSet::first(1),
                via: None,
            };
            Proposal { policy: "test", action, reason: Reason::Other("a test".to_string()) }
        };
        let plan = Plan { number: 7, steps: vec![move_of(1), move_of(2)], ..Plan::default() };
        let nodes = |one, two| BTreeMap::from([(Tid(1), one), (Tid(2), two)]);
        let late = |before, now| came_late(&plan, &before, &now);
        assert_eq!(late(nodes(0, 0), nodes(1, 1)), BTreeSet::from([Pid(1)]));
        assert_eq!(late(nodes(0, 0), nodes(0, 1)), BTreeSet::new(), "half of them");
        assert_eq!(late(nodes(1, 1), nodes(1, 1)), BTreeSet::new());
        assert_eq!(late(BTreeMap::new(), nodes(1, 1)), BTreeSet::new(), "not known");
        let mut ended = ended("private");
        ended.late.insert(7, late(nodes(0, 0), nodes(1, 1)));
        let standing = |plan| {
            let judged = judged((0.0, 1.0), (0.0, 1.0), plan);
            ended.standing(&judged, judged.speed().unwrap(), 0.24)
        };
        assert_eq!([standing(7), standing(8)], [Standing::CameLate, Standing::Clear]);
    }
}
