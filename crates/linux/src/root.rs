//! The two trees that the kernel describes itself in, as handles that tests can point elsewhere.
//!
//! Every path of this crate is opened beneath a [`Root`]; a captured machine or a test's fixture is
//! another `Root`. A file that may be absent is `None`, never an error.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rondpoint_core::Pid;

use crate::LinuxError;

/// Most bytes of a file that is read whole. Files that grow with mappings, CPUs or nodes are read
/// by [`crate::lines::Lines`].
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Most names in one directory. `/proc` has one for each process, at most `PID_MAX_LIMIT`
/// (include/linux/threads.h, v6.12).
pub const MAX_NAMES: usize = (4 << 20) + 1024;

/// The directories of `/proc` and `/sys`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// The directory that stands for `/proc`.
    pub proc: PathBuf,
    /// The directory that stands for `/sys`.
    pub sys: PathBuf,
}

impl Root {
    /// The running machine.
    #[must_use]
    pub fn live() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }

    /// A captured tree: `DIR/proc` and `DIR/sys`.
    #[must_use]
    pub fn captured(directory: &Path) -> Self {
        Self { proc: directory.join("proc"), sys: directory.join("sys") }
    }

    /// Path beneath `/proc`.
    #[must_use]
    pub fn in_proc(&self, path: impl AsRef<Path>) -> PathBuf {
        self.proc.join(path)
    }

    /// Path beneath `/sys`.
    #[must_use]
    pub fn in_sys(&self, path: impl AsRef<Path>) -> PathBuf {
        self.sys.join(path)
    }
}

/// The effective user of a process, which owns its folder in `/proc` (`task_dump_owner`,
/// fs/proc/base.c, Linux 6.12). `None` if the process has ended or is hidden.
#[must_use]
pub fn owner(root: &Root, pid: Pid) -> Option<u32> {
    Some(fs::metadata(root.in_proc(pid.to_string())).ok()?.uid())
}

/// The bytes of a file; `None` if it does not exist or its process has ended.
///
/// # Errors
/// Any other error of the kernel, and a file longer than [`MAX_FILE_BYTES`].
pub fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, LinuxError> {
    read_limited(path, MAX_FILE_BYTES)
}

/// As [`read_optional`], with another limit of bytes.
///
/// # Errors
/// As [`read_optional`].
pub fn read_limited(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, LinuxError> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(LinuxError::io(path, "open", error)),
    };
    // Nearly every file of the kernel is shorter than a page, so one read gets it and a second one
    // finds its end.
    let mut bytes = Vec::with_capacity(4096);
    match file.take(limit + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > limit => {
            let error = io::Error::other(format!("longer than {limit} bytes"));
            Err(LinuxError::io(path, "read", error))
        }
        Ok(_) => Ok(Some(bytes)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(LinuxError::io(path, "read", error)),
    }
}

/// Opens for reading. A pipe in a captured tree does not block: without a writer it is empty.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// The bytes of a file that must exist.
///
/// # Errors
/// Any error of the kernel, absence included.
pub fn read_required(path: &Path) -> Result<Vec<u8>, LinuxError> {
    read_optional(path)?
        .ok_or_else(|| LinuxError::io(path, "open", io::Error::from_raw_os_error(libc::ENOENT)))
}

/// The names in a directory, sorted; empty if the directory does not exist.
///
/// # Errors
/// Any error of the kernel except absence, and a directory of more than [`MAX_NAMES`] names.
pub fn list(path: &Path) -> Result<Vec<String>, LinuxError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(LinuxError::io(path, "list", error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        if names.len() >= MAX_NAMES {
            let error = io::Error::other(format!("more than {MAX_NAMES} names"));
            return Err(LinuxError::io(path, "list", error));
        }
        match entry {
            Ok(entry) => names.push(entry.file_name().to_string_lossy().into_owned()),
            Err(error) if is_absent(&error) => break,
            Err(error) => return Err(LinuxError::io(path, "list", error)),
        }
    }
    names.sort();
    Ok(names)
}

/// Whether an error means that a file does not exist. Reading `/proc/PID/…` of a process that has
/// just ended gives ESRCH.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::ENOTDIR | libc::ENODEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_none_and_what_is_there_is_its_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        assert_eq!(read_optional(&root.in_sys("nothing")).unwrap(), None);
        assert!(list(&root.in_proc("nothing")).unwrap().is_empty());
        fs::create_dir_all(root.in_proc("2")).unwrap();
        fs::write(root.in_proc("1"), "text").unwrap();
        assert_eq!(read_required(&root.in_proc("1")).unwrap(), b"text");
        assert_eq!(list(&root.proc).unwrap(), ["1", "2"]);
    }

    #[test]
    fn a_missing_required_file_is_named() {
        let error = read_required(Path::new("/nonexistent/file")).unwrap_err().to_string();
        assert_eq!(error, "/nonexistent/file: cannot open: No such file or directory (os error 2)");
    }

    #[test]
    fn a_pipe_that_nobody_writes_to_is_an_empty_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(read_required(&path).unwrap(), b"");
    }

    #[test]
    fn a_file_beyond_the_limit_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("long");
        fs::write(&path, [b'x'; 11]).unwrap();
        assert!(read_limited(&path, 10).unwrap_err().to_string().contains("longer than 10 bytes"));
        assert_eq!(read_limited(&path, 11).unwrap().unwrap().len(), 11);
    }
}
