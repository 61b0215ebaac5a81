//! Descriptors that stay free. Events and files of `/proc` are kept open. They leave some
//! descriptors for what is opened for a moment: to look at processes, to write down, to put back.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Descriptors that stay free, at most. Each look opens files of `/proc`. A session holds its
/// ledger, its guardian and a descriptor of each process.
const LEFT: u64 = 256;

/// Nothing is kept in a descriptor with this number or a higher one.
static END: AtomicI32 = AtomicI32::new(i32::MAX);

/// From now on a quarter of the allowed descriptors, or [`LEFT`], stays free.
pub fn leave_some(allowed: u64) {
    let end = allowed - LEFT.min(allowed / 4);
    END.store(i32::try_from(end).unwrap_or(i32::MAX), Ordering::Relaxed);
}

/// Whether a descriptor that was just opened may be kept. It has the lowest number that was free
/// (POSIX), so all below are taken.
#[must_use]
pub fn may_keep(descriptor: BorrowedFd<'_>) -> bool {
    descriptor.as_raw_fd() < END.load(Ordering::Relaxed)
}
