//! A frozen target goes on, whichever process is killed.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rondpoint_core::Pid;
use rondpoint_linux::act::Identity;
use rondpoint_linux::freeze::{Freeze, Frozen, Means, Restored, freeze, restore};
use rondpoint_linux::ledger_file::{LedgerFile, Left, left_behind};
use rondpoint_linux::parse::stat;
use rondpoint_linux::syscall::process;
use rondpoint_linux::syscall::signal::wait_readable;
use rondpoint_linux::{LinuxError, Root};

/// Far longer than any process here stands still.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(1000);

// Numbers of signal(7), the same on x86-64 and arm64.
const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// A program that runs without pause until it is killed.
struct Target(Child);

impl Target {
    fn start() -> Self {
        Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh is there"))
    }

    fn identity(&self) -> Identity {
        Identity::of(&Root::live(), Pid(self.0.id())).expect("it runs")
    }

    fn is_stopped(&self) -> bool {
        let text = std::fs::read(format!("/proc/{}/stat", self.0.id())).expect("it is there");
        stat::parse(&text).expect("the kernel's format").state == 'T'
    }

    fn until(&self, stopped: bool) {
        until("the target's state", || self.is_stopped() == stopped);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what} did not change");
        std::thread::yield_now();
    }
}

/// With a ledger that no manager reads.
fn attempt(process: Identity) -> Result<Freeze, LinuxError> {
    let folder = tempfile::tempdir().expect("a folder");
    let ledgers = folder.path().join("ledgers");
    freeze(&Root::live(), process, LIMIT, &mut LedgerFile::create(&ledgers, &Root::live())?)
}

