//! Text to machine, and every error to a line.

use std::path::Path;

use rondpoint_input::{Budget, in_one_line, line_at};

use crate::build;
use crate::error::{Fault, MachineError};
use crate::file::File;
use crate::limits;
use crate::locate::Positions;
use crate::machine::Machine;

impl Machine {
    /// Reads a machine from TOML. `file`: name of the text in errors.
    ///
    /// # Errors
    /// The text is not TOML, a key is unknown or missing, or values do not fit each other. The
    /// error has file, line, field and expected value.
    pub fn parse(text: &str, file: &str) -> Result<Self, MachineError> {
        let written: File = toml::from_str(text).map_err(|error| text_error(&error, text, file))?;
        build::machine(written).map_err(|Fault { path, expected }| {
            let line = Positions::of(text).map_or(1, |positions| positions.line_of(&path));
            MachineError::Field { file: file.to_owned(), line, path, expected }
        })
    }

    /// Reads a machine file.
    ///
    /// # Errors
    /// The file cannot be read, or [`Machine::parse`] refuses it.
    pub fn load(path: &Path) -> Result<Self, MachineError> {
        let text = rondpoint_input::read_text(path, &mut Budget::new(limits::FILE_BYTES_MAX, 0))
            .map_err(|source| MachineError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, &path.to_string_lossy())
    }
}

fn text_error(error: &toml::de::Error, text: &str, file: &str) -> MachineError {
    let offset = error.span().map_or(0, |span| span.start);
    let path = Positions::of(text).map(|positions| positions.path_at(offset)).unwrap_or_default();
    MachineError::Text {
        file: file.to_owned(),
        line: line_at(text, offset),
        place: if path.is_empty() { path } else { format!("{path}: ") },
        message: in_one_line(error.message()),
    }
}
