//! Code that all writers of docs/results share. `./x results` makes pages and charts of their JSON.

use std::process::Command;

use serde_json::{Value, json};

use crate::comparison::Speed;

/// Version of the format: `xtask/src/results/data.rs` reads it.
pub(crate) const FORMAT: u32 = 1;

/// To the hundredth: no seed repeats more.
pub(crate) fn rounded(value: f64) -> f64 {
    (100.0 * value).round() / 100.0
}

/// A speed as a cell, with its range where seeds differ.
pub(crate) fn cell(speed: Option<Speed>) -> Value {
    let Some(Speed { median, least, most }) = speed else { return Value::Null };
    let [median, least, most] = [median, least, most].map(rounded);
    match least < most {
        true => json!({"median": median, "least": least, "most": most}),
        false => json!(median),
    }
}

/// The commit that is checked out; with changes that are not committed, said so.
pub(crate) fn commit() -> String {
    let git = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let name = git.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    name.ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_string())
}
