//! The error type of the crate: the attempted action, the path or event, and the kernel's answer.

use std::io;
use std::path::{Path, PathBuf};

use crate::parse::ParseError;

/// Errors of the machine: files, system calls, events and input.
#[derive(Debug, thiserror::Error)]
pub enum LinuxError {
    /// A file or directory could not be read.
    #[error("{}: cannot {attempted}: {source}", path.display())]
    Io {
        /// Path of the file, as opened.
        path: PathBuf,
        /// Failed operation: `read`, `list`, `write` …
        attempted: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A file was read but does not have the kernel's format.
    #[error("{}: {source}", path.display())]
    Format {
        /// Path of the file, as opened.
        path: PathBuf,
        /// Place in the file, and the expected form.
        source: ParseError,
    },
    /// A system call failed.
    #[error("{call}: {attempted}: {source}")]
    Call {
        /// Name of the system call.
        call: &'static str,
        /// Purpose of the call.
        attempted: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A performance event could not be opened.
    #[error("perf event {event} on {target}: {source}")]
    PerfOpen {
        /// Name of the event.
        event: String,
        /// Thread or CPU to watch.
        target: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The machine's description contradicts itself.
    #[error(transparent)]
    Topology(#[from] rondpoint_core::topology::TopologyError),
    /// A text given by the user or found on the machine is not valid.
    #[error("{what}: {problem}")]
    Input {
        /// The text.
        what: String,
        /// The expected form.
        problem: String,
    },
}

impl LinuxError {
    /// An [`LinuxError::Io`] on `path`.
    pub fn io(path: &Path, attempted: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), attempted, source }
    }

    /// The kernel's error number; `None` for other errors.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } | Self::Call { source, .. } | Self::PerfOpen { source, .. } => {
                source.raw_os_error()
            }
            Self::Format { .. } | Self::Input { .. } | Self::Topology(_) => None,
        }
    }

    /// Whether the kernel refused access for a missing right.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self.errno(), Some(libc::EACCES | libc::EPERM))
    }
}
