//! An observed program: started by Rondpoint or joined while it runs, with its signals and its end.
//!
//! Everything runs in one thread. Signals are read from a descriptor, without handlers. Signals
//! from another process are passed on to the program; signals of the terminal reach it by
//! themselves.

mod caller;
mod memory;
mod stopping;
mod survival;

use std::cell::Cell;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rondpoint_core::Pid;
use rondpoint_linux::act::Identity;
use rondpoint_linux::claim::{self, Claim};
use rondpoint_linux::observe::subject::Start as Begin;
use rondpoint_linux::observe::{Observer, Settings};
use rondpoint_linux::parse::schedstat;
use rondpoint_linux::syscall::process::{self, End, Memory, User, Waiting};
use rondpoint_linux::syscall::signal::{self, Signals};
use rondpoint_linux::syscall::{descriptors, limits, scheduler};
use rondpoint_linux::topology::Discovered;
use rondpoint_linux::{Root, launch, probe, root};

pub(crate) use self::caller::caller;
pub(crate) use self::memory::{has_heap, has_stack, with_stack};
use self::stopping::receive_signals;
pub(crate) use self::stopping::{Held, has_stopped, stop_signals, wait_for_room};
pub(crate) use self::survival::{panic_if_told, survived};
use crate::live::{Watched, trees::Trees};
use crate::placement::Placement;
use crate::terminal;

// Numbers of signal(7), the same on x86-64 and arm64.
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGUSR1: i32 = 10;
const SIGUSR2: i32 = 12;
const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;
/// Signals of signal(7) that end a process by default, beside those above. Any process may send
/// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGALRM, SIGSTKFLT, SIGXCPU, SIGXFSZ,
/// SIGVTALRM, SIGPROF, SIGIO, SIGPWR and SIGSYS. A fault of this process ends it although they are
/// blocked (`force_sig_info_to_task`, kernel/signal.c, Linux 6.12). The standard library's sentence
/// about a full stack is missing then.
const ENDING: [i32; 15] = [4, 5, 6, 7, 8, 11, 14, 16, 24, 25, 26, 27, 29, 30, 31];
/// Real-time signals, all of which end a process by default. The C library keeps 32 and 33 for
/// itself, musl 34 too. It refuses those in a set.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;
/// A limit of our own was met; it is not a request to end.
const SIGXFSZ: i32 = 25;
/// From the kernel: this process is soon killed for its CPU time.
const SIGXCPU: i32 = 24;

/// All that are read instead of being suffered.
fn received() -> Signals {
    let named = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCHLD];
    let all: Vec<i32> = named.into_iter().chain(ENDING).chain(REAL_TIME).collect();
    Signals::of(&all)
}

/// What a shell adds to the number of the signal that killed a program.
const KILLED: i32 = 128;

/// Exit status of a failure of ours, as `env` and `timeout` have it.
pub(crate) const OWN_FAILURE: u8 = 125;

/// The process that has this number now.
///
/// # Errors
/// There is none.
pub(crate) fn process_of(root: &Root, pid: Pid) -> Result<Identity> {
    Identity::of(root, pid).with_context(|| format!("process {pid}: no such process"))
}

/// Claims a process, so that no other Rondpoint manages it meanwhile.
///
/// # Errors
/// One does already.
pub(crate) fn claim_of(root: &Root, process: Identity) -> Result<Claim> {
    claim::claim(root, process).map_err(|holder| {
        let claim::Holder { managed, manager } = holder;
        let whose = match managed == process.pid {
            true => String::new(),
            false => format!(" with its ancestor {managed}"),
        };
        let pid = process.pid;
        match manager {
            Some(manager) => anyhow::anyhow!(
                "process {pid}: rondpoint manages it already{whose} (process {manager})"
            ),
            None => anyhow::anyhow!(
                "process {pid}: it is managed already{whose}: socket \
                 @rondpoint-manager-{managed}-… has a full queue, or another user has all names of \
                 the claim (ss -xlp names the owners)"
            ),
        }
    })
}

