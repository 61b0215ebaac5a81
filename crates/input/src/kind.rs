//! Names for kinds of files.

use std::fmt;
use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;

/// What a path leads to, as messages call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind(FileType);

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Self {
        Self(kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            kind if kind.is_file() => "a regular file",
            kind if kind.is_dir() => "a directory",
            kind if kind.is_fifo() => "a pipe",
            kind if kind.is_socket() => "a socket",
            kind if kind.is_char_device() || kind.is_block_device() => "a device",
            _ => "no file",
        })
    }
}
