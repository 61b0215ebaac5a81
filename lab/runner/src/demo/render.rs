//! The demonstration for people: a table for each program, the means, which placement is fastest,
//! and where to go from here.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Mean, ProgramReport, Report};
use crate::comparison::{ConfigurationReport, Speed};
use crate::last_third::WorkUnit;
use crate::render::{INSTRUCTIONS, cell, pages_cells, price_of_manager};

/// Columns that a sentence may take.
const WIDTH: usize = 116;

/// Everything, as shown on a terminal.
pub(super) fn report(report: &Report, took: Duration) -> String {
    let mut text = format!(
        "\nEmulated: {} ({} nodes, {} CPUs), {}x slow motion, {} run{} each. No measurement of real hardware.\n",
        report.machine,
        report.nodes,
        report.cpus,
        report.slow_motion,
        report.seeds,
        if report.seeds == 1 { "" } else { "s" },
    );
    let ranges = report.seeds > 1;
    for program in &report.programs {
        text.push_str(&table(program, ranges));
    }
    text.push_str(&means(&report.means, report.programs.len(), ranges));
    let thirds = report.programs.iter().flat_map(|program| &program.configurations);
    if thirds.into_iter().any(|one| one.last_third_in == Some(WorkUnit::Instructions)) {
        let _ = writeln!(text, "{INSTRUCTIONS}");
    }
    for failure in &report.failures {
        let _ = writeln!(text, "FAILED: {failure}");
    }
    let _ = writeln!(text, "\nIn short (emulated, first touch = 1):");
    for sentence in &report.closing.sentences {
        text.push_str(&wrapped(sentence));
    }
    let _ = writeln!(text, "\nTook {:.0} s.\n{NEXT}", took.as_secs_f64());
    text
}

const NEXT: &str = "
Next:  rondpoint lab run -- ./yourapp       your program on this emulated machine (./x lab run -- ./yourapp)
       sudo rondpoint run -- ./yourapp      your program under Rondpoint, on a server with several nodes";

fn table(program: &ProgramReport, ranges: bool) -> String {
    let mut text = format!("\n{}: {}\n", program.title, program.about);
    let _ = writeln!(
        text,
        "  {:<12} {:>width$} {:>9} {:>6} {:>10} {:>8} {:>18}",
        "placement",
        "speed | end",
        "relief s",
        "LAR %",
        "imbalance",
        "latency",
        "moved: kernel | R",
        width = if ranges { 37 } else { 15 },
    );
    for configuration in &program.configurations {
        text.push_str(&row(configuration, ranges));
    }
    let prices = program.configurations.iter().filter_map(price_of_manager);
    for sentence in program.configurations.iter().filter_map(sentence).chain(prices) {
        text.push_str(&wrapped(&sentence));
    }
    text
}

/// Both speeds; over several seeds the medians, each with its range.
fn speeds(whole: Option<Speed>, last_third: Option<Speed>, ranges: bool) -> String {
    let one = |speed: Option<Speed>| match speed {
        None => "-".to_owned(),
        Some(Speed { median, least, most }) if ranges => {
            format!("{median:.2} ({least:.2}-{most:.2})")
        }
        Some(speed) => format!("{:.2}", speed.median),
    };
    let (left, right) = if ranges { (18, 16) } else { (8, 4) };
    format!("{:>left$} | {:>right$}", one(whole), one(last_third))
}

fn row(configuration: &ConfigurationReport, ranges: bool) -> String {
    let runs = &configuration.runs;
    let [balanced, by_rondpoint, _] = pages_cells(runs);
    format!(
        "  {:<12} {} {:>9} {:>6} {:>10} {:>8} {:>10} | {:>5}\n",
        configuration.name,
        speeds(configuration.speed, configuration.last_third, ranges),
        cell(runs, 2, |run| run.relief_s),
        cell(runs, 0, |run| run.local_percent),
        cell(runs, 0, |run| run.controller_imbalance_percent),
        cell(runs, 0, |run| run.latency_cycles),
        balanced,
        by_rondpoint,
    )
}

/// The words for a row: that a rival did not act, or what Rondpoint saw and did.
fn sentence(configuration: &ConfigurationReport) -> Option<String> {
    let report = configuration.runs.first().and_then(|run| run.rondpoint.as_ref());
    let summary = report.map(|report| {
        report.summary.clone().unwrap_or_else(|| "says nothing of what it did".to_owned())
    });
    let summary = summary.map(|summary| format!("{}: {summary}", configuration.name));
    configuration.idle.clone().or(summary)
}

/// Indented, broken between words.
fn wrapped(sentence: &str) -> String {
    let mut text = String::new();
    let mut line = String::from("  ");
    for word in sentence.split_whitespace() {
        if line.len() + word.len() + 1 > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = String::from("    ");
        }
        line.push_str(word);
        line.push(' ');
    }
    text.push_str(line.trim_end());
    text.push('\n');
    text
}

fn means(means: &[Mean], programs: usize, ranges: bool) -> String {
    let mut text = String::from("\ngeometric means over the programs\n");
    for mean in means {
        let left_out = match programs - mean.programs {
            0 => String::new(),
            all if all == programs => "  it acted on none".to_owned(),
            some => format!("  without the {some} on which it did not act"),
        };
        let speeds = speeds(mean.speed, mean.last_third, ranges);
        let _ = writeln!(text, "  {:<12} {speeds}{left_out}", mean.configuration);
    }
    text.push_str(LEGEND);
    text
}

const LEGEND: &str = "
speed: first touch = 1, more is faster, of the whole run | of the last third of its work. relief: seconds from the
start of the jam to Rondpoint's first action that stayed. LAR: local accesses. imbalance: of the memory controllers,
percent. latency: cycles per read from DRAM. moved: pages, by the kernel's balancing | by Rondpoint. With several
seeds all are medians, those of speed with their range.
";

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn the_report_names_idle_rivals_the_fastest_and_the_next_step() {
        let text = report(&sample(1), Duration::from_secs(7));
        assert!(text.contains("stencil: each thread has a part of its own"), "{text}");
        assert!(text.contains("  numad moved nothing: it did not act (it leaves"), "{text}");
        assert!(
            text.contains("  numad            1.00 | 1.00  without the 3 on which it did not act"),
            "{text}"
        );
        assert!(text.contains("  rondpoint        4.00 | 4.00\n"), "{text}");
        let closing =
            "  Over the whole run rondpoint is fastest (4.00); interleave follows (2.00).\n";
        assert!(text.contains(closing), "{text}");
        assert!(text.trim_end().ends_with("on a server with several nodes"), "{text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }

    #[test]
    fn over_seeds_the_table_shows_ranges() {
        let text = report(&sample(2), Duration::from_secs(7));
        let ours = "3.00 (2.00-4.00) | 3.00 (2.00-4.00)";
        assert_eq!(text.matches(ours).count(), 5, "four programs and the mean: {text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }

    #[test]
    fn long_sentences_are_broken_between_words() {
        let text = wrapped(&"word ".repeat(60));
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.len() <= WIDTH));
        assert_eq!(text.split_whitespace().count(), 60);
    }
}
