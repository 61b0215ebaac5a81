//! Sets of nodes as bits of one word, and the walk over all subsets of one size.
//!
//! The search looks at node sets. Two injective assignments inside the same sets differ only in the
//! memory that they move.

/// Nodes as bits: node `i` is bit `i`.
pub(super) type Mask = u64;

/// The nodes `0..count`.
pub(super) const fn first(count: usize) -> Mask {
    if count >= 64 { Mask::MAX } else { (1 << count) - 1 }
}

/// The nodes of a set, ascending.
pub(super) fn nodes(mut mask: Mask) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let node = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(node)
    })
}

/// All subsets of `of` with `size` nodes, in ascending order of their bits.
pub(super) fn subsets(of: Mask, size: u32) -> impl Iterator<Item = Mask> {
    let mut next = (size <= of.count_ones()).then(|| lowest(of, size));
    core::iter::from_fn(move || {
        let subset = next?;
        next = successor(subset, of);
        Some(subset)
    })
}

/// The `count` lowest nodes of a set that has at least as many.
fn lowest(of: Mask, count: u32) -> Mask {
    let mut left = of;
    for _ in 0..count {
        left &= left - 1;
    }
    of & !left
}

/// The next larger subset of `of` with as many nodes: Gosper's step (HAKMEM 175) inside a mask. The
/// bits outside are filled with ones, so that the carry runs over them. The bits that the carry
/// swallowed return as the lowest nodes.
fn successor(subset: Mask, of: Mask) -> Option<Mask> {
    let carried = (subset | !of).wrapping_add(subset & subset.wrapping_neg()) & of;
    if carried == 0 {
        return None;
    }
    Some(carried | lowest(of, subset.count_ones() - carried.count_ones()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn subsets_of_a_sparse_set_come_once_each_and_ascending() {
        for of in [0b1, 0b1011_0101, 0b1111_1111, 1 << 63 | 0b1101] {
            for size in 0..=9 {
                let walked: Vec<Mask> = subsets(of, size).collect();
                let filtered = (0..64).filter(|bit| of >> bit & 1 == 1).collect::<Vec<u32>>();
                let mut expected: Vec<Mask> = (0_u64..1 << filtered.len())
                    .map(|pick| {
                        (0..filtered.len())
                            .filter(|i| pick >> i & 1 == 1)
                            .map(|i| 1 << filtered[i])
                            .sum()
                    })
                    .filter(|set: &Mask| set.count_ones() == size)
                    .collect();
                expected.sort_unstable();
                assert_eq!(walked, expected, "subsets of {of:b} with {size} nodes");
            }
        }
    }

    #[test]
    fn a_full_word_is_walked_too() {
        assert_eq!(subsets(first(64), 1).count(), 64);
        assert_eq!(subsets(first(64), 64).count(), 1);
        assert_eq!(nodes(first(64)).count(), 64);
    }
}
