//! Finds the memory of a large process with the policy `default` or `local`, in bounded time.
//!
//! For each line of `numa_maps` the kernel walks the page tables of a mapping, under the process's
//! map lock. It releases the lock after each read(2). The next read continues at the following
//! mapping (`seq_read_iter`, fs/seq_file.c; `m_start`, fs/proc/task_mmu.c; Linux 6.12). So the file
//! stays open, and each look continues within a budget of page table entries.
//!
//! The kernel walks each mapping as a whole and skips none. A mapping beyond the budget ends the
//! reading: it and the mappings above stay unread. A policy of the whole program (`numactl`) is in
//! the first line: the kernel writes it for every mapping without a policy of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use rondpoint_core::observation::AddressRange;

use crate::LinuxError;
use crate::parse::maps::Mapping;
use crate::root::{is_absent, open};

/// Most entries of page tables that the kernel walks in one look (our choice): those of 1 GiB of
/// base pages, in 26 ms. The user may allow another time.
pub(super) const ENTRIES: u64 = 1 << 18;
/// Most entries for one read(2) of several lines (our choice). The kernel holds the map lock
/// meanwhile.
const ENTRIES_AT_ONCE: u64 = 1 << 12;
/// Most calls of read(2) in one look (our choice): some tens of milliseconds of our own time.
const READS: usize = 10_000;
/// Bytes of the shortest line: an address of eight letters, a space, `local` and a newline
/// (`show_numa_map`, fs/proc/task_mmu.c, Linux 6.12).
const SHORTEST_LINE: usize = 15;
/// Most bytes of one read(2). The kernel fills one page with lines at a time.
const MOST_LETTERS: usize = 4096;
/// Most mappings whose policies are kept: more than the kernel's default limit of 65,530.
const MOST_MAPPINGS: usize = 1 << 16;
/// Most ranges to return, the largest ones (our choice).
const MOST_RANGES: usize = 1 << 10;

/// First letters of the usual policies, which are no choice of the program: `default` and `local`.
const USUAL: [[u8; 4]; 2] = [*b"defa", *b"loca"];

/// The known policies of a process's mappings.
#[derive(Debug, Default)]
pub(super) struct Policies {
    /// Mappings with a usual policy: first address, and one past the last.
    usual: BTreeMap<u64, u64>,
    /// First address of a mapping with a policy that the program chose.
    own: Option<u64>,
    reading: Option<Reading>,
}

impl Policies {
    /// Whether some memory has a policy that the program chose.
    pub(super) fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// Sets the results of a complete reading: the first mapping with a policy that the program
    /// chose, and the mappings with a usual one.
    pub(super) fn set(&mut self, own: Option<u64>, usual: Vec<AddressRange>) {
        self.own = own;
        self.usual = usual.iter().map(|range| (range.start, range.end)).collect();
        self.reading = None;
    }

    /// Continues the reading of `numa_maps` within a budget. `mappings`: all mappings of the
    /// process, ascending. `entries`: number of page table entries of a mapping, up to the budget.
    ///
    /// # Errors
    /// Any error of the kernel except the end of the process.
    pub(super) fn read_on(
        &mut self,
        numa_maps: &Path,
        mappings: &[Mapping],
        budget: u64,
        entries: impl Fn(&Mapping) -> u64,
    ) -> Result<(), LinuxError> {
        let reading = match self.reading.take() {
            Some(reading) => reading,
            None => match open(numa_maps) {
                Ok(file) => Reading::of(file),
                Err(error) if is_absent(&error) => return Ok(()),
                Err(error) => return Err(LinuxError::io(numa_maps, "open", error)),
            },
        };
        let costs = Costs::of(mappings, entries, budget);
        match self.read_part(reading, costs) {
            Ok(reading) => self.reading = reading,
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(LinuxError::io(numa_maps, "read", error)),
        }
        Ok(())
    }

