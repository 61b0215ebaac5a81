//! Interleaving that is applied late. At a given time every page of the program moves, so that
//! pages are on the nodes in turn. Memory that is allocated later stays as it is.
//!
//! It is a baseline for managers that move pages at run time: it acts as late as they do, without a
//! decision.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rondpoint_lab_init::Event;

use crate::system;

const PAGE_BYTES: u64 = 4096;
/// A huge page of x86-64, and its base pages.
const HUGE_BYTES: u64 = 2 << 20;
const HUGE_PAGES: u64 = HUGE_BYTES / PAGE_BYTES;
/// `/proc/PID/pagemap`: the page is in memory; the low bits are its frame.
const PRESENT: u64 = 1 << 63;
const FRAME_MASK: u64 = (1 << 55) - 1;
/// `/proc/kpageflags`: `KPF_THP`, part of a transparent huge page.
const HUGE: u64 = 1 << 22;
/// Pages in one call, and in one read of `/proc/PID/pagemap`: two huge pages' worth.
const BATCH: u64 = 2 * HUGE_PAGES;

/// A helper thread that waits for its time and then spreads.
pub(crate) struct Spreader {
    began: Arc<AtomicBool>,
    thread: JoinHandle<Result<Event, String>>,
}

impl Spreader {
    /// Waits `after_ns`, then spreads the pages of the processes in `group` over `nodes`.
    pub(crate) fn start(group: u32, nodes: Vec<i32>, after_ns: u64) -> Self {
        let began = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&began);
        let start_ns = system::monotonic_ns();
        let thread = std::thread::spawn(move || {
            system::pause_ns(after_ns);
            flag.store(true, Ordering::Release);
            let began_ns = system::monotonic_ns() - start_ns;
            let mut counts = Counts::default();
            for process in processes_of(group)? {
                counts.add(spread(process, &nodes)?);
            }
            let took_ns = system::monotonic_ns() - start_ns - began_ns;
            let Counts { moved_pages, refused_pages } = counts;
            Ok(Event::Spread { began_ns, took_ns, moved_pages, refused_pages })
        });
        Self { began, thread }
    }

    /// What came of it; `None` where the program ended before its time.
    pub(crate) fn finish(self) -> Result<Option<Event>, String> {
        if !self.began.load(Ordering::Acquire) {
            return Ok(None);
        }
        self.thread.join().expect("the spreader does not panic").map(Some)
    }
}

/// The processes of a process group.
fn processes_of(group: u32) -> Result<Vec<u32>, String> {
    let entries = fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let in_group = |process: &u32| {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        group_of(&text) == Some(group)
    };
    Ok(numbers.filter(in_group).collect())
}

/// The process group in `/proc/PID/stat`: the third field behind the name, which may hold anything.
fn group_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

/// Moves a process's pages to `nodes` in turn.
fn spread(process: u32, nodes: &[i32]) -> Result<Counts, String> {
    let path = format!("/proc/{process}/maps");
    // A process that has ended meanwhile has nothing left to move.
    let Ok(maps) = fs::read_to_string(&path) else { return Ok(Counts::default()) };
    let pagemap = format!("/proc/{process}/pagemap");
    let Ok(pagemap) = File::open(&pagemap) else { return Ok(Counts::default()) };
    let flags =
        File::open("/proc/kpageflags").map_err(|error| format!("/proc/kpageflags: {error}"))?;
    let mut counts = Counts::default();
    let mut turn = 0;
    for (start, end) in maps.lines().filter_map(range) {
        for first in (start..end).step_by((BATCH * PAGE_BYTES) as usize) {
            let last = end.min(first + BATCH * PAGE_BYTES);
            let units = units(&pagemap, &flags, first, last);
            for (index, node) in nodes.iter().enumerate() {
                // All pages for one node in one call: the kernel moves them in one go.
                let due = (index + nodes.len() - turn) % nodes.len();
                let share: Vec<Unit> =
                    units.iter().skip(due).step_by(nodes.len()).copied().collect();
                counts.add(move_units(process, &share, *node));
            }
            turn = (turn + units.len()) % nodes.len();
        }
    }
    Ok(counts)
}

