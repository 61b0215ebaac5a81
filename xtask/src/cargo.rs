//! Runs cargo under a bar of ours and passes its diagnostics on.
//!
//! Cargo draws its own bar on terminals only and forecasts no time. Here it always has to draw the
//! bar, and the numbers are read out of that: `Building [====>   ] 12/145: serde`.

use std::env;
use std::io::{BufReader, IsTerminal as _, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::progress::{Progress, Unit};
use crate::tidy::root;

/// Time between two updates of the bar while cargo is silent.
const TICK: Duration = Duration::from_secs(1);

/// First words of cargo's lines about its own work. Other lines are diagnostics.
const ROUTINE: [&str; 14] = [
    "Adding",
    "Building",
    "Checking",
    "Compiling",
    "Dirty",
    "Downloaded",
    "Downloading",
    "Executable",
    "Finished",
    "Fresh",
    "Locking",
    "Running",
    "Unpacking",
    "Updating",
];

/// The cargo that runs this program, in the repository's folder.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a cargo command under a bar with `title`. Returns whether it succeeds.
pub(crate) fn build(title: &str, command: &mut Command) -> Result<bool> {
    let color = if std::io::stderr().is_terminal() { "always" } else { "never" };
    command.envs([
        ("CARGO_TERM_QUIET", "false"),
        ("CARGO_TERM_VERBOSE", "false"),
        ("CARGO_TERM_PROGRESS_WHEN", "always"),
        ("CARGO_TERM_PROGRESS_WIDTH", "80"),
        ("CARGO_TERM_COLOR", color),
    ]);
    let mut child = command.stderr(Stdio::piped()).spawn().context("cargo: cannot run")?;
    let output = child.stderr.take().expect("was piped");
    let mut progress = Progress::new(title, Unit::Pieces("crates"), 0).growing();
    let (sender, lines) = mpsc::channel();
    // Ends with cargo's output.
    thread::spawn(move || Lines(BufReader::new(output)).try_for_each(|line| sender.send(line)));
    loop {
        let line = match lines.recv_timeout(TICK) {
            Ok(line) => line.context("cargo: cannot read its output")?,
            Err(RecvTimeoutError::Timeout) => {
                progress.tick();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        match read(&line) {
            Said::Progress(done, total) => progress.at(done, total),
            Said::Routine => {}
            Said::Diagnostic => progress.tell(&line),
        }
    }
    let succeeded = child.wait().context("cargo: cannot wait for it")?.success();
    if succeeded {
        progress.finish();
    } else {
        progress.clear();
    }
    Ok(succeeded)
}

/// The kind of a line of cargo's output.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Number of crates built, and of all crates.
    Progress(u64, u64),
    /// A note about cargo's own work.
    Routine,
    /// A message for the user.
    Diagnostic,
}

fn read(line: &str) -> Said {
    let plain = without_colours(line);
    // Cargo sets its words flush right at column 12; diagnostics begin elsewhere.
    let word = plain.trim_start().split(' ').next().unwrap_or_default();
    let is_routine =
        ROUTINE.contains(&word) && plain.find(word).is_some_and(|at| at + word.len() <= 12);
    let numbers = || {
        let numbers = plain.split_once("] ")?.1.split(':').next()?;
        let (done, total) = numbers.split_once('/')?;
        Some((done.trim().parse().ok()?, total.trim().parse().ok()?))
    };
    match numbers().filter(|_| word == "Building") {
        Some((done, total)) => Said::Progress(done, total),
        None if is_routine || plain.trim().is_empty() => Said::Routine,
        None => Said::Diagnostic,
    }
}

/// The text without `ESC [ … letter`.
fn without_colours(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        let end = part.find(|character: char| character.is_ascii_alphabetic());
        plain + end.map_or("", |end| &part[end + 1..])
    })
}

/// Lines that end with a newline or a carriage return. Cargo's bar uses the latter.
struct Lines<R>(R);

impl<R: Read> Iterator for Lines<BufReader<R>> {
    type Item = std::io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            match self.0.read(&mut byte) {
                Err(error) => return Some(Err(error)),
                Ok(0) if line.is_empty() => return None,
                Ok(0) => break,
                Ok(_) if byte[0] == b'\n' || byte[0] == b'\r' => break,
                Ok(_) => line.push(byte[0]),
            }
        }
        Some(Ok(String::from_utf8_lossy(&line).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_bar_is_read_with_and_without_colours() {
        assert_eq!(read("    Building [====>   ] 12/145: serde, toml"), Said::Progress(12, 145));
        let coloured = "\x1b[1m\x1b[36m    Building\x1b[0m [>   ] 1/9: libc(build.rs)";
        assert_eq!(read(coloured), Said::Progress(1, 9));
        assert_eq!(read("    Building bootstrap"), Said::Routine);
    }

    #[test]
    fn diagnostics_are_told_from_routine() {
        assert_eq!(read("   Compiling libc v0.2.1"), Said::Routine);
        assert_eq!(read("\x1b[1m\x1b[32m  Downloaded\x1b[0m 3 crates"), Said::Routine);
        assert_eq!(read("error[E0308]: mismatched types"), Said::Diagnostic);
        assert_eq!(read("    Blocking waiting for file lock on build directory"), Said::Diagnostic);
        assert_eq!(read("  --> src/main.rs:3:5"), Said::Diagnostic);
        assert_eq!(read("             Running late is an error of ours"), Said::Diagnostic);
    }

    #[test]
    fn lines_end_at_a_return_too() {
        let lines: Vec<_> = Lines(BufReader::new(&b"a\rb\nc"[..])).map(Result::unwrap).collect();
        assert_eq!(lines, ["a", "b", "c"]);
    }
}
