//! Finds processes that are still frozen because their manager and its guardian were both killed.

use std::io;
use std::os::fd::AsFd;

use serde::Serialize;

use super::cgroup::Freezer;
use super::{Means, state};
use crate::act::Identity;
use crate::ledger_file::Left;
use crate::root::Root;
use crate::syscall::guardian::signal;
use crate::syscall::process::watch_end;

/// What became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Processes that go on.
    pub thawed: u64,
    /// Processes that ran already: their manager had not come to it, or its guardian was there.
    pub running: u64,
    /// Processes that have ended.
    pub gone: u64,
    /// Processes that this user may not let go on.
    pub refused: u64,
}

impl Restored {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.thawed += other.thawed;
        self.running += other.running;
        self.gone += other.gone;
        self.refused += other.refused;
    }
}

/// Lets everything go on that a ledger says stands still because of its manager.
#[must_use]
pub fn restore(root: &Root, left: &Left) -> Restored {
    let mut restored = Restored::default();
    for &(process, means) in &left.frozen {
        let count = match thaw(root, process, means) {
            Ok(Some(true)) => &mut restored.thawed,
            Ok(Some(false)) => &mut restored.running,
            Ok(None) => &mut restored.gone,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => &mut restored.gone,
            Err(_) => &mut restored.refused,
        };
        *count += 1;
    }
    restored
}

/// Whether it stood still; `None` where it has ended.
fn thaw(root: &Root, process: Identity, means: Means) -> io::Result<Option<bool>> {
    let handle = watch_end(i32::try_from(process.pid.0).unwrap_or(i32::MAX))?;
    // From here on the handle means the process that has this number now.
    if !process.lives(root).map_err(io::Error::other)? {
        return Ok(None);
    }
    let stood = match means {
        Means::Signal if state(root, process).map_err(io::Error::other)? == Some('T') => {
            signal(handle.as_fd(), libc::SIGCONT)?;
            true
        }
        Means::Signal => false,
        Means::Cgroup => match Freezer::around(root, process.pid)? {
            Some(freezer) if freezer.is_frozen()? => {
                freezer.set(false)?;
                true
            }
            _ => false,
        },
    };
    Ok(Some(stood))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_ledgers_add_up() {
        let mut sum = Restored { thawed: 10, running: 11, gone: 12, refused: 13 };
        sum.add(&Restored { thawed: 2, running: 3, gone: 4, refused: 5 });
        assert_eq!(sum, Restored { thawed: 12, running: 14, gone: 16, refused: 18 });
    }
}
