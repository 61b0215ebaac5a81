//! The ledger on disk: the inverse of each change, written before the change is made.
//!
//! Each manager has one file: lines of JSON that are appended. The manager holds a lock on it
//! (flock(2)), which the kernel releases when the last process that has it open ends. So the ledger
//! of a live manager is recognised in any namespace or container. A manager removes its file after
//! it has undone everything. `rondpoint restore` undoes the entries of files without a lock. A file
//! that has grown is replaced by one with the lines that are still needed.
//!
//! The file is not synced to the disk, because a crash of the machine ends the changes as well.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rondpoint_core::Pid;

use crate::LinuxError;
use crate::act::Identity;
use crate::freeze::Means;
use crate::root::{Root, is_absent};
use crate::syscall::guardian::Line;
use crate::syscall::process::effective_user;

mod compact;
mod ended;
mod entry;
mod legacy;
mod namespaces;

pub use self::ended::Ended;
pub use self::entry::{Entry, MaskEntry};
use self::legacy::LARGEST;
pub use self::legacy::{Found, Left, Legacy, each_left, left_behind, left_by_others};
use self::namespaces::Namespaces;

/// Version of the format.
const FORMAT: u32 = 1;
const SUFFIX: &str = ".ledger";
/// Suffix of a ledger that is not complete yet.
const NEW_SUFFIX: &str = ".new";
/// Most attempts to create a ledger (our choice). A restore may remove an incomplete one as that of
/// a dead manager.
const ATTEMPTS: u32 = 64;

/// Length of a ledger, bytes, at which lines that are not needed are first dropped (our choice). In
/// a release build that takes some 10 ms.
const COMPACT: u64 = 1 << 20;

/// A manager's own ledger, open for writing.
#[derive(Debug)]
pub struct LedgerFile {
    path: PathBuf,
    file: File,
    /// Length, bytes, beyond which lines that are not needed are dropped.
    compact_at: u64,
}

impl LedgerFile {
    /// Creates the ledger of this process in `folder`, and the folder if needed.
    ///
    /// # Errors
    /// The folder belongs to another user, or cannot be written.
    pub fn create(folder: &Path, root: &Root) -> Result<Self, LinuxError> {
        Self::create_named(folder, root, "")
    }

    /// Creates the ledger for one of several trees of processes, the one beneath `managed`.
    ///
    /// # Errors
    /// As [`LedgerFile::create`].
    pub fn create_for(folder: &Path, root: &Root, managed: Pid) -> Result<Self, LinuxError> {
        Self::create_named(folder, root, &format!("{managed}-"))
    }

    fn create_named(folder: &Path, root: &Root, name: &str) -> Result<Self, LinuxError> {
        make_private(folder)?;
        let own = Pid(std::process::id());
        let started = Identity::of(root, own).map_or(0, |identity| identity.started.0);
        let mut attempt = 0;
        loop {
            attempt += 1;
            match Self::try_create(folder, (own, started), &format!("{name}{attempt}")) {
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(LinuxError::Io { source, .. })
                    if matches!(
                        source.kind(),
                        io::ErrorKind::NotFound
                            | io::ErrorKind::AlreadyExists
                            | io::ErrorKind::WouldBlock
                    ) => {}
                made => return made,
            }
        }
    }

    /// Makes one attempt. NotFound and WouldBlock: a restore took the file before the lock.
    /// AlreadyExists: a manager with this number and start time in another namespace left a ledger.
    fn try_create(
        folder: &Path,
        (own, started): (Pid, u64),
        name: &str,
    ) -> Result<Self, LinuxError> {
        let stem = format!("{own}-{started}-{name}");
        let unfinished = folder.join(format!("{stem}{NEW_SUFFIX}"));
        let path = folder.join(format!("{stem}{SUFFIX}"));
        if path.symlink_metadata().is_ok() {
            return Err(failed(&path, "create", io::ErrorKind::AlreadyExists.into()));
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file =
            options.open(&unfinished).map_err(|source| failed(&unfinished, "create", source))?;
        let mut ledger = Self { path: unfinished, file, compact_at: COMPACT };
        let finished = ledger.finish((own, started), &path);
        match finished {
            Ok(()) => Ok(Self { path, ..ledger }),
            Err(error) => {
                // On a full disk, failed attempts must not leave files behind.
                let _ = ledger.close();
                Err(error)
            }
        }
    }

    /// Writes the first line of an empty file and gives it its name.
    fn finish(&mut self, (own, started): (Pid, u64), path: &Path) -> Result<(), LinuxError> {
        self.file.try_lock().map_err(|error| failed(&self.path, "lock", error.into()))?;
        let namespaces = Namespaces::own(&Root::live()).map(|own| own.text());
        self.write(&[Entry::Manager { format: FORMAT, pid: own.0, started, namespaces }])?;
        fs::rename(&self.path, path).map_err(|source| failed(path, "create", source))
    }

    /// Path of the ledger.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file was removed, or moved with its folder. No restore would find its entries.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.is_in_place(), Ok(false))
    }

