//! Reads signals that end a command, even while the reader of its output blocks.

use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result};
use rondpoint_linux::syscall::signal::{self, Signals};

use super::{ENDING, REAL_TIME, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};

/// A timeout of poll(2) that never passes.
const FOREVER: i32 = -1;

/// For commands that can be stopped: from now on the signals that would end this process are only
/// read.
pub(crate) fn stop_signals() -> Result<OwnedFd> {
    let endings = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    // Where a file may not grow the write says so.
    let ending = ENDING.into_iter().filter(|&number| number != SIGXFSZ);
    let read: Vec<i32> = endings.into_iter().chain(ending).chain(REAL_TIME).collect();
    let signals = Signals::of(&read);
    signal::block(&signals).context("blocking signals")?;
    signal::block(&Signals::of(&[SIGXFSZ])).context("blocking signals")?;
    signal::descriptor(&signals).context("reading signals")
}

/// Whether one of [`stop_signals`] has arrived.
pub(crate) fn has_stopped(arriving: BorrowedFd<'_>) -> bool {
    matches!(signal::next(arriving), Ok(Some(_)))
}

/// Waits until `reader` takes bytes. False where `has_stopped` says so of what has arrived before.
pub(crate) fn wait_for_room(
    arriving: BorrowedFd<'_>,
    reader: BorrowedFd<'_>,
    mut has_stopped: impl FnMut() -> Result<bool>,
) -> Result<bool> {
    loop {
        let ready = signal::wait_ready(&[arriving], &[reader], FOREVER)?;
        if ready[1] {
            return Ok(true);
        }
        if has_stopped()? {
            return Ok(false);
        }
    }
}
