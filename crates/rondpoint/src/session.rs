//! A program that is watched: started by us or joined while it runs, with its signals and its end.
//!
//! One thread. Signals are read, not handled: those that a process sent are passed on to the
//! program, those of the terminal reach it by themselves.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rondpoint_core::Pid;
use rondpoint_linux::act::Identity;
use rondpoint_linux::observe::subject::Start as Begin;
use rondpoint_linux::observe::{Observer, Settings};
use rondpoint_linux::parse::schedstat;
use rondpoint_linux::syscall::process::{self, End, Memory, User, Waiting};
use rondpoint_linux::syscall::scheduler;
use rondpoint_linux::syscall::signal::{self, Signals};
use rondpoint_linux::topology::Discovered;
use rondpoint_linux::{Root, launch, probe, root};

use crate::terminal;

// Numbers of signal(7), the same on x86-64 and arm64.
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGUSR1: i32 = 10;
const SIGUSR2: i32 = 12;
const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;
const SIGNALS: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCHLD];

/// What a shell adds to the number of the signal that killed a program.
const KILLED: i32 = 128;

/// Exit status of a failure of ours, as `env` and `timeout` have it.
pub(crate) const OWN_FAILURE: u8 = 125;

/// The process that has this number now.
///
/// # Errors
/// There is none.
pub(crate) fn process_of(root: &Root, pid: Pid) -> Result<Identity> {
    Identity::of(root, pid).with_context(|| format!("process {pid}: there is none"))
}

/// # Errors
/// This user may not move pages of the process.
pub(crate) fn may_move_pages_of(pid: Pid) -> Result<()> {
    probe::may_move_pages_of(pid)
        .with_context(|| format!("process {pid}: its pages may not be moved by this user"))
}

/// Whom we watch.
enum Subject {
    /// A program of ours.
    Child,
    /// Somebody else's, with a descriptor that tells its end.
    Joined(OwnedFd),
}

/// A program and everything that watches it.
pub(crate) struct Session {
    pub(crate) observer: Observer,
    arriving: OwnedFd,
    subject: Subject,
    reserve: Vec<File>,
    pub(crate) started_at: Instant,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The deadline has passed.
    Interval,
    /// The program has ended, or we were told to stop.
    Over,
}

/// A program of ours that has been forked and waits to be started.
pub(crate) struct Prepared {
    session: Session,
    waiting: Waiting,
    program: OsString,
}

fn receive_signals() -> Result<(Signals, OwnedFd)> {
    let signals = Signals::of(&SIGNALS);
    let mask = signal::block(&signals).context("blocking signals")?;
    Ok((mask, signal::descriptor(&signals).context("reading signals")?))
}

/// For commands that can be stopped: from now on the signals that would end this process are only
/// read.
pub(crate) fn stop_signals() -> Result<OwnedFd> {
    let signals = Signals::of(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM]);
    signal::block(&signals).context("blocking signals")?;
    signal::descriptor(&signals).context("reading signals")
}

/// Whether one of [`stop_signals`] has arrived.
pub(crate) fn has_stopped(arriving: BorrowedFd<'_>) -> bool {
    matches!(signal::next(arriving), Ok(Some(_)))
}

/// A look takes no CPU from a thread of the program: where all are busy, Linux would take that
/// thread to another node meanwhile, and its memory would stay behind. Where the kernel refuses it
/// we are as dear as any other program.
fn give_way() {
    let _ = scheduler::preempt_nobody();
}

/// More descriptors for more events; where that is refused, fewer events are opened.
fn raise_limit() {
    let _ = process::raise_descriptor_limit();
}

/// Descriptors that are kept free for undoing changes when all others are in use.
const RESERVE: usize = 8;

fn reserve() -> Vec<File> {
    (0..RESERVE).map_while(|_| File::open("/dev/null").ok()).collect()
}

