//! `rondpoint-lab predictions`: what the cost model predicted against what the trials of the lab's
//! runs measured, as a page of docs/results.
//!
//! It runs nothing. It reads the JSON that `run`, `demo`, `experiments` and `programs` print, in
//! which each run under Rondpoint has the report with its trials. Programs of the check half keep
//! no reports and so have no trials here.

#[path = "../../../crates/sim/src/rank_correlation.rs"]
mod rank_correlation;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use self::rank_correlation::rank_correlation;
use crate::comparison::median;
use crate::results::{FORMAT, VERDICT, commit, kept_findings, rounded};

/// The page, from the repository's root.
const PAGE: &str = "docs/results/predictions-lab.json";
/// A trial in which both changes are smaller says nothing about the model, percent. The simulator's
/// page has the same bound.
const TRIVIAL: f64 = 2.0;
/// Fewest trials from which a rank correlation says something, as in the simulator.
const FEWEST: usize = 5;
/// Goals: the largest median error, percentage points, and the least rank correlation.
const GOAL_POINTS: f64 = 10.0;
const GOAL_CORRELATION: f64 = 0.8;
/// Ends of both axes, percent.
const RANGE: [f64; 2] = [-50.0, 150.0];

/// What `predictions` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// JSON objects that run, demo, experiments or programs printed with --json
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Writes the page; `./x results` makes the chart.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut found = Found::default();
    for path in &arguments.files {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let value: Value = serde_json::from_str(&text)
            .with_context(|| format!("{}: expected JSON of the lab", path.display()))?;
        found.collect(&value);
    }
    if found.trials.is_empty() {
        bail!("no trial with a prediction in these files; expected runs under Rondpoint");
    }
    let before = std::fs::read(PAGE).ok();
    let before = before.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let page = page(&found, &before.unwrap_or(Value::Null), &commit());
    verdicts(&found.trials).iter().for_each(|sentence| println!("{sentence}"));
    let text = serde_json::to_string_pretty(&page)? + "\n";
    std::fs::write(Path::new(PAGE), text).context(PAGE)?;
    Ok(ExitCode::SUCCESS)
}

/// A trial as Rondpoint's report has it; changes are fractions.
#[derive(Deserialize)]
struct Line {
    policy: String,
    verdict: String,
    noise: Option<f64>,
    predicted: Option<f64>,
    measured: Option<f64>,
}

/// A trial with both numbers, percent.
#[derive(Debug, Clone, PartialEq)]
struct Trial {
    policy: String,
    predicted: f64,
    measured: f64,
    noise: f64,
}

impl Trial {
    /// None where one of both is missing, or the program did something else afterwards.
    fn of(value: &Value) -> Option<Self> {
        let line = Line::deserialize(value).ok().filter(|line| line.verdict != "phase-change")?;
        let (predicted, measured) = (100.0 * line.predicted?, 100.0 * line.measured?);
        let noise = 100.0 * line.noise.unwrap_or_default();
        Some(Self { policy: line.policy, predicted, measured, noise })
    }

    /// Whether one of both changes is more than trivial, and more than the trial's noise.
    fn is_clear(&self) -> bool {
        self.predicted.abs().max(self.measured.abs()) > self.noise.max(TRIVIAL)
    }
}

/// What the files hold.
#[derive(Default)]
struct Found {
    machines: BTreeSet<String>,
    seeds: u64,
    trials: Vec<Trial>,
}

impl Found {
    /// Looks for reports of Rondpoint wherever they are.
    fn collect(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                let report = map.get("trials").filter(|_| map.contains_key("schema"));
                if let Some(trials) = report.and_then(Value::as_array) {
                    self.trials.extend(trials.iter().filter_map(Trial::of));
                    return;
                }
                self.machines.extend(map.get("machine").and_then(Value::as_str).map(str::to_owned));
                self.seeds = self.seeds.max(map.get("seed").and_then(Value::as_u64).unwrap_or(0));
                map.values().for_each(|inner| self.collect(inner));
            }
            Value::Array(list) => list.iter().for_each(|inner| self.collect(inner)),
            _ => {}
        }
    }
}

/// The clear trials among some.
fn clear<'t>(trials: &[&'t Trial]) -> Vec<&'t Trial> {
    trials.iter().copied().filter(|trial| trial.is_clear()).collect()
}

/// Percentage points.
fn median_error(clear: &[&Trial]) -> Option<f64> {
    let error = |trial: &&Trial| (trial.predicted - trial.measured).abs();
    let mut errors: Vec<f64> = clear.iter().map(error).collect();
    errors.sort_by(f64::total_cmp);
    median(&errors)
}

fn correlation(clear: &[&Trial]) -> Option<f64> {
    let predicted: Vec<f64> = clear.iter().map(|trial| trial.predicted).collect();
    let measured: Vec<f64> = clear.iter().map(|trial| trial.measured).collect();
    (clear.len() >= FEWEST).then(|| rank_correlation(&predicted, &measured)).flatten()
}

/// Percent of the trials in which both have the same sign.
fn same_sign(clear: &[&Trial]) -> Option<f64> {
    let alike = clear.iter().filter(|trial| trial.predicted * trial.measured > 0.0).count();
    (!clear.is_empty()).then(|| 100.0 * alike as f64 / clear.len() as f64)
}

