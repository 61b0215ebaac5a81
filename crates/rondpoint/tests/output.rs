//! Output of `rondpoint`: closed and full streams, help, text from outside.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "harness/executable.rs"]
mod executable;
#[path = "harness/patience.rs"]
mod patience;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use executable::install;
use patience::comes;
use serde_json::Value;

fn rondpoint(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A pipe without a reader.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

const PRINTING: [&[&str]; 6] = [
    &["topology"],
    &["topology", "--json"],
    &["doctor"],
    &["--help"],
    &["help", "run"],
    &["--version"],
];

#[test]
fn a_reader_that_has_gone_ends_nothing_with_a_panic_or_another_status() {
    for arguments in PRINTING {
        let expected = rondpoint(arguments).output().unwrap().status.code();
        let found = rondpoint(arguments).stdout(unread()).output().unwrap();
        assert_eq!((found.status.code(), text(&found.stderr)), (expected, String::new()));
    }
}

#[test]
fn a_full_disk_is_told_once_and_no_panic() {
    for arguments in [&["topology"][..], &["doctor"], &["topology", "--json"]] {
        let found = rondpoint(arguments).stdout(full()).output().unwrap();
        assert_eq!(found.status.code(), Some(2), "{arguments:?}");
        let said = text(&found.stderr);
        assert!(said.contains("writing to stdout: No space left"), "{said}");
        assert_eq!((said.lines().count(), said.matches("No space").count()), (1, 1), "{said}");
    }
    assert_eq!(rondpoint(&["--help"]).stdout(full()).output().unwrap().status.code(), Some(1));
}

#[test]
fn a_managed_program_keeps_its_status_whatever_becomes_of_our_words() {
    for arguments in [&["run"][..], &["observe"], &["run", "--verbose"]] {
        for stream in [unread as fn() -> Stdio, full] {
            let mut command = rondpoint(arguments);
            command.args(["--", "sh", "-c", "exit 7"]).stderr(stream());
            assert_eq!(command.output().unwrap().status.code(), Some(7), "{arguments:?}");
            let mut command = rondpoint(arguments);
            command.args(["--", "/nonexistent"]).stderr(stream());
            assert_eq!(command.output().unwrap().status.code(), Some(127), "{arguments:?}");
        }
    }
    let bad = rondpoint(&["run", "--nonsense"]).stderr(full()).output().unwrap();
    assert_eq!(bad.status.code(), Some(125));
}

/// A named pipe without room, and its reader, which reads nothing.
fn stuffed(path: &Path) -> File {
    const O_NONBLOCK: i32 = 0o4_000;
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let mut options = OpenOptions::new();
    let mut pipe = options.read(true).write(true).custom_flags(O_NONBLOCK).open(path).unwrap();
    loop {
        match pipe.write(&[0; 4096]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return pipe,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whatever becomes of a report or a record, the program's end is passed on.
#[test]
fn a_reader_that_reads_nothing_withholds_no_status() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["--report", "--record"] {
        let path = folder.path().join(option);
        let _reader = stuffed(&path);
        let mut command = rondpoint(&["run", option]);
        command.arg(&path).args(["--", "sh", "-c", "exit 7"]).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut status = None;
        let has_ended = comes(Duration::from_secs(60), || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        let _ = child.kill();
        child.wait().unwrap();
        assert!(has_ended, "{option}: it waits for its reader");
        assert_eq!(status.unwrap().code(), Some(7), "{option}");
    }
}

/// What follows the bytes of [`stuffed`], until the child has ended.
fn read_late(pipe: &mut File, child: &mut Child) -> String {
    let mut bytes = Vec::new();
    loop {
        let has_ended = child.try_wait().unwrap().is_some();
        match pipe.read_to_end(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => panic!("{other:?}"),
        }
        if has_ended {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    text(&bytes).trim_start_matches('\0').to_string()
}

/// The reader of a record that takes nothing for five seconds is given up.
#[test]
fn a_record_that_its_reader_does_not_take_is_no_time_of_the_program_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (record, report) = (folder.path().join("record"), folder.path().join("report"));
    let _reader = stuffed(&record);
    let mut command = rondpoint(&["run", "--report"]);
    command.arg(&report).arg("--record").arg(&record).args(["--", "sh", "-c", "exit 7"]);
    assert_eq!(command.output().unwrap().status.code(), Some(7));
    let told: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert!(told["elapsed_s"].as_f64().unwrap() < 4.0, "{}", told["elapsed_s"]);
    let notes = told["notes"].as_array().unwrap();
    let is_incomplete = |note: &Value| note.as_str().unwrap().contains("the record is incomplete");
    assert!(notes.iter().any(is_incomplete), "{notes:?}");
}

/// `rondpoint run --report - … | less`: a person reads for longer than a manager would wait.
#[test]
fn a_report_on_stdout_waits_for_its_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let mut pipe = stuffed(&path);
    let stdout = OpenOptions::new().write(true).open(&path).unwrap();
    let mut command = rondpoint(&["run", "--report", "-", "--quiet", "--", "true"]);
    let mut child = command.stdout(stdout).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(8));
    let told = read_late(&mut pipe, &mut child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let report: Value = serde_json::from_str(&told).expect(&told);
    assert_eq!(report["exit_status"], 0);
}

/// Every way by which a name from outside comes to the terminal.
#[test]
fn text_from_outside_does_not_act_on_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let evil = "a\u{1b}[31mb\u{9b}2J";
    let path = folder.path().join(evil);
    install("/bin/sleep", &path);
    let path = path.to_str().unwrap();
    let outputs: Vec<Output> = [
        &["run", "--", path, "0.1"][..],
        &["run", "--verbose", "--", path, "0.1"],
        &["observe", "--interval", "0.05", "--", path, "0.2"],
        &["run", "--machine", evil, "--", "true"],
        &["topology", "--root", evil],
        &["replay", evil],
        &[evil],
        &["run", "--policy", evil, "--", "true"],
    ]
    .iter()
    .map(|arguments| rondpoint(arguments).output().unwrap())
    .collect();
    for output in outputs {
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(!all.contains('\u{1b}') && !all.contains('\u{9b}'), "{all:?}");
    }
}

#[test]
fn help_is_a_word_too_and_knows_every_command() {
    let of = |arguments: &[&str]| {
        let output = rondpoint(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(of(&["help", "run"]), of(&["run", "--help"]));
    assert!(of(&["help"]).contains("Exit status"));
    let unknown = rondpoint(&["help", "nosuch"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2), "{}", text(&unknown.stderr));
}

#[test]
fn an_error_repeats_no_clause() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    File::create(&file).unwrap();
    let file = file.to_str().unwrap();
    for arguments in [
        &["run", "--machine", "/nonexistent.toml", "--", "true"][..],
        &["run", "--report", "/nonexistent/x", "--", "true"],
        &["run", "--machine", file, "--", "true"],
        &["observe", "--pid", "1073741823"],
        &["attach", "1073741823"],
        &["topology", "--root", "/nonexistent"],
        &["topology", "--root", folder.path().to_str().unwrap()],
        &["replay", "/nonexistent.trace"],
        &["replay", file],
        &["decide", "--machine", "/nonexistent", "--model", "-", "--policy", "sam"],
        &["calibrate", "--output", "/nonexistent/x"],
        &["calibrate", "--output", "/nonexistent/x", "--", "true"],
    ] {
        let output = rondpoint(arguments).output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        let said = text(&output.stderr);
        let clauses: Vec<&str> = said.trim().split(": ").collect();
        for (index, clause) in clauses.iter().enumerate() {
            assert!(!clauses[index + 1..].contains(clause), "{arguments:?}: {said}");
        }
        assert!(said.matches("os error").count() <= 1, "{arguments:?}: {said}");
    }
}
