//! Experiments as text for a terminal and as the page docs/EVALUATION.md.

use std::fmt::Write as _;

use super::case::LINUX;
use super::catalogue::EXPERIMENTS;
use super::measure::{AUTO, CaseReport, ExperimentReport, Report, Run};
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
    let best = fixed.iter().position(|case| Some(&case.name) == experiment.best_fixed.as_ref());
    let middle = fixed.len() / 2;
    let mut chosen = vec![best.unwrap_or(0), middle, fixed.len().saturating_sub(1)];
    chosen.dedup();
    told.extend(chosen.iter().filter_map(|&place| fixed.get(place).copied()));
    told
}

fn name(experiment: &ExperimentReport, case: &CaseReport) -> String {
    if Some(&case.name) == experiment.best_fixed.as_ref() {
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
    let best = experiment.best_speed();
    if let Some(mean) = experiment.balanced_mean() {
        sentences.push(format!(
            "Mean of the fixed placements with equally many threads on both nodes: {mean:.2}."
        ));
    }
    for case in experiment.managed() {
        let Some(own) = case.speed.map(|speed| speed.median) else { continue };
        let of_best = best.map_or(String::new(), |best| {
            format!("{:.2} of the best fixed placement, ", own / best)
        });
        sentences.push(format!("{}: {of_best}{own:.2} of Linux.", case.name));
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
         the programs' speeds relative to those under the best fixed placement: how unevenly they are served. Medians, with the range where there are several seeds; one seed is no evidence for a few \
         percent. Losses stand beside gains. \
         Fixed placements run for one guest second, were searched with one seed, and the best was run with all; NUMA balancing \
         has one seed.\n"
        .to_owned();
    let is_there = |name: &str| experiments().any(|one| one.name == name);
    let absent: Vec<&str> =
        EXPERIMENTS.iter().map(|one| one.name).filter(|name| !is_there(name)).collect();
    if !absent.is_empty() {
        let _ = write!(page, "\nNot run for this page: {}.\n", absent.join(", "));
    }
    let done: Vec<&ExperimentReport> = experiments().collect();
    page += &overview(&done);
    done.iter().for_each(|experiment| put(&mut page, experiment));
    let failures: Vec<&String> = reports.iter().flat_map(|report| &report.failures).collect();
    if !failures.is_empty() {
        page += "\n## Failures\n\n";
        failures.iter().for_each(|failure| page += &format!("- {failure}\n"));
    }
    page
}

/// What is asked of the whole: `auto` against the best single policy, and each policy over all its
/// experiments.
fn overview(experiments: &[&ExperimentReport]) -> String {
    let mut text = "\n## In short\n\nMedians of the last third.\n\n\
         | | best single policy | auto of it | auto of the best fixed placement | auto of Linux |\n|---|---|---|---|---|\n"
        .to_owned();
    let ratio = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
    for experiment in experiments {
        let Some(auto) = experiment.speed(AUTO) else { continue };
        let of_best = experiment.best_speed().map(|best| auto / best);
        let (name, of_single) = match experiment.best_single() {
            Some((name, speed)) => (name, Some(auto / speed)),
            None => ("–", None),
        };
        let _ = writeln!(
            text,
            "| {} | {name} | {} | {} | {auto:.2} |",
            experiment.name,
            ratio(of_single),
            ratio(of_best),
        );
    }
    text.push('\n');
    let mut managers: Vec<&str> =
        experiments.iter().flat_map(|one| one.managed()).map(|case| case.name.as_str()).collect();
    managers.sort_unstable();
    managers.dedup();
    for manager in managers {
        let own: Vec<&&ExperimentReport> =
            experiments.iter().filter(|one| one.speed(manager).is_some()).collect();
        let speeds = || own.iter().filter_map(|one| one.speed(manager));
        let gaps = own.iter().filter_map(|one| Some(1.0 - one.speed(manager)? / one.best_speed()?));
        let spreads = |name: &str| mean(own.iter().filter_map(|one| one.spread(name)));
        let _ = writeln!(
            text,
            "- {manager}, {} experiments: least {} of Linux, mean gap to the best fixed placement {} %, mean spread {} \
             (Linux's {}).",
            own.len(),
            ratio(speeds().min_by(f64::total_cmp)),
            mean(gaps).map_or("–".to_owned(), |gap| format!("{:.0}", 100.0 * gap)),
            ratio(spreads(manager)),
            ratio(spreads(LINUX)),
        );
    }
    text
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
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
    for case in experiment.managed() {
        let report = |run: &Run| Some((run.seed, run.rondpoint.clone()?));
        if let Some((seed, report)) = case.runs.iter().find_map(report) {
            let summary = report.summary.as_deref().unwrap_or_default();
            // Who stays is told of as well; what it costs stands with who goes.
            let migration = report.first_reason("asymsched", "budget");
            let migration = migration.map(|why| format!(" AsymSched: {why}.")).unwrap_or_default();
            let _ = writeln!(
                page,
                "- {}, seed {seed}: {summary}{migration} Acting took {:.0} ms.",
                case.name,
                1e3 * report.spent_s(),
            );
        }
    }
    let Some(first) = experiment.cases.first() else { return };
    let _ = write!(
        page,
        "\nOne run by hand: `./x lab run --machine {} --config first-touch,{} -- {}`\n",
        experiment.machine,
        experiment.managed().map(|case| case.configuration.clone()).collect::<Vec<_>>().join(","),
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
