//! `rondpoint-lab movers`: measures how fast the memory of a process moves from one node to
//! another. It compares `rondpoint move`, `migratepages` and plain `move_pages` calls, one after
//! the other in one run.
//!
//! It measures the kernel's work by the costs of the model. Shootdown interrupts are real; TLB
//! misses and page walks are not modelled. It has no pass or fail.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use crate::comparison::median;
use crate::configuration;
use crate::lab::{self, Lab};
use crate::physics::script;
use crate::program;
use crate::whole::whole;

/// What `movers` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The machine to emulate: a file, or the name of one that the lab brings
    #[arg(long, value_name = "FILE", default_value = "carrefour-a")]
    machine: String,
    /// MiB that are moved
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = whole::<u32>("MiB", 2..=100_000))]
    mib: u32,
    /// Turns of each mover
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>("rounds", 1..=100))]
    rounds: u32,
    /// Workers of rondpoint move, one configuration for each
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [1, 2, 4])]
    workers: Vec<u32>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Report {
    format: u32,
    counts: &'static str,
    machine: String,
    vcpus: usize,
    mib: u32,
    rows: Vec<Row>,
}

/// One mover with one size of pages.
#[derive(Debug, Serialize, PartialEq)]
struct Row {
    pages: &'static str,
    mover: String,
    /// Guest seconds of each turn, a program's start included.
    seconds: Vec<f64>,
    mib_per_s: f64,
    /// Base pages that were not where they should be afterwards, over all turns.
    left: u64,
}

/// Runs it and prints it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let machine = lab::lab_machine(&arguments.machine)?;
    let lab = Lab::open()?;
    let mut rows = Vec::new();
    for (pages, flag) in [("4 KiB", "--no-huge-pages"), ("2 MiB", "")] {
        let what = format!("{} MiB of {pages} pages between two nodes", arguments.mib);
        let text = text(arguments, flag);
        let migratepages = configuration::tool(&lab.installed, "migratepages")?;
        let record = script::run_with(&lab, &machine, &what, &text, |guest| {
            let command = program::bring_tool(migratepages, guest)?.join(" ");
            guest.add_script(format!("#!/bin/sh\nexec {command} \"$@\"\n"), "/bin/migratepages");
            Ok(())
        })?;
        rows.extend(rows_of(pages, arguments.mib, script::lines(&record, ""))?);
    }
    let report = Report {
        format: 1,
        counts: "emulated",
        machine: machine.name.clone(),
        vcpus: machine.cpu_count(),
        mib: arguments.mib,
        rows,
    };
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => print!("{}", table(&report)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The script in the guest.
fn text(arguments: &Arguments, flag: &str) -> String {
    let Arguments { mib, rounds, workers, .. } = arguments;
    let mut text =
        format!("exec rondpoint-workloads movers --size {mib}M --rounds {rounds} {flag}");
    text += " --mover 'migratepages=/bin/migratepages {pid} {from} {to}'";
    for workers in workers {
        // Not as a manager: every mover pays the same price.
        let command = "/lab/rondpoint move --quiet --pid {pid} --from {from} --to {to}";
        let _ = write!(text, " --mover 'rondpoint-{workers}={command} --workers {workers}'");
        if Some(workers) == arguments.workers.iter().max() {
            let frozen =
                format!("rondpoint-{workers}-frozen={command} --workers {workers} --freeze");
            let _ = write!(text, " --mover '{frozen}'");
        }
    }
    text
}

/// The movers in the order of their first turn.
fn rows_of<'a>(
    pages: &'static str,
    mib: u32,
    lines: impl Iterator<Item = &'a str>,
) -> Result<Vec<Row>> {
    let mut order: Vec<String> = Vec::new();
    let mut turns: BTreeMap<String, (Vec<f64>, u64)> = BTreeMap::new();
    for line in lines.filter(|line| line.starts_with("mover=")) {
        let name = line.split_whitespace().next().and_then(|word| word.strip_prefix("mover="));
        let name = name.context("a mover without a name")?.to_owned();
        if script::value(line, "elsewhere_before")? != 0.0 {
            bail!("{line}: the mover before left pages behind, so this turn is not comparable");
        }
        let turn = turns.entry(name.clone()).or_default();
        turn.0.push(script::value(line, "seconds")?);
        turn.1 += script::value(line, "elsewhere")? as u64;
        if !order.contains(&name) {
            order.push(name);
        }
    }
    let row = |mover: String| {
        let (seconds, left) = turns.remove(&mover).unwrap_or_default();
        let mut sorted = seconds.clone();
        sorted.sort_by(f64::total_cmp);
        let mib_per_s = median(&sorted).map_or(0.0, |seconds| f64::from(mib) / seconds);
        Row { pages, mover, seconds, mib_per_s, left }
    };
    Ok(order.into_iter().map(row).collect())
}

fn table(report: &Report) -> String {
    let mut text = format!(
        "{} MiB on {} with {} CPUs, emulated; medians of the turns, guest time (slow motion: see docs/lab.md)\n",
        report.mib, report.machine, report.vcpus
    );
    text += "pages   mover               MiB/s   relative to migratepages   pages left\n";
    for row in &report.rows {
        let base = report
            .rows
            .iter()
            .find(|other| other.pages == row.pages && other.mover == "migratepages")
            .map_or(f64::NAN, |other| other.mib_per_s);
        let _ = writeln!(
            text,
            "{:<7} {:<18} {:>6.1}   {:>24.2}   {:>10}",
            row.pages,
            row.mover,
            row.mib_per_s,
            row.mib_per_s / base,
            row.left
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 3] = [
        "mover=migratepages round=0 from=0 to=1 seconds=2.0 elsewhere_before=0 elsewhere=0",
        "mover=rondpoint-4 round=0 from=1 to=0 seconds=1.0 elsewhere_before=0 elsewhere=3",
        "workload=movers bytes=1 result=ok",
    ];

    #[test]
    fn turns_become_rows_and_rates() {
        let rows = rows_of("4 KiB", 100, LINES.into_iter()).expect("good");
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].mib_per_s, rows[1].mib_per_s), (50.0, 100.0));
        assert_eq!(rows[1].left, 3);
        let report =
            Report { format: 1, counts: "emulated", machine: "m".into(), vcpus: 4, mib: 100, rows };
        let text = table(&report);
        assert!(
            text.contains("4 KiB   rondpoint-4         100.0                       2.00"),
            "{text}"
        );
    }

    #[test]
    fn a_turn_that_begins_with_less_is_no_measure() {
        let line = LINES[0].replace("elsewhere_before=0", "elsewhere_before=5");
        assert!(rows_of("4 KiB", 100, [line.as_str()].into_iter()).is_err());
    }
}
