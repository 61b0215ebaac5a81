//! `rondpoint observe`: runs or joins a program and shows its memory traffic. Changes nothing.
//!
//! The program keeps its input, output, terminal and signals. What this command says goes to
//! stderr, or to the file of `--output`.

mod history;
mod render;
mod report;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rondpoint_linux::observe::Rung;
use rondpoint_linux::perf::generation::Metric;

use crate::session::{OWN_FAILURE, process_number};
use crate::terminal;

/// Shortest interval: below it, reading the counters would be most of what is seen.
const SHORTEST_INTERVAL_S: f64 = 0.01;
const LONGEST_INTERVAL_S: f64 = 86_400.0;

const EXAMPLES: &str = "\
Examples:
  rondpoint observe -- ./app --its-own-flags
  rondpoint observe --json --output traffic.jsonl --interval 0.5 -- ./app
  rondpoint observe --pid 4711";

const DETAILS: &str = "

Terms:
  LAR      local access ratio: DRAM accesses to the own node, of all
  MC-IMB   imbalance of the memory controllers: standard deviation over mean of their loads;
           173 % when one of four does everything, 0 % when all do the same
  MAPTU    DRAM accesses per microsecond
  MRR      reads among the DRAM accesses

Exit status: the program's own, 128+n where signal n killed it; 125 rondpoint failed, 126 the
program cannot be run, 127 it is not found. Its input, output and signals pass through.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = [EXAMPLES, DETAILS].concat())]
pub(crate) struct Arguments {
    /// JSON, one object a line: a start, one per interval, a summary
    #[arg(long)]
    json: bool,

    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// Take one address sample every N accesses (default: as calibrated, else the processor's
    /// table)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sample_period: Option<u64>,

    /// Count exactly these, for example `dram_node,llc_misses`; few events are not multiplexed
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = metric)]
    events: Option<Vec<Metric>>,

    /// Use this sensor and no other (default: the best there is)
    #[arg(long, value_enum)]
    sensor: Option<Sensor>,

    /// Write to FILE instead of stderr
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Only the summary, no table for each interval
    #[arg(long, short)]
    quiet: bool,

    /// Use the links and bandwidths of this machine file; sysfs knows none
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,

    /// Join a running process and what it starts, until it ends or ^C
    #[arg(long, short, value_name = "PID", conflicts_with = "command",
          value_parser = process_number)]
    pid: Option<u32>,

    /// The program to run and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "pid")]
    command: Vec<OsString>,
}

/// A rung of the sensing ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sensor {
    /// Counters and address samples
    Samples,
    /// Counters only
    Counters,
    /// Page faults, as on a machine without counters
    Faults,
    /// Only what /proc says
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

fn interval(text: &str) -> Result<Duration, String> {
    let range = SHORTEST_INTERVAL_S..=LONGEST_INTERVAL_S;
    match text.parse::<f64>() {
        Ok(seconds) if range.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!(
            "expected seconds from {SHORTEST_INTERVAL_S} to {LONGEST_INTERVAL_S}, such as 0.5"
        )),
    }
}

fn metric(text: &str) -> Result<Metric, String> {
    Metric::named(text)
        .ok_or_else(|| format!("no such event; known: {}", Metric::names().join(", ")))
}

/// Runs the command and says with which status to end.
pub(crate) fn main(arguments: Arguments) -> ExitCode {
    match watch::run(&arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            terminal::fail("observe", &error);
            ExitCode::from(OWN_FAILURE)
        }
    }
}