    /// Keeps the policies of mappings that still exist. A present mapping that contains a known one
    /// has its policy. The kernel merges mappings only if their policies are equal, and splits one
    /// for a different policy.
    pub(super) fn keep(&mut self, mappings: &[Mapping]) {
        let containing = |start: u64, end: u64| {
            let mapping = mappings[..behind(mappings, start)].last();
            mapping.is_some_and(|mapping| end <= mapping.end)
        };
        self.usual.retain(|start, end| containing(*start, *end));
        self.own = self.own.filter(|start| containing(*start, start.saturating_add(1)));
    }

    /// The mappings with a known usual policy, adjacent ones merged; `None` if these are all
    /// accessible mappings. Copies of files are left out.
    pub(super) fn ranges(&self, mappings: &[Mapping]) -> Option<Vec<AddressRange>> {
        let mut ranges: Vec<AddressRange> = Vec::new();
        let mut is_all = true;
        for mapping in mappings.iter().filter(|mapping| mapping.is_accessible) {
            let mut inside = self.usual.range(mapping.start..mapping.end);
            if mapping.is_copy || inside.next().is_none_or(|(_, end)| *end > mapping.end) {
                is_all = false;
                continue;
            }
            add(&mut ranges, mapping.start, mapping.end);
        }
        (!is_all).then(|| largest(ranges))
    }

    /// All mappings with a usual policy, after a complete reading.
    pub(super) fn usual(&self) -> Vec<AddressRange> {
        let mut ranges = Vec::new();
        self.usual.iter().for_each(|(start, end)| add(&mut ranges, *start, *end));
        largest(ranges)
    }

    /// Reads a part. Returns the reading if the next look must continue it.
    fn read_part<R: Read>(
        &mut self,
        mut reading: Reading<R>,
        mut costs: Costs<'_, impl Fn(&Mapping) -> u64>,
    ) -> io::Result<Option<Reading<R>>> {
        let mut letters = [0; MOST_LETTERS];
        for _ in 0..READS {
            let asked = match costs.lines_behind(reading.last) {
                // The kernel has already made the rest of a line that was read in part.
                _ if reading.is_in_head() => 1,
                0 if costs.may_go_on(reading.last) => return Ok(Some(reading)),
                0 => return Ok(None),
                // After the end of a line the kernel walks the next mapping.
                lines => (SHORTEST_LINE * lines - 1).min(MOST_LETTERS),
            };
            let got = reading.file.read(&mut letters[..asked])?;
            if got == 0 {
                // Mappings above exist, so this file shows the address space before an execve(2).
                *self = Self::default();
                return Ok(None);
            }
            for &letter in &letters[..got] {
                let Some((start, is_usual)) = reading.take(letter) else { continue };
                let mapping = costs.pay(start);
                // The policy of a copy is no choice of the program.
                if mapping.is_some_and(|found| found.is_copy) {
                    continue;
                }
                self.forget(
                    mapping.map_or(start..start.saturating_add(1), |found| found.start..found.end),
                );
                if !is_usual {
                    self.own = Some(start);
                    return Ok(None);
                }
                self.own = self.own.filter(|own| start < *own);
                if let Some(found) = mapping.filter(|_| self.usual.len() < MOST_MAPPINGS) {
                    self.usual.insert(found.start, found.end);
                }
            }
        }
        Ok(Some(reading))
    }

    /// Drops mappings that begin in a range.
    fn forget(&mut self, range: Range<u64>) {
        while let Some((&start, _)) = self.usual.range(range.clone()).next() {
            self.usual.remove(&start);
        }
    }
}

/// Adds a mapping above the others, merged with the last one if they are adjacent.
fn add(ranges: &mut Vec<AddressRange>, start: u64, end: u64) {
    match ranges.last_mut() {
        Some(last) if last.end == start => last.end = end,
        _ => ranges.push(AddressRange { start, end }),
    }
}

/// The [`MOST_RANGES`] largest ranges, ascending.
fn largest(mut ranges: Vec<AddressRange>) -> Vec<AddressRange> {
    if ranges.len() > MOST_RANGES {
        ranges.sort_unstable_by_key(|range| std::cmp::Reverse(range.end - range.start));
        ranges.truncate(MOST_RANGES);
        ranges.sort_unstable();
    }
    ranges
}