fn row(name: &str, trials: &[&Trial]) -> Value {
    let clear = clear(trials);
    let figures = [correlation(&clear), median_error(&clear), same_sign(&clear)];
    let mut cells: Vec<Value> = figures.map(|figure| json!(figure.map(rounded))).to_vec();
    cells.extend([json!(clear.len()), json!(trials.len())]);
    json!({"name": name, "cells": cells})
}

fn verdicts(trials: &[Trial]) -> Vec<String> {
    let all: Vec<&Trial> = trials.iter().collect();
    let clear = clear(&all);
    let said = |goal: &str, found: Option<f64>, met: bool| {
        let how = if met { "met" } else { "missed" };
        let found = found.map_or("unknown".to_owned(), |found| format!("{found:.2}"));
        format!("{VERDICT} {how}: {goal}. It is {found}.")
    };
    let (error, ranks) = (median_error(&clear), correlation(&clear));
    vec![
        said("a median error of at most 10 points", error, error.is_some_and(|e| e <= GOAL_POINTS)),
        said(
            "a rank correlation of at least 0.8",
            ranks,
            ranks.is_some_and(|ranks| ranks >= GOAL_CORRELATION),
        ),
    ]
}

fn page(found: &Found, before: &Value, commit: &str) -> Value {
    let mut policies: BTreeMap<&str, Vec<&Trial>> = BTreeMap::new();
    for trial in &found.trials {
        policies.entry(&trial.policy).or_default().push(trial);
    }
    let all: Vec<&Trial> = found.trials.iter().collect();
    let mut rows = vec![row("all", &all)];
    rows.extend(policies.iter().map(|(policy, trials)| row(policy, trials)));
    let point = |trial: &&Trial| {
        let at = [trial.predicted, trial.measured].map(rounded);
        json!({"series": trial.policy, "at": at})
    };
    let points: Vec<Value> = clear(&all).iter().map(point).collect();
    let mut findings: Vec<Value> = verdicts(&found.trials).into_iter().map(Value::from).collect();
    findings.extend(kept_findings(before));
    json!({
        "format": FORMAT,
        "title": "Cost model in the lab: predicted against measured",
        "about": "Each trial of the lab's runs under Rondpoint. Predicted is the change of speed that the cost \
                  model said before the action, measured is what the trial found. A trial is clear if one of \
                  both is beyond 2 % and beyond the trial's noise. Rows are the policies that proposed.",
        "kind": "emulated",
        "machine": found.machines.iter().cloned().collect::<Vec<_>>().join(", "),
        "seeds": found.seeds.max(1),
        "commit": commit,
        "commands": ["./x lab experiments --seeds 3 --json > FILE", "./x lab predictions FILE"],
        "reference": null,
        "columns": [
            "rank correlation", "median error, points", "same sign, %", "clear trials", "all trials",
        ],
        "rows": rows,
        "scatter": {
            "x": "predicted, %", "y": "measured, %", "range": RANGE, "points": points,
        },
        "findings": findings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of experiments with trials of one run.
    fn found(trials: &Value) -> Found {
        let report = json!({"schema": 1, "policy": "auto", "trials": trials});
        let run = json!({"seed": 3, "rondpoint": report});
        let mut found = Found::default();
        found.collect(&json!({"experiments": [{"machine": "m", "cases": [{"runs": [run]}]}]}));
        found
    }

    fn trial(policy: &str, predicted: f64, measured: f64) -> Value {
        json!({"policy": policy, "verdict": "better", "noise": 0.03, "predicted": predicted,
            "measured": measured, "at_s": 1.0})
    }

    #[test]
    fn trials_are_found_in_reports_and_those_that_say_nothing_are_not_compared() {
        let phase =
            json!({"policy": "sam", "verdict": "phase-change", "predicted": 1, "measured": 2});
        let unpriced =
            json!({"policy": "sam", "verdict": "better", "predicted": null, "measured": 2});
        let trials = json!([trial("sam", 0.2, 0.26), trial("sam", 0.01, 0.02), phase, unpriced]);
        let found = found(&trials);
        assert_eq!((found.seeds, found.trials.len()), (3, 2));
        let page = page(&found, &json!({"findings": ["Goal met: old.", "Ours."]}), "abc");
        assert_eq!(page["machine"], "m");
        assert_eq!(page["rows"][0]["cells"], json!([null, 6.0, 100.0, 1, 2]));
        assert_eq!(page["scatter"]["points"].as_array().map(Vec::len), Some(1));
        let expected = [
            "Goal met: a median error of at most 10 points. It is 6.00.",
            "Goal missed: a rank correlation of at least 0.8. It is unknown.",
            "Ours.",
        ];
        assert_eq!(page["findings"], json!(expected));
    }

    #[test]
    fn ranks_are_compared_over_all_policies_and_for_each() {
        let line = |(index, policy): (usize, &str)| {
            trial(policy, 0.1 * (index + 1) as f64, 0.2 * (index + 1) as f64)
        };
        let policies = ["carrefour", "carrefour", "sam", "sam", "sam"];
        let trials: Vec<Value> = policies.into_iter().enumerate().map(line).collect();
        let page = page(&found(&json!(trials)), &Value::Null, "abc");
        let names: Vec<&Value> =
            page["rows"].as_array().into_iter().flatten().map(|row| &row["name"]).collect();
        assert_eq!(names, ["all", "carrefour", "sam"]);
        assert_eq!(page["rows"][0]["cells"][0], 1.0);
        assert_eq!(page["rows"][1]["cells"][0], Value::Null, "two trials rank nothing");
    }
}
