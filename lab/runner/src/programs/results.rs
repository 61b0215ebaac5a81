//! The suite as the JSON of docs/results, from which `./x results` makes a page and a chart.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::definition::Half;
use super::render::first_action;
use super::report::{COPIES, DRY_RUN, OBSERVE, ProgramReport, RONDPOINT, Report};
use crate::comparison::Speed;
use crate::results::{FORMAT, cell, commit, rounded};
use crate::watching::{self, Head, Price, Watched};

/// The columns behind Rondpoint's: configuration and title.
const RIVALS: [(&str, &str); 3] =
    [("interleave", "interleave"), ("autonuma", "NUMA balancing"), ("numad", "numad")];

/// Where the results of a report are kept, from the repository's root. Programs that ran with
/// copies of their files have a page of their own, and so has what watching costs.
pub(super) fn path_of(report: &Report) -> PathBuf {
    let names: Vec<&str> = report.programs.iter().map(|program| program.name.as_str()).collect();
    if report.has_copies() {
        return PathBuf::from(format!("docs/results/replicated-{}.json", names.join("-")));
    }
    let name = if report.is_watched() { "watching-programs" } else { "programs" };
    PathBuf::from(format!("docs/results/{name}.json"))
}

/// Writes the file. The findings of one that is there already stay.
///
/// # Errors
/// Programs were watched beside placements that act, or the file cannot be written.
pub(super) fn write(report: &Report, path: &Path) -> Result<()> {
    if report.is_mixed() {
        let found = report.configurations().join(",");
        bail!("{OBSERVE} and {DRY_RUN}: expected first-touch alone beside them, got {found}");
    }
    let before = std::fs::read(path).ok();
    let before = before.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let findings = before.and_then(|value| value.get("findings").cloned());
    let make = match (report.has_copies(), report.is_watched()) {
        (true, _) => object_of_copies,
        (false, true) => object_of_watching,
        (false, false) => object,
    };
    let object = make(report, findings.unwrap_or_else(|| json!([])), &commit());
    let text = serde_json::to_string_pretty(&object)? + "\n";
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn object(report: &Report, findings: Value, commit: &str) -> Value {
    let mut rows = Vec::new();
    for (half, title) in [(Half::Open, "open"), (Half::Check, "check")] {
        let programs = report.programs.iter().filter(|program| program.half == half);
        rows.extend(programs.map(|program| row(program, title)));
        rows.push(mean_row(report, Some(half), &format!("geometric mean of the {title} half")));
    }
    rows.push(mean_row(report, None, "geometric mean"));
    let rivals = RIVALS.map(|rival| rival.1);
    let own = ["Rondpoint, whole run", "its last third"];
    let columns = [&own[..], &rivals, &["seconds of first touch", "first action"]].concat();
    let versions: Vec<String> =
        report.programs.iter().flat_map(|program| program.packages.clone()).collect();
    json!({
        "format": FORMAT,
        "title": "Real programs",
        "about": format!(
            "{} programs of Debian's packages under first touch, its rivals and Rondpoint; speeds are \
             relative to first touch. The check half was named before its first run; deciding is not \
             developed on it. What each program does is in lab/programs. Packages: {}.",
            report.programs.len(),
            versions.join(", ")
        ),
        "kind": "emulated",
        "machine": report.machine,
        "seeds": report.seeds,
        "commit": commit,
        "commands": [command(report)],
        "reference": 1.0,
        "columns": columns,
        "rows": rows,
        "findings": findings,
    })
}

/// The command that ran what is in the report, program by program.
fn command(report: &Report) -> String {
    let names: Vec<&str> = report.programs.iter().map(|program| program.name.as_str()).collect();
    format!(
        "./x lab programs {} --config {} --seeds {} --json",
        names.join(" "),
        report.configurations().join(","),
        report.seeds
    )
}

/// What watching costs each program.
fn object_of_watching(report: &Report, findings: Value, commit: &str) -> Value {
    let head = Head {
        of: "real programs",
        machine: report.machine.clone(),
        seeds: report.seeds,
        command: command(report),
    };
    let price = |program: &ProgramReport, configuration: &str| {
        program.of(configuration).map_or_else(Price::default, |one| Price {
            work: one.speed,
            cpu_percent: Speed::of(one.runs.iter().map(|run| run.manager.cpu_percent)),
        })
    };
    let row = |program: &ProgramReport| Watched {
        title: program.title.clone(),
        observe: price(program, OBSERVE),
        dry_run: price(program, DRY_RUN),
    };
    let rows: Vec<Watched> = report.programs.iter().map(row).collect();
    watching::object(&head, &rows, &json!({"findings": findings}), commit)
}

/// Programs that map a file, with copies of it and with other placements of it.
fn object_of_copies(report: &Report, findings: Value, commit: &str) -> Value {
    let versions: Vec<String> =
        report.programs.iter().flat_map(|program| program.packages.clone()).collect();
    let names: Vec<String> = report
        .programs
        .iter()
        .map(|program| format!("lab/programs/replicated/{}.toml", program.name))
        .collect();
    let titles: Vec<&str> = report.programs.iter().map(|program| program.title.as_str()).collect();
    json!({
        "format": FORMAT,
        "title": format!("Copies of a mapped file: {}", titles.join(", ")),
        "about": format!(
            "Programs whose processes are bound to nodes and map one read-only file, with a copy on each \
             node (rondpoint run --replicate) and without. Speeds are relative to first touch, where one \
             node holds the file. The last third is of rounds of work. Where the file is interleaved, it \
             was so from the beginning. Packages: {}.",
            versions.join(", ")
        ),
        "kind": "emulated",
        "machine": report.machine,
        "seeds": report.seeds,
        "commit": commit,
        "commands": [format!(
            "./x lab programs {} --config {} --seeds {} --json",
            names.join(" "),
            report.configurations().join(","),
            report.seeds
        )],
        "reference": 1.0,
        "columns": [
            "copies, whole run", "its last third", "interleave, whole run", "its last third",
            "Rondpoint without copies, whole run", "its last third", "seconds of first touch",
            "local accesses with copies, last third, %",
        ],
        "rows": report.programs.iter().map(row_of_copies).collect::<Vec<_>>(),
        "findings": findings,
    })
}

fn row_of_copies(program: &ProgramReport) -> Value {
    let mut cells = Vec::new();
    for name in [COPIES, "interleave", RONDPOINT] {
        cells.extend([
            cell(program.speed(name)),
            cell(program.of(name).and_then(|one| one.last_third)),
        ]);
    }
    let first = |name: &str| program.of(name).and_then(|one| one.runs.first());
    cells.push(first("first-touch").map_or(Value::Null, |run| json!(rounded(run.seconds))));
    let local = first(COPIES).and_then(|run| run.late_local_percent);
    cells.push(local.map_or(Value::Null, |percent| json!(rounded(percent))));
    json!({"name": program.title, "cells": cells})
}

fn row(program: &ProgramReport, half: &str) -> Value {
    let third = program.of(RONDPOINT).and_then(|one| one.last_third);
    let mut cells = vec![cell(program.speed(RONDPOINT)), cell(third)];
    cells.extend(RIVALS.iter().map(|(name, _)| match program.of(name) {
        Some(one) if one.idle.is_some() => json!("did not act"),
        Some(one) => cell(one.speed),
        None => Value::Null,
    }));
    let base = program.of("first-touch").and_then(|one| one.runs.first());
    cells.push(base.map_or(Value::Null, |run| json!(rounded(run.seconds))));
    cells.push(json!(first_action(program)));
    json!({"name": format!("{} ({half})", program.title), "cells": cells})
}

fn mean_row(report: &Report, half: Option<Half>, name: &str) -> Value {
    let mean = |configuration: &str| {
        report.mean(configuration, half).map_or(Value::Null, |mean| json!(rounded(mean)))
    };
    let mut cells = vec![mean(RONDPOINT), Value::Null];
    cells.extend(RIVALS.iter().map(|(configuration, _)| mean(configuration)));
    cells.extend([Value::Null, Value::Null]);
    json!({"name": name, "cells": cells})
}

#[cfg(test)]
mod tests {
    use rondpoint_machine::Machine;

    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn a_program_with_copies_has_a_page_of_its_own() {
        let machine = Machine::synthetic("nodes=4 cpus=1 memory=384M").expect("a machine");
        let mut report = Report::new(&machine, 1);
        let mut program = sample("open");
        program.name = "tiles".into();
        report.add(program);
        assert_eq!(path_of(&report), Path::new("docs/results/programs.json"));
        report.programs[0].configurations[0].name = COPIES.into();
        assert_eq!(path_of(&report), Path::new("docs/results/replicated-tiles.json"));
        let title = object_of_copies(&report, json!([]), "none")["title"].to_string();
        assert!(title.ends_with("zstd, many\""), "{title}");
    }

    #[test]
    fn programs_that_are_only_watched_have_a_page_of_their_price() {
        let machine = Machine::synthetic("nodes=4 cpus=1 memory=384M").expect("a machine");
        let mut report = Report::new(&machine, 1);
        report.add(sample("open"));
        report.programs[0].configurations[3].name = OBSERVE.into();
        report.programs[0].configurations[3].runs[0].manager.cpu_percent = 0.5;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("page.json");
        let error = write(&report, &path).expect_err("interleave and numad would be lost");
        assert!(error.to_string().ends_with("first-touch,interleave,numad,rondpoint-observe"));
        assert!(!path.exists());
        report.programs[0].configurations.drain(1..3);
        assert_eq!(path_of(&report), Path::new("docs/results/watching-programs.json"));
        let page = object_of_watching(&report, json!(["It sleeps."]), "none");
        assert_eq!(page["rows"][0]["cells"], json!([1.25, null, 0.5, null]));
        assert_eq!(page["findings"][1], "It sleeps.");
        let ran = "zstd --config first-touch,rondpoint-observe --seeds 1 --json";
        assert_eq!(page["commands"][0], format!("./x lab programs {ran}"));
        report.programs[0].configurations[1].name = DRY_RUN.into();
        assert_eq!(path_of(&report), Path::new("docs/results/watching-programs.json"));
        write(&report, &path).expect("a dry run alone is watched too");
    }

    #[test]
    fn every_program_has_a_row_and_findings_stay() {
        let machine = Machine::synthetic("nodes=4 cpus=1 memory=384M").expect("a machine");
        let mut report = Report::new(&machine, 1);
        report.add(sample("open"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("programs.json");
        std::fs::write(&path, r#"{"findings": ["It helps."]}"#).expect("written");
        write(&report, &path).expect("written");
        let found: Value =
            serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
        let row = &found["rows"][0];
        assert_eq!(row["name"], "zstd, many (open)");
        let cells = json!([1.25, null, 2.0, null, "did not act", 2.0, "0.40 s"]);
        assert_eq!(row["cells"], cells);
        assert_eq!(found["rows"][1]["cells"][0], 1.25);
        assert_eq!(found["findings"], json!(["It helps."]));
    }
}
