//! What can be wrong with a machine file, and how it is said: file, line, field, expectation.

use std::path::PathBuf;

use crate::saturation::Saturation;

/// Why a machine could not be read or built.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The file cannot be read.
    #[error("cannot read machine file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The text is not TOML, or a field is unknown, missing or of the wrong type.
    #[error("{file}:{line}: {place}{message}")]
    Text {
        /// The caller's name for the text.
        file: String,
        /// Line, from 1.
        line: usize,
        /// `field: ` if the field is known, else empty.
        place: String,
        /// What the parser expected.
        message: String,
    },
    /// A field has a value that no machine can have.
    #[error("{file}:{line}: {path}: {expected}")]
    Field {
        /// The caller's name for the text.
        file: String,
        /// Line of the field, from 1; of its table if the field is absent.
        line: usize,
        /// Path of the field, like `nodes[1].controller.bandwidth_mb_s`.
        path: String,
        /// The value expected and the one found.
        expected: String,
    },
    /// A one-line machine has an unknown or wrong word.
    #[error("synthetic machine: {word}: {expected}")]
    Synthetic {
        /// The word, or the field that it led to.
        word: String,
        /// What was expected.
        expected: String,
    },
    /// The machine has no usable `[lab]` table.
    #[error("machine {name} cannot run in the lab: {reason}")]
    NotForTheLab {
        /// Name of the machine.
        name: String,
        /// What is missing.
        reason: String,
    },
    /// The machine's CPUs cannot saturate some controller or route.
    #[error("machine {name}: its CPUs ask for too little to saturate it:\n{report}")]
    CannotSaturate {
        /// Name of the machine.
        name: String,
        /// Demand and capacity of each controller and route.
        report: Saturation,
    },
}

/// A wrong field and its expected value. [`MachineError::Field`] adds the file and the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) path: String,
    pub(crate) expected: String,
}

impl Fault {
    pub(crate) fn new(path: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { path: path.into(), expected: expected.into() }
    }
}

/// Returns a fault unless `condition` holds. Path and message are made only then.
pub(crate) fn require(
    condition: bool,
    path: impl FnOnce() -> String,
    expected: impl FnOnce() -> String,
) -> Result<(), Fault> {
    if condition { Ok(()) } else { Err(Fault::new(path(), expected())) }
}
