//! Regular files, read whole and within a budget.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::{Budget, Kind};

/// Opens a regular file for reading. A pipe without a writer would block its reader for ever, and a
/// device has no end: both are refused, as are directories and sockets.
///
/// # Errors
/// As open(2); a path that leads to something else than a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Non-blocking: open(2) of a pipe returns at once, and regular files ignore the flag.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let problem = format!("it is {}, expected a regular file", Kind::from(kind));
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

/// The bytes of a regular file; charged to the budget.
///
/// # Errors
/// As [`open`] and read(2); a file longer than the bytes that are left.
pub fn read(path: &Path, budget: &mut Budget) -> io::Result<Vec<u8>> {
    from(open(path)?, budget)
}

/// The text of a regular file, or of standard input where the path is `-`.
///
/// # Errors
/// As [`read`]; bytes that are not UTF-8.
pub fn read_text(path: &Path, budget: &mut Budget) -> io::Result<String> {
    let bytes = match path == Path::new("-") {
        true => from(io::stdin().lock(), budget)?,
        false => read(path, budget)?,
    };
    let problem = "it is not UTF-8 text";
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, problem))
}

fn from(source: impl Read, budget: &mut Budget) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more tells a file of exactly the limit from a longer one.
    source.take(budget.bytes_left().saturating_add(1)).read_to_end(&mut bytes)?;
    budget.take_bytes(bytes.len() as u64)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn files_share_one_budget() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "1234567").unwrap();
        let mut budget = Budget::new(14, 0);
        assert_eq!(read_text(&path, &mut budget).unwrap(), "1234567");
        assert_eq!(read(&path, &mut budget).unwrap(), b"1234567");
        let error = read(&path, &mut budget).unwrap_err();
        assert_eq!(error.to_string(), "more than 14 bytes in all");
    }

    #[test]
    fn a_sparse_file_is_read_no_further_than_the_budget() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = read(&path, &mut Budget::new(1 << 16, 0)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn what_is_no_regular_file_is_named_and_refused() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let said = |path: &Path| read(path, &mut Budget::new(9, 9)).unwrap_err().to_string();
        assert_eq!(said(&pipe), "it is a pipe, expected a regular file");
        assert_eq!(said(folder.path()), "it is a directory, expected a regular file");
        assert_eq!(said(Path::new("/dev/zero")), "it is a device, expected a regular file");
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        fs::write(&path, b"\xff").unwrap();
        let error = read_text(&path, &mut Budget::new(9, 0)).unwrap_err();
        assert_eq!(error.to_string(), "it is not UTF-8 text");
    }
}
