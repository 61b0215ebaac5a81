//! A file that says how long each stage of a command took: one JSON object a line.
//!
//! `./x` begins and ends the file. Both `./x` and `rondpoint-lab` add stages as they end, so a
//! command that is killed leaves the stages before.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Line {
    /// The first one: what was run, by which user, where and when.
    Begin {
        format: u32,
        command: String,
        /// What was built; empty without git.
        commit: String,
        /// `YYYY-MM-DD`, UTC.
        date: String,
        /// `root` or `ordinary user`.
        user: String,
        processor: String,
        cores: usize,
        memory_gib: u64,
        /// Nothing was built, and the cache of the lab's parts was empty.
        fresh: bool,
    },
    /// Stages may overlap: runs are emulated side by side.
    Stage { name: String, seconds: f64 },
    /// The last one, with the time from the first. Missing where the command was killed.
    End { seconds: f64, succeeded: bool },
}

impl Line {
    pub(crate) fn stage(name: &str, took: Duration) -> Self {
        Self::Stage { name: name.to_owned(), seconds: took.as_secs_f64() }
    }

    /// Adds the line to a file, which is created where there is none.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn add_to(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self)? + "\n";
        let file = OpenOptions::new().create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("{}: cannot write", path.display()))
    }
}
