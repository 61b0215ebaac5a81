//! How long each stage of a command takes: `--times FILE` of `./x demo` and `./x test` writes it,
//! and `./x times` makes pages of docs/results of such files.
//!
//! The pages help a reader to decide whether to try this project. So only files of fresh
//! clones are taken, of which nothing was built or fetched before.

#[path = "../../lab/runner/src/stage_times.rs"]
mod line;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::num::NonZero;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use self::line::Line;
use crate::commit::commit;
use crate::results;
use crate::setup::installed::cache_folder;
use crate::tidy::root;

/// Arguments of `./x times`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files of --times, one for each user; each command gets a page of its own
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Version of the file's format.
const FORMAT: u32 = 1;
/// Variable with the seconds since 1970 at which the script `x` began to build this program. Unset
/// if the program was already built.
const BEGAN: &str = "RONDPOINT_X_BEGAN";

/// The file of `--times`, if the user names one.
pub(crate) struct Times {
    path: Option<PathBuf>,
    started: Instant,
    /// Duration of this program's own build, which came before.
    before: Duration,
}

impl Times {
    /// No file, for commands that keep no times.
    pub(crate) fn none() -> Self {
        Self { path: None, started: Instant::now(), before: Duration::ZERO }
    }

    /// Creates the file with its first line.
    ///
    /// # Errors
    /// The file exists, or it cannot be written.
    pub(crate) fn begin(path: Option<&Path>, command: &str) -> Result<Self> {
        let began = env::var(BEGAN).ok().and_then(|text| text.parse().ok());
        Self::begin_after(path, command, began)
    }

    /// As [`Self::begin`]. `began`: second since 1970 at which the build of this program began.
    fn begin_after(path: Option<&Path>, command: &str, began: Option<u64>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::none()) };
        if path.exists() {
            bail!("--times {}: exists already, expected a new file", path.display());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let before = began.map(|began| now.saturating_sub(Duration::from_secs(began)));
        begin(command, before.is_some() && cache_is_empty()?).add_to(path)?;
        if let Some(before) = before {
            Line::stage("build of ./x itself", before).add_to(path)?;
        }
        let path = Some(path.to_owned());
        Ok(Self { path, started: Instant::now(), before: before.unwrap_or_default() })
    }

    /// The file that a program of ours adds its own stages to.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Runs a stage and adds its time, also if it fails.
    pub(crate) fn stage<T>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let result = work();
        self.add(&Line::stage(name, started.elapsed()))?;
        result
    }

    /// Ends the file.
    pub(crate) fn end(&self, succeeded: bool) -> Result<()> {
        let seconds = (self.before + self.started.elapsed()).as_secs_f64();
        self.add(&Line::End { seconds, succeeded })
    }

    fn add(&self, line: &Line) -> Result<()> {
        self.path.as_deref().map_or(Ok(()), |path| line.add_to(path))
    }
}

fn cache_is_empty() -> Result<bool> {
    let folder = cache_folder(|name| env::var(name).ok())?;
    Ok(fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none()))
}

fn begin(command: &str, fresh: bool) -> Line {
    let file = |path| fs::read_to_string(path).unwrap_or_default();
    let processor = value_of(&file("/proc/cpuinfo"), "model name");
    let kib = value_of(&file("/proc/meminfo"), "MemTotal").map(|text| text.replace(" kB", ""));
    let kib: u64 = kib.and_then(|text| text.parse().ok()).unwrap_or(0);
    let is_root = fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
    Line::Begin {
        format: FORMAT,
        command: command.to_owned(),
        commit: commit().unwrap_or_default(),
        date: today(),
        user: if is_root { "root" } else { "ordinary user" }.to_owned(),
        processor: processor.unwrap_or_else(|| "unknown processor".to_owned()),
        cores: std::thread::available_parallelism().map_or(1, NonZero::get),
        memory_gib: kib.div_ceil(1 << 20),
        fresh,
    }
}

