//! `node*/meminfo`: lines such as `Node 0 MemTotal: 4679884 kB`.

use super::ParseError;
use super::fields::{decimal, lines, words};

/// Memory of a node, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeMemory {
    /// All of the node's memory that the kernel manages.
    pub total_bytes: u64,
    /// Free memory.
    pub free_bytes: u64,
    /// Files in the page cache, which the kernel drops when memory is needed.
    pub file_bytes: u64,
}

impl NodeMemory {
    /// Memory that may be allocated: free memory and the page cache.
    #[must_use]
    pub fn room_bytes(&self) -> u64 {
        self.free_bytes.saturating_add(self.file_bytes)
    }
}

/// Parses one node's `meminfo`.
///
/// # Errors
/// `MemTotal` or `MemFree` is missing or no number.
pub fn parse(bytes: &[u8]) -> Result<NodeMemory, ParseError> {
    Ok(NodeMemory {
        total_bytes: total_bytes(bytes)?,
        free_bytes: free_bytes(bytes)?,
        file_bytes: file_bytes(bytes)?,
    })
}

/// Parses what [`NodeMemory::room_bytes`] needs, in bytes. It is among the first lines.
///
/// # Errors
/// No `MemFree`, or no number in a line.
pub fn room_bytes(bytes: &[u8]) -> Result<u64, ParseError> {
    Ok(free_bytes(bytes)?.saturating_add(file_bytes(bytes)?))
}

fn file_bytes(bytes: &[u8]) -> Result<u64, ParseError> {
    let files = |name: &[u8]| amount(bytes, name, "Node N NAME: KIB kB").unwrap_or(Ok(0));
    Ok(files(b"Active(file):")?.saturating_add(files(b"Inactive(file):")?))
}

/// Parses `MemTotal` alone, in bytes. A number that does not fit becomes the largest one.
///
/// # Errors
/// No such line, or no number in it.
pub fn total_bytes(bytes: &[u8]) -> Result<u64, ParseError> {
    let expected = "Node N MemTotal: KIB kB";
    amount(bytes, b"MemTotal:", expected)
        .unwrap_or_else(|| Err(ParseError::new(1, expected, bytes)))
}

/// Parses `MemFree` alone, in bytes. It is among the first lines.
///
/// # Errors
/// No such line, or no number in it.
pub fn free_bytes(bytes: &[u8]) -> Result<u64, ParseError> {
    let expected = "Node N MemFree: KIB kB";
    amount(bytes, b"MemFree:", expected).unwrap_or_else(|| Err(ParseError::new(1, expected, bytes)))
}

/// Bytes of the line with this name, if there is one.
fn amount(bytes: &[u8], name: &[u8], expected: &'static str) -> Option<Result<u64, ParseError>> {
    lines(bytes).find_map(|(number, line)| {
        let mut parts = words(line);
        (parts.nth(2) == Some(name)).then(|| {
            let kib = parts.next().and_then(decimal).map(|kib| kib.saturating_mul(1024));
            kib.ok_or_else(|| ParseError::new(number, expected, line))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_and_free_are_read() {
        let text = b"Node 0 MemTotal:        4679884 kB\nNode 0 MemFree:         3813708 kB\n\
            Node 0 Active(file):   100 kB\nNode 0 Inactive(file):  20 kB\n";
        let memory = parse(text).unwrap();
        assert_eq!(memory.total_bytes, 4_679_884 * 1024);
        assert_eq!(memory.free_bytes, 3_813_708 * 1024);
        assert_eq!(memory.file_bytes, 120 * 1024);
        assert_eq!(memory.room_bytes(), (3_813_708 + 120) * 1024);
        assert_eq!(room_bytes(text).unwrap(), memory.room_bytes());
    }

    #[test]
    fn absurd_amounts_stay_at_the_largest() {
        let text =
            b"Node 0 MemTotal: 18446744073709551615 kB\nNode 0 MemFree: 18446744073709551615 kB\n\
            Node 0 Active(file): 18446744073709551615 kB\nNode 0 Inactive(file): 1 kB\n";
        let memory = parse(text).unwrap();
        assert_eq!((memory.total_bytes, memory.room_bytes()), (u64::MAX, u64::MAX));
        assert!(total_bytes(b"Node 0 MemTotal: +1 kB\n").is_err());
    }

    #[test]
    fn a_missing_line_is_named() {
        let error = parse(b"Node 0 MemTotal: 1 kB\n").unwrap_err().to_string();
        assert!(error.contains("Node N MemFree: KIB kB"), "{error}");
        let error = parse(b"Node 0 MemTotal: x kB\n").unwrap_err().to_string();
        assert!(error.contains("found `Node 0 MemTotal: x kB`"), "{error}");
    }
}
