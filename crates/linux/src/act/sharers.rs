//! Finds the shared pages that may move: only managed processes that are not exempt have mapped
//! them. To know this, it reads `maps` of all other processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rondpoint_core::Pid;
use rondpoint_core::observation::{Observation, ProcessObservation, SharedMapping, SharedObject};
use rondpoint_core::plan::PageMove;

use crate::LinuxError;
use crate::lines::Lines;
use crate::parse::maps;
use crate::root::{self, Root};

/// Time for which an answer holds (our choice). Reading the maps of some hundred processes takes
/// tens of milliseconds. Until then pages may be moved although a new process maps them too.
const HOLDS: Duration = Duration::from_secs(10);

/// The processes that have mapped each shared object.
#[derive(Debug, Default)]
pub(super) struct Sharers {
    /// Shared mappings of managed processes that are not exempt.
    managed: BTreeMap<Pid, Vec<SharedMapping>>,
    /// Objects of the last search. `asked_at` is its time.
    asked: BTreeSet<SharedObject>,
    asked_at: Option<Instant>,
    /// Objects of them that a process outside the tree may have mapped.
    foreign: BTreeSet<SharedObject>,
}

impl Sharers {
    /// Updates the managed processes from an observation of the tree.
    pub(super) fn follow(&mut self, observation: &Observation) {
        let is_ours = |process: &&ProcessObservation| process.exempt.is_none();
        self.managed = observation
            .processes
            .iter()
            .filter(is_ours)
            .map(|process| (process.pid, process.shared.clone()))
            .collect();
    }

    /// The address ranges of these pages that only managed processes have mapped, so that shared
    /// pages may move.
    pub(super) fn ranges(&mut self, root: &Root, pid: Pid, pages: &[PageMove]) -> Vec<(u64, u64)> {
        let Some(mappings) = self.managed.get(&pid) else { return Vec::new() };
        let is_wanted = |mapping: &&SharedMapping| {
            pages.iter().any(|page| (mapping.start..mapping.end).contains(&page.address))
        };
        let wanted: Vec<SharedMapping> = mappings.iter().filter(is_wanted).copied().collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        let is_stale = self.asked_at.is_none_or(|asked| asked.elapsed() >= HOLDS);
        if is_stale || wanted.iter().any(|mapping| !self.asked.contains(&mapping.object)) {
            self.ask(root);
        }
        let is_ours = |mapping: &&SharedMapping| !self.foreign.contains(&mapping.object);
        wanted.iter().filter(is_ours).map(|mapping| (mapping.start, mapping.end)).collect()
    }

    /// Searches for processes outside the tree that have mapped objects of managed ones. If the
    /// maps of one cannot be read, it may have mapped all of them.
    fn ask(&mut self, root: &Root) {
        self.asked = self.managed.values().flatten().map(|mapping| mapping.object).collect();
        self.asked_at = Some(Instant::now());
        self.foreign = self.foreign_objects(root).unwrap_or_else(|_| self.asked.clone());
    }

    fn foreign_objects(&self, root: &Root) -> Result<BTreeSet<SharedObject>, LinuxError> {
        let mut objects = BTreeSet::new();
        let processes = root::list(&root.proc)?;
        let numbers = processes.iter().filter_map(|name| name.parse().ok().map(Pid));
        for pid in numbers.filter(|pid| !self.managed.contains_key(pid)) {
            let path = root.in_proc(format!("{pid}/maps"));
            let Some(mut lines) = Lines::open(&path)? else { continue };
            while let Some((number, line)) = lines.next_line()? {
                let object =
                    maps::object_of(number, line).map_err(|source| lines.format(source))?;
                objects.extend(object.filter(|object| self.asked.contains(object)));
            }
        }
        Ok(objects)
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::observation::Exemption;

    use super::*;

    /// Two managed processes that have something mapped, and a process that is not managed.
    fn ranges(exempt: Option<Exemption>, maps_of_other: Option<&str>) -> Vec<(u64, u64)> {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::captured(folder.path());
        let maps = |pid: &str, text: &str| {
            std::fs::create_dir_all(root.in_proc(pid)).unwrap();
            std::fs::write(root.in_proc(format!("{pid}/maps")), text).unwrap();
        };
        let line = "7000-9000 rw-s 00000000 00:19 42 /dev/shm/a\n";
        maps("10", line);
        maps("11", line);
        maps_of_other.into_iter().for_each(|text| maps("12", text));
        let process = |pid, exempt| ProcessObservation {
            pid: Pid(pid),
            shared: maps::parse_shared(line.as_bytes()).unwrap(),
            exempt,
            ..ProcessObservation::default()
        };
        let processes = vec![process(10, None), process(11, exempt)];
        let mut sharers = Sharers::default();
        sharers.follow(&Observation { processes, ..Observation::default() });
        let page = |address| PageMove { address, shift: 12, from: 0, to: 1 };
        assert!(sharers.ranges(&root, Pid(10), &[page(0x9000)]).is_empty(), "its own memory");
        assert!(sharers.ranges(&root, Pid(12), &[page(0x7000)]).is_empty(), "not managed");
        sharers.ranges(&root, Pid(10), &[page(0x1000), page(0x8000)])
    }

    #[test]
    fn what_only_the_managed_have_mapped_may_be_moved_for_all_of_them() {
        assert_eq!(ranges(None, None), [(0x7000, 0x9000)]);
        let another = "7000-9000 rw-s 00000000 00:19 43 /dev/shm/b\n";
        assert_eq!(ranges(None, Some(another)), [(0x7000, 0x9000)]);
    }

    #[test]
    fn what_anybody_else_has_mapped_stays() {
        let somewhere = "1000-2000 rw-s 00001000 00:19 42 /dev/shm/a\n";
        assert!(ranges(None, Some(somewhere)).is_empty(), "a process that is not managed");
        let reads = "1000-2000 r--p 00001000 00:19 42 /dev/shm/a\n";
        assert!(ranges(None, Some(reads)).is_empty(), "one that only reads it");
        assert!(ranges(Some(Exemption::OwnMemoryPolicy), None).is_empty(), "one that is exempt");
        assert!(ranges(None, Some("rw-s rw-s 1 2 3 /a")).is_empty(), "one that cannot be read");
    }
}
