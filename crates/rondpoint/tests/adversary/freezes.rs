//! A mover that keeps its target still, its guardian, or both are killed at each system call.
//!
//! The mover is `rondpoint move --freeze` itself. It sees two memory nodes on any host, by a tree
//! of sysfs that is mounted for it alone. Its target has no page on the second, so none moves.

use std::path::Path;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use rondpoint_core::CpuSet;
use rondpoint_linux::parse::stat;

use crate::harness::Test;
use crate::nodes::{namespace, two_nodes};
use crate::restore::restore;
use crate::tracer::{Fate, trace};
use crate::{ledgers, setting};

pub(crate) const TESTS: &[Test] = &[
    ("freezes::nothing_stays_frozen_whichever_of_mover_and_guardian_is_killed", runs),
    ("freezes::a_target_that_a_debugger_has_is_left_to_it", a_debugger_has_it),
    ("freezes::a_target_that_nobody_could_resume_is_resumed_by_restore", nobody_resumes),
    ("freezes::a_target_that_nobody_guards_is_not_stopped_and_no_ledger_says_so", nobody_guards),
];

/// Runs in `./x test`: four of each kind.
const USUAL_RUNS: u64 = 12;

/// The processes that are killed.
const KINDS: [Fate; 3] = [Fate::Kill, Fate::KillGuardian, Fate::KillBoth];

/// System calls of mover and guardian from the first ledger on: about 170. At each of this many,
/// three runs kill.
const CALLS: u64 = 200;

/// Runs in sequence are this many calls apart. It has no divisor in common with [`CALLS`].
const STRIDE: u64 = 51;

fn runs(_: &CpuSet) {
    let Some(nodes) = two_nodes() else { return };
    let (first, runs) = (setting("RONDPOINT_SEED", 0), setting("RONDPOINT_RUNS", USUAL_RUNS));
    let found: Vec<Kill> = (first..first + runs).map(|seed| run(seed, nodes.path())).collect();
    let of = |kind: Fate| found.iter().filter(move |kill| kill.kind == kind);
    for kind in KINDS {
        let (runs, frozen) = (of(kind).count(), of(kind).filter(|kill| kill.frozen).count());
        let left = of(kind).filter(|kill| kill.left).count();
        println!("{kind:?}: {runs} runs, {frozen} killed in the freeze, {left} left to restore");
    }
    let frozen = found.iter().filter(|kill| kill.frozen).count();
    assert!(frozen > 0 || runs < USUAL_RUNS, "no target stood still");
}

fn a_debugger_has_it(_: &CpuSet) {
    let Some(nodes) = two_nodes() else { return };
    let target = Target::start();
    let pid = Pid::from_raw(target.0.id() as i32);
    ptrace::attach(pid).expect("a child of ours may be traced");
    waitpid(pid, None).expect("it stops");
    let mut command = namespace(nodes.path());
    let output = mover(&mut command, &target).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("a debugger has it"), "{errors}");
    assert_eq!((output.status.code(), target.state()), (Some(2), 't'));
    assert!(ledgers().is_empty());
    ptrace::detach(pid, None).expect("it is traced");
}

/// The kernel refuses the signal by which mover and guardian resume the target.
fn nobody_resumes(_: &CpuSet) {
    let Some(nodes) = two_nodes() else { return };
    let target = Target::start();
    let mut command = namespace(nodes.path());
    mover(&mut command, &target);
    let mut refused = 0;
    let (ended, errors) = trace(&command, |call| {
        let resumes =
            call.number == libc::SYS_pidfd_send_signal && call.second == libc::SIGCONT as u64;
        refused += u64::from(resumes);
        if resumes { Fate::Fail(Errno::EPERM) } else { Fate::Pass }
    });
    let context = format!("{ended:?}\n{errors}");
    assert!(refused >= 2 && target.is_stopped(), "{refused} signals refused: {context}");
    assert!(errors.contains("rondpoint restore"), "{context}");
    assert!(matches!(ended.status, WaitStatus::Exited(_, 1)), "no success: {context}");
    assert_eq!(ledgers().len(), 1, "the only word of it is gone: {context}");
    restore();
    assert!(!target.is_stopped(), "the target stands still after a restore: {context}");
    assert_eq!(restore()["ledgers"], 0, "{context}");
}

