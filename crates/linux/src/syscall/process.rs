//! Forks a process that waits before it executes a program, signals it, and reads its exit status.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::signal::Signals;
use super::{check, dispositions, limits, retry};

/// The end of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The program called `exit` with this status.
    Exited(i32),
    /// This signal killed the program.
    Killed(i32),
}

/// A program that has been forked but waits before `execve`.
pub struct Waiting {
    /// Process number, the same before and after `execve`.
    pub process: i32,
    go: OwnedFd,
    failure: File,
}

/// Memory policy that a started program begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The caller's policy.
    Inherited = 1,
    /// First touch as an explicit policy. Unlike the kernel's default, automatic NUMA balancing
    /// leaves such memory alone (no `MPOL_F_MOF`, mm/mempolicy.c, Linux 6.12).
    Local = 2,
}

/// The user that a program runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Number of the user.
    pub user: u32,
    /// Number of the primary group.
    pub group: u32,
    /// Numbers of all groups.
    pub groups: Vec<u32>,
}

impl User {
    /// A user with all groups that the system gives it. A static program cannot ask a directory
    /// service, so a user that it cannot look up has only `group`.
    #[must_use]
    pub fn with_number(user: u32, group: u32) -> Self {
        let groups = Self::all_groups(user, group).unwrap_or_else(|| vec![group]);
        Self { user, group, groups }
    }

    fn all_groups(user: u32, group: u32) -> Option<Vec<u32>> {
        // SAFETY: the entry is copied from before the next call could overwrite it; this program
        // calls such functions from one thread only.
        let name = unsafe {
            let entry = libc::getpwuid(user);
            if entry.is_null() {
                return None;
            }
            std::ffi::CStr::from_ptr((*entry).pw_name).to_owned()
        };
        let mut groups = vec![0; 1024];
        let mut count = groups.len() as i32;
        // SAFETY: the array has `count` entries, of which the call writes at most that many.
        let found = unsafe {
            libc::getgrouplist(name.as_ptr(), group, groups.as_mut_ptr(), &raw mut count)
        };
        groups.truncate(usize::try_from(count).ok().filter(|_| found >= 0)?);
        Some(groups)
    }
}

/// Whether the caller has no memory policy of its own.
///
/// # Errors
/// ENOSYS where the kernel knows no NUMA.
pub fn has_default_memory() -> io::Result<bool> {
    const MPOL_DEFAULT: i32 = 0;
    let mut mode = -1i32;
    // SAFETY: the kernel writes one int, which lives through the call; no node mask is asked for.
    let result = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, std::ptr::null_mut::<u8>(), 0, 0, 0)
    };
    check(result).map(|_| mode == MPOL_DEFAULT)
}

/// One attempt to start the program.
pub struct Attempt {
    /// File to execute.
    pub path: CString,
    /// All arguments, the zeroth included.
    pub arguments: Vec<CString>,
    /// Whether it is tried only after ENOEXEC: the kernel does not know the format of the file
    /// before.
    pub is_fallback: bool,
}

pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two descriptors into the array.
    check(i64::from(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    // SAFETY: both descriptors are new and have no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Forks a child that waits for [`Waiting::start`] and then tries the attempts in turn. The child
/// has the signal mask `mask`, the limits of the caller, and the default SIGPIPE, which Rust's
/// start-up code ignores.
///
/// # Errors
/// As fork(2) and pipe(2).
pub fn fork(
    attempts: &[Attempt],
    environment: &[CString],
    mask: &Signals,
    user: Option<&User>,
) -> io::Result<Waiting> {
    let (wait_end, go) = pipe()?;
    let (failure, report) = pipe()?;
    let environment = pointers(environment);
    let prepared: Vec<_> =
        attempts.iter().map(|attempt| (attempt, pointers(&attempt.arguments))).collect();
    // SAFETY: between fork and execve the child calls only async-signal-safe functions on memory
    // prepared before, so other threads of the parent cannot deadlock it.
    let process = unsafe { libc::fork() };
    if process == 0 {
        let mut errno = libc::ENOENT;
        // SAFETY: plain system calls on descriptors and null-terminated arrays that outlive them.
        unsafe {
            libc::close(go.as_raw_fd());
            let mut word = 0u8;
            loop {
                match libc::read(wait_end.as_raw_fd(), (&raw mut word).cast(), 1) {
                    1 => break,
                    -1 if *libc::__errno_location() == libc::EINTR => {}
                    // End of the pipe: the parent has closed it.
                    _ => libc::_exit(125),
                }
            }
            if let Some(user) = user
                && (libc::setgroups(user.groups.len() as _, user.groups.as_ptr()) != 0
                    || libc::setgid(user.group) != 0
                    || libc::setuid(user.user) != 0)
            {
                // A program must not run as the wrong user.
                errno = *libc::__errno_location();
                libc::write(report.as_raw_fd(), (&raw const errno).cast(), 4);
                libc::_exit(127);
            }
            if word == Memory::Local as u8 {
                // If it is refused, the program has the kernel's default, which places pages in the
                // same way.
                let mode = super::memory::MPOL_LOCAL;
                libc::syscall(libc::SYS_set_mempolicy, mode, std::ptr::null::<u8>(), 0);
            }
            dispositions::give_back_pipe();
            libc::sigprocmask(libc::SIG_SETMASK, &raw const mask.0, std::ptr::null_mut());
            // Last, because the child itself may have less stack from here on.
            limits::give_back();
            let mut now = libc::ENOENT;
            for (attempt, arguments) in &prepared {
                if attempt.is_fallback && now != libc::ENOEXEC {
                    continue;
                }
                libc::execve(attempt.path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                // As execvp(3): "may not be run" about an existing file is a better message than
                // "missing" about another.
                now = *libc::__errno_location();
                if !matches!(now, libc::ENOENT | libc::ENOTDIR) {
                    errno = now;
                }
            }
            libc::write(report.as_raw_fd(), (&raw const errno).cast(), 4);
            libc::_exit(127);
        }
    }
    check(i64::from(process))?;
    // The child still waits, and has the caller's disposition already.
    dispositions::keep_ended_children();
    Ok(Waiting { process, go, failure: File::from(failure) })
}

impl Waiting {
    /// Starts the program. Returns the process number after `execve`.
    ///
    /// # Errors
    /// The `errno` of `execve` if no attempt succeeded. The child is reaped then.
    pub fn start(mut self, memory: Memory) -> io::Result<i32> {
        let word = memory as u8;
        // SAFETY: one byte from a live variable.
        retry(|| unsafe { libc::write(self.go.as_raw_fd(), (&raw const word).cast(), 1) as i64 })?;
        let mut errno = [0u8; 4];
        match self.failure.read_exact(&mut errno) {
            Ok(()) => {
                wait(self.process)?;
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
            }
            // The end of the pipe means success. If it cannot be read, the child has started all
            // the same, and its end status shows a failure.
            Err(_) => Ok(self.process),
        }
    }

    /// Ends the child before `execve`.
    ///
    /// # Errors
    /// As waitpid(2).
    pub fn cancel(self) -> io::Result<()> {
        let process = self.process;
        drop(self.go);
        wait(process).map(|_| ())
    }
}

/// Waits for the end of a child.
///
/// # Errors
/// ECHILD: it is no child of this process.
pub fn wait(process: i32) -> io::Result<End> {
    wait_with(process, 0).map(|end| end.expect("a blocking wait returns an end"))
}

/// Whether a child has ended, without reaping it.
///
/// # Errors
/// ECHILD: it is no child of this process.
pub fn has_ended(process: i32) -> io::Result<bool> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let id = libc::id_t::try_from(process).map_err(io::Error::other)?;
    // SAFETY: the kernel writes one siginfo_t, which lives through the call; all-zero is valid.
    retry(|| i64::from(unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), options) }))?;
    // SAFETY: zeroed memory is a valid siginfo_t, and its process number stays 0 where none ended.
    Ok(unsafe { info.assume_init().si_pid() } == process)
}

/// The end of a child, which is reaped; `None` while it runs.
///
/// # Errors
/// ECHILD: it is no child of this process.
pub fn ended(process: i32) -> io::Result<Option<End>> {
    wait_with(process, libc::WNOHANG)
}

fn wait_with(process: i32, options: i32) -> io::Result<Option<End>> {
    let mut status = 0;
    // SAFETY: the kernel writes one int, which lives through the call.
    let result = retry(|| i64::from(unsafe { libc::waitpid(process, &raw mut status, options) }))?;
    if result == 0 {
        return Ok(None);
    }
    let end = if libc::WIFSIGNALED(status) {
        End::Killed(libc::WTERMSIG(status))
    } else {
        End::Exited(libc::WEXITSTATUS(status))
    };
    Ok(Some(end))
}

/// Sends a signal. Signal 0 only checks that the process exists.
///
/// # Errors
/// ESRCH: it has ended. EPERM: it is another user's.
pub fn kill(process: i32, signal: i32) -> io::Result<()> {
    assert!(process > 0, "a signal to one process, not to a group");
    // SAFETY: no memory is involved.
    check(i64::from(unsafe { libc::kill(process, signal) })).map(|_| ())
}

