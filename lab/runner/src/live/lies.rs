//! Wrong counters: the guest's driver gives wrong counts, as some firmware, hypervisors and tables
//! do. `rondpoint doctor --check` has to name the metric, and must not complain about right counts.

use std::path::Path;

use anyhow::{Context as _, Result};
use rondpoint_machine::Processor;
use serde_json::{Value, json};

use super::name;
use super::processor::{doctor, playing};
use crate::lab::Lab;
use crate::physics::{Finding, script};
use crate::results::{FORMAT, commit};

/// The checks of which [`write`] makes a page.
pub(super) const PAGE: [&str; 3] = ["lies", "more-lies", "missing-units"];

/// What the driver is told and the metric in which the doctor has to find it.
struct Lie {
    tell: &'static str,
    metric: &'static str,
}

const fn lie(tell: &'static str, metric: &'static str) -> Lie {
    Lie { tell, metric }
}

/// Silent, free-running, exchanged, wrongly scaled, overflowing: each kind of `lies.c` that the
/// units of Skylake-SP can tell.
const FIRST: [Lie; 4] = [
    lie("zero cpu", "llc_misses"),
    lie("swap samples", "address samples"),
    lie("all-nodes uncore_cha", "dram_to_node"),
    lie("zero uncore_imc_2", "controller_reads"),
];
const MORE: [Lie; 6] = [
    lie("clock cpu", "llc_misses"),
    lie("all-local cpu", "local_dram and remote_dram"),
    lie("swap uncore_cha", "dram_to_node"),
    lie("bytes uncore_imc", "controller_reads"),
    lie("one-node uncore_imc", "controller_reads"),
    lie("wrap uncore_imc", "controller_reads"),
];
/// Zen 4's controllers are numbered through all nodes, so one that is not there shows.
const MISSING: [Lie; 2] =
    [lie("missing amd_umc_5", "controller_reads"), lie("twice amd_umc", "controller_reads")];

/// What is expected where no counter lies.
const TRUTH: &str = "no lie, all compared";

/// One lie of each kind of unit.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    provoked(lab, Processor::SkylakeSp, &FIRST)
}

/// The other kinds of lies.
pub(super) fn check_more(lab: &Lab) -> Result<Vec<Finding>> {
    provoked(lab, Processor::SkylakeSp, &MORE)
}

/// A unit that is not there, and one that counts twice.
pub(super) fn check_missing(lab: &Lab) -> Result<Vec<Finding>> {
    provoked(lab, Processor::AmdZen4, &MISSING)
}

/// All of them. Also writes the JSON of docs/results, of which `./x results` makes the page.
///
/// # Errors
/// A guest did not come to its end, or the file cannot be written.
pub(super) fn write(lab: &Lab, path: &Path) -> Result<Vec<Finding>> {
    let findings = [check(lab)?, check_more(lab)?, check_missing(lab)?].concat();
    let text = serde_json::to_string_pretty(&page(&findings, &commit()))? + "\n";
    std::fs::write(path, text).with_context(|| path.display().to_string())?;
    Ok(findings)
}

/// A row for each lie and for each guest without one. What does not hold is told.
fn page(findings: &[Finding], commit: &str) -> Value {
    let row = |finding: &Finding| {
        let Finding { check, target, measured, holds, .. } = finding;
        let name = check.replace("doctor --check where ", "").replace("the driver is told: ", "");
        json!({"name": name, "cells": [f64::from(u8::from(*holds)), target, measured]})
    };
    let is_lie = |finding: &&Finding| finding.target != TRUTH;
    let lies = findings.iter().filter(is_lie).count();
    let found = findings.iter().filter(is_lie).filter(|finding| finding.holds).count();
    let mut told = vec![format!(
        "`doctor --check` names the metric of {found} of {lies} provoked lies. Goal: ten, and none \
         where every counter tells the truth."
    )];
    let missed = findings.iter().filter(|finding| !finding.holds);
    told.extend(missed.map(|finding| {
        let Finding { check, target, measured, .. } = finding;
        format!("Missed: {check}. Expected: {target}. Found: {measured}.")
    }));
    json!({
        "format": FORMAT,
        "title": "Counters that lie, and what the doctor finds",
        "about": "The guest's driver gives wrong counts, as some firmware, hypervisors and event \
                  tables do. `rondpoint doctor --check` reads a known amount of memory from each \
                  node and compares. The first row of each guest has no lie.",
        "kind": "emulated",
        "machine": findings.first().map_or("", |finding| finding.machine.as_str()),
        "seeds": 1,
        "commit": commit,
        "commands": [format!(
            "./x lab live {} --results docs/results/doctor-lies.json",
            PAGE.join(" ")
        )],
        "digits": 0,
        "columns": ["1: as expected", "expected", "what the doctor says"],
        "rows": findings.iter().map(row).collect::<Vec<_>>(),
        "findings": told,
    })
}

