//! A child that undoes one thing when its parent has died, or has not done so in time, and writes
//! that down. Also signals to a process that cannot have been mistaken for another.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::process::{End, pipe, wait, watch_end};
use super::signal::Signals;
use super::{check, retry};

/// Name of a guardian's process. It lacks the manager's name, so that `pkill -STOP rondpoint` stops
/// the manager alone. The kernel keeps 15 bytes (prctl(2)).
const NAME: &CStr = c"thaw-guardian";

/// The action of a guardian when its parent has died or its time is over.
#[derive(Debug, Clone, Copy)]
pub enum Deed<'a> {
    /// Send SIGCONT to the process of this descriptor (`pidfd_open(2)`).
    Continue(BorrowedFd<'a>),
    /// Write `0` to this file.
    WriteZero(BorrowedFd<'a>),
}

/// A line that a guardian writes after its deed.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// File, open for writing.
    pub file: BorrowedFd<'a>,
    /// Text of the line with its newline.
    pub text: &'a [u8],
}

/// A child process that waits for its parent's end, its release or the end of its time.
#[derive(Debug)]
pub struct Guardian {
    /// Process number of the child.
    pub process: i32,
    end: OwnedFd,
    leash: OwnedFd,
}

/// Starts a guardian. It acts when its parent has died, and after `limit` in any case, because a
/// stopped parent cannot keep the time. It has a session of its own and blocks all signals. A
/// signal to the processes of a terminal or a service therefore reaches its parent only.
///
/// # Errors
/// As fork(2), pipe(2) and pidfd_open(2).
pub fn guard(deed: Deed<'_>, line: Line<'_>, limit: Duration) -> io::Result<Guardian> {
    let (wait_end, leash) = pipe()?;
    let limit_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // The child inherits the mask, so it blocks signals from its first moment on.
    let mask = super::signal::block(&Signals::all())?;
    // SAFETY: the child calls only async-signal-safe functions, on descriptors and on memory of its
    // own copy, so other threads of the parent cannot deadlock it.
    let process = unsafe { libc::fork() };
    if process == 0 {
        // SAFETY: plain system calls on descriptors that outlive them and on local variables.
        unsafe {
            libc::close(leash.as_raw_fd());
            libc::setsid();
            libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
            let mut word = 0u8;
            // A byte in the pipe is the release; the end of the pipe is the parent's end. Every
            // signal is blocked, so nothing else ends the wait.
            let mut leash =
                libc::pollfd { fd: wait_end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let in_time = libc::poll(&raw mut leash, 1, limit_ms) == 1;
            let released =
                in_time && libc::read(wait_end.as_raw_fd(), (&raw mut word).cast(), 1) == 1;
            if !released {
                let done = match deed {
                    Deed::Continue(target) => {
                        let nothing = std::ptr::null::<libc::siginfo_t>();
                        let signal = libc::SIGCONT;
                        libc::syscall(
                            libc::SYS_pidfd_send_signal,
                            target.as_raw_fd(),
                            signal,
                            nothing,
                            0,
                        ) == 0
                    }
                    Deed::WriteZero(file) => {
                        libc::pwrite(file.as_raw_fd(), c"0".as_ptr().cast(), 1, 0) == 1
                    }
                };
                if done {
                    libc::write(line.file.as_raw_fd(), line.text.as_ptr().cast(), line.text.len());
                }
            }
            libc::_exit(0);
        }
    }
    super::signal::restore(&mask)?;
    check(i64::from(process))?;
    drop(wait_end);
    let end = watch_end(process)?;
    Ok(Guardian { process, end, leash })
}

impl Guardian {
    /// A descriptor that is readable when the guardian has ended.
    #[must_use]
    pub fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// Ends the guardian without its deed.
    ///
    /// # Errors
    /// EPIPE: it has already ended.
    pub fn release(self) -> io::Result<End> {
        let word = 1u8;
        // SAFETY: one byte from a live variable.
        let said = retry(|| unsafe {
            libc::write(self.leash.as_raw_fd(), (&raw const word).cast(), 1) as i64
        });
        let process = self.process;
        drop(self);
        let end = wait(process)?;
        said.map(|_| end)
    }
}

/// Sends a signal to the process of a descriptor, never to a later process of the same number.
///
/// # Errors
/// ESRCH: it has ended. EPERM: it is another user's. ENOSYS before Linux 5.1.
pub fn signal(process: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let nothing = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: no memory is involved; without a siginfo the kernel makes one up as kill(2) does.
    let result = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, nothing, 0)
    };
    check(result).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;
    use crate::sleeper::Sleeper;
    use crate::syscall::signal::wait_readable;

    const LONG: Duration = Duration::from_secs(1000);

    fn said(file: &fs::File) -> Line<'_> {
        Line { file: file.as_fd(), text: b"said\n" }
    }

    #[test]
    fn a_guardian_that_is_released_does_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("freeze");
        fs::write(&path, "1").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        let guardian = guard(Deed::WriteZero(file.as_fd()), said(&file), LONG).unwrap();
        assert_eq!(wait_readable(&[guardian.end()], 0).unwrap(), [false]);
        assert_eq!(guardian.release().unwrap(), End::Exited(0));
        assert_eq!(fs::read_to_string(&path).unwrap(), "1");
    }

    #[test]
    fn a_guardian_whose_leash_is_cut_does_its_deed_and_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("freeze");
        fs::write(&path, "1").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        let log = directory.path().join("log");
        let mut lines = fs::File::create(&log).unwrap();
        lines.write_all(b"before\n").unwrap();
        let guardian = guard(Deed::WriteZero(file.as_fd()), said(&lines), LONG).unwrap();
        let Guardian { process, leash, .. } = guardian;
        drop(leash);
        assert_eq!(wait(process).unwrap(), End::Exited(0));
        assert_eq!(fs::read_to_string(&path).unwrap(), "0");
        lines.write_all(b"after\n").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "before\nsaid\nafter\n");
    }

    #[test]
    fn a_guardian_whose_parent_is_late_does_its_deed_and_says_so() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let sleeper = Sleeper::start();
        let target = watch_end(sleeper.pid().0 as i32).unwrap();
        signal(target.as_fd(), libc::SIGSTOP).unwrap();
        let limit = Duration::from_millis(20);
        let guardian = guard(Deed::Continue(target.as_fd()), said(log.as_file()), limit).unwrap();
        // This process neither dies nor says a word.
        assert_eq!(wait_readable(&[guardian.end()], 10_000).unwrap(), [true]);
        assert_eq!(fs::read_to_string(log.path()).unwrap(), "said\n");
        assert!(!sleeper.is_stopped());
        assert!(guardian.release().is_err());
    }

    /// A thread that blocks more signals than before would hand them on to each program it starts.
    #[test]
    fn the_signals_of_the_thread_that_starts_a_guardian_are_blocked_no_longer_than_that() {
        let blocked = || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            status.lines().find(|line| line.starts_with("SigBlk:")).unwrap().to_string()
        };
        let before = blocked();
        let null = fs::File::options().write(true).open("/dev/null").unwrap();
        let guardian = guard(Deed::WriteZero(null.as_fd()), said(&null), LONG).unwrap();
        assert_eq!(blocked(), before);
        assert_eq!(guardian.release().unwrap(), End::Exited(0));
    }

    /// The kernel keeps the time, so no clock that this process reads matters.
    #[test]
    fn a_guardian_does_nothing_before_its_time() {
        let limit = Duration::from_millis(300);
        let file = tempfile::NamedTempFile::new().unwrap();
        let began = std::time::Instant::now();
        let line = said(file.as_file());
        let guardian = guard(Deed::WriteZero(file.as_file().as_fd()), line, limit).unwrap();
        assert_eq!(wait_readable(&[guardian.end()], 20_000).unwrap(), [true]);
        assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
        assert!(guardian.release().is_err());
    }

    /// A terminal's ^C and ^Z, and SIGKILL to a group, reach a session's processes only.
    #[test]
    fn a_guardian_is_in_a_session_of_its_own() {
        let null = fs::File::options().write(true).open("/dev/null").unwrap();
        let guardian = guard(Deed::WriteZero(null.as_fd()), said(&null), LONG).unwrap();
        let session = || {
            let stat = fs::read(format!("/proc/{}/stat", guardian.process)).unwrap();
            crate::parse::stat::parse(&stat).unwrap().session
        };
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while session() != guardian.process as u32 {
            assert!(std::time::Instant::now() < deadline, "session {}", session());
            std::thread::yield_now();
        }
        assert_eq!(guardian.release().unwrap(), End::Exited(0));
    }

    /// pkill(1) and killall(1) compare the names of processes.
    #[test]
    fn a_signal_to_all_processes_of_the_managers_name_meets_no_guardian() {
        let null = fs::File::options().write(true).open("/dev/null").unwrap();
        let guardian = guard(Deed::WriteZero(null.as_fd()), said(&null), LONG).unwrap();
        let name = || fs::read_to_string(format!("/proc/{}/comm", guardian.process)).unwrap();
        // Until it has its own name it has that of this thread.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while name().trim_end() != NAME.to_str().unwrap() {
            assert!(std::time::Instant::now() < deadline, "{}", name());
            std::thread::yield_now();
        }
        assert!(!name().contains("rondpoint"), "{}", name());
        assert_eq!(guardian.release().unwrap(), End::Exited(0));
    }

    #[test]
    fn a_deed_that_fails_is_not_said_to_be_done() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let lines = fs::File::create(&log).unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        let guardian = guard(Deed::WriteZero(null.as_fd()), said(&lines), LONG).unwrap();
        let Guardian { process, leash, .. } = guardian;
        drop(leash);
        assert_eq!(wait(process).unwrap(), End::Exited(0));
        assert_eq!(fs::read_to_string(&log).unwrap(), "");
    }

    #[test]
    fn the_end_of_a_guardian_is_seen() {
        let null = fs::File::options().write(true).open("/dev/null").unwrap();
        let guardian = guard(Deed::WriteZero(null.as_fd()), said(&null), LONG).unwrap();
        super::super::process::kill(guardian.process, libc::SIGTERM).unwrap();
        assert_eq!(wait_readable(&[guardian.end()], 50).unwrap(), [false], "it is deaf to this");
        super::super::process::kill(guardian.process, libc::SIGKILL).unwrap();
        assert_eq!(wait_readable(&[guardian.end()], 10_000).unwrap(), [true]);
        assert!(guardian.release().is_err());
    }

    #[test]
    fn a_signal_reaches_the_process_of_a_descriptor() {
        let sleeper = Sleeper::start();
        let watch = watch_end(sleeper.pid().0 as i32).unwrap();
        signal(watch.as_fd(), libc::SIGKILL).unwrap();
        assert_eq!(wait_readable(&[watch.as_fd()], 10_000).unwrap(), [true]);
        drop(sleeper);
        assert_eq!(signal(watch.as_fd(), 0).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
