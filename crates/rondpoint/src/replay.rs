//! `rondpoint replay`: gives a recorded run's input to today's controller and says where it decides
//! otherwise; or shows what another policy would have decided. It reads one file and changes
//! nothing. The format is in `docs/trace.md`.

mod report;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use rondpoint_core::host;
use rondpoint_trace::{Outcomes, PolicyChoice, Reader, Replayed, Retaken, TraceError};

use self::report::Report;

/// Exit status when a step is decided otherwise.
const DIFFERENT: u8 = 1;
/// Exit status of bad usage or input.
const BAD_INPUT: u8 = 2;

/// Decide a recorded run again and say what differs; changes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint replay run.trace                  # is every plan and verdict the same today?
  rondpoint replay run.trace --policy sam     # what would SAM have done?

Exit status: 0 all the same, 1 a step is decided otherwise, 2 bad usage or file. With --policy the
program is as it was recorded: it feels nothing of what that policy decides.")]
pub(crate) struct Arguments {
    /// What `rondpoint record` or `run --record` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Show what other policies would have decided; NAME:PRESET chooses a preset
    #[arg(long, value_name = "POLICY[,POLICY]", value_delimiter = ',')]
    policy: Vec<String>,
    /// Show every plan that is not empty; where it differs, both
    #[arg(long)]
    plans: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command; a bad file is said on standard error and ends with status 2.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let report = match replay(arguments) {
        Ok(report) => report,
        Err(error) => {
            eprintln!("rondpoint replay: {error}");
            return ExitCode::from(BAD_INPUT);
        }
    };
    let text = if arguments.json { report.json() } else { report.text() };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) if report.differs() => ExitCode::from(DIFFERENT),
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE, // nobody reads it
    }
}

fn replay(arguments: &Arguments) -> Result<Report, TraceError> {
    let reader = Reader::open(&arguments.file)?;
    let mut header = reader.header().clone();
    let recorded = arguments.policy.is_empty();
    if !recorded {
        header.policies = arguments.policy.iter().map(|word| PolicyChoice::parse(word)).collect();
        // Otherwise all that a mere recording could show is that nothing may be done.
        header.guard.act = true;
    }
    let mut controller = header.controller().map_err(|error| match recorded {
        true => {
            TraceError::Line { path: arguments.file.clone(), line: 1, problem: error.to_string() }
        }
        false => error,
    })?;
    let keep_plans = arguments.plans || !recorded;
    let mut report = Report::new(arguments.file.clone(), header, recorded, keep_plans);
    let outcomes = if recorded { Outcomes::Recorded } else { Outcomes::Refused };
    let compare = |retaken: Retaken<'_>| report.take_in(&retaken);
    let mut trace = Replayed::new(reader, outcomes, compare);
    host::run(&mut trace, &mut controller, &mut ())?;
    let truncated = trace.reader().truncated();
    report.end(truncated);
    Ok(report)
}
