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

/// Results of resuming stopped processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Processes that were resumed.
    pub thawed: u64,
    /// Processes that ran: their manager had not stopped them yet, a guardian had resumed them, or
    /// they were about to stop.
    pub running: u64,
    /// Processes that have ended.
    pub gone: u64,
    /// Processes that this user may not resume.
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

/// Resumes all processes that a ledger's manager stopped.
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

/// Resumes a process. Returns whether it was stopped; `None` if it has ended.
///
/// A thread that waits in the kernel, as for a disk, stops later. Therefore the stop is taken back
/// although the process seems to run. SIGCONT discards a pending SIGSTOP (signal(7)).
fn thaw(root: &Root, process: Identity, means: Means) -> io::Result<Option<bool>> {
    let handle = watch_end(i32::try_from(process.pid.0).unwrap_or(i32::MAX))?;
    // The number may have been reused before the descriptor was opened.
    if !process.lives(root).map_err(io::Error::other)? {
        return Ok(None);
    }
    let stood = match means {
        Means::Signal => {
            let is_stopped = state(root, process).map_err(io::Error::other)? == Some('T');
            signal(handle.as_fd(), libc::SIGCONT)?;
            is_stopped
        }
        Means::Cgroup => match Freezer::around(root, process.pid)? {
            Some(freezer) if freezer.is_on()? => {
                let is_stopped = freezer.is_frozen()?;
                freezer.set(false)?;
                is_stopped
            }
            _ => false,
        },
    };
    Ok(Some(stood))
}

#[cfg(test)]
mod tests {
    use rondpoint_core::Nanos;

    use super::*;
    use crate::sleeper::Sleeper;

    /// Its user has stopped a later process with the number of the one that was frozen.
    #[test]
    fn a_later_process_with_the_number_of_a_frozen_one_stays_as_it_is() {
        let later = Sleeper::start();
        let earlier = Identity { started: Nanos(1), ..later.identity() };
        let handle = watch_end(later.identity().pid.0 as i32).unwrap();
        signal(handle.as_fd(), libc::SIGSTOP).unwrap();
        while !later.is_stopped() {
            std::thread::yield_now();
        }
        let left = Left { frozen: vec![(earlier, Means::Signal)], ..Left::default() };
        assert_eq!(restore(&Root::live(), &left), Restored { gone: 1, ..Restored::default() });
        assert!(later.is_stopped());
        let left = Left { frozen: vec![(later.identity(), Means::Signal)], ..Left::default() };
        assert_eq!(restore(&Root::live(), &left), Restored { thawed: 1, ..Restored::default() });
    }

    /// A root in which a process of this machine seems to run, alone in a cgroup that freezes.
    fn freezing(process: Identity) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        let group = directory.path().join("cgroups/own");
        let put = |path: std::path::PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap();
        let (name, fields) = stat.rsplit_once(") ").unwrap();
        put(root.in_proc(format!("{}/stat", process.pid)), &format!("{name}) D{}", &fields[1..]));
        let mounted = directory.path().join("cgroups");
        let mount = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", mounted.display());
        put(root.in_proc("self/mountinfo"), &mount);
        put(root.in_proc(format!("{}/cgroup", process.pid)), "0::/own\n");
        put(group.join("cgroup.freeze"), "1\n");
        put(group.join("cgroup.events"), "populated 1\nfrozen 0\n");
        (directory, root)
    }

    /// It waits in the kernel, and would stop for ever when the wait ends.
    #[test]
    fn a_stop_that_has_not_taken_effect_yet_is_taken_back() {
        let target = Sleeper::start();
        let process = target.identity();
        let handle = watch_end(process.pid.0 as i32).unwrap();
        signal(handle.as_fd(), libc::SIGSTOP).unwrap();
        while !target.is_stopped() {
            std::thread::yield_now();
        }
        let (directory, root) = freezing(process);
        let running = Restored { running: 1, ..Restored::default() };
        let left = Left { frozen: vec![(process, Means::Signal)], ..Left::default() };
        assert_eq!(restore(&root, &left), running);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while target.is_stopped() {
            assert!(std::time::Instant::now() < deadline, "it is still stopped");
        }
        let left = Left { frozen: vec![(process, Means::Cgroup)], ..Left::default() };
        assert_eq!(restore(&root, &left), running);
        let group = directory.path().join("cgroups/own");
        let switch = || std::fs::read_to_string(group.join("cgroup.freeze")).unwrap();
        assert!(switch().starts_with('0'));
        // A cgroup above it is frozen, which its owner will thaw.
        std::fs::write(group.join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        assert_eq!(restore(&root, &left), running);
        std::fs::write(group.join("cgroup.freeze"), "1\n").unwrap();
        assert_eq!(restore(&root, &left), Restored { thawed: 1, ..Restored::default() });
        assert!(switch().starts_with('0'));
    }

    #[test]
    fn counts_of_several_ledgers_add_up() {
        let mut sum = Restored { thawed: 10, running: 11, gone: 12, refused: 13 };
        sum.add(&Restored { thawed: 2, running: 3, gone: 4, refused: 5 });
        assert_eq!(sum, Restored { thawed: 12, running: 14, gone: 16, refused: 18 });
    }
}
