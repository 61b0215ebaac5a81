//! Subcommands that are separate programs, beside this one or along PATH, as in git. The lab and
//! the simulator need no privilege, so they are not part of the program that runs as root.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::terminal;

const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// A subcommand and the program that it runs.
pub(crate) struct External {
    pub(crate) command: &'static str,
    pub(crate) program: &'static str,
}

pub(crate) const LAB: External = External { command: "lab", program: "rondpoint-lab" };
pub(crate) const SIMULATE: External = External { command: "simulate", program: "rondpoint-sim" };

impl External {
    /// Where the program is: beside this one first, then along PATH.
    pub(crate) fn find(&self) -> Option<PathBuf> {
        let own = std::env::current_exe().ok();
        let beside = own.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        let along = std::env::var_os("PATH").unwrap_or_default();
        let folders = beside.into_iter().chain(std::env::split_paths(&along));
        folders.map(|folder| folder.join(self.program)).find(|path| is_program(path))
    }

    /// Becomes the program; returns only where that fails.
    pub(crate) fn run(&self, arguments: &[OsString]) -> ExitCode {
        let Self { command, program } = self;
        let Some(path) = self.find() else {
            terminal::say(&format!(
                "rondpoint {command}: needs the program {program}, which is neither beside rondpoint nor along PATH\n"
            ));
            return ExitCode::from(NOT_FOUND);
        };
        let error = Command::new(&path).args(arguments).exec();
        terminal::say(&format!("rondpoint {command}: cannot run {}: {error}\n", path.display()));
        ExitCode::from(NOT_EXECUTABLE)
    }
}

fn is_program(path: &Path) -> bool {
    let may_run =
        |found: std::fs::Metadata| found.is_file() && found.permissions().mode() & 0o111 != 0;
    std::fs::metadata(path).is_ok_and(may_run)
}
