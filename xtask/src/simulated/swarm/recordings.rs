//! Recordings of the cases that a page of the swarm names, and the shrunk ones that broke a rule.
//!
//! A recording has tens of megabytes, so it stays in the target folder. The page has the digest of
//! its decisions, by which a recording that is made again can be compared. Shrunk cases are small
//! and are committed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{Case, Mode, Report};
use crate::lab::target_folder;
use crate::tidy::root;

/// Folder of the shrunk cases, by the page that names them.
const CASES: &str = "crates/sim/cases";

/// A case that was recorded.
pub(super) struct Recorded {
    seed: u64,
    /// The rule of its shrunk case.
    shrunk: Option<String>,
    /// Whether the recording has the decisions of the published result.
    is_same: bool,
}

/// The published part of the simulator's report on one case.
#[derive(Deserialize)]
struct One {
    broken: Vec<Case>,
    worst: Vec<Case>,
    shrunk: Option<Value>,
}

impl Recorded {
    fn of(published: &Case, one: &One) -> Self {
        let case = one.broken.first().or(one.worst.first());
        let rule = one.broken.first().and_then(|case| case.broken.first());
        Self {
            seed: published.seed,
            shrunk: rule.filter(|_| one.shrunk.is_some()).map(|broken| broken.rule.clone()),
            is_same: case.is_some_and(|case| case.digest == published.digest),
        }
    }
}

/// What a page says after a case that was recorded.
pub(super) fn told(recorded: &[Recorded], mode: Mode, seed: u64) -> String {
    let Some(one) = recorded.iter().find(|one| one.seed == seed) else { return String::new() };
    let mut text = String::new();
    if let Some(rule) = &one.shrunk {
        let page = mode.page();
        text += &format!(" `{CASES}/{page}/{seed}.json` is the shrunk case, which breaks {rule}.");
    }
    if !one.is_same {
        text += " The simulator at the time of this page decides otherwise.";
    }
    text
}

/// The cases to record: the worst ones, and the first one of each broken rule and policy.
fn chosen(report: &Report) -> Vec<&Case> {
    let mut rules = BTreeSet::new();
    let is_first = |case: &&Case| {
        let before = rules.len();
        rules.extend(case.broken.iter().map(|one| (one.rule.clone(), case.policy.clone())));
        rules.len() > before
    };
    let first: Vec<&Case> = report.broken.iter().filter(is_first).collect();
    let mut seeds = BTreeSet::new();
    let all = report.worst_judged.iter().chain(&report.worst).chain(first);
    all.filter(|case| seeds.insert(case.seed)).collect()
}

/// Records the chosen cases again, and writes those that shrink. Files of an earlier page go.
///
/// # Errors
/// The simulator fails, or a file cannot be written.
pub(super) fn record(mode: Mode, report: &Report) -> Result<Vec<Recorded>> {
    let folder = emptied(target_folder().join("recordings").join(mode.page()))?;
    let cases = emptied(root().join(CASES).join(mode.page()))?;
    let mut all = Vec::new();
    for case in chosen(report) {
        let seed = case.seed.to_string();
        let path = folder.join(format!("{seed}.trace")).display().to_string();
        let mut arguments = vec!["--case", &seed, "--record", &path];
        arguments.extend(mode.flag());
        let one: One = crate::simulated::simulate(&arguments)?.found;
        if let Some(shrunk) = &one.shrunk {
            let path = cases.join(format!("{seed}.json"));
            fs::write(&path, serde_json::to_string_pretty(shrunk)? + "\n")
                .with_context(|| path.display().to_string())?;
        }
        all.push(Recorded::of(case, &one));
    }
    println!("{} recordings in {}", all.len(), folder.display());
    Ok(all)
}

/// A folder without files.
fn emptied(path: PathBuf) -> Result<PathBuf> {
    let context = || path.display().to_string();
    if path.exists() {
        fs::remove_dir_all(&path).with_context(context)?;
    }
    fs::create_dir_all(&path).with_context(context)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(seed: u64, policy: &str, rules: &[&str], digest: &str) -> Value {
        let broken: Vec<Value> =
            rules.iter().map(|rule| serde_json::json!({"rule": rule})).collect();
        serde_json::json!({"seed": seed, "policy": policy, "faults": false, "speed": 1.0,
                           "broken": broken, "digest": digest})
    }

    #[test]
    fn the_worst_cases_and_the_first_of_each_broken_rule_are_recorded_once() {
        let report = serde_json::json!({
            "mode": "drawn", "ranges": "", "first_seed": 1, "cases": 9, "kept": 0, "steps": 1,
            "policies": [],
            "broken": [case(1, "sam", &["budget"], ""), case(2, "sam", &["budget"], ""),
                       case(3, "auto", &["budget", "no harm"], ""),
                       case(4, "sam", &["no harm", "budget"], "")],
            "worst": [case(5, "sam", &[], ""), case(4, "sam", &["no harm"], "")],
            "worst_judged": [case(6, "auto", &[], "")],
        });
        let report: Report = serde_json::from_value(report).unwrap();
        let seeds: Vec<u64> = chosen(&report).iter().map(|case| case.seed).collect();
        assert_eq!(seeds, [6, 5, 4, 1, 3]);
    }

    #[test]
    fn a_page_names_the_shrunk_case_and_a_recording_that_differs() {
        let published: Case = serde_json::from_value(case(7, "auto", &[], "abc")).unwrap();
        let recorded = |digest: &str, rules: &[&str]| {
            let one = serde_json::json!({"broken": [case(7, "auto", rules, digest)], "worst": [],
                                         "shrunk": {"seed": 7}});
            [Recorded::of(&published, &serde_json::from_value(one).unwrap())]
        };
        let same = told(&recorded("abc", &["undo"]), Mode::Calm, 7);
        let expected =
            " `crates/sim/cases/swarm-calm/7.json` is the shrunk case, which breaks undo.";
        assert_eq!(same, expected);
        assert!(told(&recorded("abd", &["undo"]), Mode::Calm, 7).ends_with("decides otherwise."));
        assert_eq!(told(&recorded("abc", &["undo"]), Mode::Calm, 8), "");
    }
}
