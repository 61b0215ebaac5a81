//! Stops a program at each of its system calls, and lets the call through, spoils it or kills.
//!
//! ptrace(2) sees what the kernel sees: calls of the standard library and of the C library too. The
//! program that a traced manager starts is let go at its exec.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// A system call that is about to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// The thread that makes it.
    pub(crate) pid: Pid,
    /// Its number.
    pub(crate) number: i64,
    /// Its first argument.
    pub(crate) first: u64,
    /// Its second argument.
    pub(crate) second: u64,
    /// Its third argument.
    pub(crate) third: u64,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The kernel does it.
    Pass,
    /// It is not done, and fails with this error.
    Fail(Errno),
    /// It is asked for this many bytes only: its third argument.
    Shorten(u64),
    /// It begins this much later.
    Delay(Duration),
    /// It is a reading of the clock, which has gone on by this much, for every later reading too.
    Jump(Duration),
    /// The manager is killed before it.
    Kill,
    /// The guardian is killed before it, if there is one.
    KillGuardian,
    /// The guardian and the manager are killed before it.
    KillBoth,
}

/// How a traced program ended, and how many calls it made.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Of the program itself.
    pub(crate) status: WaitStatus,
    /// Calls that were seen.
    pub(crate) calls: u64,
    /// Of those, calls that were spoilt.
    pub(crate) spoilt: u64,
}

/// Harmless and on every filter's list: takes the place of a call that is not to be done.
const NOTHING: u64 = libc::SYS_getpid as u64;

/// A manager that takes longer is killed, and its run fails: a call that it waits for never ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the kernel has in place of a result when a call begins (`syscall_enter`, Linux on x86-64).
const NO_RESULT: u64 = -(libc::ENOSYS as i64) as u64;

/// Entries of the auxiliary vector (`linux/auxvec.h`): its end, one to skip, where the vDSO is.
const AT_NULL: i64 = 0;
const AT_IGNORE: i64 = 1;
const AT_SYSINFO_EHDR: i64 = 33;

const NANOSECONDS: i64 = 1_000_000_000;

/// One thread of the manager or of its guardian.
#[derive(Debug, Default)]
struct Thread {
    in_call: bool,
    at_end: Option<AtEnd>,
}

/// What is done where a call ends.
#[derive(Debug, Clone, Copy)]
enum AtEnd {
    /// It has failed.
    FailWith(Errno),
    /// Its third argument is what the caller has passed.
    GiveBack(u64),
    /// The time at this address is moved.
    MoveTime(u64),
}

/// Starts `command`, which becomes the manager, and asks `fate` about every call of that but
/// readings of the clock.
pub(crate) fn trace(command: &Command, fate: impl FnMut(Call) -> Fate + Send) -> (Ended, String) {
    trace_all(command, false, fate)
}

/// Starts `command` and asks `fate` about every call. With `clocks`, readings of the clock are
/// calls: the kernel's code that answers them without one (vDSO) is hidden from the program.
pub(crate) fn trace_all(
    command: &Command,
    clocks: bool,
    fate: impl FnMut(Call) -> Fate + Send,
) -> (Ended, String) {
    // A thread of its own waits for what it traces only. As the first process of a PID namespace,
    // the other threads get the children of processes that were killed.
    let traced = std::thread::scope(|scope| {
        let tracer = std::thread::Builder::new().name("tracer".to_string());
        tracer.spawn_scoped(scope, || follow(command, clocks, fate)).expect("a thread").join()
    });
    traced.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn follow(command: &Command, clocks: bool, mut fate: impl FnMut(Call) -> Fate) -> (Ended, String) {
    // A file: the managed program may live on and hold a pipe open.
    let mut errors = tempfile::tempfile().expect("a file");
    let mut shell = waiting(command, errors.try_clone().expect("a descriptor"));
    let root = Pid::from_raw(shell.id() as i32);
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(root, options).expect("a child of ours may be traced");
    ptrace::interrupt(root).expect("it lives");
    shell.stdin.take().expect("piped").write_all(b"\n").expect("it waits for a line");
    let mut tracer = Tracer {
        root,
        program: std::fs::canonicalize(env!("CARGO_BIN_EXE_rondpoint")).expect("a program"),
        clocks,
        has_begun: false,
        began_at: Instant::now(),
        threads: BTreeMap::new(),
        guardians: BTreeSet::new(),
        jumped: Duration::ZERO,
        calls: 0,
        spoilt: 0,
    };
    let mut status = None;
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    while let Ok(event) = waitpid(None, Some(flags)) {
        match event {
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _) => {
                tracer.threads.remove(&pid);
                tracer.guardians.remove(&pid);
                if pid == root {
                    status = Some(event);
                }
            }
            event => tracer.go_on(event, &mut fate),
        }
    }
    // The tracer has reaped it already.
    let _ = shell.wait();
    let mut text = String::new();
    errors.rewind().expect("a file");
    errors.read_to_string(&mut text).expect("text");
    let status = status.expect("the program's end was seen");
    (Ended { status, calls: tracer.calls, spoilt: tracer.spoilt }, text)
}

/// A shell that becomes the command when it is told to.
fn waiting(command: &Command, errors: File) -> Child {
    let mut shell = Command::new("sh");
    shell.args(["-c", "read go; exec \"$@\" </dev/null", "sh"]).arg(command.get_program());
    shell.args(command.get_args()).envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors);
    shell.spawn().expect("sh starts")
}

struct Tracer {
    root: Pid,
    program: PathBuf,
    clocks: bool,
    /// The shell has become the manager.
    has_begun: bool,
    began_at: Instant,
    threads: BTreeMap<Pid, Thread>,
    /// Children that have become no other program.
    guardians: BTreeSet<Pid>,
    /// All jumps of the clock.
    jumped: Duration,
    calls: u64,
    spoilt: u64,
}

