//! Starts this program again, as a child of a workload or in place of it.

use std::process::Command;

use crate::flags::{Memory, Seed};
use crate::report::Failure;

/// Runs a workload of this program.
pub(crate) fn workload(name: &str) -> Result<Command, Failure> {
    let path = std::env::current_exe();
    let path = path.map_err(|error| Failure(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(path);
    command.arg(name);
    Ok(command)
}

/// Adds the flags of the process that starts it.
pub(crate) fn add_flags(command: &mut Command, memory: &Memory, seed: &Seed) {
    command.args(["--size", &memory.size.to_string(), "--seed", &seed.seed.to_string()]);
    command.args(memory.no_huge_pages.then_some("--no-huge-pages"));
}

/// Runs it to its end. Returns whether it found its result right.
pub(crate) fn is_right(command: &mut Command) -> Result<bool, Failure> {
    let output = command.output();
    let output = output.map_err(|error| Failure(format!("cannot start a child: {error}")))?;
    Ok(output.status.success())
}
