//! Ledgers of managers that have ended. They are read one after the other, so that a restore needs
//! few descriptors however many there are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rondpoint_core::{Nanos, Pid};

use super::namespaces::{Meaning, meaning};
use super::{Ended, Entry, FORMAT, NEW_SUFFIX, SUFFIX, check_private, failed};
use crate::LinuxError;
use crate::act::Identity;
use crate::act::masks::Masks;
use crate::freeze::Means;
use crate::root::Root;
use crate::syscall::process::effective_user;

/// Extension of a restored ledger with lines that this version does not understand.
const UNREAD_SUFFIX: &str = "unread";
/// Largest ledger to read, bytes. An entry for a page takes about 20, so a million pages for each
/// of three plans fit.
pub(super) const LARGEST: u64 = 64 << 20;

/// The ledger of a manager that has ended. It is locked, so that no other process restores it.
#[derive(Debug, Default)]
pub struct Left {
    /// Path of the file.
    pub path: PathBuf,
    /// Changes of memory to undo, last change first, without settled ones.
    pub open: Vec<Entry>,
    /// Masks to restore.
    pub masks: Masks,
    /// Processes that were stopped without a line about their resuming.
    pub frozen: Vec<(Identity, Means)>,
    /// Number of complete lines that are not understood. An incomplete last line does not count:
    /// the manager was killed while it wrote, before it made that change.
    pub unknown_lines: usize,
    /// The open and locked file; `None` for a ledger that is no file.
    pub file: Option<File>,
}

/// Ledgers of managers that have ended, in one folder.
#[derive(Debug, Default)]
pub struct Legacy {
    /// The ledgers, sorted by name.
    pub left: Vec<Left>,
    /// Errors about ledgers that are not read. They are no regular file of this user, too large, of
    /// another format, or of namespaces that may live.
    pub unusable: Vec<LinuxError>,
    /// Ledgers of PID namespaces that have ended.
    pub ended: Vec<Ended>,
}

/// The ledger of a manager that has ended, by what there is to do.
#[derive(Debug)]
pub enum Found {
    /// Changes to undo.
    Left(Box<Left>),
    /// All processes have ended with their PID namespace.
    Ended(Ended),
    /// It is not read: see [`Legacy::unusable`].
    Unusable(LinuxError),
}

impl Left {
    /// Removes the file of a restored ledger. A ledger with unknown lines is renamed instead, so
    /// that it is no ledger any more, and its path is returned.
    pub fn settle(&self) -> Option<PathBuf> {
        if self.unknown_lines == 0 {
            let _ = fs::remove_file(&self.path);
            return None;
        }
        let aside = self.path.with_extension(UNREAD_SUFFIX);
        Some(fs::rename(&self.path, &aside).map_or(self.path.clone(), |()| aside))
    }
}

/// The ledgers in `folder` of managers that have ended, all at once: [`each_left`].
///
/// # Errors
/// As [`each_left`].
pub fn left_behind(folder: &Path) -> Result<Legacy, LinuxError> {
    let mut legacy = Legacy::default();
    each_left(folder, |found| match found {
        Found::Left(left) => legacy.left.push(*left),
        Found::Ended(ended) => legacy.ended.push(ended),
        Found::Unusable(error) => legacy.unusable.push(error),
    })?;
    Ok(legacy)
}

/// Visits the ledgers in `folder` of managers that have ended, by name; none without such a folder.
/// A ledger is open and locked while it is visited. The incomplete ledger of a killed manager is
/// removed, because that manager had changed nothing.
///
/// # Errors
/// Another user may write the folder, or it cannot be read.
pub fn each_left(folder: &Path, mut visit: impl FnMut(Found)) -> Result<(), LinuxError> {
    for path in ledgers(folder)? {
        let is_new = is(&path, NEW_SUFFIX);
        match open_unlocked(&path) {
            Ok(None) => {}
            Ok(Some(_)) if is_new => {
                let _ = fs::remove_file(&path);
            }
            Ok(Some(file)) => visit(read(path, file).unwrap_or_else(Found::Unusable)),
            Err(error) => visit(Found::Unusable(error)),
        }
    }
    Ok(())
}

