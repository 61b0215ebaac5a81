//! Everything that this command writes to stdout and stderr.
//!
//! All output goes through this module for three reasons. A closed pipe never ends a managed
//! program and causes no panic. Text from outside, such as the name of a thread, cannot move the
//! cursor or change colours. An error message does not repeat itself.

use std::borrow::Cow;
use std::io::{self, Write};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Writes text to stderr. Text that cannot be written is lost: that is no failure.
pub(crate) fn say(text: &str) {
    let _ = io::stderr().write_all(clean_lines(text).as_bytes());
}

/// Whether the terminal only prints lines (`TERM=dumb`): it does not move its cursor.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|name| name == "dumb")
}

/// Whether the user asked for no colours (no-color.org).
pub(crate) fn is_without_colours() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Whether lines on stderr can be replaced.
fn replaces_lines() -> bool {
    io::IsTerminal::is_terminal(&io::stderr()) && !is_dumb()
}

/// Shows a line that the next one replaces, on a terminal; elsewhere one line after the other.
pub(crate) fn progress(text: &str) {
    let line = match replaces_lines() {
        true => format!("\r{}\x1b[K", clean(text)),
        false => format!("{}\n", clean(text)),
    };
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Removes the line of [`progress`] from a terminal.
pub(crate) fn end_progress() {
    if replaces_lines() {
        let _ = io::stderr().write_all(b"\r\x1b[K");
    }
}

/// Writes text to stdout. A reader that has read enough is no failure.
///
/// # Errors
/// stdout cannot be written for another reason, such as a full disk.
pub(crate) fn print(text: &str) -> Result<()> {
    put(&mut io::stdout(), clean_lines(text).as_bytes())
}

/// Writes JSON to stdout.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_json_text(text: &str) -> Result<()> {
    put(&mut io::stdout(), clean_json(text).as_bytes())
}

/// Writes a value to stdout as one indented JSON object.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print_json_text(&(serde_json::to_string_pretty(value)? + "\n"))
}

fn put(output: &mut impl Write, bytes: &[u8]) -> Result<()> {
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("writing to stdout"),
    }
}

/// Says on stderr why a command failed.
pub(crate) fn fail(command: &str, error: &anyhow::Error) {
    say(&failure(command, error));
}

/// An error's line. A first clause that is the command's name, such as `topology`, is not repeated.
fn failure(command: &str, error: &anyhow::Error) -> String {
    let told = told(error);
    let rest = told.strip_prefix(command).and_then(|rest| rest.strip_prefix(": "));
    format!("rondpoint {command}: {}\n", rest.unwrap_or(&told))
}

/// JSON of the same value in which nothing acts on a terminal.
pub(crate) fn clean_json(text: &str) -> Cow<'_, str> {
    escaped(text, true, |one, shown| {
        let mut units = [0; 2];
        for unit in one.encode_utf16(&mut units) {
            shown.push_str(&format!("\\u{unit:04x}"));
        }
    })
}

/// An error and its causes. A clause that a cause repeats is left out.
pub(crate) fn told(error: &anyhow::Error) -> String {
    let mut clauses: Vec<String> = Vec::new();
    for part in error.chain().map(ToString::to_string) {
        let new: Vec<String> = part
            .split(": ")
            .filter(|one| clauses.iter().all(|old| old != one))
            .map(str::to_string)
            .collect();
        clauses.retain(|old| !new.iter().any(|one| mentions(one, old)));
        clauses.extend(new);
    }
    clauses.join(": ")
}

/// Whether `text` has `part` as words of its own.
fn mentions(text: &str, part: &str) -> bool {
    let is_inside = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    text.match_indices(part).any(|(start, _)| {
        let (before, after) = (&text[..start], &text[start + part.len()..]);
        !part.is_empty() && !is_inside(before.chars().last()) && !is_inside(after.chars().next())
    })
}

/// A value from outside, for one line of text: what would act on the terminal is shown escaped.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    escaped(text, false, |one, shown| shown.extend(one.escape_default()))
}

/// The same for whole lines; their ends stay.
pub(crate) fn clean_lines(text: &str) -> Cow<'_, str> {
    escaped(text, true, |one, shown| shown.extend(one.escape_default()))
}

fn escaped(text: &str, is_lines: bool, escape: fn(char, &mut String)) -> Cow<'_, str> {
    if !text.chars().any(|one| acts(one, is_lines)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for one in text.chars() {
        match acts(one, is_lines) {
            true => escape(one, &mut shown),
            false => shown.push(one),
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal acts on a character instead of showing it. Such are control characters, and
/// those that change the direction or the line of the text around them.
fn acts(character: char, is_lines: bool) -> bool {
    match character {
        '\n' | '\t' => !is_lines,
        '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn nothing_from_outside_acts_on_a_terminal() {
        let name = "a\u{1b}[31mb\u{9b}2J\u{7f}\rc\u{202e}d\ne";
        let shown = clean(name);
        assert_eq!(shown, r"a\u{1b}[31mb\u{9b}2J\u{7f}\rc\u{202e}d\ne");
        assert_eq!(clean_lines("a\tb\nc\u{1b}\n"), "a\tb\nc\\u{1b}\n");
        for ordinary in ["worker-1", "größe", "日本", "a b"] {
            assert!(matches!(clean(ordinary), Cow::Borrowed(same) if same == ordinary));
        }
    }

    #[test]
    fn json_keeps_the_value_and_acts_on_no_terminal() {
        let name = "a\u{1b}[31m\u{9b}\u{7f}\u{202e}\u{2028}";
        let text = serde_json::to_string_pretty(&[name]).expect("text");
        let text = clean_json(&text);
        assert!(!text.chars().any(|one| acts(one, true)), "{text}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).expect("JSON"), [name]);
    }

    #[test]
    fn an_error_says_each_thing_once() {
        let missing = || io::Error::from_raw_os_error(2);
        let reason = missing().to_string();
        let twice = anyhow!(missing()).context(format!("/x: cannot read: {reason}"));
        assert_eq!(told(&twice), format!("/x: cannot read: {reason}"));
        let named = anyhow!("reading /x: {reason}").context("/x").context("the machine");
        assert_eq!(told(&named), format!("the machine: reading /x: {reason}"));
        let alike = anyhow!("process 1234: no").context("process 123");
        assert_eq!(told(&alike), "process 123: process 1234: no");
        let inside = anyhow!("node 1: bad: node 2: bad");
        assert_eq!(told(&inside), "node 1: bad: node 2: bad", "one text is left as it is");
    }

    #[test]
    fn a_command_is_named_once() {
        let of_machine = anyhow!("topology: nodes: none; expected one");
        let line = failure("topology", &of_machine);
        assert_eq!(line, "rondpoint topology: nodes: none; expected one\n");
        assert_eq!(
            failure("run", &of_machine),
            "rondpoint run: topology: nodes: none; expected one\n"
        );
        assert_eq!(
            failure("top", &of_machine),
            "rondpoint top: topology: nodes: none; expected one\n"
        );
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure_and_a_full_disk_is() {
        struct Refusing(io::ErrorKind);
        impl Write for Refusing {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert!(put(&mut Refusing(io::ErrorKind::BrokenPipe), b"x").is_ok());
        let full = put(&mut Refusing(io::ErrorKind::StorageFull), b"x").expect_err("full");
        assert!(told(&full).starts_with("writing to stdout: "), "{full:#}");
    }
}
