//! Screens in documents: what a command really wrote, kept as JSON in docs/screens.
//!
//! A line `<!-- screen: NAME -->` and the block of code behind it are the screen of
//! `docs/screens/NAME.json`. `./x results` writes the block, and `./x tidy` fails where it is
//! another.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::data::Kind;

/// Version of the format.
const FORMAT: u32 = 1;
const MARK: &str = "<!-- screen: ";
const MARK_END: &str = " -->";

/// One screen.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Screen {
    format: u32,
    /// Kind of machine on which it ran. `None` for a command that only reads files of this
    /// repository, which a test of `crates/rondpoint` runs again.
    kind: Option<Kind>,
    machine: Option<String>,
    commit: Option<String>,
    /// The command as typed.
    command: String,
    /// Lines of the output.
    output: Vec<String>,
}

impl Screen {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let found: Self = serde_json::from_str(text)?;
        ensure!(found.format == FORMAT, "format {}, expected {FORMAT}", found.format);
        let origin = [found.kind.is_some(), found.machine.is_some(), found.commit.is_some()];
        ensure!(
            origin == [true; 3] || origin == [false; 3],
            "expected kind, machine and commit together"
        );
        Ok(found)
    }

    /// The code block with the command and its output, and a line with the kind of machine.
    fn block(&self) -> String {
        let Self { kind, machine, command, output, .. } = self;
        let origin = kind
            .zip(machine.as_ref())
            .map_or(String::new(), |(kind, machine)| format!("# {}: {machine}\n", kind.name()));
        format!("```text\n{origin}$ {command}\n{}\n```\n", output.join("\n"))
    }
}

/// The document with the current text of its screens.
///
/// # Errors
/// A screen has no JSON, or no code block follows its mark.
pub(super) fn filled(document: &str, screens: &BTreeMap<String, Screen>) -> Result<String> {
    if !document.contains(MARK) {
        return Ok(document.to_string());
    }
    let mut text = String::new();
    let mut lines = document.lines().peekable();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        let name = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(MARK_END));
        let Some(name) = name else { continue };
        let screen = screens.get(name).with_context(|| format!("no docs/screens/{name}.json"))?;
        ensure!(
            lines.next().is_some_and(|line| line.starts_with("```")),
            "screen {name}: expected a block of code behind the mark"
        );
        ensure!(lines.any(|line| line == "```"), "screen {name}: its block has no end");
        text.push_str(&screen.block());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &str = r#"{"format": 1, "kind": "emulated", "machine": "m", "commit": "abcdef1", "command": "rondpoint doctor",
        "output": ["good", "bad"]}"#;

    #[test]
    fn a_block_behind_a_mark_is_replaced_and_nothing_else() {
        let screens = BTreeMap::from([("x".to_string(), Screen::parse(DATA).unwrap())]);
        let document = "a\n<!-- screen: x -->\n```\nold\n```\nb\n```\nc\n```\n";
        let found = filled(document, &screens).unwrap();
        let head = "a\n<!-- screen: x -->\n```text\n# emulated: m\n$ rondpoint doctor\n";
        assert_eq!(found, format!("{head}good\nbad\n```\nb\n```\nc\n```\n"));
        let less = DATA.replace("\"machine\": \"m\", ", "");
        let error = Screen::parse(&less).unwrap_err().to_string();
        assert!(error.contains("expected kind, machine and commit together"), "{error}");
        assert_eq!(filled(&found, &screens).unwrap(), found, "again the same");
        for (document, expected) in [
            ("<!-- screen: y -->\n```\n```\n", "no docs/screens/y.json"),
            ("<!-- screen: x -->\ntext\n", "expected a block"),
            ("<!-- screen: x -->\n```\n", "has no end"),
        ] {
            let error = filled(document, &screens).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
