//! Files of any length, read line by line in bounded memory.
//!
//! `numa_maps` and `maps` grow with what a process maps: 20 MB for 200,000 mapped files. `cpuinfo`
//! and `zoneinfo` grow with CPUs and nodes.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use crate::LinuxError;
use crate::parse::{ParseError, fields};
use crate::root::{is_absent, open};

/// Most bytes of a line. In `numa_maps` a path takes up to 16 KiB (4096 bytes, each escaped as
/// four), and the counts of 1024 nodes take 26 KiB.
pub const MAX_LINE_BYTES: u64 = 256 << 10;
/// Bytes of one read(2).
const BUFFER_BYTES: usize = 64 << 10;

/// An open file and the line that was read last.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    line: Vec<u8>,
    number: usize,
}

impl Lines {
    /// Opens a file; `None` if it does not exist or its process has ended.
    ///
    /// # Errors
    /// Any other error of the kernel.
    pub fn open(path: &Path) -> Result<Option<Self>, LinuxError> {
        let file = match open(path) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(LinuxError::io(path, "open", error)),
        };
        let file = BufReader::with_capacity(BUFFER_BYTES, file);
        Ok(Some(Self { path: path.to_path_buf(), file, line: Vec::new(), number: 0 }))
    }

    /// The next line that is not empty, with its number from 1 and without its newline. `None` at
    /// the end of the file, or if its process has ended.
    ///
    /// # Errors
    /// The kernel refuses to read, or the line is longer than [`MAX_LINE_BYTES`].
    pub fn next_line(&mut self) -> Result<Option<(usize, &[u8])>, LinuxError> {
        loop {
            if !self.advance()? {
                return Ok(None);
            }
            if !fields::trim(&self.line).is_empty() {
                return Ok(Some((self.number, fields::trim_end(&self.line))));
            }
        }
    }

    /// As [`Lines::next_line`], with empty lines.
    ///
    /// # Errors
    /// As [`Lines::next_line`].
    pub fn next_or_empty(&mut self) -> Result<Option<(usize, &[u8])>, LinuxError> {
        Ok(self.advance()?.then(|| (self.number, fields::trim_end(&self.line))))
    }

    /// An error about the file's format, with the file's path.
    #[must_use]
    pub fn format(&self, source: ParseError) -> LinuxError {
        LinuxError::Format { path: self.path.clone(), source }
    }

    fn advance(&mut self) -> Result<bool, LinuxError> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.file).take(MAX_LINE_BYTES + 1);
        match limited.read_until(b'\n', &mut self.line) {
            Ok(0) => Ok(false),
            Ok(_) if self.line.len() as u64 > MAX_LINE_BYTES => {
                let expected = "lines of at most 262144 bytes";
                Err(self.format(ParseError::new(self.number, expected, &self.line)))
            }
            Ok(_) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(LinuxError::io(&self.path, "read", error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Result<Vec<(usize, String)>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, text).unwrap();
        let mut lines = Lines::open(&path).unwrap().unwrap();
        let mut found = Vec::new();
        while let Some((number, line)) = lines.next_line().map_err(|error| error.to_string())? {
            found.push((number, String::from_utf8_lossy(line).into_owned()));
        }
        Ok(found)
    }

    #[test]
    fn lines_keep_their_numbers_and_lose_their_ends_and_padding() {
        let found = all(b"a\n\n b \r\nlast\0\0").unwrap();
        assert_eq!(found, [(1, "a".into()), (3, " b".into()), (4, "last".into())]);
        assert_eq!(all(&[0; 4096]).unwrap(), []);
        assert!(Lines::open(Path::new("/nonexistent/file")).unwrap().is_none());
    }

    #[test]
    fn a_file_may_be_longer_than_any_buffer_and_a_line_may_not() {
        let text = b"1234567\n".repeat(3 * BUFFER_BYTES / 8);
        assert_eq!(all(&text).unwrap().len(), 3 * BUFFER_BYTES / 8);
        let longest = vec![b'x'; MAX_LINE_BYTES as usize];
        assert_eq!(all(&longest).unwrap().len(), 1);
        let error = all(&[b"a\n", &longest[..], b"x"].concat()).unwrap_err();
        assert!(error.contains("line 2: expected lines of at most 262144 bytes"), "{error}");
    }
}
