//! `/proc/PID/numa_maps` (numa(7)): one mapping a line, its policy and its pages per node.
//!
//! Reading the file makes the kernel walk the page tables under the process's map lock, so callers
//! bound the size of process that they read it for.

use std::collections::BTreeMap;

use super::ParseError;
use super::fields::{decimal, hexadecimal, lines, words};

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// The memory policy as the kernel writes it: `default`, `bind:0-1`, `interleave:0-3` …
    pub policy: String,
    /// The file behind it, or `heap`, `stack`; `None` for anonymous memory.
    pub backing: Option<String>,
    /// Pages by node, in units of `page_bytes`.
    pub pages_by_node: BTreeMap<u32, u64>,
    /// Size of the kernel's pages here.
    pub page_bytes: u64,
    /// Pages not yet written back, or anonymous pages written to.
    pub dirty: u64,
    /// Anonymous pages.
    pub anonymous: u64,
    /// How many mappings the page with most of them has.
    pub most_mappings: u64,
}

impl Mapping {
    /// Whether somebody chose where its memory comes from. `local` is what everybody gets who asked
    /// for nothing else, and what `rondpoint run` asks for; `default` is nothing at all
    /// (`mpol_to_str`, mm/mempolicy.c, Linux 6.12).
    #[must_use]
    pub fn has_own_policy(&self) -> bool {
        !matches!(self.policy.as_str(), "default" | "local")
    }

    /// Whether its pages are those of a file that others have mapped as well, as of a program that
    /// runs several times. The kernel moves none of them for one process's sake (`MPOL_MF_MOVE`).
    /// Memory that processes share on purpose is not meant, though the kernel gives it the name of
    /// a file.
    #[must_use]
    pub fn is_shared_file(&self) -> bool {
        const SHARED_MEMORY: [&str; 4] = ["/dev/shm/", "/SYSV", "/memfd:", "/dev/zero"];
        let is_file = |name: &String| {
            name.starts_with('/') && !SHARED_MEMORY.iter().any(|prefix| name.starts_with(prefix))
        };
        self.most_mappings > 1 && self.anonymous == 0 && self.backing.as_ref().is_some_and(is_file)
    }
}

/// Parses the file.
///
/// # Errors
/// A line without an address and a policy, or a node count that is no number.
pub fn parse(bytes: &[u8]) -> Result<Vec<Mapping>, ParseError> {
    lines(bytes)
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| mapping(number, line))
        .collect()
}

fn mapping(number: usize, line: &[u8]) -> Result<Mapping, ParseError> {
    let fail = || ParseError::new(number, "ADDRESS POLICY [NAME=VALUE …]", line);
    let mut parts = words(line);
    let start = parts.next().and_then(hexadecimal).ok_or_else(fail)?;
    let policy = String::from_utf8_lossy(parts.next().ok_or_else(fail)?).into_owned();
    let mut mapping = Mapping {
        start,
        policy,
        backing: None,
        pages_by_node: BTreeMap::new(),
        page_bytes: 4096,
        dirty: 0,
        anonymous: 0,
        most_mappings: 1,
    };
    for word in parts {
        let Some(at) = word.iter().position(|&byte| byte == b'=') else {
            if matches!(word, b"heap" | b"stack") {
                mapping.backing = Some(String::from_utf8_lossy(word).into_owned());
            }
            continue;
        };
        let (name, value) = (&word[..at], &word[at + 1..]);
        let count = || decimal(value).ok_or_else(fail);
        match name {
            b"file" => mapping.backing = Some(String::from_utf8_lossy(value).into_owned()),
            b"dirty" => mapping.dirty = count()?,
            b"anon" => mapping.anonymous = count()?,
            b"mapmax" => mapping.most_mappings = count()?,
            b"kernelpagesize_kB" => mapping.page_bytes = count()?.saturating_mul(1024),
            [b'N', digits @ ..] => {
                if let Some(node) = decimal(digits).and_then(|node| node.try_into().ok()) {
                    mapping.pages_by_node.insert(node, count()?);
                }
            }
            _ => {}
        }
    }
    Ok(mapping)
}

/// Bytes of all mappings by node that are the process's own.
#[must_use]
pub fn bytes_by_node(mappings: &[Mapping]) -> BTreeMap<u32, u64> {
    let mut bytes = BTreeMap::new();
    for mapping in mappings.iter().filter(|mapping| !mapping.is_shared_file()) {
        for (&node, &pages) in &mapping.pages_by_node {
            *bytes.entry(node).or_insert(0u64) += pages.saturating_mul(mapping.page_bytes);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] =
        b"560dd7b4e000 default file=/usr/bin/cat mapped=2 N0=2 kernelpagesize_kB=4\n\
        7f0000000000 interleave:0-1 anon=3072 dirty=3072 active=0 N0=1024 N1=2048 kernelpagesize_kB=4\n\
        7f1000000000 bind:1 anon=2 dirty=1 N1=2 kernelpagesize_kB=2048\n\
        7ffc00000000 default stack anon=3 dirty=3 N0=3 kernelpagesize_kB=4\n";

    #[test]
    fn policies_and_pages_per_node_are_read() {
        let mappings = parse(TEXT).unwrap();
        assert_eq!(mappings[1].policy, "interleave:0-1");
        assert_eq!(mappings[1].pages_by_node[&1], 2048);
        assert_eq!(mappings[3].backing.as_deref(), Some("stack"));
        let bytes = bytes_by_node(&mappings);
        assert_eq!(bytes[&0], (2 + 1024 + 3) * 4096);
        assert_eq!(bytes[&1], 2048 * 4096 + 2 * (2 << 20));
    }

    #[test]
    fn a_program_that_others_run_too_is_not_memory_of_a_process() {
        // The first is written as it is on a file system in memory, where all pages are dirty.
        let text = b"400000 default file=/bin/app dirty=700 mapmax=3 N0=700 kernelpagesize_kB=4\n\
            600000 default file=/bin/app anon=2 dirty=2 mapped=9 mapmax=3 N0=9 kernelpagesize_kB=4\n\
            700000 default file=/dev/shm/pool dirty=50 mapmax=3 N1=50 kernelpagesize_kB=4\n\
            800000 default anon=40 dirty=40 mapmax=2 N1=40 kernelpagesize_kB=4\n\
            900000 default file=/data mapped=5 N1=5 kernelpagesize_kB=4\n";
        let bytes = bytes_by_node(&parse(text).unwrap());
        assert_eq!((bytes[&0], bytes[&1]), (9 * 4096, (50 + 40 + 5) * 4096));
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = parse(b"1000 default N0=x\n").unwrap_err().to_string();
        assert!(error.starts_with("line 1: expected ADDRESS POLICY"), "{error}");
        assert!(parse(b"zz default\n").is_err());
        assert!(parse(b"1000\n").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_mappings_or_an_error(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