impl Session {
    /// Joins a running process and what it starts.
    pub(crate) fn join(pid: u32, machine: Discovered, settings: &Settings) -> Result<Self> {
        let (_, arriving) = receive_signals()?;
        let end = process::watch_end(pid as i32).with_context(|| format!("process {pid}"))?;
        raise_limit();
        give_way();
        let reserve = reserve();
        let observer = Observer::open(Root::live(), machine, Pid(pid), Begin::Now, settings)?;
        let subject = Subject::Joined(end);
        Ok(Self { observer, arriving, subject, reserve, started_at: Instant::now() })
    }

    /// Forks the program and opens every sensor on it before it runs.
    pub(crate) fn prepare(
        command: &[OsString],
        user: Option<&User>,
        machine: Discovered,
        settings: &Settings,
    ) -> Result<Prepared> {
        let (mask, arriving) = receive_signals()?;
        let waiting = launch::prepare(command, std::env::vars_os(), &mask, user)
            .context("starting the program")?;
        // After the fork: the program keeps the limits and the scheduling that it was given.
        raise_limit();
        give_way();
        let reserve = reserve();
        let pid = Pid(waiting.process as u32);
        match Observer::open(Root::live(), machine, pid, Begin::OnExec, settings) {
            Ok(observer) => {
                let subject = Subject::Child;
                let started_at = Instant::now();
                let session = Self { observer, arriving, subject, reserve, started_at };
                Ok(Prepared { session, waiting, program: command[0].clone() })
            }
            Err(error) => {
                let _ = waiting.cancel();
                Err(error.into())
            }
        }
    }

    /// The process that it began with.
    pub(crate) fn pid(&self) -> Pid {
        self.observer.first()
    }

    /// Waits until `deadline`, or for the program's end; the sensors' rings are emptied meanwhile.
    pub(crate) fn wait(&mut self, deadline: Instant) -> Result<Turn> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Turn::Interval);
            }
            let ended = match &self.subject {
                Subject::Child => None,
                Subject::Joined(end) => Some(end.as_fd()),
            };
            let descriptors: Vec<BorrowedFd<'_>> = [Some(self.arriving.as_fd()), ended]
                .into_iter()
                .flatten()
                .chain(self.observer.descriptors())
                .collect();
            let readable = signal::wait_readable(&descriptors, milliseconds(left))?;
            let has_ended = ended.is_some() && readable[1];
            if self.signals()? || has_ended {
                return Ok(Turn::Over);
            }
            self.observer.drain();
        }
    }

    /// Reads what has arrived; true when it is time to stop.
    fn signals(&self) -> Result<bool> {
        let mut over = false;
        while let Some(arrived) = signal::next(self.arriving.as_fd())? {
            over |= match (&self.subject, arrived.number) {
                (Subject::Child, SIGCHLD) => process::has_ended(self.pid().0 as i32)?,
                (Subject::Child, number) if arrived.sent_by_process => {
                    // It may have ended just now: that is not our failure.
                    let _ = process::kill(self.pid().0 as i32, number);
                    false
                }
                (Subject::Joined(_), SIGINT | SIGTERM | SIGHUP | SIGQUIT) => true,
                _ => false,
            };
        }
        Ok(over)
    }

    /// Gives the reserve of descriptors back, so that what was changed can be undone.
    pub(crate) fn release_reserve(&mut self) {
        self.reserve.clear();
    }

    /// Waits for the end of a program of ours, and passes signals on meanwhile.
    ///
    /// # Errors
    /// Signals cannot be read.
    pub(crate) fn outlast(&self) -> Result<()> {
        if !matches!(self.subject, Subject::Child) {
            return Ok(());
        }
        while !process::has_ended(self.pid().0 as i32)? {
            signal::wait_readable(&[self.arriving.as_fd()], i32::MAX)?;
            self.signals()?;
        }
        Ok(())
    }

    /// How the program ended; known only of a child, which has ended when this is called.
    pub(crate) fn end(&self) -> Result<Option<End>> {
        match self.subject {
            Subject::Child => Ok(Some(process::wait(self.pid().0 as i32)?)),
            Subject::Joined(_) => Ok(None),
        }
    }
}

impl Prepared {
    /// What watches it.
    pub(crate) fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Ends the program before it has begun.
    pub(crate) fn cancel(self) {
        let _ = self.waiting.cancel();
    }

