//! The table: of one process, or in a file that several have mapped.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::flags::Memory;
use crate::nodes::{cpus_of_node, nodes_with_memory};
use crate::pages::{Pages, Shared};
use crate::report::Failure;
use crate::system::{allowed_cpus, run_on};

/// At the end of a file: how many processes use it now, and all changes of those that have left.
const BOOKS: usize = 2;

pub(super) enum Table {
    Own(Pages<AtomicU64>),
    Shared { all: Shared, file: File },
}

impl Table {
    /// A table of one's own.
    pub(super) fn fill(memory: &Memory) -> Result<Self, Failure> {
        let table = Self::Own(Pages::map(memory.size, memory.no_huge_pages)?);
        table.write();
        Ok(table)
    }

    /// The table in a file of this many bytes, filled if it is new. A program that joins meanwhile
    /// waits.
    pub(super) fn join(path: &Path, bytes: usize) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure(format!("{}: {error}", path.display()));
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(failed)?;
        file.lock().map_err(failed)?;
        let found = file.metadata().map_err(failed)?.len();
        let is_new = found == 0;
        if is_new {
            file.set_len(bytes as u64).map_err(failed)?;
        } else if found != bytes as u64 {
            let path = path.display();
            return Err(Failure(format!("{path}: {found} bytes, expected a table of {bytes}")));
        }
        let table = Self::Shared { all: Shared::map(&file, bytes)?, file };
        if is_new {
            table.write();
        }
        if let Self::Shared { all, file } = &table {
            all[all.len() - BOOKS].fetch_add(1, Ordering::Relaxed);
            file.unlock().map_err(failed)?;
        }
        Ok(table)
    }

    fn write(&self) {
        self.words().iter().for_each(|word| word.store(1, Ordering::Relaxed));
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        match self {
            Self::Own(words) => words,
            Self::Shared { all, .. } => &all[..all.len() - BOOKS],
        }
    }

    /// Whether all changes are there, on each node: these, and of a file those of the others, which
    /// the last to leave can tell.
    pub(super) fn leave(self, changes: u64) -> Result<bool, Failure> {
        let words = self.words();
        let are_there = |changes: u64| -> Result<bool, Failure> {
            Ok(agree(&sums(words)?, words.len() as u64 + changes))
        };
        let (all, file) = match &self {
            Self::Own(_) => return are_there(changes),
            Self::Shared { all, file } => (all, file),
        };
        // The lock ends with the file.
        file.lock().map_err(|error| Failure(format!("the table: {error}")))?;
        let [users, changed] = [&all[all.len() - BOOKS], &all[all.len() - BOOKS + 1]];
        let changes = changed.fetch_add(changes, Ordering::Relaxed) + changes;
        let is_last = users.fetch_sub(1, Ordering::Relaxed) == 1;
        if is_last { are_there(changes) } else { Ok(true) }
    }
}

/// The sum of the words, once by a thread on each node that has memory and CPUs of this process. A
/// kernel that copies pages may have left one node an old copy.
fn sums(words: &[AtomicU64]) -> Result<Vec<u64>, Failure> {
    let nodes = nodes_with_memory().unwrap_or_default();
    let mut places: Vec<Vec<usize>> =
        nodes.into_iter().filter_map(|node| cpus_of_node(node).ok()).collect();
    if places.is_empty() {
        places.push(allowed_cpus()?);
    }
    let read = |cpus: &[usize]| -> Result<u64, Failure> {
        run_on(cpus)?;
        Ok(words.iter().map(|word| word.load(Ordering::Relaxed)).sum())
    };
    let failed = |_| Failure("a thread that sums the table ended early".to_owned());
    std::thread::scope(|scope| {
        let read = &read;
        let readers: Vec<_> = places.iter().map(|cpus| scope.spawn(move || read(cpus))).collect();
        readers.into_iter().map(|reader| reader.join().map_err(failed)?).collect()
    })
}

/// Whether every node reads the sum that is expected.
fn agree(sums: &[u64], expected: u64) -> bool {
    !sums.is_empty() && sums.iter().all(|sum| *sum == expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_copy_on_one_node_is_found() {
        assert!(agree(&[12, 12], 12));
        assert!(!agree(&[12, 11], 12));
        assert!(!agree(&[], 0));
    }

    #[test]
    fn a_thread_on_each_node_reads_the_table() {
        let words: Vec<AtomicU64> = (0..10).map(AtomicU64::new).collect();
        let nodes = nodes_with_memory().unwrap_or_default();
        let with_cpus = nodes.into_iter().filter(|node| cpus_of_node(*node).is_ok()).count();
        assert_eq!(sums(&words).unwrap(), vec![45; with_cpus.max(1)]);
    }

    #[test]
    fn the_last_of_several_finds_the_changes_of_all() {
        let path = std::env::temp_dir().join(format!("rondpoint-table-{}", std::process::id()));
        let join = || Table::join(&path, 8192).unwrap();
        let (one, other) = (join(), join());
        assert_eq!(one.words().len(), 1022);
        one.words()[3].fetch_add(1, Ordering::Relaxed);
        other.words()[3].fetch_add(1, Ordering::Relaxed);
        assert_eq!(other.words()[3].load(Ordering::Relaxed), 3, "one table");
        assert!(one.leave(1).unwrap(), "the other may still change something");
        assert!(other.leave(1).unwrap());
        assert!(!join().leave(1).unwrap(), "a change that is not there");
        let failure = Table::join(&path, 16384).err().unwrap();
        assert!(failure.0.ends_with("8192 bytes, expected a table of 16384"), "{}", failure.0);
        std::fs::remove_file(path).unwrap();
    }
}
