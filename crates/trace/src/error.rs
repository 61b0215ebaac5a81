//! What can be wrong with a trace, and how it is said: file, line, what was found and expected.

use std::path::PathBuf;

/// Why a trace could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be written or read.
    #[error("cannot {attempted} trace {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Failed operation: `write` or `read`.
        attempted: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A line is not valid.
    #[error("{}:{line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// The field, the value found and the one expected.
        problem: String,
    },
    /// The header names a policy or preset that this program does not have.
    #[error("policy {name}: {expected}")]
    Policy {
        /// Name in the header.
        name: String,
        /// Names that this program has.
        expected: String,
    },
}