/// The system has no room for the guardian.
fn nobody_guards(_: &CpuSet) {
    let Some(nodes) = two_nodes() else { return };
    let target = Target::start();
    let mut command = namespace(nodes.path());
    mover(&mut command, &target);
    let (mut has_ledger, mut refused) = (false, 0);
    let (ended, errors) = trace(&command, |call| {
        has_ledger = has_ledger || !ledgers().is_empty();
        let forks = matches!(call.number, libc::SYS_clone | libc::SYS_fork);
        let is_refused = has_ledger && forks && refused == 0;
        refused += u64::from(is_refused);
        if is_refused { Fate::Fail(Errno::EAGAIN) } else { Fate::Pass }
    });
    let context = format!("{ended:?}\n{errors}");
    assert_eq!((refused, target.is_stopped()), (1, false), "{context}");
    assert!(matches!(ended.status, WaitStatus::Exited(_, 2)), "{context}");
    assert!(ledgers().is_empty(), "a ledger says that it was stopped: {context}");
    assert!(!errors.contains("stopped still"), "{context}");
}

/// A run, and what its kill met.
struct Kill {
    kind: Fate,
    /// The target stood still.
    frozen: bool,
    /// It stood still afterwards, too, until `rondpoint restore`.
    left: bool,
}

fn run(seed: u64, nodes: &Path) -> Kill {
    let kind = KINDS[(seed % 3) as usize];
    let at = seed / 3 * STRIDE % CALLS;
    let target = Target::start();
    let mut command = namespace(nodes);
    mover(&mut command, &target);
    let (mut seen, mut has_ledger, mut frozen) = (0, false, false);
    let (ended, errors) = trace(&command, |_| {
        has_ledger = has_ledger || !ledgers().is_empty();
        seen += u64::from(has_ledger);
        if seen != at + 1 {
            return Fate::Pass;
        }
        frozen = target.is_stopped();
        kind
    });
    let left = target.is_stopped();
    let context = format!("RONDPOINT_SEED={seed} RONDPOINT_RUNS=1: {kind:?} {ended:?}\n{errors}");
    // Either of the two alone lets it go on.
    assert!(!left || kind == Fate::KillBoth, "the target stands still: {context}");
    let is_killed = matches!(ended.status, WaitStatus::Signaled(..));
    assert_eq!(is_killed, kind != Fate::KillGuardian && seen > at, "{context}");
    assert!(is_killed || matches!(ended.status, WaitStatus::Exited(_, 0)), "{context}");
    assert!(is_killed || ledgers().is_empty(), "{context}");
    restore();
    assert!(!target.is_stopped(), "the target stands still after a restore: {context}");
    assert_eq!(restore()["ledgers"], 0, "{context}");
    Kill { kind, frozen, left }
}

/// The command that keeps a target still.
fn mover<'a>(command: &'a mut Command, target: &Target) -> &'a mut Command {
    command.args([env!("CARGO_BIN_EXE_rondpoint"), "move", "--from", "1", "--to", "0"]);
    command.args(["--freeze", "--quiet", "--pid", &target.0.id().to_string()])
}

/// A program that waits. It is killed when this is dropped.
struct Target(Child);

impl Target {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().expect("sleep runs"))
    }

    fn state(&self) -> char {
        let text = std::fs::read(format!("/proc/{}/stat", self.0.id())).expect("it is there");
        stat::parse(&text).expect("the kernel's format").state
    }

    fn is_stopped(&self) -> bool {
        self.state() == 'T'
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
