//! The pages of a process that are in memory, handed out in portions, each page once.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use crate::LinuxError;
use crate::act::Identity;
use crate::parse::fields;
use crate::parse::maps::Mapping;
use crate::root::{self, Root};
use crate::syscall::memory::page_bytes;
use crate::syscall::pagemap::{self, HUGE, PRESENT, Region};

/// Bytes of address space that one PAGEMAP_SCAN visits. The kernel holds the process's map lock
/// meanwhile: 2 ms if every page is present (measured: 6.8 ns a page on a 2-CPU virtual machine).
const WINDOW_BYTES: u64 = 1 << 30;
/// Bytes of address space whose entries in `/proc/PID/pagemap` one call reads. Absent pages have
/// entries too.
const READ_WINDOW_BYTES: u64 = 64 << 20;
/// Most runs that one call returns.
const REGIONS: usize = 512;

/// A unit of movement: a base page, or a huge page mapped as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// An iterator over the present pages of mappings, which reads them in windows.
#[derive(Debug)]
pub(super) struct Present {
    pagemap: File,
    mappings: VecDeque<Mapping>,
    found: VecDeque<Region>,
    page_bytes: u64,
    huge_bytes: u64,
    /// Whether the kernel has PAGEMAP_SCAN, which also reports huge pages.
    scans: bool,
}

