//! An experiment as the JSON of docs/results, from which `./x results` makes a page and a chart.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::measure::{CaseReport, ExperimentReport, Report};
use super::render;
use crate::results::{FORMAT, cell, commit};

/// Writes one file for each experiment of the reports into `folder`. The title and the findings of
/// a file that is there already stay.
///
/// # Errors
/// A program failed in a report, or a file cannot be written.
pub(super) fn write(reports: &[Report], folder: &Path) -> Result<()> {
    for report in reports {
        if let Some(failure) = report.failures.first() {
            bail!("{failure}: a result of runs that failed is none");
        }
        for experiment in &report.experiments {
            let path = folder.join(format!("{}.json", experiment.name));
            let before = std::fs::read(&path).ok();
            let before = before.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
            let object = object(experiment, before.as_ref().unwrap_or(&Value::Null), &commit());
            let text = serde_json::to_string_pretty(&object)? + "\n";
            std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

fn object(experiment: &ExperimentReport, before: &Value, commit: &str) -> Value {
    let seeds = experiment.cases.first().map_or(0, |case| case.runs.len());
    let kept = |key: &str, or: Value| before.get(key).cloned().unwrap_or(or);
    let rows: Vec<Value> = render::told(experiment)
        .into_iter()
        .map(|case| json!({"name": render::name(experiment, case), "cells": cells(experiment, case)}))
        .collect();
    let mut commands =
        vec![format!("./x lab experiments {} --seeds {seeds} --json", experiment.name)];
    commands.extend(experiment.cases.first().map(|first| {
        let managed: Vec<String> =
            experiment.managed().map(|case| case.configuration.clone()).collect();
        let (kernel, spread) =
            if experiment.copies { (" --kernel replication", ",interleave") } else { ("", "") };
        format!(
            "./x lab run --machine {}{kernel} --config first-touch{spread},{} -- {}",
            experiment.machine,
            managed.join(","),
            quoted(&first.command)
        )
    }));
    json!({
        "format": FORMAT,
        "title": kept("title", json!(experiment.name)),
        "about": format!("{}. Each run takes {} guest seconds.", experiment.about, experiment.seconds),
        "kind": "emulated",
        "machine": experiment.machine,
        "seeds": seeds,
        "commit": commit,
        "commands": commands,
        "reference": 1.0,
        "columns": columns(experiment),
        "rows": rows,
        "findings": kept("findings", json!([])),
    })
}

fn columns(experiment: &ExperimentReport) -> Vec<&'static str> {
    let mut columns = vec![
        "speed in the last third, of Linux",
        "whole run",
        "slowest program",
        "spread",
        "first, last action",
    ];
    if experiment.copies {
        columns.extend(render::COPIES);
    }
    columns
}

fn cells(experiment: &ExperimentReport, case: &CaseReport) -> Vec<Value> {
    let mut cells: Vec<Value> = [case.speed, case.whole, case.least, case.spread].map(cell).into();
    let actions = render::actions(case);
    cells.push(if actions.is_empty() { Value::Null } else { json!(actions) });
    if experiment.copies {
        let speeds = render::of_copies(case);
        cells.extend(speeds.map(cell));
    }
    cells
}

/// As a shell takes it.
fn quoted(command: &[String]) -> String {
    let word = |word: &String| {
        if word.contains(' ') { format!("'{word}'") } else { word.clone() }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Speed;

    fn report(failures: &[&str]) -> Report {
        let speed = |median, least, most| Some(Speed { median, least, most });
        let case = |name: &str, speed| CaseReport {
            name: name.to_string(),
            configuration: name.to_string(),
            command: vec!["mix".to_string(), "a b".to_string()],
            runs: Vec::new(),
            speed,
            whole: None,
            least: None,
            spread: None,
        };
        let experiment = ExperimentReport {
            name: "x".to_string(),
            about: "Two threads".to_string(),
            machine: "sam-2".to_string(),
            slow_motion: 10.0,
            seconds: 2,
            programs: Vec::new(),
            copies: false,
            best_fixed: None,
            cases: vec![
                case("Linux", speed(1.0, 1.0, 1.0)),
                case("rondpoint=auto", speed(1.4567, 1.2, 1.5)),
            ],
        };
        Report {
            format: 1,
            origin: "emulated".to_string(),
            seeds: 3,
            experiments: vec![experiment],
            failures: failures.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn numbers_are_written_anew_and_what_was_learnt_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.json");
        std::fs::write(&path, r#"{"title": "Ours", "findings": ["It helps."]}"#).expect("written");
        write(&[report(&[])], folder.path()).expect("written");
        let found: Value =
            serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
        assert_eq!((&found["title"], &found["findings"][0]), (&json!("Ours"), &json!("It helps.")));
        let range = json!({"median": 1.46, "least": 1.2, "most": 1.5});
        assert_eq!(found["rows"][1]["cells"], json!([range, null, null, null, null]));
        let command =
            "./x lab run --machine sam-2 --config first-touch,rondpoint=auto -- mix 'a b'";
        assert_eq!(found["commands"][1], command);
        let error = write(&[report(&["seed 2 crashed"])], folder.path()).expect_err("failed");
        assert!(error.to_string().contains("seed 2 crashed"), "{error}");
    }
}
