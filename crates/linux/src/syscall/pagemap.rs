//! The `PAGEMAP_SCAN` ioctl of `/proc/PID/pagemap` (Linux 6.7): which pages are there, as runs.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// A run of pages of one kind, `struct page_region` of include/uapi/linux/fs.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Bits of [`PRESENT`] and [`HUGE`].
    pub categories: u64,
}

/// Category: the page is in memory (`PAGE_IS_PRESENT`).
pub const PRESENT: u64 = 1 << 3;
/// Category: the shared zero page (`PAGE_IS_PFNZERO`).
const ZEROS: u64 = 1 << 5;
/// Category: mapped as a whole huge page, transparent or of hugetlb (`PAGE_IS_HUGE`).
pub const HUGE: u64 = 1 << 6;

/// `struct pm_scan_arg` of include/uapi/linux/fs.h.
#[repr(C)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = 0xc060_6610;

/// Finds runs of present pages, except zero pages, from `start` up to `end`, until `into` is full.
/// Returns the number of runs and the address up to which it searched.
///
/// # Errors
/// ENOTTY before Linux 6.7. EINVAL or ESRCH: the process has freed its memory.
pub fn scan(
    pagemap: BorrowedFd<'_>,
    start: u64,
    end: u64,
    into: &mut [Region],
) -> io::Result<(usize, u64)> {
    let mut argument = Argument {
        size: size_of::<Argument>() as u64,
        flags: 0,
        start,
        end,
        walk_end: 0,
        vec: into.as_mut_ptr() as u64,
        vec_len: into.len() as u64,
        max_pages: 0,
        category_inverted: ZEROS,
        category_mask: PRESENT | ZEROS,
        category_anyof_mask: 0,
        return_mask: PRESENT | HUGE,
    };
    // SAFETY: the kernel reads and writes one `Argument` of the size that it is told. It writes at
    // most `vec_len` regions into `into`. Both live through the call.
    let found = check(i64::from(unsafe {
        libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut argument)
    }))?;
    Ok((usize::try_from(found).map_err(io::Error::other)?, argument.walk_end))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;
    use crate::syscall::memory::{Anonymous, page_bytes};

    #[test]
    fn pages_that_are_there_are_found_and_others_are_not() {
        let page = page_bytes() as u64;
        let memory = Anonymous::new(64 * page_bytes()).unwrap();
        let end = memory.address() + 64 * page;
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        let mut regions = [Region::default(); 100];
        let mut pages = || match scan(pagemap.as_fd(), memory.address(), end, &mut regions) {
            Ok((found, up_to)) => {
                assert_eq!(up_to, end);
                let pages = |region: &Region| (region.end - region.start) / page;
                Some(regions[..found].iter().map(pages).sum::<u64>())
            }
            // A kernel before 6.7: the callers have another way.
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
                None
            }
        };
        let before = pages();
        memory.touch_every(2 * page_bytes());
        let after = pages();
        // Every second page was touched; with huge pages of less than 64 there may be more.
        assert!(
            before.is_none() || (before == Some(0) && after >= Some(32)),
            "{before:?} {after:?}"
        );
    }
}
