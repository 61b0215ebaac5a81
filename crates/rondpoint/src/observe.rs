//! `rondpoint observe`: runs or joins a program and shows its memory traffic, or shows the whole
//! machine. Changes nothing.
//!
//! If this command runs a program, the program keeps its input, output, terminal and signals, and
//! the report goes to stderr. Otherwise it goes to stdout. `--output` names a file instead.

mod history;
pub(crate) mod machine;
mod render;
mod report;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use rondpoint_linux::observe::sampler::Kind;
use rondpoint_linux::observe::{Observer, Rung};
use rondpoint_linux::perf::generation::Metric;

use crate::session::{OWN_FAILURE, process_number, survived};
use crate::terminal;

/// Shortest interval: below it, reading the counters would be most of what is seen.
const SHORTEST_INTERVAL_S: f64 = 0.01;
const LONGEST_INTERVAL_S: f64 = 86_400.0;

const EXAMPLES: &str = "\
Examples:
  rondpoint observe                            # the machine: its nodes and busiest processes
  rondpoint observe -- ./app --its-own-flags
  rondpoint observe --json --output traffic.jsonl --interval 0.5 -- ./app
  sudo rondpoint observe --json --pid 4711     # writes to stdout";

const DETAILS: &str = "

Terms:
  LAR      local access ratio: share of DRAM requests that go to the thread's node
  MC-IMB   imbalance of the memory controllers: standard deviation over mean of their
           loads, each relative to its bandwidth;
           173 % if one of four has all load, 0 % if all have equal load
  MAPTU    DRAM requests per microsecond
  MRR      share of reads among the DRAM requests

Exit status: the program's own, 128+n where signal n killed it; 125 rondpoint failed, 126 the
program cannot be run, 127 it is not found. Its input, output and signals pass through.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = [EXAMPLES, DETAILS].concat())]
#[command(group(clap::ArgGroup::new("program").args(["pid", "command"])))]
pub(crate) struct Arguments {
    /// JSON, one object a line: a start, one per interval, a summary
    #[arg(long)]
    json: bool,

    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// Take one address sample every N accesses (default: as calibrated, else the processor's
    /// table)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "program")]
    sample_period: Option<u64>,

    /// Count only these metrics, such as dram_node,llc_misses: few metrics need no multiplexing
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = metric, requires = "program")]
    events: Option<Vec<Metric>>,

    /// Use this sensor and no other (default: the best there is)
    #[arg(long, value_enum, requires = "program")]
    sensor: Option<Sensor>,

    /// Write to FILE, - is stdout (default: stderr where a program is run, else stdout)
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Only the summary, no table for each interval
    #[arg(long, short, requires = "program")]
    quiet: bool,

    /// Use the links and bandwidths of this machine file; sysfs has neither
    #[arg(long, value_name = "FILE", requires = "program")]
    machine: Option<PathBuf>,

    /// Join a running process and what it starts, until it ends or ^C
    #[arg(long, short, value_name = "PID", conflicts_with = "command",
          value_parser = process_number)]
    pid: Option<u32>,

    /// The program to run and its arguments; without one and without --pid the machine is shown
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// A rung of the sensing ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sensor {
    /// Counters and address samples
    Samples,
    /// Counters only
    Counters,
    /// Page faults, as on a machine without counters
    Faults,
    /// Only what /proc says; too little to move anything
    Statistics,
}

impl Sensor {
    pub(crate) fn rung(self) -> Rung {
        match self {
            Self::Samples => Rung::Samples,
            Self::Counters => Rung::Counters,
            Self::Faults => Rung::Faults,
            Self::Statistics => Rung::Statistics,
        }
    }
}

/// Refuses a sensor that was asked for and is not here: nothing else is used in its place.
///
/// # Errors
/// `wanted` is named and `observer` could not open it.
pub(crate) fn insist(wanted: Option<Sensor>, observer: &Observer) -> Result<()> {
    let sampled = observer.sampled();
    let (is_here, name, what) = match wanted {
        None | Some(Sensor::Statistics) => return Ok(()),
        Some(Sensor::Samples) => (sampled == Some(Kind::Accesses), "samples", "address samples"),
        Some(Sensor::Counters) => (!observer.metrics().is_empty(), "counters", "counters"),
        Some(Sensor::Faults) => (sampled == Some(Kind::Faults), "faults", "samples of page faults"),
    };
    if is_here {
        return Ok(());
    }
    bail!("--sensor {name}: no {what} here; `rondpoint doctor` says why and what there is")
}

/// # Errors
/// Events were named and none of them is counted here.
pub(crate) fn insist_on_events(wanted: Option<&[Metric]>, observer: &Observer) -> Result<()> {
    if wanted.is_some() && observer.metrics().is_empty() {
        bail!("--events: none of these is counted here; `rondpoint doctor` says why");
    }
    Ok(())
}

/// # Errors
/// A period of samples was named, and there are no address samples here.
pub(crate) fn insist_on_period(wanted: Option<u64>, observer: &Observer) -> Result<()> {
    if wanted.is_some() && observer.sampled() != Some(Kind::Accesses) {
        bail!("--sample-period: no address samples here; `rondpoint doctor` says why");
    }
    Ok(())
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    let range = SHORTEST_INTERVAL_S..=LONGEST_INTERVAL_S;
    match text.parse::<f64>() {
        Ok(seconds) if range.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!(
            "expected seconds from {SHORTEST_INTERVAL_S} to {LONGEST_INTERVAL_S}, such as 0.5"
        )),
    }
}

fn metric(text: &str) -> std::result::Result<Metric, String> {
    Metric::named(text)
        .ok_or_else(|| format!("no such event; known: {}", Metric::names().join(", ")))
}

/// Runs the command and says with which status to end.
pub(crate) fn main(arguments: Arguments) -> ExitCode {
    match survived(|| watch::run(&arguments)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            terminal::fail("observe", &error);
            ExitCode::from(OWN_FAILURE)
        }
    }
}
