//! A manager is killed at any of its system calls.

use std::process::Command;
use std::time::Instant;

use nix::libc;
use rondpoint_core::CpuSet;
use rondpoint_core::random::Random;

use crate::harness::Test;
use crate::restore::restore;
use crate::tracer::{Fate, trace};
use crate::worker::Worker;
use crate::{deadline, setting};

pub(crate) const TESTS: &[Test] =
    &[("kills::a_manager_killed_at_any_call_leaves_nothing_behind", runs)];

/// Runs in `./x test`. By hand: 1,000.
const USUAL_RUNS: u64 = 12;

/// Calls after the first mask among which one is drawn.
const CALLS_AFTER_A_MASK: usize = 400;

/// Calls after the program's begin among which one is drawn.
const CALLS_AFTER_THE_BEGIN: usize = 2_000;

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
    let worker = Worker::named_in(folder.path().join("ready"));
    let mut random = Random::new(seed);
    let after_a_mask = random.below(3) > 0;
    let calls = if after_a_mask { CALLS_AFTER_A_MASK } else { CALLS_AFTER_THE_BEGIN };
    let at = random.below(calls);
    let (mut seen, mut has_set_masks) = (0, false);
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(["run", "--policy", "shuffle", "--quiet", "--"]);
    command.arg(std::env::current_exe().expect("this program"));
    command.arg("as-worker").arg(folder.path().join("ready"));
    let (ended, errors) = trace(&command, |call| {
        has_set_masks |= call.number == libc::SYS_sched_setaffinity;
        let counts = worker.is_ready() && (!after_a_mask || has_set_masks);
        seen += usize::from(counts);
        if seen > at { Fate::Kill } else { Fate::Pass }
    });
    let context = format!("RONDPOINT_SEED={seed} RONDPOINT_RUNS=1: {ended:?}\n{errors}");
    let narrowed = worker.narrow_threads(own) > 1;
    let before = (worker.masks(), crate::clauses::ledger_text());
    restore();
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
