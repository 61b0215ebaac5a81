//! The error type of the crate: the attempted action, the path or event, and the kernel's answer.

use std::io;
use std::path::{Path, PathBuf};

use crate::parse::ParseError;

/// What the world may do to a reader of Linux.
#[derive(Debug, thiserror::Error)]
pub enum LinuxError {
    /// A file or directory could not be read.
    #[error("{}: cannot {attempted}: {source}", path.display())]
    Io {
        /// The path as opened.
        path: PathBuf,
        /// The verb: `read`, `list`, `write` …
        attempted: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A file was read but does not have the kernel's format.
    #[error("{}: {source}", path.display())]
    Format {
        /// The path as opened.
        path: PathBuf,
        /// Where in the file, and what was expected.
        source: ParseError,
    },
    /// A system call failed.
    #[error("{call}: {attempted}: {source}")]
    Call {
        /// The system call's name.
        call: &'static str,
        /// What it was to do.
        attempted: String,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A performance event could not be opened.
    #[error("perf event {event} on {target}: {source}")]
    PerfOpen {
        /// The event as asked for.
        event: String,
        /// The thread or CPU it was to watch.
        target: String,
        /// Why not.
        source: io::Error,
    },
    /// The machine's description contradicts itself.
    #[error(transparent)]
    Topology(#[from] rondpoint_core::topology::TopologyError),
    /// Something asked for by name or text is not understood.
    #[error("{what}: {problem}")]
    Input {
        /// The text as given.
        what: String,
        /// What was expected.
        problem: String,
    },
}

impl LinuxError {
    /// An [`LinuxError::Io`] on `path`.
    pub fn io(path: &Path, attempted: &'static str, source: io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), attempted, source }
    }

    /// The kernel's error number, where the kernel refused.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } | Self::Call { source, .. } | Self::PerfOpen { source, .. } => {
                source.raw_os_error()
            }
            Self::Format { .. } | Self::Input { .. } | Self::Topology(_) => None,
        }
    }
}
