//! Small files of `/proc` that stay open and are read repeatedly.
//!
//! For such a file, the kernel needs as much time to resolve the path as to write the contents. So
//! the file stays open and is read from its beginning each time. Reading the open file of an ended
//! task fails, even if its number now belongs to another task. Where few descriptors are left, the
//! file is closed after each reading.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::LinuxError;
use crate::parse::ParseError;
use crate::root::is_absent;
use crate::syscall::descriptors;

/// Bytes of the buffer, more than any of these files has: `cpuset` is a path, and a node's
/// `meminfo` has about 40 lines.
const MOST_BYTES: usize = 4096 + 1;

/// A file that may stay open.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    file: Option<File>,
    keep: bool,
}

impl Kept {
    /// A file that is not opened yet. Without `keep` it is opened for each reading.
    pub(crate) fn new(path: PathBuf, keep: bool) -> Self {
        Self { path, file: None, keep }
    }

    /// Changes whether it stays open after a reading. Without `keep` an open file is closed.
    pub(crate) fn keep(&mut self, keep: bool) {
        self.keep = keep;
        if !keep {
            self.file = None;
        }
    }

    /// Whether it is open between two readings.
    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Reads and parses the present content; `None` if the file does not exist or its task has
    /// ended.
    ///
    /// # Errors
    /// Any other error of the kernel, or of `parse`.
    pub(crate) fn read<T>(
        &mut self,
        parse: fn(&[u8]) -> Result<T, ParseError>,
    ) -> Result<Option<T>, LinuxError> {
        let mut bytes = [0; MOST_BYTES];
        let length = match self.bytes(&mut bytes) {
            // A task that ends while its file is read leaves an empty one behind.
            Ok(0) => return Ok(None),
            Ok(length) => length,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(LinuxError::io(&self.path, "read", error)),
        };
        let format = |source| LinuxError::Format { path: self.path.clone(), source };
        parse(&bytes[..length]).map(Some).map_err(format)
    }

    fn bytes(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(&self.path)?,
        };
        // If the buffer is large enough, the kernel returns such a file in one piece that ends with
        // a newline. Other pieces need a second read.
        let mut length = 0;
        loop {
            match file.read_at(&mut bytes[length..], length as u64) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if bytes[..length].ends_with(b"\n") {
                break;
            }
        }
        self.file = Some(file).filter(|file| self.keep && descriptors::may_keep(file.as_fd()));
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> Result<u64, ParseError> {
        crate::parse::fields::single_number(bytes)
    }

    #[test]
    fn what_the_file_says_now_is_read_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for keep in [true, false] {
            let mut file = Kept::new(path.clone(), keep);
            assert_eq!(file.read(number).unwrap(), None, "not there yet");
            std::fs::write(&path, "5\n").unwrap();
            assert_eq!(file.read(number).unwrap(), Some(5));
            std::fs::write(&path, "61\n").unwrap();
            assert_eq!(file.read(number).unwrap(), Some(61));
            std::fs::write(&path, "x\n").unwrap();
            assert!(file.read(number).unwrap_err().to_string().contains("file: line 1"));
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn an_open_file_of_a_task_that_ended_is_not_there() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let path = format!("/proc/{}/stat", child.id()).into();
        let mut file = Kept::new(path, true);
        let parse = crate::parse::stat::parse;
        assert_eq!(file.read(parse).unwrap().map(|found| found.id), Some(child.id()));
        child.wait().unwrap();
        assert_eq!(file.read(parse).unwrap(), None);
    }
}
