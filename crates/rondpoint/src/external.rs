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
        self.find_in(beside.into_iter().chain(std::env::split_paths(&along)))
    }

    /// The first of these folders with the program. An empty or relative one depends on the working
    /// directory, which another user may write.
    fn find_in(&self, folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
        let folders = folders.filter(|folder| folder.is_absolute());
        folders.map(|folder| folder.join(self.program)).find(|path| is_program(path))
    }

    /// Becomes the program; returns only where that fails.
    pub(crate) fn run(&self, arguments: &[OsString]) -> ExitCode {
        let Self { command, program } = self;
        let Some(path) = self.find() else {
            terminal::say(&format!(
                "rondpoint {command}: needs the program {program}, which is neither beside rondpoint nor along PATH; \
                 it is built in a clone of the sources: docs/lab.md, docs/simulator.md\n"
            ));
            return ExitCode::from(NOT_FOUND);
        };
        let error = Command::new(&path).args(arguments).exec();
        terminal::say(&format!("rondpoint {command}: cannot run `{}`: {error}\n", path.display()));
        ExitCode::from(NOT_EXECUTABLE)
    }
}

fn is_program(path: &Path) -> bool {
    let may_run =
        |found: std::fs::Metadata| found.is_file() && found.permissions().mode() & 0o111 != 0;
    std::fs::metadata(path).is_ok_and(may_run)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without PATH, or with an empty part of it, a program of the working directory would be run,
    /// perhaps by root.
    #[test]
    fn no_program_of_the_working_directory_is_run() {
        let here = std::env::current_dir().expect("a folder");
        let program = std::env::current_exe().expect("this program");
        let name = program.file_name().expect("a name").to_str().expect("text");
        let this = External { command: "x", program: String::leak(name.to_owned()) };
        let folder = program.parent().expect("a folder");
        let up = "../".repeat(here.components().count());
        let relative = Path::new(&up).join(folder.strip_prefix("/").expect("absolute"));
        assert!(is_program(&relative.join(name)), "the test itself: {}", relative.display());
        let found = |parts: &[&Path]| this.find_in(parts.iter().map(|part| part.to_path_buf()));
        assert_eq!(found(&[&relative]), None);
        assert_eq!(found(&[Path::new(""), folder]), Some(program.clone()));
        let nowhere = External { command: "x", program: "Cargo.toml" };
        assert_eq!(nowhere.find_in([PathBuf::new()].into_iter()), None);
    }
}