/// # Errors
/// This user may not move pages of the process, or its main thread has ended: then nobody can.
pub(crate) fn may_move_pages_of(root: &Root, pid: Pid) -> Result<()> {
    let found = probe::may_move_pages_of(pid);
    if found.is_err() && probe::is_kernel_thread(root, pid) {
        anyhow::bail!(
            "process {pid}: it is a thread of the kernel, which has no memory of its own"
        );
    }
    found.with_context(|| match probe::outlives_its_main_thread(root, pid) {
        true => format!("process {pid}: its main thread has ended, so its pages cannot be moved"),
        false => format!("process {pid}: its pages may not be moved by this user"),
    })
}

/// Where the main thread of a process has ended, its pages stay and its threads may move.
///
/// # Errors
/// This user may not move pages of the process.
pub(crate) fn may_manage(root: &Root, pid: Pid) -> Result<()> {
    let found = may_move_pages_of(root, pid);
    let errno = found.as_ref().err().and_then(|error| error.downcast_ref::<std::io::Error>());
    match errno.and_then(std::io::Error::raw_os_error) {
        Some(EINVAL) if probe::outlives_its_main_thread(root, pid) => Ok(()),
        _ => found,
    }
}

/// The program that is watched.
enum Subject {
    /// A program of ours.
    Child,
    /// A process that ran already, with a descriptor that tells its end.
    Joined(OwnedFd),
}

/// A program that runs, with the signals that reach us meanwhile.
pub(crate) struct Program {
    pid: Pid,
    arriving: OwnedFd,
    subject: Subject,
    started_at: Cell<Instant>,
    /// A program of ours is past execve(2).
    has_begun: Cell<bool>,
    /// How a program of ours ended, once that has been read: it does not come again.
    end: Cell<Option<End>>,
    /// It has ended, or we were told to stop: that has been read and does not come again.
    is_over: Cell<bool>,
    /// A signal to stop has arrived, for us or for the program.
    is_unwanted: Cell<bool>,
    /// Our CPU time is almost used up.
    is_exhausted: Cell<bool>,
}

/// A program and everything that watches it.
pub(crate) struct Session {
    pub(crate) observer: Observer,
    program: Rc<Program>,
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
    waiting: Waiting,
    program: Rc<Program>,
    word: OsString,
}

/// A look takes no CPU from a thread of the program. Where all CPUs are busy, Linux would move that
/// thread to another node meanwhile, and its memory would stay behind. Where the kernel refuses it
/// we are as dear as any other program.
fn give_way() {
    let _ = scheduler::preempt_nobody();
}

/// More descriptors for more events, and some that stay free. Where that is refused, fewer events
/// are opened.
fn raise_limit() {
    if let Ok(allowed) = process::raise_descriptor_limit() {
        descriptors::leave_some(allowed);
    }
}

// Numbers of include/uapi/asm-generic/errno-base.h: there is no such process; it has no memory.
const ESRCH: i32 = 3;
const EINVAL: i32 = 22;

/// Why the end of a process cannot be watched: it has ended, or its kernel or sandbox has no
/// pidfd_open.
fn cannot_watch(pid: u32, error: std::io::Error) -> anyhow::Error {
    let what = match error.raw_os_error() {
        Some(ESRCH) => "",
        _ => ": its end cannot be watched (pidfd_open)",
    };
    anyhow::Error::from(error).context(format!("process {pid}{what}"))
}

/// What a process needs that watches many.
pub(crate) fn prepare_to_watch() {
    raise_limit();
    give_way();
    // Where the kernel refuses, it kills us in the end.
    let _ = limits::outlive_cpu_time();
}

impl Session {
    /// Joins a running process and what it starts.
    pub(crate) fn join(pid: u32, machine: Discovered, settings: &Settings) -> Result<Self> {
        memory::has_heap()?;
        let (_, arriving) = receive_signals(None)?;
        let end = process::watch_end(pid as i32).map_err(|error| cannot_watch(pid, error))?;
        prepare_to_watch();
        let (pid, subject) = (Pid(pid), Subject::Joined(end));
        let program = Program::new(pid, arriving, subject);
        let observer = program.observer(machine, settings)?;
        Ok(Self::of(Rc::new(program), observer))
    }

    /// A program and what watches it.
    pub(crate) fn of(program: Rc<Program>, observer: Observer) -> Self {
        Self { observer, program }
    }

    /// When it was started or joined.
    pub(crate) fn started_at(&self) -> Instant {
        self.program.started_at.get()
    }

    /// The process that it began with.
    pub(crate) fn pid(&self) -> Pid {
        self.program.pid
    }

