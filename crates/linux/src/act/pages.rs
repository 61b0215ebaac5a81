//! Moving pages with `move_pages(2)`: few large calls over lists that were filtered before.
//!
//! The kernel migrates a batch with one TLB flush (`do_pages_move`, mm/migrate.c, Linux 6.12). An
//! absent page, a page in place, and each change of the target end the batch. So this module first
//! locates all pages, then moves them target by target in the order of their addresses.

use std::collections::BTreeMap;
use std::io;

use rondpoint_core::plan::{PageCounts, PageMove, StepResult};
use rondpoint_core::{Pid, Topology};

use super::living_threads;
use crate::root::Root;
use crate::syscall::pages::{self, PageStatus, Reach};

/// Most base pages of one call: 16 MiB (our choice). It is worth the call's fixed cost, and no
/// thread of the program waits for long. The kernel migrates 512 at a time.
const CALL_BASE_PAGES: u64 = 4096;
/// Most pages located by one call (our choice).
const LOCATE_PAGES: usize = 1 << 16;

/// A mover of pages: the kernel, or a test's replacement.
pub trait Pages {
    /// As [`pages::locate`].
    ///
    /// # Errors
    /// Those of the call.
    fn locate(&self, pid: Pid, addresses: &[u64]) -> io::Result<Vec<PageStatus>>;

    /// As [`pages::relocate`].
    ///
    /// # Errors
    /// Those of the call.
    fn relocate(
        &self,
        pid: Pid,
        addresses: &[u64],
        node: u32,
    ) -> io::Result<Vec<Option<PageStatus>>>;
}

/// Moves pages by the kernel's move_pages(2).
#[derive(Debug, Clone, Copy)]
pub struct Live(pub Reach);

impl Pages for Live {
    fn locate(&self, pid: Pid, addresses: &[u64]) -> io::Result<Vec<PageStatus>> {
        of_process(pid, living_thread, |task| pages::locate(task, addresses))
    }

    fn relocate(
        &self,
        pid: Pid,
        addresses: &[u64],
        node: u32,
    ) -> io::Result<Vec<Option<PageStatus>>> {
        of_process(pid, living_thread, |task| pages::relocate(task, addresses, node, self.0))
    }
}

/// Calls move_pages(2) for a process. A main thread that has ended has no memory, and the kernel
/// answers EINVAL. Another thread of the process has it still.
fn of_process<T>(
    pid: Pid,
    living_thread: impl Fn(Pid) -> Option<i32>,
    call: impl Fn(i32) -> io::Result<T>,
) -> io::Result<T> {
    match call(pid.0 as i32) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => match living_thread(pid) {
            Some(thread) => call(thread),
            None => Err(error),
        },
        done => done,
    }
}

fn living_thread(pid: Pid) -> Option<i32> {
    let living = living_threads(&Root::live(), pid).ok()?;
    i32::try_from(living.first()?.id).ok()
}

/// Moves shared pages in some ranges of addresses. Elsewhere it moves only pages that no other
/// process has mapped.
#[derive(Debug)]
pub struct InRanges<'a, K> {
    /// Mover of pages that only the process has mapped.
    pub own: &'a K,
    /// Mover of shared pages too.
    pub shared: &'a K,
    /// Ranges for `shared`: `(first address, one past the last)`.
    pub ranges: &'a [(u64, u64)],
}

impl<K: Pages> Pages for InRanges<'_, K> {
    fn locate(&self, pid: Pid, addresses: &[u64]) -> io::Result<Vec<PageStatus>> {
        self.own.locate(pid, addresses)
    }

    fn relocate(
        &self,
        pid: Pid,
        addresses: &[u64],
        node: u32,
    ) -> io::Result<Vec<Option<PageStatus>>> {
        let is_shared =
            |at: &u64| self.ranges.iter().any(|(start, end)| (start..end).contains(&at));
        let (shared, own): (Vec<u64>, Vec<u64>) = addresses.iter().partition(|at| is_shared(at));
        let ask = |kernel: &K, some: &[u64]| match some {
            [] => Ok(Vec::new()),
            some => kernel.relocate(pid, some, node),
        };
        let mut of_shared = ask(self.shared, &shared)?.into_iter();
        let mut of_own = ask(self.own, &own)?.into_iter();
        let status = |at| if is_shared(at) { of_shared.next() } else { of_own.next() };
        Ok(addresses.iter().map(status).map(Option::flatten).collect())
    }
}

/// The node that a page must be on to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Only the node that its move names. A page elsewhere was moved by another process, or its
    /// node was only assumed from its neighbours.
    Planned,
    /// Any node.
    Any,
}

