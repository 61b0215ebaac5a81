//! Sharing signatures of Tam et al. ("Thread Clustering", EuroSys 2007): numbers recalled, not
//! verified; low confidence.
//!
//! A thread's signature is 256 saturating 8-bit counters of its remote accesses by address.
//! Similarity is the dot product. Counters that most threads touched are global data and are
//! ignored. A thread joins the first group with a founder that it resembles.

use alloc::vec::Vec;

/// Counters of a signature [Tam et al.; recalled].
const ENTRIES: usize = 256;
/// An entry touched by at most this many threads is never global data, even if it is most of them
/// (inferred).
const SMALL_GROUP: usize = 4;

/// Sharing signature: remote accesses of one thread by entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signature([u8; ENTRIES]);

impl Default for Signature {
    fn default() -> Self {
        Self([0; ENTRIES])
    }
}

impl Signature {
    /// Counts one access to a page.
    pub(super) fn add(&mut self, page: u64) {
        // Fibonacci hashing spreads neighbouring pages over distant entries.
        let entry = (page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize;
        self.0[entry] = self.0[entry].saturating_add(1);
    }

    /// Dot product of two signatures without global entries.
    fn similarity(&self, other: &Self, is_global: &[bool]) -> u64 {
        let products = self.0.iter().zip(&other.0).zip(is_global);
        products
            .filter(|(_, global)| !**global)
            .map(|((a, b), _)| u64::from(*a) * u64::from(*b))
            .sum()
    }
}

/// `(founder, thread, similarity)` of each thread that joins the first group with a founder at
/// least as similar as `similarity`. Every other thread founds a group.
#[must_use]
pub(super) fn founders(signatures: &[Signature], similarity: u64) -> Vec<(u32, u32, u64)> {
    let is_global: Vec<bool> = (0..ENTRIES)
        .map(|entry| signatures.iter().filter(|signature| signature.0[entry] > 0).count())
        .map(|touched| touched > SMALL_GROUP && 2 * touched > signatures.len())
        .collect();
    let mut founders: Vec<u32> = Vec::new();
    let mut pairs = Vec::new();
    for (thread, signature) in signatures.iter().enumerate() {
        let resembles = |&founder: &u32| {
            let alike = signature.similarity(&signatures[founder as usize], &is_global);
            (alike >= similarity).then_some((founder, alike))
        };
        match founders.iter().find_map(resembles) {
            Some((founder, alike)) => pairs.push((founder, thread as u32, alike)),
            None => founders.push(thread as u32),
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(pages: &[(u64, u32)]) -> Signature {
        let mut signature = Signature::default();
        for &(page, count) in pages {
            (0..count).for_each(|_| signature.add(page));
        }
        signature
    }

    #[test]
    fn threads_with_the_same_hot_pages_are_alike() {
        let signatures = [
            signature(&[(1, 250)]),
            signature(&[(2, 250)]),
            signature(&[(1, 200)]),
            signature(&[(2, 10)]),
        ];
        assert_eq!(founders(&signatures, 40_000), [(0, 2, 50_000)]);
        assert_eq!(founders(&signatures, 50_000), [(0, 2, 50_000)]);
        assert_eq!(founders(&signatures, 50_001), []);
    }

    #[test]
    fn counters_saturate() {
        let signatures = [signature(&[(1, 9_999)]), signature(&[(1, 9_999)])];
        assert_eq!(founders(&signatures, 1), [(0, 1, 255 * 255)]);
    }

    #[test]
    fn what_most_threads_touch_makes_nobody_alike() {
        let signatures = [(); 5].map(|()| signature(&[(7, 255)]));
        assert_eq!(founders(&signatures, 1), []);
    }
}
