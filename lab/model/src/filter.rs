//! The first-level filter: virtual lines that are known to be in a vCPU's first level.
//!
//! It is the first lookup of each access, so that most accesses need neither a physical address nor
//! a search. It is no cache of its own: an entry exists only while the first level holds the line
//! (`first_level.rs` ensures this). An entry is writable only while this vCPU owns the line
//! modified. Entries are tagged by virtual line alone, so a change of the address space has to
//! flush the filter.

use crate::LINE_SHIFT;

/// Entries per vCPU, direct mapped. They are twice the lines of a 64 KiB first level, so that most
/// lines find a place. They take 16 KiB of host memory, so that they stay in the host's own first
/// level.
const ENTRIES: usize = 2048;

/// Set on every hit: tells the first level's replacement that the line is in use.
const TOUCHED: u64 = 1;
/// Stores may hit.
const WRITABLE: u64 = 2;
const FLAGS: u64 = TOUCHED | WRITABLE;
/// Matches no virtual line: those are 58 bits, shifted by the two flags.
const EMPTY: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Filter {
    /// Virtual line shifted left by two, and the flags.
    entries: Box<[u64; ENTRIES]>,
}

impl Filter {
    pub(crate) fn new() -> Filter {
        Filter { entries: Box::new([EMPTY; ENTRIES]) }
    }

    #[inline(always)]
    fn entry(&mut self, virtual_line: u64) -> &mut u64 {
        // Folding keeps stacks and heaps that lie a power of two apart out of each other's way.
        let index = (virtual_line ^ (virtual_line >> 11)) as usize % ENTRIES;
        &mut self.entries[index]
    }

    /// True if the access needs nothing more.
    #[inline(always)]
    pub(crate) fn hit(&mut self, vaddr: u64, store: bool) -> bool {
        let virtual_line = vaddr >> LINE_SHIFT;
        let entry = self.entry(virtual_line);
        // A load does not mind the writable flag, so it is forced; the touched flag never counts.
        let needed = if store { 0 } else { WRITABLE };
        let difference = *entry ^ (virtual_line << 2);
        let hit = (difference | needed) & !TOUCHED == WRITABLE;
        if hit {
            *entry |= TOUCHED;
        }
        hit
    }

    /// Lets `virtual_line` in, in place of whatever had its entry.
    #[inline]
    pub(crate) fn insert(&mut self, virtual_line: u64, writable: bool) {
        let flags = if writable { TOUCHED | WRITABLE } else { TOUCHED };
        *self.entry(virtual_line) = virtual_line << 2 | flags;
    }

    #[inline]
    fn find(&mut self, virtual_line: u64) -> Option<&mut u64> {
        let entry = self.entry(virtual_line);
        (*entry & !FLAGS == virtual_line << 2).then_some(entry)
    }

    /// Shuts `virtual_line` out.
    #[inline]
    pub(crate) fn remove(&mut self, virtual_line: u64) {
        if let Some(entry) = self.find(virtual_line) {
            *entry = EMPTY;
        }
    }

    /// Stores to `virtual_line` have to go down again.
    #[inline]
    pub(crate) fn forbid_stores(&mut self, virtual_line: u64) {
        if let Some(entry) = self.find(virtual_line) {
            *entry &= !WRITABLE;
        }
    }

    /// Was `virtual_line` hit since the last such question?
    #[inline]
    pub(crate) fn take_touched(&mut self, virtual_line: u64) -> bool {
        match self.find(virtual_line) {
            Some(entry) => {
                let touched = *entry & TOUCHED != 0;
                *entry &= !TOUCHED;
                touched
            }
            None => false,
        }
    }

    /// Shuts everything out.
    pub(crate) fn clear(&mut self) {
        self.entries.fill(EMPTY);
    }

    /// All entries: virtual line and whether stores may hit.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, bool)> {
        let used = self.entries.iter().filter(|&&entry| entry != EMPTY);
        used.map(|&entry| (entry >> 2, entry & WRITABLE != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_hit_and_stores_only_where_writable() {
        let mut filter = Filter::new();
        assert!(!filter.hit(0x1000, false));
        filter.insert(0x1000 >> 6, false);
        assert!(filter.hit(0x1000, false));
        assert!(filter.hit(0x103f, false));
        assert!(!filter.hit(0x1040, false));
        assert!(!filter.hit(0x1000, true));
        filter.insert(0x1000 >> 6, true);
        assert!(filter.hit(0x1000, true));
        filter.forbid_stores(0x1000 >> 6);
        assert!(!filter.hit(0x1000, true));
        assert!(filter.hit(0x1000, false));
        filter.remove(0x1000 >> 6);
        assert!(!filter.hit(0x1000, false));
    }

    #[test]
    fn the_top_of_the_address_space_is_no_special_case() {
        let mut filter = Filter::new();
        assert!(!filter.hit(u64::MAX, false));
        assert!(!filter.hit(0, true));
        filter.insert(u64::MAX >> 6, true);
        assert!(filter.hit(u64::MAX, true));
        filter.clear();
        assert!(!filter.hit(u64::MAX, true));
    }

    #[test]
    fn touched_is_said_once() {
        let mut filter = Filter::new();
        filter.insert(5, false);
        assert!(filter.take_touched(5));
        assert!(!filter.take_touched(5));
        filter.hit(5 << 6, false);
        assert!(filter.take_touched(5));
    }
}
