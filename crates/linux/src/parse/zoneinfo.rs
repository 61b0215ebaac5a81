//! `/proc/zoneinfo`: which ranges of physical page frames belong to which node.
//!
//! A zone spans `start_pfn .. start_pfn + spanned`, holes included. Spans of two nodes overlap
//! where memory was plugged in turns or `numa=fake` interleaves. Of a frame in both spans the file
//! does not tell the node; the memory blocks in sysfs do.

use super::ParseError;
use super::fields::{decimal, lines, words};

/// One zone's span, or one block of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneSpan {
    /// Node of the frames.
    pub node: u32,
    /// First page frame.
    pub first_frame: u64,
    /// Number of page frames, holes included.
    pub frames: u64,
}

/// Parses the file into non-empty spans, in order of their first frame.
///
/// # Errors
/// A `Node` header, `spanned` or `start_pfn` line with a number that cannot be read.
pub fn parse(bytes: &[u8]) -> Result<Vec<ZoneSpan>, ParseError> {
    let mut scan = Scan::default();
    lines(bytes).try_for_each(|(number, line)| scan.take(number, line))?;
    Ok(scan.spans())
}

/// A parser of the file line by line. The file is long, because a zone has 160 bytes for each CPU.
#[derive(Debug, Default)]
pub struct Scan {
    node: Option<u32>,
    spanned: u64,
    is_absent: bool,
    spans: Vec<ZoneSpan>,
}

impl Scan {
    /// Parses the next line.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn take(&mut self, number: usize, line: &[u8]) -> Result<(), ParseError> {
        let fail = |expected| ParseError::new(number, expected, line);
        let mut parts = words(line);
        let name = parts.next();
        let mut value = |expected| parts.next().and_then(decimal).ok_or_else(|| fail(expected));
        match name {
            Some(b"Node") => {
                let word = parts.next().and_then(|word| word.strip_suffix(b","));
                let parsed = word.and_then(decimal).and_then(|node| u32::try_from(node).ok());
                self.node = Some(parsed.ok_or_else(|| fail("Node N, zone NAME"))?);
                (self.spanned, self.is_absent) = (0, false);
            }
            Some(b"spanned") => self.spanned = value("spanned PAGES")?,
            // A zone may span only frames of other zones.
            Some(b"present") => self.is_absent = value("present PAGES")? == 0,
            Some(b"start_pfn:") => {
                let first_frame = value("start_pfn: FRAME")?;
                if let (Some(node), true, false) = (self.node, self.spanned > 0, self.is_absent) {
                    self.spans.push(ZoneSpan { node, first_frame, frames: self.spanned });
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The non-empty spans, in order of their first frame.
    #[must_use]
    pub fn spans(mut self) -> Vec<ZoneSpan> {
        self.spans.sort_by_key(|span| span.first_frame);
        self.spans
    }
}

/// A map from physical addresses to nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhysicalMap {
    zones: Vec<Segment>,
    blocks: Vec<Segment>,
    page_bytes: u64,
}

/// Frames from `first` up to `end`, all in the same spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    first: u64,
    end: u64,
    /// `None` if spans of several nodes cover it.
    node: Option<u32>,
}

impl PhysicalMap {
    /// The map of these spans. `page_bytes`: size of a page frame.
    #[must_use]
    pub fn new(spans: Vec<ZoneSpan>, page_bytes: u64) -> Self {
        assert!(page_bytes.is_power_of_two(), "a page frame of {page_bytes} bytes");
        Self { zones: segments(&spans), blocks: Vec::new(), page_bytes }
    }

    /// The map with memory blocks, which give the node if zones of several nodes overlap.
    #[must_use]
    pub fn with_blocks(self, blocks: &[ZoneSpan]) -> Self {
        Self { blocks: segments(blocks), ..self }
    }

    /// Whether there are frames in spans of several nodes.
    #[must_use]
    pub fn has_overlaps(&self) -> bool {
        self.zones.iter().any(|segment| segment.node.is_none())
    }

