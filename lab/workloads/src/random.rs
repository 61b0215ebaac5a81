//! Seeded numbers: the same seed gives the same work on every machine.

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): one multiply-xorshift chain per number. A stream
/// can start anywhere, so each thread or page may have its own.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    /// A stream for one of many users of the same seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed).wrapping_add(mix(!stream)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// A number below `bound`, by multiplication: the bias is below `bound / 2^64`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Shuffles (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// The finaliser of SplitMix64: a bijection of 64 bits that looks random.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_streams_differ() {
        let numbers = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..4).map(|_| random.next()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7, 0), numbers(7, 0));
        assert_ne!(numbers(7, 0), numbers(7, 1));
        assert_ne!(numbers(7, 0), numbers(8, 0));
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..64).collect();
        Random::new(1, 0).shuffle(&mut items);
        assert_ne!(items, (0..64).collect::<Vec<u32>>());
        items.sort_unstable();
        assert_eq!(items, (0..64).collect::<Vec<u32>>());
    }
}