/// Moves each page to its node and counts the results.
pub fn relocate(
    kernel: &impl Pages,
    pid: Pid,
    moves: &[PageMove],
    origin: Origin,
    topology: &Topology,
) -> StepResult {
    let mut counts = PageCounts::default();
    match relocate_all(kernel, pid, moves, origin, topology, &mut counts) {
        Ok(()) => StepResult::Pages(counts),
        // Pages moved before the process ended do not count, because they are freed.
        Err(error) if has_ended(&error) => StepResult::Gone,
        Err(error) if counts == PageCounts::default() => {
            StepResult::Refused { errno: error.raw_os_error().unwrap_or(libc::EIO) }
        }
        // Some calls succeeded. The remaining pages count as failed.
        Err(_) => {
            let told: u64 = counts.each().sum();
            counts.failed += moves.iter().map(base_pages).sum::<u64>().saturating_sub(told);
            StepResult::Pages(counts)
        }
    }
}

/// Whether an error of move_pages(2) means that the process has ended: ESRCH, or EINVAL where no
/// thread has memory (`find_mm_struct`, mm/migrate.c, Linux 6.12). The other arguments are
/// valid.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL))
}

fn relocate_all(
    kernel: &impl Pages,
    pid: Pid,
    moves: &[PageMove],
    origin: Origin,
    topology: &Topology,
    counts: &mut PageCounts,
) -> io::Result<()> {
    for (target, pages) in misplaced(kernel, pid, moves, origin, topology, counts)? {
        for call in calls(&pages) {
            relocate_call(kernel, pid, call, target, counts)?;
        }
    }
    Ok(())
}

/// The pages to move, by target, ascending by address. Counts the others.
fn misplaced(
    kernel: &impl Pages,
    pid: Pid,
    moves: &[PageMove],
    origin: Origin,
    topology: &Topology,
    counts: &mut PageCounts,
) -> io::Result<BTreeMap<u32, Vec<PageMove>>> {
    let mut by_target: BTreeMap<u32, Vec<PageMove>> = BTreeMap::new();
    let mut moves = moves.to_vec();
    moves.sort_unstable_by_key(|page| page.address);
    for part in moves.chunks(LOCATE_PAGES) {
        let addresses: Vec<u64> = part.iter().map(|page| page.address).collect();
        for (page, status) in part.iter().zip(kernel.locate(pid, &addresses)?) {
            let [planned, target] =
                [page.from, page.to].map(|node| topology.kernel_node(usize::from(node)));
            match status {
                Ok(node) if node == target => counts.in_place += base_pages(page),
                Ok(node) if origin == Origin::Planned && node != planned => {
                    counts.elsewhere += base_pages(page);
                }
                Ok(_) => by_target.entry(target).or_default().push(*page),
                Err(errno) => count_failure(counts, errno, base_pages(page)),
            }
        }
    }
    Ok(by_target)
}

/// Splits a list into parts of at most [`CALL_BASE_PAGES`]. A larger single page is a part.
fn calls(pages: &[PageMove]) -> impl Iterator<Item = &[PageMove]> {
    let mut rest = pages;
    std::iter::from_fn(move || {
        let mut size = 0;
        let fits = |page: &&PageMove| {
            size += base_pages(page);
            size <= CALL_BASE_PAGES
        };
        let length = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (part, others) = rest.split_at(length);
        rest = others;
        (!part.is_empty()).then_some(part)
    })
}

fn relocate_call(
    kernel: &impl Pages,
    pid: Pid,
    part: &[PageMove],
    target: u32,
    counts: &mut PageCounts,
) -> io::Result<()> {
    let addresses: Vec<u64> = part.iter().map(|page| page.address).collect();
    for (page, status) in part.iter().zip(move_to(kernel, pid, &addresses, target)?) {
        match status {
            Ok(node) if node == target => counts.moved += base_pages(page),
            Ok(_) => counts.failed += base_pages(page),
            Err(errno) => count_failure(counts, errno, base_pages(page)),
        }
    }
    Ok(())
}

/// Moves pages to one node with one call. Returns for each page its present node, or the error
/// number that kept it from moving.
///
/// # Errors
/// Those of the call, except ENOMEM, which becomes the status of the affected pages.
pub(crate) fn move_to(
    kernel: &impl Pages,
    pid: Pid,
    addresses: &[u64],
    target: u32,
) -> io::Result<Vec<PageStatus>> {
    let (statuses, why) = match kernel.relocate(pid, addresses, target) {
        // A page without a status was busy at each of the kernel's ten attempts.
        Ok(statuses) => (statuses, libc::EBUSY),
        Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
            (vec![None; addresses.len()], libc::ENOMEM)
        }
        Err(error) => return Err(error),
    };
    // The kernel reports a second part of a page that is already moving as busy too.
    let is_open = |status: &Option<PageStatus>| matches!(status, None | Some(Err(libc::EBUSY)));
    let open = addresses.iter().zip(&statuses).filter(|(_, status)| is_open(status));
    let open: Vec<u64> = open.map(|(address, _)| *address).collect();
    let located = if open.is_empty() { Vec::new() } else { kernel.locate(pid, &open)? };
    let mut located = located.into_iter();
    let settle = |status: Option<PageStatus>| match status {
        Some(status) if !is_open(&Some(status)) => status,
        _ => match located.next() {
            Some(Ok(node)) if node != target => Err(why),
            status => status.unwrap_or(Err(why)),
        },
    };
    Ok(statuses.into_iter().map(settle).collect())
}

