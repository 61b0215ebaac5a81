//! Tests the workers with a replacement for the kernel, and on memory of this process.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

use rondpoint_core::Pid;
use rondpoint_core::plan::PageCounts;

use super::*;
use crate::syscall::memory::{Anonymous, page_bytes};
use crate::syscall::pages::PageStatus;

/// All pages lie on node 0 unless they were put elsewhere.
#[derive(Default)]
struct Stand {
    /// By address: where a page lies, or what is the matter with it.
    pages: Mutex<BTreeMap<u64, PageStatus>>,
    /// Huge pages: with the first address all the others move.
    huge: Vec<u64>,
    /// Pages of node 3 that are free.
    free: Mutex<usize>,
    /// Node and pages of each call.
    calls: Mutex<Vec<(u32, usize)>>,
    ends_after: Option<usize>,
}

const HUGE: u64 = 2 << 20;

impl Stand {
    fn with(pages: &[(u64, PageStatus)]) -> Self {
        Self { pages: Mutex::new(pages.iter().copied().collect()), ..Self::default() }
    }

    fn on(&self, address: u64) -> PageStatus {
        self.pages.lock().unwrap().get(&address).copied().unwrap_or(Ok(0))
    }
}

impl Pages for Stand {
    fn locate(&self, _: Pid, addresses: &[u64]) -> io::Result<Vec<PageStatus>> {
        Ok(addresses.iter().map(|&address| self.on(address)).collect())
    }

    fn relocate(
        &self,
        _: Pid,
        addresses: &[u64],
        node: u32,
    ) -> io::Result<Vec<Option<PageStatus>>> {
        let mut calls = self.calls.lock().unwrap();
        if self.ends_after == Some(calls.len()) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        calls.push((node, addresses.len()));
        drop(calls);
        let mut statuses = Vec::new();
        for &address in addresses {
            let mut free = self.free.lock().unwrap();
            if node == 3 && *free == 0 {
                statuses.push(Some(Err(libc::ENOMEM)));
                continue;
            }
            *free = free.saturating_sub(usize::from(node == 3));
            let status = self.on(address).map(|_| node);
            let mut pages = self.pages.lock().unwrap();
            let step = if self.huge.contains(&address) { HUGE } else { 4096 };
            for part in (address..address + step).step_by(4096) {
                pages.insert(part, status);
            }
            statuses.push(Some(status));
        }
        Ok(statuses)
    }
}

fn work(stand: &Stand, present: Present, ways: &[(u32, u32)], workers: usize) -> Tally {
    let ways: BTreeMap<u32, u32> = ways.iter().copied().collect();
    let task = Task { kernel: stand, pid: Pid(1), ways: &ways, limit: None };
    let control = Control::default();
    let crew = Crew { task, control: &control };
    crew.work(present, NonZeroUsize::new(workers).unwrap(), &mut || {})
}

fn small(first: u64, pages: u64) -> (u64, u64, bool) {
    (first << 12, (first + pages) << 12, false)
}

#[test]
fn several_workers_move_every_page_once_in_few_calls() {
    for workers in [1, 4] {
        let stand = Stand::with(&[(5 << 12, Ok(1)), (6 << 12, Ok(7))]);
        let present = Present::made_up(&[small(0, 20_000), small(30_000, 10)], true);
        let tally = work(&stand, present, &[(0, 1)], workers);
        let counts = PageCounts { moved: 20_008, in_place: 1, ..PageCounts::default() };
        assert_eq!((tally.counts, tally.elsewhere, tally.end), (counts, 1, End::Complete));
        assert_eq!(tally.seen[&0], Bytes(20_008 << 12));
        let calls = stand.calls.into_inner().unwrap();
        assert!(calls.iter().all(|(_, pages)| *pages <= 4096), "{calls:?}");
        assert!(calls.len() <= 5 + workers, "{calls:?}");
    }
}

#[test]
fn nodes_that_change_places_move_each_page_once() {
    let there: Vec<(u64, PageStatus)> = (0..500).map(|page| (page << 12, Ok(1))).collect();
    let stand = Stand::with(&there);
    let tally = work(&stand, Present::made_up(&[small(0, 1000)], true), &[(0, 1), (1, 0)], 3);
    assert_eq!(tally.counts.moved, 1000);
    assert!((0..500).all(|page| stand.on(page << 12) == Ok(0)));
    assert!((500..1000).all(|page| stand.on(page << 12) == Ok(1)));
}

#[test]
fn huge_pages_go_whole_with_one_entry_each() {
    let stand = Stand::default();
    let found = [(HUGE, 21 * HUGE, true), (21 * HUGE, 21 * HUGE + 4096, false)];
    let tally = work(&stand, Present::made_up(&found, true), &[(0, 1)], 1);
    assert_eq!((tally.counts.moved, tally.huge), (20 * 512 + 1, 20));
    let entries: usize = stand.calls.into_inner().unwrap().iter().map(|(_, pages)| pages).sum();
    assert_eq!(entries, 21);
}

