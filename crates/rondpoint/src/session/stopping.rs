//! Reads signals that end a command, even while the reader of its output blocks.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::{Context as _, Result};
use rondpoint_linux::syscall::dispositions;
use rondpoint_linux::syscall::signal::{self, Signals};

use super::{
    ENDING, REAL_TIME, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ, received,
};

/// A timeout of poll(2) that never passes.
const FOREVER: i32 = -1;

/// For commands that can be stopped: from now on the signals that would end this process are only
/// read.
pub(crate) fn stop_signals() -> Result<OwnedFd> {
    let signals = Signals::of(&ending());
    signal::block(&signals).context("blocking signals")?;
    signal::block(&Signals::of(&[SIGXFSZ])).context("blocking signals")?;
    signal::descriptor(&signals).context("reading signals")
}

/// For a manager: from now on all its signals are only read, those that are `held` too. Returns the
/// mask before, which is the program's.
pub(super) fn receive_signals(held: Option<&mut Held>) -> Result<(Signals, OwnedFd)> {
    let signals = received();
    let mask = signal::block(&signals).context("blocking signals")?;
    let arriving = signal::descriptor(&signals).context("reading signals")?;
    Ok((held.and_then(Held::hand_over).unwrap_or(mask), arriving))
}

fn ending() -> Vec<i32> {
    let endings = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    // Where a file may not grow the write says so.
    let ending = ENDING.into_iter().filter(|&number| number != SIGXFSZ);
    endings.into_iter().chain(ending).chain(REAL_TIME).collect()
}

/// Until this is dropped, the signals that would end this process are only read. Threads that begin
/// meanwhile are spared too. One that was read ends this process when this is dropped.
pub(crate) struct Held {
    arriving: OwnedFd,
    /// The mask before; `None` once others read the signals.
    before: Option<Signals>,
    /// Number of a signal that was read, or 0.
    stopped: AtomicI32,
}

impl Held {
    /// # Errors
    /// Signals cannot be blocked or read.
    pub(crate) fn begin() -> Result<Self> {
        // A blocked signal is read even where the caller has it ignored.
        let mut numbers = ending();
        numbers.retain(|number| !dispositions::is_ignored(*number));
        let signals = Signals::of(&numbers);
        let arriving = signal::descriptor(&signals).context("reading signals")?;
        let before = signal::block(&signals).context("blocking signals")?;
        Ok(Self { arriving, before: Some(before), stopped: AtomicI32::new(0) })
    }

    /// Whether such a signal has arrived since; any thread may ask.
    pub(crate) fn has_stopped(&self) -> bool {
        if self.stopped.load(Ordering::Relaxed) == 0
            && let Ok(Some(arrived)) = signal::next(self.arriving.as_fd())
        {
            self.stopped.store(arrived.number, Ordering::Relaxed);
        }
        self.stopped.load(Ordering::Relaxed) != 0
    }

    /// Leaves the signals blocked, for others to read. Returns the mask before.
    pub(crate) fn hand_over(&mut self) -> Option<Signals> {
        self.before.take()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        let number = self.stopped.load(Ordering::Relaxed);
        if number != 0 {
            // It waits for the mask.
            let _ = signal::raise(number);
        }
        let _ = signal::restore(before);
    }
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

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Output};

    use super::*;

    /// Set where a test is the only one of its process.
    const ALONE: &str = "RONDPOINT_TEST_ALONE";

    /// Runs a test of this file in a process of its own, after these words of a shell. `None` in
    /// that process.
    fn alone(test: &str, before: &str) -> Option<Output> {
        if std::env::var_os(ALONE).is_some() {
            return None;
        }
        let (_, module) = module_path!().split_once("::").unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{before}; exec \"$0\" --exact \"$1\"")]);
        shell.arg(std::env::current_exe().unwrap()).arg(format!("{module}::{test}"));
        Some(shell.env(ALONE, "1").output().unwrap())
    }

    #[test]
    fn a_signal_that_the_caller_ignores_stops_nothing() {
        let own = "a_signal_that_the_caller_ignores_stops_nothing";
        if let Some(output) = alone(own, "trap '' HUP") {
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && told.contains("1 passed"), "{told}");
            return;
        }
        let held = Held::begin().unwrap();
        signal::raise(SIGHUP).unwrap();
        assert!(!held.has_stopped());
    }

    #[test]
    fn a_signal_that_was_read_ends_the_process_in_the_end() {
        let own = "a_signal_that_was_read_ends_the_process_in_the_end";
        if let Some(output) = alone(own, ":") {
            assert_eq!(output.status.signal(), Some(SIGUSR1), "{output:?}");
            return;
        }
        let outer = Held::begin().unwrap();
        let inner = Held::begin().unwrap();
        signal::raise(SIGUSR1).unwrap();
        assert!(inner.has_stopped());
        drop(inner);
        drop(outer);
    }

    #[test]
    fn a_signal_before_the_fork_is_read_after_it_and_the_program_has_the_first_mask() {
        let mut held = Held::begin().unwrap();
        signal::raise(SIGUSR2).unwrap();
        let (mask, arriving) = receive_signals(Some(&mut held)).unwrap();
        drop(held);
        let arrived = signal::next(arriving.as_fd()).unwrap();
        signal::restore(&mask).unwrap();
        assert_eq!(arrived.map(|arrived| arrived.number), Some(SIGUSR2));
        assert!(!mask.contains(SIGUSR2));
    }
}
