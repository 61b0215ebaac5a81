//! What clients asked for, kept for the next daemon: a pause, and requests for processes.
//!
//! One private file beside the ledgers, written whole and renamed. A process is named by its number
//! and its start time, so a later process of the same number inherits nothing. After a file that
//! cannot be read, the daemon begins paused: what was paused must not act.
//!
//! Of several daemons with one folder, only the first has the file. Each would else write over what
//! the other was told.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rondpoint_core::{Nanos, Pid};
use rondpoint_input::Budget;
use rondpoint_linux::act::Identity;
use rondpoint_linux::ledger_file::make_private;
use rondpoint_linux::syscall::process::effective_user;
use serde::{Deserialize, Serialize};

use super::super::rules::Request;
use super::requests::Asked;

const NAME: &str = "requests.json";
/// The file while it is written.
const PART: &str = "requests.json.part";
/// Locked by the daemon that has the file (flock(2)).
const LOCK: &str = "requests.lock";
/// Version of the format.
const FORMAT: u32 = 1;
/// Longest file: an entry takes below 100 bytes, and there are 4,096 at most.
const LARGEST: u64 = 1 << 20;

/// A pause and the requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Remembered {
    pub(super) paused: bool,
    pub(super) requests: Vec<Asked>,
}

/// The file's text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: u32,
    paused: bool,
    requests: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    pid: u32,
    /// Since boot.
    started_ns: u64,
    /// It is left; else it is managed.
    leave: bool,
    /// As [`Asked::owner`].
    owner: Option<u32>,
}

/// The file in a folder.
#[derive(Debug)]
pub(super) struct Memory {
    folder: PathBuf,
    /// What the file says, as far as this daemon wrote it.
    written: Option<Remembered>,
    /// Kept until this daemon ends.
    lock: Option<File>,
    /// Another daemon had the file when this one began. It may come back and read it.
    is_anothers: bool,
}

impl Memory {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), written: None, lock: None, is_anothers: false }
    }

    /// Path of the file.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Takes the file for this daemon. Returns whether it has the file from now on.
    ///
    /// # Errors
    /// The folder is not private or cannot be written.
    pub(super) fn own(&mut self) -> Result<bool> {
        if self.lock.is_some() || self.is_anothers {
            return Ok(!self.is_anothers);
        }
        make_private(&self.folder)?;
        let path = self.folder.join(LOCK);
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = opened.with_context(|| path.display().to_string())?;
        match file.try_lock() {
            Ok(()) => self.lock = Some(file),
            Err(TryLockError::WouldBlock) => self.is_anothers = true,
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| path.display().to_string());
            }
        }
        Ok(!self.is_anothers)
    }

    /// What an earlier daemon wrote; nothing where there is no file.
    ///
    /// # Errors
    /// Another user may write the file, or it says something that has no meaning.
    pub(super) fn read(&self) -> Result<Remembered> {
        let path = self.path();
        let found = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Remembered::default());
            }
            other => other.with_context(|| path.display().to_string())?,
        };
        let read = || {
            if !found.is_file() || found.uid() != effective_user() || found.mode() & 0o022 != 0 {
                bail!("expected a file that only this user may write");
            }
            let text = rondpoint_input::read_text(&path, &mut Budget::new(LARGEST, 0))?;
            let text: Text = serde_json::from_str(&text)?;
            if text.format != FORMAT {
                bail!("format {}: expected {FORMAT}", text.format);
            }
            Ok(Remembered::from(text))
        };
        read().with_context(|| path.display().to_string())
    }

    /// Writes it down, unless the file says so already.
    ///
    /// # Errors
    /// The folder is not private or cannot be written, or the file is another daemon's. The file
    /// says what it said before.
    pub(super) fn write(&mut self, now: Remembered) -> Result<()> {
        if self.written.as_ref() == Some(&now) {
            return Ok(());
        }
        if !self.own()? {
            bail!("another daemon keeps its requests in {}", self.folder.display());
        }
        let (part, path) = (self.folder.join(PART), self.path());
        let text = serde_json::to_string(&Text::from(&now))? + "\n";
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&part);
        opened
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&part, &path))
            .with_context(|| path.display().to_string())?;
        self.written = Some(now);
        Ok(())
    }
}

impl From<Text> for Remembered {
    fn from(text: Text) -> Self {
        let asked = |one: Entry| Asked {
            process: Identity { pid: Pid(one.pid), started: Nanos(one.started_ns) },
            request: if one.leave { Request::Leave } else { Request::Manage },
            owner: one.owner,
        };
        Self { paused: text.paused, requests: text.requests.into_iter().map(asked).collect() }
    }
}

impl From<&Remembered> for Text {
    fn from(now: &Remembered) -> Self {
        let entry = |one: &Asked| Entry {
            pid: one.process.pid.0,
            started_ns: one.process.started.0,
            leave: one.request == Request::Leave,
            owner: one.owner,
        };
        let requests = now.requests.iter().map(entry).collect();
        Self { format: FORMAT, paused: now.paused, requests }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_was_asked_is_read_again_with_its_owners_and_the_file_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let mut memory = Memory::new(folder.path());
        assert_eq!(memory.read().unwrap(), Remembered::default(), "there is no file");
        let asked = |pid, request, owner| {
            let process = Identity { pid: Pid(pid), started: Nanos(u64::from(pid) + 1) };
            Asked { process, request, owner }
        };
        let requests = vec![asked(7, Request::Leave, None), asked(8, Request::Manage, Some(1000))];
        let now = Remembered { paused: true, requests };
        memory.write(now.clone()).unwrap();
        assert_eq!(memory.read().unwrap(), now);
        assert_eq!(fs::metadata(memory.path()).unwrap().mode() & 0o777, 0o600);
        assert!(!folder.path().join(PART).exists());
    }

    #[test]
    fn of_two_daemons_the_second_never_touches_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let [mut first, mut second] = [(); 2].map(|()| Memory::new(folder.path()));
        assert!(first.own().unwrap() && !second.own().unwrap());
        let paused = Remembered { paused: true, ..Remembered::default() };
        first.write(paused.clone()).unwrap();
        let error = second.write(Remembered::default()).unwrap_err().to_string();
        assert!(error.starts_with("another daemon keeps its requests in /"), "{error}");
        assert_eq!(first.read().unwrap(), paused);
        drop(first);
        second.write(Remembered::default()).unwrap_err();
        let mut again = Memory::new(folder.path());
        assert!(again.own().unwrap() && again.read().unwrap() == paused, "the first came back");
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_damaged_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let memory = Memory::new(folder.path());
        let good = r#"{"format":1,"paused":false,"requests":[]}"#;
        for (text, mode, why) in [
            (good, 0o666, "only this user may write"),
            (&good[..20], 0o600, "EOF"),
            (&good.replace('1', "2"), 0o600, "format 2: expected 1"),
            (&good.replace("\"paused", "\"frozen\":true,\"paused"), 0o600, "unknown field"),
        ] {
            fs::write(memory.path(), text).unwrap();
            fs::set_permissions(memory.path(), fs::Permissions::from_mode(mode)).unwrap();
            let error = format!("{:#}", memory.read().unwrap_err());
            assert!(error.contains(NAME) && error.contains(why), "{error}");
        }
    }
}