/// Cost of the lines of mappings in one look, in page table entries.
struct Costs<'a, F> {
    mappings: &'a [Mapping],
    entries: F,
    /// Cost by index of the mapping, once counted.
    counted: Vec<Option<u64>>,
    left: u64,
    budget: u64,
}

impl<'a, F: Fn(&Mapping) -> u64> Costs<'a, F> {
    fn of(mappings: &'a [Mapping], entries: F, budget: u64) -> Self {
        Self { mappings, entries, counted: vec![None; mappings.len()], left: budget, budget }
    }

    fn at(&mut self, place: usize) -> u64 {
        let entries = || (self.entries)(&self.mappings[place]);
        *self.counted[place].get_or_insert_with(entries)
    }

    /// Number of lines after that of the mapping at `last` that one read(2) may take.
    fn lines_behind(&mut self, last: Option<u64>) -> usize {
        let first = last.map_or(0, |last| behind(self.mappings, last));
        let mut sum = 0_u64;
        for (lines, place) in (first..self.mappings.len()).enumerate() {
            sum = sum.saturating_add(self.at(place));
            let most = if lines == 0 { self.left } else { self.left.min(ENTRIES_AT_ONCE) };
            if sum > most || lines * SHORTEST_LINE > MOST_LETTERS {
                return lines;
            }
        }
        self.mappings.len() - first
    }

    /// Whether there is a next mapping that a whole budget can pay.
    fn may_go_on(&mut self, last: Option<u64>) -> bool {
        let next = last.map_or(0, |last| behind(self.mappings, last));
        next < self.mappings.len() && self.at(next) <= self.budget
    }

    /// Charges the mapping that begins here, whose line was read, and returns it.
    fn pay(&mut self, start: u64) -> Option<Mapping> {
        let place = behind(self.mappings, start).checked_sub(1)?;
        let mapping = self.mappings[place];
        if mapping.start != start {
            return None;
        }
        self.left = self.left.saturating_sub(self.at(place));
        Some(mapping)
    }
}

/// Number of mappings that begin at this address or below.
fn behind(mappings: &[Mapping], address: u64) -> usize {
    mappings.partition_point(|mapping| mapping.start <= address)
}

/// A `numa_maps` that is read in parts.
#[derive(Debug)]
struct Reading<R = File> {
    file: R,
    /// First address of the mapping whose line was read last.
    last: Option<u64>,
    place: Place,
}

/// Position in a line.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// In the address, with its value so far.
    Address(Option<u64>),
    /// In the first letters of the policy.
    Policy { start: u64, letters: [u8; 4], count: usize },
    /// After these.
    Rest,
}

impl<R: Read> Reading<R> {
    fn of(file: R) -> Self {
        Self { file, last: None, place: Place::Address(None) }
    }

    /// Whether the policy of the current line is not read yet.
    fn is_in_head(&self) -> bool {
        matches!(self.place, Place::Address(Some(_)) | Place::Policy { .. })
    }

    /// Parses a letter. After the fourth letter of a policy, returns the mapping's address and
    /// whether its policy is a usual one.
    fn take(&mut self, letter: u8) -> Option<(u64, bool)> {
        let mut told = None;
        self.place = match (self.place, letter) {
            (_, b'\n') => Place::Address(None),
            (Place::Address(Some(start)), b' ') => {
                Place::Policy { start, letters: [0; 4], count: 0 }
            }
            (Place::Address(read), letter) => {
                let digit = char::from(letter).to_digit(16).unwrap_or(0);
                Place::Address(Some(read.unwrap_or(0) << 4 | u64::from(digit)))
            }
            (Place::Policy { start, mut letters, count }, letter) => {
                letters[count] = letter;
                if count < 3 {
                    Place::Policy { start, letters, count: count + 1 }
                } else {
                    self.last = Some(start);
                    told = Some((start, USUAL.contains(&letters)));
                    Place::Rest
                }
            }
            (Place::Rest, _) => Place::Rest,
        };
        told
    }
}

#[cfg(test)]
mod tests;
