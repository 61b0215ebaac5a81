//! `rondpoint run`, `attach`, `record` and `restore`, as their user starts them, on whatever machine this is.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn rondpoint(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    rondpoint(arguments).output().expect("the program starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_program_keeps_its_output_and_status_and_the_report_says_what_was_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.json");
    let path = report.to_str().expect("text");
    let found = output(&["run", "--report", path, "--", "sh", "-c", "echo out; exit 7"]);
    assert_eq!(found.status.code(), Some(7), "{}", errors(&found));
    assert_eq!(found.stdout, b"out\n");
    assert!(errors(&found).contains("ended with status 7"), "{}", errors(&found));
    let report = std::fs::read(&report).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!((&report["schema"], &report["exit_status"]), (&1.into(), &7.into()));
    assert_eq!(report["pages_moved"], 0);
    let killed = output(&["run", "--quiet", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!((killed.status.code(), errors(&killed)), (Some(137), String::new()));
}

#[test]
fn what_cannot_be_done_is_refused_before_the_program_runs() {
    let refuse = |arguments: &[&str], status: i32, expected: &str| {
        let found = output(arguments);
        assert_eq!(found.status.code(), Some(status), "{arguments:?}: {}", errors(&found));
        assert!(errors(&found).contains(expected), "{arguments:?}: {}", errors(&found));
        assert_eq!(found.stdout, b"", "the program did not run");
    };
    let echo = ["--", "echo", "ran"];
    let run = |flags: &[&str]| [&["run"], flags, &echo].concat().join(" ");
    for (flags, expected) in [
        (&["--policy", "nope"][..], "nope: no such policy"),
        (&["--policy", "carrefour:nope"], "carrefour:nope: no such preset"),
        (&["--report", "/nonexistent/x"], "writing /nonexistent/x"),
        (&["--record", "/nonexistent/x"], "writing /nonexistent/x"),
        (&["--machine", "/nonexistent.toml"], "/nonexistent.toml"),
        (&["--sensor", "eyes"], "possible values"),
    ] {
        let line = run(flags);
        refuse(&line.split(' ').collect::<Vec<_>>(), 125, expected);
    }
    refuse(&["run", "--", "/nonexistent"], 127, "cannot run /nonexistent");
    refuse(&["attach", "x"], 125, "expected a process number");
    refuse(&["attach", "1073741823"], 125, "No such process");
}

#[test]
fn a_record_can_be_replayed() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("a.trace");
    let path = trace.to_str().expect("text");
    let found = output(&["record", "--output", path, "--", "sleep", "1.2"]);
    assert_eq!(found.status.code(), Some(0), "{}", errors(&found));
    let replayed = output(&["replay", path]);
    assert_eq!(replayed.status.code(), Some(0), "{}", errors(&replayed));
}

/// The ledger is there before anything could have been changed, and outlives a manager that is killed.
#[test]
fn what_a_killed_manager_left_is_worked_off() {
    let mut manager = rondpoint(&["run", "--quiet", "--", "sleep", "30"]);
    let mut manager = manager.spawn().expect("the program starts");
    let runtime = std::env::var_os("XDG_RUNTIME_DIR");
    let user = rondpoint_linux::syscall::process::effective_user();
    let ledgers = rondpoint_linux::ledger_file::folder(user, runtime.as_ref().map(Path::new));
    let ledger = ledgers.join(format!("{}.ledger", manager.id()));
    let begin = Instant::now();
    while !ledger.exists() {
        assert!(begin.elapsed() < Duration::from_secs(20), "no {}", ledger.display());
        std::thread::yield_now();
    }
    manager.kill().expect("it runs");
    manager.wait().expect("it has ended");
    let restored = output(&["restore"]);
    assert_eq!(restored.status.code(), Some(0), "{}", errors(&restored));
    assert!(!ledger.exists(), "{}", String::from_utf8_lossy(&restored.stdout));
}
