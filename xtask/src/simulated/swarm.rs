//! The swarm as a page of docs/results: rules that were broken, and work against first touch.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Ran, verdict};

/// Goals for the speed relative to first touch: in all but one case of 1,000, and in the worst.
const LEAST_OF_1000: f64 = 0.98;
const LEAST: f64 = 0.95;
/// Policy of the goals.
const JUDGED: &str = "auto";
/// Largest number of seeds that a page names for one rule and policy.
const NAMED: usize = 12;

/// The published part of the simulator's report on a swarm.
#[derive(Deserialize)]
pub(super) struct Report {
    ranges: String,
    first_seed: u64,
    cases: usize,
    kept: usize,
    steps: u64,
    broken: Vec<Case>,
    policies: Vec<Policy>,
    worst: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    seed: u64,
    policy: String,
    faults: bool,
    speed: Option<f64>,
    broken: Option<Broken>,
}

#[derive(Deserialize)]
struct Broken {
    rule: String,
}

#[derive(Deserialize)]
struct Policy {
    policy: String,
    cases: usize,
    broken: BTreeMap<String, usize>,
    speeds: Option<Speeds>,
}

#[derive(Deserialize)]
struct Speeds {
    cases: usize,
    worst: f64,
    worst_of_1000: f64,
    worst_of_100: f64,
    median: f64,
    best: f64,
}

impl Policy {
    fn row(&self) -> Value {
        let broken: usize = self.broken.values().sum();
        let speed = |of: fn(&Speeds) -> f64| self.speeds.as_ref().map(of);
        let all = self
            .speeds
            .as_ref()
            .map(|one| json!({"median": one.median, "least": one.worst, "most": one.best}));
        let plain =
            speed(|one| one.cases as f64).map_or("0".to_string(), |all| format!("{all:.0}"));
        json!({"name": self.policy, "cells": [
            all, speed(|one| one.worst_of_100), speed(|one| one.worst_of_1000), plain,
            self.cases.to_string(), broken.to_string(),
        ]})
    }
}

/// The page of a swarm.
pub(super) fn page(ran: &Ran<Report>, notes: &[String], commit: &str) -> Value {
    let report = &ran.found;
    let last = report.first_seed + (report.cases as u64).saturating_sub(1);
    json!({
        "format": 1,
        "title": "The swarm: work against first touch, and rules that were broken",
        "about": format!(
            "Each case is a machine, programs, sensors, faults and a policy, drawn from its seed. \
             docs/simulator.md has the rules. {} cases, seeds {} to {last}, {} steps of the \
             controller. Work is against first touch, in cases without faults, the geometric mean \
             over processes. Each case has one policy, so the rows do not compare policies: \
             docs/results/priced.md does. Digest of the generator's ranges: {}.",
            report.cases, report.first_seed, report.steps, report.ranges
        ),
        "kind": "simulated",
        "machine": "all",
        "seeds": report.cases,
        "commit": commit,
        "commands": [
            format!(
                "./x sim --seeds {} --from {} --results FILE --publish",
                report.cases, report.first_seed
            ),
            "rondpoint simulate --case SEED".to_string(),
            "rondpoint simulate --case SEED --record FILE && rondpoint explain FILE".to_string(),
        ],
        "reference": 1.0,
        "digits": 3,
        "columns": [
            "work, of first touch's", "first percentile", "0.1th percentile", "cases without faults",
            "all cases", "broke a rule",
        ],
        "rows": report.policies.iter().map(Policy::row).collect::<Vec<_>>(),
        "findings": findings(report, notes, ran.cpu_s),
    })
}

fn findings(report: &Report, notes: &[String], cpu_s: f64) -> Vec<String> {
    let mut findings = goals(report);
    findings.extend(broken(report));
    findings.extend(notes.iter().cloned());
    findings.extend(report.worst.iter().filter_map(|case| {
        let (seed, policy, speed) = (case.seed, &case.policy, case.speed?);
        Some(format!(
            "Among the worst: seed {seed} under {policy}: {speed:.3}. \
             `rondpoint simulate --case {seed} --record {seed}.trace` records it."
        ))
    }));
    let run = report.cases - report.kept;
    if run > 0 {
        findings.push(format!(
            "CPU time: {:.2} s a case, over {run} cases, on a machine with other work.",
            cpu_s / run as f64
        ));
    }
    findings
}

fn goals(report: &Report) -> Vec<String> {
    let judged = report.policies.iter().find(|one| one.policy == JUDGED);
    let Some(speeds) = judged.and_then(|one| one.speeds.as_ref()) else { return Vec::new() };
    let cases = speeds.cases;
    let quantile = format!(
        "{}: {JUDGED} at least {LEAST_OF_1000} of first touch at the 0.1th percentile. Reached: \
         {:.3} in {cases} cases.",
        verdict(speeds.worst_of_1000 >= LEAST_OF_1000),
        speeds.worst_of_1000
    );
    let worst = format!(
        "{}: {JUDGED} at least {LEAST} of first touch at worst. Reached: {:.3} in {cases} cases.",
        verdict(speeds.worst >= LEAST),
        speeds.worst
    );
    let struck = report.broken.iter().filter(|case| case.faults).count();
    let rules = format!(
        "{}: no rule broken with faults. Reached: {struck} cases broke one.",
        verdict(struck == 0)
    );
    vec![quantile, worst, rules]
}

