//! The screens of docs that the simulator wrote: it writes them again, byte for byte.
//!
//! Where a decision has changed, this test with `RONDPOINT_SCREENS=write` and then `./x results`
//! write what it says today.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_simulated_screen_is_what_the_simulator_writes_today() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut repeated = 0;
    for entry in fs::read_dir(root.join("docs/screens")).unwrap() {
        let path = entry.unwrap().path();
        let mut screen: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let command = screen["command"].as_str().unwrap().to_owned();
        let Some(arguments) = command.strip_prefix("rondpoint simulate ") else { continue };
        let mut simulator = Command::new(env!("CARGO_BIN_EXE_rondpoint-sim"));
        let output = simulator.args(arguments.split(' ')).current_dir(&root).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let found = Value::from(text.lines().collect::<Vec<_>>());
        if std::env::var_os("RONDPOINT_SCREENS").is_some_and(|word| word == "write") {
            screen["output"] = found;
            fs::write(&path, serde_json::to_string_pretty(&screen).unwrap() + "\n").unwrap();
        } else {
            assert_eq!(screen["output"], found, "{}: {command}", path.display());
        }
        repeated += 1;
    }
    assert!(repeated >= 1, "no screen of the simulator in docs/screens");
}
