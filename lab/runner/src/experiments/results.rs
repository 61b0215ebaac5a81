//! An experiment as the JSON of docs/results, from which `./x results` makes a page and a chart.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::case::{DRY_RUN, OBSERVE};
use super::measure::{CaseReport, ExperimentReport, Report};
use super::render;
use crate::results::{FORMAT, cell, commit};
use crate::watching::{self, Head, Watched};

/// The page of all experiments that were only watched.
const WATCHING: &str = "watching";

/// Writes one file for each experiment of the reports into `folder`, and one for all that were only
/// watched. The title and the findings of a file that is there already stay.
///
/// # Errors
/// A program failed in a report, watched ones have different seeds or one name, or a file cannot be
/// written.
pub(super) fn write(reports: &[Report], folder: &Path) -> Result<()> {
    for report in reports {
        if let Some(failure) = report.failures.first() {
            bail!("{failure}: a result of runs that failed is none");
        }
        for experiment in report.experiments.iter().filter(|one| !one.watched) {
            replace(&folder.join(format!("{}.json", experiment.name)), |before| {
                object(experiment, before, &commit())
            })?;
        }
    }
    let watched = |report: &&Report| report.experiments.iter().any(|one| one.watched);
    let reports: Vec<&Report> = reports.iter().filter(watched).collect();
    let Some(first) = reports.first() else { return Ok(()) };
    if reports.iter().any(|report| report.seeds != first.seeds) {
        bail!("watched programs with different numbers of seeds do not make one page");
    }
    let all = reports.iter().flat_map(|report| &report.experiments).filter(|one| one.watched);
    let mut names: Vec<&str> = all.map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("{}: watched in two of the reports", pair[0]);
    }
    replace(&folder.join(format!("{WATCHING}.json")), |before| {
        object_of_watching(&reports, before, &commit())
    })
}

/// Writes a file from what it holds; from nothing where it is missing.
fn replace(path: &Path, make: impl FnOnce(&Value) -> Value) -> Result<()> {
    let before = std::fs::read(path).ok();
    let before = before.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let text = serde_json::to_string_pretty(&make(&before.unwrap_or(Value::Null)))? + "\n";
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn object_of_watching(reports: &[&Report], before: &Value, commit: &str) -> Value {
    let all = reports.iter().flat_map(|report| &report.experiments);
    let experiments: Vec<&ExperimentReport> = all.filter(|one| one.watched).collect();
    let names: Vec<&str> = experiments.iter().map(|one| one.name.as_str()).collect();
    let mut machines: Vec<&str> = experiments.iter().map(|one| one.machine.as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    let seeds = reports.first().map_or(0, |report| report.seeds);
    let head = Head {
        of: "the lab's programs",
        machine: machines.join(", "),
        seeds,
        command: format!(
            "./x lab experiments {} --watched --seeds {seeds} --json",
            names.join(" ")
        ),
    };
    let row = |experiment: &&ExperimentReport| Watched {
        title: experiment.name.clone(),
        observe: experiment.price(OBSERVE),
        dry_run: experiment.price(DRY_RUN),
    };
    let rows: Vec<Watched> = experiments.iter().map(row).collect();
    watching::object(&head, &rows, before, commit)
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
        let free = experiment.cases.iter().skip(1).filter(|case| !case.name.starts_with("fixed "));
        let others: String = free.map(|case| format!(",{}", case.configuration)).collect();
        let kernel = if experiment.copies { " --kernel replication" } else { "" };
        format!(
            "./x lab run --machine {}{kernel} --config first-touch{others} -- {}",
            experiment.machine,
            quoted(&first.command)
        )
    }));
    let fixed = experiment.best_fixed.as_ref();
    let fixed = fixed.map_or("", |_| " Fixed placements other than the best have one seed.");
    json!({
        "format": FORMAT,
        "title": kept("title", json!(experiment.name)),
        "about": format!(
            "{}. Each run takes {} guest seconds.{fixed}",
            experiment.about, experiment.seconds
        ),
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
            watched: false,
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
        let mut watched = report(&[]);
        watched.experiments[0].watched = true;
        watched.experiments[0].cases[1].name = OBSERVE.to_string();
        watched.experiments[0].cases[1].whole =
            Some(Speed { median: 0.9876, least: 0.98, most: 0.99 });
        write(&[watched], folder.path()).expect("written");
        let page = std::fs::read(folder.path().join("watching.json")).expect("one for all");
        let page: Value = serde_json::from_slice(&page).expect("JSON");
        assert_eq!(page["rows"][0]["cells"][0]["median"], 0.988);
        assert_eq!(page["commands"][0], "./x lab experiments x --watched --seeds 3 --json");
        let again: Value =
            serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
        assert_eq!(again, found, "the page of the experiment itself stays");
        let mut twice = [report(&[]), report(&[])];
        twice.iter_mut().for_each(|one| one.experiments[0].watched = true);
        let error = write(&twice, folder.path()).expect_err("two rows of one name");
        assert_eq!(error.to_string(), "x: watched in two of the reports");
        let error = write(&[report(&["seed 2 crashed"])], folder.path()).expect_err("failed");
        assert!(error.to_string().contains("seed 2 crashed"), "{error}");
    }
}
