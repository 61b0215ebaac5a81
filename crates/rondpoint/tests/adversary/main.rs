//! An adversary of the safety contract: system calls of the real manager fail by chance, and it is
//! killed at any of them. The managed program goes on unharmed, its status is passed on, its
//! threads have their masks again, and no ledger is left.
//!
//! `RONDPOINT_RUNS=N` makes N runs of each kind, and `RONDPOINT_SEED=N` begins with another seed. A
//! failure prints its seed first; that seed with one run makes it again.

mod clauses;
mod faults;
mod kills;
mod tracer;
mod worker;

use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rondpoint_linux::syscall::affinity;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, ready] = arguments.as_slice()
        && word == "as-worker"
    {
        worker::main(Path::new(ready));
        return ExitCode::SUCCESS;
    }
    if affinity::get(0).expect("a mask").len() < 2 {
        println!("a mask can be narrowed only where there are two CPUs");
        return ExitCode::SUCCESS;
    }
    let words: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let tests: [(&str, fn()); 7] = [
        ("clauses::a_dry_run_changes_nothing", clauses::dry_run_changes_nothing),
        (
            "clauses::the_ledger_knows_each_mask_before_it_is_set",
            clauses::the_ledger_knows_each_mask_before_it_is_set,
        ),
        (
            "clauses::without_room_for_the_ledger_nothing_is_changed",
            clauses::without_room_for_the_ledger_nothing_is_changed,
        ),
        (
            "clauses::the_next_manager_puts_back_what_a_killed_one_left",
            clauses::the_next_manager_puts_back_what_a_killed_one_left,
        ),
        (
            "clauses::the_ordinary_end_puts_back_what_outlives_the_program",
            clauses::the_ordinary_end_puts_back_what_outlives_the_program,
        ),
        ("faults::a_program_outlives_every_refused_call", faults::runs),
        ("kills::a_manager_killed_at_any_call_leaves_nothing_behind", kills::runs),
    ];
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in tests {
        if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let is_good = panic::catch_unwind(test).is_ok();
        passed += usize::from(is_good);
        failed += usize::from(!is_good);
        println!("test {name} ... {}", if is_good { "ok" } else { "FAILED" });
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured");
    ExitCode::from(u8::from(failed > 0))
}

/// A number from the environment.
fn setting(name: &str, usual: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: no number")))
}

/// The ledgers of this user.
fn ledgers() -> Vec<PathBuf> {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let (runtime, state, home) = (path("XDG_RUNTIME_DIR"), path("XDG_STATE_HOME"), path("HOME"));
    let places = rondpoint_linux::ledger_file::Places {
        owns_run: rondpoint_linux::syscall::process::effective_user() == 0,
        runtime: runtime.as_deref(),
        state: state.as_deref(),
        home: home.as_deref(),
    };
    let folder = rondpoint_linux::ledger_file::folder(&places).expect("a place");
    let names = std::fs::read_dir(folder).into_iter().flatten();
    names.filter_map(|name| Some(name.ok()?.path())).collect()
}

/// `rondpoint restore --json`: what it says.
fn restore() -> serde_json::Value {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    let output = command.args(["restore", "--json"]).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "restore: {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}
