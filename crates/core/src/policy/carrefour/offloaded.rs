//! Offloaded pages: pages that left the busy controller of their only user. Without this list,
//! co-location would bring them back in the next round. Offloading is ours; no paper has it.

use super::interleave::Interleaving;
use crate::limits::MAX_REMEMBERED_PAGES;
use crate::plan::PageMove;
use alloc::collections::BTreeMap;
use core::ops::Range;

/// The offloaded pages of an application, by first address, and the node that each left.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Offloaded(BTreeMap<u64, u16>);

impl Offloaded {
    /// Remembers pages that left. A full memory forgets all of them, and they may return.
    pub(super) fn note(&mut self, pages: &[PageMove]) {
        if self.0.len() + pages.len() > MAX_REMEMBERED_PAGES {
            self.0.clear();
        }
        self.0.extend(pages.iter().map(|page| (page.address, page.from)));
    }

    /// Whether a page stays away from `node`, its only user. It stays if it left that node and the
    /// controller there would still be busy with every page at its user. A page whose user moved to
    /// another node follows.
    pub(super) fn stays_away(&self, address: u64, node: usize, settled: &Interleaving) -> bool {
        self.0.get(&address).is_some_and(|from| usize::from(*from) == node)
            && !settled.has_room(node)
    }

    /// Whether a page that begins among `addresses` left `node`.
    pub(super) fn has_any_of(&self, addresses: &Range<u64>, node: usize) -> bool {
        self.0.range(addresses.clone()).any(|(_, from)| usize::from(*from) == node)
    }
}
