//! The ledger on disk: the inverse of each change, written before the change is made.
//!
//! Each manager has one file: lines of JSON that are only ever appended. The manager holds a lock
//! on it (flock(2)), which the kernel releases when the last process that has it open ends. So the
//! ledger of a live manager is recognised in any namespace or container. A manager removes its file
//! after it has undone everything. `rondpoint restore` undoes the entries of files without a lock.
//!
//! The file is not synced to the disk, because a crash of the machine ends the changes as well.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rondpoint_core::{Nanos, Pid};

use crate::LinuxError;
use crate::act::Identity;
use crate::act::masks::Masks;
use crate::freeze::Means;
use crate::root::{Root, is_absent};
use crate::syscall::guardian::Line;
use crate::syscall::process::effective_user;

mod entry;

pub use self::entry::{Entry, MaskEntry};

/// Version of the format.
const FORMAT: u32 = 1;
const SUFFIX: &str = ".ledger";
/// Of a ledger that is just being made.
const NEW_SUFFIX: &str = ".new";
/// Extension of one that was worked off and says more than this version understands.
const UNREAD_SUFFIX: &str = "unread";
/// Largest ledger that is read, bytes. An entry for a page takes some 20: a million pages for each
/// of three plans fit.
const LARGEST: u64 = 64 << 20;
/// How often a ledger is made anew because a restore took the unfinished one for a dead manager's.
const ATTEMPTS: u32 = 64;

/// A manager's own ledger, open for writing.
#[derive(Debug)]
pub struct LedgerFile {
    path: PathBuf,
    file: File,
}

impl LedgerFile {
    /// Makes the ledger of this process in `folder`, which is made too.
    ///
    /// # Errors
    /// The folder belongs to another user, or cannot be written.
    pub fn create(folder: &Path, root: &Root) -> Result<Self, LinuxError> {
        Self::create_named(folder, root, "")
    }

    /// The same for one of several trees of processes, which begins with `managed`.
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

    /// One attempt. NotFound and WouldBlock: a restore was faster than the lock. AlreadyExists: a
    /// manager with this number and start has left one, in another namespace.
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
        let mut ledger = Self { path: unfinished, file };
        let finished = ledger.finish((own, started), &path);
        match finished {
            Ok(()) => Ok(Self { path, ..ledger }),
            Err(error) => {
                // A full disk must not fill up with names, nor use up those of this process.
                let _ = ledger.close();
                Err(error)
            }
        }
    }

    /// Makes a ledger of an empty file.
    fn finish(&mut self, (own, started): (Pid, u64), path: &Path) -> Result<(), LinuxError> {
        self.file.try_lock().map_err(|error| failed(&self.path, "lock", error.into()))?;
        self.write(&[Entry::Manager { format: FORMAT, pid: own.0, started }])?;
        fs::rename(&self.path, path).map_err(|source| failed(path, "create", source))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file was removed, or moved with its folder. No later manager will find what is
    /// written.
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

    /// Appends entries, with one write; none where there are none.
    ///
    /// # Errors
    /// The disk is full or has failed, or the file was removed or moved: what they are about must
    /// not be done.
    pub fn write(&mut self, entries: &[Entry]) -> Result<(), LinuxError> {
        if entries.is_empty() {
            return Ok(());
        }
        let text: String = entries.iter().map(line).collect();
        let written = match self.is_in_place() {
            Ok(true) => self.append(text.as_bytes()),
            Ok(false) => Err(io::ErrorKind::NotFound.into()),
            Err(error) => Err(error),
        };
        written.map_err(|source| failed(&self.path, "write", source))
    }

    /// A full disk may take a part of a line. It is cut off again: the next line would be one with
    /// it, and understood by nobody.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let before = self.file.stream_position()?;
        self.file.write_all(bytes).inspect_err(|_| {
            let cut = self.file.set_len(before);
            let _ = cut.and_then(|()| self.file.seek(SeekFrom::Start(before)));
        })
    }

    /// Writes down that a process is about to be stopped. What comes back is how to write that it
    /// goes on.
    ///
    /// # Errors
    /// As [`LedgerFile::write`]: the process must not be stopped.
    pub fn freeze(&mut self, process: Identity, means: Means) -> Result<Farewell, LinuxError> {
        let (pid, started) = (process.pid.0, process.started.0);
        let file = self.file.try_clone().map_err(|source| failed(&self.path, "open", source))?;
        self.write(&[Entry::Freeze { pid, started, means }])?;
        Ok(Farewell { file, line: line(&Entry::Thaw { pid, started }) })
    }

    /// Takes the ledger away: everything was put back, or may stay.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn close(self) -> Result<(), LinuxError> {
        if self.is_lost() {
            // Where it may be now, it says nothing. The file with its name is not ours.
            let _ = self.file.set_len(0);
            return Ok(());
        }
        match fs::remove_file(&self.path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(failed(&self.path, "remove", source))
            }
            // Somebody else has removed it.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
