//! The command line as typed.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::session::OWN_FAILURE;
use crate::{
    calibrate, decide, doctor, external, ledgers, move_memory, observe, replay, run, topology,
};

/// Exit status of bad usage or input.
const BAD_USAGE: u8 = 2;

/// A NUMA traffic manager: sees which threads touch which memory, on which node and over which
/// link, and says (and later does) what would unjam it.
#[derive(Debug, Parser)]
#[command(name = "rondpoint", version = env!("RONDPOINT_VERSION"), propagate_version = true, disable_help_subcommand = true)]
#[command(
    after_help = "Exit status: 0 good, 1 a check failed, 2 bad usage or input. Commands that run \
    a program pass its status on (128+n for signal n); 125 is a failure of rondpoint itself, 126 and \
    127 are as env(1) has them."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program and place its memory, and its threads where --policy says so, where they are
    /// fastest
    Run(run::RunArguments),
    /// The same for a program that runs already
    Attach(run::AttachArguments),
    /// Record what a policy sees of a program and would do, and do nothing
    Record(run::RecordArguments),
    /// Decide a recorded run again and say what differs; changes nothing
    Replay(replay::Arguments),
    /// Move the memory of a running process from nodes to nodes
    Move(move_memory::Arguments),
    /// Put back what a manager that was killed has changed
    Restore(ledgers::Arguments),
    /// Show the memory traffic of a program between the nodes, live and in sum; changes nothing
    Observe(observe::Arguments),
    /// Say what a policy would do with a model from a file; changes nothing
    Decide(decide::Arguments),
    /// Show this machine: nodes, CPUs, caches, distances
    Topology(topology::Arguments),
    /// Measure this machine's memory, so that decisions fit it
    Calibrate(calibrate::Arguments),
    /// Say what this machine can sense and do, what is missing, and how to fix it
    Doctor(doctor::Arguments),
    /// Simulate machines and workloads (runs rondpoint-sim)
    #[command(disable_help_flag = true)]
    Simulate(Rest),
    /// Run programs on an emulated machine (runs rondpoint-lab)
    #[command(disable_help_flag = true)]
    Lab(Rest),
    /// Write the man pages and the shell completions
    #[cfg(feature = "manual")]
    #[command(hide = true)]
    Manual(crate::manual::Arguments),
}

/// Arguments for another program of ours.
#[derive(Debug, clap::Args)]
struct Rest {
    /// Passed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Parses the command line and runs what it says.
pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Attach(arguments) => run::attach(&arguments),
        Command::Record(arguments) => run::record(arguments),
        Command::Replay(arguments) => replay::main(&arguments),
        Command::Move(arguments) => move_memory::main(&arguments),
        Command::Restore(arguments) => ledgers::main(&arguments),
        Command::Observe(arguments) => observe::main(arguments),
        Command::Decide(arguments) => decide::main(&arguments),
        Command::Topology(arguments) => topology::main(&arguments),
        Command::Calibrate(arguments) => calibrate::main(&arguments),
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Simulate(rest) => external::run("rondpoint-sim", &rest.arguments),
        Command::Lab(rest) => external::run("rondpoint-lab", &rest.arguments),
        #[cfg(feature = "manual")]
        Command::Manual(arguments) => {
            crate::manual::main(&arguments, <Arguments as clap::CommandFactory>::command())
        }
    }
}

/// Help and version go to stdout with status 0; anything else to stderr with the status of bad
/// usage, which for a command that runs a program must not look like that program's own.
fn refuse(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return ExitCode::SUCCESS;
    }
    let runs_a_program = std::env::args_os().nth(1).is_some_and(|word| {
        ["run", "attach", "record", "observe"].iter().any(|name| word == *name)
    });
    ExitCode::from(if runs_a_program { OWN_FAILURE } else { BAD_USAGE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
