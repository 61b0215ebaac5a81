//! Every raw system call of the product, each behind a safe function with its reason and a test.
//!
//! Nothing else in the workspace's product crates may write `unsafe`. The functions here do no more
//! than the call itself: no policy, no retry but for EINTR, no interpretation.

#![allow(unsafe_code, reason = "the one module that talks to the kernel by hand")]

pub mod advice;
pub mod affinity;
pub mod descriptors;
pub mod dispositions;
pub mod guardian;
pub mod limits;
pub mod memory;
pub mod pagemap;
pub mod pages;
pub mod peer;
pub mod perf;
pub mod process;
pub mod refusal;
pub mod scheduler;
pub mod signal;
pub mod time;

use std::io;

/// The result of a C call that returns -1 and sets `errno`.
fn check(result: i64) -> io::Result<i64> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Repeats a call for as long as a signal interrupts it.
fn retry(mut call: impl FnMut() -> i64) -> io::Result<i64> {
    loop {
        match check(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
