//! Screens of docs that depend on files of this repository only: the command still writes them.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_screen_from_files_is_what_the_command_writes_today() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut repeated = 0;
    for entry in fs::read_dir(root.join("docs/screens")).unwrap() {
        let path = entry.unwrap().path();
        let screen: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        if !screen["kind"].is_null() {
            continue;
        }
        let mut words = screen["command"].as_str().unwrap().split_whitespace();
        assert_eq!(words.next(), Some("rondpoint"), "{}", path.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        let output = command.args(words).current_dir(&root).output().unwrap();
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = screen["output"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line.as_str().unwrap())
            .collect();
        assert_eq!(found.lines().collect::<Vec<_>>(), lines, "{}", path.display());
        repeated += 1;
    }
    assert!(repeated >= 2, "{repeated}");
}

/// What a machine can do differs from that of the screen. Which things are looked at does not.
#[test]
fn the_screen_of_doctor_has_every_check_that_doctor_makes_today() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screens/doctor.json");
    let screen: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let shown = screen["output"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
    let output = Command::new(env!("CARGO_BIN_EXE_rondpoint")).arg("doctor").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found: Vec<&str> = text.lines().filter_map(check).collect();
    assert!(found.len() > 5, "{text}");
    assert_eq!(shown.filter_map(check).collect::<Vec<_>>(), found);
}

/// `good     moving pages       of every process` → `moving pages`.
fn check(line: &str) -> Option<&str> {
    let verdicts = ["good ", "limited ", "missing "];
    let is_check = verdicts.iter().any(|verdict| line.starts_with(verdict));
    is_check.then(|| line.get(9..28)).flatten().map(str::trim)
}
