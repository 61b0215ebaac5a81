//! Lines of a file of which nothing is known: each is bounded, and an end without a newline is
//! told.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use crate::TraceError;

/// Most bytes of a header. One of a thousand nodes with their matrices has about 30 million.
const MAX_HEADER_BYTES: u64 = 64 << 20;
/// Most bytes of any other line. Four million samples take about half of it.
const MAX_LINE_BYTES: u64 = 256 << 20;

/// The lines of a source.
#[derive(Debug)]
pub(super) struct Lines<R: Read> {
    source: BufReader<R>,
    path: PathBuf,
    number: u64,
    line: Vec<u8>,
    /// Whether the current line ends with a newline.
    ended: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(source: R, path: PathBuf) -> Self {
        Self { source: BufReader::new(source), path, number: 0, line: Vec::new(), ended: true }
    }

    /// Reads the first line; an empty file has an empty one.
    pub(super) fn first(&mut self) -> Result<(), TraceError> {
        self.read(MAX_HEADER_BYTES)?;
        self.number = 1;
        Ok(())
    }

    /// Reads the next line; `false` at the end of the file.
    pub(super) fn next(&mut self) -> Result<bool, TraceError> {
        self.read(MAX_LINE_BYTES)
    }

    fn read(&mut self, limit: u64) -> Result<bool, TraceError> {
        self.line.clear();
        let source = self.source.by_ref();
        let read = source.take(limit).read_until(b'\n', &mut self.line);
        let count = read.map_err(|source| TraceError::File {
            path: self.path.clone(),
            attempted: "read",
            source,
        })?;
        if count == 0 {
            return Ok(false);
        }
        self.number += 1;
        self.ended = self.line.pop_if(|last| *last == b'\n').is_some();
        match !self.ended && count as u64 == limit {
            true => Err(self.refuse(format!("longer than {limit} bytes, not a line of a trace"))),
            false => Ok(true),
        }
    }

    /// The current line without its newline.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.line
    }

    /// Number of the current line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the current line ends with a newline.
    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    /// An error about the current line.
    pub(super) fn refuse(&self, problem: String) -> TraceError {
        TraceError::Line { path: self.path.clone(), line: self.number, problem }
    }
}
