//! Stops a process for a while, and makes sure that it runs again whatever happens to the manager.
//!
//! If the process is alone in its cgroup, the cgroup is frozen, which no process notices. Otherwise
//! the process gets SIGSTOP, which its parent may see (a shell prints `Stopped`). A second process,
//! the guardian, thaws it if the manager dies. The ledger records the freeze before it begins, in
//! case both are killed. A process that was already stopped stays stopped.

mod cgroup;
mod left;
#[cfg(test)]
mod refusals;
mod still;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use self::cgroup::Freezer;
pub use self::left::{Restored, restore};
pub use self::still::{Still, Stood, budget};
use crate::LinuxError;
use crate::act::{Identity, living_threads, stat_in};
use crate::ledger_file::{Farewell, LedgerFile};
use crate::root::Root;
use crate::syscall::guardian::{self, Deed, Guardian};
use crate::syscall::process::watch_end;
use crate::syscall::signal::wait_readable;

/// Time in which a process must stop (our choice). A thread that needs longer waits in the kernel
/// for a disk or a server.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time that a guardian waits beyond the limit (our choice). A running manager keeps the limit
/// itself, between two batches of pages, and reports it.
const GRACE: Duration = Duration::from_millis(500);
/// Time between two checks whether the process has stopped.
const LOOK: Duration = Duration::from_micros(500);

/// The result of an attempt to stop a process.
#[derive(Debug)]
pub enum Freeze {
    /// The process is stopped until it is thawed.
    Frozen(Frozen),
    /// Another process had already stopped it and will resume it. Nothing was done.
    AlreadyStopped,
    /// The process has ended.
    Gone,
}

/// The means by which a process is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Means {
    /// The freezer of its cgroup.
    Cgroup,
    /// SIGSTOP.
    Signal,
}

/// A process that we stopped. Dropping this resumes it.
#[derive(Debug)]
pub struct Frozen {
    process: OwnedFd,
    /// The cgroup's freezer; `None` for a process stopped by a signal.
    freezer: Option<Freezer>,
    guardian: Option<Guardian>,
    farewell: Farewell,
    since: Instant,
}

/// Writes into the ledger, stops a process for `limit` at most, and waits until all its threads are
/// stopped.
///
/// # Errors
/// The process is traced, this user may not stop it, the ledger cannot be written, or the process
/// does not stop within two seconds. The process then runs on.
pub fn freeze(
    root: &Root,
    process: Identity,
    limit: Duration,
    ledger: &mut LedgerFile,
) -> Result<Freeze, LinuxError> {
    let number = i32::try_from(process.pid.0).unwrap_or(i32::MAX);
    let refused = |problem: &str| LinuxError::Input {
        what: format!("process {number}"),
        problem: format!("cannot be frozen: {problem}"),
    };
    if process.pid.0 == std::process::id() || number == 1 {
        return Err(refused("it would be this one, or the first"));
    }
    let handle = match watch_end(number) {
        Ok(handle) => handle,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(Freeze::Gone),
        Err(source) => return Err(call("pidfd_open", number, source)),
    };
    // The number may have been reused before the descriptor was opened.
    if !process.is_there(root) {
        return Ok(Freeze::Gone);
    }
    match state(root, process)? {
        Some('T') => return Ok(Freeze::AlreadyStopped),
        Some('t') => return Err(refused("a debugger has it")),
        _ => {}
    }
    if let Some(freezer) = Freezer::of(root, process.pid) {
        let is_others = || -> io::Result<bool> { Ok(freezer.is_frozen()? || freezer.is_on()?) };
        if is_others().map_err(|source| call("read", number, source))? {
            return Ok(Freeze::AlreadyStopped);
        }
        let farewell = ledger.freeze(process, Means::Cgroup)?;
        if let Some(frozen) = by_cgroup(&handle, freezer, farewell, limit)? {
            return Ok(Freeze::Frozen(frozen));
        }
    }
    let farewell = ledger.freeze(process, Means::Signal)?;
    by_signal(root, process, handle, farewell, limit)
}

