//! Copies of pages on other nodes: made and dropped with `process_madvise(2)`, where the kernel
//! replicates. The result for each page is read from `/proc/PID/numa_copies`.

use std::io;
use std::os::fd::AsFd as _;

use rondpoint_core::plan::{PageCounts, PageMove, StepResult};

use super::Identity;
use crate::LinuxError;
use crate::lines::Lines;
use crate::parse::{cpulist, numa_copies, status};
use crate::root::{Root, read_optional};
use crate::syscall::advice::{self, Advice, MOST_RANGES};
use crate::syscall::memory::page_bytes;
use crate::syscall::pages;
use crate::syscall::process::watch_end;

/// Ranges of addresses `(first, one past the last)`, ascending and separate.
type Ranges = [(u64, u64)];

/// Gives the advice for these pages and counts the results.
pub(super) fn step(
    root: &Root,
    process: Identity,
    pages: &[PageMove],
    advice: Advice,
) -> StepResult {
    if !is_offered(root) {
        return StepResult::Unsupported;
    }
    told(carried_out(root, process, &ranges_of(pages), advice), advice)
}

/// Drops the copies in ranges of an earlier manager's ledger.
pub fn drop_copies(root: &Root, process: Identity, ranges: &[(u64, u64)]) -> StepResult {
    if !is_offered(root) {
        return StepResult::Unsupported;
    }
    told(carried_out(root, process, ranges, Advice::Unreplicate), Advice::Unreplicate)
}

fn told(result: Result<PageCounts, LinuxError>, advice: Advice) -> StepResult {
    let error = match result {
        Ok(counts) => return StepResult::Pages(counts),
        Err(error) => error,
    };
    match (error.errno(), advice) {
        (Some(libc::ESRCH), _) => StepResult::Gone,
        // No process can get copies. EPERM: this process lacks CAP_SYS_NICE (process_madvise(2)).
        // EOPNOTSUPP: a hypervisor owns the page tables, or fewer than two nodes have CPUs and
        // memory.
        (Some(libc::EPERM | libc::EOPNOTSUPP), Advice::Replicate) => StepResult::Unsupported,
        (errno, _) => StepResult::Refused { errno: errno.unwrap_or(libc::EIO) },
    }
}

/// Whether the kernel has NUMA replication.
#[must_use]
pub fn is_offered(root: &Root) -> bool {
    root.in_proc("self/numa_copies").exists()
}

/// The ranges of pages; adjacent pages become one range.
#[must_use]
pub fn ranges_of(pages: &[PageMove]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> =
        pages.iter().map(|page| (page.address, page.address + page.bytes().0)).collect();
    all.sort_unstable();
    let mut ranges = Vec::<(u64, u64)>::new();
    for (start, end) in all {
        match ranges.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => ranges.push((start, end)),
        }
    }
    ranges
}

fn carried_out(
    root: &Root,
    process: Identity,
    ranges: &Ranges,
    advice: Advice,
) -> Result<PageCounts, LinuxError> {
    let asked: u64 = ranges.iter().map(|(start, end)| end - start).sum();
    let least = match advice {
        Advice::Replicate => copies_of_a_page(root, process)?,
        Advice::Unreplicate => 1,
    };
    let before = bytes_with_copies(root, process, ranges, least)?;
    let enomem = give(root, process, ranges, advice)?;
    let after = bytes_with_copies(root, process, ranges, least)?;
    // A page that keeps its copies is not absent, and ranges of a ledger may be of any length.
    let absent = enomem.then(|| match advice {
        Advice::Replicate => absent_pages(process, ranges),
        Advice::Unreplicate => 0,
    });
    Ok(counts(advice, asked, (before, after), absent))
}

/// The counts of pages, from the bytes asked for, and the bytes with copies before and after.
/// `absent` is the number of absent pages if the kernel answered ENOMEM.
fn counts(
    advice: Advice,
    asked: u64,
    (before, after): (u64, u64),
    absent: Option<u64>,
) -> PageCounts {
    let pages = |bytes: u64| bytes / page_bytes() as u64;
    let (in_place, moved, left) = match advice {
        Advice::Replicate => (before, after.saturating_sub(before), asked - after.max(before)),
        Advice::Unreplicate => (asked - before, before.saturating_sub(after), after),
    };
    let missing = pages(left);
    let (absent, no_memory) = match (absent, advice) {
        (Some(absent), Advice::Replicate) => (absent.min(missing), missing.saturating_sub(absent)),
        (Some(_), Advice::Unreplicate) => (0, missing),
        (None, _) => (0, 0),
    };
    PageCounts {
        moved: pages(moved),
        in_place: pages(in_place),
        absent,
        no_memory,
        // These pages are pinned, under I/O, written too often, or absent.
        busy: missing - absent - no_memory,
        ..PageCounts::default()
    }
}

