//! Experiments as text for a terminal.

use std::fmt::Write as _;

use super::case::INTERLEAVED;
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
                "{:28} {:>16} {:>8} {:>8} {:>8}  {}{}",
                name(experiment, case),
                case.speed.map_or("-".to_owned(), range),
                cell(case.whole),
                cell(case.least),
                cell(case.spread),
                actions(case),
                if experiment.copies { copies(case) } else { String::new() },
            );
        }
        text.push_str(&sentences(experiment).join("\n"));
        text.push_str("\n\n");
    }
    report.failures.iter().for_each(|failure| text += &format!("failed: {failure}\n"));
    text
}

/// The managed and free cases, then the best, the median and the worst of the fixed ones.
pub(super) fn told(experiment: &ExperimentReport) -> Vec<&CaseReport> {
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

pub(super) fn name(experiment: &ExperimentReport, case: &CaseReport) -> String {
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

/// What [`of_copies`] tells.
pub(super) const COPIES: [&str; 2] = ["local in the last third, %", "pages that got copies"];

/// Of all runs: local accesses in the last third in percent, and pages that got copies. A page
/// counts each time.
pub(super) fn of_copies(case: &CaseReport) -> [Option<Speed>; 2] {
    let reports = case.runs.iter().filter_map(|run| run.rondpoint.as_ref());
    let pages = Speed::of(reports.map(|report| report.copied_pages() as f64));
    let local = Speed::of(case.runs.iter().filter_map(|run| run.local_percent));
    [local, pages]
}

/// The same in words.
fn copies(case: &CaseReport) -> String {
    let [local, pages] = of_copies(case).map(|speed| speed.map(|speed| speed.median));
    let local = local.map_or(String::new(), |percent| format!("; {percent:.0} % local"));
    let pages = pages.map_or(String::new(), |pages| format!("; {pages:.0} pages got copies"));
    local + &pages
}

/// When Rondpoint acted first and last, seconds after the start, over all runs.
pub(super) fn actions(case: &CaseReport) -> String {
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
    let spread = experiment.speed(INTERLEAVED);
    for case in experiment.managed() {
        let Some(own) = case.speed.map(|speed| speed.median) else { continue };
        let of_best = best.map_or(String::new(), |best| {
            format!("{:.2} of the best fixed placement, ", own / best)
        });
        let of_spread =
            spread.map_or(String::new(), |spread| format!(", {:.2} of interleaving", own / spread));
        let percent = Speed::of(case.runs.iter().map(|run| run.manager.cpu_percent));
        let percent = percent.map_or(String::new(), |speed| {
            format!(", {:.2} % of the CPU time for the manager", speed.median)
        });
        sentences.push(format!("{}: {of_best}{own:.2} of Linux{of_spread}{percent}.", case.name));
    }
    sentences
}