impl Tracer {
    /// The next wait tells of a process that was killed meanwhile.
    fn go_on(&mut self, event: WaitStatus, fate: &mut impl FnMut(Call) -> Fate) {
        match event {
            WaitStatus::PtraceSyscall(pid) => self.at_call(pid, fate),
            WaitStatus::PtraceEvent(pid, _, libc::PTRACE_EVENT_EXEC) => self.at_exec(pid),
            WaitStatus::PtraceEvent(pid, _, libc::PTRACE_EVENT_FORK) => {
                let child = ptrace::getevent(pid).map(|child| Pid::from_raw(child as i32));
                self.guardians.extend(child);
                let _ = ptrace::syscall(pid, None);
            }
            WaitStatus::PtraceEvent(pid, _, _) | WaitStatus::Stopped(pid, Signal::SIGTRAP) => {
                let _ = ptrace::syscall(pid, None);
            }
            WaitStatus::Stopped(pid, signal) => {
                let _ = ptrace::syscall(pid, Some(signal));
            }
            _ => {}
        }
    }

    fn at_exec(&mut self, pid: Pid) {
        if pid == self.root {
            // The shell's own exec may come late enough to be seen.
            let program = std::fs::read_link(format!("/proc/{pid}/exe"));
            self.has_begun = program.is_ok_and(|program| program == self.program);
            if self.clocks {
                hide_vdso(pid).expect("a stopped process has a stack");
            }
            let _ = ptrace::syscall(pid, None);
        } else {
            self.threads.remove(&pid);
            self.guardians.remove(&pid);
            let _ = ptrace::detach(pid, None);
        }
    }

    fn at_call(&mut self, pid: Pid, fate: &mut impl FnMut(Call) -> Fate) {
        let thread = self.threads.entry(pid).or_default();
        let Ok(mut registers) = ptrace::getregs(pid) else { return };
        // A child's first stop is at the end of the fork. A call that begins has no result yet.
        thread.in_call = !thread.in_call && registers.rax == NO_RESULT;
        if thread.in_call && self.has_begun {
            self.calls += 1;
            let late = self.began_at.elapsed() > PATIENCE;
            let number = registers.orig_rax as i64;
            let user_regs_struct { rdi: first, rsi: second, rdx: third, .. } = registers;
            let fate =
                if late { Fate::Kill } else { fate(Call { pid, number, first, second, third }) };
            thread.at_end = (number == libc::SYS_clock_gettime).then_some(AtEnd::MoveTime(second));
            let spoils =
                !matches!(fate, Fate::Pass | Fate::Kill | Fate::KillGuardian | Fate::KillBoth);
            self.spoilt += u64::from(spoils);
            match fate {
                Fate::Pass => {}
                Fate::Fail(error) => {
                    thread.at_end = Some(AtEnd::FailWith(error));
                    registers.orig_rax = NOTHING;
                    let _ = ptrace::setregs(pid, registers);
                }
                Fate::Shorten(bytes) => {
                    thread.at_end = Some(AtEnd::GiveBack(third));
                    registers.rdx = bytes;
                    let _ = ptrace::setregs(pid, registers);
                }
                Fate::Delay(time) => std::thread::sleep(time),
                Fate::Jump(time) => self.jumped += time,
                Fate::Kill => kill([&self.root]),
                Fate::KillGuardian => kill(self.guardians.iter()),
                Fate::KillBoth => kill(self.guardians.iter().chain([&self.root])),
            }
        } else if !thread.in_call
            && let Some(deed) = thread.at_end.take()
        {
            let _ = end_call(pid, registers, deed, self.jumped);
        }
        let _ = ptrace::syscall(pid, None);
    }
}

/// Kills in this order: a process that has been killed sees nothing of the end of the next.
fn kill<'a>(processes: impl IntoIterator<Item = &'a Pid>) {
    for process in processes {
        let _ = nix::sys::signal::kill(*process, Signal::SIGKILL);
    }
}

/// Does what is done where a call ends.
fn end_call(
    pid: Pid,
    mut registers: user_regs_struct,
    deed: AtEnd,
    jumped: Duration,
) -> nix::Result<()> {
    match deed {
        AtEnd::FailWith(error) => registers.rax = (-(error as i64)) as u64,
        AtEnd::GiveBack(third) => registers.rdx = third,
        AtEnd::MoveTime(address) if !jumped.is_zero() && registers.rax == 0 => {
            let (seconds, nanoseconds) = (address as *mut _, (address + 8) as *mut _);
            let time = ptrace::read(pid, nanoseconds)? + i64::from(jumped.subsec_nanos());
            let whole = ptrace::read(pid, seconds)? + jumped.as_secs() as i64 + time / NANOSECONDS;
            ptrace::write(pid, seconds, whole)?;
            return ptrace::write(pid, nanoseconds, time % NANOSECONDS);
        }
        AtEnd::MoveTime(_) => return Ok(()),
    }
    ptrace::setregs(pid, registers)
}

/// Hides the vDSO from a program that is about to begin. Its stack then has a count, arguments, a
/// zero, variables, a zero, and pairs of the auxiliary vector.
fn hide_vdso(pid: Pid) -> nix::Result<()> {
    let mut at = ptrace::getregs(pid)?.rsp;
    let word = |at: u64| ptrace::read(pid, at as *mut _);
    at += 8 * (word(at)? as u64 + 2);
    while word(at)? != 0 {
        at += 8;
    }
    at += 8;
    while word(at)? != AT_NULL {
        if word(at)? == AT_SYSINFO_EHDR {
            ptrace::write(pid, at as *mut _, AT_IGNORE)?;
        }
        at += 16;
    }
    Ok(())
}
