//! What waits for the reader of a manager's pipe. A slow reader does not hold up the manager.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rondpoint_linux::syscall::signal;

use crate::session::milliseconds;

/// A write of so many bytes to a pipe with room does not wait (pipe(7)).
const PIPE_BUF: usize = 4096;
/// Bytes that may wait (our choice): a minute of a record with full sampling.
pub(super) const MOST: usize = 4 << 20;
/// Longest wait for room (our choice); a write waits twice at most. A manager does nothing else
/// meanwhile, and a reader that is not slow makes room within it.
const BUSY: Duration = Duration::from_millis(50);
/// Time after which a reader that takes nothing is given up at the end (our choice).
const STALLED: Duration = Duration::from_secs(5);
/// Longest delay of the end by a reader that takes something (our choice).
const END: Duration = Duration::from_secs(30);

/// Bytes in the order of their writing.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<u8>);

impl Queue {
    /// Takes all of `bytes`, and passes on what the reader has room for.
    ///
    /// # Errors
    /// Too much waits already, and nothing of `bytes` is taken; or as write(2).
    pub(super) fn put(&mut self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        self.pass_on(file, BUSY, BUSY)?;
        if !self.0.is_empty() && self.0.len() + bytes.len() > MOST {
            let told = format!("its reader is {} bytes behind", self.0.len());
            return Err(io::Error::new(io::ErrorKind::TimedOut, told));
        }
        self.0.extend(bytes);
        self.pass_on(file, BUSY, BUSY)?;
        Ok(bytes.len())
    }

    /// Passes the rest on, at the end.
    ///
    /// # Errors
    /// The reader takes nothing, or is too slow; or as write(2).
    pub(super) fn finish(&mut self, file: &File) -> io::Result<()> {
        let waiting = self.0.len();
        self.pass_on(file, STALLED, END)?;
        if self.0.is_empty() {
            return Ok(());
        }
        let told = format!("its reader did not take the last {} of {waiting} bytes", self.0.len());
        Err(io::Error::new(io::ErrorKind::TimedOut, told))
    }

    /// Writes while there is room, or comes within `patience`, for `longest` in all.
    fn pass_on(
        &mut self,
        mut file: &File,
        patience: Duration,
        longest: Duration,
    ) -> io::Result<()> {
        let until = Instant::now() + longest;
        while !self.0.is_empty() {
            let left = until.saturating_duration_since(Instant::now()).min(patience);
            if !signal::wait_ready(&[], &[file.as_fd()], milliseconds(left))?[0] {
                return Ok(());
            }
            let (first, _) = self.0.as_slices();
            match file.write(&first[..first.len().min(PIPE_BUF)]) {
                Ok(written) => drop(self.0.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // It fails again at the end, and would be told twice.
                    self.0.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
