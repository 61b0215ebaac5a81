//! A file that the user named for us to write: a report, a record, a machine file.
//!
//! It is opened before anything is touched. An older file keeps its content until the new one is
//! whole or the program runs. New files are for their owner alone where they hold command lines and
//! addresses.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rondpoint_linux::syscall::process::{User, effective_user};

// Of open(2) and errno(3); the first differs between architectures.
#[cfg(target_arch = "x86_64")]
const O_NOFOLLOW: i32 = 0o400_000;
#[cfg(not(target_arch = "x86_64"))]
const O_NOFOLLOW: i32 = 0o100_000;
const ELOOP: i32 = 40;
/// Permissions of a new file.
const PRIVATE: u32 = 0o600;
/// The same for a file that holds nothing of any program, as far as the umask lets.
const SHARED: u32 = 0o644;

/// An open file. Until [`Output::keep`] nothing is lost: a new file goes away with this value, and
/// an older one keeps its content.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    file: File,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Made by us, and not relied on yet.
    New,
    /// It was there before; the text that has been written to it waits here.
    Older(Vec<u8>),
    /// Ours to write.
    Kept,
}

impl Output {
    /// Opens `path` for writing. A new file belongs to `owner`, the caller of sudo, and is for it
    /// alone.
    pub(crate) fn open(path: &Path, owner: Option<&User>) -> Result<Self> {
        Self::open_with(path, owner, PRIVATE)
    }

    /// The same for a file that others may read.
    pub(crate) fn open_shared(path: &Path, owner: Option<&User>) -> Result<Self> {
        Self::open_with(path, owner, SHARED)
    }

    fn open_with(path: &Path, owner: Option<&User>, mode: u32) -> Result<Self> {
        let context = || format!("writing {}", path.display());
        let mut options = OpenOptions::new();
        options.write(true).mode(mode);
        let (file, state) = match options.clone().create_new(true).open(path) {
            Ok(file) => (file, State::New),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = open_older(&options, path, owner).with_context(context)?;
                (file, State::Older(Vec::new()))
            }
            Err(error) => return Err(error).with_context(context),
        };
        let output = Self { path: path.to_path_buf(), file, state };
        if let (State::New, Some(owner)) = (&output.state, owner) {
            std::os::unix::fs::fchown(&output.file, Some(owner.user), Some(owner.group))
                .with_context(context)?;
        }
        Ok(output)
    }

    /// As the user named it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// From here on the file is ours: an older one is emptied, and what has waited is written.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        if let State::Older(waiting) = std::mem::replace(&mut self.state, State::Kept) {
            // A pipe or a device has nothing to empty.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            self.file.write_all(&waiting)?;
        }
        Ok(())
    }

    /// Whether both are one regular file, which the later writer would spoil for the earlier one.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        let Ok((a, b)) = self.file.metadata().and_then(|a| Ok((a, other.file.metadata()?))) else {
            return false;
        };
        a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino())
    }
}

/// Opens a file that is there already. Root follows no link, and the file must be root's own or the
/// caller's: another user may have put it there for root to spoil.
fn open_older(options: &OpenOptions, path: &Path, owner: Option<&User>) -> Result<File> {
    if effective_user() != 0 {
        return Ok(options.open(path)?);
    }
    let mut options = options.clone();
    let file = options.custom_flags(O_NOFOLLOW).open(path).map_err(|error| {
        match error.raw_os_error() {
            Some(ELOOP) => anyhow::anyhow!("it is a symbolic link, which root does not follow"),
            _ => error.into(),
        }
    })?;
    let found = file.metadata()?;
    let uid = found.uid();
    if found.is_file() && uid != 0 && owner.is_none_or(|owner| owner.user != uid) {
        bail!("it belongs to user {uid}; expected a file of root or of the caller");
    }
    Ok(file)
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.state {
            State::Older(waiting) => waiting.write(bytes),
            State::New | State::Kept => self.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if matches!(self.state, State::New) {
            // Another process may have removed it already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_file_is_private_and_goes_away_unless_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let mut output = Output::open(&path, None).unwrap();
        output.write_all(b"header\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE);
        drop(output);
        assert!(!path.exists());
        let mut output = Output::open(&path, None).unwrap();
        output.write_all(b"header\n").unwrap();
        output.keep().unwrap();
        output.write_all(b"line\n").unwrap();
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"header\nline\n");
    }

    #[test]
    fn an_older_file_keeps_its_content_and_permissions_until_the_new_content_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("older");
        fs::write(&path, "what was there before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let mut output = Output::open(&path, None).unwrap();
        output.write_all(b"header\n").unwrap();
        drop(output);
        assert_eq!(fs::read(&path).unwrap(), b"what was there before");
        let mut output = Output::open(&path, None).unwrap();
        output.write_all(b"header\n").unwrap();
        output.keep().unwrap();
        output.write_all(b"line\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"header\nline\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn root_follows_no_link_and_writes_no_file_of_another_user() {
        if effective_user() != 0 {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "precious").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let error = format!("{:#}", Output::open(&link, None).unwrap_err());
        assert!(error.contains("symbolic link"), "{error}");
        std::os::unix::fs::chown(&file, Some(4711), Some(4711)).unwrap();
        let error = format!("{:#}", Output::open(&file, None).unwrap_err());
        assert!(error.contains("belongs to user 4711"), "{error}");
        let caller = User { user: 4711, group: 4711, groups: vec![4711] };
        Output::open(&file, Some(&caller)).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }

    #[test]
    fn a_device_is_written_and_two_names_of_one_file_are_recognised() {
        let mut null = Output::open(Path::new("/dev/null"), None).unwrap();
        null.write_all(b"x").unwrap();
        null.keep().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one");
        let first = Output::open(&path, None).unwrap();
        let second = Output::open(&folder.path().join(".").join("one"), None).unwrap();
        assert!(first.is_same_file(&second));
        assert!(!first.is_same_file(&null));
        let error = Output::open(&folder.path().join("none/x"), None).unwrap_err();
        assert!(format!("{error:#}").starts_with("writing "), "{error:#}");
    }
}
