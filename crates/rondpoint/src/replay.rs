//! `rondpoint replay`: gives the input of a recorded run to this version's controller and reports
//! different decisions. It can also show the decisions of another policy. It reads one file and
//! changes nothing. The format is in `docs/trace.md`.

mod report;

use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use rondpoint_core::host;
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_trace::{Outcomes, PolicyChoice, Reader, Replayed, Retaken, TraceError};

use self::report::Report;
use crate::terminal;

/// Exit status when a step is decided otherwise, or cannot be decided.
const DIFFERENT: u8 = 1;
/// Exit status of bad usage or input.
const BAD_INPUT: u8 = 2;

/// Decide a recorded run again and say what differs; changes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint replay run.trace                  # compare with the decisions of this version
  rondpoint replay run.trace --policy sam     # the decisions that SAM would have made

With --policy, the decisions of that policy do not change the recorded program.
Exit status: 0 all decisions equal, 1 a decision differs or a step panics, 2 bad usage or file.")]
pub(crate) struct Arguments {
    /// A file of `rondpoint record` or `run --record`
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
    let _ = privileges::keep_only(&Needs::to_read(None));
    let report = match replay(arguments) {
        Ok(report) => report,
        Err(error) => {
            terminal::fail("replay", &error.into());
            return ExitCode::from(BAD_INPUT);
        }
    };
    let shown = match arguments.json {
        true => terminal::print_json_text(&report.json()),
        false => terminal::print(&report.text()),
    };
    if let Err(error) = shown {
        terminal::fail("replay", &error);
        return ExitCode::from(BAD_INPUT);
    }
    ExitCode::from(if report.differs() { DIFFERENT } else { 0 })
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
    let run = caught(|| host::run(&mut trace, &mut controller, &mut ()));
    let (pending, truncated) = (trace.pending(), trace.reader().truncated());
    match (run, pending) {
        (Ok(run), _) => run?,
        // What is known of the program is lost with the controller, so this is the end.
        (Err(message), Some(step)) => report.panicked(step, message),
        (Err(message), None) => panic!("outside of the controller: {message}"),
    }
    report.end(truncated);
    Ok(report)
}

/// Does the work; the error is what it said and where, if it panicked.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let said = Arc::new(Mutex::new(String::new()));
    let listener = Arc::clone(&said);
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        *listener.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(before);
    result.map_err(|_| said.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_on_which_the_controller_panicked_is_told() {
        let path = "../../fixtures/traces/every-field.v1.trace";
        let header = Reader::open(path).unwrap().header().clone();
        let mut report = Report::new(PathBuf::from(path), header, true, false);
        assert!(!report.differs());
        report.panicked((4, 9, rondpoint_core::Nanos(2_000_000_000)), "panicked at x".to_string());
        assert!(report.differs());
        let text = report.text();
        assert!(text.contains("step 4 at 0.000 s (line 9): panicked at x"), "{text}");
        assert!(text.contains("the controller panicked on the next"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["panicked"]["line"], 9);
    }

    #[test]
    fn a_panic_is_caught_with_its_words_and_its_place() {
        assert_eq!(caught(|| 7), Ok(7));
        let said = caught(|| panic!("no node {}", 9)).unwrap_err();
        assert!(said.contains("replay.rs:") && said.ends_with("\nno node 9"), "{said}");
    }
}