    /// Waits until `deadline`, or for the program's end; the sensors' rings are emptied meanwhile.
    pub(crate) fn wait(&mut self, deadline: Instant) -> Result<Turn> {
        if self.program.is_over.get() {
            return Ok(Turn::Over);
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Turn::Interval);
            }
            let ended = self.program.ending();
            let descriptors: Vec<BorrowedFd<'_>> = [Some(self.program.arriving.as_fd()), ended]
                .into_iter()
                .flatten()
                .chain(self.observer.descriptors())
                .collect();
            let readable = signal::wait_readable(&descriptors, milliseconds(left))?;
            let has_ended = ended.is_some() && readable[1];
            if self.program.signals()? || has_ended {
                return Ok(Turn::Over);
            }
            self.observer.drain();
        }
    }

    /// Waits until `reader` takes bytes, and passes signals on meanwhile. False where the program
    /// has ended, or was only joined, and a signal said to stop.
    pub(crate) fn wait_for_room(&self, reader: BorrowedFd<'_>) -> Result<bool> {
        let program = &self.program;
        wait_for_room(program.arriving.as_fd(), reader, || {
            Ok(program.signals()? && program.is_unwanted.get())
        })
    }

    /// As [`Program::wait_for_end`].
    pub(crate) fn wait_for_end(&mut self) {
        self.program.wait_for_end();
    }

    /// As [`Program::end`].
    pub(crate) fn end(&self) -> Result<Option<End>> {
        self.program.end()
    }
}

impl Program {
    fn new(pid: Pid, arriving: OwnedFd, subject: Subject) -> Self {
        Self {
            pid,
            arriving,
            subject,
            started_at: Cell::new(Instant::now()),
            has_begun: Cell::new(false),
            end: Cell::new(None),
            is_over: Cell::new(false),
            is_unwanted: Cell::new(false),
            is_exhausted: Cell::new(false),
        }
    }

    /// Opens every sensor on the program, which runs.
    pub(crate) fn observer(&self, machine: Discovered, settings: &Settings) -> Result<Observer> {
        Ok(Observer::open(Root::live(), machine, self.pid, Begin::Now, settings)?)
    }

    /// What becomes readable at the end of a program that was joined.
    fn ending(&self) -> Option<BorrowedFd<'_>> {
        match &self.subject {
            Subject::Child => None,
            Subject::Joined(end) => Some(end.as_fd()),
        }
    }

    /// Waits for the end of a program of ours, and only for that: watching has ended. A process
    /// that was joined goes on without us.
    pub(crate) fn wait_for_end(&self) {
        const PATIENCE_MS: i32 = 1000;
        let is_known = self.is_over.get() || self.end.get().is_some();
        if is_known || matches!(self.subject, Subject::Joined(_)) {
            return;
        }
        loop {
            let _ = signal::wait_readable(&[self.arriving.as_fd()], PATIENCE_MS);
            // An error here must not end the wait: the child itself is asked.
            if matches!(self.signals(), Ok(true))
                || !matches!(process::has_ended(self.pid.0 as i32), Ok(false))
            {
                return;
            }
        }
    }

    /// Reads what has arrived; true when it is time to stop.
    ///
    /// # Errors
    /// Reading fails, or a program of ours goes on and our CPU time is almost used up.
    fn signals(&self) -> Result<bool> {
        let mut over = self.is_over.get();
        while let Some(arrived) = signal::next(self.arriving.as_fd())? {
            if !matches!(arrived.number, SIGCHLD | SIGUSR1 | SIGUSR2 | SIGXFSZ) {
                self.is_unwanted.set(true);
            }
            over |= match (&self.subject, arrived.number) {
                (Subject::Child, SIGCHLD) => process::has_ended(self.pid.0 as i32)?,
                (Subject::Child, number) if arrived.sent_by_process => {
                    // It may have ended just now: that is not our failure.
                    let _ = process::kill(self.pid.0 as i32, number);
                    false
                }
                (Subject::Child, SIGXCPU) => {
                    self.is_exhausted.set(true);
                    false
                }
                (Subject::Joined(_), SIGCHLD | SIGUSR1 | SIGUSR2 | SIGXFSZ) => false,
                (Subject::Joined(_), _) => true,
                _ => false,
            };
        }
        self.is_over.set(over);
        if self.is_exhausted.get() && !over {
            bail!("the limit of CPU time is almost used up (ulimit -t)");
        }
        Ok(over)
    }

    /// How the program ended; known only of a child, which has ended when this is called.
    pub(crate) fn end(&self) -> Result<Option<End>> {
        if matches!(self.subject, Subject::Child) && self.end.get().is_none() {
            self.end.set(Some(process::wait(self.pid.0 as i32)?));
        }
        Ok(self.end.get())
    }
}

