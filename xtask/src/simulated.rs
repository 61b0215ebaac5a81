//! `./x simulated`: runs the simulator's comparisons that docs/results has, and writes their JSON
//! and pages.

mod cross_check;
mod papers;
#[path = "../../crates/sim/src/rank_correlation.rs"]
mod rank_correlation;
mod speed;
pub(crate) mod swarm;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::commit::commit;
use crate::lab::target_folder;
use crate::tidy::root;
use crate::{cargo, results};

/// Arguments of `./x simulated`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Cases of the swarm in each comparison
    #[arg(long, value_name = "N", default_value_t = 200)]
    cases: u64,
    /// Only these pages
    #[arg(long, value_name = "PAGE", value_enum, value_delimiter = ',')]
    only: Vec<Page>,
}

/// Pages that `./x simulated` writes.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Page {
    /// What the cost model predicted against what trials measured
    Predictions,
    /// auto against the single policies, interleaving, NUMA balancing and numad
    Priced,
    /// The papers' numbers against simulated ones
    Papers,
    /// Simulated against emulated gains of the lab's programs
    CrossCheck,
    /// How fast the simulator is
    Speed,
}

/// Ends of the scatter plot's axes, percent.
const RANGE: [f64; 2] = [-100.0, 200.0];
/// Clock ticks per second in files of `/proc`, on every architecture.
const TICKS_PER_S: f64 = 100.0;

/// Runs the comparisons and writes the pages.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    build()?;
    let (cases, commit) = (arguments.cases, head()?);
    let number = cases.to_string();
    let wanted = |page| arguments.only.is_empty() || arguments.only.contains(&page);
    if wanted(Page::Predictions) {
        let ran: Ran<Predictions> = simulate(&["--predictions", &number])?;
        write("predictions", &predicted(&ran.found, cases, &commit))?;
    }
    if wanted(Page::Priced) {
        let ran: Ran<Judgement> = simulate(&["--judge", &number])?;
        write("priced", &judged(&ran, cases, &commit))?;
    }
    if wanted(Page::Papers) {
        for (paper, title) in papers::PAPERS {
            write(&format!("reproduce-{paper}"), &papers::run(paper, title, &commit)?)?;
        }
    }
    if wanted(Page::CrossCheck) {
        write("cross-check", &cross_check::run(&commit)?)?;
    }
    if wanted(Page::Speed) {
        write("simulator-speed", &speed::run(&commit)?)?;
    }
    results::run()
}

fn build() -> Result<()> {
    let mut build = cargo::command();
    build.args(["build", "--quiet", "--release", "--package", "rondpoint-sim"]);
    if !build.status().context("cargo: cannot run")?.success() {
        bail!("the simulator does not build");
    }
    Ok(())
}

/// The simulator's output and its CPU time.
struct Ran<T> {
    found: T,
    /// CPU seconds of all cores together.
    cpu_s: f64,
}

/// Runs the simulator and reads its JSON. Exit status 1 of a swarm means a broken rule, which the
/// JSON has.
fn simulate<T: for<'a> Deserialize<'a>>(arguments: &[&str]) -> Result<Ran<T>> {
    let program = target_folder().join("release/rondpoint-sim");
    let before = cpu_s_of_children()?;
    let output = Command::new(&program)
        .current_dir(root())
        .args(arguments)
        .arg("--json")
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| program.display().to_string())?;
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("rondpoint-sim {} failed", arguments.join(" "));
    }
    let cpu_s = cpu_s_of_children()? - before;
    Ok(Ran { found: serde_json::from_slice(&output.stdout)?, cpu_s })
}

/// CPU seconds of all ended children.
fn cpu_s_of_children() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    // proc(5): fields 16 and 17 in user and kernel mode; the third follows the program's name.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: Result<Vec<f64>, _> = fields.skip(13).take(2).map(str::parse::<f64>).collect();
    Ok(ticks.context("/proc/self/stat: expected numbers")?.iter().sum::<f64>() / TICKS_PER_S)
}

fn write(name: &str, experiment: &Value) -> Result<()> {
    let path: PathBuf = root().join(format!("docs/results/{name}.json"));
    let before = fs::read_to_string(&path).ok();
    let mut experiment = experiment.clone();
    let kept = keep_findings(&mut experiment, before.as_deref());
    if kept > 0 {
        eprintln!("note: {name}: {kept} findings by hand are kept; read whether they still hold");
    }
    fs::write(&path, serde_json::to_string_pretty(&experiment)? + "\n")
        .with_context(|| path.display().to_string())
}

/// Copies the findings of the existing page, which people write, into an experiment without
/// findings. Returns their number.
fn keep_findings(experiment: &mut Value, before: Option<&str>) -> usize {
    let before: Option<Value> = before.and_then(|text| serde_json::from_str(text).ok());
    let written = before.as_ref().and_then(|page| page["findings"].as_array());
    match written {
        Some(findings) if experiment.get("findings").is_none() => {
            experiment["findings"] = json!(findings);
            findings.len()
        }
        _ => 0,
    }
}

/// The commit of the pages.
fn head() -> Result<String> {
    commit().context("no commit of git here, which a page of results has to name")
}

