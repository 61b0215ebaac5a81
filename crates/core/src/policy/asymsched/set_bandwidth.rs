//! Bandwidth inside every node set of a machine, computed once for a bandwidth matrix.
//!
//! This is the cache of canonical placements of ALGORITHMS 3.4. `C_bw` is a plain sum over the
//! pairs of a set, so the set is the canonical form. 2¹⁶ numbers answer for all assignments of 16
//! nodes.

use super::subset::{Mask, nodes};
use alloc::vec;
use alloc::vec::Vec;

/// Largest number of nodes for which the search has tables over all node sets: 2¹⁶ entries of 8
/// bytes are half a MiB.
pub const MAX_TABLE_NODES: usize = 16;

/// Sum of the pairs inside each node set, MB/s. Empty until it is first needed, and for machines
/// beyond [`MAX_TABLE_NODES`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetBandwidth {
    pair: Vec<u64>,
    inside: Vec<u64>,
}

impl SetBandwidth {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Computes the sums of this symmetric `count` × `count` matrix, unless they are known.
    pub(super) fn prepare(&mut self, count: usize, pair: &[u64]) {
        assert!(count <= MAX_TABLE_NODES, "{count} nodes are too many for a table of all sets");
        if self.pair == pair {
            return;
        }
        self.inside = vec![0; 1 << count];
        for set in 1..1_usize << count {
            let low = set.trailing_zeros() as usize;
            let rest = set & (set - 1);
            let row: u64 = nodes(rest as Mask).map(|node| pair[low * count + node]).sum();
            self.inside[set] = self.inside[rest] + row;
        }
        self.pair = pair.to_vec();
    }

    /// Sum of the pairs inside a set, MB/s in both directions together.
    pub(super) fn inside(&self, set: Mask) -> u64 {
        self.inside[set as usize]
    }
}