    fn is_in_place(&self) -> io::Result<bool> {
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        match fs::metadata(&self.path).map(identity) {
            Ok(found) => Ok(found == self.file.metadata().map(identity)?),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Appends entries with one write(2); none for no entries.
    ///
    /// # Errors
    /// The disk is full or has failed, the file was removed or moved, or it would be too long to be
    /// read. The changes of these entries must not be made.
    pub fn write(&mut self, entries: &[Entry]) -> Result<(), LinuxError> {
        if entries.is_empty() {
            return Ok(());
        }
        let text: String = entries.iter().map(line).collect();
        self.make_room(text.len() as u64);
        self.put(&text)
    }

    fn put(&mut self, text: &str) -> Result<(), LinuxError> {
        let written = match self.is_in_place() {
            Ok(true) => self.append(text.as_bytes()),
            Ok(false) => Err(io::ErrorKind::NotFound.into()),
            Err(error) => Err(error),
        };
        written.map_err(|source| failed(&self.path, "write", source))
    }

    /// Drops the lines that are not needed if the file would be long. Where that fails, as on a
    /// full disk, the longer file stays.
    fn make_room(&mut self, more: u64) {
        let Ok(length) = self.file.stream_position() else { return };
        if length.saturating_add(more) <= self.compact_at {
            return;
        }
        if let Ok(file) = self.compacted() {
            self.file = file;
        }
        let wanted = self.file.stream_position().unwrap_or(length).saturating_add(more);
        // The lines read in all are at most a few times those written. A file that is too long with
        // needed lines alone is not read again.
        self.compact_at = match wanted > LARGEST {
            true => u64::MAX,
            false => wanted.saturating_mul(2).clamp(COMPACT, LARGEST),
        };
    }

    /// A locked file in the place of this one, with the lines that are needed. A kill leaves either
    /// of the two at the path.
    fn compacted(&self) -> io::Result<File> {
        if !self.is_in_place()? {
            return Err(io::ErrorKind::NotFound.into());
        }
        let lives = |process: &Identity| process.lives(&Root::live()).unwrap_or(true);
        let text = compact::needed(&fs::read_to_string(&self.path)?, lives);
        let unfinished = self.path.with_extension(&NEW_SUFFIX[1..]);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&unfinished)?;
        let mut replace = || -> io::Result<()> {
            file.try_lock()?;
            file.write_all(text.as_bytes())?;
            fs::rename(&unfinished, &self.path)
        };
        let replaced = replace();
        if replaced.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        replaced.map(|()| file)
    }

    /// Appends bytes. If a full disk takes only a part of a line, the part is removed, because the
    /// next line would be joined to it. A file that no restore would read is not made.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let before = self.file.stream_position()?;
        if before.saturating_add(bytes.len() as u64) > LARGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.file.write_all(bytes).inspect_err(|_| {
            let cut = self.file.set_len(before);
            let _ = cut.and_then(|()| self.file.seek(SeekFrom::Start(before)));
        })
    }

    /// Writes that a process is about to be stopped. Returns the line that says that it was
    /// resumed.
    ///
    /// # Errors
    /// As [`LedgerFile::write`]: the process must not be stopped.
    pub fn freeze(&mut self, process: Identity, means: Means) -> Result<Farewell, LinuxError> {
        let (pid, started) = (process.pid.0, process.started.0);
        let (freeze, thaw) = (Entry::Freeze { pid, started, means }, Entry::Thaw { pid, started });
        let (freeze, thaw) = (line(&freeze), line(&thaw));
        // Before the file is cloned, which may be replaced here.
        self.make_room((freeze.len() + thaw.len()) as u64);
        let file = self.file.try_clone().map_err(|source| failed(&self.path, "open", source))?;
        self.put(&freeze)?;
        Ok(Farewell { file, line: thaw })
    }

    /// Removes the ledger. All changes were undone, or may stay.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn close(self) -> Result<(), LinuxError> {
        if self.is_lost() {
            // The file was moved: it is emptied in its new place. The file at our path is not ours.
            let _ = self.file.set_len(0);
            return Ok(());
        }
        match fs::remove_file(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(failed(&self.path, "remove", source))
            }
            // Another process has removed it.
            _ => Ok(()),
        }
    }
}

