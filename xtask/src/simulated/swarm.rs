//! The swarm as a page of docs/results: rules that were broken, and work against first touch.

mod kept;
mod recordings;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Ran, verdict};
use kept::published_commit;
pub(crate) use kept::same_build;
use recordings::{Recorded, told};

/// Goals for the work relative to first touch: in all but one case of 1,000, and in the worst.
const LEAST_OF_1000: f64 = 0.98;
const LEAST: f64 = 0.95;
/// Cases without faults that these goals ask for, and minutes in which two cores are to run them.
const CASES: usize = 10_000;
const MINUTES: f64 = 30.0;
const CORES: f64 = 2.0;
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
    worst_judged: Vec<Case>,
}

/// Which cases the swarm ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// As drawn: any policy, and faults in most cases.
    Drawn,
    /// All under `auto` and without faults.
    Calm,
    /// As drawn, with rare faults beside.
    Harsh,
}

impl Mode {
    /// Calm, harsh, or as drawn.
    pub(crate) fn of(calm: bool, harsh: bool) -> Self {
        match (calm, harsh) {
            (true, _) => Self::Calm,
            (_, true) => Self::Harsh,
            _ => Self::Drawn,
        }
    }

    /// Its page of docs/results.
    pub(crate) fn page(self) -> &'static str {
        match self {
            Self::Drawn => "swarm",
            Self::Calm => "swarm-calm",
            Self::Harsh => "swarm-harsh",
        }
    }

    /// Its argument of the simulator.
    fn flag(self) -> Option<&'static str> {
        match self {
            Self::Drawn => None,
            Self::Calm => Some("--calm"),
            Self::Harsh => Some("--harsh"),
        }
    }

    /// Its argument after `./x sim` and `rondpoint simulate`, with a space before it.
    fn word(self) -> String {
        self.flag().map_or(String::new(), |flag| format!(" {flag}"))
    }

    fn title(self) -> &'static str {
        match self {
            Self::Drawn => "The swarm: work against first touch, and rules that were broken",
            Self::Calm => "The calm swarm: work of auto against first touch, without faults",
            Self::Harsh => "The harsh swarm: rules that were broken with rare faults",
        }
    }

    /// What the cases are.
    fn about(self) -> &'static str {
        match self {
            Self::Drawn => {
                "Each case is a machine, programs, sensors, faults and a policy, drawn from its \
                 seed. Each case has one policy, so the rows do not compare policies: \
                 docs/results/priced.md does. Work is against first touch, in cases without \
                 faults, the geometric mean over processes."
            }
            Self::Calm => {
                "Mode: calm. Each case is a machine, programs and sensors, drawn from its seed as \
                 for docs/results/swarm.md. All cases are under auto and without faults. Work is \
                 against first touch, the geometric mean over processes."
            }
            Self::Harsh => {
                "Mode: harsh. Each case is drawn from its seed as for docs/results/swarm.md, with \
                 rare faults beside its own: CPUs and memory are unplugged, the ledger cannot be \
                 written, the clock jumps back, masks are refused, processes end while they are \
                 frozen. With faults, work is not compared."
            }
        }
    }

    /// Titles of the columns.
    fn columns(self) -> Vec<&'static str> {
        match self {
            Self::Harsh => vec!["broke a rule", "all cases"],
            Self::Drawn | Self::Calm => vec![
                "work, of first touch's",
                "first percentile",
                "0.1th percentile",
                "cases without faults",
                "all cases",
                "broke a rule",
            ],
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
    /// Of its decisions.
    #[serde(default)]
    digest: String,
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
    fn row(&self, mode: Mode) -> Value {
        if mode == Mode::Harsh {
            return json!({"name": self.policy, "cells": [self.failed, self.cases]});
        }
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
fn page(ran: &Ran<Report>, notes: &[String], commit: &str, recorded: &[Recorded]) -> Value {
    let report = &ran.found;
    let last = report.first_seed + (report.cases as u64).saturating_sub(1);
    let word = report.mode.word();
    json!({
        "format": 1,
        "title": report.mode.title(),
        "about": format!(
            "{} docs/simulator.md has the rules. {} cases, seeds {} to {last}, {} steps of the \
             controller. Digest of the generator's ranges: {}.",
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
        "reference": if report.mode == Mode::Harsh { Value::Null } else { json!(1.0) },
        "digits": if report.mode == Mode::Harsh { 0 } else { 3 },
        "columns": report.mode.columns(),
        "rows": report.policies.iter().map(|one| one.row(report.mode)).collect::<Vec<_>>(),
        "findings": findings(report, notes, ran.cpu_s, recorded),
    })
}

fn findings(report: &Report, notes: &[String], cpu_s: f64, recorded: &[Recorded]) -> Vec<String> {
    let word = report.mode.word();
    let mut findings = goals(report);
    findings.extend(broken(report, recorded));
    findings.extend(notes.iter().cloned());
    let others = report.worst.iter().filter(|case| case.policy != JUDGED);
    findings.extend(report.worst_judged.iter().chain(others).filter_map(|case| {
        let (seed, policy, speed) = (case.seed, &case.policy, case.speed?);
        Some(format!(
            "Among the worst: seed {seed} under {policy}: {speed:.3}. \
             `rondpoint simulate --case {seed}{word} --record {seed}.trace` records it. The digest \
             of its decisions is {}.{}",
            case.digest,
            told(recorded, report.mode, seed)
        ))
    }));
    findings.extend(time(report.cases - report.kept, cpu_s));
    findings
}

/// What these cases took, if any ran now.
fn time(run: usize, cpu_s: f64) -> Vec<String> {
    if run == 0 {
        return vec!["CPU time: not measured, all cases are of earlier runs.".to_string()];
    }
    let each = cpu_s / run as f64;
    let minutes = each * CASES as f64 / CORES / 60.0;
    vec![
        format!(
            "{}: {CASES} cases in less than {MINUTES:.0} minutes on two cores. Reached: {minutes:.0} \
             minutes, by the CPU time of these cases.",
            verdict(minutes < MINUTES)
        ),
        format!(
            "CPU time: {cpu_s:.0} s, {each:.2} s a case, over {run} cases, on a machine with other \
             work."
        ),
    ]
}

fn goals(report: &Report) -> Vec<String> {
    let mut goals = Vec::new();
    if let Some(judged) = report.policies.iter().find(|one| one.policy == JUDGED) {
        if judged.unmeasured > 0 {
            goals.push(format!(
                "Goal missed: {JUDGED} has no speed in {} cases without faults, which a broken rule \
                 stopped.",
                judged.unmeasured
            ));
        }
        goals.extend(judged.speeds.iter().flat_map(losses));
    }
    if report.mode != Mode::Calm {
        let struck = report.broken.iter().filter(|case| case.faults).count();
        goals.push(format!(
            "{}: no rule broken with faults. Reached: {struck} cases broke one.",
            verdict(struck == 0)
        ));
    }
    goals
}

/// Goals for the loss against first touch.
fn losses(speeds: &Speeds) -> [String; 2] {
    let cases = speeds.cases;
    let few = if cases < CASES { format!("; the goal is for {CASES}") } else { String::new() };
    let word = |met: bool| match met && cases < CASES {
        true => "Goal not shown yet",
        false => verdict(met),
    };
    let goal = |of: &str, least: f64, reached: f64| {
        let percent = |speed: f64| 100.0 * (1.0 - speed).max(0.0);
        format!(
            "{}: {JUDGED} loses at most {:.0} % against first touch {of}. Reached: {:.1} %, \
             {reached:.3} of first touch, in {cases} cases{few}.",
            word(reached >= least),
            percent(least),
            percent(reached)
        )
    };
    [
        goal("at the 99.9th percentile of losses", LEAST_OF_1000, speeds.worst_of_1000),
        goal("at worst", LEAST, speeds.worst),
    ]
}

/// Sentences with the seeds that broke each rule, by policy.
fn broken(report: &Report, recorded: &[Recorded]) -> Vec<String> {
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
        let shrunk = seeds.first().map(|one| told(recorded, report.mode, *one)).unwrap_or_default();
        format!("Broken: {rule}, under {policy}, by {seed} {}{more}.{shrunk}", named.join(", "))
    };
    seeds.iter().map(line).collect()
}

/// Runs the swarm and writes its page, the recordings and the shrunk cases. Cases in the file
/// `kept` are not run again. Returns the number of cases that broke a rule.
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
    // The simulator runs in another folder.
    let kept = kept.map(std::path::absolute).transpose()?;
    let kept = kept.map(|path| path.display().to_string());
    let mut arguments = vec!["--swarm", &seeds, "--seed", &from];
    arguments.extend(mode.flag());
    if let Some(kept) = &kept {
        arguments.extend(["--results", kept]);
    }
    let ran: Ran<Report> = super::simulate(&arguments)?;
    ensure!(ran.found.mode == mode, "the simulator ran {:?}, expected {mode:?}", ran.found.mode);
    // The page stays if a recording fails.
    super::write(mode.page(), &page(&ran, notes, &built, &[]))?;
    let recorded = recordings::record(mode, &ran.found)?;
    super::write(mode.page(), &page(&ran, notes, &built, &recorded))?;
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
        "worst": [{"seed": 4, "policy": "sam", "faults": false, "speed": 0.8, "broken": []},
                  {"seed": 2, "policy": "auto", "faults": false, "speed": 0.9, "broken": []}],
        "worst_judged": [{"seed": 2, "policy": "auto", "faults": false, "speed": 0.9, "digest": "d2",
                          "broken": [{"rule": "no harm"}]}]}"#;

    #[test]
    fn a_page_has_each_broken_rule_with_its_seeds_and_each_goal() {
        let ran = Ran { found: serde_json::from_str(REPORT).unwrap(), cpu_s: 3.0 };
        let json = page(&ran, &["A note.".to_string()], "abcdef1", &[]).to_string();
        let text = crate::results::page_of("swarm", &json).unwrap();
        for expected in [
            "| auto | 1.000 (0.900 to 1.500) | 0.900 | 0.900 | 3 | 3 | 1 |",
            "| sam | – | – | – | 0 | 1 | 1 |",
            "Goal missed: auto loses at most 2 % against first touch at the 99.9th percentile",
            "Goal missed: auto loses at most 5 % against first touch at worst. Reached: 10.0 %",
            "0.900 of first touch, in 3 cases; the goal is for 10000.",
            "Goal missed: 10000 cases in less than 30 minutes on two cores. Reached: 125 minutes",
            "Goal missed: no rule broken with faults. Reached: 1 cases",
            "Broken: convergence, under auto, by seed 2.",
            "Broken: no harm, under auto, by seed 2.",
            "Broken: budget, under sam, by seed 3.",
            "- A note.",
            "`rondpoint simulate --case 2 --record 2.trace` records it. The digest of its decisions is \
             d2.",
            "CPU time: 3 s, 1.50 s a case, over 2 cases",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let place = |word: &str| text.find(word).expect(word);
        assert!(place("seed 2 under auto: 0.900") < place("seed 4 under sam: 0.800"), "{text}");
        assert_eq!(text.matches("seed 2 under auto: 0.900").count(), 1);
    }

    #[test]
    fn a_page_of_harsh_cases_has_the_rules_that_rare_faults_broke() {
        assert_eq!(Mode::of(false, true), Mode::Harsh);
        let harsh = REPORT.replace("drawn", "harsh").replace("\"speed\": 0.9", "\"speed\": null");
        let ran = Ran { found: serde_json::from_str(&harsh).unwrap(), cpu_s: 3.0 };
        let page = page(&ran, &[], "abcdef1", &[]).to_string();
        let text = crate::results::page_of(Mode::Harsh.page(), &page).unwrap();
        for expected in [
            "# The harsh swarm",
            "Mode: harsh.",
            "| sam | 1 | 1 |",
            "Goal missed: no rule broken with faults. Reached: 1 cases",
            "Broken: budget, under sam, by seed 3.",
            "./x sim --harsh --seeds 4 --from 1",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn a_page_of_calm_cases_says_so() {
        let calm = REPORT.replace("drawn", "calm");
        let ran = Ran { found: serde_json::from_str(&calm).unwrap(), cpu_s: 3.0 };
        let text =
            crate::results::page_of("swarm-calm", &page(&ran, &[], "abcdef1", &[]).to_string())
                .unwrap();
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
    fn a_goal_for_many_cases_is_not_met_by_few() {
        let of = |cases| Speeds {
            cases,
            worst: 1.0,
            worst_of_1000: 1.0,
            worst_of_100: 1.0,
            median: 1.0,
            best: 1.0,
        };
        assert!(losses(&of(3)).iter().all(|text| text.starts_with("Goal not shown yet")));
        assert!(losses(&of(CASES)).iter().all(|text| text.starts_with("Goal met")));
    }

    #[test]
    fn a_case_of_auto_without_a_speed_misses_the_goal() {
        let stopped = REPORT.replacen("\"unmeasured\": 0", "\"unmeasured\": 1", 1);
        let report: Report = serde_json::from_str(&stopped).unwrap();
        assert!(goals(&report)[0].starts_with("Goal missed: auto has no speed in 1 cases"));
    }
}
