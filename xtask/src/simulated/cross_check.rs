//! Simulated against emulated gains: the lab's programs, described as workloads, on the machine as
//! the lab emulates it.
//!
//! Emulated gains are read from pages of docs/results. The descriptions never saw them.

use std::fs;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::rank_correlation::rank_correlation;
use super::{Ran, verdict};
use crate::tidy::root;

/// Machine of all these pages, as the lab emulates it.
const MACHINE: &str = "carrefour-a:lab";
/// Seeds of each simulation.
const SEEDS: u32 = 5;
/// Share of one CPU that managed runs are charged: what the lab measured of a manager that watches
/// a busy program, at most (docs/results/manage-cost.md).
const MANAGER_CPU: &str = "0.055";
/// Goal: least rank correlation.
const GOAL: f64 = 0.9;
/// Column to compare. For a page without it, it is the first column.
const COLUMN: &str = "whole run";
/// Names of each placement in the simulator, on the demo's page and on an experiment's page.
const PLACEMENTS: [(&str, &str, &str); 3] = [
    ("interleave", "interleave", "interleave"),
    ("autonuma", "NUMA balancing", "NUMA balancing"),
    ("auto", "Rondpoint", "rondpoint=auto"),
];

/// A file of workloads/lab, the page of its emulated gains, and the program's title if the page has
/// several programs.
const PROGRAMS: [(&str, &str, Option<&str>); 13] = [
    ("kmeans", "demo", Some("k-means")),
    ("stencil", "demo", Some("stencil")),
    ("wellplaced", "demo", Some("well placed")),
    ("bucketsort", "demo", Some("bucket sort")),
    ("lookup", "lookup", None),
    ("pipeline", "pipeline", None),
    ("swap", "swap", None),
    ("bursts", "bursts", None),
    ("crowded", "crowded", None),
    ("crowded-barriers", "crowded-barriers", None),
    ("sixteen-processes", "sixteen-processes", None),
    ("kmeans-wellplaced", "demo-pairs", None),
    ("stencil-bucketsort", "demo-pairs-2", None),
];

/// Sentences about effects that the lab has and the simulator lacks.
const REASONS: [&str; 4] = [
    "Of pipeline, NUMA balancing gains in one of five seeds only: the simulator has none of the \
     kernel's groups of threads that share pages.",
    "Of crowded-barriers, sleepers change CPUs once in an epoch of 50 ms. In the lab they do so at \
     each barrier. So the simulated manager gains less there.",
    "Of pipeline, stencil-bucketsort and sixteen-processes, the emulated runs of Rondpoint charge its \
     work tenfold; they are older than the honest price.",
    "The description of lookup lets three look-ups overlap, as the reorder window does. Whether they \
     overlap in the lab is not tried.",
];

/// The compared part of an emulated experiment.
#[derive(Deserialize)]
struct Emulated {
    columns: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    cells: Vec<Value>,
}

/// The simulator's report on a workload.
#[derive(Deserialize)]
struct Simulated {
    rows: Vec<SimulatedRow>,
}

#[derive(Deserialize)]
struct SimulatedRow {
    policy: String,
    speed_against_first_touch: Vec<Option<f64>>,
}

/// The simulated and emulated gain of one program by one placement.
#[derive(Debug, Clone, PartialEq)]
struct Pair {
    program: &'static str,
    placement: &'static str,
    emulated: f64,
    /// Least, median and largest gain.
    simulated: [f64; 3],
}

impl Emulated {
    fn gain(&self, row: &str) -> Option<f64> {
        let column = self.columns.iter().position(|one| one == COLUMN).unwrap_or(0);
        let cell = self.rows.iter().find(|one| one.name == row)?.cells.get(column)?;
        cell.as_f64().or_else(|| cell.get("median")?.as_f64())
    }
}

impl SimulatedRow {
    fn range(&self) -> Option<[f64; 3]> {
        let speeds: Option<Vec<f64>> = self.speed_against_first_touch.iter().copied().collect();
        let mut speeds = speeds.filter(|speeds| !speeds.is_empty())?;
        speeds.sort_by(f64::total_cmp);
        Some([speeds[0], speeds[speeds.len() / 2], speeds[speeds.len() - 1]])
    }
}

