//! Experiments as text for a terminal and as the page docs/EVALUATION.md.

use std::fmt::Write as _;

use super::catalogue::EXPERIMENTS;
use super::measure::{CaseReport, ExperimentReport, Report};
use crate::comparison::Speed;

/// A table for each experiment.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    for experiment in &report.experiments {
        let _ = writeln!(
            text,
            "{} on {} (emulated): {}",
            experiment.name, experiment.machine, experiment.about
        );
        let _ = writeln!(
            text,
            "{:28} {:>16} {:>8} {:>8} {:>8}  first, last action",
            "", "last third", "whole", "slowest", "spread"
        );
        for case in told(experiment) {
            let cell =
                |speed: Option<Speed>| speed.map_or("-".to_owned(), |s| format!("{:.2}", s.median));
            let _ = writeln!(
                text,
                "{:28} {:>16} {:>8} {:>8} {:>8}  {}",
                name(experiment, case),
                case.speed.map_or("-".to_owned(), range),
                cell(case.whole),
                cell(case.least),
                cell(case.spread),
                actions(case),
            );
        }
        text.push_str(&sentences(experiment).join("\n"));
        text.push_str("\n\n");
    }
    report.failures.iter().for_each(|failure| text += &format!("failed: {failure}\n"));
    text
}

/// The managed and free cases, then the best, the median and the worst of the fixed ones.
fn told(experiment: &ExperimentReport) -> Vec<&CaseReport> {
    let (mut fixed, mut told): (Vec<&CaseReport>, Vec<&CaseReport>) =
        experiment.cases.iter().partition(|case| case.name.starts_with("fixed "));
    let speed = |case: &CaseReport| case.runs.first().and(case.speed).map_or(0.0, |s| s.median);
    fixed.sort_by(|one, other| speed(other).total_cmp(&speed(one)));
    let best = fixed.iter().position(|case| case.name == experiment.best_fixed);
    let middle = fixed.len() / 2;
    let chosen = [best.unwrap_or(0), middle, fixed.len().saturating_sub(1)];
    told.extend(chosen.iter().filter_map(|&place| fixed.get(place).copied()));
    told
}

fn name(experiment: &ExperimentReport, case: &CaseReport) -> String {
    if case.name == experiment.best_fixed {
        format!("{} (best)", case.name)
    } else {
        case.name.clone()
    }
}

fn range(speed: Speed) -> String {
    if speed.least == speed.most {
        return format!("{:.2}", speed.median);
    }
    format!("{:.2} ({:.2}-{:.2})", speed.median, speed.least, speed.most)
}

/// When Rondpoint acted first and last, seconds after the start, over all runs.
fn actions(case: &CaseReport) -> String {
    let of = |pick: fn(&crate::product::ProductReport) -> Option<f64>| {
        case.runs.iter().filter_map(move |run| pick(run.rondpoint.as_ref()?))
    };
    let first = of(|report| report.first_action_s).fold(f64::INFINITY, f64::min);
    let last = of(|report| report.last_action_s).fold(0.0, f64::max);
    match case.runs.iter().any(|run| run.rondpoint.is_some()) {
        false => String::new(),
        true if first.is_infinite() => "nothing done".to_owned(),
        true => format!("{first:.2} s, {last:.2} s"),
    }
}

/// What the experiment was for, in numbers.
fn sentences(experiment: &ExperimentReport) -> Vec<String> {
    let mut sentences = Vec::new();
    let best = experiment.speed(&experiment.best_fixed);
    if let Some(mean) = experiment.balanced_mean() {
        sentences.push(format!(
            "Mean of the fixed placements with equally many threads on both nodes: {mean:.2}."
        ));
    }
    for case in experiment.cases.iter().filter(|case| case.name.starts_with("rondpoint=")) {
        if let Some((own, best)) = case.speed.zip(best) {
            sentences.push(format!(
                "{}: {:.2} of the best fixed placement, {:.2} of Linux.",
                case.name,
                own.median / best,
                own.median
            ));
        }
    }
    sentences
}

/// The page, from reports of one or several experiments each.
pub(super) fn page(reports: &[Report]) -> String {
    let experiments = || reports.iter().flat_map(|report| &report.experiments);
    let mut page = "# Evaluation: threads and whole processes\n\n\
         Written by `./x lab experiments --page FILE` from what `./x lab experiments NAME --seeds N --json` said, N as \
         told with each. All \
         figures are **emulated**, in slow motion (the machine files say by how much): a \
         model's claim, no measurement of hardware. Speeds are relative to Linux without NUMA balancing, begun in the \
         same place with the same seed; they are those of the last third of the run unless it says whole. With several \
         programs it is their geometric mean; slowest is the program that did worst, spread the standard deviation of \
         the programs' speeds. Medians, with the range where there are several seeds; one seed is no evidence for a few \
         percent. Losses stand beside gains. \
         Fixed placements run for one guest second, were searched with one seed, and the best was run with all.\n"
        .to_owned();
    let is_there = |name: &str| experiments().any(|one| one.name == name);
    let absent: Vec<&str> =
        EXPERIMENTS.iter().map(|one| one.name).filter(|name| !is_there(name)).collect();
    if !absent.is_empty() {
        let _ = write!(page, "\nNot run for this page: {}.\n", absent.join(", "));
    }
    experiments().for_each(|experiment| put(&mut page, experiment));
    let failures: Vec<&String> = reports.iter().flat_map(|report| &report.failures).collect();
    if !failures.is_empty() {
        page += "\n## Failures\n\n";
        failures.iter().for_each(|failure| page += &format!("- {failure}\n"));
    }
    page
}

/// One experiment.
fn put(page: &mut String, experiment: &ExperimentReport) {
    let seeds = experiment.cases.first().map_or(0, |case| case.runs.len());
    let _ = write!(
        page,
        "\n## {}\n\nOn `{}`, {} guest seconds a run, {seeds} {}: {}.\n\n\
         | | last third | whole | slowest | spread | first, last action |\n|---|---|---|---|---|---|\n",
        experiment.name,
        experiment.machine,
        experiment.seconds,
        if seeds == 1 { "seed" } else { "seeds" },
        experiment.about
    );
    for case in told(experiment) {
        let cell = |speed: Option<Speed>| speed.map_or("–".to_owned(), range);
        let cells = [case.speed, case.whole, case.least, case.spread].map(cell);
        let _ = writeln!(
            page,
            "| {} | {} | {} |",
            name(experiment, case),
            cells.join(" | "),
            actions(case)
        );
    }
    let _ = write!(page, "\n{}\n\n", sentences(experiment).join("\n"));
    for case in told(experiment).into_iter().filter(|case| !case.name.starts_with("fixed ")) {
        if let Some(summary) =
            case.runs.iter().find_map(|run| run.rondpoint.as_ref()?.summary.as_ref())
        {
            let _ = writeln!(page, "- {}, seed {}: {summary}", case.name, case.runs[0].seed);
        }
    }
    let Some(first) = experiment.cases.first() else { return };
    let _ = write!(
        page,
        "\nOne run by hand: `./x lab run --machine {} --config first-touch,{} -- {}`\n",
        experiment.machine,
        experiment
            .cases
            .iter()
            .filter(|case| case.name.starts_with("rondpoint="))
            .map(|case| case.configuration.clone())
            .collect::<Vec<_>>()
            .join(","),
        quoted(&first.command),
    );
}

/// As a shell takes it.
fn quoted(command: &[String]) -> String {
    let word = |word: &String| {
        if word.contains(' ') { format!("'{word}'") } else { word.clone() }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}
