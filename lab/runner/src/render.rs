//! Tables for people.

use std::fmt::Write as _;

use rondpoint_lab_init::Ending;

use crate::result::RunResult;
use crate::run::{ConfigurationReport, Report};

/// The middle of sorted values, the mean of the two middle ones where their number is even.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

fn median_of(runs: &[RunResult], value: impl Fn(&RunResult) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = runs.iter().filter_map(value).collect();
    values.sort_by(f64::total_cmp);
    median(&values)
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
    let _ = writeln!(
        text,
        "{:<12} {:>9} {:>17} {:>6} {:>7} {:>8} {:>13} {:>9} {:>8}",
        "placement",
        "seconds",
        "speed (range)",
        "LAR %",
        "MC-IMB",
        "latency",
        "link use/imb",
        "balanced",
        "moved"
    );
    for configuration in &report.configurations {
        text.push_str(&row(configuration));
    }
    text.push_str("\nspeed: first touch = 1, more is faster. latency: cycles per read from DRAM. balanced: pages moved by the kernel's\nautomatic NUMA balancing; moved: for any reason.\n");
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

fn row(configuration: &ConfigurationReport) -> String {
    let runs = &configuration.runs;
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let speed = match (configuration.speed, configuration.speed_range) {
        (Some(speed), Some((low, high))) => format!("{speed:.2} ({low:.2}-{high:.2})"),
        _ => "-".to_owned(),
    };
    let links = format!(
        "{}/{}",
        number(median_of(runs, |run| run.link_use_percent), 0),
        number(median_of(runs, |run| run.link_imbalance_percent), 0)
    );
    format!(
        "{:<12} {:>9} {:>17} {:>6} {:>7} {:>8} {:>13} {:>9} {:>8}\n",
        configuration.name,
        number(median_of(runs, |run| Some(run.seconds)), 3),
        speed,
        number(median_of(runs, |run| run.local_percent), 0),
        number(median_of(runs, |run| run.controller_imbalance_percent), 0),
        number(median_of(runs, |run| run.latency_cycles), 0),
        links,
        number(median_of(runs, |run| Some(run.pages_balanced as f64)), 0),
        number(median_of(runs, |run| Some(run.pages_moved as f64)), 0),
    )
}

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

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 3.0, 9.0]), Some(2.5));
    }
}
