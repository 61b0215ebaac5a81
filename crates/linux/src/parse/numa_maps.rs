//! `/proc/PID/numa_maps` (numa(7)): one mapping a line, its policy and its pages per node.
//!
//! Reading the file makes the kernel walk the page tables under the process's map lock. So callers
//! read it only for processes up to a size.

use std::collections::BTreeMap;

use super::ParseError;
use super::fields::{decimal, hexadecimal, lines, words};
use super::maps::Mode;
use crate::replicas::is_copy;

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Memory policy in the kernel's form: `default`, `bind:0-1`, `interleave:0-3` …
    pub policy: String,
    /// Mapped file, or `heap`, `stack`; `None` for other anonymous memory.
    pub backing: Option<String>,
    /// Pages by node, of `page_bytes` each.
    pub pages_by_node: BTreeMap<u32, u64>,
    /// Page size of the mapping.
    pub page_bytes: u64,
    /// Whether the kernel marks it `huge`: it is of a hugetlbfs.
    pub is_huge: bool,
    /// Pages not yet written back, or anonymous pages written to.
    pub dirty: u64,
    /// Anonymous pages.
    pub anonymous: u64,
    /// Number of mappings of its most often mapped page.
    pub most_mappings: u64,
}

/// The largest base page of any architecture: 64 KiB on Arm and POWER.
const LARGEST_BASE_PAGE: u64 = 64 << 10;

impl Mapping {
    /// Whether the program chose a memory policy. `default` and `local` are no choice, because
    /// `rondpoint run` itself sets `local` (`mpol_to_str`, mm/mempolicy.c, Linux 6.12).
    #[must_use]
    pub fn has_own_policy(&self) -> bool {
        !matches!(self.policy.as_str(), "default" | "local")
    }

    /// Whether it is a copy of a file by `rondpoint run --replicate`. Its policy is that of the
    /// copy, no choice of the program.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.backing.as_ref().is_some_and(|path| is_copy(path.as_bytes()))
    }

    /// Whether its pages are those of a file that other processes map too, as of a program that
    /// runs several times. The kernel does not move such pages for one process (`MPOL_MF_MOVE`).
    /// Shared memory does not count, though the kernel shows it with the name of a file.
    #[must_use]
    pub fn is_shared_file(&self) -> bool {
        self.is_shared_file_in(None)
    }

    /// As [`Self::is_shared_file`], with the mode from `maps`, which decides if the name does not.
    /// From outside, a container's `/dev/shm` has the name of any file.
    #[must_use]
    pub fn is_shared_file_in(&self, mode: Option<Mode>) -> bool {
        if !self.is_candidate() || self.is_huge || self.page_bytes > LARGEST_BASE_PAGE {
            return false;
        }
        if self.has_name_of_memory() {
            return false;
        }
        match mode {
            Some(Mode::Private) => true,
            Some(Mode::SharedWritable) => false,
            // On a file system in memory all pages are dirty. Those of programs are mapped private.
            Some(Mode::SharedReadOnly) | None => self.dirty < self.pages(),
        }
    }

    /// Whether it may be a shared file, so that its mode in `maps` is needed.
    #[must_use]
    pub fn is_candidate(&self) -> bool {
        let is_file = self.backing.as_ref().is_some_and(|name| name.starts_with('/'));
        self.most_mappings > 1 && self.anonymous == 0 && is_file
    }

    /// Whether its name is one of memory: a path in `/dev`, where no programs are, or the kernel's
    /// name for memory without a path.
    fn has_name_of_memory(&self) -> bool {
        const NAMES: [&str; 6] =
            ["/dev/", "/run/shm/", "/SYSV", "/memfd:", "/anon_hugepage", "/secretmem"];
        let name = self.backing.as_deref().unwrap_or_default();
        NAMES.iter().any(|prefix| name.starts_with(prefix))
    }

    fn pages(&self) -> u64 {
        self.pages_by_node.values().fold(0, |sum, pages| sum.saturating_add(*pages))
    }
}

/// Parses the file.
///
/// # Errors
/// A line without an address and a policy, or a node count that is no number.
pub fn parse(bytes: &[u8]) -> Result<Vec<Mapping>, ParseError> {
    let found = lines(bytes).filter(|(_, line)| !line.is_empty());
    found.map(|(number, line)| mapping_of(number, line)).collect()
}

