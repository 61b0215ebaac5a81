//! Tests of the contents and the size of page records.

use super::*;

fn seen(pages: &Pages, id: u32) -> Vec<(usize, u32)> {
    pages.get(PageId(id)).accesses().collect()
}

#[test]
fn accesses_are_counted_by_node_and_pages_keep_their_order() {
    let mut pages = Pages::new(4, 100);
    pages.record(0, 0x5000, 12, 1, 3, false);
    pages.record(0, 0x1000, 12, UNKNOWN_NODE, 0, true);
    pages.record(0, 0x5000, 12, 2, 3, false);
    pages.record(1, 0x5000, 12, 0, 1, false);
    assert_eq!(pages.iter().map(|page| page.address).collect::<Vec<_>>(), [0x5000, 0x1000, 0x5000]);
    assert_eq!(seen(&pages, 0), [(3, 2)]);
    assert_eq!(pages.get(PageId(0)).home, Some(2));
    assert_eq!((pages.get(PageId(1)).stores, pages.get(PageId(1)).home), (1, None));
}

#[test]
fn a_full_table_ignores_new_pages_and_counts_known_ones() {
    let mut pages = Pages::new(2, 1);
    assert!(pages.record(0, 0x1000, 12, 0, 0, false).is_some());
    assert!(pages.record(0, 0x2000, 12, 0, 0, false).is_none());
    assert!(pages.record(0, 0x1000, 12, 0, 1, false).is_some());
    assert_eq!((pages.len(), pages.ignored()), (1, 1));
    assert_eq!(pages.get(PageId(0)).total(), 2);
}

#[test]
fn a_large_machine_spills_the_fifth_node_of_a_page() {
    let mut pages = Pages::new(64, 10);
    for node in [60, 0, 7, 60, 9, 33, 33] {
        pages.record(0, 0x1000, 12, 0, node, false);
    }
    assert_eq!(seen(&pages, 0), [(60, 2), (0, 1), (7, 1), (9, 1), (33, 2)]);
}

#[test]
fn lists_that_spilled_stay_with_their_pages() {
    const PAGES: u64 = 70_000; // more than 16 bits can tell apart
    let mut pages = Pages::new(64, 1 << 20);
    for node in [10, 11, 12, 13, 14] {
        (0..PAGES).for_each(|page| {
            pages.record(0, page << 12, 12, 0, node + (page % 7) as u16, false);
        });
    }
    for id in [0, 1, 65_535, 65_536, 69_999] {
        let first = 10 + (id % 7) as usize;
        let nodes: Vec<usize> = seen(&pages, id).into_iter().map(|(node, _)| node).collect();
        assert_eq!(nodes, (first..first + 5).collect::<Vec<_>>(), "page {id}");
    }
}

#[test]
fn accessors_say_what_all_accesses_say() {
    for (node_count, nodes) in [
        (4, &[2, 2][..]),
        (4, &[3, 1, 1]),
        (64, &[60]),
        (64, &[60, 9, 60]),
        (64, &[1, 2, 3, 4, 5, 5]),
    ] {
        let mut pages = Pages::new(node_count, 10);
        for &node in nodes {
            pages.record(0, 0x1000, 12, 0, node, false);
        }
        let all = seen(&pages, 0);
        let expected = Accessors {
            first: all[0].0,
            is_shared: all.len() > 1,
            total: all.iter().map(|(_, count)| count).sum(),
        };
        assert_eq!(pages.get(PageId(0)).accessors(), Some(expected), "{nodes:?}");
    }
}

#[test]
fn a_million_pages_take_at_most_64_bytes_each() {
    let mut pages = Pages::new(8, 1 << 20);
    for page in 0..1_u64 << 20 {
        pages.record(0, page << 12, 12, 0, (page % 8) as u16, false);
    }
    let each = pages.memory().0 as f64 / pages.len() as f64;
    assert!(each <= 64.0, "{each} bytes a page");
}