/// Counts pages that did not move by the cause.
pub(crate) fn count_failure(counts: &mut PageCounts, errno: i32, pages: u64) {
    let of = match errno {
        // Nothing is mapped there, or it is the shared zero page.
        libc::ENOENT | libc::EFAULT => &mut counts.absent,
        libc::EBUSY | libc::EAGAIN => &mut counts.busy,
        libc::ENOMEM => &mut counts.no_memory,
        _ => &mut counts.failed,
    };
    *of += pages;
}

fn base_pages(page: &PageMove) -> u64 {
    page.bytes().0.div_ceil(4096)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use rondpoint_core::topology::synthetic;

    use super::*;

    /// Pages by number: where each lies, or what is the matter with it.
    #[derive(Default)]
    struct Stand {
        pages: RefCell<BTreeMap<u64, Result<u32, i32>>>,
        /// Errors of moving, by page.
        stuck: BTreeMap<u64, i32>,
        /// Free pages of node 3.
        free: Cell<usize>,
        calls: RefCell<Vec<(u32, usize)>>,
        /// After this number of calls the process has ended, with this error.
        ends_after: Option<(usize, i32)>,
    }

    impl Stand {
        fn on_node_0(pages: u64) -> Self {
            let pages = (0..pages).map(|page| (page << 12, Ok(0))).collect();
            Self { pages: RefCell::new(pages), free: Cell::new(usize::MAX), ..Self::default() }
        }
    }

    impl Pages for Stand {
        fn locate(&self, _: Pid, addresses: &[u64]) -> io::Result<Vec<PageStatus>> {
            let pages = self.pages.borrow();
            Ok(addresses
                .iter()
                .map(|at| pages.get(at).copied().unwrap_or(Err(libc::ENOENT)))
                .collect())
        }

        fn relocate(
            &self,
            _: Pid,
            addresses: &[u64],
            node: u32,
        ) -> io::Result<Vec<Option<PageStatus>>> {
            if let Some((calls, errno)) = self.ends_after
                && calls == self.calls.borrow().len()
            {
                return Err(io::Error::from_raw_os_error(errno));
            }
            self.calls.borrow_mut().push((node, addresses.len()));
            let mut untold = false;
            let mut statuses = Vec::new();
            for at in addresses {
                match self.stuck.get(at) {
                    Some(&libc::EBUSY) => untold = true,
                    Some(&errno) => {
                        statuses.push(Some(Err(errno)));
                        continue;
                    }
                    None if node == 3 && self.free.get() == 0 => {
                        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
                    }
                    None => {
                        self.free.set(self.free.get() - usize::from(node == 3));
                        self.pages.borrow_mut().insert(*at, Ok(node));
                    }
                }
                statuses.push((!untold).then_some(Ok(node)));
            }
            Ok(statuses)
        }
    }

    fn moves(pages: impl Iterator<Item = u64>, to: u16) -> Vec<PageMove> {
        pages.map(|page| PageMove { address: page << 12, shift: 12, from: 0, to }).collect()
    }

    fn run(stand: &Stand, moves: &[PageMove]) -> StepResult {
        let machine = synthetic::parse("node:4 core:1").unwrap();
        relocate(stand, Pid(1), moves, Origin::Planned, &machine)
    }

    #[test]
    fn pages_go_target_by_target_in_few_calls_and_those_in_place_stay() {
        let stand = Stand::on_node_0(10_000);
        stand.pages.borrow_mut().insert(5 << 12, Ok(1));
        let mut all = moves((0..5000).rev(), 1);
        all.extend(moves(5000..10_001, 2));
        let result = run(&stand, &all);
        let counts = PageCounts { moved: 9_999, in_place: 1, absent: 1, ..PageCounts::default() };
        assert_eq!(result, StepResult::Pages(counts));
        assert_eq!(*stand.calls.borrow(), [(1, 4096), (1, 903), (2, 4096), (2, 904)]);
    }

    #[test]
    fn pages_that_others_have_mapped_are_moved_where_that_is_allowed_only() {
        let refused = (0..6).map(|page| (page << 12, libc::EACCES)).collect();
        let alone = Stand { stuck: refused, ..Stand::on_node_0(6) };
        let several = Stand::on_node_0(6);
        let ranges = [(0x1000, 0x3000)];
        let kernel = InRanges { own: &alone, shared: &several, ranges: &ranges };
        let addresses: Vec<u64> = [0, 1, 2, 3].map(|page| page << 12).to_vec();
        let statuses = kernel.relocate(Pid(1), &addresses, 2).unwrap();
        let no = Some(Err(libc::EACCES));
        assert_eq!(statuses, [no, Some(Ok(2)), Some(Ok(2)), no]);
        assert_eq!(*several.calls.borrow(), [(2, 2)]);
    }

    #[test]
    fn a_page_that_is_elsewhere_by_now_is_moved_only_if_any_will_do() {
        let stand = Stand::on_node_0(3);
        stand.pages.borrow_mut().insert(1 << 12, Ok(3));
        let counts = PageCounts { moved: 2, elsewhere: 1, ..PageCounts::default() };
        assert_eq!(run(&stand, &moves(0..3, 1)), StepResult::Pages(counts));
        let machine = synthetic::parse("node:4 core:1").unwrap();
        let result = relocate(&stand, Pid(1), &moves(0..3, 1), Origin::Any, &machine);
        let counts = PageCounts { moved: 1, in_place: 2, ..PageCounts::default() };
        assert_eq!(result, StepResult::Pages(counts));
    }

    #[test]
    fn every_page_that_cannot_move_is_counted_by_its_cause() {
        let mut stand = Stand::on_node_0(10);
        stand.stuck =
            [(2 << 12, libc::EBUSY), (4 << 12, libc::EACCES), (5 << 12, libc::EFAULT)].into();
        let counts =
            PageCounts { moved: 7, busy: 1, failed: 1, absent: 1, ..PageCounts::default() };
        assert_eq!(run(&stand, &moves(0..10, 1)), StepResult::Pages(counts));
    }

    #[test]
    fn a_full_node_takes_what_it_can() {
        let stand = Stand::on_node_0(10);
        stand.free.set(4);
        let counts = PageCounts { moved: 4, no_memory: 6, ..PageCounts::default() };
        assert_eq!(run(&stand, &moves(0..10, 3)), StepResult::Pages(counts));
    }

    #[test]
    fn a_process_that_ends_meanwhile_is_gone() {
        for errno in [libc::ESRCH, libc::EINVAL] {
            let mut stand = Stand::on_node_0(10);
            stand.ends_after = Some((1, errno));
            let mut all = moves(0..5, 1);
            all.extend(moves(5..10, 2));
            assert_eq!(run(&stand, &all), StepResult::Gone);
        }
    }

    #[test]
    fn where_the_main_thread_has_ended_another_one_stands_for_the_process() {
        let moved = |living: Option<i32>| {
            let call = |task| match task {
                9 => Ok("moved"),
                _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            };
            of_process(Pid(7), |_| living, call).map_err(|error| error.raw_os_error())
        };
        assert_eq!(moved(Some(9)), Ok("moved"));
        assert_eq!(moved(None), Err(Some(libc::EINVAL)), "all have ended");
        let own = Pid(std::process::id());
        assert!(living_thread(own).is_some());
    }

    #[test]
    fn huge_pages_are_few_to_a_call() {
        let page = |index: u64| PageMove { address: index << 21, shift: 21, from: 0, to: 1 };
        let pages: Vec<PageMove> = (0..20).map(page).collect();
        assert_eq!(calls(&pages).map(<[PageMove]>::len).collect::<Vec<_>>(), [8, 8, 4]);
        let giant = [PageMove { address: 0, shift: 30, from: 0, to: 1 }];
        assert_eq!(calls(&giant).count(), 1);
    }

    #[test]
    fn a_refusal_of_the_whole_call_is_one_outcome() {
        let result = relocate(
            &Live(Reach::Own),
            Pid(i32::MAX as u32),
            &moves(1..2, 0),
            Origin::Planned,
            &synthetic::parse("node:1").unwrap(),
        );
        assert_eq!(result, StepResult::Gone);
    }

    #[test]
    fn one_that_has_ended_and_waits_to_be_buried_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid(child.id());
        let status = format!("/proc/{pid}/stat");
        while !std::fs::read_to_string(&status).unwrap().contains(") Z") {
            std::thread::yield_now();
        }
        let machine = synthetic::parse("node:1").unwrap();
        let moves = moves(1..2, 0);
        let result = relocate(&Live(Reach::Own), pid, &moves, Origin::Planned, &machine);
        assert_eq!(result, StepResult::Gone);
        child.wait().unwrap();
    }
}