/// Stops a process by its cgroup. `None` if the cgroup does not freeze; it is thawed then.
fn by_cgroup(
    handle: &OwnedFd,
    freezer: Freezer,
    farewell: Farewell,
    limit: Duration,
) -> Result<Option<Frozen>, LinuxError> {
    // Nothing is stopped yet: the ledger must not say so.
    let take_back = |_: &io::Error| drop(farewell.write());
    let process = handle.try_clone().inspect_err(take_back);
    let process = process.map_err(|error| call("dup", 0, error))?;
    let guardian =
        guardian::guard(Deed::WriteZero(freezer.switch()), farewell.line(), limit + GRACE);
    let guardian = guardian.inspect_err(take_back).map_err(|error| call("fork", 0, error))?;
    let guardian = Some(guardian);
    let (freezer, since) = (Some(freezer), Instant::now());
    let frozen = Frozen { process, freezer, guardian, farewell, since };
    let freezes = |freezer: &Freezer| {
        freezer.set(true).is_ok() && wait_until(|| freezer.is_frozen().unwrap_or(false))
    };
    Ok(frozen.freezer.as_ref().is_some_and(freezes).then_some(frozen))
}

fn by_signal(
    root: &Root,
    process: Identity,
    handle: OwnedFd,
    farewell: Farewell,
    limit: Duration,
) -> Result<Freeze, LinuxError> {
    let number = i32::try_from(process.pid.0).unwrap_or(i32::MAX);
    let guardian = guardian::guard(Deed::Continue(handle.as_fd()), farewell.line(), limit + GRACE);
    // Nothing is stopped yet: the ledger must not say so.
    let guardian = guardian.inspect_err(|_| drop(farewell.write()));
    let guardian = guardian.map_err(|error| call("fork", number, error))?;
    let since = Instant::now();
    match guardian::signal(handle.as_fd(), libc::SIGSTOP) {
        Ok(()) => {}
        Err(error) => {
            let _ = guardian.release();
            let _ = farewell.write();
            return match error.raw_os_error() {
                Some(libc::ESRCH) => Ok(Freeze::Gone),
                _ => Err(call("pidfd_send_signal", number, error)),
            };
        }
    }
    let guardian = Some(guardian);
    let frozen = Frozen { process: handle, freezer: None, guardian, farewell, since };
    if wait_until(|| stands_still(root, process)) {
        return Ok(if process.is_there(root) { Freeze::Frozen(frozen) } else { Freeze::Gone });
    }
    // Dropping the process here resumes it.
    let problem = format!("it did not stop within {} s", PATIENCE.as_secs());
    Err(LinuxError::Input { what: format!("process {number}"), problem })
}

fn call(name: &'static str, process: i32, source: io::Error) -> LinuxError {
    LinuxError::Call { call: name, attempted: format!("freezing process {process}"), source }
}

