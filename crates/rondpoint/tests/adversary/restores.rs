//! `rondpoint restore` works off a killed manager's ledger while its own system calls fail.

use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::wait::WaitStatus;
use rondpoint_core::CpuSet;
use rondpoint_core::random::Random;

use crate::clauses::{ENOUGH, ledger_text, managed};
use crate::faults::{SHARES, Weather};
use crate::harness::Test;
use crate::ledgers;
use crate::restore::restore;
use crate::setting;
use crate::tracer::{Ended, Fate, trace};
use crate::worker::Worker;

pub(crate) const TESTS: &[Test] = &[
    ("restores::putting_back_with_refused_calls_loses_no_mask", runs),
    ("restores::a_refused_mask_keeps_the_ledger", a_refused_mask_keeps_the_ledger),
    ("restores::few_descriptors_are_enough_for_many_ledgers", few_descriptors),
];

/// Descriptors of a restore: three of its own, a ledger, and two to look at processes.
const FEW: u32 = 6;
/// Far more ledgers than that.
const LEDGERS: usize = 20;

/// Runs in `./x test`.
const USUAL_RUNS: u64 = 8;

fn runs(own: &CpuSet) {
    let (first, runs) = (setting("RONDPOINT_SEED", 1), setting("RONDPOINT_RUNS", USUAL_RUNS));
    let (mut refused, mut confessed) = (0, 0);
    for seed in first..first + runs {
        let ended = run(seed, own);
        refused += ended.spoilt;
        confessed += u64::from(!matches!(ended.status, WaitStatus::Exited(_, 0)));
    }
    println!("{runs} restores: {refused} calls made to fail; {confessed} said that they failed");
    assert!(refused > 0 || runs < USUAL_RUNS, "nothing was tried");
}

/// A program after its manager narrowed masks and was killed.
fn left_behind(folder: &Path) -> Worker {
    let (command, worker) = managed(folder, &[]);
    let mut set = 0;
    trace(&command, |call| {
        set += usize::from(worker.is_ready() && call.number == libc::SYS_sched_setaffinity);
        if set == ENOUGH { Fate::Kill } else { Fate::Pass }
    });
    worker
}

fn a_refused_mask_keeps_the_ledger(own: &CpuSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let worker = left_behind(folder.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.arg("restore");
    let (ended, errors) = trace(&command, |call| match call.number {
        libc::SYS_sched_setaffinity => Fate::Fail(Errno::EPERM),
        _ => Fate::Pass,
    });
    assert!(matches!(ended.status, WaitStatus::Exited(_, 1)), "{ended:?} {errors}");
    assert!(ended.spoilt > 0 && worker.narrow_threads(own) > 1, "{ended:?} {errors}");
    assert_eq!(restore()["ledgers"], 1);
    assert_eq!(worker.narrow_threads(own), 1, "only the bound thread has a mask of its own");
}

/// A restore that claims success has put back every mask. Any other leaves the ledger for the next.
fn run(seed: u64, own: &CpuSet) -> Ended {
    let folder = tempfile::tempdir().expect("a folder");
    let worker = left_behind(folder.path());
    let before = (worker.masks(), ledger_text());
    let mut random = Random::new(seed);
    let share = SHARES[random.below(SHARES.len())];
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(["restore", "--json"]);
    let mut refused = Vec::new();
    let (ended, errors) = trace(&command, |call| {
        match Weather::Errors.fate(call, share, &mut random) {
            // These are no failures but answers: there is nothing, or another process has the lock.
            Fate::Fail(Errno::ENOENT | Errno::ESRCH | Errno::EAGAIN) => Fate::Pass,
            Fate::Fail(errno) => {
                refused.push((call.number, errno));
                Fate::Fail(errno)
            }
            fate => fate,
        }
    });
    let context = format!(
        "RONDPOINT_SEED={seed} RONDPOINT_RUNS=1: {ended:?}, calls made to fail: {refused:?}, \
         {before:?}\n{errors}"
    );
    let claims_success = matches!(ended.status, WaitStatus::Exited(_, 0));
    let after = worker.masks();
    assert!(!claims_success || worker.narrow_threads(own) == 1, "{after:?} {context}");
    restore();
    let after = worker.masks();
    assert_eq!(worker.narrow_threads(own), 1, "the bound thread only: {after:?} {context}");
    assert_eq!(restore()["ledgers"], 0, "{context}");
    ended
}

/// One that is short of descriptors leaves everything for the next, and one with a few does it all.
fn few_descriptors(own: &CpuSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let worker = left_behind(folder.path());
    let ledger = ledgers().pop().expect("one was left");
    for number in 1..LEDGERS {
        let copy = ledger.with_file_name(format!("{number}-{number}-1.ledger"));
        std::fs::copy(&ledger, copy).expect("room for a file");
    }
    for descriptors in [4, 5, FEW] {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {descriptors} && exec \"$0\" restore");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_rondpoint")]).stdin(Stdio::null());
        let output = command.output().expect("sh starts");
        let told = format!("{descriptors} descriptors: {output:?}");
        let is_done = worker.narrow_threads(own) == 1 && ledgers().is_empty();
        assert_eq!(output.status.success(), is_done, "{told}");
        assert!(is_done || descriptors < FEW && ledgers().len() == LEDGERS, "{told}");
        if is_done {
            let said = format!("{LEDGERS} ledgers undone");
            assert!(String::from_utf8_lossy(&output.stdout).contains(&said), "{told}");
            return;
        }
    }
}