/// Sentences with the seeds that broke each rule, by policy.
fn broken(report: &Report) -> Vec<String> {
    let mut seeds: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for case in &report.broken {
        let Some(broken) = &case.broken else { continue };
        seeds.entry((&broken.rule, &case.policy)).or_default().push(case.seed);
    }
    let line = |((rule, policy), seeds): (&(&str, &str), &Vec<u64>)| {
        let named: Vec<String> = seeds.iter().take(NAMED).map(u64::to_string).collect();
        let more = seeds.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let seed = if seeds.len() == 1 { "seed" } else { "seeds" };
        format!("Broken: {rule}, under {policy}, by {seed} {}{more}.", named.join(", "))
    };
    seeds.iter().map(line).collect()
}

/// The commit of a file of results. It is written beside the file when the results begin.
///
/// # Errors
/// The commit cannot be written, or it is missing beside existing results.
pub(crate) fn built_from(results: &Path) -> Result<String> {
    began(results, &super::head()?)
}

fn began(results: &Path, head: &str) -> Result<String> {
    let mut path = results.as_os_str().to_owned();
    path.push(".commit");
    if !results.exists() {
        fs::write(&path, head).with_context(|| path.display().to_string())?;
    }
    let text = fs::read_to_string(&path).with_context(|| {
        format!("{}: expected the commit that the results beside it are of", path.display())
    })?;
    Ok(text.trim().to_string())
}

/// Runs the swarm and writes its page. Cases in the file `kept` are not run again. Returns the
/// number of cases that broke a rule.
pub(crate) fn publish(
    seeds: u64,
    from: u64,
    kept: Option<&Path>,
    notes: &[String],
) -> Result<usize> {
    super::build()?;
    let head = super::head()?;
    let built = kept.map_or(Ok(head.clone()), |results| began(results, &head))?;
    let (seeds, from) = (seeds.to_string(), from.to_string());
    let kept = kept.map(|path| path.display().to_string());
    let mut arguments = vec!["--swarm", &seeds, "--seed", &from];
    if let Some(kept) = &kept {
        arguments.extend(["--results", kept]);
    }
    let ran: Ran<Report> = super::simulate(&arguments)?;
    let new = ran.found.cases - ran.found.kept;
    ensure!(
        new == 0 || built == head,
        "{}: results of commit {built}, and {new} more of {head}; expected one build",
        kept.unwrap_or_default()
    );
    super::write("swarm", &page(&ran, notes, &built))?;
    crate::results::run()?;
    Ok(ran.found.broken.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"ranges": "1-2-3", "first_seed": 1, "cases": 4, "kept": 2, "steps": 90,
        "broken": [
        {"seed": 2, "policy": "auto", "faults": false, "speed": 0.9, "broken": {"rule": "no harm"}},
        {"seed": 3, "policy": "sam", "faults": true, "speed": null, "broken": {"rule": "budget"}}],
        "policies": [{"policy": "auto", "cases": 3, "broken": {"no harm": 1},
        "speeds": {"cases": 3, "worst": 0.9, "worst_of_1000": 0.9, "worst_of_100": 0.9,
                   "median": 1.0, "best": 1.5}},
        {"policy": "sam", "cases": 1, "broken": {"budget": 1}, "speeds": null}],
        "worst": [{"seed": 2, "policy": "auto", "faults": false, "speed": 0.9,
                   "broken": {"rule": "no harm"}}]}"#;

    #[test]
    fn results_belong_to_the_commit_that_began_them() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results");
        assert_eq!(began(&results, "abcdef1").unwrap(), "abcdef1");
        fs::write(&results, "").unwrap();
        assert_eq!(began(&results, "1234567").unwrap(), "abcdef1");
        fs::remove_file(folder.path().join("results.commit")).unwrap();
        assert!(began(&results, "1234567").is_err());
    }

    #[test]
    fn a_page_has_each_broken_rule_with_its_seeds_and_each_goal() {
        let ran = Ran { found: serde_json::from_str(REPORT).unwrap(), cpu_s: 3.0 };
        let json = page(&ran, &["A note.".to_string()], "abcdef1").to_string();
        let text = crate::results::page_of("swarm", &json).unwrap();
        for expected in [
            "| auto | 1.000 (0.900 to 1.500) | 0.900 | 0.900 | 3 | 3 | 1 |",
            "| sam | – | – | – | 0 | 1 | 1 |",
            "Goal missed: auto at least 0.95",
            "Goal missed: no rule broken with faults. Reached: 1 cases",
            "Broken: no harm, under auto, by seed 2.",
            "Broken: budget, under sam, by seed 3.",
            "- A note.",
            "`rondpoint simulate --case 2 --record 2.trace`",
            "CPU time: 1.50 s a case, over 2 cases",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
