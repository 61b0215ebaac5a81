//! Parsers of the kernel's text files: bytes in, value or [`ParseError`] out, no file opened.
//!
//! One module per format. Unknown lines and fields are passed over, because kernels add them;
//! missing or malformed ones that a caller needs are errors that name the line.

pub mod accounts;
pub mod cpu_times;
pub mod cpuinfo;
pub mod cpulist;
pub mod fields;
pub mod maps;
pub mod meminfo;
pub mod numa_copies;
pub mod numa_maps;
pub mod sched;
pub mod schedstat;
pub mod stat;
pub mod status;
pub mod uptime;
pub mod vmstat;
pub mod zoneinfo;

/// A departure of a file from the kernel's format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, found `{found}`")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// The form that the format has here.
    pub expected: &'static str,
    /// The text found, shortened, with control characters escaped.
    pub found: String,
}

impl ParseError {
    /// An error on `line` (from 1); `found` is cut to a readable length.
    pub fn new(line: usize, expected: &'static str, found: &[u8]) -> Self {
        const LONGEST: usize = 60;
        let found = fields::trim_end(found);
        let text = String::from_utf8_lossy(&found[..found.len().min(LONGEST)]);
        let shown = text.chars().map(|letter| match letter.is_control() && letter != '\n' {
            true => letter.escape_default().to_string(),
            false => letter.to_string(),
        });
        Self { line, expected, found: shown.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_shown() {
        let shown = |found: &[u8]| ParseError::new(1, "a list", found).found;
        assert_eq!(shown(b"0\x001\n\0\0"), "0\\u{0}1");
        assert_eq!(shown(&[b'x'; 100]).len(), 60);
    }
}