/// The lies one by one, and the truth before them.
fn provoked(lab: &Lab, processor: Processor, provoked: &[Lie]) -> Result<Vec<Finding>> {
    let machine = playing("nmass-2", processor)?;
    let tells = ["none"].into_iter().chain(provoked.iter().map(|lie| lie.tell));
    let text: String = tells.enumerate().map(asking).collect();
    let record = script::run(lab, &machine, "counters that lie", &text)?;
    let machine = name(&machine);
    let table = processor.name();
    let honest = doctor(&record, "lie0")?;
    let compared = provoked.iter().all(|lie| agrees(&honest, lie.metric));
    let found = lies(&honest);
    let check = format!("{table}: doctor --check where every counter tells the truth");
    let holds = found.is_empty() && compared;
    let told = match compared {
        true => sentences(&found),
        false => format!("{}; not all compared", sentences(&found)),
    };
    let mut findings = vec![Finding::fact(&machine, &check, TRUTH, told, holds)];
    for (number, lie) in provoked.iter().enumerate() {
        let found = lies(&doctor(&record, &format!("lie{}", number + 1))?);
        let is_named = found.iter().any(|(metric, _)| metric == lie.metric);
        let check = format!("{table}: doctor --check where the driver is told: {}", lie.tell);
        let target = format!("{} lies", lie.metric);
        findings.push(Finding::fact(&machine, &check, &target, sentences(&found), is_named));
    }
    Ok(findings)
}

/// Whether the doctor compared a metric with the loads and believes it.
fn agrees(report: &Value, metric: &str) -> bool {
    let checks = report["checks"].as_array().into_iter().flatten();
    let of_loads = checks.filter(|check| check["name"] == "known load");
    let finding = |check: &Value| check["finding"].as_str().unwrap_or_default().to_owned();
    of_loads
        .map(finding)
        .any(|finding| finding.contains(metric) && finding.contains(" agree with "))
}

/// Lines of a script that tell the driver how to lie and print the doctor's report.
fn asking((number, told): (usize, &str)) -> String {
    format!(
        "echo {told} > /sys/module/rondpoint_pmu/parameters/lie\n\
         rondpoint doctor --check --json > /tmp/doctor || true\n\
         echo \"lie{number} $(tr -d '\\n' < /tmp/doctor)\"\n"
    )
}

/// Metrics that lie, each with its sentence.
fn lies(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lies = report["lies"].as_array().into_iter().flatten();
    lies.map(|lie| (text(&lie["metric"]), text(&lie["sentence"]))).collect()
}

fn sentences(lies: &[(String, String)]) -> String {
    match lies {
        [] => "no lie".to_owned(),
        lies => lies.iter().map(|(_, sentence)| sentence.as_str()).collect::<Vec<_>>().join("; "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lies_are_named_with_their_sentences() {
        let report = json!({ "lies": [{ "metric": "a", "lie": "silent", "sentence": "a is so" }] });
        assert_eq!(sentences(&lies(&report)), "a is so");
        assert_eq!(sentences(&lies(&json!({}))), "no lie");
    }

    #[test]
    fn the_page_counts_lies_that_were_found_and_tells_the_others() {
        let finding = |what: &str, target, holds| {
            let check = format!("skylake-sp: doctor --check where {what}");
            Finding::fact("nmass-2, 2 CPUs", &check, target, "no lie".to_owned(), holds)
        };
        let page = page(
            &[
                finding("every counter tells the truth", TRUTH, true),
                finding("the driver is told: zero cpu", "llc_misses lies", false),
                finding("the driver is told: swap samples", "address samples lies", true),
            ],
            "abc",
        );
        let told = page["findings"].as_array().expect("sentences");
        assert_eq!(told.len(), 2, "{told:?}");
        let summary = told[0].as_str().expect("a sentence");
        assert!(summary.contains("1 of 2 provoked lies"), "{summary}");
        let missed = told[1].as_str().expect("a sentence");
        assert!(missed.contains("zero cpu. Expected: llc_misses lies."), "{missed}");
        assert_eq!(page["rows"][1]["name"], "skylake-sp: zero cpu");
        assert_eq!(page["rows"][1]["cells"], json!([0.0, "llc_misses lies", "no lie"]));
        assert_eq!(
            page["commands"][0],
            "./x lab live lies more-lies missing-units --results docs/results/doctor-lies.json"
        );
    }

    #[test]
    fn a_metric_that_was_not_compared_does_not_agree() {
        let report =
            json!({ "checks": [{ "name": "known load", "finding": "a, b agree with 8 loads" }] });
        assert!(agrees(&report, "a") && !agrees(&report, "c") && !agrees(&json!({}), "a"));
    }
}
