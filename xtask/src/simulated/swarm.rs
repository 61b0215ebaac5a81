//! The swarm as a page of docs/results: rules that were broken, and work against first touch.

use std::collections::{BTreeMap, BTreeSet};
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
    mode: Mode,
    ranges: String,
    first_seed: u64,
    cases: usize,
    kept: usize,
    steps: u64,
    broken: Vec<Case>,
    policies: Vec<Policy>,
    worst: Vec<Case>,
}

/// Which cases the swarm ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// As drawn: any policy, and faults in most cases.
    Drawn,
    /// All under `auto` and without faults.
    Calm,
}

impl Mode {
    /// Calm, or as drawn.
    pub(crate) fn of(calm: bool) -> Self {
        if calm { Self::Calm } else { Self::Drawn }
    }

    /// Its page of docs/results.
    pub(crate) fn page(self) -> &'static str {
        match self {
            Self::Drawn => "swarm",
            Self::Calm => "swarm-calm",
        }
    }

    /// Its argument after `./x sim` and `rondpoint simulate`, with a space before it.
    fn word(self) -> &'static str {
        match self {
            Self::Drawn => "",
            Self::Calm => " --calm",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Drawn => "The swarm: work against first touch, and rules that were broken",
            Self::Calm => "The calm swarm: work of auto against first touch, without faults",
        }
    }

    /// What the cases are.
    fn about(self) -> &'static str {
        match self {
            Self::Drawn => {
                "Each case is a machine, programs, sensors, faults and a policy, drawn from its \
                 seed. Each case has one policy, so the rows do not compare policies: \
                 docs/results/priced.md does."
            }
            Self::Calm => {
                "Mode: calm. Each case is a machine, programs and sensors, drawn from its seed as \
                 for docs/results/swarm.md. All cases are under auto and without faults."
            }
        }
    }
}

#[derive(Deserialize)]
struct Case {
    seed: u64,
    policy: String,
    faults: bool,
    speed: Option<f64>,
    broken: Vec<Broken>,
}

#[derive(Deserialize)]
struct Broken {
    rule: String,
}

#[derive(Deserialize)]
struct Policy {
    policy: String,
    cases: usize,
    failed: usize,
    speeds: Option<Speeds>,
    unmeasured: usize,
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
        let speed = |of: fn(&Speeds) -> f64| self.speeds.as_ref().map(of);
        let all = self
            .speeds
            .as_ref()
            .map(|one| json!({"median": one.median, "least": one.worst, "most": one.best}));
        let plain =
            speed(|one| one.cases as f64).map_or("0".to_string(), |all| format!("{all:.0}"));
        json!({"name": self.policy, "cells": [
            all, speed(|one| one.worst_of_100), speed(|one| one.worst_of_1000), plain,
            self.cases.to_string(), self.failed.to_string(),
        ]})
    }
}

