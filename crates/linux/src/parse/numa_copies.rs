//! `/proc/PID/numa_copies` of a kernel with NUMA replication (`kernel/` in this repository). It has
//! runs of pages with copies on other nodes, and how often each page was written while it had some.

use super::ParseError;
use super::cpulist;
use super::fields::{decimal, hexadecimal, lines, words};

/// Adjacent pages with the same copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Nodes with a copy, the kernel's numbers, without the node of the page itself. Empty if a
    /// write dropped the copies.
    pub nodes: Vec<u32>,
    /// Number of times that a write dropped the copies of each of these pages.
    pub collapses: u32,
}

/// Parses the file.
///
/// # Errors
/// A line that is no `START-END nodes=LIST collapses=N`.
pub fn parse(bytes: &[u8]) -> Result<Vec<Run>, ParseError> {
    let found = lines(bytes).filter(|(_, line)| !line.is_empty());
    found.map(|(number, line)| run_of(number, line)).collect()
}

/// Parses one line as [`parse`].
///
/// # Errors
/// As [`parse`].
pub fn run_of(number: usize, line: &[u8]) -> Result<Run, ParseError> {
    run(line).ok_or_else(|| ParseError::new(number, "START-END nodes=LIST collapses=NUMBER", line))
}

fn run(line: &[u8]) -> Option<Run> {
    let mut words = words(line);
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hexadecimal(&range[..dash])?, hexadecimal(&range[dash + 1..])?);
    let nodes = cpulist::parse(words.next()?.strip_prefix(b"nodes=")?).ok()?;
    let collapses = decimal(words.next()?.strip_prefix(b"collapses=")?)?;
    let collapses = u32::try_from(collapses).ok()?;
    (start < end).then_some(Run { start, end, nodes, collapses })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_with_and_without_copies() {
        let text = b"7f0c40000000-7f0c40200000 nodes=1-3 collapses=0\n\
                     7f0c40200000-7f0c40201000 nodes= collapses=6\n";
        let expected = [
            Run {
                start: 0x7f0c_4000_0000,
                end: 0x7f0c_4020_0000,
                nodes: vec![1, 2, 3],
                collapses: 0,
            },
            Run { start: 0x7f0c_4020_0000, end: 0x7f0c_4020_1000, nodes: vec![], collapses: 6 },
        ];
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse(b"").unwrap(), []);
        let error = parse(b"2000-1000 nodes=1 collapses=0").unwrap_err().to_string();
        assert!(error.starts_with("line 1: expected START-END nodes=LIST"), "{error}");
    }
}
