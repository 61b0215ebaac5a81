//! The files of a package, whatever its format, sorted by path.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A file.
    File {
        /// Its content.
        bytes: Vec<u8>,
        /// Whether every user may execute it.
        is_program: bool,
        /// Whether an administrator edits it: an upgrade keeps the edit.
        is_configuration: bool,
    },
    /// A symbolic link to this path, relative to its folder.
    Link(String),
}

/// Paths without the leading slash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Payload {
    pub(crate) entries: BTreeMap<String, Entry>,
}

impl Payload {
    /// Adds bytes as a plain file.
    pub(crate) fn add(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        self.put(path, bytes.into(), false, false);
    }

    /// Adds a program.
    pub(crate) fn add_program(&mut self, path: &str, bytes: Vec<u8>) {
        self.put(path, bytes, true, false);
    }

    /// Adds a file that an administrator edits.
    pub(crate) fn add_configuration(&mut self, path: &str, bytes: Vec<u8>) {
        self.put(path, bytes, false, true);
    }

    /// Adds a link.
    pub(crate) fn add_link(&mut self, path: &str, target: &str) {
        self.entries.insert(path.to_owned(), Entry::Link(target.to_owned()));
    }

    fn put(&mut self, path: &str, bytes: Vec<u8>, is_program: bool, is_configuration: bool) {
        let entry = Entry::File { bytes, is_program, is_configuration };
        self.entries.insert(path.to_owned(), entry);
    }

    /// Paths of the files that an administrator edits.
    pub(crate) fn configuration(&self) -> impl Iterator<Item = &str> {
        let is_it = |entry: &Entry| matches!(entry, Entry::File { is_configuration: true, .. });
        self.entries.iter().filter(move |(_, entry)| is_it(entry)).map(|(path, _)| path.as_str())
    }

    /// Sum of the sizes of all files, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |entry: &Entry| match entry {
            Entry::File { bytes, .. } => bytes.len() as u64,
            Entry::Link(_) => 0,
        };
        self.entries.values().map(of).sum()
    }

    /// A tar archive of everything below `prefix`, with the folders that it needs. All is root's
    /// and of one age: the same payload gives the same bytes.
    pub(crate) fn tar(&self, prefix: &str, time_s: u64) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        let mut folders = std::collections::BTreeSet::new();
        for (path, entry) in &self.entries {
            let path = format!("{prefix}{path}");
            let ends = path.match_indices('/').map(|(end, _)| &path[..=end]);
            for folder in ends.filter(|folder| *folder != "./") {
                if folders.insert(folder.to_owned()) {
                    let mut header = header(tar::EntryType::Directory, 0o755, 0, time_s);
                    archive.append_data(&mut header, folder, io::empty())?;
                }
            }
            match entry {
                Entry::File { bytes, is_program, .. } => {
                    let mode = if *is_program { 0o755 } else { 0o644 };
                    let kind = tar::EntryType::Regular;
                    let mut header = header(kind, mode, bytes.len() as u64, time_s);
                    archive.append_data(&mut header, &path, &bytes[..])?;
                }
                Entry::Link(target) => {
                    let mut header = header(tar::EntryType::Symlink, 0o777, 0, time_s);
                    archive.append_link(&mut header, &path, target)?;
                }
            }
        }
        Ok(archive.into_inner()?)
    }
}

fn header(kind: tar::EntryType, mode: u32, bytes: u64, time_s: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_mtime(time_s);
    header.set_uid(0);
    header.set_gid(0);
    let _ = header.set_username("root").and_then(|()| header.set_groupname("root"));
    header
}

/// Compressed, with neither a name nor a time in it.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut compressed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    compressed.write_all(bytes)?;
    Ok(compressed.finish()?)
}

/// A file of the sources.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("{}: cannot read", path.display()))
}

/// A file of the sources that may be absent.
pub(crate) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).with_context(|| format!("{}: cannot read", path.display())),
    }
}