fn frozen(target: &Target) -> Frozen {
    match attempt(target.identity()).expect("may be frozen") {
        Freeze::Frozen(frozen) => frozen,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_target_stands_still_until_it_is_thawed() {
    let target = Target::start();
    let held = frozen(&target);
    assert!(target.is_stopped() && held.is_guarded());
    assert_eq!(held.means(), Means::Signal, "it shares its cgroup with this test");
    let elapsed = held.thaw().expect("may be thawed");
    assert!(elapsed > Duration::ZERO);
    target.until(false);
    drop(frozen(&target));
    target.until(false);
}

#[test]
fn whoever_was_stopped_before_stays_so() {
    let target = Target::start();
    process::kill(target.0.id() as i32, SIGSTOP).expect("ours");
    target.until(true);
    let found = attempt(target.identity()).expect("looked at");
    assert!(matches!(found, Freeze::AlreadyStopped), "{found:?}");
    drop(found);
    assert!(target.is_stopped());
    process::kill(target.0.id() as i32, SIGCONT).expect("ours");
}

#[test]
fn a_guardian_that_is_killed_is_missed() {
    let target = Target::start();
    let held = frozen(&target);
    process::kill(held.guardian().expect("there is one"), SIGKILL).expect("ours");
    until("the guardian", || !held.is_guarded());
    held.thaw().expect("may be thawed");
    target.until(false);
}

#[test]
fn one_that_has_ended_or_must_not_stand_still_is_not_frozen() {
    let mut target = Target::start();
    let identity = target.identity();
    target.0.kill().expect("ours");
    target.0.wait().expect("it ends");
    assert!(matches!(attempt(identity), Ok(Freeze::Gone)));
    let own = Identity::of(&Root::live(), Pid(std::process::id())).expect("it runs");
    let error = attempt(own).expect_err("not this one").to_string();
    assert!(error.contains("cannot be frozen: it would be this one"), "{error}");
}

#[test]
fn a_target_that_has_ended_needs_no_thaw() {
    let mut target = Target::start();
    let held = frozen(&target);
    target.0.kill().expect("ours");
    target.0.wait().expect("it ends");
    held.thaw().expect("nothing stands still");
}

#[test]
fn a_number_that_the_kernel_refuses_is_not_taken_for_an_end() {
    let nobody = Identity { pid: Pid(0), started: rondpoint_core::Nanos(0) };
    let error = attempt(nobody).expect_err("no process has it").to_string();
    assert!(error.contains("pidfd_open"), "{error}");
}

const TARGET: &str = "RONDPOINT_TEST_TARGET";
const LEDGERS: &str = "RONDPOINT_TEST_LEDGERS";

/// A mover that freezes its target and goes no further: this test program once more, told by its
/// environment.
struct Mover {
    process: Child,
    guardian: i32,
    ledgers: tempfile::TempDir,
}

impl Mover {
    /// Starts it for the test of this name, which begins with [`Mover::main`].
    fn start(test: &str, target: &Target) -> Self {
        let ledgers = tempfile::tempdir().expect("a folder");
        let mut process = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", test, "--nocapture"])
            .env(TARGET, target.0.id().to_string())
            .env(LEDGERS, ledgers.path().join("ledgers"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let mut lines = output.lines().map_while(Result::ok);
        let guardian = lines.find_map(|line| line.split_once("guarded by ")?.1.parse().ok());
        Self { process, guardian: guardian.expect("it is frozen"), ledgers }
    }

    /// In the mover: freezes and waits; elsewhere nothing.
    fn main() {
        let Ok(pid) = std::env::var(TARGET) else { return };
        let pid = Pid(pid.parse().expect("a number"));
        let folder = std::env::var_os(LEDGERS).expect("told, too");
        let mut ledger = LedgerFile::create(Path::new(&folder), &Root::live()).expect("a ledger");
        let identity = Identity::of(&Root::live(), pid).expect("it runs");
        let found = freeze(&Root::live(), identity, LIMIT, &mut ledger).expect("may be frozen");
        let Freeze::Frozen(held) = &found else { panic!("{found:?}") };
        println!("guarded by {}", held.guardian().expect("there is one"));
        let _ = std::io::stdin().read_line(&mut String::new());
        panic!("it should have been killed");
    }

    fn kill(&mut self) {
        self.process.kill().expect("ours");
        self.process.wait().expect("it ends");
    }

    /// What it left in its ledger; `None` while its guardian lives, which holds the ledger too.
    fn left(&self) -> Option<Left> {
        let left = left_behind(&self.ledgers.path().join("ledgers"));
        left.expect("may be read").left.pop()
    }
}

#[test]
fn a_mover_that_is_killed_leaves_nothing_frozen() {
    Mover::main();
    let target = Target::start();
    let mut mover = Mover::start("a_mover_that_is_killed_leaves_nothing_frozen", &target);
    assert!(target.is_stopped());
    mover.kill();
    target.until(false);
    // The guardian has said so: `rondpoint restore` does not disturb a later stop by another
    // process.
    until("the ledger", || mover.left().is_some_and(|left| left.frozen.is_empty()));
}

#[test]
fn a_target_whose_mover_and_guardian_are_killed_is_let_go_by_the_ledger() {
    Mover::main();
    let target = Target::start();
    let name = "a_target_whose_mover_and_guardian_are_killed_is_let_go_by_the_ledger";
    let mut mover = Mover::start(name, &target);
    // A guardian that is killed first can do nothing; its parent is not there to see it if both are
    // at once.
    let guardian = process::watch_end(mover.guardian).expect("it is there");
    process::kill(mover.process.id() as i32, SIGSTOP).expect("ours");
    process::kill(mover.guardian, SIGKILL).expect("ours");
    assert_eq!(wait_readable(&[guardian.as_fd()], 20_000).expect("a wait"), [true]);
    mover.kill();
    assert!(target.is_stopped(), "no process is left to let it go");
    let left = mover.left().expect("there is one");
    assert_eq!(left.frozen, [(target.identity(), Means::Signal)]);
    assert_eq!(restore(&Root::live(), &left), Restored { thawed: 1, ..Restored::default() });
    target.until(false);
    // Once more: it runs, and is left to run.
    assert_eq!(restore(&Root::live(), &left), Restored { running: 1, ..Restored::default() });
    drop(target);
    assert_eq!(restore(&Root::live(), &left), Restored { gone: 1, ..Restored::default() });
}

/// A cgroup of its own for a process, where this user may make one.
struct Cgroup(std::path::PathBuf);

impl Cgroup {
    fn with(pid: u32) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let folder = std::path::Path::new(line.split(' ').nth(4)?);
        let folder = folder.join(format!("rondpoint-test-{}", std::process::id()));
        std::fs::create_dir(&folder).ok()?;
        let cgroup = Self(folder);
        std::fs::write(cgroup.0.join("cgroup.procs"), pid.to_string()).ok()?;
        Some(cgroup)
    }

    fn is_frozen(&self) -> bool {
        let events = std::fs::read_to_string(self.0.join("cgroup.events")).expect("there");
        events.contains("frozen 1")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Empty as soon as its process has been reaped.
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_target_alone_in_its_cgroup_is_frozen_there() {
    let mut target = Target::start();
    let Some(cgroup) = Cgroup::with(target.0.id()) else {
        println!("not tried: this user may make no cgroup");
        return;
    };
    let held = frozen(&target);
    assert_eq!(held.means(), Means::Cgroup);
    assert!(cgroup.is_frozen() && !target.is_stopped(), "no parent sees it stopped");
    let again = attempt(target.identity()).expect("looked at");
    assert!(matches!(again, Freeze::AlreadyStopped), "somebody else has frozen it: {again:?}");
    held.thaw().expect("may be thawed");
    until("the cgroup", || !cgroup.is_frozen());
    // As if all processes that knew of it had been killed.
    let frozen = vec![(target.identity(), Means::Cgroup)];
    let left = Left { frozen, ..Left::default() };
    std::fs::write(cgroup.0.join("cgroup.freeze"), "1").expect("ours");
    until("the cgroup", || cgroup.is_frozen());
    assert_eq!(restore(&Root::live(), &left), Restored { thawed: 1, ..Restored::default() });
    until("the cgroup", || !cgroup.is_frozen());
    assert_eq!(restore(&Root::live(), &left), Restored { running: 1, ..Restored::default() });
    target.0.kill().expect("ours");
    target.0.wait().expect("it ends");
}
