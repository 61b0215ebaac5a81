//! Where a field of a TOML text stands: from field path to line, and from byte offset to path.

use std::ops::Range;

use rondpoint_input::line_at;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The parsed text with the position of every key and value.
pub(crate) struct Positions<'a> {
    text: &'a str,
    root: DeTable<'a>,
}

impl<'a> Positions<'a> {
    /// Parses a text; `None` if it is not TOML.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        Some(Self { text, root: DeTable::parse(text).ok()?.into_inner() })
    }

    /// The line, from 1, of the longest prefix of `path` that exists; 1 if none does.
    pub(crate) fn line_of(&self, path: &str) -> usize {
        let mut offset = 0;
        let mut table = Some(&self.root);
        let mut array = None;
        for step in steps(path) {
            let value = match step {
                Step::Key(key) => {
                    let entry = table.and_then(|table| table.get_key_value(key));
                    entry.map(|(key, value)| (key.span().start, value))
                }
                Step::Index(index) => array
                    .and_then(|array: &toml::de::DeArray<'a>| array.get(index))
                    .map(|value| (value.span().start, value)),
            };
            let Some((start, value)) = value else { break };
            offset = start;
            table = value.get_ref().as_table();
            array = value.get_ref().as_array();
        }
        line_at(self.text, offset)
    }

    /// The path of the innermost field around byte `offset`; empty at the top.
    pub(crate) fn path_at(&self, offset: usize) -> String {
        let mut path = String::new();
        descend_table(&self.root, offset, &mut path);
        path
    }
}

enum Step<'p> {
    Key(&'p str),
    Index(usize),
}

/// Splits `nodes[1].cpus` into `nodes`, 1, `cpus`.
fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.split(['.', '[']).map(|part| {
        let index = part.strip_suffix(']').and_then(|digits| digits.parse().ok());
        index.map_or(Step::Key(part), Step::Index)
    })
}

fn descend_table(table: &DeTable<'_>, offset: usize, path: &mut String) -> bool {
    for (key, value) in table {
        let before = path.len();
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key.get_ref());
        if descend_value(value, offset, path) || within(&key.span(), offset) {
            return true;
        }
        path.truncate(before);
    }
    false
}

fn descend_value(value: &Spanned<DeValue<'_>>, offset: usize, path: &mut String) -> bool {
    let inside = match value.get_ref() {
        DeValue::Table(table) => descend_table(table, offset, path),
        DeValue::Array(array) => array.iter().enumerate().any(|(index, element)| {
            let before = path.len();
            path.push_str(&format!("[{index}]"));
            let found = descend_value(element, offset, path);
            if !found {
                path.truncate(before);
            }
            found
        }),
        _ => false,
    };
    inside || within(&value.span(), offset)
}

fn within(span: &Range<usize>, offset: usize) -> bool {
    span.contains(&offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"m\"\n\n[core]\nclock = 1\n\n[[nodes]]\ncpus = 4\n\n[[nodes]]\ncpus = 2\ncontroller = { a = 1,\n  b = 2 }\nrows = [\n  [1, 2],\n  [3, 4],\n]\n";

    #[test]
    fn a_path_leads_to_its_line() {
        let positions = Positions::of(TEXT).unwrap();
        for (path, line) in [
            ("name", 1),
            ("core", 3),
            ("core.clock", 4),
            ("core.absent", 3),
            ("nodes[0].cpus", 7),
            ("nodes[1].cpus", 10),
            ("nodes[1]", 9),
            ("nodes[1].controller.b", 12),
            ("nodes[1].rows[1][0]", 15),
            ("nodes[1].rows[7][0]", 13),
            ("absent.field", 1),
        ] {
            assert_eq!(positions.line_of(path), line, "{path}");
        }
    }

    #[test]
    fn an_offset_leads_to_its_path() {
        let positions = Positions::of(TEXT).unwrap();
        for (needle, path) in [
            ("clock", "core.clock"),
            ("cpus = 2", "nodes[1].cpus"),
            ("2 }", "nodes[1].controller.b"),
            ("3, 4", "nodes[1].rows[1][0]"),
        ] {
            assert_eq!(positions.path_at(TEXT.find(needle).unwrap()), path, "{needle}");
        }
    }
}
