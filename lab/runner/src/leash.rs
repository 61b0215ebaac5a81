//! `rondpoint-lab leashed`: runs a program that the kernel kills when the lab's process ends for
//! any reason.
//!
//! A process has to request this itself, between fork and exec, where safe Rust cannot run. So the
//! lab starts itself a second time. The second process makes the request and then executes the
//! program with the same process number.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// What `leashed` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The process that started it: where that has ended already, the program is not begun
    #[arg(long, value_name = "PID")]
    parent: i32,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// A command for `program` that is killed when the thread that spawns it ends: that thread has to
/// wait for it.
pub(crate) fn command(program: &Path) -> Command {
    // Not by its path: a new build may be there by now.
    let mut command = Command::new("/proc/self/exe");
    command.args(["leashed", "--parent", &std::process::id().to_string(), "--"]).arg(program);
    command
}

/// Becomes the program; returns only when that fails.
pub(crate) fn run(arguments: &Arguments) -> Result<std::process::ExitCode> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("prctl(PR_SET_PDEATHSIG)")?;
    // Ended before it was asked for, it would send no signal.
    if getppid().map(Pid::as_raw_pid) != Some(arguments.parent) {
        bail!("process {} has ended", arguments.parent);
    }
    let (program, rest) = arguments.command.split_first().expect("clap asks for one");
    let error = Command::new(program).args(rest).exec();
    Err(error).with_context(|| format!("{}: cannot run", program.display()))
}
