//! The demonstration as the JSON of docs/results. `./x results` makes a page and a chart of it.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::Report;
use crate::comparison::Speed;
use crate::results::{FORMAT, cell, commit};

/// The placements that have rows, with their titles.
const ROWS: [(&str, &str); 3] =
    [("rondpoint", "Rondpoint"), ("interleave", "interleave"), ("autonuma", "NUMA balancing")];

/// Writes the file. What the demonstration says at its end are the findings.
///
/// # Errors
/// A program failed, or the file cannot be written.
pub(super) fn write(report: &Report, path: &Path) -> Result<()> {
    if let Some(failure) = report.failures.first() {
        bail!("{failure}: a result of runs that failed is none");
    }
    let text = serde_json::to_string_pretty(&object(report, &commit()))? + "\n";
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn object(report: &Report, commit: &str) -> Value {
    let row = |title: &str, name: &str, third: Option<Speed>, whole: Option<Speed>| json!({"name": format!("{title}: {name}"), "cells": [cell(third), cell(whole)]});
    let mut rows = Vec::new();
    for program in &report.programs {
        for (name, title) in ROWS {
            let of = program.configurations.iter().find(|one| one.name == name);
            rows.extend(of.map(|one| row(title, program.title, one.last_third, one.speed)));
        }
    }
    for (name, title) in ROWS {
        let of = report.means.iter().find(|mean| mean.configuration == name);
        rows.extend(of.map(|mean| row(title, "geometric mean", mean.last_third, mean.speed)));
    }
    json!({
        "format": FORMAT,
        "title": "The demo: four programs under five placements",
        "about": "Four programs, each begun with first touch and NUMA balancing off. The third rival, \
                  numad, has no rows: it leaves programs of this size alone.",
        "kind": report.origin,
        "machine": report.machine,
        "seeds": report.seeds,
        "commit": commit,
        "commands": [format!("./x demo --seeds {}", report.seeds)],
        "reference": 1.0,
        "columns": ["speed in the last third, of first touch", "whole run"],
        "rows": rows,
        "findings": report.closing.sentences,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn every_program_has_rows_and_the_findings_are_what_the_demonstration_says() {
        let report = sample(1);
        let object = object(&report, "abc");
        let names: Vec<&str> = object["rows"]
            .as_array()
            .expect("rows")
            .iter()
            .filter_map(|row| row["name"].as_str())
            .collect();
        assert_eq!(names.len(), ROWS.len() * (report.programs.len() + 1));
        let row = names.iter().position(|name| *name == "Rondpoint: geometric mean");
        assert_eq!(object["rows"][row.expect("is there")]["cells"], json!([4.0, 4.0]));
        assert_eq!(object["findings"], json!(report.closing.sentences));
    }

    #[test]
    fn runs_that_failed_are_no_result() {
        let mut report = sample(1);
        report.failures.push("k-means failed".to_owned());
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("demo.json");
        assert!(write(&report, &path).is_err() && !path.exists());
    }
}
