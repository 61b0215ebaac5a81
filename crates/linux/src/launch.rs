//! Starting a program the way `env` does. It is looked for by name along PATH, and a file without a
//! known format goes through the shell. Exit status 126 means that it is there but cannot be run,
//! 127 that it cannot be found.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::syscall::process::{self, Attempt, User, Waiting};
use crate::syscall::signal::Signals;

/// Search path without PATH, as in execvp(3).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Forks a child that waits before it executes `command` (program and arguments).
///
/// # Errors
/// `command` is empty, a word has a NUL byte, or fork(2) fails.
pub fn prepare(
    command: &[OsString],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    mask: &Signals,
    user: Option<&User>,
) -> io::Result<Waiting> {
    let environment: Vec<(OsString, OsString)> = environment.into_iter().collect();
    let path =
        environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let attempts = attempts(command, path)?;
    let environment: io::Result<Vec<CString>> = environment
        .iter()
        .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect();
    process::fork(&attempts, &environment?, mask, user)
}

fn text(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// All files to try for a command, in order.
fn attempts(command: &[OsString], path: Option<&OsStr>) -> io::Result<Vec<Attempt>> {
    let empty = || io::Error::new(io::ErrorKind::InvalidInput, "no program given");
    let program = command.first().ok_or_else(empty)?;
    let arguments: io::Result<Vec<CString>> =
        command.iter().map(|argument| text(argument.as_bytes())).collect();
    let arguments = arguments?;
    if program.as_bytes().contains(&b'/') {
        return Ok(with_shell(arguments[0].clone(), &arguments).into());
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut attempts = Vec::new();
    for directory in std::env::split_paths(path) {
        let place = text(directory.join(program).as_os_str().as_bytes())?;
        attempts.extend(with_shell(place, &arguments));
    }
    Ok(attempts)
}

/// Two attempts for a file: itself, and as a script of the shell if the kernel does not know its
/// format.
fn with_shell(path: CString, arguments: &[CString]) -> [Attempt; 2] {
    let script = [c"sh".to_owned(), path.clone()];
    let script = script.into_iter().chain(arguments[1..].iter().cloned()).collect();
    [
        Attempt { path, arguments: arguments.to_vec(), is_fallback: false },
        Attempt { path: c"/bin/sh".to_owned(), arguments: script, is_fallback: true },
    ]
}

/// The exit status for a program that could not be run, as of env(1).
#[must_use]
pub fn exit_status(error: &io::Error) -> u8 {
    if error.raw_os_error() == Some(libc::ENOENT) { 127 } else { 126 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(command: &str, path: Option<&str>) -> String {
        let attempts = attempts(&[OsString::from(command)], path.map(OsStr::new)).unwrap();
        let files = attempts.iter().filter(|attempt| !attempt.is_fallback);
        let paths = files.map(|attempt| attempt.path.to_str().unwrap());
        paths.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_name_is_looked_for_along_the_path_and_a_path_is_taken_as_it_is() {
        assert_eq!(paths("ls", Some("/a:/b")), "/a/ls /b/ls");
        assert_eq!(paths("ls", None), "/bin/ls /usr/bin/ls");
        assert_eq!(paths("./ls", Some("/a")), "./ls");
    }

    #[test]
    fn impossible_commands_are_refused_before_a_fork() {
        assert!(attempts(&[], None).is_err());
        assert!(attempts(&[OsString::from("a\0b")], None).is_err());
    }

    #[test]
    fn statuses_are_those_of_env() {
        assert_eq!(exit_status(&io::Error::from_raw_os_error(libc::ENOENT)), 127);
        assert_eq!(exit_status(&io::Error::from_raw_os_error(libc::EACCES)), 126);
        assert_eq!(exit_status(&io::Error::from_raw_os_error(libc::ENOEXEC)), 126);
    }
}
