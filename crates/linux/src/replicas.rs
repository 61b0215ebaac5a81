//! The table of a run's copies of files. `rondpoint run --replicate` writes it, and the library
//! `librondpoint_interpose.so` reads it in every process of the program.
//!
//! Text, a word and its values on each line:
//!
//! ```text
//! rondpoint-replicas 1
//! log /dev/shm/rondpoint-replicas-4711/log
//! node 0 0-3,8
//! node 1 4-7
//! file 2049 131 1048576 1764072000 5
//! copy 26 17 /dev/shm/rondpoint-replicas-4711/0-0
//! copy 26 18 /dev/shm/rondpoint-replicas-4711/0-1
//! ```
//!
//! A file is its device, inode, size in bytes, and time of modification in seconds and nanoseconds.
//! A changed file differs from what was copied. Its copies follow in the order of the nodes, with
//! device and inode. Where the first line ends in `watch` there are no copies: processes log what
//! they would open.

use std::fmt;
use std::path::{Path, PathBuf};

/// The environment variable with the table's path.
pub const TABLE_VARIABLE: &str = "RONDPOINT_REPLICAS";

/// File name of the library, beside the `rondpoint` program or in `../lib/rondpoint`.
pub const LIBRARY: &str = "librondpoint_interpose.so";

/// Prefix of the folders of copies. A number that no other run has follows.
pub const FOLDERS: &str = "rondpoint-replicas-";

/// Whether a path is that of a copy, by the name of its folder only, because a container's
/// `/dev/shm` has another path outside.
#[must_use]
pub fn is_copy(path: &[u8]) -> bool {
    let mut folders = path.split(|&byte| byte == b'/').rev().skip(1);
    folders.next().is_some_and(|folder| folder.starts_with(FOLDERS.as_bytes()))
}

/// Flag of open(2): do not wait for a writer of a pipe.
pub const O_NONBLOCK: i32 = libc::O_NONBLOCK;
/// Flag of open(2): refuse a symbolic link.
pub const O_NOFOLLOW: i32 = libc::O_NOFOLLOW;

const FIRST_LINE: &str = "rondpoint-replicas 1";
const WATCH: &str = "rondpoint-replicas 1 watch";

/// Upper limit of CPU numbers in a table. Kernels have fewer.
const MOST_CPUS: u32 = 1 << 16;

/// The table of copied files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Whether there are no copies and processes only log.
    pub watch: bool,
    /// File to which processes write a line for each file that they open.
    pub log: PathBuf,
    /// The nodes with copies.
    pub nodes: Vec<Node>,
    /// The files that were copied.
    pub files: Vec<File>,
}

/// A node with a copy of every file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number of the node.
    pub node: u32,
    /// The kernel's numbers of the CPUs that read its copies, ascending.
    pub cpus: Vec<u32>,
}

/// A file as it was when it was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Identity of the file that the program opens.
    pub original: Identity,
    /// Length in bytes.
    pub length: u64,
    /// Time of the last modification: seconds and nanoseconds.
    pub modified: (i64, i64),
    /// One copy for each node, in the order of `nodes`.
    pub copies: Vec<Copy>,
}

/// One copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// Identity of the copy.
    pub identity: Identity,
    /// Path of the copy.
    pub path: PathBuf,
}

/// Identity of a file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Number of the file system.
    pub device: u64,
    /// Number in the file system.
    pub inode: u64,
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", if self.watch { WATCH } else { FIRST_LINE })?;
        writeln!(formatter, "log {}", self.log.display())?;
        for Node { node, cpus } in &self.nodes {
            let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
            writeln!(formatter, "node {node} {}", cpus.join(","))?;
        }
        for File { original, length, modified, copies } in &self.files {
            let Identity { device, inode } = original;
            let (seconds, nanoseconds) = modified;
            writeln!(formatter, "file {device} {inode} {length} {seconds} {nanoseconds}")?;
            for Copy { identity: Identity { device, inode }, path } in copies {
                writeln!(formatter, "copy {device} {inode} {}", path.display())?;
            }
        }
        Ok(())
    }
}