fn wait_until(holds: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !holds() {
        if begin.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

/// The state letter in `stat` of a living thread: the main thread if it lives.
fn state(root: &Root, process: Identity) -> Result<Option<char>, LinuxError> {
    let Some(main) = stat_in(root, format!("{}/stat", process.pid))? else { return Ok(None) };
    match main.state {
        'Z' | 'X' => Ok(living_threads(root, process.pid)?.first().map(|found| found.state)),
        state => Ok(Some(state)),
    }
}

/// Whether no thread runs: all are stopped or have ended.
fn stands_still(root: &Root, process: Identity) -> bool {
    living_threads(root, process.pid)
        .is_ok_and(|threads| threads.iter().all(|found| found.state == 'T'))
}

impl Frozen {
    /// The means by which it was stopped.
    #[must_use]
    pub fn means(&self) -> Means {
        if self.freezer.is_some() { Means::Cgroup } else { Means::Signal }
    }

    /// Time since it was stopped.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether a guardian will resume it if this process dies. If not, the caller must resume it.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        let Some(guardian) = &self.guardian else { return false };
        wait_readable(&[guardian.end()], 0).is_ok_and(|ended| !ended[0])
    }

    /// The guardian's process number.
    #[must_use]
    pub fn guardian(&self) -> Option<i32> {
        self.guardian.as_ref().map(|guardian| guardian.process)
    }

    /// Resumes the process. Returns the time for which it was stopped.
    ///
    /// # Errors
    /// The kernel refuses. The guardian then tries too.
    pub fn thaw(mut self) -> io::Result<Duration> {
        self.let_go().map(|()| self.since.elapsed())
    }

    fn let_go(&mut self) -> io::Result<()> {
        let Some(guardian) = self.guardian.take() else { return Ok(()) };
        let result = match &self.freezer {
            Some(freezer) => freezer.set(false),
            None => guardian::signal(self.process.as_fd(), libc::SIGCONT),
        };
        match result {
            // An ended process needs no resuming. On another error the guardian is not released, so
            // it tries too.
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
            _ => {
                let _ = self.farewell.write();
                // The guardian may have ended already.
                let _ = guardian.release();
                Ok(())
            }
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // On an error the guardian tries too.
        let _ = self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rondpoint_core::Pid;

    use super::*;
    use crate::sleeper::Sleeper;

    const LONG: Duration = Duration::from_secs(1000);

    fn sleeping() -> (Sleeper, Identity, OwnedFd) {
        let sleeper = Sleeper::start();
        let handle = watch_end(sleeper.pid().0 as i32).unwrap();
        let identity = sleeper.identity();
        (sleeper, identity, handle)
    }

    fn lines(ledger: &LedgerFile) -> Vec<String> {
        let text = fs::read_to_string(ledger.path()).unwrap();
        text.lines().map(String::from).collect()
    }

    #[test]
    fn a_cgroup_that_does_not_freeze_goes_on_and_the_ledger_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let (_sleeper, identity, handle) = sleeping();
        let switch = directory.path().join("cgroup.freeze");
        let events = directory.path().join("cgroup.events");
        let mut ledger =
            LedgerFile::create(&directory.path().join("ledgers"), &Root::live()).unwrap();
        let mut attempt = |said: &str| {
            fs::write(&switch, "0").unwrap();
            fs::write(&events, said).unwrap();
            let farewell = ledger.freeze(identity, Means::Cgroup).unwrap();
            let freezer = Freezer::open(directory.path()).unwrap();
            let frozen = by_cgroup(&handle, freezer, farewell, LONG).unwrap();
            (frozen, lines(&ledger).len())
        };
        let begin = Instant::now();
        let (frozen, count) = attempt("populated 1\nfrozen 0\n");
        assert!(frozen.is_none() && begin.elapsed() >= PATIENCE);
        assert_eq!(fs::read_to_string(&switch).unwrap(), "0");
        assert_eq!(count, 3, "the manager, the freeze, the thaw");
        let begin = Instant::now();
        let (frozen, count) = attempt("populated 1\nfrozen 1\n");
        assert!(begin.elapsed() < PATIENCE, "it froze at once");
        assert_eq!((fs::read_to_string(&switch).unwrap().as_str(), count), ("1", 4));
        let frozen = frozen.unwrap();
        assert_eq!(frozen.means(), Means::Cgroup);
        let guardian = frozen.guardian().unwrap();
        drop(frozen);
        assert!(crate::syscall::process::wait(guardian).is_err(), "no guardian is left");
        assert_eq!((fs::read_to_string(&switch).unwrap().as_str(), lines(&ledger).len()), ("0", 5));
    }

    #[test]
    fn a_process_runs_again_after_the_limit_although_its_manager_does_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (_sleeper, identity, handle) = sleeping();
        let (switch, events) = ("cgroup.freeze", "cgroup.events");
        std::fs::write(directory.path().join(switch), "0").unwrap();
        std::fs::write(directory.path().join(events), "frozen 1\n").unwrap();
        let mut ledger =
            LedgerFile::create(&directory.path().join("ledgers"), &Root::live()).unwrap();
        let farewell = ledger.freeze(identity, Means::Cgroup).unwrap();
        let freezer = Freezer::open(directory.path()).unwrap();
        let begin = Instant::now();
        let by_cgroup = by_cgroup(&handle, freezer, farewell, Duration::ZERO).unwrap().unwrap();
        let farewell = ledger.freeze(identity, Means::Signal).unwrap();
        let by_signal = by_signal(&Root::live(), identity, handle, farewell, Duration::ZERO);
        let Ok(Freeze::Frozen(by_signal)) = by_signal else { panic!("{by_signal:?}") };
        let ends = [&by_cgroup, &by_signal].map(|frozen| frozen.guardian.as_ref().unwrap().end());
        let early = wait_readable(&ends, 100).unwrap();
        assert!(early == [false, false] || begin.elapsed() >= GRACE, "a manager has some time");
        for (frozen, end) in [&by_cgroup, &by_signal].into_iter().zip(ends) {
            assert_eq!(wait_readable(&[end], 20_000).unwrap(), [true]);
            assert!(!frozen.is_guarded());
        }
        assert_eq!(fs::read_to_string(directory.path().join(switch)).unwrap(), "0");
        assert!(!stands_still(&Root::live(), identity));
    }

    #[test]
    fn neither_this_process_nor_the_first_nor_one_with_a_debugger_is_frozen() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        let (_sleeper, identity, _) = sleeping();
        let stat = fs::read_to_string(format!("/proc/{}/stat", identity.pid)).unwrap();
        let (name, fields) = stat.rsplit_once(") ").unwrap();
        fs::create_dir_all(root.in_proc(identity.pid.to_string())).unwrap();
        let traced = format!("{name}) t{}", &fields[1..]);
        fs::write(root.in_proc(format!("{}/stat", identity.pid)), traced).unwrap();
        let mut ledger =
            LedgerFile::create(&directory.path().join("ledgers"), &Root::live()).unwrap();
        let nobody = |pid| Identity { pid: Pid(pid), started: rondpoint_core::Nanos(0) };
        for (process, why) in [
            (nobody(1), "it would be this one, or the first"),
            (nobody(std::process::id()), "it would be this one, or the first"),
            (identity, "a debugger has it"),
        ] {
            let refused = freeze(&root, process, LONG, &mut ledger).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        assert_eq!(lines(&ledger).len(), 1, "the manager only");
    }

    #[test]
    fn a_later_process_with_the_number_of_the_target_is_not_frozen() {
        let directory = tempfile::tempdir().unwrap();
        let (_sleeper, later, _) = sleeping();
        let earlier = Identity { started: rondpoint_core::Nanos(1), ..later };
        let mut ledger =
            LedgerFile::create(&directory.path().join("ledgers"), &Root::live()).unwrap();
        let found = freeze(&Root::live(), earlier, LONG, &mut ledger).unwrap();
        assert!(matches!(found, Freeze::Gone), "{found:?}");
        assert_eq!(lines(&ledger).len(), 1, "the manager only");
    }

    #[test]
    fn a_process_that_ends_before_it_is_stopped_is_gone_and_the_ledger_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let (sleeper, identity, handle) = sleeping();
        drop(sleeper);
        let mut ledger =
            LedgerFile::create(&directory.path().join("ledgers"), &Root::live()).unwrap();
        let farewell = ledger.freeze(identity, Means::Signal).unwrap();
        let found = by_signal(&Root::live(), identity, handle, farewell, LONG).unwrap();
        assert!(matches!(found, Freeze::Gone), "{found:?}");
        assert_eq!(lines(&ledger).len(), 3, "the manager, the freeze, the thaw");
    }
}
