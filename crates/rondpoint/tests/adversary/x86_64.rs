//! All tests, on the architecture whose registers the tracer knows.

pub(crate) mod attached;
pub(crate) mod clauses;
pub(crate) mod delegated;
pub(crate) mod faults;
pub(crate) mod freezes;
#[path = "../harness/mod.rs"]
pub(crate) mod harness;
pub(crate) mod kills;
#[path = "../harness/nodes.rs"]
pub(crate) mod nodes;
pub(crate) mod panics;
#[path = "../harness/patience.rs"]
pub(crate) mod patience;
#[path = "../harness/restore.rs"]
pub(crate) mod restore;
pub(crate) mod restores;
pub(crate) mod tracer;
pub(crate) mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rondpoint_linux::ledger_file;

/// Seconds of a day.
const DAY_S: u64 = 24 * 60 * 60;

pub(crate) fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["as-worker", ready] => worker::main(Path::new(ready)),
        ["without-counters", command @ ..] => delegated::without_counters(command),
        words => {
            let words: Vec<&str> =
                words.iter().copied().filter(|word| !word.contains('=')).collect();
            let tests = [
                attached::TESTS,
                clauses::TESTS,
                delegated::TESTS,
                faults::TESTS,
                freezes::TESTS,
                kills::TESTS,
                panics::TESTS,
                restores::TESTS,
            ];
            let tests = tests.concat();
            return harness::run(&tests, &words);
        }
    }
    ExitCode::SUCCESS
}

/// A number from the environment, or from the last such word of the command line: a guest of the
/// lab gives words only.
pub(crate) fn setting(name: &str, usual: u64) -> u64 {
    let value = |word: &String| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    let words: Vec<String> = std::env::args().skip(1).collect();
    let text = std::env::var(name).ok().or_else(|| words.iter().rev().find_map(value));
    text.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: no number")))
}

/// No run begins later.
pub(crate) fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(setting("RONDPOINT_SECONDS", DAY_S))
}

/// The ledgers of this user.
pub(crate) fn ledgers() -> Vec<PathBuf> {
    let names = std::fs::read_dir(ledger_file::own_folder().expect("a place"));
    let paths = names.into_iter().flatten().filter_map(|name| Some(name.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|found| found == "ledger")).collect()
}
