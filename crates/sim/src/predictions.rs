//! Compares the cost model's prediction for each trial with the measured change, over workloads,
//! machines and the swarm's cases.
//!
//! The plant does not use the cost model. The trials are those of the controller.

use std::collections::BTreeMap;

use anyhow::Result;
use rondpoint_core::Outcome as StepOutcome;
use rondpoint_core::controller::Step;
use rondpoint_core::host::Witness;
use rondpoint_core::plan::{Kind, Mechanism};
use rondpoint_core::trial::{Judged, Verdict};
use rondpoint_trace::PolicyChoice;
use serde::Serialize;

use crate::catalogue;
use crate::parallel;
use crate::rank_correlation::rank_correlation;
use crate::report::median;
use crate::run;
use crate::swarm::{self, Case, Ranges};
use crate::workload::BUILT_IN;

/// Policies with trials that are compared.
const POLICIES: [&str; 6] = ["auto", "carrefour", "sam", "nmass", "asymsched", "home"];

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
}

/// Trials of one mechanism.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Class {
    pub(crate) mechanism: String,
    pub(crate) trials: usize,
    /// Those of them in which one of both changes is more than trivial: all further numbers are of
    /// these.
    pub(crate) clear: usize,
    /// Of the trials that ended with a measurement: those without a prediction.
    pub(crate) unpriced: usize,
    /// Median of the distance between both, percentage points.
    pub(crate) median_error: Option<f64>,
    /// Spearman's, where there are enough trials.
    pub(crate) rank_correlation: Option<f64>,
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
    trials: Vec<Trial>,
    unpriced: Vec<String>,
}

impl Witness for Ended {
    fn step(&mut self, step: &Step, _: &[StepOutcome]) {
        for judged in &step.judged {
            self.take(judged);
        }
    }
}

impl Ended {
    fn of(scene: String) -> Self {
        Self { scene, trials: Vec::new(), unpriced: Vec::new() }
    }

    fn take(&mut self, judged: &Judged) {
        // A program that does something else now cannot be compared.
        let Some(speed) = judged.speed().filter(|_| judged.verdict != Verdict::PhaseChange) else {
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
        });
    }
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
                let mut ended = Ended::of(format!("{workload} on {machine}"));
                run::managed(&scene, &[PolicyChoice::parse(policy)], &mut ended)?;
                Ok(ended)
            }
            Self::Case(seed) => {
                let mut case = Case::draw(*seed, &Ranges::frozen());
                (case.faults, case.policy) = (None, "auto".to_string());
                let mut ended = Ended::of(format!("case {seed}"));
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
            "Predicted against measured (simulated)\n\n{:<44} {:>7} {:>7} {:>9} {:>13} {:>12} {:>10}\n",
            "what was done",
            "trials",
            "clear",
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
                "{:<44} {:>7} {:>7} {:>9} {:>13} {:>12} {:>10}\n",
                class.mechanism,
                class.trials,
                class.clear,
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
        let is_clear =
            |one: &&&Trial| one.predicted.abs() > TRIVIAL || one.measured.abs() > TRIVIAL;
        let clear: Vec<&&Trial> = trials.iter().filter(is_clear).collect();
        let errors = clear.iter().map(|one| (one.predicted - one.measured).abs()).collect();
        let predicted: Vec<f64> = clear.iter().map(|one| one.predicted).collect();
        let measured: Vec<f64> = clear.iter().map(|one| one.measured).collect();
        let correlation = rank_correlation(&predicted, &measured);
        let proven: Vec<&&&Trial> =
            clear.iter().filter(|one| one.measured.abs() > one.noise).collect();
        let same = proven.iter().filter(|one| (one.predicted > 0.0) == (one.measured > 0.0));
        let same = same.count() as f64 / proven.len().max(1) as f64;
        Self {
            mechanism: mechanism.to_string(),
            trials: trials.len(),
            clear: clear.len(),
            unpriced,
            median_error: median(errors),
            rank_correlation: correlation.filter(|_| clear.len() >= FEWEST),
            same_sign: (!proven.is_empty()).then_some(same),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