impl LedgerFile {
    /// On a disk without room.
    pub(crate) fn full() -> Self {
        let path = PathBuf::from("/dev/full");
        Self { file: OpenOptions::new().write(true).open(&path).unwrap(), path }
    }
}

/// The line that says that a process goes on, and where it belongs: ready beforehand, for a
/// guardian can do little more than write. Each write goes behind the rest, from any process.
#[derive(Debug)]
pub struct Farewell {
    file: File,
    line: String,
}

impl Farewell {
    /// For a guardian.
    pub(crate) fn line(&self) -> Line<'_> {
        Line { file: self.file.as_fd(), text: self.line.as_bytes() }
    }

    /// Writes it.
    ///
    /// # Errors
    /// As write(2). Nothing is lost by it: a process that goes on already is not harmed by another
    /// thaw.
    pub(crate) fn write(&self) -> io::Result<()> {
        (&self.file).write_all(self.line.as_bytes())
    }
}

fn line(entry: &Entry) -> String {
    serde_json::to_string(entry).expect("entries have string keys only") + "\n"
}

/// A ledger that was left behind. No other process works it off while this is there.
#[derive(Debug, Default)]
pub struct Left {
    /// Its file.
    pub path: PathBuf,
    /// Memory that is to be put back, last change first. Settled changes are left out.
    pub open: Vec<Entry>,
    /// Masks that are to be put back.
    pub masks: Masks,
    /// Processes that were stopped, and how, and never were said to go on.
    pub frozen: Vec<(Identity, Means)>,
    /// Whole lines that are not understood. The cut-off last line of a manager that was killed
    /// while it wrote is none of them: what it tells was never done.
    pub unknown_lines: usize,
    /// Open and locked; `None` where it never was a file.
    pub file: Option<File>,
}

/// What managers that are gone left in a folder.
#[derive(Debug, Default)]
pub struct Legacy {
    /// Their ledgers, by name.
    pub left: Vec<Left>,
    /// Files with a ledger's name that are none: not a regular file of this user, too large, or of
    /// another format.
    pub unusable: Vec<LinuxError>,
}

impl Left {
    /// What a ledger says is done, and its file goes. One that says more than is understood stays
    /// and is returned. If it can be renamed, no manager takes it for a ledger any more.
    pub fn settle(&self) -> Option<PathBuf> {
        if self.unknown_lines == 0 {
            let _ = fs::remove_file(&self.path);
            return None;
        }
        let aside = self.path.with_extension(UNREAD_SUFFIX);
        Some(fs::rename(&self.path, &aside).map_or(self.path.clone(), |()| aside))
    }
}

/// The ledgers in `folder` of managers that are gone; none where there is no such folder. An
/// unfinished ledger of a killed manager is removed: that manager had changed nothing.
///
/// # Errors
/// Another user may write the folder, or it cannot be read.
pub fn left_behind(folder: &Path) -> Result<Legacy, LinuxError> {
    let names =
        match check_private(folder).and_then(|()| fs::read_dir(folder).map_err(list(folder))) {
            Ok(names) => names,
            Err(LinuxError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Legacy::default());
            }
            Err(error) => return Err(error),
        };
    let mut legacy = Legacy::default();
    for name in names {
        let path = name.map_err(list(folder))?.path();
        let is = |suffix: &str| path.extension().is_some_and(|found| found == &suffix[1..]);
        if !is(NEW_SUFFIX) && !is(SUFFIX) {
            continue;
        }
        match open_unlocked(&path) {
            Ok(None) => {}
            Ok(Some(_)) if is(NEW_SUFFIX) => {
                let _ = fs::remove_file(&path);
            }
            Ok(Some(file)) => match read(path, file) {
                Ok(left) => legacy.left.push(left),
                Err(error) => legacy.unusable.push(error),
            },
            Err(error) => legacy.unusable.push(error),
        }
    }
    legacy.left.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(legacy)
}

fn list(folder: &Path) -> impl Fn(io::Error) -> LinuxError {
    |source| failed(folder, "list", source)
}

