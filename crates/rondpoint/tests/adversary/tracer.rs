//! Stops a program at each of its system calls, and lets the call through, lets it fail or kills.
//!
//! ptrace(2) sees what the kernel sees: calls of the standard library and of the C library too. The
//! program that a traced manager starts is let go at its exec.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// A system call that is about to begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Its number.
    pub(crate) number: i64,
    /// Its first argument.
    pub(crate) first: u64,
    /// Its second argument.
    pub(crate) second: u64,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The kernel does it.
    Pass,
    /// It is not done, and fails with this error.
    Fail(Errno),
    /// The manager is killed before it.
    Kill,
}

/// How a traced program ended, and how many calls it made.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Of the program itself.
    pub(crate) status: WaitStatus,
    /// Calls that were seen.
    pub(crate) calls: u64,
    /// Of those, calls that failed because of us.
    pub(crate) failed: u64,
}

/// Harmless and on every filter's list: takes the place of a call that is not to be done.
const NOTHING: u64 = libc::SYS_getpid as u64;

/// A manager that takes longer is killed, and its run fails: a call that it waits for never ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the kernel has in place of a result when a call begins (`syscall_enter`, Linux on x86-64).
const NO_RESULT: u64 = -(libc::ENOSYS as i64) as u64;

/// One thread of the manager or of its guardian.
#[derive(Debug, Default)]
struct Thread {
    in_call: bool,
    fails_with: Option<Errno>,
}

/// Starts `command` and asks `fate` about every call of it.
pub(crate) fn trace(command: &Command, mut fate: impl FnMut(Call) -> Fate) -> (Ended, String) {
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
        program: std::fs::canonicalize(command.get_program()).expect("a program"),
        has_begun: false,
        began_at: Instant::now(),
        threads: BTreeMap::new(),
        calls: 0,
        failed: 0,
    };
    let mut status = None;
    // Only what this thread traces: other tests have children of their own.
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    while let Ok(event) = waitpid(None, Some(flags)) {
        match event {
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _) => {
                tracer.threads.remove(&pid);
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
    (Ended { status, calls: tracer.calls, failed: tracer.failed }, text)
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
    /// The shell has become the manager.
    has_begun: bool,
    began_at: Instant,
    threads: BTreeMap<Pid, Thread>,
    calls: u64,
    failed: u64,
}

impl Tracer {
    /// Whoever was killed meanwhile is told by the next wait.
    fn go_on(&mut self, event: WaitStatus, fate: &mut impl FnMut(Call) -> Fate) {
        match event {
            WaitStatus::PtraceSyscall(pid) => self.at_call(pid, fate),
            WaitStatus::PtraceEvent(pid, _, libc::PTRACE_EVENT_EXEC) => self.at_exec(pid),
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
            let _ = ptrace::syscall(pid, None);
        } else {
            self.threads.remove(&pid);
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
            let call = Call { number, first: registers.rdi, second: registers.rsi };
            match if late { Fate::Kill } else { fate(call) } {
                Fate::Pass => {}
                Fate::Fail(error) => {
                    self.failed += 1;
                    thread.fails_with = Some(error);
                    registers.orig_rax = NOTHING;
                    let _ = ptrace::setregs(pid, registers);
                }
                Fate::Kill => {
                    let _ = nix::sys::signal::kill(self.root, Signal::SIGKILL);
                }
            }
        } else if !thread.in_call
            && let Some(error) = thread.fails_with.take()
        {
            registers.rax = (-(error as i64)) as u64;
            let _ = ptrace::setregs(pid, registers);
        }
        let _ = ptrace::syscall(pid, None);
    }
}
