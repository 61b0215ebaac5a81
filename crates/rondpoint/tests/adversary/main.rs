//! An adversary of the safety contract. System calls of the real manager fail, are interrupted,
//! do a part or come late by chance. Its clock jumps, and it is killed at any call. The program
//! goes on unharmed, its status is passed on, its threads have their masks again, and no ledger is
//! left.
//!
//! `RONDPOINT_RUNS=N` makes N runs of each kind, and `RONDPOINT_SEED=N` begins with another seed.
//! `RONDPOINT_SECONDS=N` begins none later. A failure prints its seed first; that seed
//! with one run makes it again. Runs side by side need a PID namespace and a `/run` each.

mod attached;
mod clauses;
mod faults;
mod freezes;
#[path = "../harness/mod.rs"]
mod harness;
mod kills;
#[path = "../harness/nodes.rs"]
mod nodes;
#[path = "../harness/patience.rs"]
mod patience;
#[path = "../harness/restore.rs"]
mod restore;
mod restores;
mod tracer;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rondpoint_linux::ledger_file;

/// Seconds of a day.
const DAY_S: u64 = 24 * 60 * 60;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["as-worker", ready] => worker::main(Path::new(ready)),
        words => {
            let tests = [
                attached::TESTS,
                clauses::TESTS,
                faults::TESTS,
                freezes::TESTS,
                kills::TESTS,
                restores::TESTS,
            ];
            let tests = tests.concat();
            return harness::run(&tests, words);
        }
    }
    ExitCode::SUCCESS
}

/// A number from the environment.
fn setting(name: &str, usual: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: no number")))
}

/// No run begins later.
fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(setting("RONDPOINT_SECONDS", DAY_S))
}

/// The ledgers of this user.
fn ledgers() -> Vec<PathBuf> {
    let names = std::fs::read_dir(ledger_file::own_folder().expect("a place"));
    let paths = names.into_iter().flatten().filter_map(|name| Some(name.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|found| found == "ledger")).collect()
}