/// Number of copies of a page that no node lacks. Each node with CPUs and memory that the process's
/// cpuset allows has one, but the node of the page itself. If that node has no CPUs, one more copy
/// is possible, and a page without it counts as whole. The result is 1 where the kernel names no
/// nodes.
fn copies_of_a_page(root: &Root, process: Identity) -> Result<usize, LinuxError> {
    let read = |name: &str| {
        let path = root.in_sys(format!("devices/system/node/{name}"));
        let bytes = read_optional(&path)?.unwrap_or_default();
        cpulist::parse(&bytes).map_err(|source| LinuxError::Format { path, source })
    };
    let (mut nodes, with_memory) = (read("has_cpu")?, read("has_memory")?);
    let path = root.in_proc(format!("{}/status", process.pid.0));
    let text = read_optional(&path)?.unwrap_or_default();
    let found = status::parse(&text).map_err(|source| LinuxError::Format { path, source })?;
    let is_allowed =
        |node: &u32| found.nodes_allowed.as_ref().is_none_or(|allowed| allowed.contains(node));
    nodes.retain(|node| with_memory.contains(node) && is_allowed(node));
    Ok(nodes.len().saturating_sub(1).max(1))
}

/// Pages of the ranges that are not mapped or were never touched. The kernel answers ENOMEM for a
/// hole too, not only if memory is short. 0 if the kernel does not tell where the pages lie.
fn absent_pages(process: Identity, ranges: &Ranges) -> u64 {
    let addresses: Vec<u64> =
        ranges.iter().flat_map(|&(start, end)| (start..end).step_by(page_bytes())).collect();
    let found = pages::locate(process.pid.0 as i32, &addresses).unwrap_or_default();
    let is_absent =
        |status: &&pages::PageStatus| matches!(status, Err(libc::ENOENT | libc::EFAULT));
    found.iter().filter(is_absent).count() as u64
}

/// Gives the advice for all ranges, and goes on behind a range that the kernel refuses. Returns
/// whether it answered ENOMEM.
fn give(
    root: &Root,
    process: Identity,
    ranges: &Ranges,
    advice: Advice,
) -> Result<bool, LinuxError> {
    let failed =
        |source| LinuxError::io(&root.in_proc(process.pid.0.to_string()), "advise", source);
    let handle = watch_end(process.pid.0 as i32).map_err(failed)?;
    // The number may have been reused before the descriptor was opened.
    if !process.is_there(root) {
        return Err(failed(io::Error::from_raw_os_error(libc::ESRCH)));
    }
    let lengths: Vec<(u64, u64)> =
        ranges.iter().map(|(start, end)| (*start, end - start)).collect();
    let mut left = &lengths[..];
    let mut enomem = false;
    while !left.is_empty() {
        let call = &left[..left.len().min(MOST_RANGES)];
        match advice::give(handle.as_fd(), call, advice) {
            Ok(taken) => {
                let mut sum = 0;
                let whole = call.iter().take_while(|(_, bytes)| {
                    sum += bytes;
                    sum <= taken
                });
                // A range that the kernel took in part begins the next call, which refuses it.
                left = &left[whole.count().max(1)..];
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOMEM) => {
                    enomem = true;
                    left = &left[1..];
                }
                Some(libc::EINVAL) => left = &left[1..],
                _ => return Err(failed(error)),
            },
        }
    }
    Ok(enomem)
}