/// Parses one line as [`parse`].
///
/// # Errors
/// As [`parse`].
pub fn mapping_of(number: usize, line: &[u8]) -> Result<Mapping, ParseError> {
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
        is_huge: false,
        dirty: 0,
        anonymous: 0,
        most_mappings: 1,
    };
    for word in parts {
        let Some(at) = word.iter().position(|&byte| byte == b'=') else {
            match word {
                b"heap" | b"stack" => {
                    mapping.backing = Some(String::from_utf8_lossy(word).into_owned());
                }
                b"huge" => mapping.is_huge = true,
                _ => {}
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

/// Sums over all mappings of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// Bytes by node, without shared files; saturating.
    pub bytes_by_node: BTreeMap<u32, u64>,
    /// First address of the lowest mapping with a policy that the program chose.
    pub own_policy: Option<u64>,
}

impl Totals {
    /// Adds a mapping. `mode`: its mode, if known.
    pub fn add(&mut self, mapping: &Mapping, mode: Option<Mode>) {
        let is_own = mapping.has_own_policy() && !mapping.is_copy();
        let own = is_own.then_some(mapping.start);
        self.own_policy = self.own_policy.or(own);
        if mapping.is_shared_file_in(mode) {
            return;
        }
        for (&node, &pages) in &mapping.pages_by_node {
            let bytes = self.bytes_by_node.entry(node).or_insert(0);
            *bytes = bytes.saturating_add(pages.saturating_mul(mapping.page_bytes));
        }
    }
}

/// Bytes of all mappings by node, without shared files.
#[must_use]
pub fn bytes_by_node(mappings: &[Mapping]) -> BTreeMap<u32, u64> {
    let mut totals = Totals::default();
    mappings.iter().for_each(|mapping| totals.add(mapping, None));
    totals.bytes_by_node
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
        let text = b"400000 default file=/bin/app mapped=700 mapmax=3 N0=700 kernelpagesize_kB=4\n\
            600000 default file=/bin/app anon=2 dirty=2 mapped=9 mapmax=3 N0=9 kernelpagesize_kB=4\n\
            700000 default file=/dev/shm/pool dirty=50 mapmax=3 N1=50 kernelpagesize_kB=4\n\
            800000 default anon=40 dirty=40 mapmax=2 N1=40 kernelpagesize_kB=4\n\
            900000 default file=/data mapped=5 N1=5 kernelpagesize_kB=4\n";
        let bytes = bytes_by_node(&parse(text).unwrap());
        assert_eq!((bytes[&0], bytes[&1]), (9 * 4096, (50 + 40 + 5) * 4096));
    }

    #[test]
    fn memory_shared_on_purpose_is_known_by_name_page_size_or_mode() {
        let is_file = |text: &str, mode| {
            let line = format!("7f0000000000 default file={text} mapmax=40 N0=9");
            mapping_of(1, line.as_bytes()).unwrap().is_shared_file_in(mode)
        };
        let memory = [
            "/anon_hugepage\\040(deleted) huge dirty=9 kernelpagesize_kB=2048",
            "/mnt/pages/pool huge kernelpagesize_kB=2048",
            "/mnt/pages/pool mapped=9 kernelpagesize_kB=1048576",
            "/dev/hugepages1G/pool mapped=9",
            "/SYSV00000001\\040(deleted) mapped=9",
            "/memfd:pool\\040(deleted) mapped=9",
            "/dev/zero\\040(deleted) mapped=9",
        ];
        for text in memory {
            assert!(!is_file(text, None) && !is_file(text, Some(Mode::SharedReadOnly)), "{text}");
        }
        // A container's /dev/shm seen from outside; beside it a program on a disk and in memory.
        let (pool, program) = ("/pool dirty=9", "/bin/app mapped=9 dirty=0");
        assert!(!is_file(pool, Some(Mode::SharedWritable)) && !is_file(pool, None));
        assert!(!is_file("/pool mapped=9", Some(Mode::SharedWritable)));
        assert!(is_file("/bin/app dirty=9", Some(Mode::Private)));
        assert!(is_file(program, None) && is_file(program, Some(Mode::SharedReadOnly)));
        assert!(is_file("/bin/app mapped=9 kernelpagesize_kB=64", None), "a base page on Arm");
    }

    #[test]
    fn absurd_counts_stay_at_the_largest() {
        let text = b"1000 default N0=18446744073709551615 kernelpagesize_kB=1048576\n\
            2000 default N0=1 kernelpagesize_kB=4\n\
            3000 bind:0 file=/a dirty=1 mapmax=2 N0=18446744073709551615 N1=18446744073709551615\n";
        let mappings = parse(text).unwrap();
        assert_eq!(bytes_by_node(&mappings)[&0], u64::MAX);
        assert!(mappings[2].is_shared_file());
        assert!(parse(b"1000 default N0=+1\n").is_err() && parse(b"+1000 default\n").is_err());
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
            let _ = parse(&bytes).map(|mappings| bytes_by_node(&mappings));
        }
    }
}