#[test]
fn where_sizes_are_not_known_a_huge_page_is_tried_by_its_first_address() {
    let stand = Stand { huge: vec![2 * HUGE], ..Stand::default() };
    // Two pages' worth of addresses, the second of them a huge page.
    let tally = work(&stand, Present::made_up(&[(HUGE, 3 * HUGE, false)], false), &[(0, 1)], 1);
    assert_eq!(tally.counts.moved, 1024);
    let calls = stand.calls.into_inner().unwrap();
    assert_eq!(calls, [(1, 2), (1, 511)], "the huge page's other addresses are not tried");
}

#[test]
fn every_page_that_cannot_move_has_its_cause() {
    let mut stand = Stand::with(&[(0, Err(libc::ENOENT)), (4096, Err(libc::EFAULT))]);
    stand.free = Mutex::new(2);
    let tally = work(&stand, Present::made_up(&[small(0, 6)], true), &[(0, 3)], 1);
    let counts = PageCounts { moved: 2, no_memory: 2, absent: 2, ..PageCounts::default() };
    assert_eq!(tally.counts, counts);
}

#[test]
fn a_full_node_is_not_asked_again_and_again() {
    let stand = Stand::default();
    let tally = work(&stand, Present::made_up(&[small(0, 50_000)], true), &[(0, 3)], 1);
    assert_eq!(tally.counts, PageCounts { no_memory: 50_000, ..PageCounts::default() });
    assert_eq!(stand.calls.into_inner().unwrap().len(), 1);
}

#[test]
fn a_process_that_ends_meanwhile_is_gone_and_the_rest_untried() {
    let stand = Stand { ends_after: Some(1), ..Stand::default() };
    let tally = work(&stand, Present::made_up(&[small(0, 8192)], true), &[(0, 1)], 1);
    assert_eq!((tally.end, tally.counts.moved, tally.untried), (End::Gone, 4096, 4096));
}

#[test]
fn what_is_stopped_stops_and_says_so() {
    let ways = [(0, 1)].into();
    let stand = Stand::default();
    let task = Task { kernel: &stand, pid: Pid(1), ways: &ways, limit: Some(Bytes(1)) };
    let control = Control::default();
    let present = Present::made_up(&[small(0, 100)], true);
    // A page a second at the limit of a byte a second would take more than an hour.
    let crew = Crew { task, control: &control };
    let tally = crew.work(present, NonZeroUsize::MIN, &mut || control.stop());
    assert_eq!((tally.end, tally.counts.moved, tally.untried), (End::Cancelled, 1, 99));
}

#[test]
fn only_what_is_new_is_gone_through_again() {
    let mapping = |start, end| Mapping { start, end, is_accessible: true, is_copy: false };
    let known = [mapping(10, 20), mapping(30, 40), mapping(50, 60)];
    let now = vec![mapping(5, 35), mapping(38, 41), mapping(52, 54), mapping(70, 80)];
    let expected = [mapping(5, 10), mapping(20, 30), mapping(40, 41), mapping(70, 80)];
    assert_eq!(without(now, &known), expected);
    assert_eq!(without(vec![mapping(1, 2)], &[]), [mapping(1, 2)]);
}

fn own_order(ways: &[(u32, u32)]) -> Order {
    let process = Identity::of(&Root::live(), Pid(std::process::id())).unwrap();
    let ways = ways.iter().copied().collect();
    let workers = NonZeroUsize::new(2).unwrap();
    Order { process, ways, reach: Reach::Own, workers, limit: None, passes: MAX_PASSES }
}

#[test]
fn this_process_is_found_by_its_maps_and_gone_through_until_nothing_is_left() {
    let memory = Anonymous::new(64 * page_bytes()).unwrap();
    memory.touch_every(page_bytes());
    let stand = Stand::default();
    let order = own_order(&[(0, 1)]);
    let moved =
        relocate_with(&stand, &Root::live(), &order, &Control::default(), &mut || {}).unwrap();
    assert_eq!(moved.end, End::Complete);
    assert!((2..=MAX_PASSES).contains(&moved.passes), "{moved:?}");
    assert!(moved.tally.counts.moved >= 64);
    assert_eq!(stand.on(memory.address()), Ok(1));
    let swap = own_order(&[(0, 1), (1, 0)]);
    let moved = relocate_with(&stand, &Root::live(), &swap, &Control::default(), &mut || {});
    assert_eq!(stand.on(memory.address()), Ok(0), "once, and not back again: {moved:?}");
}

#[test]
fn the_kernel_is_asked_where_this_process_lies_and_moves_nothing_in_place() {
    let memory = Anonymous::new(16 * page_bytes()).unwrap();
    memory.touch_every(page_bytes());
    let order = own_order(&[(1, 0)]);
    let control = Control::default();
    let (root, workers) = (Root::live(), order.workers);
    let seen = survey(&root, order.process, workers, &control, &mut || {}).unwrap();
    assert!(seen.values().map(|bytes| bytes.0).sum::<u64>() >= 16 * page_bytes() as u64);
    assert_eq!(control.moved(), Bytes(0));
    let gone = Identity { started: rondpoint_core::Nanos(1), ..order.process };
    assert!(survey(&root, gone, workers, &control, &mut || {}).unwrap().is_empty());
    let order = Order { process: gone, ..order };
    let moved = relocate(&root, &order, &control, &mut || {}).unwrap();
    assert_eq!((moved.end, moved.passes), (End::Gone, 0));
}