/// First words of a sentence about a goal.
fn verdict(met: bool) -> &'static str {
    if met { "Goal met" } else { "Goal missed" }
}

/// The published part of the simulator's report on predictions.
#[derive(Deserialize)]
struct Predictions {
    classes: Vec<Class>,
    trials: Vec<Trial>,
}

#[derive(Deserialize)]
struct Class {
    mechanism: String,
    trials: usize,
    clear: usize,
    median_error: Option<f64>,
    rank_correlation: Option<f64>,
    rank_correlation_of_all: Option<f64>,
    same_sign: Option<f64>,
}

#[derive(Deserialize)]
struct Trial {
    mechanism: String,
    predicted: f64,
    measured: f64,
    standing: String,
}

fn predicted(found: &Predictions, cases: u64, commit: &str) -> Value {
    let cell = |value: Option<f64>| value.map_or(Value::Null, |value| json!(value));
    let row = |class: &Class| {
        json!({"name": class.mechanism, "cells": [
            cell(class.rank_correlation), cell(class.median_error),
            cell(class.same_sign.map(|share| 100.0 * share)), class.clear, class.trials,
            cell(class.rank_correlation_of_all),
        ]})
    };
    let clear = |trial: &&Trial| trial.standing == "clear";
    let rounded = |value: f64| (10.0 * value).round() / 10.0;
    let point = |trial: &Trial| {
        let at = [rounded(trial.predicted), rounded(trial.measured)];
        json!({"series": trial.mechanism, "at": at})
    };
    let points: Vec<Value> = found.trials.iter().filter(clear).map(point).collect();
    json!({
        "format": 1,
        "title": "Cost model: predicted against measured",
        "about": format!(
            "Each trial of the controller, over all machines and workloads of the simulator under \
             each policy, and {cases} cases of the swarm under auto. Predicted is what the cost \
             model said before the action, measured is what the trial found. A trial is clear if \
             one of both is beyond 2 % and beyond the trial's noise, and if the moved threads were \
             on their old node before the last window. The last column has all trials beyond 2 %."
        ),
        "kind": "simulated",
        "machine": "all",
        "seeds": 1,
        "commit": commit,
        "commands": [
            format!("./x simulated --only predictions --cases {cases}"),
            format!("rondpoint simulate --predictions {cases}"),
        ],
        "reference": null,
        "columns": [
            "rank correlation", "median error, points", "same sign, %", "clear trials", "all trials",
            "rank correlation of all",
        ],
        "rows": found.classes.iter().map(row).collect::<Vec<_>>(),
        "scatter": {
            "x": "predicted, %", "y": "measured, %", "range": RANGE, "points": points,
        },
    })
}

/// The published part of the simulator's report on policies.
#[derive(Deserialize)]
struct Judgement {
    scenes: Vec<Contender>,
    cases: Vec<Contender>,
    losses: Vec<Loss>,
    behind_rivals: Vec<Loss>,
    unfinished: Vec<String>,
    wins: usize,
    lines: Vec<Value>,
}

#[derive(Deserialize)]
struct Loss {
    scene: String,
    speed: f64,
    best: String,
    best_speed: f64,
}

#[derive(Deserialize)]
struct Contender {
    policy: String,
    rival: bool,
    unfinished: usize,
    mean: f64,
    worst: f64,
    best: f64,
    slower: f64,
}

/// The policy that is judged.
const JUDGED: &str = "auto";
/// Part of the best single policy's speed that it is to reach.
const PART: f64 = 0.95;
/// Largest number of losses against rivals that a page names.
const NAMED: usize = 15;
/// Where the causes of losses are told.
const CAUSES: &str = "docs/simulator.md has the causes of the losses that were looked at.";

fn judged(ran: &Ran<Judgement>, cases: u64, commit: &str) -> Value {
    let found = &ran.found;
    let row = |kind: &str, one: &Contender| {
        json!({"name": format!("{}, {kind}", one.policy), "cells": [
            one.mean, one.worst, one.best, 100.0 * one.slower,
        ]})
    };
    let mut rows: Vec<Value> = found.scenes.iter().map(|one| row("scenes", one)).collect();
    rows.extend(found.cases.iter().map(|one| row("swarm", one)));
    json!({
        "format": 1,
        "title": "auto against single policies, interleaving, NUMA balancing and numad",
        "about": format!(
            "Speed against first touch: geometric mean, worst and best, and the share that is slower \
             than first touch by more than 2 %. Scenes are every machine with every workload. The \
             rows of the swarm are its first {cases} cases without faults, each under every \
             policy. docs/results/swarm.md has more cases, and worse ones among them."
        ),
        "kind": "simulated",
        "machine": "all",
        "seeds": 1,
        "commit": commit,
        "commands": [
            format!("./x simulated --only priced --cases {cases}"),
            format!("rondpoint simulate --judge {cases}"),
        ],
        "reference": 1.0,
        "columns": ["mean speed", "worst", "best", "slower, %"],
        "rows": rows,
        "findings": judged_findings(found, ran.cpu_s),
    })
}