/// Opens and locks what is to be a ledger, and looks at what it is before anything of it is read.
/// `None` where its manager lives, or another restore works it off, or it has just gone.
fn open_unlocked(path: &Path) -> Result<Option<File>, LinuxError> {
    let mut options = OpenOptions::new();
    // A pipe or a device must not hold us up, and a link is none of ours.
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(path, "open", source)),
    };
    let found = file.metadata().map_err(|source| failed(path, "look at", source))?;
    let own = effective_user();
    if !found.is_file() || found.uid() != own || found.len() > LARGEST {
        let problem = format!("expected a ledger: a file of this user, of at most {LARGEST} bytes");
        return Err(LinuxError::Input { what: path.display().to_string(), problem });
    }
    match file.try_lock() {
        // Its manager may have ended well between the two.
        Ok(()) => match path.try_exists() {
            Ok(exists) => Ok(exists.then_some(file)),
            Err(source) => Err(failed(path, "look at", source)),
        },
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(source)) => Err(failed(path, "lock", source)),
    }
}

fn read(path: PathBuf, mut file: File) -> Result<Left, LinuxError> {
    let mut bytes = Vec::new();
    let found = (&mut file).take(LARGEST).read_to_end(&mut bytes);
    found.map_err(|source| failed(&path, "read", source))?;
    let left = parse(path, &String::from_utf8_lossy(&bytes))?;
    Ok(Left { file: Some(file), ..left })
}

fn parse(path: PathBuf, text: &str) -> Result<Left, LinuxError> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut left = Left { path, ..Left::default() };
    let mut masks = Vec::new();
    let identity = |pid, started| Identity { pid: Pid(pid), started: Nanos(started) };
    for line in whole.lines() {
        match serde_json::from_str(line) {
            Ok(Entry::Manager { format: FORMAT, .. }) => {}
            Ok(Entry::Freeze { pid, started, means }) => {
                left.frozen.push((identity(pid, started), means));
            }
            Ok(Entry::Thaw { pid, started }) => {
                left.frozen.retain(|(process, _)| *process != identity(pid, started));
            }
            Ok(Entry::Settled { pid, plans }) => left.open.retain(|entry| match entry {
                Entry::Pages { plan, pid: of, .. }
                | Entry::Copies { plan, pid: of, .. }
                | Entry::Memory { plan, pid: of, .. } => *of != pid || !plans.contains(plan),
                _ => true,
            }),
            Ok(Entry::Manager { format, .. }) => {
                let problem = format!("format {format}, this program reads {FORMAT}");
                return Err(LinuxError::Input { what: left.path.display().to_string(), problem });
            }
            Err(_) => left.unknown_lines += 1,
            Ok(entry @ (Entry::Mask(_) | Entry::OwnMask { .. } | Entry::Member { .. })) => {
                masks.push(entry);
            }
            Ok(entry @ (Entry::Pages { .. } | Entry::Copies { .. } | Entry::Memory { .. })) => {
                left.open.push(entry);
            }
        }
    }
    left.open.reverse();
    left.masks = Masks::of_ledger(&masks);
    Ok(left)
}

/// Where this user's ledgers are: `/run/rondpoint` of root, the user's runtime folder, else the
/// user's folder for state. Never a folder that others may write; `None` where the user has no
/// other.
#[must_use]
pub fn own_folder() -> Option<PathBuf> {
    let path = |name| std::env::var_os(name).map(PathBuf::from);
    let (runtime, state, home) = (path("XDG_RUNTIME_DIR"), path("XDG_STATE_HOME"), path("HOME"));
    let owns_run = match fs::symlink_metadata("/run") {
        Ok(run) => effective_user() == 0 && run.uid() == 0,
        Err(error) if is_absent(&error) => false,
        // Ledgers elsewhere would hide any ledgers in `/run`.
        Err(_) => return None,
    };
    folder(&Places {
        owns_run,
        runtime: runtime.as_deref(),
        state: state.as_deref(),
        home: home.as_deref(),
    })
}

/// What decides where ledgers are.
#[derive(Debug, Clone, Copy, Default)]
struct Places<'a> {
    /// `/run` belongs to this user: the machine's root, and not that of a user namespace.
    owns_run: bool,
    /// `$XDG_RUNTIME_DIR`.
    runtime: Option<&'a Path>,
    /// `$XDG_STATE_HOME`.
    state: Option<&'a Path>,
    /// `$HOME`.
    home: Option<&'a Path>,
}

fn folder(places: &Places<'_>) -> Option<PathBuf> {
    let absolute = |path: Option<&Path>| path.filter(|path| path.is_absolute()).map(PathBuf::from);
    let state =
        || absolute(places.state).or_else(|| Some(absolute(places.home)?.join(".local/state")));
    if places.owns_run {
        return Some(PathBuf::from("/run/rondpoint"));
    }
    Some(absolute(places.runtime).or_else(state)?.join("rondpoint"))
}

/// Makes a folder that only its owner may enter. A folder of another user is refused, because what
/// is read there is done.
fn make_private(folder: &Path) -> Result<(), LinuxError> {
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
