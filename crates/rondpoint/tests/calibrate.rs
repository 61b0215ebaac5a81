//! `rondpoint calibrate` from outside, on the machine that runs the tests. Only what holds on every
//! machine is asserted; `./x lab calibration` checks what it finds.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Small and short, so that it does not matter how large the machine is.
fn calibrate(output: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(["calibrate", "--time", "5", "--cache", "64K", "--output"]).arg(output);
    command.args(words).output().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_program_needs_a_machine_that_was_calibrated() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("found.toml");
    let output = calibrate(&file, &["--", "true"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("run `rondpoint calibrate` first: reading "), "{said}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_file_is_written_whole_and_stays_as_it_is_where_a_program_shows_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("found.toml");
    let output = calibrate(&file, &["--json"]);
    let said = String::from_utf8(output.stderr).unwrap();
    if said.contains("run it on the whole machine") {
        // A part of a machine is not measured in the whole one's place.
        assert_eq!(output.status.code(), Some(1));
        assert!(names(folder.path()).is_empty());
        println!("not tried further: this process may not use all CPUs");
        return;
    }
    assert!(output.status.success(), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = &report["calibration"];
    let missing = report["points"]["missing"].as_array().unwrap();
    for what in ["sampling", "penalty"] {
        let why = missing.iter().any(|why| why.as_str().unwrap().starts_with(what));
        assert!(!found[what].is_null() || why, "{what}: neither found nor missing: {report}");
    }
    let before = std::fs::read_to_string(&file).unwrap();
    assert!(before.contains("# CPUs that it had when it was measured\ncpus = "), "{before}");
    let output = calibrate(&file, &["--", "false"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    // A busy machine is told first.
    let errors = said.lines().filter(|line| !line.contains("warning: this machine is busy"));
    assert_eq!(errors.count(), 1, "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    assert_eq!(names(folder.path()), ["found.toml"]);
}

#[test]
fn a_place_that_is_no_regular_file_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("null.toml");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    for place in [Path::new("/dev/null"), &link, folder.path()] {
        let output = calibrate(place, &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("it is no regular file; expected a regular or a new file"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let null = std::fs::metadata("/dev/null").unwrap();
    assert!(!null.is_file() && std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(names(folder.path()), ["null.toml"]);
}

/// Under sudo, in a folder that is not root's.
#[test]
fn the_file_of_sudos_caller_is_written_in_the_callers_folder() {
    const USER: u32 = 1001;
    if rondpoint_linux::syscall::process::effective_user() != 0 {
        println!("not tried: only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(USER), Some(USER)).unwrap();
    let file = folder.path().join("found.toml");
    for _ in 0..2 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        command.args(["calibrate", "--time", "5", "--cache", "1M", "--output"]).arg(&file);
        command.env("SUDO_UID", USER.to_string()).env("SUDO_GID", USER.to_string());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        if said.contains("may not use all CPUs") {
            println!("not tried: this process may not use all CPUs");
            return;
        }
        assert!(output.status.success(), "{said}");
        let found = std::fs::metadata(&file).unwrap();
        assert_eq!((found.uid(), found.gid()), (USER, USER));
    }
    assert_eq!(names(folder.path()), ["found.toml"]);
}

#[test]
fn a_signal_that_ends_it_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("found.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    // A minute for each measurement, so the signal comes during the first.
    command.args(["calibrate", "--time", "60000", "--output"]).arg(&file);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        std::thread::yield_now();
    }
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let ended = child.wait().unwrap();
    assert!(!ended.success());
    if ended.signal().is_none() {
        println!("not tried: this process may not use all CPUs");
    }
    assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
}

#[test]
fn stdout_takes_the_measurements_or_the_report() {
    for (words, expected) in [
        (&["--json"][..], "--json and --output -: stdout takes one of them"),
        (&["--", "true"], "--output -: a program is added to an earlier file"),
    ] {
        let output = calibrate(Path::new("-"), words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}
