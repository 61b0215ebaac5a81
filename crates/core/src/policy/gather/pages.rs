//! The pages that follow the threads of a process to their node.

use crate::limits::MAX_TRACKED_PAGES;
use crate::model::{Model, Page};
use crate::plan::PageMove;
use crate::units::PAGE_SHIFT;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Widest gap between two sampled pages of one node that follows with them, in base pages (our
/// choice: a huge page, as Carrefour has it).
const REACH: u64 = 512;
/// Most pages of one step (our choice: that of Carrefour).
const MOST: usize = 1 << 16;

/// Moves of the sampled pages on other nodes than `node`, and of the pages between two of them on
/// the same node. Pages of `sent` are left out, and new ones added to it.
pub(super) fn towards(
    model: &Model,
    index: usize,
    node: usize,
    sent: &mut BTreeSet<u64>,
) -> Vec<PageMove> {
    let mut sampled: Vec<Page<'_>> = model.pages.iter().filter(|page| page.app == index).collect();
    sampled.sort_by_key(|page| page.address);
    let mut moves = Vec::new();
    let mut send = |address: u64, shift: u8, from: usize| {
        if moves.len() < MOST && sent.len() < MAX_TRACKED_PAGES && sent.insert(address) {
            moves.push(PageMove { address, shift, from: from as u16, to: node as u16 });
        }
    };
    let mut last: Option<(u64, usize)> = None;
    for page in &sampled {
        let Some(home) = page.home else { continue };
        if let Some((end, _)) = last.filter(|(end, of)| {
            *of == home && page.address.saturating_sub(*end) <= REACH << PAGE_SHIFT
        }) && home != node
        {
            let between = (end..page.address).step_by(1 << PAGE_SHIFT);
            between.for_each(|address| send(address, PAGE_SHIFT, home));
        }
        if home != node {
            send(page.address, page.shift, home);
        }
        last = (page.shift == PAGE_SHIFT).then_some((page.address + (1 << PAGE_SHIFT), home));
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that go to node 1, as page numbers, where these `(page number, node)` were sampled.
    fn go(pages: &[(u64, u16)], sent: &mut BTreeSet<u64>) -> Vec<u64> {
        let mut model = Model::empty(3);
        for &(number, home) in pages {
            let address = number << PAGE_SHIFT;
            model.pages.record(0, address, PAGE_SHIFT, home, 1, false).expect("room");
        }
        let moves = towards(&model, 0, 1, sent);
        assert!(moves.iter().all(|page| page.to == 1 && page.from != 1), "{moves:?}");
        moves.iter().map(|page| page.address >> PAGE_SHIFT).collect()
    }

    #[test]
    fn pages_between_two_of_the_same_node_follow_with_them() {
        let go = |pages: &[(u64, u16)]| go(pages, &mut BTreeSet::new());
        assert_eq!(go(&[(10, 0), (13, 0)]), [10, 11, 12, 13]);
        assert_eq!(go(&[(10, 0), (13, 2)]), [10, 13], "whose those between are is not known");
        assert_eq!(go(&[(10, 1), (13, 1)]), [], "they are there");
        assert_eq!(go(&[(10, 0), (10 + 2 * REACH, 0)]).len(), 2, "too far apart");
    }

    #[test]
    fn a_page_is_sent_once() {
        let mut sent = BTreeSet::new();
        assert_eq!(go(&[(10, 0), (12, 0)], &mut sent), [10, 11, 12]);
        assert_eq!(go(&[(10, 0), (14, 0)], &mut sent), [13, 14]);
    }
}
