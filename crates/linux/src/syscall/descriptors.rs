//! Descriptors that stay free. Events and files of `/proc` are kept open. They leave some
//! descriptors for what is opened for a moment: to look at processes, to write down, to put back.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// Most descriptors to leave free (our choice), for files of `/proc` in each look. A session holds
/// its ledger, its guardian and a descriptor of each process.
const LEFT: u64 = 256;

/// Descriptors with this number or a higher one are not kept open.
static END: AtomicI32 = AtomicI32::new(i32::MAX);

/// Leaves a quarter of the allowed descriptors free from now on, at most [`LEFT`].
pub fn leave_some(allowed: u64) {
    let end = allowed - LEFT.min(allowed / 4);
    END.store(i32::try_from(end).unwrap_or(i32::MAX), Ordering::Relaxed);
}

/// Whether a newly opened descriptor may be kept open. POSIX gives it the lowest free number, so
/// all lower ones are in use.
#[must_use]
pub fn may_keep(descriptor: BorrowedFd<'_>) -> bool {
    descriptor.as_raw_fd() < END.load(Ordering::Relaxed)
}
