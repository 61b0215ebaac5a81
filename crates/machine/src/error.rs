//! What can be wrong with a machine file, and how it is said: file, line, field, expectation.

use std::path::PathBuf;

use crate::saturation::Saturation;

/// Why a machine could not be had.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The file cannot be read.
    #[error("cannot read machine file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is not TOML, or a field is unknown, missing or of the wrong type.
    #[error("{file}:{line}: {place}{message}")]
    Text {
        /// The file as the caller named it.
        file: String,
        /// Line, from 1.
        line: usize,
        /// `field: ` where the field is known, else empty.
        place: String,
        /// What the parser expected.
        message: String,
    },
    /// A field has a value that no machine can have.
    #[error("{file}:{line}: {path}: {expected}")]
    Field {
        /// The file as the caller named it.
        file: String,
        /// Line of the field, from 1; of its table where the field is absent.
        line: usize,
        /// The field, like `nodes[1].controller.bandwidth_mb_s`.
        path: String,
        /// What was expected and what was found.
        expected: String,
    },
    /// A one-line machine has a word that means nothing.
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
        /// The machine.
        name: String,
        /// What is missing.
        reason: String,
    },
    /// The CPUs cannot saturate what they should be able to saturate.
    #[error("machine {name}: its CPUs ask for too little to saturate it:\n{report}")]
    CannotSaturate {
        /// The machine.
        name: String,
        /// Demand and capacity of each controller and route.
        report: Saturation,
    },
}

/// A field and what was expected of it, before anyone knows the line.
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

/// Fails with the fault unless `condition` holds; the message is made only when it is needed.
pub(crate) fn require(
    condition: bool,
    path: impl FnOnce() -> String,
    expected: impl FnOnce() -> String,
) -> Result<(), Fault> {
    if condition { Ok(()) } else { Err(Fault::new(path(), expected())) }
}
