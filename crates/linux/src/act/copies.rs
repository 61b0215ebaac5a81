//! Copies of pages on other nodes: made and dropped with `process_madvise(2)`, where the kernel
//! replicates. The result for each page is read from `/proc/PID/numa_copies`.

use std::io;
use std::os::fd::AsFd as _;

use rondpoint_core::plan::{PageCounts, PageMove, StepResult};

use super::Identity;
use crate::LinuxError;
use crate::lines::Lines;
use crate::parse::numa_copies;
use crate::root::Root;
use crate::syscall::advice::{self, Advice, MOST_RANGES};
use crate::syscall::memory::page_bytes;
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
    told(carried_out(root, process, &ranges_of(pages), advice))
}

/// Drops the copies in ranges of an earlier manager's ledger.
pub fn drop_copies(root: &Root, process: Identity, ranges: &[(u64, u64)]) -> StepResult {
    if !is_offered(root) {
        return StepResult::Unsupported;
    }
    told(carried_out(root, process, ranges, Advice::Unreplicate))
}

fn told(result: Result<PageCounts, LinuxError>) -> StepResult {
    match result {
        Ok(counts) => StepResult::Pages(counts),
        Err(error) => match error.errno() {
            Some(libc::ESRCH) => StepResult::Gone,
            errno => StepResult::Refused { errno: errno.unwrap_or(libc::EIO) },
        },
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
    let before = bytes_with_copies(root, process, ranges)?;
    let short = give(root, process, ranges, advice)?;
    let after = bytes_with_copies(root, process, ranges)?;
    let pages = |bytes: u64| bytes / page_bytes() as u64;
    let (in_place, moved, left) = match advice {
        Advice::Replicate => (before, after.saturating_sub(before), asked - after.max(before)),
        Advice::Unreplicate => (asked - before, before.saturating_sub(after), after),
    };
    let missing = pages(left);
    let no_memory = if short { missing } else { 0 };
    Ok(PageCounts {
        moved: pages(moved),
        in_place: pages(in_place),
        no_memory,
        // These pages are pinned, under I/O, written too often, or absent.
        busy: missing - no_memory,
        ..PageCounts::default()
    })
}

/// Gives the advice for all ranges, and goes on behind a range that the kernel refuses. Returns
/// whether memory was short.
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
    let mut short = false;
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
                    short = true;
                    left = &left[1..];
                }
                Some(libc::EINVAL) => left = &left[1..],
                _ => return Err(failed(error)),
            },
        }
    }
    Ok(short)
}

/// Bytes of the ranges that have copies now.
fn bytes_with_copies(root: &Root, process: Identity, ranges: &Ranges) -> Result<u64, LinuxError> {
    let path = root.in_proc(format!("{}/numa_copies", process.pid.0));
    let Some(mut lines) = Lines::open(&path)? else { return Ok(0) };
    let mut bytes = 0;
    while let Some((number, line)) = lines.next_line()? {
        let run = numa_copies::run_of(number, line).map_err(|source| lines.format(source))?;
        if run.nodes.is_empty() {
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

    fn page(address: u64) -> PageMove {
        PageMove { address, shift: 12, from: 0, to: 0 }
    }

    #[test]
    fn neighbouring_pages_become_one_range() {
        let pages = [page(0x5000), page(0x1000), page(0x2000), page(0x1000)];
        assert_eq!(ranges_of(&pages), [(0x1000, 0x3000), (0x5000, 0x6000)]);
        assert_eq!(ranges_of(&[]), []);
    }

    #[test]
    fn copies_are_counted_within_what_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::captured(folder.path());
        std::fs::create_dir_all(root.in_proc("7")).unwrap();
        let text = "1000-4000 nodes=1 collapses=0\n5000-6000 nodes= collapses=2\n";
        std::fs::write(root.in_proc("7/numa_copies"), text).unwrap();
        let process = Identity { pid: Pid(7), started: Nanos(0) };
        let count = |ranges: &Ranges| bytes_with_copies(&root, process, ranges);
        assert_eq!(count(&[(0x2000, 0x3000), (0x3000, 0x6000)]).unwrap(), 0x2000);
        assert_eq!(count(&[(0x8000, 0x9000)]).unwrap(), 0);
    }

    #[test]
    fn a_kernel_without_replication_offers_none() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::captured(folder.path());
        let process = Identity { pid: Pid(7), started: Nanos(0) };
        let result = step(&root, process, &[page(0x1000)], Advice::Replicate);
        assert_eq!(result, StepResult::Unsupported);
    }
}
