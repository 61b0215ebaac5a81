//! Subcommands that are programs of their own, beside this one or along PATH, git style: simulator
//! and lab carry workloads and need no privilege, so they stay out of the program that runs as
//! root.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Becomes the program; returns only where that fails.
pub(crate) fn run(program: &str, arguments: &[OsString]) -> ExitCode {
    let beside: Option<PathBuf> = std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join(program)))
        .filter(|path| path.is_file());
    let path = beside.unwrap_or_else(|| PathBuf::from(program));
    let error = Command::new(&path).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        eprintln!("rondpoint: {program} is neither beside rondpoint nor along PATH");
        return ExitCode::from(NOT_FOUND);
    }
    eprintln!("rondpoint: cannot run {}: {error}", path.display());
    ExitCode::from(NOT_EXECUTABLE)
}
