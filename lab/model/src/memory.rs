//! Guest physical memory: which node holds an address.

use crate::error::ModelError;
use crate::{LINE_SHIFT, PAGE_BYTES};

/// Line numbers are 32 bits wide, so this is the first physical address that cannot be named.
pub(crate) const PHYSICAL_END: u64 = (u32::MAX as u64) << LINE_SHIFT;

const NOBODY: u8 = u8::MAX;

/// A range of guest physical memory and the node that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// First physical address, a multiple of 4 KiB.
    pub start: u64,
    /// Length, a multiple of 4 KiB.
    pub bytes: u64,
    /// The node.
    pub node: usize,
}

/// The regions as a table: one step of arithmetic and one load per question.
#[derive(Debug)]
pub(crate) struct Memory {
    granule_shift: u32,
    nodes: Box<[u8]>,
}

impl Memory {
    pub(crate) fn new(regions: &[Region]) -> Result<Memory, ModelError> {
        check(regions)?;
        let edges = regions.iter().flat_map(|region| [region.start, region.start + region.bytes]);
        let granule_shift = edges.fold(1 << 30, |bits, edge| bits | edge).trailing_zeros();
        let end = regions.iter().map(|region| region.start + region.bytes).max().unwrap_or(0);
        let mut nodes = vec![NOBODY; (end >> granule_shift) as usize].into_boxed_slice();
        for region in regions {
            let first = (region.start >> granule_shift) as usize;
            let count = (region.bytes >> granule_shift) as usize;
            nodes[first..first + count].fill(region.node as u8);
        }
        Ok(Memory { granule_shift, nodes })
    }

    /// The node that holds `paddr`; `None` for a device or a hole.
    #[inline]
    pub(crate) fn home(&self, paddr: u64) -> Option<usize> {
        match self.nodes.get((paddr >> self.granule_shift) as usize) {
            Some(&node) if node != NOBODY => Some(usize::from(node)),
            _ => None,
        }
    }

    /// The node that holds a line which is known to be in memory.
    #[inline]
    pub(crate) fn home_of_line(&self, line: u32) -> usize {
        self.home(u64::from(line) << LINE_SHIFT).expect("only lines of memory are cached")
    }

    /// One past the highest line.
    pub(crate) fn end_line(&self) -> u32 {
        ((self.nodes.len() as u64) << self.granule_shift >> LINE_SHIFT) as u32
    }
}

fn check(regions: &[Region]) -> Result<(), ModelError> {
    for (index, region) in regions.iter().enumerate() {
        let whole =
            region.start.is_multiple_of(PAGE_BYTES) && region.bytes.is_multiple_of(PAGE_BYTES);
        let end = region.start.checked_add(region.bytes);
        if !whole || region.bytes == 0 || end.is_none_or(|end| end > PHYSICAL_END) {
            return Err(ModelError::Region { index, start: region.start, bytes: region.bytes });
        }
        for (first, other) in regions[..index].iter().enumerate() {
            if region.start < other.start + other.bytes && other.start < region.start + region.bytes
            {
                return Err(ModelError::Overlap { first, second: index });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, bytes: u64, node: usize) -> Region {
        Region { start, bytes, node }
    }

    #[test]
    fn addresses_find_their_node_around_a_hole() {
        let memory = Memory::new(&[
            region(0, 0x8000_0000, 0),
            region(0x1_0000_0000, 0x4000_0000, 1),
            region(0x1_4000_0000, 0x1000, 0),
        ])
        .expect("a good map");
        assert_eq!(memory.home(0x7fff_ffff), Some(0));
        assert_eq!(memory.home(0x8000_0000), None);
        assert_eq!(memory.home(0x1_0000_0000), Some(1));
        assert_eq!(memory.home(0x1_4000_0fff), Some(0));
        assert_eq!(memory.home(0x1_4000_1000), None);
        assert_eq!(memory.home(u64::MAX), None);
    }

    #[test]
    fn bad_maps_are_refused_with_the_region() {
        let message = |regions: &[Region]| Memory::new(regions).expect_err("bad").to_string();
        assert_eq!(
            message(&[region(0, 0x1000, 0), region(0x800, 0x1000, 0)]),
            "memory region 1 (0x800, 0x1000 bytes): expected whole 4 KiB pages below 0x3fffffffc0"
        );
        assert!(message(&[region(0, 0, 0)]).starts_with("memory region 0"));
        assert!(message(&[region(u64::MAX - 0xfff, 0x1000, 0)]).starts_with("memory region 0"));
        assert_eq!(
            message(&[region(0, 0x2000, 0), region(0x1000, 0x1000, 1)]),
            "memory regions 0 and 1 overlap"
        );
    }
}