    /// The node of a physical address. `None` outside every zone, and if zones of several nodes
    /// overlap without a block. `None` for 0, which the kernel reports for an unknown address.
    #[must_use]
    pub fn node_of(&self, address: u64) -> Option<u32> {
        if address == 0 {
            return None;
        }
        let frame = address / self.page_bytes;
        let zone = segment_of(&self.zones, frame)?;
        zone.node.or_else(|| segment_of(&self.blocks, frame)?.node)
    }
}

fn segment_of(segments: &[Segment], frame: u64) -> Option<&Segment> {
    let after = segments.partition_point(|segment| segment.first <= frame);
    segments[..after].last().filter(|segment| frame < segment.end)
}

/// Cuts spans at each other's ends into segments that do not overlap.
fn segments(spans: &[ZoneSpan]) -> Vec<Segment> {
    let end_of = |span: &ZoneSpan| span.first_frame.saturating_add(span.frames);
    let begins = spans.iter().map(|span| (span.first_frame, span.node, true));
    let mut events: Vec<(u64, u32, bool)> =
        begins.chain(spans.iter().map(|span| (end_of(span), span.node, false))).collect();
    events.sort_unstable();
    let mut open: std::collections::BTreeMap<u32, usize> = std::collections::BTreeMap::new();
    let mut found: Vec<Segment> = Vec::new();
    let mut first = 0;
    for (frame, node, begins) in events {
        if first < frame && !open.is_empty() {
            let node = if open.len() == 1 { open.keys().next().copied() } else { None };
            match found.last_mut() {
                Some(last) if last.end == first && last.node == node => last.end = frame,
                _ => found.push(Segment { first, end: frame, node }),
            }
        }
        first = frame;
        let count = open.entry(node).or_insert(0);
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            open.remove(&node);
        }
    }
    found
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
        Node 1, zone   Movable\n        spanned  0\n\
        Node 2, zone   Movable\n        spanned  9\n        present  0\n  start_pfn: 1\n";

    #[test]
    fn addresses_fall_on_their_node() {
        let map = PhysicalMap::new(parse(TEXT).unwrap(), 4096);
        assert!(!map.has_overlaps());
        assert_eq!(map.node_of(0), None);
        assert_eq!(map.node_of(0x1000), Some(0));
        assert_eq!(map.node_of((131_071 << 12) + 8), Some(0));
        assert_eq!(map.node_of(131_072 << 12), Some(1));
        assert_eq!(map.node_of(262_143 << 12), Some(1));
        assert_eq!(map.node_of(262_144 << 12), None);
    }

    fn span(node: u32, first_frame: u64, frames: u64) -> ZoneSpan {
        ZoneSpan { node, first_frame, frames }
    }

    #[test]
    fn where_zones_of_two_nodes_overlap_only_blocks_tell_the_node() {
        // Slots of 100 frames, plugged for node 0 and node 1 in turns.
        let map = PhysicalMap::new(vec![span(0, 1000, 300), span(1, 1100, 300)], 4096);
        let nodes =
            |map: &PhysicalMap| [1000, 1100, 1200, 1300].map(|frame| map.node_of(frame << 12));
        assert!(map.has_overlaps());
        assert_eq!(nodes(&map), [Some(0), None, None, Some(1)]);
        let blocks =
            [span(0, 1000, 100), span(1, 1100, 100), span(0, 1200, 100), span(1, 1300, 100)];
        assert_eq!(nodes(&map.clone().with_blocks(&blocks)), [Some(0), Some(1), Some(0), Some(1)]);
        let shared_block = [span(0, 1000, 400), span(1, 1000, 400)];
        assert_eq!(nodes(&map.with_blocks(&shared_block)), [Some(0), None, None, Some(1)]);
    }

    #[test]
    fn zones_of_one_node_may_overlap() {
        let map = PhysicalMap::new(vec![span(3, 10, 100), span(3, 20, 10), span(3, 110, 5)], 4096);
        assert_eq!(map.zones, [Segment { first: 10, end: 115, node: Some(3) }]);
        let nested = PhysicalMap::new(vec![span(0, 10, 100), span(1, 20, 10)], 4096);
        assert_eq!([15, 25, 35].map(|frame| nested.node_of(frame << 12)), [Some(0), None, Some(0)]);
    }

    #[test]
    fn a_bad_number_is_named() {
        let error = parse(b"Node 0, zone DMA\n spanned many\n").unwrap_err().to_string();
        assert_eq!(error, "line 2: expected spanned PAGES, found ` spanned many`");
        assert!(parse(b"Node x, zone DMA\n").is_err());
        assert!(parse(b"Node +1, zone DMA\n").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_spans_or_an_error(bytes: Vec<u8>, address: u64) {
            if let Ok(spans) = parse(&bytes) {
                let _ = PhysicalMap::new(spans, 4096).node_of(address);
            }
        }

        /// A frame's node is the only one with spans that cover it.
        #[test]
        fn a_frame_has_the_node_that_alone_covers_it(
            spans in proptest::collection::vec((0u32..3, 0u64..60, 1u64..30), 0..8),
            far in any::<u64>(),
        ) {
            let spans: Vec<_> = spans.iter().map(|&(node, first, frames)| span(node, first, frames)).collect();
            let map = PhysicalMap::new(spans.clone(), 1);
            for frame in 1..100 {
                let covers = |span: &&ZoneSpan| (span.first_frame..span.first_frame + span.frames).contains(&frame);
                let mut nodes: Vec<u32> = spans.iter().filter(covers).map(|span| span.node).collect();
                nodes.sort_unstable();
                nodes.dedup();
                let expected = if let [node] = nodes[..] { Some(node) } else { None };
                prop_assert_eq!(map.node_of(frame), expected);
            }
            let _ = PhysicalMap::new(vec![span(0, far, u64::MAX), span(1, u64::MAX, far)], 1).node_of(far);
        }
    }
}
