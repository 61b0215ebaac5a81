//! Writes a trace, each line as soon as it is known.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use rondpoint_core::controller::{Input, Step};
use rondpoint_core::host::Witness;
use rondpoint_core::plan::Outcome;
use serde::Serialize;

use crate::{Header, TraceError, wire};

/// A writer of a trace.
#[derive(Debug)]
pub struct Writer<W: Write = File> {
    sink: W,
    path: PathBuf,
    /// Number of the last input.
    step: u64,
    /// Buffer of the current line, reused for the next.
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the header to a sink. `path`: name of the sink in errors. Each line is one call of
    /// `write_all`.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn new(sink: W, path: impl Into<PathBuf>, header: &Header) -> Result<Self, TraceError> {
        let mut writer = Self { sink, path: path.into(), step: 0, line: Vec::new() };
        writer.write(&wire::Header::from(header))?;
        Ok(writer)
    }

    /// The sink of the lines.
    pub fn sink(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Writes a step: the input of the controller and its decision.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn step(&mut self, input: &Input, step: &Step) -> Result<(), TraceError> {
        self.input(input)?;
        self.decision(step)
    }

    /// Writes the next input of the controller.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn input(&mut self, input: &Input) -> Result<(), TraceError> {
        self.step += 1;
        self.write(&wire::Line::Input(wire::InputLine {
            step: self.step,
            outcomes: input.outcomes.iter().map(Into::into).collect(),
            observation: (&input.observation).into(),
        }))
    }

    /// Writes the controller's decision on the last input.
    ///
    /// # Errors
    /// The sink cannot be written.
    pub fn decision(&mut self, step: &Step) -> Result<(), TraceError> {
        self.write(&wire::Line::Decision(wire::DecisionLine {
            step: self.step,
            plan: (&step.plan).into(),
            judged: step.judged.iter().map(Into::into).collect(),
        }))
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), TraceError> {
        self.line.clear();
        let written = serde_json::to_writer(&mut self.line, line).map_err(Into::into);
        self.line.push(b'\n');
        let written = written.and_then(|()| self.sink.write_all(&self.line));
        written.and_then(|()| self.sink.flush()).map_err(|source| TraceError::File {
            path: self.path.clone(),
            attempted: "write",
            source,
        })
    }
}

/// Records all inputs and decisions of the loop. A failure does not stop the loop: the recording
/// ends, and [`Recorder::finish`] returns the error.
#[derive(Debug)]
pub struct Recorder<W: Write = File> {
    writer: Writer<W>,
    failure: Option<TraceError>,
}

impl<W: Write> Recorder<W> {
    /// Records to a trace whose header is written.
    #[must_use]
    pub fn new(writer: Writer<W>) -> Self {
        Self { writer, failure: None }
    }

    /// The sink of the lines.
    pub fn sink(&mut self) -> &mut W {
        self.writer.sink()
    }

    /// The number of recorded steps.
    ///
    /// # Errors
    /// The recording ended early with this error.
    pub fn finish(self) -> Result<u64, TraceError> {
        match self.failure {
            None => Ok(self.writer.step),
            Some(failure) => Err(failure),
        }
    }

    fn record(&mut self, line: impl FnOnce(&mut Writer<W>) -> Result<(), TraceError>) {
        if self.failure.is_none() {
            self.failure = line(&mut self.writer).err();
        }
    }
}

impl<W: Write> Witness for Recorder<W> {
    fn input(&mut self, input: &Input) {
        self.record(|writer| writer.input(input));
    }

    fn step(&mut self, step: &Step, _outcomes: &[Outcome]) {
        self.record(|writer| writer.decision(step));
    }
}