/// The page of a swarm.
pub(super) fn page(ran: &Ran<Report>, notes: &[String], commit: &str) -> Value {
    let report = &ran.found;
    let last = report.first_seed + (report.cases as u64).saturating_sub(1);
    let word = report.mode.word();
    json!({
        "format": 1,
        "title": report.mode.title(),
        "about": format!(
            "{} docs/simulator.md has the rules. {} cases, seeds {} to {last}, {} steps of the \
             controller. Work is against first touch, in cases without faults, the geometric mean \
             over processes. Digest of the generator's ranges: {}.",
            report.mode.about(), report.cases, report.first_seed, report.steps, report.ranges
        ),
        "kind": "simulated",
        "machine": "all",
        "seeds": report.cases,
        "commit": commit,
        "commands": [
            format!(
                "./x sim{word} --seeds {} --from {} --results FILE --publish",
                report.cases, report.first_seed
            ),
            format!("rondpoint simulate --case SEED{word}"),
            format!(
                "rondpoint simulate --case SEED{word} --record FILE && rondpoint explain FILE"
            ),
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
    let word = report.mode.word();
    let mut findings = goals(report);
    findings.extend(broken(report));
    findings.extend(notes.iter().cloned());
    findings.extend(report.worst.iter().filter_map(|case| {
        let (seed, policy, speed) = (case.seed, &case.policy, case.speed?);
        Some(format!(
            "Among the worst: seed {seed} under {policy}: {speed:.3}. \
             `rondpoint simulate --case {seed}{word} --record {seed}.trace` records it."
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
    let Some(judged) = report.policies.iter().find(|one| one.policy == JUDGED) else {
        return Vec::new();
    };
    let mut goals = Vec::new();
    if judged.unmeasured > 0 {
        goals.push(format!(
            "Goal missed: {JUDGED} has no speed in {} cases without faults, which a broken rule \
             stopped.",
            judged.unmeasured
        ));
    }
    if let Some(speeds) = &judged.speeds {
        let cases = speeds.cases;
        goals.push(format!(
            "{}: {JUDGED} at least {LEAST_OF_1000} of first touch at the 0.1th percentile. \
             Reached: {:.3} in {cases} cases.",
            verdict(speeds.worst_of_1000 >= LEAST_OF_1000),
            speeds.worst_of_1000
        ));
        goals.push(format!(
            "{}: {JUDGED} at least {LEAST} of first touch at worst. Reached: {:.3} in {cases} \
             cases.",
            verdict(speeds.worst >= LEAST),
            speeds.worst
        ));
    }
    if report.mode == Mode::Drawn {
        let struck = report.broken.iter().filter(|case| case.faults).count();
        goals.push(format!(
            "{}: no rule broken with faults. Reached: {struck} cases broke one.",
            verdict(struck == 0)
        ));
    }
    goals
}

/// Sentences with the seeds that broke each rule, by policy.
fn broken(report: &Report) -> Vec<String> {
    let mut seeds: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for case in &report.broken {
        for broken in &case.broken {
            seeds.entry((&broken.rule, &case.policy)).or_default().push(case.seed);
        }
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

/// Refuses results of another commit than the checkout's.
///
/// # Errors
/// They are of another commit, or their commit cannot be written or read.
pub(crate) fn same_build(results: &Path) -> Result<()> {
    same(results, &super::head()?)
}

fn same(results: &Path, head: &str) -> Result<()> {
    let built = began(results, head)?;
    ensure!(
        built == head,
        "{}: results of commit {built}, and this is {head}; name a new file, or check out {built}",
        results.display()
    );
    Ok(())
}

/// The commit of a file of results. It is written beside the file when the results begin.
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

/// A line of a file of results.
#[derive(Deserialize)]
struct Line {
    result: Numbered,
}

#[derive(Deserialize)]
struct Numbered {
    seed: u64,
}

/// Whether a file has the results of all these seeds.
fn holds_all(results: &Path, seeds: u64, from: u64) -> Result<bool> {
    let text = fs::read_to_string(results).with_context(|| results.display().to_string())?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let held: BTreeSet<u64> = lines.map(|line| line.result.seed).collect();
    Ok((0..seeds).all(|number| held.contains(&from.wrapping_add(number))))
}

/// The commit for a page of these results. Results of another commit are published if they are
/// complete; no case is added to them.
fn published_commit(kept: Option<&Path>, seeds: u64, from: u64, head: &str) -> Result<String> {
    let Some(results) = kept else { return Ok(head.to_string()) };
    let built = began(results, head)?;
    if built != head && !holds_all(results, seeds, from)? {
        same(results, head)?;
    }
    Ok(built)
}

/// Runs the swarm and writes its page. Cases in the file `kept` are not run again. Returns the
/// number of cases that broke a rule.
pub(crate) fn publish(
    mode: Mode,
    seeds: u64,
    from: u64,
    kept: Option<&Path>,
    notes: &[String],
) -> Result<usize> {
    let built = published_commit(kept, seeds, from, &super::head()?)?;
    super::build()?;
    let (seeds, from) = (seeds.to_string(), from.to_string());
    let kept = kept.map(|path| path.display().to_string());
    let mut arguments = vec!["--swarm", &seeds, "--seed", &from];
    if mode == Mode::Calm {
        arguments.push("--calm");
    }
    if let Some(kept) = &kept {
        arguments.extend(["--results", kept]);
    }
    let ran: Ran<Report> = super::simulate(&arguments)?;
    ensure!(ran.found.mode == mode, "the simulator ran {:?}, expected {mode:?}", ran.found.mode);
    super::write(mode.page(), &page(&ran, notes, &built))?;
    crate::results::run()?;
    Ok(ran.found.broken.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"mode": "drawn", "ranges": "1-2-3", "first_seed": 1, "cases": 4,
        "kept": 2, "steps": 90, "broken": [
        {"seed": 2, "policy": "auto", "faults": false, "speed": 0.9,
         "broken": [{"rule": "convergence"}, {"rule": "no harm"}]},
        {"seed": 3, "policy": "sam", "faults": true, "speed": null,
         "broken": [{"rule": "budget"}]}],
        "policies": [{"policy": "auto", "cases": 3, "failed": 1, "unmeasured": 0,
        "speeds": {"cases": 3, "worst": 0.9, "worst_of_1000": 0.9, "worst_of_100": 0.9,
                   "median": 1.0, "best": 1.5}},
        {"policy": "sam", "cases": 1, "failed": 1, "unmeasured": 0, "speeds": null}],
        "worst": [{"seed": 2, "policy": "auto", "faults": false, "speed": 0.9,
                   "broken": [{"rule": "no harm"}]}]}"#;

    #[test]
    fn results_belong_to_the_commit_that_began_them() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results");
        assert_eq!(began(&results, "abcdef1").unwrap(), "abcdef1");
        fs::write(&results, "").unwrap();
        assert_eq!(began(&results, "1234567").unwrap(), "abcdef1");
        assert!(same(&results, "abcdef1").is_ok());
        let told = same(&results, "1234567").unwrap_err().to_string();
        let expected = "results: results of commit abcdef1, and this is 1234567; name a new file, \
                        or check out abcdef1";
        assert!(told.ends_with(expected), "{told}");
        fs::remove_file(folder.path().join("results.commit")).unwrap();
        assert!(began(&results, "1234567").is_err());
    }

    #[test]
    fn results_of_another_commit_are_published_only_if_no_case_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results");
        let commit = |seeds, head| published_commit(Some(&results), seeds, 5, head);
        assert_eq!(commit(2, "abcdef1").unwrap(), "abcdef1");
        let line =
            |seed: u64| format!("{{\"format\":2,\"result\":{{\"seed\":{seed},\"steps\":1}}}}\n");
        fs::write(&results, line(6) + &line(5)).unwrap();
        assert_eq!(commit(2, "1234567").unwrap(), "abcdef1");
        assert!(commit(3, "1234567").is_err());
        assert_eq!(commit(3, "abcdef1").unwrap(), "abcdef1");
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
            "Broken: convergence, under auto, by seed 2.",
            "Broken: no harm, under auto, by seed 2.",
            "Broken: budget, under sam, by seed 3.",
            "- A note.",
            "`rondpoint simulate --case 2 --record 2.trace`",
            "CPU time: 1.50 s a case, over 2 cases",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn a_page_of_calm_cases_says_so() {
        let calm = REPORT.replace("drawn", "calm");
        let ran = Ran { found: serde_json::from_str(&calm).unwrap(), cpu_s: 3.0 };
        let text =
            crate::results::page_of("swarm-calm", &page(&ran, &[], "abcdef1").to_string()).unwrap();
        for expected in [
            "# The calm swarm: work of auto",
            "Mode: calm.",
            "./x sim --calm --seeds 4 --from 1",
            "`rondpoint simulate --case 2 --calm --record 2.trace`",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("no rule broken with faults"), "{text}");
    }

    #[test]
    fn a_case_of_auto_without_a_speed_misses_the_goal() {
        let stopped = REPORT.replacen("\"unmeasured\": 0", "\"unmeasured\": 1", 1);
        let report: Report = serde_json::from_str(&stopped).unwrap();
        assert!(goals(&report)[0].starts_with("Goal missed: auto has no speed in 1 cases"));
    }
}