/// The line that says that a process was resumed, with its file. It is made before, because a
/// guardian can only write. Each write is appended, from any process.
#[derive(Debug)]
pub struct Farewell {
    file: File,
    line: String,
}

impl Farewell {
    /// The line for a guardian.
    pub(crate) fn line(&self) -> Line<'_> {
        Line { file: self.file.as_fd(), text: self.line.as_bytes() }
    }

    /// Appends the line.
    ///
    /// # Errors
    /// As write(2). A restore then resumes the running process again, which has no effect.
    pub(crate) fn write(&self) -> io::Result<()> {
        (&self.file).write_all(self.line.as_bytes())
    }
}

fn line(entry: &Entry) -> String {
    serde_json::to_string(entry).expect("entries have string keys only") + "\n"
}

/// The runtime folder of the packaged service (`RuntimeDirectory=` of packaging/rondpoint.service).
pub const SERVICES: &str = "/run/rondpoint";
/// Root's folder where the service has a user of its own.
const ROOTS: &str = "/run/rondpoint-root";

/// Folder of this user's ledgers: `/run/rondpoint` for root, or `/run/rondpoint-root` beside a
/// service of another user. Others have their runtime folder, or else their state folder. `None` if
/// the user has none of them. Others may never write it.
#[must_use]
pub fn own_folder() -> Option<PathBuf> {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let (runtime, state, home) = (path("XDG_RUNTIME_DIR"), path("XDG_STATE_HOME"), path("HOME"));
    let owner = fs::symlink_metadata("/run").map(|run| run.uid());
    folder(&Places {
        owns_run: owns_run(owner, effective_user())?,
        is_services: is_of_another(Path::new(SERVICES)),
        runtime: runtime.as_deref(),
        state: state.as_deref(),
        home: home.as_deref(),
    })
}

/// Whether `/run` belongs to a user: root of the machine, not of a user namespace. `None` if it
/// cannot be looked at: with another folder, ledgers in `/run` would be overlooked.
fn owns_run(owner: io::Result<u32>, user: u32) -> Option<bool> {
    match owner {
        Ok(owner) => Some(user == 0 && owner == 0),
        Err(error) if is_absent(&error) => Some(false),
        Err(_) => None,
    }
}

/// Inputs of the choice of the ledgers' folder.
#[derive(Debug, Clone, Copy, Default)]
struct Places<'a> {
    /// Whether `/run` belongs to this user: root of the machine, not of a user namespace.
    owns_run: bool,
    /// Whether [`SERVICES`] belongs to another user.
    is_services: bool,
    /// Value of `$XDG_RUNTIME_DIR`.
    runtime: Option<&'a Path>,
    /// Value of `$XDG_STATE_HOME`.
    state: Option<&'a Path>,
    /// Value of `$HOME`.
    home: Option<&'a Path>,
}

fn folder(places: &Places<'_>) -> Option<PathBuf> {
    let absolute = |path: Option<&Path>| path.filter(|path| path.is_absolute()).map(PathBuf::from);
    let state =
        || absolute(places.state).or_else(|| Some(absolute(places.home)?.join(".local/state")));
    if places.owns_run {
        return Some(PathBuf::from(if places.is_services { ROOTS } else { SERVICES }));
    }
    Some(absolute(places.runtime).or_else(state)?.join("rondpoint"))
}

/// Whether a folder is there and belongs to another user.
#[must_use]
pub fn is_of_another(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|found| found.uid() != effective_user())
}

/// Makes a folder that only its owner may enter. A folder of another user is refused, because a
/// restore trusts its ledgers.
///
/// # Errors
/// Another user may write the folder, or it cannot be made.
pub fn make_private(folder: &Path) -> Result<(), LinuxError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| failed(folder, "create", source))?;
    check_private(folder)
}

fn check_private(folder: &Path) -> Result<(), LinuxError> {
    let found = fs::symlink_metadata(folder).map_err(|source| failed(folder, "look at", source))?;
    let own = effective_user();
    if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
        let problem = "expected a folder that only this user may write".to_string();
        return Err(LinuxError::Input { what: folder.display().to_string(), problem });
    }
    Ok(())
}

fn failed(path: &Path, attempted: &'static str, source: io::Error) -> LinuxError {
    LinuxError::Io { path: path.to_path_buf(), attempted, source }
}

#[cfg(test)]
mod tests;
