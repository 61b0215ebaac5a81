//! Writes a description of the machine to stdout or a file. If writing fails, an older file is
//! unchanged.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::output::Output;
use crate::{session, terminal};

/// Opened before anything is read.
pub(super) struct Written {
    file: Option<Output>,
}

impl Written {
    /// Opens the file; none is stdout.
    ///
    /// # Errors
    /// It cannot be written, or root would follow a link there.
    pub(super) fn open(file: Option<&Path>) -> Result<Self> {
        let open = |path| Output::open_shared(path, session::caller()?.as_ref());
        Ok(Self { file: file.map(open).transpose()? })
    }

    /// Writes text.
    ///
    /// # Errors
    /// The file or stdout does not take it.
    pub(super) fn put(self, text: &str) -> Result<()> {
        match self.file {
            None => terminal::print(text),
            Some(_) => self.fill(|file| file.write_all(text.as_bytes())),
        }
    }

    /// Lets `write` fill the file.
    ///
    /// # Errors
    /// As [`Written::put`].
    pub(super) fn fill(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let Some(mut file) = self.file else { return Ok(()) };
        let context = file.purpose();
        // Small: it waits in memory, and the file is touched when all of it is there.
        let mut whole = Vec::new();
        let written = write(&mut whole).and_then(|()| file.write_all(&whole));
        written.and_then(|()| file.keep()).context(context)
    }

    /// As the user named it.
    pub(super) fn name(&self) -> String {
        match self.file.as_ref().map(Output::path) {
            None => String::new(),
            Some(path) if Output::is_stdout(path) => "stdout".to_string(),
            Some(path) => path.display().to_string(),
        }
    }
}
