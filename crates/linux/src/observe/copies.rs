//! The pages of a process that may have or have copies on other nodes, on a kernel that replicates
//! pages.

use std::path::Path;
use std::time::{Duration, Instant};

use rondpoint_core::limits::MAX_REMEMBERED_PAGES;
use rondpoint_core::observation::{Mapping, Replica};

use super::{REST, unless_denied};
use crate::LinuxError;
use crate::lines::Lines;
use crate::parse::{maps, numa_copies};
use crate::syscall::memory::page_bytes;

/// Time between two readings of `maps` (our choice). Programs map their tables once. A reading
/// takes 0.1 ms for some hundred mappings.
const INTERVAL: Duration = Duration::from_secs(1);
/// Most mappings of a process that are followed: 1.5 MB.
const MAX_MAPPINGS: usize = 1 << 16;
/// Collapses above which the kernel replicates a page no more (`MAX_COLLAPSES`, mm/numa_copies.c of
/// the series in `kernel/`).
const MAX_COLLAPSES: u32 = 5;

/// Schedule of the readings of a process's mappings.
#[derive(Debug, Default)]
pub(super) struct Copies {
    next: Option<Instant>,
}

impl Copies {
    /// The mappings of the process with this folder in `/proc`; `None` if no reading is due.
    pub(super) fn mappings(&mut self, folder: &Path) -> Result<Option<Vec<Mapping>>, LinuxError> {
        let begin = Instant::now();
        if self.next.is_some_and(|next| begin < next) {
            return Ok(None);
        }
        let found = unless_denied(mappings(&folder.join("maps")))?;
        self.next = Some(begin + (begin.elapsed() * REST).max(INTERVAL));
        Ok(found)
    }

    /// The pages with copies, and those that the kernel replicates no more.
    pub(super) fn replicas(folder: &Path) -> Result<Option<Vec<Replica>>, LinuxError> {
        unless_denied(replicas(&folder.join("numa_copies")))
    }
}

fn mappings(path: &Path) -> Result<Vec<Mapping>, LinuxError> {
    let mut found = Vec::new();
    let Some(mut lines) = Lines::open(path)? else { return Ok(found) };
    while let Some((number, line)) = lines.next_line()? {
        if found.len() == MAX_MAPPINGS {
            break;
        }
        let kind = maps::kind_of(line);
        let mapping = maps::mapping_of(number, line).map_err(|source| lines.format(source))?;
        found.extend(mapping.map(|one| Mapping { start: one.start, end: one.end, kind }));
    }
    Ok(found)
}

/// Parses a `numa_copies`. A page without copies is left out if the kernel may replicate it again.
fn replicas(path: &Path) -> Result<Vec<Replica>, LinuxError> {
    let mut found = Vec::new();
    let Some(mut lines) = Lines::open(path)? else { return Ok(found) };
    while let Some((number, line)) = lines.next_line()? {
        let run = numa_copies::run_of(number, line).map_err(|source| lines.format(source))?;
        if run.nodes.is_empty() && run.collapses <= MAX_COLLAPSES {
            continue;
        }
        let pages = (run.start..run.end).step_by(page_bytes());
        let room = MAX_REMEMBERED_PAGES - found.len();
        let replica = |address| Replica { address, collapses: run.collapses };
        found.extend(pages.map(replica).take(room));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use rondpoint_core::observation::MappingKind;

    use super::*;

    #[test]
    fn mappings_and_copies_are_read_of_a_process() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("maps", "10000-20000 rw-p 00000000 00:00 0 \n20000-21000 r--p 00000000 08:01 9 /a\n");
        write(
            "numa_copies",
            "10000-12000 nodes=1 collapses=2\n12000-13000 nodes= collapses=1\n\
             13000-14000 nodes= collapses=6\n",
        );
        let mut copies = Copies::default();
        let found = copies.mappings(folder.path()).unwrap().unwrap();
        let kinds: Vec<_> = found.iter().map(|mapping| mapping.kind).collect();
        assert_eq!(kinds, [MappingKind::PrivateAnonymous, MappingKind::PrivateOther]);
        assert_eq!(
            copies.mappings(folder.path()).unwrap(),
            None,
            "the last answer still has to do"
        );
        let replica = |address, collapses| Replica { address, collapses };
        assert_eq!(
            Copies::replicas(folder.path()).unwrap().unwrap(),
            [replica(0x10000, 2), replica(0x11000, 2), replica(0x13000, 6)]
        );
    }
}
