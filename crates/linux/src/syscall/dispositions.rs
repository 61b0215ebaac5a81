//! What the caller of this process has set for signals, and what this process needs.
//!
//! execve(2) keeps ignored signals ignored. Rust's runtime then ignores SIGPIPE before `main`, so
//! the caller's setting is read earlier.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the caller ignored SIGPIPE, as systemd does for its services (`IgnoreSIGPIPE=`).
static IGNORED_PIPE: AtomicBool = AtomicBool::new(false);

/// Run by the C library before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    IGNORED_PIPE.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

/// Whether this process ignores a signal, as `nohup` and shells have it for what they start.
#[must_use]
pub fn is_ignored(number: i32) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null pointer changes nothing, and the kernel fills `now` unless it fails.
    unsafe {
        libc::sigaction(number, ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Gives SIGPIPE the caller's disposition. For the child between `fork` and `execve`.
pub(super) fn give_back_pipe() {
    if !IGNORED_PIPE.load(Ordering::Relaxed) {
        // SAFETY: async-signal-safe, and no handler is installed.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
}

/// Keeps ended children until they are waited for. A caller that ignored SIGCHLD would otherwise
/// have the kernel reap them: without a signal, and their numbers would be given anew.
pub fn keep_ended_children() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}
