//! Reads files beneath `/sys`: some are required, others may be skipped with a note.

use std::collections::BTreeSet;

use crate::LinuxError;
use crate::parse::{ParseError, cpulist};
use crate::root::{self, Root};

use super::Note;

/// Reads files of one machine and collects notes.
pub(super) struct Reader<'a> {
    pub(super) root: &'a Root,
    pub(super) notes: Vec<Note>,
    /// Paths that have a note.
    unreadable: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(root: &'a Root) -> Self {
        Self { root, notes: Vec::new(), unreadable: BTreeSet::new() }
    }

    /// Parses a file; `None` if it is absent.
    ///
    /// # Errors
    /// The file cannot be read, or is malformed.
    pub(super) fn parsed<T>(
        &self,
        path: &str,
        parse: fn(&[u8]) -> Result<T, ParseError>,
    ) -> Result<Option<T>, LinuxError> {
        let path = self.root.in_sys(path);
        let bytes = root::read_optional(&path)?;
        let format = |source| LinuxError::Format { path, source };
        bytes.map(|bytes| parse(&bytes)).transpose().map_err(format)
    }

    /// Parses a list of CPUs or nodes; `None` if the file is absent.
    ///
    /// # Errors
    /// As [`Reader::parsed`].
    pub(super) fn list(&self, path: &str) -> Result<Option<Vec<u32>>, LinuxError> {
        self.parsed(path, cpulist::parse)
    }

    /// Parses an optional file: `None` if it is absent, and `None` with a note if it cannot be read
    /// or is malformed.
    pub(super) fn told<T>(
        &mut self,
        path: &str,
        parse: fn(&[u8]) -> Result<T, ParseError>,
    ) -> Option<T> {
        let problem = match self.parsed(path, parse) {
            Ok(found) => return found,
            Err(LinuxError::Format { source, .. }) => source.to_string(),
            Err(LinuxError::Io { source, .. }) => source.to_string(),
            Err(other) => other.to_string(),
        };
        if self.unreadable.insert(path.to_string()) {
            self.notes.push(Note::Unreadable { path: path.to_string(), problem });
        }
        None
    }

    /// Parses a set of CPUs from a list, or from a mask before Linux 2.6.28.
    pub(super) fn told_set(&mut self, list: &str, mask: &str) -> Option<Vec<u32>> {
        self.told(list, cpulist::parse).or_else(|| self.told(mask, cpulist::parse_mask))
    }

    /// Numbers of the entries of a directory that are `kind` followed by a number, ascending.
    pub(super) fn numbered(&self, directory: &str, kind: &str) -> Vec<u32> {
        let names = root::list(&self.root.in_sys(directory)).unwrap_or_default();
        let number = |name: &String| crate::observe::kernel::numbered(name, kind);
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }
}
