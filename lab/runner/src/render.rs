//! Tables for people.

use std::fmt::Write as _;

use rondpoint_lab_init::Ending;

use crate::comparison::{ConfigurationReport, Speed, median};
use crate::last_third::WorkUnit;
use crate::result::RunResult;
use crate::run::Report;

/// The median over runs, or a dash.
pub(crate) fn cell(
    runs: &[RunResult],
    digits: usize,
    value: impl Fn(&RunResult) -> Option<f64>,
) -> String {
    let mut values: Vec<f64> = runs.iter().filter_map(value).collect();
    values.sort_by(f64::total_cmp);
    median(&values).map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Pages by mover: the kernel's balancing, Rondpoint, all movers together.
pub(crate) fn pages_cells(runs: &[RunResult]) -> [String; 3] {
    let by_rondpoint = |run: &RunResult| Some(run.rondpoint.as_ref()?.pages_moved? as f64);
    [
        cell(runs, 0, |run| Some(run.pages_balanced as f64)),
        cell(runs, 0, by_rondpoint),
        cell(runs, 0, |run| Some(run.pages_moved as f64)),
    ]
}

/// The whole report: a table, then the traffic of each configuration.
pub(crate) fn report(report: &Report, output: bool) -> String {
    let mut text = String::new();
    let seeds = report.configurations.first().map_or(0, |configuration| configuration.runs.len());
    let _ = writeln!(
        text,
        "{} on {}: emulated, {}x slow motion, medians of {seeds} seed{}\n",
        report.command.join(" "),
        report.machine,
        report.slow_motion,
        if seeds == 1 { "" } else { "s" },
    );
    let width = report.configurations.iter().map(|one| one.name.len()).max().unwrap_or(0).max(11);
    let _ = writeln!(
        text,
        "{:<width$} {:>8} {:>16} {:>16} {:>6} {:>7} {:>8} {:>13} {:>8} {:>9} {:>8}",
        "placement",
        "seconds",
        "speed (range)",
        "last third",
        "LAR %",
        "MC-IMB",
        "latency",
        "link use/imb",
        "balanced",
        "rondpoint",
        "moved"
    );
    for configuration in &report.configurations {
        text.push_str(&row(configuration, width));
    }
    text.push_str(LEGEND);
    for note in notes(report) {
        let _ = writeln!(text, "{note}");
    }
    for configuration in &report.configurations {
        if let Some(run) = configuration.runs.first() {
            let _ = writeln!(
                text,
                "\n{}: MB read by [node] from <node>, seed {}",
                configuration.name, run.seed
            );
            text.push_str(&matrix(&run.traffic_mb));
            text.push_str(&endings(configuration));
            if output {
                text.push_str(&run.stdout);
                text.push_str(&run.stderr);
            }
        }
    }
    text
}

const LEGEND: &str = "
speed: first touch = 1, more is faster; last third: the same for the last third of the work. latency: cycles per read
from DRAM. Pages moved: balanced, by the kernel's automatic NUMA balancing; by rondpoint; moved, by anybody.
";

fn row(configuration: &ConfigurationReport, width: usize) -> String {
    let runs = &configuration.runs;
    let speed = |speed: Option<Speed>| {
        speed.map_or_else(
            || "-".to_owned(),
            |speed| format!("{:.2} ({:.2}-{:.2})", speed.median, speed.least, speed.most),
        )
    };
    let links = format!(
        "{}/{}",
        cell(runs, 0, |run| run.link_use_percent),
        cell(runs, 0, |run| run.link_imbalance_percent)
    );
    let [balanced, by_rondpoint, moved] = pages_cells(runs);
    format!(
        "{:<width$} {:>8} {:>16} {:>16} {:>6} {:>7} {:>8} {:>13} {:>8} {:>9} {:>8}\n",
        configuration.name,
        cell(runs, 3, |run| Some(run.seconds)),
        speed(configuration.speed),
        speed(configuration.last_third),
        cell(runs, 0, |run| run.local_percent),
        cell(runs, 0, |run| run.controller_imbalance_percent),
        cell(runs, 0, |run| run.latency_cycles),
        links,
        balanced,
        by_rondpoint,
        moved,
    )
}

/// What the table cannot say: which managers did not act, what was measured in instructions, what
/// Rondpoint did.
fn notes(report: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    for configuration in &report.configurations {
        notes.extend(configuration.idle.clone());
        notes.extend(price_of_manager(configuration));
        for run in &configuration.runs {
            let name = &configuration.name;
            let summary = run.rondpoint.as_ref().and_then(|report| report.summary.as_ref());
            notes.extend(summary.map(|summary| format!("{name}, seed {}: {summary}", run.seed)));
            notes.extend(run.spread.map(|spread| {
                format!(
                    "{name}, seed {}: moved {} pages from {:.2} s to {:.2} s",
                    run.seed,
                    spread.moved_pages,
                    spread.began_s,
                    spread.began_s + spread.took_s
                )
            }));
        }
    }
    let thirds = |one: &ConfigurationReport| one.last_third_in == Some(WorkUnit::Instructions);
    if report.configurations.iter().any(thirds) {
        notes.push(INSTRUCTIONS.to_owned());
    }
    notes
}

/// What the manager of a configuration took, by both prices; nothing where none ran.
pub(crate) fn price_of_manager(configuration: &ConfigurationReport) -> Option<String> {
    let runs = &configuration.runs;
    runs.iter().any(|run| run.manager.is_some()).then(|| {
        let ConfigurationReport { name, .. } = configuration;
        let charged = cell(runs, 3, |run| Some(run.manager.charged_s));
        let percent = cell(runs, 2, |run| Some(run.manager.cpu_percent));
        let slow = cell(runs, 3, |run| Some(run.manager.slow_motion_s));
        format!("{name}: manager {charged} CPU s, {percent} % of all; in slow motion {slow} s")
    })
}

/// Why a last third may mean little.
pub(crate) const INSTRUCTIONS: &str = "last third: by instructions of all CPUs, the kernel's and a manager's \
    among them, because the program prints no\nround_ends_s=0.10,0.21,…; instructions are no progress where threads spin";

fn matrix(cells: &[Vec<f64>]) -> String {
    let mut text = String::from("     ");
    for holding in 0..cells.len() {
        let _ = write!(text, "{:>9}", format!("<{holding}>"));
    }
    text.push('\n');
    for (accessing, row) in cells.iter().enumerate() {
        let _ = write!(text, "{:>5}", format!("[{accessing}]"));
        for cell in row {
            let _ = write!(text, "{cell:>9.1}");
        }
        text.push('\n');
    }
    text
}

/// Runs that did not end well, and why where we can tell.
fn endings(configuration: &ConfigurationReport) -> String {
    let mut text = String::new();
    for run in &configuration.runs {
        let _ = match run.ending {
            Ending::Exit(0) => Ok(()),
            Ending::Exit(status) => writeln!(text, "seed {}: exit status {status}", run.seed),
            Ending::Signal(4) => writeln!(
                text,
                "seed {}: illegal instruction; the emulated CPU has AVX2 but no AVX-512",
                run.seed
            ),
            Ending::Signal(9) => writeln!(
                text,
                "seed {}: killed; the guest may be out of memory ({:.0} MiB resident at most)",
                run.seed, run.max_rss_mib
            ),
            Ending::Signal(signal) => writeln!(text, "seed {}: ended by signal {signal}", run.seed),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::last_third::LastThird;
    use crate::product::ProductReport;
    use crate::result::{ManagerPrice, sample_run};

    #[test]
    fn what_the_table_cannot_say_stands_under_it() {
        let said =
            br#"{"schema":1,"policy":"p","elapsed_s":1,"pages_moved":3,"summary":"Saw much."}"#;
        let rondpoint = Some(ProductReport::parse(said).expect("a report"));
        let last_third = Some(LastThird { unit: WorkUnit::Instructions, per_s: 1.0 });
        let manager = ManagerPrice { charged_s: 0.02, slow_motion_s: 0.2, cpu_percent: 0.5 };
        let ours = RunResult { manager, rondpoint, last_third, ..sample_run() };
        let one = |configuration, run| ConfigurationReport::new(configuration, vec![run], &[]);
        let text = report(
            &Report {
                format: 2,
                origin: "emulated".to_owned(),
                machine: "m".to_owned(),
                slow_motion: 10.0,
                command: vec!["./app".to_owned()],
                configurations: vec![
                    one(Configuration::Numad, sample_run()),
                    one(Configuration::Rondpoint, ours),
                ],
            },
            false,
        );
        assert!(text.contains("\nnumad moved nothing: it did not act (it leaves"), "{text}");
        assert!(text.contains("\nrondpoint, seed 1: Saw much.\n"), "{text}");
        let price = "\nrondpoint: manager 0.020 CPU s, 0.50 % of all; in slow motion 0.200 s\n";
        assert!(text.contains(price), "{text}");
        assert!(!text.contains("numad: manager"), "{text}");
        assert!(text.contains("instructions are no progress"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }
}
