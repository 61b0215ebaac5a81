//! Counts the page table entries that the kernel walks for one line of `numa_maps`. It walks a
//! mapping as a whole, under the process's map lock. An entry takes some 100 ns, for a small or a
//! huge page (measured on a 2-CPU virtual machine).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use crate::parse::maps::Mapping;
use crate::root::open;
use crate::syscall::memory::page_bytes;
use crate::syscall::pagemap::{HUGE, Region, scan};

/// Time of the kernel for an entry.
pub(super) const ENTRY: Duration = Duration::from_nanos(100);
/// Pages of a small mapping, all of which count without a scan (our choice).
const FEW: u64 = 1 << 10;
/// Pages that one call visits. The kernel holds the map lock for up to 0.5 ms (6.8 ns a page, as in
/// `bulk`).
const WINDOW: u64 = 1 << 16;
/// Most runs that one call returns.
const REGIONS: usize = 512;
/// Number of samples of a mapping, and pages of each (our choice). All of them take the kernel 28
/// µs.
const SAMPLES: u64 = 64;
const SAMPLE: u64 = 64;
/// Most calls for one mapping.
const CALLS: usize = 1 << 16;

/// Counter of the page table entries of a process's mappings.
#[derive(Debug)]
pub(super) struct Walk {
    pagemap: Option<File>,
    /// Counting stops at this number.
    most: u64,
}

impl Walk {
    /// A counter up to `most`. Without `pagemap`, or before Linux 6.7, all pages of a mapping
    /// count.
    pub(super) fn of(pagemap: &Path, most: u64) -> Self {
        Self { pagemap: open(pagemap).ok(), most }
    }

    /// The entries of a mapping; any larger number if there are more than the most.
    pub(super) fn entries(&self, mapping: &Mapping) -> u64 {
        let pages = mapping.end.saturating_sub(mapping.start) / page_bytes() as u64;
        if pages <= FEW {
            return pages;
        }
        match self.count(mapping) {
            Ok(entries) => entries,
            // Reserved address space has no pages, unless a program removed its rights.
            Err(_) if !mapping.is_accessible => 0,
            Err(_) => pages,
        }
    }

    fn count(&self, mapping: &Mapping) -> io::Result<u64> {
        let pagemap = self.pagemap.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let page = page_bytes() as u64;
        if self.samples(pagemap, mapping)? > 2.0 * self.most as f64 {
            return Ok(self.most.saturating_add(1));
        }
        let mut regions = [Region::default(); REGIONS];
        let (mut start, mut entries) = (mapping.start, 0);
        for _ in 0..CALLS {
            let end = start.saturating_add(WINDOW * page).min(mapping.end);
            let (found, up_to) = scan(pagemap.as_fd(), start, end, &mut regions)?;
            entries += regions[..found].iter().map(|region| entries_of(region, page)).sum::<u64>();
            if entries > self.most || up_to >= mapping.end {
                return Ok(entries);
            }
            start = up_to;
        }
        Ok(self.most.saturating_add(1))
    }

    /// Estimates the entries of a mapping by samples at equal distances. Counting all of them holds
    /// the map lock for milliseconds, in vain if they are far too many.
    fn samples(&self, pagemap: &File, mapping: &Mapping) -> io::Result<f64> {
        let page = page_bytes() as u64;
        let pages = (mapping.end - mapping.start) / page;
        if pages < 2 * SAMPLES * SAMPLE {
            return Ok(0.0);
        }
        let mut entries = 0.0;
        let mut regions = [Region::default(); SAMPLE as usize];
        for sample in 0..SAMPLES {
            let start = mapping.start + pages / SAMPLES * sample * page;
            let (found, _) = scan(pagemap.as_fd(), start, start + SAMPLE * page, &mut regions)?;
            for region in &regions[..found] {
                let share = if region.categories & HUGE == 0 { 1 } else { page / 8 };
                entries += ((region.end - region.start) / page) as f64 / share as f64;
            }
        }
        Ok(entries / (SAMPLES * SAMPLE) as f64 * pages as f64)
    }
}

/// The entries of a run. A huge page has one. A table of the lowest level fills a page with words
/// of eight bytes.
fn entries_of(region: &Region, page: u64) -> u64 {
    let pages = (region.end - region.start).div_ceil(page);
    if region.categories & HUGE == 0 { pages } else { pages.div_ceil(page / 8) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscall::memory::Anonymous;
    use crate::syscall::pagemap::PRESENT;

    #[test]
    fn pages_that_are_there_are_counted_up_to_a_limit() {
        let page = page_bytes();
        let memory = Anonymous::new(4 * FEW as usize * page).unwrap();
        memory.touch_every(4 * page);
        let start = memory.address();
        let mapping = Mapping {
            start,
            end: start + 4 * FEW * page as u64,
            is_accessible: true,
            is_copy: false,
        };
        let counted = |most| Walk::of(Path::new("/proc/self/pagemap"), most).entries(&mapping);
        let mut regions = [Region::default()];
        match scan(File::open("/proc/self/pagemap").unwrap().as_fd(), start, start, &mut regions) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => return,
            _ => {}
        }
        // Where huge pages are on, each is one entry.
        let entries = counted(u64::MAX);
        assert!((1..=FEW).contains(&entries), "{entries}");
        let few = counted(0);
        assert!(few > 0 && few <= entries, "{few}");
    }

    /// The kernel is asked for samples alone, where these show far too many.
    #[test]
    fn a_full_mapping_is_found_too_large_without_a_count() {
        let page = page_bytes();
        let pages = 4 * SAMPLES * SAMPLE;
        let memory = Anonymous::new(pages as usize * page).unwrap();
        let (start, page) = (memory.address(), page as u64);
        let mapping =
            Mapping { start, end: start + pages * page, is_accessible: true, is_copy: false };
        let walk = Walk::of(Path::new("/proc/self/pagemap"), 10);
        let pagemap = walk.pagemap.as_ref().unwrap();
        let Ok(before) = walk.samples(pagemap, &mapping) else {
            println!("not tried: this kernel has no PAGEMAP_SCAN");
            return;
        };
        memory.touch_every(page as usize);
        let after = walk.samples(pagemap, &mapping).unwrap();
        assert!(before < 1.0 && after >= 20.0, "{before} {after}");
        assert_eq!(walk.entries(&mapping), 11);
    }

    #[test]
    fn without_a_count_every_page_that_may_be_there_counts() {
        let walk = Walk::of(Path::new("/nowhere/pagemap"), u64::MAX);
        let end = 8 * FEW * page_bytes() as u64;
        let mapping = |is_accessible| Mapping { start: 0, end, is_accessible, is_copy: false };
        assert_eq!(walk.entries(&mapping(true)), 8 * FEW);
        assert_eq!(walk.entries(&mapping(false)), 0, "a reserve");
    }

    #[test]
    fn a_huge_page_is_one_entry() {
        let region = |pages: u64, categories| Region { start: 0, end: pages * 4096, categories };
        assert_eq!(entries_of(&region(1024, PRESENT), 4096), 1024);
        assert_eq!(entries_of(&region(1024, PRESENT | HUGE), 4096), 2);
        assert_eq!(entries_of(&region(1, PRESENT | HUGE), 4096), 1, "a part of one");
    }
}
