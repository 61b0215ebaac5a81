//! `attach` to a program that runs, and how it leaves.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::libc;
use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::process::kill;

use crate::harness::Test;
use crate::ledgers;
use crate::patience::comes;
use crate::worker::Worker;

pub(crate) const TESTS: &[Test] = &[
    ("attached::a_signal_that_ends_attach_undoes_its_changes", a_signal_undoes),
    ("attached::with_few_descriptors_masks_come_back_and_no_ledger_stays", few_descriptors),
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
