//! Lines of a ledger that a restore still needs. A manager that runs for weeks would otherwise fill
//! the disk, and its ledger would become too long to be read.
//!
//! Not needed are changes of memory that are settled or whose process has ended, and a freeze with
//! its thaw. Nor are ended processes that may have inherited a mask, and masks before the last
//! [`MAX_GIVEN`] of a thread.

use std::collections::{BTreeMap, VecDeque};

use rondpoint_core::{Nanos, Pid};

use super::Entry;
use crate::act::Identity;
use crate::act::masks::MAX_GIVEN;

/// Places of lines, by process and another number.
type Places<Key> = BTreeMap<Key, VecDeque<usize>>;

/// The lines of a ledger that are needed, in their order. An incomplete last line is dropped: its
/// change was not made. `lives` says whether a process may still live.
pub(super) fn needed(text: &str, lives: impl Fn(&Identity) -> bool) -> String {
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let mut sieve = Sieve::new(lines.len(), lives);
    for (place, line) in lines.iter().enumerate() {
        // A line that is not understood is kept.
        if let Ok(entry) = Entry::read(line, 0) {
            sieve.take_in(place, &entry);
        }
    }
    let kept = lines.into_iter().zip(sieve.is_needed).filter(|(_, is_needed)| *is_needed);
    kept.map(|(line, _)| line).collect()
}

struct Sieve<Lives> {
    is_needed: Vec<bool>,
    lives: Lives,
    /// Whether a process may live.
    known: BTreeMap<Identity, bool>,
    /// Changes of memory, by process number and plan.
    open: Places<(u32, u64)>,
    frozen: Places<Identity>,
    /// Masks of a thread: its process, its number and its start time.
    masks: Places<(Identity, u32, u64)>,
    has_mask: bool,
}

impl<Lives: Fn(&Identity) -> bool> Sieve<Lives> {
    fn new(lines: usize, lives: Lives) -> Self {
        Self {
            is_needed: vec![true; lines],
            lives,
            known: BTreeMap::new(),
            open: Places::new(),
            frozen: Places::new(),
            masks: Places::new(),
            has_mask: false,
        }
    }

    fn take_in(&mut self, place: usize, entry: &Entry) {
        match entry {
            Entry::Manager { .. } | Entry::OwnMask { .. } => {}
            Entry::Mask(mask) => {
                // The first one has the time of the first change.
                if !std::mem::replace(&mut self.has_mask, true) {
                    return;
                }
                let process = Identity { pid: Pid(mask.pid), started: Nanos(mask.started) };
                let of_thread = self.masks.entry((process, mask.tid, mask.born)).or_default();
                of_thread.push_back(place);
                if of_thread.len() > MAX_GIVEN {
                    let old = of_thread.pop_front();
                    self.drop_all(old);
                }
            }
            Entry::Member { .. } => self.is_needed[place] = self.may_live(entry),
            Entry::Pages { plan, pid, .. }
            | Entry::Copies { plan, pid, .. }
            | Entry::Memory { plan, pid, .. } => {
                self.open.entry((*pid, *plan)).or_default().push_back(place);
                self.is_needed[place] = self.may_live(entry);
            }
            Entry::Settled { pid, plans } => {
                for plan in plans {
                    let settled = self.open.remove(&(*pid, *plan));
                    self.drop_all(settled.into_iter().flatten());
                }
                self.is_needed[place] = false;
            }
            Entry::Freeze { pid, started, .. } => {
                let process = Identity { pid: Pid(*pid), started: Nanos(*started) };
                self.frozen.entry(process).or_default().push_back(place);
            }
            Entry::Thaw { pid, started } => {
                let process = Identity { pid: Pid(*pid), started: Nanos(*started) };
                let thawed = self.frozen.remove(&process);
                self.drop_all(thawed.into_iter().flatten().chain([place]));
            }
        }
    }

    fn drop_all(&mut self, places: impl IntoIterator<Item = usize>) {
        places.into_iter().for_each(|place| self.is_needed[place] = false);
    }