impl Present {
    /// The present pages in `mappings`; `None` if the process has ended.
    pub(super) fn open(
        root: &Root,
        process: Identity,
        mappings: Vec<Mapping>,
    ) -> Result<Option<Self>, LinuxError> {
        let path = root.in_proc(format!("{}/pagemap", process.pid));
        let pagemap = match File::open(&path) {
            Ok(file) => file,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
                return Ok(None);
            }
            Err(error) => return Err(LinuxError::io(&path, "open", error)),
        };
        // Without transparent huge pages the kernel maps only hugetlb's, which have the same size.
        let path = root.in_sys("kernel/mm/transparent_hugepage/hpage_pmd_size");
        let size = root::read_optional(&path)?;
        let huge_bytes = size.and_then(|bytes| fields::single_number(&bytes).ok());
        Ok(Some(Self {
            pagemap,
            mappings: mappings.into(),
            found: VecDeque::new(),
            page_bytes: page_bytes() as u64,
            huge_bytes: huge_bytes.unwrap_or(2 << 20),
            scans: true,
        }))
    }

    /// Pages given by a test. `scans`: as if the kernel had PAGEMAP_SCAN.
    #[cfg(test)]
    pub(super) fn made_up(found: &[(u64, u64, bool)], scans: bool) -> Self {
        let region = |&(start, end, huge): &(u64, u64, bool)| {
            let categories = if huge { PRESENT | HUGE } else { PRESENT };
            Region { start, end, categories }
        };
        Self {
            pagemap: File::open("/dev/null").expect("it is there"),
            mappings: VecDeque::new(),
            found: found.iter().map(region).collect(),
            page_bytes: 4096,
            huge_bytes: 2 << 20,
            scans,
        }
    }

    /// Whether sizes are known. If not, all units are base pages, even those of huge pages.
    pub(super) fn knows_sizes(&self) -> bool {
        self.scans
    }

    /// Size of a huge page.
    pub(super) fn huge_bytes(&self) -> u64 {
        self.huge_bytes
    }

    /// The next pages, about `bytes` in all; empty at the end.
    ///
    /// # Errors
    /// The process has freed its memory.
    pub(super) fn next(&mut self, bytes: u64) -> io::Result<Vec<Unit>> {
        let mut units = Vec::new();
        let mut room = bytes;
        while room > 0 {
            let Some(region) = self.found.pop_front() else {
                if self.look_ahead()? { continue } else { break }
            };
            let huge = region.categories & HUGE != 0;
            let size = if huge { self.huge_bytes } else { self.page_bytes };
            let mut address = region.start;
            while address < region.end && room > 0 {
                // A run may begin or end inside a huge page, as a mapping of hugetlb may.
                let end = ((address / size + 1) * size).min(region.end);
                units.push(Unit { address, bytes: end - address });
                room = room.saturating_sub(end - address);
                address = end;
            }
            if address < region.end {
                self.found.push_front(Region { start: address, ..region });
            }
        }
        Ok(units)
    }

    /// Reads the next window; false at the end.
    fn look_ahead(&mut self) -> io::Result<bool> {
        let Some(mapping) = self.mappings.front().copied() else { return Ok(false) };
        let up_to = if self.scans { self.scan(mapping)? } else { self.read(mapping)? };
        match up_to < mapping.end {
            true => self.mappings[0].start = up_to,
            false => drop(self.mappings.pop_front()),
        }
        Ok(true)
    }

    fn scan(&mut self, mapping: Mapping) -> io::Result<u64> {
        let end = window(mapping, WINDOW_BYTES);
        let mut regions = [Region::default(); REGIONS];
        match pagemap::scan(self.pagemap.as_fd(), mapping.start, end, &mut regions) {
            Ok((found, up_to)) => {
                self.found.extend(&regions[..found]);
                Ok(up_to)
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => {
                self.scans = false;
                Ok(mapping.start)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the entries of a window, for kernels before Linux 6.7. Large reserved address space
    /// makes it slow.
    fn read(&mut self, mapping: Mapping) -> io::Result<u64> {
        if !mapping.is_accessible {
            return Ok(mapping.end);
        }
        let end = window(mapping, READ_WINDOW_BYTES);
        let mut bytes = vec![0; ((end - mapping.start) / self.page_bytes * 8) as usize];
        // A process that has freed its memory gives no bytes, so no page is present.
        let read = self.pagemap.read_at(&mut bytes, mapping.start / self.page_bytes * 8)?;
        let entry = |word: &[u8]| u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        let entries = bytes[..read].chunks_exact(8).map(entry);
        for (index, _) in entries.enumerate().filter(|(_, entry)| entry >> 63 == 1) {
            let start = mapping.start + index as u64 * self.page_bytes;
            let end = start + self.page_bytes;
            match self.found.back_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => self.found.push_back(Region { start, end, categories: PRESENT }),
            }
        }
        Ok(end)
    }
}

/// The end of a mapping's first window. Windows begin at multiples of their size.
fn window(mapping: Mapping, bytes: u64) -> u64 {
    ((mapping.start / bytes + 1) * bytes).min(mapping.end)
}

#[cfg(test)]
mod tests {
    use rondpoint_core::Pid;

    use super::*;
    use crate::syscall::memory::Anonymous;

    fn of_this_process(memory: &Anonymous, bytes: u64) -> Present {
        let process = Identity::of(&Root::live(), Pid(std::process::id())).unwrap();
        let start = memory.address();
        let mapping = Mapping { start, end: start + bytes, is_accessible: true, is_copy: false };
        Present::open(&Root::live(), process, vec![mapping]).unwrap().unwrap()
    }

    fn all(present: &mut Present, portion: u64) -> Vec<Unit> {
        let mut units = Vec::new();
        loop {
            let part = present.next(portion).unwrap();
            if part.is_empty() {
                return units;
            }
            units.extend(part);
        }
    }

    /// However the pages are found, and in whatever portions, it is every page once.
    #[test]
    fn each_page_that_is_there_is_handed_out_once() {
        let bytes = 8 << 20;
        let memory = Anonymous::new(bytes).unwrap();
        memory.touch_every(page_bytes() * 3);
        let expected = memory.address()..memory.address() + bytes as u64;
        for portion in [4096, 100_000, 1 << 30] {
            let mut scanning = of_this_process(&memory, bytes as u64);
            let mut reading = of_this_process(&memory, bytes as u64);
            reading.scans = false;
            for units in [all(&mut scanning, portion), all(&mut reading, portion)] {
                let total: u64 = units.iter().map(|unit| unit.bytes).sum();
                assert!(total >= (bytes / 3) as u64, "{total}");
                assert!(units.iter().all(|unit| expected.contains(&unit.address)));
                assert!(
                    units.windows(2).all(|two| two[0].address + two[0].bytes <= two[1].address)
                );
            }
        }
    }

    #[test]
    fn both_ways_of_looking_find_the_same_pages() {
        let bytes = 4 << 20;
        let memory = Anonymous::new(bytes).unwrap();
        memory.touch_every(page_bytes() * 2);
        let base_pages = |units: Vec<Unit>| -> Vec<u64> {
            let pages = |unit: &Unit| {
                (unit.address..unit.address + unit.bytes).step_by(page_bytes()).collect::<Vec<_>>()
            };
            units.iter().flat_map(pages).collect()
        };
        let mut reading = of_this_process(&memory, bytes as u64);
        reading.scans = false;
        let read = base_pages(all(&mut reading, 1 << 20));
        let scanned = base_pages(all(&mut of_this_process(&memory, bytes as u64), 1 << 20));
        assert_eq!(read, scanned);
    }

    #[test]
    fn a_run_of_huge_pages_is_cut_at_their_borders() {
        let huge = 2 << 20;
        let found = [(3 * huge - 8192, 3 * huge, false), (3 * huge, 5 * huge, true)];
        let mut present = Present::made_up(&found, true);
        let sizes: Vec<u64> = all(&mut present, huge).iter().map(|unit| unit.bytes).collect();
        assert_eq!(sizes, [4096, 4096, huge, huge]);
    }
}