    /// Lets the program go. The error is the exit status for a program that cannot be run, which
    /// `who` has then said.
    pub(crate) fn start(self, who: &str, memory: Memory) -> Result<Session, u8> {
        let Self { mut session, waiting, program } = self;
        session.started_at = Instant::now();
        match waiting.start(memory) {
            Ok(_) => Ok(session),
            Err(error) => {
                terminal::say(&format!("{who}: cannot run {}: {error}\n", program.display()));
                Err(launch::exit_status(&error))
            }
        }
    }
}

/// Reads a process number from the command line.
pub(crate) fn process_number(text: &str) -> Result<u32, String> {
    const LARGEST: u32 = 0x3fff_ffff; // FUTEX_TID_MASK, include/uapi/linux/futex.h: no task has more
    let number = text.parse().ok().filter(|number| (1..=LARGEST).contains(number));
    number.ok_or_else(|| format!("expected a process number from 1 to {LARGEST}"))
}

/// The user that called sudo, if sudo started this process.
///
/// # Errors
/// sudo's variables do not name a user and a group: a program must not run as root by mistake.
pub(crate) fn caller() -> Result<Option<User>> {
    if process::effective_user() != 0 {
        return Ok(None);
    }
    let text = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    caller_of(text("SUDO_UID").as_deref(), text("SUDO_GID").as_deref())
}

fn caller_of(user: Option<&str>, group: Option<&str>) -> Result<Option<User>> {
    // The largest number means "unchanged" to setuid(2) and its kin.
    let number = |name: &str, text: Option<&str>| {
        let number = text.and_then(|text| text.parse::<u32>().ok());
        number.filter(|number| *number != u32::MAX).with_context(|| {
            let found = text.unwrap_or_default();
            format!(
                "{name} is {found:?}, expected a number; unset SUDO_UID and SUDO_GID to be root"
            )
        })
    };
    if user.is_none() && group.is_none() {
        return Ok(None);
    }
    let (user, group) = (number("SUDO_UID", user)?, number("SUDO_GID", group)?);
    // A user without an entry has the one group that sudo names.
    let numeric = || User { user, group, groups: vec![group] };
    Ok((user != 0).then(|| User::with_number(user, group).unwrap_or_else(numeric)))
}

/// The exit status that stands for an end.
pub(crate) fn status(end: End) -> u8 {
    match end {
        End::Exited(status) => status as u8,
        End::Killed(signal) => (KILLED + signal) as u8,
    }
}

/// The next deadline after one that has passed; those that were missed are skipped.
pub(crate) fn next(passed: Instant, interval: Duration) -> Instant {
    let late = Instant::now().saturating_duration_since(passed);
    let missed = late.as_nanos() / interval.as_nanos().max(1);
    passed + interval * (u32::try_from(missed).unwrap_or(u32::MAX - 1) + 1)
}

/// Rounded up, so that a deadline has passed when the wait is over.
fn milliseconds(left: Duration) -> i32 {
    i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
}

/// CPU time of this process so far: it has one thread.
pub(crate) fn own_cpu_s() -> f64 {
    let bytes = root::read_optional(&Root::live().in_proc("self/schedstat")).ok().flatten();
    let stat = bytes.and_then(|bytes| schedstat::parse(&bytes).ok()).unwrap_or_default();
    stat.running_ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_runs_as_root_only_where_sudo_names_nobody_else() {
        assert_eq!(caller_of(None, None).unwrap(), None);
        assert_eq!(caller_of(Some("0"), Some("0")).unwrap(), None);
        let unknown = User { user: 3_999_999, group: 77, groups: vec![77] };
        assert_eq!(caller_of(Some("3999999"), Some("77")).unwrap(), Some(unknown));
        let largest = u32::MAX.to_string();
        for (user, group) in [
            (Some("5"), None),
            (None, Some("5")),
            (Some("5"), Some("x")),
            (Some(""), Some("5")),
            (Some("-1"), Some("5")),
            (Some(largest.as_str()), Some("5")),
            (Some("5"), Some(largest.as_str())),
        ] {
            assert!(caller_of(user, group).is_err(), "{user:?} {group:?}");
        }
    }
}