    fn may_live(&mut self, entry: &Entry) -> bool {
        let Some(process) = entry.process() else { return true };
        *self.known.entry(process).or_insert_with(|| (self.lives)(&process))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{self, Seek as _, SeekFrom, Write as _};
    use std::path::Path;

    use super::super::legacy::LARGEST;
    use super::super::{COMPACT, LedgerFile, Left, MaskEntry, left_behind};
    use super::*;
    use crate::act::masks::Masks;
    use crate::freeze::Means;
    use crate::root::Root;

    /// Plans of a test, which take about 4 MB.
    const LAST: u64 = 250;

    fn own() -> Identity {
        Identity::of(&Root::live(), Pid(std::process::id())).unwrap()
    }

    /// No process has this number: the kernel's are below 2^22.
    fn ended() -> Identity {
        Identity { pid: Pid(5_000_000), ..own() }
    }

    fn pages(plan: u64, process: Identity) -> Entry {
        let pages = (0..500).map(|page| (page << 12, 12, 1)).collect();
        Entry::Pages { plan, pid: process.pid.0, started: process.started.0, pages }
    }

    fn mask(plan: u64, process: Identity) -> Entry {
        Entry::Mask(MaskEntry {
            plan,
            pid: process.pid.0,
            started: process.started.0,
            session: 3,
            tid: process.pid.0,
            born: process.started.0,
            at: plan,
            before: "0-3".to_string(),
            whole: false,
            via: None,
            given: format!("{}", plan % 4),
        })
    }

    fn member(process: Identity) -> Entry {
        Entry::Member { pid: process.pid.0, started: process.started.0 }
    }

    /// What a restore finds once the manager of this ledger is dead.
    fn left(ledger: &LedgerFile, folder: &Path) -> Left {
        assert!(left_behind(folder).unwrap().left.is_empty(), "this manager lives");
        let dead = folder.join("1.ledger");
        fs::copy(ledger.path(), &dead).unwrap();
        let left = left_behind(folder).unwrap();
        assert!(left.unusable.is_empty(), "{:?}", left.unusable);
        fs::remove_file(dead).unwrap();
        left.left.into_iter().next().unwrap()
    }

    #[test]
    fn a_ledger_of_many_changes_stays_short_and_tells_all_that_is_to_undo() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("ledgers");
        let mut ledger = LedgerFile::create(&folder, &Root::live()).unwrap();
        let (own, ended) = (own(), ended());
        let mut masks = Vec::new();
        let mut longest = 0;
        for plan in 1..=LAST {
            let entries = [pages(plan, own), mask(plan, own), pages(plan, ended), member(ended)];
            masks.push(entries[1].clone());
            ledger.write(&entries).unwrap();
            let settled = Entry::Settled { pid: own.pid.0, plans: vec![plan - 1] };
            ledger.write(&[settled]).unwrap();
            ledger.freeze(own, Means::Signal).unwrap().write().unwrap();
            longest = longest.max(fs::metadata(ledger.path()).unwrap().len());
        }
        let stands = ledger.freeze(own, Means::Cgroup).unwrap();
        ledger.compact_at = 0;
        ledger.write(&[member(own)]).unwrap();
        masks.push(member(own));
        assert!(longest < 2 * COMPACT, "{longest} bytes");
        let found = left(&ledger, &folder);
        assert_eq!(found.unknown_lines, 0);
        assert_eq!(found.open, [pages(LAST, own)]);
        assert_eq!(found.masks, Masks::of_ledger(&masks));
        assert_eq!(found.frozen, [(own, Means::Cgroup)]);
        drop(stands);
        let names = fs::read_dir(&folder).unwrap().count();
        assert_eq!(names, 1, "no unfinished file is left");
        ledger.close().unwrap();
    }

    /// A restore refuses a longer one, and the masks in it would stay.
    #[test]
    fn a_ledger_never_becomes_too_long_to_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("ledgers");
        let mut ledger = LedgerFile::create(&folder, &Root::live()).unwrap();
        ledger.write(&[mask(1, own())]).unwrap();
        // A line that is not understood is kept.
        ledger.file.set_len(LARGEST - 100).unwrap();
        ledger.file.seek(SeekFrom::Start(LARGEST - 101)).unwrap();
        ledger.file.write_all(b"\n").unwrap();
        let refused = ledger.write(&[mask(2, own())]).unwrap_err().to_string();
        let reason = io::Error::from(io::ErrorKind::FileTooLarge).to_string();
        assert!(refused.contains(&reason), "{refused}");
        ledger.append(&[b'x'; 100]).expect("the bound is allowed");
        assert_eq!(fs::metadata(ledger.path()).unwrap().len(), LARGEST);
        assert_eq!(left(&ledger, &folder).masks, Masks::of_ledger(&[mask(1, own())]));
    }

    #[test]
    fn where_no_second_file_can_be_made_the_long_one_is_written_on() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("ledgers");
        let mut ledger = LedgerFile::create(&folder, &Root::live()).unwrap();
        File::create(ledger.path().with_extension("new")).unwrap();
        for plan in 1..=200 {
            ledger.write(&[pages(plan, own())]).unwrap();
            ledger.write(&[Entry::Settled { pid: own().pid.0, plans: vec![plan] }]).unwrap();
        }
        assert!(fs::metadata(ledger.path()).unwrap().len() > COMPACT);
        assert!(left(&ledger, &folder).open.is_empty());
    }
}
