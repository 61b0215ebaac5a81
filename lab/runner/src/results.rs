//! Code that all writers of docs/results share. `./x results` makes pages and charts of their JSON.

use std::process::Command;

use serde_json::{Value, json};

use crate::comparison::Speed;

/// Version of the format: `xtask/src/results/data.rs` reads it.
pub(crate) const FORMAT: u32 = 1;

/// The first word of findings that the lab writes itself, about a goal.
pub(crate) const VERDICT: &str = "Goal";

/// The findings of a page that people wrote: all that do not begin with [`VERDICT`].
pub(crate) fn kept_findings(before: &Value) -> Vec<Value> {
    let found = before["findings"].as_array().into_iter().flatten();
    let is_own = |one: &&Value| one.as_str().is_some_and(|text| text.starts_with(VERDICT));
    found.filter(|one| !is_own(one)).cloned().collect()
}

/// To the hundredth: no seed repeats more.
pub(crate) fn rounded(value: f64) -> f64 {
    (100.0 * value).round() / 100.0
}

/// A speed as a cell, with its range where seeds differ.
pub(crate) fn cell(speed: Option<Speed>) -> Value {
    cell_by(speed, rounded)
}

/// The same to the thousandth, for losses of about a percent.
pub(crate) fn fine_cell(speed: Option<Speed>) -> Value {
    cell_by(speed, |value| (1000.0 * value).round() / 1000.0)
}

fn cell_by(speed: Option<Speed>, rounded: fn(f64) -> f64) -> Value {
    let Some(Speed { median, least, most }) = speed else { return Value::Null };
    let [median, least, most] = [median, least, most].map(rounded);
    match least < most {
        true => json!({"median": median, "least": least, "most": most}),
        false => json!(median),
    }
}

/// Changes beside those of pages of results, which begin with the first page that is written.
const OTHER_CHANGES: [&str; 6] =
    ["status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)docs/results"];

/// The commit that is checked out; with changes outside docs/results, said so.
pub(crate) fn commit() -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
        output.status.success().then_some(text)
    };
    let Some(name) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_string();
    };
    let is_clean = git(&OTHER_CHANGES).is_some_and(|changes| changes.is_empty());
    if is_clean { name } else { format!("{name}-dirty") }
}
