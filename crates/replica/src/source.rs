//! Where data comes from.

#![allow(unsafe_code, reason = "maps a file whose stability its caller promises")]

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::mapping::Mapping;

/// The original data of copies, read-only.
pub struct Source<'a>(Kind<'a>);

enum Kind<'a> {
    Borrowed(&'a [u8]),
    Owned(Box<dyn AsRef<[u8]> + Send + Sync + 'a>),
    File { file: File, mapping: Mapping },
}

/// Why a file cannot be mapped.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {attempted}: {source}", path.display())]
pub struct FileError {
    /// Path of the file, as the caller gave it.
    pub path: PathBuf,
    /// Failed operation: `open` or `map`.
    pub attempted: &'static str,
    /// Error of the kernel.
    pub source: io::Error,
}

impl<'a> Source<'a> {
    /// Data that the replica owns. It is freed as soon as copies replace it.
    pub fn owned(bytes: impl AsRef<[u8]> + Send + Sync + 'a) -> Self {
        Self(Kind::Owned(Box::new(bytes)))
    }

    /// A regular file, mapped. Readers get this mapping if no copies are made.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or is not regular.
    ///
    /// # Safety
    /// No process writes to the file or truncates it while the data is in use. Replacing it by
    /// rename(2) is safe.
    pub unsafe fn of_file(path: &Path) -> Result<Self, FileError> {
        let error = |attempted, source| FileError { path: path.to_owned(), attempted, source };
        let file = File::open(path).map_err(|source| error("open", source))?;
        let facts = file.metadata().map_err(|source| error("open", source))?;
        if !facts.is_file() {
            return Err(error("map", io::Error::other("it is not a regular file")));
        }
        let length = usize::try_from(facts.len())
            .map_err(|_| error("map", io::Error::from_raw_os_error(libc::EFBIG)))?;
        if length == 0 {
            return Ok(Self(Kind::Borrowed(&[])));
        }
        // SAFETY: as this function's caller promises.
        let mapping = unsafe { Mapping::of_file(&file, length) };
        let mapping = mapping.map_err(|source| error("map", source))?;
        Ok(Self(Kind::File { file, mapping }))
    }

    /// All bytes of the data.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Kind::Borrowed(bytes) => bytes,
            Kind::Owned(owner) => (**owner).as_ref(),
            Kind::File { mapping, .. } => mapping.bytes(),
        }
    }

    /// Fills `part` with the bytes at `offset`. A file is read, not accessed through its mapping,
    /// so that a truncated file is an error and not a signal.
    ///
    /// # Errors
    /// As read(2); `UnexpectedEof` for a file that has become shorter.
    pub(crate) fn read(&self, offset: usize, part: &mut [u8]) -> io::Result<()> {
        match &self.0 {
            Kind::File { file, .. } => file.read_exact_at(part, offset as u64),
            _ => {
                let end = offset + part.len();
                let bytes = self.bytes().get(offset..end);
                part.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(Kind::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for Source<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::owned(bytes)
    }
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Borrowed(_) => "borrowed",
            Kind::Owned(_) => "owned",
            Kind::File { .. } => "file",
        };
        write!(formatter, "Source({kind}, {} bytes)", self.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn open(path: &Path) -> Result<Source<'static>, FileError> {
        // SAFETY: the tests below truncate a file only where nothing reads its mapping afterwards.
        unsafe { Source::of_file(path) }
    }

    #[test]
    fn a_file_is_its_bytes_and_an_empty_one_is_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        fs::write(&path, b"weights").unwrap();
        assert_eq!(open(&path).unwrap().bytes(), b"weights");
        fs::write(&path, b"").unwrap();
        assert_eq!(open(&path).unwrap().bytes(), b"");
    }

    #[test]
    fn what_is_no_file_is_refused_with_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let absent = directory.path().join("absent");
        let error = open(&absent).unwrap_err().to_string();
        assert!(error.contains("absent: cannot open: No such file"), "{error}");
        let error = open(directory.path()).unwrap_err().to_string();
        assert!(error.ends_with("cannot map: it is not a regular file"), "{error}");
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        fs::write(&path, [7; 100]).unwrap();
        let source = open(&path).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(50).unwrap();
        let mut part = [0; 20];
        assert!(source.read(30, &mut part).is_ok());
        let error = source.read(40, &mut part).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
