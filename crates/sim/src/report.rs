//! A comparison as a table for people and as JSON for programs.

use std::fmt::Write as _;

use serde::Serialize;

use crate::run::{Outcome, ProcessTime};

/// One contender over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// The contender.
    pub(crate) policy: String,
    /// Speed against first touch by seed; absent where a process was given up.
    pub(crate) speed_against_first_touch: Vec<Option<f64>>,
    /// What came of each seed.
    pub(crate) runs: Vec<Outcome>,
}

/// A workload on a machine under several contenders.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// What its numbers are.
    pub(crate) kind: &'static str,
    pub(crate) machine: String,
    pub(crate) workload: String,
    pub(crate) pmu: String,
    pub(crate) seeds: Vec<u64>,
    /// First touch is the first.
    pub(crate) rows: Vec<Row>,
}

/// Median of some values; `None` of none.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

impl Row {
    fn median(&self, value: impl Fn(&Outcome) -> f64) -> f64 {
        median(self.runs.iter().map(value).collect()).unwrap_or(0.0)
    }

    fn speeds(&self) -> Vec<f64> {
        self.speed_against_first_touch.iter().flatten().copied().collect()
    }
}

impl Comparison {
    /// The table, medians over the seeds, and each program's times where there are several.
    pub(crate) fn text(&self) -> String {
        let (first, last) = (self.seeds[0], self.seeds[self.seeds.len() - 1]);
        let seeds = if first == last {
            format!("seed {first}")
        } else {
            format!("seeds {first} to {last}")
        };
        let mut text = format!(
            "{} on {} · {seeds} · PMU {} · simulated\n\n{:<20} {:>8} {:>9} {:>15} {:>7} {:>9} {:>8} {:>9} {:>8}\n",
            self.workload,
            self.machine,
            self.pmu,
            "",
            "time",
            "against",
            "over",
            "local",
            "imbalance",
            "latency",
            "pages",
            "threads",
        );
        let _ = writeln!(
            text,
            "{:<20} {:>8} {:>9} {:>15} {:>7} {:>9} {:>8} {:>9} {:>8}",
            "policy", "s", "first t.", "seeds", "%", "%", "cycles", "moved", "moved"
        );
        for row in &self.rows {
            self.add_row(&mut text, row);
        }
        if self.rows.iter().any(|row| row.runs[0].processes.len() > 1) {
            text += &self.programs();
        }
        text + &self.replies() + &self.killed()
    }

    fn add_row(&self, text: &mut String, row: &Row) {
        let seconds: Option<Vec<f64>> = row.runs.iter().map(Outcome::seconds).collect();
        let seconds = seconds.and_then(median);
        let killed = row.runs.iter().any(|run| run.processes.iter().any(|one| one.killed));
        let without = if killed { "killed" } else { "given up" };
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or(without.to_string(), |value| format!("{value:.digits$}"))
        };
        let speeds = row.speeds();
        let least = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = speeds.iter().copied().fold(0.0, f64::max);
        let range =
            if speeds.len() > 1 { format!("{least:.2} to {most:.2}") } else { String::new() };
        let _ = writeln!(
            text,
            "{:<20} {:>8} {:>9} {:>15} {:>7.0} {:>9.0} {:>8.0} {:>9.0} {:>8.0}",
            row.policy,
            shown(seconds, 1),
            shown(median(speeds), 2),
            range,
            row.median(|run| run.tally.local_percent),
            row.median(|run| run.tally.imbalance_percent),
            row.median(|run| run.tally.latency_cycles),
            row.median(|run| run.tally.pages_moved as f64),
            row.median(|run| run.tally.threads_moved as f64),
        );
    }

    /// Speed of each program against first touch, medians over processes and seeds.
    fn programs(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for process in &self.rows[0].runs[0].processes {
            if !names.contains(&process.program.as_str()) {
                names.push(&process.program);
            }
        }
        let mut text = format!("\n{:<20}", "against first touch");
        names.iter().for_each(|name| text += &format!(" {name:>16}"));
        text.push('\n');
        for row in &self.rows {
            let _ = write!(text, "{:<20}", row.policy);
            for name in &names {
                let mut speeds = Vec::new();
                for (run, base) in row.runs.iter().zip(&self.rows[0].runs) {
                    for (own, base) in run.processes.iter().zip(&base.processes) {
                        let speed = base.seconds.zip(own.seconds).map(|(base, own)| base / own);
                        speeds.extend(speed.filter(|_| own.program == *name));
                    }
                }
                let shown = median(speeds).map_or("–".into(), |speed| format!("{speed:.2}"));
                let _ = write!(text, " {shown:>16}");
            }
            text.push('\n');
        }
        text
    }

    /// Times to a reply under each contender; empty if no program sends requests.
    fn replies(&self) -> String {
        let median_of = |row: &Row, time: fn(&ProcessTime) -> Option<f64>| {
            let processes = row.runs.iter().flat_map(|run| &run.processes);
            median(processes.filter_map(time).collect())
        };
        let line = |row: &Row| {
            let mean = median_of(row, |one| one.reply_us)?;
            let middle = median_of(row, |one| one.reply_median_us)?;
            let p99 = median_of(row, |one| one.reply_p99_us)?;
            Some(format!("{:<20} {mean:>16.1} {middle:>16.1} {p99:>16.1}\n", row.policy))
        };
        let lines: String = self.rows.iter().filter_map(line).collect();
        let head = ["reply, µs", "mean", "median", "99 of 100 within"];
        let [title, mean, middle, p99] = head;
        match lines.is_empty() {
            true => lines,
            false => format!("\n{title:<20} {mean:>16} {middle:>16} {p99:>16}\n{lines}"),
        }
    }

    /// A line for each contender and program that the kernel killed.
    fn killed(&self) -> String {
        let mut lines = Vec::new();
        for row in &self.rows {
            let killed = row.runs.iter().flat_map(|run| &run.processes).filter(|one| one.killed);
            for process in killed {
                let line = format!(
                    "{}: the kernel killed {}: out of memory\n",
                    row.policy, process.program
                );
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        if lines.is_empty() { String::new() } else { format!("\n{}", lines.concat()) }
    }
}
