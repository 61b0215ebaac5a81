//! `rondpoint restore`, as tests use it.

use std::process::{Command, Stdio};

/// What `rondpoint restore --json` says.
pub(crate) fn restore() -> serde_json::Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    let output = command.args(["restore", "--json"]).stdin(Stdio::null()).output();
    let output = output.expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}
