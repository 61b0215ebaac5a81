//! A manager is killed at each of its system calls, one after the other, from its first mask on.
//! Some are killed before.

use std::process::{Command, Stdio};
use std::time::Instant;

use nix::libc;
use rondpoint_core::CpuSet;

use crate::clauses::{READY, ledger_text};
use crate::harness::Test;
use crate::restore::restore;
use crate::tracer::{Fate, trace};
use crate::worker::Worker;
use crate::{deadline, setting};

pub(crate) const TESTS: &[Test] =
    &[("kills::a_manager_killed_at_any_call_leaves_nothing_behind", runs)];

/// Runs in `./x test`. By hand: twenty times [`CALLS`], which meets each call in each way.
const USUAL_RUNS: u64 = 12;

/// System calls from the first mask on: one turn of the loop makes about 400. A prime number, so
/// that every call meets each kind of run.
const CALLS: u64 = 499;

/// Runs in sequence are this many calls apart.
const STRIDE: u64 = 51;

fn runs(own: &CpuSet) {
    let (first, runs) = (setting("RONDPOINT_SEED", 1), setting("RONDPOINT_RUNS", USUAL_RUNS));
    let until = deadline();
    let (mut done, mut narrowed) = (0, 0);
    for seed in (first..first + runs).take_while(|_| Instant::now() < until) {
        narrowed += u64::from(run(seed, own));
        done += 1;
        // A series by hand takes an hour, and may be ended before.
        if done % 100 == 0 || done == runs {
            println!("to seed {seed}: {done} kills, {narrowed} of a manager with a narrow mask");
        }
    }
    assert!(narrowed > 0 || done < USUAL_RUNS, "no manager had done anything");
}

/// Kills once. Returns whether a mask was narrow at that moment.
fn run(seed: u64, own: &CpuSet) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let (by_next_start, at) = (seed % 2 == 1, seed * STRIDE % CALLS);
    // Every fifth run is killed before it has set a mask.
    let is_early = seed.is_multiple_of(5);
    let ready = folder.path().join(READY[(seed / 2 % 2) as usize]);
    let worker = Worker::named_in(ready.clone());
    let (mut seen, mut has_set_masks) = (0, false);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(["run", "--policy", "shuffle", "--quiet", "--"]);
    command.arg(std::env::current_exe().expect("this program"));
    command.arg("as-worker").arg(ready);
    let (ended, errors) = trace(&command, |call| {
        has_set_masks |= worker.is_ready() && call.number == libc::SYS_sched_setaffinity;
        seen += u64::from(has_set_masks || is_early && worker.is_ready());
        if seen > at { Fate::Kill } else { Fate::Pass }
    });
    let context = format!("RONDPOINT_SEED={seed} RONDPOINT_RUNS=1: {ended:?}\n{errors}");
    let narrowed = worker.narrow_threads(own) > 1;
    let before = (worker.masks(), ledger_text());
    if by_next_start {
        let mut next = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        next.args(["run", "--quiet", "--", "true"]).stdin(Stdio::null());
        let output = next.output().expect("it starts");
        assert!(output.status.success(), "{output:?} {context}");
    } else {
        restore();
    }
    let after = worker.masks();
    assert_eq!(
        worker.narrow_threads(own),
        1,
        "only the bound thread has a mask of its own: {after:?}, before {before:?}: {context}"
    );
    assert!(after.len() >= 5 && worker.goes_on(), "{after:?} {context}");
    assert_eq!(restore()["ledgers"], 0, "{context}");
    narrowed
}