/// Simulates all programs and returns the page.
pub(super) fn run(commit: &str) -> Result<Value> {
    let mut pairs = Vec::new();
    for (program, page, title) in PROGRAMS {
        let path = root().join(format!("docs/results/{page}.json"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let emulated: Emulated = serde_json::from_str(&text).with_context(|| page.to_string())?;
        let workload = format!("workloads/lab/{program}.toml");
        let policies = PLACEMENTS.map(|(policy, _, _)| policy).join(",");
        let ran: Ran<Simulated> = super::simulate(&[
            "--machine",
            MACHINE,
            "--workload",
            &workload,
            "--policy",
            &policies,
            "--runs",
            &SEEDS.to_string(),
            "--manager-cpu",
            MANAGER_CPU,
        ])?;
        let found = compared(program, title, &emulated, &ran.found);
        anyhow::ensure!(!found.is_empty(), "{page}: no gain of {program} to compare with");
        pairs.extend(found);
    }
    Ok(page(&pairs, commit))
}

fn compared(
    program: &'static str,
    title: Option<&str>,
    emulated: &Emulated,
    simulated: &Simulated,
) -> Vec<Pair> {
    let pair = |(policy, of_demo, of_experiment): (&str, &'static str, &str)| {
        let row = title.map_or(of_experiment.to_string(), |title| format!("{of_demo}: {title}"));
        let emulated = emulated.gain(&row)?;
        let simulated = simulated.rows.iter().find(|one| one.policy == policy)?.range()?;
        Some(Pair { program, placement: of_demo, emulated, simulated })
    };
    PLACEMENTS.into_iter().filter_map(pair).collect()
}

fn page(pairs: &[Pair], commit: &str) -> Value {
    let row = |pair: &Pair| {
        let [least, median, most] = pair.simulated;
        json!({"name": format!("{}, {}", pair.program, pair.placement), "cells": [
            pair.emulated, {"median": median, "least": least, "most": most}, median / pair.emulated,
        ]})
    };
    let point =
        |pair: &Pair| json!({"series": pair.placement, "at": [pair.emulated, pair.simulated[1]]});
    let most = pairs.iter().flat_map(|pair| [pair.emulated, pair.simulated[1]]).fold(1.0, f64::max);
    json!({
        "format": 1,
        "title": "Cross-check: simulated against emulated gains",
        "about": format!(
            "Programs of the lab, described for the simulator from their code and the machine file, \
             never from their gains. Speed over the whole run, of first touch. Emulated gains are \
             those of the programs' own pages. Simulated runs of Rondpoint are charged {MANAGER_CPU} \
             of a CPU for the manager, as the lab charges its time."
        ),
        "kind": "simulated",
        "machine": MACHINE,
        "seeds": SEEDS,
        "commit": commit,
        "commands": [
            "./x simulated --only cross-check",
            format!(
                "rondpoint simulate --machine {MACHINE} --workload workloads/lab/PROGRAM.toml \
                 --policy interleave,autonuma,auto --runs {SEEDS} --manager-cpu {MANAGER_CPU}"
            ),
        ],
        "reference": null,
        "columns": ["emulated", "simulated", "simulated over emulated"],
        "rows": pairs.iter().map(row).collect::<Vec<_>>(),
        "scatter": {
            "x": "emulated speed", "y": "simulated speed", "range": [-0.1, most + 0.1],
            "points": pairs.iter().map(point).collect::<Vec<_>>(),
        },
        "findings": findings(pairs),
    })
}

fn findings(pairs: &[Pair]) -> Vec<String> {
    let rho = |chosen: &[&Pair]| {
        let emulated: Vec<f64> = chosen.iter().map(|pair| pair.emulated).collect();
        let simulated: Vec<f64> = chosen.iter().map(|pair| pair.simulated[1]).collect();
        rank_correlation(&emulated, &simulated).unwrap_or(0.0)
    };
    let all: Vec<&Pair> = pairs.iter().collect();
    let whole = rho(&all);
    let mut findings = vec![format!(
        "{}: rank correlation of {GOAL} or more. Reached: {whole:.3} over {} gains of {} programs.",
        verdict(whole >= GOAL),
        pairs.len(),
        PROGRAMS.len()
    )];
    for (_, placement, _) in PLACEMENTS {
        let own: Vec<&Pair> = pairs.iter().filter(|pair| pair.placement == placement).collect();
        findings.push(format!(
            "{placement}: rank correlation {:.2} over {} gains.",
            rho(&own),
            own.len()
        ));
    }
    findings.extend(REASONS.map(str::to_string));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_workload_and_an_emulated_gain() {
        for (program, page, title) in PROGRAMS {
            let workload = root().join(format!("workloads/lab/{program}.toml"));
            assert!(workload.exists(), "{}", workload.display());
            let path = root().join(format!("docs/results/{page}.json"));
            let emulated: Emulated =
                serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            let rows = PLACEMENTS.map(|(policy, _, _)| SimulatedRow {
                policy: policy.to_string(),
                speed_against_first_touch: vec![Some(1.0)],
            });
            let found = compared(program, title, &emulated, &Simulated { rows: rows.into() });
            assert!(found.iter().any(|pair| pair.placement == "Rondpoint"), "{page}: {program}");
        }
    }

    #[test]
    fn a_page_has_each_gain_twice_and_their_rank_correlation() {
        let pair = |program, emulated, simulated: f64| Pair {
            program,
            placement: "Rondpoint",
            emulated,
            simulated: [simulated - 0.1, simulated, simulated + 0.1],
        };
        let pairs = [pair("a", 1.0, 1.1), pair("b", 2.0, 1.5), pair("c", 3.0, 1.4)];
        let json = page(&pairs, "abcdef1").to_string();
        let text = crate::results::page_of("cross-check", &json).unwrap();
        assert!(text.contains("| b, Rondpoint | 2.00 | 1.50 (1.40 to 1.60) | 0.75 |"), "{text}");
        assert!(text.contains("Goal missed: rank correlation of 0.9 or more. Reached: 0.500"));
        assert!(text.contains("charged 0.055 of a CPU for the manager"), "{text}");
    }
}
