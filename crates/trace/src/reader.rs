//! Reads a trace, one step after the other, and says where it is damaged.

mod lines;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rondpoint_core::Topology;
use rondpoint_core::controller::Input;
use rondpoint_input::Budget;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::lines::Lines;
use crate::{Decision, FORMAT, Header, TraceError, VERSION, check, wire};

/// A recorded step.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Number of the step, from 1.
    pub step: u64,
    /// Line of its input.
    pub line: u64,
    /// Input of the controller.
    pub input: Input,
    /// Decision of the controller; `None` for the last step if the manager was killed before it.
    pub decision: Option<Decision>,
}

/// An incomplete last line: the manager was killed while it wrote, or the disk was full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated {
    /// Line, from 1.
    pub line: u64,
    /// Bytes of the line that were written.
    pub bytes: usize,
}

/// A reader of a trace: an iterator over its steps that ends after the first error.
#[derive(Debug)]
pub struct Reader<R: Read = File> {
    lines: Lines<R>,
    header: Header,
    steps: u64,
    truncated: Option<Truncated>,
    over: bool,
}

impl Reader {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// The file cannot be read, is no trace, has a newer version, or its header is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let file = rondpoint_input::open(path).map_err(|source| TraceError::File {
            path: path.to_path_buf(),
            attempted: "read",
            source,
        })?;
        Self::new(file, path)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header from a source. `path`: name of the source in errors.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn new(source: R, path: impl Into<PathBuf>) -> Result<Self, TraceError> {
        let mut lines = Lines::new(source, path.into());
        lines.first()?;
        let header: wire::Header =
            header(lines.bytes()).map_err(|problem| lines.refuse(problem))?;
        expands_to(header.words()).map_err(|problem| lines.refuse(problem))?;
        let topology = Topology::new((&header.machine).into());
        let topology = topology
            .map_err(|error| lines.refuse(format!("machine.{}: {}", error.path, error.expected)))?;
        check::machine(&topology).map_err(|problem| lines.refuse(format!("machine.{problem}")))?;
        let header = header.with(topology);
        Ok(Self { lines, header, steps: 0, truncated: None, over: false })
    }

    /// The header of the trace.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The incomplete last line, if there is one. It is known after the last step was read.
    #[must_use]
    pub fn truncated(&self) -> Option<Truncated> {
        self.truncated
    }
}

impl<R: Read> Reader<R> {
    fn read_step(&mut self) -> Result<Option<Record>, TraceError> {
        let Some(line) = self.read_line()? else { return Ok(None) };
        let at = self.lines.number();
        let wire::Line::Input(read) = line else {
            return Err(self
                .lines
                .refuse("a decision, expected the next step's input".to_string()));
        };
        self.steps += 1;
        self.expect_step(read.step)?;
        if self.steps == 1 && !read.outcomes.is_empty() {
            let problem = "input.outcomes: expected none, there was no plan before the first step";
            return Err(self.lines.refuse(problem.to_string()));
        }
        expands_to(read.observation.words()).map_err(|problem| self.lines.refuse(problem))?;
        let outcomes = read.outcomes.into_iter().map(Into::into).collect();
        let input = Input { outcomes, observation: read.observation.into() };
        check::outcomes(&input.outcomes)
            .map_err(|problem| self.lines.refuse(format!("input.{problem}")))?;
        check::observation(&input.observation, &self.header.topology)
            .map_err(|problem| self.lines.refuse(format!("input.observation.{problem}")))?;
        let decision = self.read_decision()?;
        Ok(Some(Record { step: self.steps, line: at, input, decision }))
    }

    fn read_decision(&mut self) -> Result<Option<Decision>, TraceError> {
        match self.read_line()? {
            None => Ok(None),
            Some(wire::Line::Input(_)) => {
                let problem = format!("an input, expected the decision of step {}", self.steps);
                Err(self.lines.refuse(problem))
            }
            Some(wire::Line::Decision(read)) => {
                self.expect_step(read.step)?;
                expands_to(read.plan.words()).map_err(|problem| self.lines.refuse(problem))?;
                Ok(Some(Decision { plan: read.plan, judged: read.judged }))
            }
        }
    }

    /// The next line; `None` at the end of the file or at an incomplete last line.
    fn read_line(&mut self) -> Result<Option<wire::Line>, TraceError> {
        if self.truncated.is_some() || !self.lines.next()? {
            return Ok(None);
        }
        let bytes = self.lines.bytes();
        match parse(bytes) {
            Ok(line) => Ok(Some(line)),
            Err(wrong) if wrong.ended_early && !self.lines.is_ended() => {
                self.truncated = Some(Truncated { line: self.lines.number(), bytes: bytes.len() });
                Ok(None)
            }
            Err(wrong) => Err(self.lines.refuse(wrong.problem)),
        }
    }

    fn expect_step(&self, step: u64) -> Result<(), TraceError> {
        match step == self.steps {
            true => Ok(()),
            false => Err(self.lines.refuse(format!("step {step}, expected {}", self.steps))),
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let record = self.read_step().transpose();
        self.over = !matches!(record, Some(Ok(_)));
        record
    }
}

/// Most 64-bit words that the sets of one line may expand to: 128 words for each of 100,000 threads
/// on the largest machine.
const MAX_SET_WORDS: u64 = 128 * 100_000;

/// Checks the size of a line's sets before they are expanded.
fn expands_to(words: u64) -> Result<(), String> {
    let charged = Budget::new(0, MAX_SET_WORDS).take_items(words);
    charged.map_err(|error| format!("its sets of CPUs and nodes expand to {error}"))
}

/// Why a line is not valid.
struct Wrong {
    problem: String,
    /// The line ends too early.
    ended_early: bool,
}

/// Reads one line as JSON of the expected type. The error begins with the path of the wrong field.
fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Wrong> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        let ended_early = inner.is_eof();
        let said = without_place(&inner);
        let problem = if path == "." || path == "?" { said } else { format!("{path}: {said}") };
        Wrong { problem, ended_early }
    });
    let end =
        |error: serde_json::Error| Wrong { problem: without_place(&error), ended_early: false };
    read.and_then(|read| json.end().map(|()| read).map_err(end))
}

/// The message of serde_json without its line number, which is always 1 here.
fn without_place(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match said.strip_suffix(&place) {
        Some(said) => format!("{said} (column {})", error.column()),
        None => said,
    }
}

/// Reads the header of a supported version.
fn header(line: &[u8]) -> Result<wire::Header, String> {
    let begin = format!("{{\"format\":\"{FORMAT}\"");
    let no_trace = |what| format!("{what}, expected a first line that begins {begin}");
    if line.starts_with(GZIP) {
        return Err(no_trace("compressed with gzip: unpack it first"));
    }
    let read: Value = match parse(line) {
        Ok(read) => read,
        Err(wrong) if line.starts_with(begin.as_bytes()) => {
            return Err(match wrong.ended_early {
                true => format!("the header is cut off after {} bytes", line.len()),
                false => wrong.problem,
            });
        }
        Err(_) => return Err(no_trace("not a trace")),
    };
    if read.get("format").and_then(Value::as_str) != Some(FORMAT) {
        return Err(no_trace("not a trace"));
    }
    match read.get("version").and_then(Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {
            parse(line).map_err(|wrong| wrong.problem)
        }
        Some(version) if version > u64::from(VERSION) => Err(format!(
            "version: {version}, this program reads {VERSION}; a newer rondpoint wrote it"
        )),
        _ => Err(format!("version: expected {VERSION}")),
    }
}

/// Magic number of a gzip file (RFC 1952).
const GZIP: &[u8] = &[0x1f, 0x8b];