/// A descriptor that becomes readable when a process (any process, not only a child) ends.
///
/// # Errors
/// ESRCH: no such process. ENOSYS before Linux 5.3.
pub fn watch_end(process: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) })?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just returned this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Raises the soft limit of open descriptors to the hard limit and returns it.
///
/// # Errors
/// As setrlimit(2).
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes, then reads, one rlimit that lives through both calls.
    unsafe {
        check(i64::from(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit)))?;
        limit.rlim_cur = limit.rlim_max;
        check(i64::from(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)))?;
    }
    Ok(limit.rlim_cur)
}

/// The effective user of this process.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: no memory is involved, and the call cannot fail.
    unsafe { libc::geteuid() }
}

/// Clock ticks per second in `/proc/PID/stat`.
#[must_use]
pub fn ticks_per_second() -> u64 {
    // SAFETY: sysconf reads no memory of ours.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).expect("every Linux has a clock tick")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::syscall::signal;

    fn shell(script: &str) -> Vec<Attempt> {
        let text = |part: &str| CString::new(part).unwrap();
        let arguments = vec![text("sh"), text("-c"), text(script)];
        vec![Attempt { path: text("/bin/sh"), arguments, is_fallback: false }]
    }

    fn forked(attempts: &[Attempt]) -> Waiting {
        fork(attempts, &[], &Signals::of(&[]), None).unwrap()
    }

    #[test]
    fn a_child_waits_runs_and_its_end_is_told() {
        let waiting = forked(&shell("exit 7"));
        let process = waiting.process;
        assert_eq!(ended(process).unwrap(), None);
        assert!(!has_ended(process).unwrap());
        assert_eq!(waiting.start(Memory::Inherited).unwrap(), process);
        assert_eq!(wait(process).unwrap(), End::Exited(7));
        assert_eq!(wait(process).unwrap_err().raw_os_error(), Some(libc::ECHILD));
    }

    #[test]
    fn a_killed_child_is_told_from_one_that_exits() {
        let process = forked(&shell("kill -9 $$")).start(Memory::Inherited).unwrap();
        let watch = watch_end(process).unwrap();
        assert_eq!(signal::wait_readable(&[watch.as_fd()], 10_000).unwrap(), [true]);
        assert!(has_ended(process).unwrap());
        assert_eq!(wait(process).unwrap(), End::Killed(9));
        assert_eq!(kill(process, 0).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn what_cannot_be_executed_says_why() {
        let text = |part: &str| CString::new(part).unwrap();
        let attempt = |path: &str| Attempt {
            path: text(path),
            arguments: vec![text("x")],
            is_fallback: false,
        };
        let error = forked(&[attempt("/nonexistent")]).start(Memory::Inherited).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        let error = forked(&[attempt("/etc/passwd"), attempt("/nonexistent")])
            .start(Memory::Inherited)
            .unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EACCES));
    }

    #[test]
    fn a_cancelled_child_never_becomes_the_program() {
        let waiting = forked(&shell("exit 0"));
        let process = waiting.process;
        waiting.cancel().unwrap();
        assert!(wait(process).is_err());
    }

    #[test]
    fn a_child_has_the_memory_policy_and_the_user_that_it_was_given() {
        let script = "grep -q ' local ' /proc/self/numa_maps && exit 3; exit 4";
        let waiting = forked(&shell(script));
        let has_numa = has_default_memory().is_ok();
        let expected = if has_numa { End::Exited(3) } else { End::Exited(4) };
        assert_eq!(wait(waiting.start(Memory::Local).unwrap()).unwrap(), expected);
        // SAFETY: no memory is involved.
        let own = unsafe { (libc::getuid(), libc::getgid()) };
        let user = User::with_number(own.0, own.1);
        assert!(user.groups.contains(&own.1));
        let (user, group) = if own.0 == 0 { (65_534, 65_534) } else { own };
        let other = User { user, group, groups: vec![group] };
        let script = format!("test $(id -u):$(id -g):$(id -G) = {user}:{group}:{group}");
        let waiting = fork(&shell(&script), &[], &Signals::of(&[]), Some(&other)).unwrap();
        let end = waiting.start(Memory::Inherited).and_then(wait);
        // A user without privileges may not even set his own groups.
        assert!(own.0 != 0 || matches!(end, Ok(End::Exited(0))), "{end:?}");
    }

    #[test]
    fn limits_and_ticks_are_sensible() {
        assert!(raise_descriptor_limit().unwrap() >= 64);
        assert!(ticks_per_second() >= 1);
    }
}