/// Bytes of the ranges whose pages have at least this many copies now.
fn bytes_with_copies(
    root: &Root,
    process: Identity,
    ranges: &Ranges,
    least: usize,
) -> Result<u64, LinuxError> {
    let path = root.in_proc(format!("{}/numa_copies", process.pid.0));
    let Some(mut lines) = Lines::open(&path)? else { return Ok(0) };
    let mut bytes = 0;
    while let Some((number, line)) = lines.next_line()? {
        let run = numa_copies::run_of(number, line).map_err(|source| lines.format(source))?;
        if run.nodes.len() < least {
            continue;
        }
        let first = ranges.partition_point(|(_, end)| *end <= run.start);
        let inside = ranges[first..].iter().take_while(|(start, _)| *start < run.end);
        bytes += inside.map(|(start, end)| run.end.min(*end) - run.start.max(*start)).sum::<u64>();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use rondpoint_core::{Nanos, Pid};

    use super::*;
    use crate::syscall::memory::Anonymous;

    fn page(address: u64) -> PageMove {
        PageMove { address, shift: 12, from: 0, to: 0 }
    }

    #[test]
    fn neighbouring_pages_become_one_range() {
        let pages = [page(0x5000), page(0x1000), page(0x2000), page(0x1000)];
        assert_eq!(ranges_of(&pages), [(0x1000, 0x3000), (0x5000, 0x6000)]);
        assert_eq!(ranges_of(&[]), []);
    }

    const PROCESS: Identity = Identity { pid: Pid(7), started: Nanos(0) };

    #[test]
    fn copies_are_counted_within_what_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::captured(folder.path());
        std::fs::create_dir_all(root.in_proc("7")).unwrap();
        let text = "1000-4000 nodes=1 collapses=0\n5000-6000 nodes= collapses=2\n";
        std::fs::write(root.in_proc("7/numa_copies"), text).unwrap();
        let count = |ranges: &Ranges| bytes_with_copies(&root, PROCESS, ranges, 1);
        assert_eq!(count(&[(0x2000, 0x3000), (0x3000, 0x6000)]).unwrap(), 0x2000);
        assert_eq!(count(&[(0x8000, 0x9000)]).unwrap(), 0);
    }

    /// Node 4 has memory and no CPUs, and the cpuset of the process excludes node 3.
    #[test]
    fn a_page_that_lacks_a_copy_on_one_node_is_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::captured(folder.path());
        assert_eq!(copies_of_a_page(&root, PROCESS).unwrap(), 1, "no node is named");
        let nodes = root.in_sys("devices/system/node");
        std::fs::create_dir_all(&nodes).unwrap();
        std::fs::create_dir_all(root.in_proc("7")).unwrap();
        std::fs::write(nodes.join("has_cpu"), "0-3\n").unwrap();
        std::fs::write(nodes.join("has_memory"), "0-4\n").unwrap();
        assert_eq!(copies_of_a_page(&root, PROCESS).unwrap(), 3);
        std::fs::write(root.in_proc("7/status"), "Mems_allowed_list:\t0-2,4\n").unwrap();
        let least = copies_of_a_page(&root, PROCESS).unwrap();
        assert_eq!(least, 2);
        let text = "1000-2000 nodes=1 collapses=0\n2000-4000 nodes=1-2 collapses=0\n";
        std::fs::write(root.in_proc("7/numa_copies"), text).unwrap();
        let count = |least| bytes_with_copies(&root, PROCESS, &[(0x1000, 0x4000)], least).unwrap();
        assert_eq!((count(least), count(1)), (0x2000, 0x3000));
    }

    #[test]
    fn a_refusal_of_all_copies_is_told_apart_from_one_of_this_process() {
        let refused = |errno| StepResult::Refused { errno };
        let (make, drop) = (Advice::Replicate, Advice::Unreplicate);
        for (errno, advice, expected) in [
            (libc::EPERM, make, StepResult::Unsupported),
            (libc::EOPNOTSUPP, make, StepResult::Unsupported),
            (libc::ESRCH, make, StepResult::Gone),
            (libc::EACCES, make, refused(libc::EACCES)),
            (libc::EINTR, make, refused(libc::EINTR)),
            // Copies are left, and `restore` says why.
            (libc::EPERM, drop, refused(libc::EPERM)),
            (libc::ESRCH, drop, StepResult::Gone),
        ] {
            let source = io::Error::from_raw_os_error(errno);
            let error = LinuxError::io(std::path::Path::new("/proc/7"), "advise", source);
            assert_eq!(told(Err(error), advice), expected, "{errno} {advice:?}");
        }
    }

    #[test]
    fn absent_pages_are_not_told_as_lack_of_memory() {
        let page = page_bytes() as u64;
        let counts = |absent| counts(Advice::Replicate, 8 * page, (page, 3 * page), absent);
        let expected = PageCounts { moved: 2, in_place: 1, busy: 5, ..PageCounts::default() };
        assert_eq!(counts(None), expected);
        assert_eq!(counts(Some(0)), PageCounts { busy: 0, no_memory: 5, ..expected });
        assert_eq!(counts(Some(4)), PageCounts { busy: 0, no_memory: 1, absent: 4, ..expected });
        assert_eq!(counts(Some(9)), PageCounts { busy: 0, absent: 5, ..expected });
    }

    #[test]
    fn a_page_that_nothing_touched_is_absent() {
        let memory = Anonymous::new(2 * page_bytes()).unwrap();
        let (start, page) = (memory.address(), page_bytes() as u64);
        let own = Identity { pid: Pid(std::process::id()), ..PROCESS };
        let absent =
            || absent_pages(own, &[(start, start + page), (start + page, start + 2 * page)]);
        assert_eq!(absent(), 2);
        memory.touch_every(page_bytes());
        assert_eq!(absent(), 0);
    }

    #[test]
    fn pages_that_keep_their_copies_are_never_told_as_absent() {
        let page = page_bytes() as u64;
        let found = counts(Advice::Unreplicate, 8 * page, (3 * page, 2 * page), Some(4));
        let expected = PageCounts { moved: 1, in_place: 5, no_memory: 2, ..PageCounts::default() };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_kernel_without_replication_offers_none() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::captured(folder.path());
        let result = step(&root, PROCESS, &[page(0x1000)], Advice::Replicate);
        assert_eq!(result, StepResult::Unsupported);
    }
}
