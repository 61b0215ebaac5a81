//! The `rondpoint` command: [`cli`] parses the command line, and each subcommand has a module.
//!
//! Exit statuses: 0 good, 1 a check failed, 2 bad usage or input. Commands that run a program end
//! with its status (128 + n for signal n). 125 is a failure of Rondpoint itself, bad usage
//! included. 126 is a program that cannot be run, 127 a program that is not found.

// All output goes through `terminal`: these macros panic where the reader has gone. Tests print.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod advise;
mod calibrate;
mod cli;
mod compared;
mod control;
mod daemon;
mod decide;
mod doctor;
mod explain;
mod external;
mod ledgers;
mod live;
mod machine;
#[cfg(feature = "manual")]
mod manual;
mod move_memory;
mod number_sets;
mod observe;
mod others;
mod output;
mod placement;
mod policies;
#[cfg(any(test, feature = "manual"))]
mod reference;
mod replay;
mod report;
mod run;
#[cfg(test)]
mod seeded;
mod session;
mod story;
mod targets;
mod terminal;
mod toml_text;
mod top;
mod topology;
mod weights;
mod whatif;

use std::process::ExitCode;

/// Commands that undo, or ask the daemon. They work with any stack: their caller has no other way.
const ALWAYS: [&str; 8] =
    ["restore", "status", "pause", "resume", "leave", "manage", "reload", "explain"];

fn main() -> ExitCode {
    // Before the command line is read, which needs more stack than the least limits allow.
    let done = match session::has_stack() {
        Ok(()) => return cli::main(),
        Err(_) if is_always_possible() => session::with_stack(cli::main),
        Err(error) => Err(error),
    };
    done.unwrap_or_else(|error| {
        terminal::say(&format!("rondpoint: {error:#}\n"));
        ExitCode::from(session::OWN_FAILURE)
    })
}

fn is_always_possible() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| ALWAYS.iter().any(|name| word == *name))
}
