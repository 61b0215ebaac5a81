//! Starting a program the way `env` does. It is looked for by name along PATH, and a file without a
//! known format goes through the shell. Exit status 126 means that it is there but cannot be run,
//! 127 that it cannot be found.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::parse::accounts;
use crate::syscall::process::{self, Attempt, User, Waiting};
use crate::syscall::signal::Signals;

/// Search path without PATH, as in execvp(3).
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Forks a child that waits before it executes `command` (program and arguments). Under a `user`
/// its USER, LOGNAME and HOME are those of that user.
///
/// # Errors
/// `command` is empty, a word has a NUL byte, or fork(2) fails.
pub fn prepare(
    command: &[OsString],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    mask: &Signals,
    user: Option<&User>,
) -> io::Result<Waiting> {
    let mut environment: Vec<(OsString, OsString)> = environment.into_iter().collect();
    if let Some(user) = user {
        let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
        become_user(&mut environment, user.user, &passwd);
    }
    let path =
        environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let attempts = attempts(command, path)?;
    let environment: io::Result<Vec<CString>> = environment
        .iter()
        .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect();
    process::fork(&attempts, &environment?, mask, user)
}

/// Gives an environment of root the user's name and home. sudo's own variables come before
/// `/etc/passwd`, which may lack the user. A variable stays if it is not root's own, because the
/// user set it, and if no other value is known.
fn become_user(environment: &mut Vec<(OsString, OsString)>, user: u32, passwd: &[u8]) {
    let told = |name: &str| {
        let found = environment.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
    };
    let by_sudo = told("SUDO_UID").is_some_and(|told| told == user.to_string().as_str());
    let of_sudo = |name| told(name).filter(|_| by_sudo);
    let listed = accounts::name_and_home(passwd, user);
    let (root, roots_home) = accounts::name_and_home(passwd, 0).unwrap_or((b"root", b"/root"));
    let owned = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let name = of_sudo("SUDO_USER").or_else(|| Some(owned(listed?.0)));
    let home = of_sudo("SUDO_HOME").or_else(|| Some(owned(listed?.1)));
    let home = home.filter(|home| home.as_bytes().starts_with(b"/"));
    let is_roots =
        |variable, roots: &[u8]| told(variable).is_none_or(|told| told.as_bytes() == roots);
    let new = [("USER", root, name.clone()), ("LOGNAME", root, name), ("HOME", roots_home, home)];
    let new = new.map(|(variable, roots, value)| {
        let value = value.filter(|_| is_roots(variable, roots));
        (variable, value)
    });
    for (variable, value) in new {
        let Some(value) = value else { continue };
        environment.retain(|(known, _)| known != variable);
        environment.push((variable.into(), value));
    }
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
    // The kernel says of an empty name that there is no such file.
    if program.is_empty() || program.as_bytes().contains(&b'/') {
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
    fn a_program_of_the_caller_has_the_callers_name_and_home() {
        let passwd = b"root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/homes/ada:/bin/sh\n";
        let roots = [("HOME", "/root"), ("USER", "root"), ("LOGNAME", "root"), ("PATH", "/bin")];
        let given = |sudo: &[(&str, &str)], user| {
            let kept = |(name, _): &&(&str, &str)| sudo.iter().all(|(other, _)| other != name);
            let all = roots.iter().filter(kept).chain(sudo);
            let mut environment: Vec<(OsString, OsString)> =
                all.map(|&(name, value)| (name.into(), value.into())).collect();
            become_user(&mut environment, user, passwd);
            ["USER", "LOGNAME", "HOME", "PATH"].map(|name| {
                let values: Vec<_> =
                    environment.iter().filter(|(known, _)| known == name).collect();
                assert_eq!(values.len(), 1, "{name}: {environment:?}");
                values[0].1.to_string_lossy().into_owned()
            })
        };
        let sudo = [("SUDO_UID", "1000"), ("SUDO_USER", "ada")];
        assert_eq!(given(&sudo, 1000), ["ada", "ada", "/homes/ada", "/bin"]);
        assert_eq!(given(&[], 1000), ["ada", "ada", "/homes/ada", "/bin"], "by pkexec or doas");
        let directory = [("SUDO_UID", "7"), ("SUDO_USER", "eve"), ("SUDO_HOME", "/net/eve")];
        assert_eq!(given(&directory, 7), ["eve", "eve", "/net/eve", "/bin"]);
        assert_eq!(given(&directory[..2], 7), ["eve", "eve", "/root", "/bin"], "no known home");
        let chosen = [sudo[0], sudo[1], ("HOME", "/data")];
        assert_eq!(given(&chosen, 1000), ["ada", "ada", "/data", "/bin"], "as the user set it");
        assert_eq!(
            given(&directory, 1000),
            ["ada", "ada", "/homes/ada", "/bin"],
            "of another user"
        );
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
