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
    kind: Kind,
    machine: String,
    /// As it was typed.
    command: String,
    /// Line by line.
    output: Vec<String>,
}

impl Screen {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let found: Self = serde_json::from_str(text)?;
        ensure!(found.format == FORMAT, "format {}, expected {FORMAT}", found.format);
        Ok(found)
    }

    /// The block of code with the command, and where it ran.
    fn block(&self) -> String {
        let Self { kind, machine, command, output, .. } = self;
        format!(
            "```text\n$ {command}                              # {machine}, {}\n{}\n```\n",
            kind.name(),
            output.join("\n")
        )
    }
}

/// A document with its screens.
///
/// # Errors
/// A screen without its JSON, or without a block behind its mark.
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

    const DATA: &str = r#"{"format": 1, "kind": "emulated", "machine": "m", "command": "rondpoint doctor",
        "output": ["good", "bad"]}"#;

    #[test]
    fn a_block_behind_a_mark_is_replaced_and_nothing_else() {
        let screens = BTreeMap::from([("x".to_string(), Screen::parse(DATA).unwrap())]);
        let document = "a\n<!-- screen: x -->\n```\nold\n```\nb\n```\nc\n```\n";
        let found = filled(document, &screens).unwrap();
        assert!(
            found.starts_with("a\n<!-- screen: x -->\n```text\n$ rondpoint doctor "),
            "{found}"
        );
        assert!(found.ends_with("# m, emulated\ngood\nbad\n```\nb\n```\nc\n```\n"), "{found}");
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
