//! `attach` to a program that runs, and how it leaves.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::wait::WaitStatus;
use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::process::kill;

use crate::harness::Test;
use crate::ledgers;
use crate::patience::comes;
use crate::tracer::{Fate, trace};
use crate::worker::Worker;

pub(crate) const TESTS: &[Test] = &[
    ("attached::a_signal_that_ends_attach_undoes_its_changes", a_signal_undoes),
    ("attached::with_few_descriptors_masks_come_back_and_no_ledger_stays", few_descriptors),
    ("attached::a_later_process_with_the_number_of_the_target_is_left_alone", a_later_process),
];

/// Long enough for a machine that does ten other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that no manager has.
pub(crate) fn program(folder: &Path) -> (Child, Worker) {
    let ready = folder.join("ready");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let child = command.arg("as-worker").arg(&ready).stdin(Stdio::null()).spawn();
    let worker = Worker::named_in(ready);
    assert!(comes(PATIENCE, || worker.is_ready()), "the program does not begin");
    (child.expect("it starts"), worker)
}

/// `attach` to it, after a line of shell.
fn attach(pid: u32, before: &str, errors: Stdio) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before} exec \"$@\""), "sh", env!("CARGO_BIN_EXE_rondpoint")]);
    command.args(["attach", "--policy", "shuffle", "--quiet", &pid.to_string()]);
    command.stdin(Stdio::null()).stderr(errors).spawn().expect("sh starts")
}

fn a_signal_undoes(own: &CpuSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut child, worker) = program(folder.path());
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGSYS, libc::SIGABRT, libc::SIGTERM] {
        let mut manager = attach(worker.pid(), "", Stdio::inherit());
        assert!(comes(PATIENCE, || worker.narrow_threads(own) > 1), "it gives no mask");
        kill(manager.id() as i32, signal).expect("ours");
        let status = manager.wait().expect("ours");
        assert_eq!(status.code(), Some(0), "signal {signal}: {status:?}");
        assert_eq!(worker.narrow_threads(own), 1, "signal {signal}: masks are back");
        assert_eq!(ledgers().len(), 0, "signal {signal}");
    }
    drop(worker);
    child.wait().expect("ours");
}

/// With fewer it may open no counter, and changes nothing then.
const ENOUGH_DESCRIPTORS: u32 = 64;

/// Time in which a manager with counters gives a mask, nearly always.
const A_WHILE: Duration = Duration::from_secs(2);

fn few_descriptors(own: &CpuSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut child, worker) = program(folder.path());
    for descriptors in [10, 12, 14, 16, 20, 24, ENOUGH_DESCRIPTORS] {
        let limit = format!("ulimit -n {descriptors} &&");
        let mut manager = attach(worker.pid(), &limit, Stdio::piped());
        let began = Instant::now();
        let (mut ended, mut acted) = (false, false);
        let begins = || {
            ended = manager.try_wait().expect("ours").is_some();
            acted = worker.narrow_threads(own) > 1;
            let is_idle = descriptors < ENOUGH_DESCRIPTORS && began.elapsed() > A_WHILE;
            ended || acted || is_idle && !ledgers().is_empty()
        };
        assert!(comes(PATIENCE, begins), "{descriptors} descriptors: it does not begin");
        if !ended {
            kill(manager.id() as i32, libc::SIGTERM).expect("ours");
        }
        let output = manager.wait_with_output().expect("ours");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = format!("{descriptors} descriptors: {:?}: {text}", output.status);
        assert!(acted || descriptors < ENOUGH_DESCRIPTORS, "{told}");
        assert!(output.status.success() || text.contains("Too many open files"), "{told}");
        assert_eq!(worker.narrow_threads(own), 1, "{told}");
        assert_eq!(ledgers().len(), 0, "{told}");
    }
    drop(worker);
    child.wait().expect("ours");
}

/// The number that the kernel gave last in this PID namespace.
const LAST_NUMBER: &str = "/proc/sys/kernel/ns_last_pid";

/// Attempts to start a process with a given number, on a machine that starts others meanwhile.
const ATTEMPTS: usize = 20;

/// Life of that process: `attach` would manage it until its end.
const SECONDS: &str = "60";
/// Longer than a tick of the clock by which the kernel tells starts apart.
const APART: Duration = Duration::from_millis(50);

/// Before `attach` opens its target, that ends, and its number is given away.
fn a_later_process(_: &CpuSet) {
    let mut earlier = Command::new("sleep").arg("1000").spawn().expect("coreutils");
    let number = earlier.id();
    std::thread::sleep(APART);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(["attach", "--policy", "shuffle", &number.to_string()]);
    let mut later = None;
    let (ended, errors) = trace(&command, |call| {
        if call.number == libc::SYS_pidfd_open && call.first == u64::from(number) && later.is_none()
        {
            earlier.kill().expect("ours");
            earlier.wait().expect("ours");
            later = Some(successor(number));
        }
        Fate::Pass
    });
    let _ = earlier.kill();
    let _ = earlier.wait();
    assert!(later.is_some(), "attach opens no process: {ended:?}\n{errors}");
    let Some(mut later) = later.flatten() else {
        println!("not tried: a process with the number of another that has ended");
        return;
    };
    let has_run = later.try_wait().expect("ours").is_none();
    let _ = later.kill();
    later.wait().expect("ours");
    let is_refused = matches!(ended.status, WaitStatus::Exited(_, 125));
    assert!(is_refused && errors.contains("has ended") && has_run, "{ended:?}\n{errors}");
    assert_eq!(ledgers().len(), 0, "{errors}");
}

/// A process with this number, which is free; `None` where the kernel gives it to none of ours.
fn successor(number: u32) -> Option<Child> {
    // A child of the tracer's own thread would be waited for there.
    let starts = move || {
        for _ in 0..ATTEMPTS {
            std::fs::write(LAST_NUMBER, (number - 1).to_string()).ok()?;
            let mut child = Command::new("sleep").arg(SECONDS).spawn().expect("coreutils");
            if child.id() == number {
                return Some(child);
            }
            child.kill().expect("ours");
            child.wait().expect("ours");
        }
        None
    };
    std::thread::spawn(starts).join().expect("it does not panic")
}