impl Table {
    /// Parses a table; `None` if a line is malformed or a copy is missing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let watch = match lines.next()? {
            FIRST_LINE => false,
            WATCH => true,
            _ => return None,
        };
        let mut table = Self { watch, ..Self::default() };
        for line in lines {
            match line.split_once(' ')? {
                ("log", path) => table.log = path.into(),
                ("node", rest) => {
                    let (node, cpus) = rest.split_once(' ')?;
                    table.nodes.push(Node { node: node.parse().ok()?, cpus: parse_cpus(cpus)? });
                }
                ("file", rest) => table.files.push(parse_file(rest)?),
                ("copy", rest) => {
                    let mut words = rest.splitn(3, ' ');
                    let identity = parse_identity(&mut words)?;
                    let path = Path::new(words.next()?).to_owned();
                    table.files.last_mut()?.copies.push(Copy { identity, path });
                }
                _ => return None,
            }
        }
        let copies = if watch { 0 } else { table.nodes.len() };
        let is_whole = |file: &File| file.copies.len() == copies;
        (!table.nodes.is_empty() && table.files.iter().all(is_whole)).then_some(table)
    }
}

fn parse_cpus(text: &str) -> Option<Vec<u32>> {
    let cpus = text.split(',').map(|cpu| cpu.parse().ok().filter(|&cpu| cpu < MOST_CPUS));
    cpus.collect()
}

fn parse_identity<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Identity> {
    Some(Identity { device: words.next()?.parse().ok()?, inode: words.next()?.parse().ok()? })
}

fn parse_file(text: &str) -> Option<File> {
    let mut words = text.split(' ');
    let original = parse_identity(&mut words)?;
    let length = words.next()?.parse().ok()?;
    let modified = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(File { original, length, modified, copies: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_known_by_their_folder() {
        for path in ["/dev/shm/rondpoint-replicas-7-0/0-1", "/rondpoint-replicas-7-0/0-1 (deleted)"]
        {
            assert!(is_copy(path.as_bytes()), "{path}");
        }
        for path in ["", "[heap]", "/dev/shm/rondpoint-replicas-7", "/rondpoint-replicas-7/a/b"] {
            assert!(!is_copy(path.as_bytes()), "{path}");
        }
    }

    fn example() -> Table {
        let copy = |inode: u64| Copy {
            identity: Identity { device: 26, inode },
            path: format!("/dev/shm/a folder/{inode}").into(),
        };
        Table {
            watch: false,
            log: "/dev/shm/a folder/log".into(),
            nodes: vec![Node { node: 0, cpus: vec![0, 1, 200] }, Node { node: 3, cpus: vec![2] }],
            files: vec![File {
                original: Identity { device: 2049, inode: 131 },
                length: 1 << 40,
                modified: (-5, 999_999_999),
                copies: vec![copy(17), copy(18)],
            }],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Table::parse(&example().to_string()), Some(example()));
        let mut watched = Table { watch: true, ..example() };
        assert_eq!(Table::parse(&watched.to_string()), None, "copies that are none");
        watched.files[0].copies.clear();
        assert_eq!(Table::parse(&watched.to_string()), Some(watched));
    }

    #[test]
    fn a_table_that_is_cut_or_changed_is_none() {
        let text = example().to_string();
        for line in 1..text.lines().count() {
            let cut: String = text.lines().take(line).map(|line| format!("{line}\n")).collect();
            // A node is there, and no file lacks a copy.
            let whole = cut.contains("node 0") && !cut.contains("\nfile");
            assert_eq!(Table::parse(&cut).is_some(), whole, "{cut}");
        }
        for (from, to) in [("replicas 1", "replicas 2"), ("0,1,", "0,x,"), ("copy 26", "copy x")] {
            assert_eq!(Table::parse(&text.replace(from, to)), None, "{to}");
        }
        assert_eq!(Table::parse(&text.replace("200", "4000000000")), None);
    }
}