fn judged_findings(found: &Judgement, cpu_s: f64) -> Vec<String> {
    let (all, losses) = (found.lines.len(), found.losses.len());
    let met = found.losses.is_empty() && found.unfinished.is_empty();
    let mut findings = vec![format!(
        "{}: {JUDGED} at least {PART} of the best single policy on every workload. Reached: in {} of \
         {all} scenes and cases, below it in {losses}.",
        verdict(met),
        all - losses - found.unfinished.len(),
    )];
    findings.extend(found.unfinished.iter().map(|scene| {
        format!(
            "Not finished: {scene}: {JUDGED} has no speed, for it or first touch did not finish."
        )
    }));
    let told = |kind: &str, Loss { scene, speed, best, best_speed }: &Loss| {
        format!("{kind}: {scene}: {speed:.2} of first touch, {best} {best_speed:.2}.")
    };
    findings.extend(found.losses.iter().map(|loss| told("Loss", loss)));
    if !found.losses.is_empty() {
        findings.push(CAUSES.to_string());
    }
    findings.extend(over_all("scenes", &found.scenes));
    findings.extend(over_all("swarm", &found.cases));
    findings.push(format!(
        "{JUDGED} is faster than all others by more than 2 % in {} of {all}. It is below {PART} of \
         first touch or the best rival in {}.",
        found.wins,
        found.behind_rivals.len()
    ));
    let named = found.behind_rivals.iter().take(NAMED);
    findings.extend(named.map(|loss| told("Behind a rival", loss)));
    findings
        .push(format!("CPU time: {cpu_s:.0} s, all cores together, on a machine with other work."));
    findings
}

/// The goal that the judged policy is faster than each single one in the mean.
fn over_all(kind: &str, rows: &[Contender]) -> Option<String> {
    let judged = rows.iter().find(|one| one.policy == JUDGED)?;
    let single = rows.iter().filter(|one| !one.rival && one.policy != JUDGED);
    let best = single.max_by(|a, b| a.mean.total_cmp(&b.mean))?;
    Some(format!(
        "{}: {JUDGED} faster than each single policy over all, {kind}. Reached: a mean of {:.3}, {} \
         has {:.3}.",
        verdict(judged.mean > best.mean && judged.unfinished == 0),
        judged.mean,
        best.policy,
        best.mean
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_which_goals_auto_misses_and_names_each_scene() {
        let found = r#"{"scenes": [
            {"policy": "numad", "rival": true, "unfinished": 0, "mean": 2.0, "worst": 1, "best": 2, "slower": 0},
            {"policy": "sam", "rival": false, "unfinished": 0, "mean": 1.3, "worst": 1, "best": 2, "slower": 0},
            {"policy": "auto", "rival": false, "unfinished": 1, "mean": 1.4, "worst": 1, "best": 2, "slower": 0}],
            "cases": [], "unfinished": ["a on b"], "wins": 0, "lines": [{}, {}, {}],
            "losses": [{"scene": "c on d", "speed": 1.01, "best": "sam", "best_speed": 1.14}],
            "behind_rivals":
                [{"scene": "e on f", "speed": 1.0, "best": "numad", "best_speed": 3.0}]}"#;
        let page = |found: &str| {
            let ran = Ran { found: serde_json::from_str(found).unwrap(), cpu_s: 7.0 };
            crate::results::page_of("priced", &judged(&ran, 1, "abcdef1").to_string()).unwrap()
        };
        let text = page(found);
        for expected in [
            "Goal missed: auto at least 0.95 of the best single policy on every workload. Reached: in \
             1 of 3 scenes and cases, below it in 1.",
            "Not finished: a on b: auto has no speed, for it or first touch did not finish.",
            "Loss: c on d: 1.01 of first touch, sam 1.14.",
            CAUSES,
            "Goal missed: auto faster than each single policy over all, scenes. Reached: a mean of \
             1.400, sam has 1.300.",
            "Behind a rival: e on f: 1.00 of first touch, numad 3.00.",
            "CPU time: 7 s",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let good = found.replace("\"a on b\"", "").replace("\"losses\": [{", "\"x\": [{");
        let good = good.replace("\"wins\"", "\"losses\": [], \"wins\"");
        let good = page(&good.replace("\"unfinished\": 1", "\"unfinished\": 0"));
        assert!(good.contains("Goal met: auto at least 0.95 of the best single policy"), "{good}");
        assert!(good.contains("Goal met: auto faster than each single policy over all"), "{good}");
    }

    #[test]
    fn findings_by_hand_stay_and_findings_of_the_run_replace_those_before() {
        let before = r#"{"title": "old", "findings": ["By hand."]}"#;
        let mut silent = json!({"title": "new"});
        assert_eq!(keep_findings(&mut silent, Some(before)), 1);
        assert_eq!(silent, json!({"title": "new", "findings": ["By hand."]}));
        let mut telling = json!({"title": "new", "findings": ["Of the run."]});
        assert_eq!(keep_findings(&mut telling, Some(before)), 0);
        assert_eq!(telling["findings"], json!(["Of the run."]));
        assert_eq!(keep_findings(&mut json!({"title": "new"}), None), 0);
    }
}
