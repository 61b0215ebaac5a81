//! `rondpoint whatif`: predicts the speed of a recorded run under other policies, with another
//! placement of memory, or on another machine. It reads files and changes nothing.

mod answer;
mod other;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use rondpoint_core::model::UpdateSettings;
use rondpoint_core::{Model, Observation};
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_trace::Reader;

use self::answer::Answer;
use self::other::Other;
use crate::terminal;

/// Exit status of bad usage or input.
const BAD_INPUT: u8 = 2;

/// Predict a recorded run under another policy, placement or machine; changes nothing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint whatif run.trace --policy auto            # placed by `auto`
  rondpoint whatif run.trace --place interleave       # with memory interleaved
  rondpoint whatif run.trace --machine other.toml     # on that machine

The cost model prices each window of the recording, as recorded and with the change. It assumes
that the program does the same work. The printed interval is the error of the model. With
--policy, only windows before the recorded manager's first action count, because later windows
show its work. A recording of `rondpoint record` has no actions, so all its windows count.

Exit status: 0 good, 2 bad usage or file.")]
#[group(skip)]
pub(crate) struct Arguments {
    /// A file of `rondpoint record` or `run --record`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    question: Question,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What would have been otherwise: one of these.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Question {
    /// Policies that place it; NAME:PRESET chooses a preset
    #[arg(long, value_name = "POLICY[,POLICY]", value_delimiter = ',')]
    policy: Vec<String>,
    /// Where its memory lies: local (each thread's on its own node), interleave, or node:N
    #[arg(long, value_name = "PLACE")]
    place: Option<String>,
    /// A machine file: the same placement on that machine
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
}

/// Runs the command; a bad file is said on standard error and ends with status 2.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let _ = privileges::keep_only(&Needs::to_read(None));
    let shown = answer(arguments).and_then(|answer| match arguments.json {
        true => terminal::print_json(&answer),
        false => terminal::print(&answer.text()),
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::fail("whatif", &error);
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn answer(arguments: &Arguments) -> Result<Answer> {
    let mut reader = Reader::open(&arguments.file)?;
    let header = reader.header().clone();
    let mut other = Other::of(&arguments.question, &header)?;
    let mut answer = Answer::new(arguments.file.display().to_string(), other.name());
    let mut previous: Option<Observation> = None;
    let mut has_acted = false;
    while let Some(record) = reader.next().transpose()? {
        let now = record.input.observation;
        if has_acted && other.decides() {
            answer.leave_out();
            continue;
        }
        // What was counted across a pause is not of one placement.
        let window = previous.take().filter(|_| !now.after_pause).map(|before| {
            let settings = UpdateSettings { touches: false, ..UpdateSettings::default() };
            Model::update(&header.topology, &before, &now, &settings)
        });
        other.see(&now);
        if let Some(window) = window {
            answer.add(&window, other.quote(&window, &header.topology));
        }
        previous = Some(now);
        has_acted = has_acted || record.decision.is_some_and(|decision| decision.places());
    }
    if answer.is_empty() {
        let before = if has_acted && other.decides() { " before its manager acted" } else { "" };
        bail!("{}: no window in which a process ran{before}", arguments.file.display());
    }
    Ok(answer)
}

#[cfg(test)]
mod tests;