/// Number of ledgers of ended managers in a folder of another user. They are not read: root trusts
/// no file that another user may write.
#[must_use]
pub fn left_by_others(folder: &Path) -> usize {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_left = |path: &PathBuf| {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(path).ok();
        file.is_some_and(|file| {
            file.metadata().is_ok_and(|found| found.is_file()) && file.try_lock().is_ok()
        })
    };
    paths.filter(|path| is(path, SUFFIX)).filter(is_left).count()
}

/// Paths of all ledgers in a folder, sorted.
fn ledgers(folder: &Path) -> Result<Vec<PathBuf>, LinuxError> {
    let names =
        match check_private(folder).and_then(|()| fs::read_dir(folder).map_err(list(folder))) {
            Ok(names) => names,
            Err(LinuxError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
    let paths = names.map(|name| Ok(name.map_err(list(folder))?.path()));
    let mut paths = paths.collect::<Result<Vec<PathBuf>, LinuxError>>()?;
    paths.retain(|path| is(path, NEW_SUFFIX) || is(path, SUFFIX));
    paths.sort();
    Ok(paths)
}

fn is(path: &Path, suffix: &str) -> bool {
    path.extension().is_some_and(|found| found == &suffix[1..])
}

fn list(folder: &Path) -> impl Fn(io::Error) -> LinuxError {
    |source| failed(folder, "list", source)
}

/// Opens, checks and locks the file of a ledger. `None` if its manager lives, another restore has
/// locked it, or it was just removed.
fn open_unlocked(path: &Path) -> Result<Option<File>, LinuxError> {
    let mut options = OpenOptions::new();
    // Opening a pipe or a device must not block, and a symbolic link is no ledger.
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
        // Its manager may have removed it between opening and locking, and made another one.
        Ok(()) => match fs::symlink_metadata(path) {
            Ok(now) => Ok((now.dev(), now.ino()).eq(&(found.dev(), found.ino())).then_some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed(path, "look at", source)),
        },
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(source)) => Err(failed(path, "lock", source)),
    }
}

fn read(path: PathBuf, mut file: File) -> Result<Found, LinuxError> {
    let mut bytes = Vec::new();
    let found = (&mut file).take(LARGEST).read_to_end(&mut bytes);
    found.map_err(|source| failed(&path, "read", source))?;
    let text = String::from_utf8_lossy(&bytes);
    let later_ns = match meaning_of(&text) {
        Meaning::Here(earlier_ns) => -earlier_ns,
        Meaning::Ended => return Ok(Found::Ended(Ended { path, _file: file })),
        Meaning::Elsewhere { theirs, own } => {
            let problem = format!(
                "it is of a manager in other namespaces ({theirs}; here {own}), which may live; \
                 expected `rondpoint restore` there, or that the file is removed once all \
                 processes of those namespaces have ended"
            );
            return Err(LinuxError::Input { what: path.display().to_string(), problem });
        }
    };
    let left = parse(path, &text, later_ns)?;
    Ok(Found::Left(Box::new(Left { file: Some(file), ..left })))
}

/// By the first line. Without one, the entries are of these namespaces.
fn meaning_of(text: &str) -> Meaning {
    match text.lines().next().map(serde_json::from_str) {
        Some(Ok(Entry::Manager { format: FORMAT, namespaces: theirs, pid, .. })) => {
            meaning(&Root::live(), theirs.as_deref(), Pid(pid))
        }
        _ => Meaning::Here(0),
    }
}

/// Reads the lines. `later_ns` is added to each time since boot.
fn parse(path: PathBuf, text: &str, later_ns: i128) -> Result<Left, LinuxError> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut left = Left { path, ..Left::default() };
    let mut masks = Vec::new();
    let identity = |pid, started| Identity { pid: Pid(pid), started: Nanos(started) };
    for line in whole.lines() {
        match Entry::read(line, later_ns) {
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
