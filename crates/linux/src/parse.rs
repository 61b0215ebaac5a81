//! Parsers of the kernel's text files: bytes in, value or [`ParseError`] out, no file opened.
//!
//! One module per format. Unknown lines and fields are passed over, because kernels add them;
//! missing or malformed ones that a caller needs are errors that name the line.

pub mod cpuinfo;
pub mod cpulist;
pub mod fields;
pub mod maps;
pub mod meminfo;
pub mod numa_maps;
pub mod sched;
pub mod schedstat;
pub mod stat;
pub mod status;
pub mod vmstat;
pub mod zoneinfo;

/// Where a file departs from the kernel's format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, found `{found}`")]
pub struct ParseError {
    /// Line, counted from 1.
    pub line: usize,
    /// What the format has here.
    pub expected: &'static str,
    /// What stands there, shortened.
    pub found: String,
}

impl ParseError {
    /// An error on `line` (from 1); `found` is cut to a readable length.
    pub fn new(line: usize, expected: &'static str, found: &[u8]) -> Self {
        const LONGEST: usize = 60;
        let text = String::from_utf8_lossy(&found[..found.len().min(LONGEST)]);
        Self { line, expected, found: text.trim_end().to_string() }
    }
}
