//! Goals of benchmarks: a line with what was measured beside the goal, and a row of a page.
//!
//! With `RONDPOINT_RESULTS=docs/results`, a path in the repository, the row goes to `step.json`
//! there. `./x results` makes the page.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Its folder of results, which differs from the commit as soon as a row is written.
const EXCEPT_RESULTS: &str = ":(exclude)docs/results";

/// What a step may take.
pub(crate) struct Goal {
    pub(crate) name: &'static str,
    pub(crate) most: Duration,
}

/// Whether goals are to be measured, by this program's arguments.
pub(crate) fn are_wanted() -> bool {
    let words: Vec<String> = env::args().skip(1).collect();
    are_wanted_by(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Whether goals are to be measured: without a filter, or with one that is part of `goal`. Cargo
/// passes `--bench` for `cargo bench` alone; `cargo test` only tries each benchmark once.
pub(crate) fn are_wanted_by(words: &[&str]) -> bool {
    let has = |option: &str| words.contains(&option);
    let filter = words.iter().find(|word| !word.starts_with('-'));
    let is_measured = has("--bench") && !has("--list") && !has("--test");
    is_measured && filter.is_none_or(|filter| "goal".contains(filter))
}

impl Goal {
    /// Prints the median of `times` (at least one) beside the goal, and keeps the row if asked to.
    pub(crate) fn tell(&self, mut times: Vec<Duration>) {
        times.sort_unstable();
        let (least, most) = (times[0], times[times.len() - 1]);
        let median = times[times.len() / 2];
        eprintln!(
            "goal {}: {} at most {:?}; measured {median:?} ({least:?} to {most:?}, {} times)",
            if median <= self.most { "met" } else { "missed" },
            self.name,
            self.most,
            times.len()
        );
        let Some(folder) = env::var_os("RONDPOINT_RESULTS") else { return };
        let path = Path::new(ROOT).join(folder).join("step.json");
        let before = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let row = self.row([least, median, most]);
        let commit = commit_of(Path::new(ROOT)).unwrap_or_else(|| "unknown".to_owned());
        let page = page(&before.unwrap_or(Value::Null), row, &commit, &machine());
        let text = serde_json::to_string_pretty(&page).expect("plain data") + "\n";
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn row(&self, times: [Duration; 3]) -> Value {
        let rounded = |value: f64| (1000.0 * value).round() / 1000.0;
        let share = |time: Duration| rounded(time.as_secs_f64() / self.most.as_secs_f64());
        let us = |time: Duration| rounded(1e6 * time.as_secs_f64());
        let [least, median, most] = times;
        let shares = json!({"median": share(median), "least": share(least), "most": share(most)});
        json!({"name": self.name, "cells": [shares, us(median), us(self.most)]})
    }
}

/// The page with `row` in place of an older one of its name. Rows of another commit or machine go.
pub(crate) fn page(before: &Value, row: Value, commit: &str, machine: &str) -> Value {
    let is_alike = before["commit"] == commit && before["machine"] == machine;
    let mut rows: Vec<Value> = before["rows"].as_array().cloned().unwrap_or_default();
    rows.retain(|one| is_alike && one["name"] != row["name"]);
    rows.push(row);
    rows.sort_by_key(|row| row["name"].to_string());
    json!({
        "format": 1,
        "title": "What a step of deciding takes",
        "about": "Each benchmark measures its step several times on one CPU of the host. The range is from \
                  the least to the most of them.",
        "kind": "host",
        "machine": machine,
        "seeds": 1,
        "commit": commit,
        "commands": [
            "RONDPOINT_RESULTS=docs/results cargo bench -p rondpoint-core --bench step -- goal",
            "RONDPOINT_RESULTS=docs/results cargo bench -p rondpoint-core --bench sam -- goal",
        ],
        "reference": 1.0,
        "columns": ["median, of the goal", "median, µs", "goal, µs"],
        "rows": rows,
        "findings": before["findings"].as_array().cloned().unwrap_or_default(),
    })
}

/// CPUs of this machine and their name.
fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find(|line| line.starts_with("model name"));
    let name = name.and_then(|line| Some(line.split_once(':')?.1.trim())).unwrap_or("unknown");
    format!("{cpus} CPUs ({name})")
}

/// The commit of a checkout; with changes outside of the results, said so. `None` where git cannot
/// tell.
pub(crate) fn commit_of(checkout: &Path) -> Option<String> {
    let git = |words: &[&str]| {
        let output = Command::new("git").current_dir(checkout).args(words).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let name = git(&["rev-parse", "--short=12", "HEAD"])?;
    let status = ["status", "--porcelain", "--untracked-files=no", "--", ".", EXCEPT_RESULTS];
    let is_clean = git(&status).is_some_and(|changed| changed.is_empty());
    Some(if is_clean { name } else { format!("{name}-dirty") })
}
