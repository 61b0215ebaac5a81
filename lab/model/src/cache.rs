//! A set-associative cache with true least-recently-used replacement: only tags, no data.
//!
//! Used for the private second level and the last-level caches. A set keeps its lines in order of
//! use, newest first, so replacement needs no stamps.

use crate::LINE_BYTES;

/// No line: above every line that memory may have.
pub(crate) const EMPTY: u32 = u32::MAX;

/// Which set a line belongs to.
#[derive(Debug)]
pub(crate) struct Sets {
    count: u32,
    /// `count - 1` if that is a mask: a division costs more than the rest of a look-up.
    mask: Option<u32>,
}

impl Sets {
    /// The sets of a cache of `bytes` bytes; their number need not be a power of two.
    pub(crate) fn new(bytes: u64, ways: u32) -> Sets {
        let count = (bytes / (u64::from(ways) * LINE_BYTES)) as u32;
        assert!(count > 0, "checked when the hardware is built");
        Sets { count, mask: count.is_power_of_two().then(|| count - 1) }
    }

    pub(crate) fn count(&self) -> usize {
        self.count as usize
    }

    #[inline]
    pub(crate) fn of(&self, line: u32) -> usize {
        match self.mask {
            Some(mask) => (line & mask) as usize,
            None => (line % self.count) as usize,
        }
    }
}

/// Where `line` is in a set. Looks at all of it: that is faster than stopping early, since it needs
/// no branch per way.
#[inline]
pub(crate) fn way_of(set: &[u32], line: u32) -> Option<usize> {
    let mut found = usize::MAX;
    for (way, &held) in set.iter().enumerate() {
        found = if held == line { way } else { found };
    }
    (found != usize::MAX).then_some(found)
}

#[derive(Debug)]
pub(crate) struct Cache {
    sets: Sets,
    ways: usize,
    lines: Box<[u32]>,
}

impl Cache {
    pub(crate) fn new(bytes: u64, ways: u32) -> Cache {
        let sets = Sets::new(bytes, ways);
        let lines = vec![EMPTY; sets.count() * ways as usize].into_boxed_slice();
        Cache { sets, ways: ways as usize, lines }
    }

    #[inline]
    fn set(&mut self, line: u32) -> &mut [u32] {
        let start = self.sets.of(line) * self.ways;
        &mut self.lines[start..start + self.ways]
    }

    /// Marks `line` as just used; false if it is not here.
    #[inline]
    pub(crate) fn touch(&mut self, line: u32) -> bool {
        let set = self.set(line);
        if set[0] == line {
            return true;
        }
        match way_of(set, line) {
            Some(way) => {
                set.copy_within(0..way, 1);
                set[0] = line;
                true
            }
            None => false,
        }
    }

    /// Takes in `line`, which is not here, and returns the line that had to go.
    ///
    /// A line that `spare` is true for is passed over, as long as there is one it is false for.
    #[inline]
    pub(crate) fn insert(&mut self, line: u32, spare: impl Fn(u32) -> bool) -> Option<u32> {
        let set = self.set(line);
        let last = set.len() - 1;
        let mut way = last;
        while set[way] != EMPTY && spare(set[way]) {
            if way == 0 {
                way = last;
                break;
            }
            way -= 1;
        }
        let victim = set[way];
        set.copy_within(0..way, 1);
        set[0] = line;
        (victim != EMPTY).then_some(victim)
    }

    /// Takes `line` out; false if it is not here.
    pub(crate) fn remove(&mut self, line: u32) -> bool {
        let set = self.set(line);
        match way_of(set, line) {
            Some(way) => {
                set.copy_within(way + 1.., way);
                set[set.len() - 1] = EMPTY;
                true
            }
            None => false,
        }
    }

    /// All lines held, set by set.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> impl Iterator<Item = u32> {
        self.lines.iter().copied().filter(|&line| line != EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONE: fn(u32) -> bool = |_| false;

    #[test]
    fn the_least_recently_used_line_goes() {
        let mut cache = Cache::new(2 * 64, 2);
        assert_eq!(cache.insert(1, NONE), None);
        assert_eq!(cache.insert(2, NONE), None);
        assert!(cache.touch(1));
        assert_eq!(cache.insert(3, NONE), Some(2));
        assert!(!cache.touch(2));
        assert!(cache.touch(1));
    }

    #[test]
    fn spared_lines_stay_while_there_is_another() {
        let mut cache = Cache::new(3 * 64, 3);
        for line in [1, 2, 3] {
            cache.insert(line, NONE);
        }
        assert_eq!(cache.insert(4, |line| line == 1), Some(2));
        assert_eq!(cache.insert(5, |_| true), Some(1), "all spared: the oldest goes");
    }

    #[test]
    fn sets_need_not_be_a_power_of_two() {
        let mut cache = Cache::new(3 * 2 * 64, 2);
        for line in 0..6 {
            assert_eq!(cache.insert(line, NONE), None);
        }
        assert_eq!(cache.insert(6, NONE), Some(0));
        assert!(cache.remove(3));
        assert_eq!(cache.insert(9, NONE), None, "an empty way is used first");
    }

    proptest! {
        /// The tags behave like a list in order of use.
        #[test]
        fn one_set_is_a_list_in_order_of_use(steps in proptest::collection::vec((0u8..3, 0u32..8), 0..200)) {
            let mut cache = Cache::new(4 * 64, 4);
            let mut model: Vec<u32> = Vec::new();
            for (kind, line) in steps {
                let at = model.iter().position(|&held| held == line);
                match kind {
                    0 => {
                        prop_assert_eq!(cache.touch(line), at.is_some());
                        if let Some(at) = at {
                            model.remove(at);
                            model.insert(0, line);
                        }
                    }
                    1 => {
                        prop_assert_eq!(cache.remove(line), at.is_some());
                        if let Some(at) = at {
                            model.remove(at);
                        }
                    }
                    _ if at.is_none() => {
                        let victim = cache.insert(line, NONE);
                        model.insert(0, line);
                        let expected = if model.len() > 4 { model.pop() } else { None };
                        prop_assert_eq!(victim, expected);
                    }
                    _ => {}
                }
                prop_assert_eq!(cache.lines().collect::<Vec<_>>(), model.clone());
            }
        }
    }
}
