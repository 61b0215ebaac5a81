//! The private first level, and the filter in front of it.
//!
//! The first level holds physical lines. Each line has the virtual line of its last access, so that
//! the filter's entry is removed with it. A filter hit does not reach the first level; it sets a
//! mark in the filter. Replacement gives marked lines a second chance (pseudo-LRU). So a line in
//! steady use stays, although only the filter sees its use.

use crate::cache::{EMPTY, Sets, way_of};
use crate::filter::Filter;

#[derive(Debug)]
pub(crate) struct FirstLevel {
    pub(crate) filter: Filter,
    sets: Sets,
    ways: usize,
    /// Physical lines, set by set.
    lines: Box<[u32]>,
    /// The virtual line each was last reached by.
    virtual_lines: Box<[u64]>,
    /// Where the search for a victim goes on, per set.
    hands: Box<[u8]>,
}

impl FirstLevel {
    pub(crate) fn new(bytes: u64, ways: u32) -> FirstLevel {
        let sets = Sets::new(bytes, ways);
        let count = sets.count() * ways as usize;
        FirstLevel {
            filter: Filter::new(),
            ways: ways as usize,
            lines: vec![EMPTY; count].into_boxed_slice(),
            virtual_lines: vec![0; count].into_boxed_slice(),
            hands: vec![0; sets.count()].into_boxed_slice(),
            sets,
        }
    }

    /// The slot that holds `line`.
    #[inline]
    pub(crate) fn find(&self, line: u32) -> Option<usize> {
        let start = self.sets.of(line) * self.ways;
        way_of(&self.lines[start..start + self.ways], line).map(|way| start + way)
    }

    #[inline]
    pub(crate) fn holds(&self, line: u32) -> bool {
        self.find(line).is_some()
    }

    /// Lets later accesses to `slot` by `virtual_line` hit the filter.
    #[inline]
    pub(crate) fn admit(&mut self, slot: usize, virtual_line: u64, writable: bool) {
        let before = self.virtual_lines[slot];
        if before != virtual_line {
            // One filter entry per line: two names of a page take turns, so that no entry is lost
            // sight of when the line goes.
            self.filter.remove(before);
            self.virtual_lines[slot] = virtual_line;
        }
        self.filter.insert(virtual_line, writable);
    }

    /// Takes in `line`, which is not here. The victim needs no answer: the second level has it.
    #[inline]
    pub(crate) fn insert(&mut self, line: u32, virtual_line: u64) -> usize {
        let set = self.sets.of(line);
        let start = set * self.ways;
        let mut way = usize::from(self.hands[set]);
        for _ in 0..self.ways {
            let slot = start + way;
            if self.lines[slot] == EMPTY || !self.filter.take_touched(self.virtual_lines[slot]) {
                break;
            }
            way = self.after(way);
        }
        let slot = start + way;
        if self.lines[slot] != EMPTY {
            self.filter.remove(self.virtual_lines[slot]);
        }
        self.hands[set] = self.after(way) as u8;
        self.lines[slot] = line;
        self.virtual_lines[slot] = virtual_line;
        slot
    }

    #[inline]
    fn after(&self, way: usize) -> usize {
        if way + 1 == self.ways { 0 } else { way + 1 }
    }

    /// Takes `line` out, if it is here.
    #[inline]
    pub(crate) fn remove(&mut self, line: u32) {
        if let Some(slot) = self.find(line) {
            self.filter.remove(self.virtual_lines[slot]);
            self.lines[slot] = EMPTY;
        }
    }

    /// Stores to `line` have to go down again.
    pub(crate) fn forbid_stores(&mut self, line: u32) {
        if let Some(slot) = self.find(line) {
            self.filter.forbid_stores(self.virtual_lines[slot]);
        }
    }

    /// All lines held, with their virtual lines.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> impl Iterator<Item = (u32, u64)> {
        let both = self.lines.iter().copied().zip(self.virtual_lines.iter().copied());
        both.filter(|&(line, _)| line != EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(level: &mut FirstLevel, line: u32, virtual_line: u64) {
        let slot = level.insert(line, virtual_line);
        level.admit(slot, virtual_line, false);
    }

    #[test]
    fn a_line_that_the_filter_hits_is_not_the_victim() {
        let mut level = FirstLevel::new(4 * 64, 4);
        for line in 0..4 {
            fill(&mut level, line, u64::from(line));
        }
        // All marks are set: the first search clears them and takes the hand's first.
        fill(&mut level, 10, 10);
        assert!(!level.holds(0));
        for line in 11..40 {
            assert!(level.filter.hit(2 << 6, false), "before {line}");
            fill(&mut level, line, u64::from(line));
        }
        assert!(level.holds(2));
    }

    #[test]
    fn a_line_that_goes_takes_its_filter_entry_along() {
        let mut level = FirstLevel::new(2 * 64, 2);
        fill(&mut level, 7, 70);
        assert!(level.filter.hit(70 << 6, false));
        level.remove(7);
        assert!(!level.filter.hit(70 << 6, false));
        level.remove(7);
    }

    #[test]
    fn a_second_name_replaces_the_first() {
        let mut level = FirstLevel::new(2 * 64, 2);
        fill(&mut level, 7, 70);
        let slot = level.find(7).expect("just filled");
        level.admit(slot, 71, true);
        assert!(!level.filter.hit(70 << 6, false));
        assert!(level.filter.hit(71 << 6, true));
        level.forbid_stores(7);
        assert!(!level.filter.hit(71 << 6, true));
    }
}
