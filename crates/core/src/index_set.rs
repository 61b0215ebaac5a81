//! A set of small dense indices: CPUs or nodes of a topology.
//!
//! Iteration is always in ascending order, so a set may reach a decision. Any number of CPUs (more
//! than 64) is fine.
//! ```
//! use rondpoint_core::CpuSet;
//! let set: CpuSet = [0, 1, 2, 3, 8].into_iter().collect();
//! assert_eq!(set.to_string(), "0-3,8");
//! ```

use alloc::vec::Vec;
use core::fmt;

/// Indices of CPUs in a topology.
pub type CpuSet = IndexSet;
/// Indices of nodes in a topology.
pub type NodeSet = IndexSet;

/// A bit set without trailing zero words, so that equal sets compare equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct IndexSet {
    words: Vec<u64>,
}

impl IndexSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// All of `0..count`.
    #[must_use]
    pub fn first(count: usize) -> Self {
        (0..count).collect()
    }

    /// From a bit mask, its lowest word first.
    #[must_use]
    pub fn from_words(words: Vec<u64>) -> Self {
        Self { words }.trimmed()
    }

    /// As a bit mask, its lowest word first; the last is not zero.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds an index.
    pub fn insert(&mut self, index: usize) {
        let word = index / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (index % 64);
    }

    /// Adds all of `first..=last`, a word at a time.
    pub fn insert_range(&mut self, first: usize, last: usize) {
        let (from, to) = (first / 64, last / 64);
        if first > last {
            return;
        }
        if to >= self.words.len() {
            self.words.resize(to + 1, 0);
        }
        let above = u64::MAX << (first % 64);
        let below = u64::MAX >> (63 - last % 64);
        for word in from..=to {
            let low = if word == from { above } else { u64::MAX };
            let high = if word == to { below } else { u64::MAX };
            self.words[word] |= low & high;
        }
    }

    /// Takes an index out; one that is not there is no error.
    pub fn remove(&mut self, index: usize) {
        if let Some(word) = self.words.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
            self.trim();
        }
    }

    /// Whether the index is in the set.
    #[must_use]
    pub fn contains(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Whether nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many indices are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The smallest index.
    #[must_use]
    pub fn min(&self) -> Option<usize> {
        self.iter().next()
    }

    /// The indices in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words
            .iter()
            .enumerate()
            .flat_map(|(place, &word)| Bits(word).map(move |bit| place * 64 + bit))
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect();
        Self { words }.trimmed()
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) =
            if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut words = long.words.clone();
        for (word, more) in words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        Self { words }
    }

    /// What is here and not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let words = self
            .words
            .iter()
            .enumerate()
            .map(|(i, a)| a & !other.words.get(i).copied().unwrap_or(0))
            .collect();
        Self { words }.trimmed()
    }

    /// Whether all of this is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words
            .iter()
            .enumerate()
            .all(|(i, a)| a & !other.words.get(i).copied().unwrap_or(0) == 0)
    }

    /// Whether the two have an index in common.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    fn trimmed(mut self) -> Self {
        self.trim();
        self
    }
}

/// The set bits of one word, lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

impl FromIterator<usize> for IndexSet {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        let mut set = Self::new();
        indices.into_iter().for_each(|index| set.insert(index));
        set
    }
}

/// The kernel's list format: `0-3,8`.
impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut indices = self.iter().peekable();
        let mut separator = "";
        while let Some(start) = indices.next() {
            let mut end = start;
            while indices.next_if_eq(&(end + 1)).is_some() {
                end += 1;
            }
            match end - start {
                0 => write!(f, "{separator}{start}")?,
                _ => write!(f, "{separator}{start}-{end}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for IndexSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_what_its_indices_are_one_by_one() {
        for first in [0, 1, 63, 64, 65, 127] {
            for last in [0, 62, 63, 64, 128, 191, 192] {
                let mut set = IndexSet::from_words(alloc::vec![0, 1 << 40]);
                let mut expected = set.clone();
                set.insert_range(first, last);
                (first..=last).for_each(|index| expected.insert(index));
                assert_eq!(set, expected, "{first}-{last}");
            }
        }
    }
    use alloc::string::ToString;

    fn set(indices: &[usize]) -> IndexSet {
        indices.iter().copied().collect()
    }

    #[test]
    fn ranges_and_single_indices_print_as_the_kernel_does() {
        assert_eq!(set(&[]).to_string(), "");
        assert_eq!(set(&[5]).to_string(), "5");
        assert_eq!(set(&[0, 1, 2, 63, 64, 100]).to_string(), "0-2,63-64,100");
    }

    #[test]
    fn sets_that_became_equal_compare_equal() {
        let mut large = set(&[1, 200]);
        large.remove(200);
        assert_eq!(large, set(&[1]));
        assert_eq!(set(&[1, 200]).intersection(&set(&[1, 2])), set(&[1]));
        assert_eq!(set(&[1, 200]).difference(&set(&[200])), set(&[1]));
        assert_eq!(set(&[1]).union(&set(&[200])), set(&[1, 200]));
    }

    #[test]
    fn subsets_know_longer_sets() {
        assert!(set(&[1]).is_subset(&set(&[1, 300])));
        assert!(!set(&[1, 300]).is_subset(&set(&[1])));
        assert!(set(&[]).is_subset(&set(&[])));
        assert!(!set(&[1]).intersects(&set(&[300])));
    }

    #[test]
    fn bit_masks_of_sparse_indices_and_back() {
        let set: IndexSet = [0, 63, 64, 1_023, 1_024, 8_191].into_iter().collect();
        let words = set.words();
        assert_eq!((words.len(), words[0], words[1], words[16]), (128, 1 | 1 << 63, 1, 1));
        assert_eq!(IndexSet::from_words(words.to_vec()), set);
        assert_eq!(IndexSet::from_words([0, 0].into()), IndexSet::new());
        assert!(IndexSet::new().words().is_empty());
    }
}