impl Watched for Session {
    fn observer(&mut self) -> &mut Observer {
        &mut self.observer
    }

    fn wait(&mut self, _trees: &mut Trees, deadline: Instant) -> Result<Turn> {
        Session::wait(self, deadline)
    }

    fn is_called(&mut self) -> bool {
        self.program.signals().is_ok_and(|is_over| is_over)
    }
}

impl Prepared {
    /// Forks the program in its placement. Signals that are `held` reach it from here on.
    pub(crate) fn fork(
        command: &[OsString],
        user: Option<&User>,
        placement: &Placement,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        held: Option<&mut Held>,
    ) -> Result<Self> {
        memory::has_heap()?;
        let (mask, arriving) = receive_signals(held)?;
        let environment: Vec<_> = environment.into_iter().collect();
        let fork = || Ok(launch::prepare(command, environment, &mask, user)?);
        let waiting = placement.around(fork).context("starting the program")?;
        // After the fork: the program keeps the limits and the scheduling that it was given.
        prepare_to_watch();
        let program = Program::new(Pid(waiting.process as u32), arriving, Subject::Child);
        Ok(Self { waiting, program: Rc::new(program), word: command[0].clone() })
    }

    /// What it will be once it has begun.
    pub(crate) fn program(&self) -> Rc<Program> {
        Rc::clone(&self.program)
    }

    /// The process that will become the program.
    pub(crate) fn pid(&self) -> Pid {
        self.program.pid
    }

    /// Opens every sensor on the program before it runs: nothing of it is missed.
    pub(crate) fn observer(&self, machine: Discovered, settings: &Settings) -> Result<Observer> {
        Ok(Observer::open(Root::live(), machine, self.pid(), Begin::OnExec, settings)?)
    }

    /// What has to be found out before the program begins. A failure ends it before it has begun.
    pub(crate) fn first<T>(self, find: impl FnOnce(&Self) -> Result<T>) -> Result<(Self, T)> {
        match find(&self) {
            Ok(found) => Ok((self, found)),
            Err(error) => {
                let _ = self.waiting.cancel();
                Err(error)
            }
        }
    }

    /// Lets the program go. The error is the exit status for a program that cannot be run, after a
    /// message in the name of `who`.
    pub(crate) fn start(self, who: &str, memory: Memory) -> Result<Rc<Program>, u8> {
        let Self { waiting, program, word } = self;
        program.started_at.set(Instant::now());
        match waiting.start(memory) {
            Ok(_) => {
                program.has_begun.set(true);
                Ok(program)
            }
            Err(error) => {
                terminal::say(&format!("{who}: cannot run `{}`: {error}\n", word.display()));
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

/// The exit status that stands for an end.
pub(crate) fn status(end: End) -> u8 {
    match end {
        End::Exited(status) => status as u8,
        End::Killed(signal) => (KILLED + signal) as u8,
    }
}

/// The next deadline after one that has passed; missed deadlines are skipped.
pub(crate) fn next(passed: Instant, interval: Duration) -> Instant {
    let late = Instant::now().saturating_duration_since(passed);
    let missed = late.as_nanos() / interval.as_nanos().max(1);
    passed + interval * (u32::try_from(missed).unwrap_or(u32::MAX - 1) + 1)
}

/// Rounded up, so that a deadline has passed when the wait is over.
pub(crate) fn milliseconds(left: Duration) -> i32 {
    i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
}

/// CPU time of this process so far: it has one thread.
pub(crate) fn own_cpu_s() -> f64 {
    let bytes = root::read_optional(&Root::live().in_proc("self/schedstat")).ok().flatten();
    let stat = bytes.and_then(|bytes| schedstat::parse(&bytes).ok()).unwrap_or_default();
    stat.running_ns as f64 / 1e9
}

#[cfg(test)]
mod tests;
