//! The suite as text for a terminal.

use std::fmt::Write as _;

use super::definition::Half;
use super::report::{ProgramReport, RONDPOINT, Report};
use crate::comparison::Speed;
use crate::last_third::WorkUnit;
use crate::render::{INSTRUCTIONS, cell, price_of_manager};

/// A table for each half with the speeds, then a table for each program, then the failures.
pub(super) fn text(report: &Report) -> String {
    let mut text = format!(
        "\nEmulated: {}, {}x slow motion, {} run{} each. Speed: first touch = 1, more is faster.\n",
        report.machine,
        report.slow_motion,
        report.seeds,
        if report.seeds == 1 { "" } else { "s" },
    );
    for (half, title) in [(Half::Open, "open half"), (Half::Check, "check half, figures only")] {
        text.push_str(&table(report, half, title));
    }
    for program in &report.programs {
        text.push_str(&one(program));
    }
    let thirds = report.programs.iter().flat_map(|program| &program.configurations);
    if thirds.into_iter().any(|one| one.last_third_in == Some(WorkUnit::Instructions)) {
        let _ = writeln!(text, "{INSTRUCTIONS}");
    }
    for failure in &report.failures {
        let _ = writeln!(text, "FAILED: {failure}");
    }
    text
}

/// Whole runs: a row for each program of the half, and their geometric means.
fn table(report: &Report, half: Half, title: &str) -> String {
    let programs: Vec<&ProgramReport> =
        report.programs.iter().filter(|program| program.half == half).collect();
    if programs.is_empty() {
        return String::new();
    }
    let names = report.configurations();
    let mut text = format!("\n{title}\n  {:<12}", "program");
    for name in &names {
        let _ = write!(text, " {name:>11}");
    }
    let _ = writeln!(text, "  best rival        first action");
    for program in programs {
        let _ = write!(text, "  {:<12}", program.name);
        for name in &names {
            let _ = write!(text, " {:>11}", median(program.speed(name)));
        }
        let rival = program.best_rival.as_ref();
        let rival = rival.map(|one| format!("{} {:.2}", one.name, one.speed)).unwrap_or_default();
        let _ = writeln!(text, "  {rival:<16}  {}", first_action(program));
    }
    let _ = write!(text, "  {:<12}", "mean");
    for name in &names {
        let mean = report.mean(name, Some(half));
        let _ = write!(text, " {:>11}", mean.map_or("-".to_owned(), |mean| format!("{mean:.2}")));
    }
    text.push('\n');
    text
}

fn median(speed: Option<Speed>) -> String {
    speed.map_or_else(|| "-".to_owned(), |speed| format!("{:.2}", speed.median))
}

/// When Rondpoint acted first, in words.
pub(super) fn first_action(program: &ProgramReport) -> String {
    match (program.of(RONDPOINT), program.first_action_s) {
        (None, _) => String::new(),
        (Some(_), None) => "none".to_owned(),
        (Some(_), Some(seconds)) => format!("{seconds:.2} s"),
    }
}

/// One program: each placement's time and traffic, and what Rondpoint said of the open half.
fn one(program: &ProgramReport) -> String {
    let mut text = format!(
        "\n{}: {} ({}; {})\n  {:<12} {:>8} {:>6} {:>10} {:>6} {:>6} {:>8} {:>8} {:>8}\n",
        program.name,
        program.title,
        program.kind,
        program.packages.join(", "),
        "placement",
        "seconds",
        "speed",
        "last third",
        "LAR %",
        "MC-IMB",
        "latency",
        "reads/µs",
        "moved",
    );
    for configuration in &program.configurations {
        let runs = &configuration.runs;
        let _ = writeln!(
            text,
            "  {:<12} {:>8} {:>6} {:>10} {:>6} {:>6} {:>8} {:>8} {:>8}",
            configuration.name,
            cell(runs, 2, |run| Some(run.seconds)),
            median(configuration.speed),
            median(configuration.last_third),
            cell(runs, 0, |run| run.local_percent),
            cell(runs, 0, |run| run.controller_imbalance_percent),
            cell(runs, 0, |run| run.latency_cycles),
            cell(runs, 1, |run| Some(run.requests_per_us)),
            cell(runs, 0, |run| Some(run.pages_moved as f64)),
        );
    }
    let idle = program.configurations.iter().filter_map(|one| one.idle.as_ref());
    idle.for_each(|sentence| text += &format!("  {sentence}\n"));
    let prices = program.configurations.iter().filter_map(price_of_manager);
    prices.for_each(|sentence| text += &format!("  {sentence}\n"));
    if let Some(said) = &program.said {
        let _ = writeln!(text, "  {RONDPOINT}: {said}");
    }
    text
}

#[cfg(test)]
mod tests {
    use rondpoint_machine::Machine;

    use super::super::report::tests::sample;
    use super::*;

    #[test]
    fn the_open_half_has_words_and_the_check_half_figures() {
        let machine = Machine::synthetic("nodes=4 cpus=1 memory=384M").expect("a machine");
        let mut report = Report::new(&machine, 1);
        report.add(sample("open"));
        let text = super::text(&report);
        assert!(text.contains("interleave 2.00"), "{text}");
        assert!(text.contains("rondpoint: pages were moved"), "{text}");
        assert!(text.contains("numad moved nothing"), "{text}");
        let mut report = Report::new(&machine, 1);
        report.add(sample("check"));
        report.failures.push("x".to_owned());
        let text = super::text(&report);
        assert!(text.contains("check half, figures only") && text.contains("0.40 s"), "{text}");
        assert!(!text.contains("pages were moved") && text.contains("FAILED: x"), "{text}");
    }
}