/// Moves these to one node.
fn move_units(process: u32, units: &[Unit], node: i32) -> Counts {
    let addresses: Vec<u64> = units.iter().map(|unit| unit.address).collect();
    let before = system::nodes_of_pages(process, &addresses);
    system::move_pages(process, &addresses, node);
    let after = system::nodes_of_pages(process, &addresses);
    let mut counts = Counts::default();
    for ((unit, was), is) in units.iter().zip(before).zip(after) {
        counts.moved_pages += if is == node && was != node { unit.pages } else { 0 };
        counts.refused_pages += if is == node { 0 } else { unit.pages };
    }
    counts
}

/// Base pages.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    moved_pages: u64,
    refused_pages: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.moved_pages += other.moved_pages;
        self.refused_pages += other.refused_pages;
    }
}

/// What moves as one: a base page or a transparent huge page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unit {
    address: u64,
    /// Base pages in it.
    pages: u64,
}

/// The pages in memory from `first` up to `last`.
fn units(pagemap: &File, flags: &File, first: u64, last: u64) -> Vec<Unit> {
    let mut bytes = vec![0; ((last - first) / PAGE_BYTES * 8) as usize];
    let read = pagemap.read_at(&mut bytes, first / PAGE_BYTES * 8).unwrap_or(0);
    let entries: Vec<u64> = words(&bytes[..read]).collect();
    let is_huge = |frame: u64| {
        let mut word = [0; 8];
        flags.read_exact_at(&mut word, frame * 8).is_ok() && u64::from_ne_bytes(word) & HUGE != 0
    };
    cut(&entries, first, is_huge)
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
}

/// Cuts pagemap's entries from address `first` on into units. Only a frame at a huge page's
/// boundary under an address at one can begin a huge page, so `is_huge` is asked about few.
fn cut(entries: &[u64], first: u64, is_huge: impl Fn(u64) -> bool) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut index = 0;
    while index < entries.len() {
        let entry = entries[index];
        let address = first + index as u64 * PAGE_BYTES;
        let frame = entry & FRAME_MASK;
        if entry & PRESENT == 0 {
            index += 1;
            continue;
        }
        let aligned = address.is_multiple_of(HUGE_BYTES) && frame.is_multiple_of(HUGE_PAGES);
        let pages = if aligned && is_huge(frame) { HUGE_PAGES } else { 1 };
        units.push(Unit { address, pages });
        index += pages as usize;
    }
    units
}

/// The addresses in a line of `/proc/PID/maps`. Memory without access holds no pages.
fn range(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    if words.next()?.starts_with("---") || line.ends_with("[vsyscall]") {
        return None;
    }
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some((address(start)?, address(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_gives_its_addresses() {
        let line = "7f0000000000-7f0000002000 rw-p 00000000 00:00 0 ";
        assert_eq!(range(line), Some((0x7f00_0000_0000, 0x7f00_0000_2000)));
        assert_eq!(range("7f00-7f10 ---p 00000000 00:00 0 "), None);
        assert_eq!(range("ffffffffff600000-ffffffffff601000 --xp 0 00:00 0 [vsyscall]"), None);
    }

    #[test]
    fn the_group_stands_behind_any_name() {
        assert_eq!(group_of("12 (a) b) S 1 7 7 0 -1"), Some(7));
        assert_eq!(group_of(""), None);
    }

    #[test]
    fn a_huge_page_is_one_unit_and_its_neighbours_are_not() {
        let first = HUGE_BYTES - PAGE_BYTES;
        let mut entries = vec![PRESENT | 5];
        entries.extend((0..HUGE_PAGES).map(|page| PRESENT | (1024 + page)));
        entries.extend([0, PRESENT | 9]);
        let unit = |address, pages| Unit { address, pages };
        let after = HUGE_BYTES + HUGE_BYTES + PAGE_BYTES;
        let expected = [unit(first, 1), unit(HUGE_BYTES, HUGE_PAGES), unit(after, 1)];
        assert_eq!(cut(&entries, first, |frame| frame == 1024), expected);
        let small = cut(&entries, first, |_| false);
        assert_eq!(small.len() as u64, HUGE_PAGES + 2);
    }
}
