//! The twelve programs as the JSON of docs/results. `./x results` makes a page and a chart of it.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{BOUND, IDLE, JAMMED, LEFT, MOST_LOST, Start, WELL, of, over};
use crate::physics::Finding;
use crate::results::{FORMAT, commit, fine_cell};

/// Writes the file. What does not hold is told in its findings.
///
/// # Errors
/// A program told no rounds, or the file cannot be written.
pub(super) fn write(
    machine: &str,
    starts: &[Start],
    findings: &[Finding],
    path: &Path,
) -> Result<()> {
    let object = object(machine, starts, findings, &commit())?;
    let text = serde_json::to_string_pretty(&object)? + "\n";
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn object(machine: &str, starts: &[Start], findings: &[Finding], commit: &str) -> Result<Value> {
    let told = |program: &'static str| -> Result<Value> {
        let is_jammed = JAMMED.contains(&program);
        let beside = fine_cell(Some(over(starts, |start| start.beside(program))?));
        let (gain, of_run) = match is_jammed {
            true => (
                fine_cell(Some(over(starts, |start| start.gain(program))?)),
                fine_cell(Some(over(starts, |start| start.of_run(program))?)),
            ),
            false => (Value::Null, Value::Null),
        };
        let moved = fine_cell(Some(over(starts, |start| Ok(mib(start, &[program])))?));
        Ok(json!({"name": title(program), "cells": [beside, gain, of_run, moved]}))
    };
    let programs = JAMMED.into_iter().chain(WELL).chain(LEFT).chain([BOUND]);
    let mut rows: Vec<Value> = programs.map(told).collect::<Result<_>>()?;
    let moved = fine_cell(Some(over(starts, |start| Ok(mib(start, &IDLE)))?));
    rows.push(json!({
        "name": "four that sleep",
        "cells": [Value::Null, Value::Null, Value::Null, moved],
    }));
    Ok(json!({
        "format": FORMAT,
        "title": "The daemon beside twelve programs that start and end",
        "about": "Twelve programs on two nodes, in three guests that begin alike: with \
                  `rondpoint daemon`, without it, and with the two jammed programs under \
                  `rondpoint run`. NUMA balancing is off. The programs start and end within \
                  15 seconds of guest time.",
        "kind": "emulated",
        "machine": machine,
        "seeds": starts.len(),
        "commit": commit,
        "commands": ["./x lab live daemon-twelve --results docs/results/daemon-twelve.json"],
        "reference": 1.0,
        "digits": 3,
        "columns": [
            "speed beside the daemon, of alone",
            "last second, of the first",
            "last third, of that under `run`",
            "MiB moved",
        ],
        "rows": rows,
        "findings": sentences(findings),
    }))
}

fn title(program: &str) -> String {
    match program {
        "jammed" => "jammed: its memory is on one node".to_owned(),
        "contained" => "the same in a container".to_owned(),
        BOUND => "the same, bound by numactl".to_owned(),
        one if LEFT.contains(&one) => format!("the same, excluded ({one})"),
        one => format!("placed well ({one})"),
    }
}

fn mib(start: &Start, programs: &[&str]) -> f64 {
    let bytes: u64 = programs.iter().map(|one| of(&start.said, one).moved_bytes).sum();
    bytes as f64 / f64::from(1 << 20)
}

/// What holds as a number, and each goal that was missed.
fn sentences(findings: &[Finding]) -> Vec<String> {
    let held = findings.iter().filter(|finding| finding.holds).count();
    let all = findings.len();
    let lost = 100.0 * MOST_LOST;
    let mut told = vec![
        format!("{held} of {all} checks hold. A program that is placed well may lose {lost:.0} %."),
        "Gains are judged by the median of the starts, losses of others by the worst.".to_owned(),
        "An excluded or bound program is jammed too. It may lose 10 % while pages of its neighbour \
         move."
            .to_owned(),
    ];
    told.extend(findings.iter().filter(|finding| !finding.holds).map(|missed| {
        let Finding { check, target, measured, .. } = missed;
        format!("Missed: {check}. Goal: {}. Found: {}.", target.trim(), measured.trim())
    }));
    told
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::super::tests::start;
    use super::*;

    #[test]
    fn each_program_has_a_row_and_what_is_missed_is_told() {
        let starts = [start(1.0, 1.0), start(1.25, 1.0)];
        let findings = findings("here", &starts).expect("told");
        let object = object("here", &starts, &findings, "abc").expect("a page");
        let rows = object["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 9, "four of the twelve share one");
        assert!(rows.iter().all(|row| row["cells"].as_array().map(Vec::len) == Some(4)));
        let beside = json!({"median": 0.9, "least": 0.8, "most": 1.0});
        assert_eq!(rows[2]["cells"], json!([beside, null, null, 0.0]), "{}", rows[2]);
        assert_eq!(object["seeds"], 2);
        let told: Vec<&str> =
            object["findings"].as_array().expect("some").iter().filter_map(Value::as_str).collect();
        let missed = "Missed: twelve: speed of well-1 beside the daemon over its speed alone.";
        assert!(told.iter().any(|one| one.starts_with(missed)), "{told:?}");
    }
}
