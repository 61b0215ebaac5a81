//! `rondpoint advise` and `numad -w` as libvirt calls it, on the machine that runs the tests.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// As libvirt does (`virNumaGetAutoPlacementAdvice`, src/util/virnuma.c): CPUs and megabytes in one
/// word, an environment of a few variables, and only stdout is read.
fn numad(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new("numad");
    command.env_clear().env("PATH", folder).env("LC_ALL", "C").stdin(Stdio::null());
    command.args(words).output().expect("it starts")
}

/// As libvirt reads a set of nodes (`virBitmapParse`): numbers and ranges between commas.
fn nodes(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for piece in text.trim().split(',') {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let number = |text: &str| text.parse::<u32>().expect("a node");
        found.extend(number(first)..=number(last));
    }
    found
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    symlink(env!("CARGO_BIN_EXE_rondpoint"), folder.path().join("numad")).expect("a link");
    folder
}

fn memory_nodes() -> Vec<u32> {
    let path = Path::new("/sys/devices/system/node/has_normal_memory");
    std::fs::read_to_string(path).map_or(vec![0], |text| nodes(&text))
}

#[test]
fn libvirt_gets_a_set_of_nodes_that_are_there() {
    let folder = folder();
    for request in ["1:1", "2:512", "4096:999999999"] {
        let found = numad(folder.path(), &["-w", request]);
        assert!(found.status.success(), "{request}: {}", text(&found.stderr));
        let said = text(&found.stdout);
        assert!(said.ends_with('\n') && said.lines().count() == 1, "{request}: {said:?}");
        let (named, all) = (nodes(&said), memory_nodes());
        assert!(!named.is_empty() && named.iter().all(|node| all.contains(node)), "{said}");
    }
}

#[test]
fn what_numad_cannot_answer_is_one_message_and_no_set() {
    let folder = folder();
    for (words, expected) in [
        (&["-w", "x"][..], "such as 4 or 4:2000"),
        (&["-w", "-1"], "unexpected argument"),
        (&["-w"], "a value is required"),
        (&["-i", "0"], "unexpected argument '-i'"),
        (&[], "required arguments were not provided"),
    ] {
        let found = numad(folder.path(), words);
        let errors = text(&found.stderr);
        assert_eq!(found.status.code(), Some(2), "{words:?}: {errors}");
        assert!(errors.contains(expected), "{words:?}: {errors}");
        assert_eq!(text(&found.stdout), "", "{words:?}");
    }
}

#[test]
fn advice_is_a_list_for_run_and_json_says_how_well_it_fits() {
    let rondpoint = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        command.args(words).stdin(Stdio::null()).output().expect("it starts")
    };
    let list = text(&rondpoint(&["advise", "-w", "1:1"]).stdout);
    let ran = rondpoint(&["run", "--quiet", "--cpunodebind", list.trim(), "--", "echo", "ran"]);
    assert_eq!(text(&ran.stdout), "ran\n", "{list}: {}", text(&ran.stderr));
    let found = rondpoint(&["advise", "--want", "1:999999999", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&found.stdout).expect("JSON");
    assert_eq!((&answer["schema"], &answer["fit"]), (&1.into(), &"short".into()));
    let warning = text(&found.stderr);
    assert!(warning.contains("not all nodes together"), "{warning}");
    assert_eq!(warning.lines().count(), 1);
}

#[test]
fn only_cpus_that_this_process_may_use_count() {
    let own = rondpoint_linux::syscall::affinity::get(0).expect("a mask");
    let first = own.iter().next().expect("a CPU").to_string();
    let mut command = Command::new("taskset");
    command.args(["-c", &first, env!("CARGO_BIN_EXE_rondpoint"), "advise", "-w", "2", "--json"]);
    let found = command.stdin(Stdio::null()).output().expect("util-linux");
    let answer: serde_json::Value = serde_json::from_slice(&found.stdout).expect("JSON");
    assert_eq!(answer["fit"], "short", "{answer}");
    assert!(answer["free_cpus"].as_f64().is_some_and(|cpus| cpus <= 1.0), "{answer}");
}