/// `date -u +%F`.
fn today() -> String {
    let output = Command::new("date").args(["-u", "+%F"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default()
}

/// The value of the first `key : value` in a file of /proc.
fn value_of(text: &str, key: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    let mut found = values.filter(|(name, _)| name.trim() == key);
    found.next().map(|(_, value)| value.trim().to_owned())
}

/// `./x times`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut pages: BTreeMap<String, Vec<Log>> = BTreeMap::new();
    for path in &arguments.files {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("{name}: cannot read"))?;
        let log = Log::parse(&text).with_context(|| name.to_string())?;
        pages.entry(log.command.clone()).or_default().push(log);
    }
    for (command, logs) in &pages {
        let path = root().join(format!("docs/results/{}.json", name_of(command)));
        let text = serde_json::to_string_pretty(&experiment(command, logs)?)? + "\n";
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    results::run()
}

/// `./x demo --quick` → `stages-demo-quick`.
fn name_of(command: &str) -> String {
    let words = command.trim_start_matches("./x").split([' ', '-']);
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!("stages-{}", words.join("-"))
}

/// A complete file of times.
#[derive(Debug)]
struct Log {
    command: String,
    commit: String,
    date: String,
    user: String,
    host: String,
    /// `(name, seconds)` in the order in which the stages ended.
    stages: Vec<(String, f64)>,
    seconds: f64,
    succeeded: bool,
}

impl Log {
    /// # Errors
    /// A line is not valid, or the file is not a complete one of a fresh clone.
    fn parse(text: &str) -> Result<Self> {
        let read = |(index, line): (usize, &str)| {
            serde_json::from_str(line).with_context(|| format!("line {}", index + 1))
        };
        let lines: Vec<Line> = text.lines().enumerate().map(read).collect::<Result<_>>()?;
        let Some((Line::Begin { format, command, commit, date, user, fresh, .. }, stages)) =
            lines.split_first()
        else {
            bail!("expected a first line \"begin\"");
        };
        ensure!(*format == FORMAT, "format {format}, expected {FORMAT}");
        ensure!(*fresh, "expected a fresh clone, with nothing built and an empty cache");
        let Some((&Line::End { seconds, succeeded }, stages)) = stages.split_last() else {
            bail!("expected a last line \"end\": the command was killed");
        };
        let stage = |line: &Line| match line {
            Line::Stage { name, seconds } => Ok((name.clone(), *seconds)),
            other => bail!("expected a stage, found {other:?}"),
        };
        Ok(Self {
            command: command.clone(),
            commit: if commit.is_empty() { "unknown" } else { commit }.to_owned(),
            date: date.clone(),
            user: user.clone(),
            host: host(&lines[0]),
            stages: stages.iter().map(stage).collect::<Result<_>>()?,
            seconds,
            succeeded,
        })
    }
}

fn host(begin: &Line) -> String {
    let Line::Begin { processor, cores, memory_gib, .. } = begin else { return String::new() };
    format!("{cores} CPUs ({processor}), {memory_gib} GiB")
}

/// The JSON of a page: a row for each stage, a column for each user.
fn experiment(command: &str, logs: &[Log]) -> Result<Value> {
    let distinct = |of: fn(&Log) -> &str| {
        let mut all: Vec<&str> = logs.iter().map(of).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    ensure!(distinct(|log| &log.user).len() == logs.len(), "{command}: two files of one user");
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in logs.iter().flat_map(|log| &log.stages) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let seconds = |log: &Log, wanted: &str| {
        let found = log.stages.iter().find(|(name, _)| name == wanted);
        found.map(|(_, seconds)| *seconds)
    };
    let row = |name: &&str| {
        let cells: Vec<Option<f64>> = logs.iter().map(|log| seconds(log, name)).collect();
        json!({"name": name, "cells": cells})
    };
    let mut rows: Vec<Value> = names.iter().map(row).collect();
    let totals: Vec<f64> = logs.iter().map(|log| log.seconds).collect();
    rows.push(json!({"name": "whole command", "cells": totals}));
    let finding = |log: &Log| {
        let how = if log.succeeded { "succeeded" } else { "failed" };
        format!("{}: {how} on {}, {}, commit {}.", log.user, log.date, log.host, log.commit)
    };
    Ok(json!({
        "format": 1,
        "title": format!("{command} in a fresh clone, stage by stage"),
        "about": "Time of each stage where nothing was built or fetched before. \
            Runs of the lab overlap where several are emulated side by side.",
        "kind": "host",
        "machine": distinct(|log| &log.host).join("; "),
        "seeds": 1,
        "commit": distinct(|log| &log.commit).join(", "),
        "commands": [format!("{command} --times FILE"), "./x times FILE"],
        "columns": logs.iter().map(|log| format!("{}, s", log.user)).collect::<Vec<_>>(),
        "digits": 0,
        "rows": rows,
        "findings": logs.iter().map(finding).collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests;
