//! What is frozen goes on, whoever is killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rondpoint_core::Pid;
use rondpoint_linux::Root;
use rondpoint_linux::act::Identity;
use rondpoint_linux::freeze::{Freeze, Frozen, Means, freeze};
use rondpoint_linux::parse::stat;
use rondpoint_linux::syscall::process;

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

fn frozen(target: &Target) -> Frozen {
    match freeze(&Root::live(), target.identity()).expect("may be frozen") {
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
    let found = freeze(&Root::live(), target.identity()).expect("looked at");
    assert!(matches!(found, Freeze::WasStopped), "{found:?}");
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
    assert!(matches!(freeze(&Root::live(), identity), Ok(Freeze::Gone)));
    let own = Identity::of(&Root::live(), Pid(std::process::id())).expect("it runs");
    let error = freeze(&Root::live(), own).expect_err("not this one").to_string();
    assert!(error.contains("cannot be frozen: it would be this one"), "{error}");
}

const TARGET: &str = "RONDPOINT_TEST_TARGET";

/// Runs twice: as the test, and, started by it, as a mover that freezes its target and goes no further.
#[test]
fn a_mover_that_is_killed_leaves_nothing_frozen() {
    if let Ok(pid) = std::env::var(TARGET) {
        let pid = Pid(pid.parse().expect("a number"));
        let identity = Identity::of(&Root::live(), pid).expect("it runs");
        let held = freeze(&Root::live(), identity).expect("may be frozen");
        println!("frozen: {held:?}");
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let target = Target::start();
    let mut mover = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "a_mover_that_is_killed_leaves_nothing_frozen", "--nocapture"])
        .env(TARGET, target.0.id().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let output = BufReader::new(mover.stdout.take().expect("piped"));
    let said = output.lines().map_while(Result::ok).find(|line| line.contains("frozen: "));
    assert!(said.is_some_and(|line| line.contains("Frozen")));
    assert!(target.is_stopped());
    mover.kill().expect("ours");
    mover.wait().expect("it ends");
    target.until(false);
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
    // Where this user may make no cgroup there is nothing to try: the signal is tried above.
    let Some(cgroup) = Cgroup::with(target.0.id()) else { return };
    let held = frozen(&target);
    assert_eq!(held.means(), Means::Cgroup);
    assert!(cgroup.is_frozen() && !target.is_stopped(), "nobody sees it stopped");
    let again = freeze(&Root::live(), target.identity()).expect("looked at");
    assert!(matches!(again, Freeze::WasStopped), "somebody else has frozen it: {again:?}");
    held.thaw().expect("may be thawed");
    until("the cgroup", || !cgroup.is_frozen());
    target.0.kill().expect("ours");
    target.0.wait().expect("it ends");
}
