//! `/proc/zoneinfo`: which ranges of physical page frames belong to which node.
//!
//! A zone spans `start_pfn .. start_pfn + spanned`, holes included. Zones of different nodes do not
//! overlap on the machines that Rondpoint knows; where they do, the first in the file wins.

use super::ParseError;
use super::fields::{decimal, lines, words};

/// One zone's span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneSpan {
    /// The node that holds it.
    pub node: u32,
    /// First page frame.
    pub first_frame: u64,
    /// Number of page frames, holes included.
    pub frames: u64,
}

/// Parses the file into the spans that are not empty, in order of their first frame.
///
/// # Errors
/// A `Node` header, `spanned` or `start_pfn` line whose number cannot be read.
pub fn parse(bytes: &[u8]) -> Result<Vec<ZoneSpan>, ParseError> {
    let mut spans = Vec::new();
    let mut node = None;
    let mut spanned = 0;
    for (number, line) in lines(bytes) {
        let fail = |expected| ParseError::new(number, expected, line);
        let mut parts = words(line);
        match parts.next() {
            Some(b"Node") => {
                let word = parts.next().and_then(|word| word.strip_suffix(b","));
                let parsed = word.and_then(decimal).and_then(|node| u32::try_from(node).ok());
                node = Some(parsed.ok_or_else(|| fail("Node N, zone NAME"))?);
                spanned = 0;
            }
            Some(b"spanned") => {
                spanned = parts.next().and_then(decimal).ok_or_else(|| fail("spanned PAGES"))?;
            }
            Some(b"start_pfn:") => {
                let first = parts.next().and_then(decimal);
                let first_frame = first.ok_or_else(|| fail("start_pfn: FRAME"))?;
                if let (Some(node), true) = (node, spanned > 0) {
                    spans.push(ZoneSpan { node, first_frame, frames: spanned });
                }
            }
            _ => {}
        }
    }
    spans.sort_by_key(|span| span.first_frame);
    Ok(spans)
}

/// From physical addresses to nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhysicalMap {
    spans: Vec<ZoneSpan>,
    page_bytes: u64,
}

impl PhysicalMap {
    /// A map of these spans; `page_bytes` is the size of a page frame.
    #[must_use]
    pub fn new(spans: Vec<ZoneSpan>, page_bytes: u64) -> Self {
        assert!(page_bytes.is_power_of_two(), "a page frame of {page_bytes} bytes");
        Self { spans, page_bytes }
    }

    /// The node that holds a physical address; `None` outside every zone, and for 0, which is what
    /// the kernel reports when it could not tell the address.
    #[must_use]
    pub fn node_of(&self, address: u64) -> Option<u32> {
        if address == 0 {
            return None;
        }
        let frame = address / self.page_bytes;
        let after = self.spans.partition_point(|span| span.first_frame <= frame);
        self.spans[..after]
            .iter()
            .rev()
            .find(|span| frame - span.first_frame < span.frames)
            .map(|span| span.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] =
        b"Node 0, zone      DMA\n  per-node stats\n      nr_dirty 1\n  pages free 3\n\
        \x20       spanned  4095\n        present  3998\n  pagesets\n  start_pfn:           1\n\
        Node 0, zone    DMA32\n        spanned  126976\n  start_pfn:           4096\n\
        Node 1, zone    DMA32\n        spanned  131072\n  start_pfn:           131072\n\
        Node 1, zone   Movable\n        spanned  0\n";

    #[test]
    fn addresses_fall_on_their_node() {
        let map = PhysicalMap::new(parse(TEXT).unwrap(), 4096);
        assert_eq!(map.node_of(0), None);
        assert_eq!(map.node_of(0x1000), Some(0));
        assert_eq!(map.node_of((131_071 << 12) + 8), Some(0));
        assert_eq!(map.node_of(131_072 << 12), Some(1));
        assert_eq!(map.node_of(262_143 << 12), Some(1));
        assert_eq!(map.node_of(262_144 << 12), None);
    }

    #[test]
    fn a_bad_number_is_named() {
        let error = parse(b"Node 0, zone DMA\n spanned many\n").unwrap_err().to_string();
        assert_eq!(error, "line 2: expected spanned PAGES, found ` spanned many`");
        assert!(parse(b"Node x, zone DMA\n").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_spans_or_an_error(bytes: Vec<u8>, address: u64) {
            if let Ok(spans) = parse(&bytes) {
                let _ = PhysicalMap::new(spans, 4096).node_of(address);
            }
        }
    }
}
