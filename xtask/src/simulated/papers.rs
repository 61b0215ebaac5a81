//! A paper's published numbers against simulated ones, as a page of docs/results.

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Ran, verdict};

/// `(paper, title of its page)` of the papers that the simulator reproduces.
pub(super) const PAPERS: [(&str, &str); 4] = [
    ("carrefour", "Carrefour's tables: published against simulated"),
    ("nmass", "N-MASS: published against simulated"),
    ("asymsched", "AsymSched: published against simulated"),
    ("sam", "SAM: published against simulated"),
];

/// The published part of the simulator's report on a paper.
#[derive(Deserialize)]
pub(super) struct Report {
    machine: String,
    draws: u64,
    cells: Vec<Cell>,
    goals: Vec<Goal>,
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct Cell {
    table: String,
    row: String,
    column: String,
    unit: String,
    digits: usize,
    kind: Use,
    published: Option<f64>,
    simulated: f64,
    interval: [f64; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Use {
    Baseline,
    Prediction,
    Illustration,
}

#[derive(Deserialize)]
struct Goal {
    goal: String,
    reached: String,
    met: bool,
    /// What misses it, by name, with both values.
    misses: Vec<String>,
}

/// Unit of a matrix's cells, of which a page shows the largest error only.
const MATRIX: &str = "GB/s";

impl Use {
    fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Prediction => "prediction",
            Self::Illustration => "illustration, not scored",
        }
    }
}

impl Cell {
    fn row(&self) -> Value {
        let Self { digits, unit, interval: [low, high], .. } = self;
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let simulated = format!("{:.digits$} ({low:.digits$} to {high:.digits$})", self.simulated);
        let published = self.published.map(|value| format!("{value:.digits$}{unit}"));
        let error = self.published.map(|value| format!("{:+.digits$}", self.simulated - value));
        json!({
            "name": format!("{}: {}, {}", self.table, self.row, self.column),
            "cells": [published, simulated, error, self.kind.name()],
        })
    }
}

/// The page of a paper. Its plot has the unit of most predictions.
pub(super) fn page(paper: &str, title: &str, ran: &Ran<Report>, commit: &str) -> Value {
    let report = &ran.found;
    let told = report.cells.iter().filter(|cell| cell.unit != MATRIX);
    json!({
        "format": 1,
        "title": title,
        "about": "A baseline is a number without a policy, or one that a parameter was fitted on. A \
                  prediction is every other, and no fit reads it. Inputs that no source fixes are \
                  drawn between bounds: the table has the median and the range of the draws.",
        "kind": "simulated",
        "machine": report.machine,
        "seeds": report.draws,
        "commit": commit,
        "commands": [
            "./x simulated --only papers",
            format!("rondpoint simulate --reproduce {paper} --draws {}", report.draws),
        ],
        "reference": null,
        "columns": ["published", "simulated", "error", "the published number is a"],
        "rows": told.map(Cell::row).collect::<Vec<_>>(),
        "scatter": scatter(&report.cells),
        "findings": findings(report, ran.cpu_s),
    })
}

fn scatter(cells: &[Cell]) -> Value {
    let percent = cells.iter().any(|cell| cell.kind == Use::Prediction && cell.unit == "%");
    let (unit, least, margin) = if percent { ("%", -10.0, 10.0) } else { ("x", -0.2, 0.2) };
    let drawn = || cells.iter().filter(move |cell| cell.unit == unit);
    let points: Vec<Value> = drawn()
        .filter_map(|cell| {
            let at = [cell.published?, cell.simulated];
            Some(json!({"series": cell.kind.name(), "at": at}))
        })
        .collect();
    let values = drawn().flat_map(|cell| [cell.published.unwrap_or(0.0), cell.simulated]);
    let (low, high) = values.fold((least, -least), |(low, high): (f64, f64), value| {
        (low.min(value - margin), high.max(value + margin))
    });
    let named = if percent { "gain, %" } else { "speed-up" };
    json!({
        "x": format!("published {named}"), "y": format!("simulated {named}"),
        "range": [low, high], "points": points,
    })
}

fn findings(report: &Report, cpu_s: f64) -> Vec<String> {
    let mut findings = Vec::new();
    for Goal { goal, reached, met, misses } in &report.goals {
        findings.push(format!("{}: {goal}. Reached: {reached}.", verdict(*met)));
        findings.extend(misses.iter().map(|miss| format!("Not reached by {miss}.")));
    }
    let matrix = || report.cells.iter().filter(|cell| cell.unit == MATRIX);
    let errors = matrix().filter_map(|cell| Some((cell.simulated - cell.published?).abs()));
    let largest = errors.fold(0.0, f64::max);
    if matrix().count() > 0 {
        findings.push(format!(
            "The bandwidths of {} pairs of nodes are baselines. The largest error is {largest:.2} {MATRIX}.",
            matrix().count()
        ));
    }
    findings.extend(report.notes.iter().cloned());
    findings
        .push(format!("CPU time: {cpu_s:.0} s, all cores together, on a machine with other work."));
    findings
}

/// Runs a paper's experiments and returns its page.
pub(super) fn run(paper: &str, title: &str, commit: &str) -> Result<Value> {
    let ran: Ran<Report> = super::simulate(&["--reproduce", paper])?;
    Ok(page(paper, title, &ran, commit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"machine": "m", "draws": 3, "notes": ["A note."],
        "goals": [{"goal": "g", "reached": "1 of 2", "met": false, "misses": ["P: 1 or 2"]},
        {"goal": "h", "reached": "all", "met": true, "misses": []}], "cells": [
        {"table": "T", "row": "P", "column": "all", "unit": "%", "digits": 0, "kind": "prediction",
         "published": 184.0, "simulated": 126.4, "interval": [118.0, 140.0]},
        {"table": "T", "row": "Q", "column": "all", "unit": "%", "digits": 0, "kind": "illustration",
         "published": null, "simulated": 12.0, "interval": [11.0, 13.0]},
        {"table": "T", "row": "0 from 1", "column": "", "unit": "GB/s", "digits": 1, "kind": "baseline",
         "published": 5.6, "simulated": 5.5, "interval": [5.5, 5.5]}]}"#;

    #[test]
    fn a_page_has_published_and_simulated_numbers_and_missed_goals() {
        let ran = Ran { found: serde_json::from_str(REPORT).unwrap(), cpu_s: 2.0 };
        let json = page("p", "Title", &ran, "abcdef1").to_string();
        let text = crate::results::page_of("reproduce-p", &json).unwrap();
        for expected in [
            "| T: P, all | 184 % | 126 (118 to 140) | -58 | prediction |",
            "| T: Q, all | – | 12 (11 to 13) | – | illustration, not scored |",
            "- Goal missed: g. Reached: 1 of 2.\n- Not reached by P: 1 or 2.",
            "- Goal met: h. Reached: all.",
            "The largest error is 0.10 GB/s.",
            "- A note.",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("0 from 1"), "{text}");
    }
}
