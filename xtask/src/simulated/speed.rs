//! How fast the simulator is, as a page of docs/results.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Ran, verdict};

/// Machine of the goal: 64 nodes and 1,024 CPUs. [`WORKLOAD`] has 20,000 threads.
const MACHINE: &str = "nodes=64 cpus=16 memory=8G";
const WORKLOAD: &str = "workloads/large/twenty-thousand.toml";
const LARGE: &str = "64 nodes, 1,024 CPUs, 20,000 threads";
/// CPU seconds that the evaluation may take: ten seconds of two cores.
const EVALUATION_S: f64 = 20.0;

#[derive(Deserialize)]
struct Comparison {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    processes: Vec<Process>,
}

#[derive(Deserialize)]
struct Process {
    seconds: Option<f64>,
}

/// A run and its cost.
struct Timed {
    name: String,
    simulated_s: f64,
    cpu_s: f64,
}

impl Comparison {
    /// Simulated seconds of the last row.
    fn seconds(&self) -> Result<f64> {
        let run = self.rows.last().and_then(|row| row.runs.first()).context("expected a run")?;
        let mut ends = run.processes.iter().map(|process| process.seconds.context("given up"));
        ends.try_fold(0.0, |most: f64, end| Ok(most.max(end?)))
    }
}

/// Measures and returns the page.
pub(super) fn run(commit: &str) -> Result<Value> {
    let large = |policy: &str| -> Result<Ran<Comparison>> {
        super::simulate(&["--machine", MACHINE, "--workload", WORKLOAD, "--policy", policy])
    };
    let plain = large("first-touch")?;
    // Every comparison runs first touch too.
    let both = large("auto")?;
    let timed = |policy: &str, found: &Comparison, cpu_s: f64| -> Result<Timed> {
        let name = format!("{LARGE}, {policy}");
        Ok(Timed { name, simulated_s: found.seconds()?, cpu_s })
    };
    let runs = [
        timed("first touch", &plain.found, plain.cpu_s)?,
        timed("auto", &both.found, both.cpu_s - plain.cpu_s)?,
    ];
    let evaluation: Ran<Value> = super::simulate(&["--reproduce", "carrefour", "--draws", "1"])?;
    Ok(page(&runs, evaluation.cpu_s, commit))
}

fn page(runs: &[Timed], evaluation_s: f64, commit: &str) -> Value {
    let row = |run: &Timed| {
        let cells = [run.cpu_s / run.simulated_s, run.cpu_s, run.simulated_s];
        json!({"name": run.name, "cells": cells})
    };
    let mut rows: Vec<Value> = runs.iter().map(row).collect();
    rows.push(json!({
        "name": "Carrefour's tables and evaluation, one draw", "cells": [null, evaluation_s, null],
    }));
    let mut findings: Vec<String> = runs
        .iter()
        .map(|run| {
            let ratio = run.cpu_s / run.simulated_s;
            let verdict = verdict(ratio < 1.0);
            format!("{verdict}: {} faster than real time. A second took {ratio:.2} s.", run.name)
        })
        .collect();
    findings.push(format!(
        "{}: Carrefour's evaluation in 10 s on two cores. Its CPU time was {evaluation_s:.1} s, with \
         the tables.",
        verdict(evaluation_s < EVALUATION_S)
    ));
    json!({
        "format": 1,
        "title": "How fast the simulator runs",
        "about": "A run is one thread, and runs go side by side. CPU time is measured on a machine \
                  with other work, so it is an upper bound.",
        "kind": "simulated",
        "machine": MACHINE,
        "seeds": 1,
        "commit": commit,
        "commands": [
            "./x simulated --only speed".to_string(),
            format!("rondpoint simulate --machine '{MACHINE}' --workload {WORKLOAD} --policy auto"),
            "rondpoint simulate --reproduce carrefour --draws 1".to_string(),
        ],
        "reference": 1.0,
        "columns": ["CPU seconds in a simulated second", "CPU time, s", "simulated, s"],
        "rows": rows,
        "findings": findings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_that_takes_longer_than_one_misses_the_goal() {
        let run = |name: &str, cpu_s| Timed { name: name.to_string(), simulated_s: 10.0, cpu_s };
        let json = page(&[run("quick", 5.0), run("slow", 15.0)], 12.0, "abcdef1").to_string();
        let text = crate::results::page_of("simulator-speed", &json).unwrap();
        for expected in [
            "| slow | 1.50 | 15.00 | 10.00 |",
            "Goal met: quick faster than real time.",
            "Goal missed: slow faster than real time. A second took 1.50 s.",
            "Goal met: Carrefour's evaluation",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn a_run_ends_with_its_last_process() {
        let text = r#"{"rows": [{"runs": []},
            {"runs": [{"processes": [{"seconds": 2.0}, {"seconds": 3.5}]}]}]}"#;
        let found: Comparison = serde_json::from_str(text).unwrap();
        assert_eq!(found.seconds().unwrap(), 3.5);
        let found: Comparison = serde_json::from_str(&text.replace("3.5", "null")).unwrap();
        assert!(found.seconds().is_err());
    }
}
