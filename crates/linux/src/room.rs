//! Memory that may still be allocated: on a node, and under the cgroup's limit.

use std::path::Path;

use crate::parse::meminfo;
use crate::{LinuxError, Root, root};

/// Memory of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeRoom {
    /// Free memory and the page cache, which the kernel drops when memory is needed.
    pub free_bytes: u64,
    /// All memory of the node.
    pub total_bytes: u64,
}

/// The room of a node. A kernel without NUMA describes no node, so its one node has the machine's
/// memory.
///
/// # Errors
/// A file cannot be read, or does not have the kernel's format.
pub fn of_node(root: &Root, node: u32) -> Result<NodeRoom, LinuxError> {
    let path = root.in_sys(format!("devices/system/node/node{node}/meminfo"));
    if let Some(bytes) = root::read_optional(&path)? {
        let memory =
            meminfo::parse(&bytes).map_err(|source| LinuxError::Format { path, source })?;
        let (free_bytes, total_bytes) = (memory.room_bytes(), memory.total_bytes);
        return Ok(NodeRoom { free_bytes, total_bytes });
    }
    let text = root::read_required(&root.in_proc("meminfo"))?;
    let text = String::from_utf8_lossy(&text);
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(number).unwrap_or(0).saturating_mul(1024)
    };
    Ok(NodeRoom { free_bytes: bytes("MemAvailable:"), total_bytes: bytes("MemTotal:") })
}

/// Bytes left by the tightest memory limit of this process's cgroup (version 2) and its parents;
/// `None` without a limit. Inactive file pages of the cgroup count as left.
///
/// # Errors
/// A file cannot be read.
pub fn of_cgroup(root: &Root) -> Result<Option<u64>, LinuxError> {
    let Some(bytes) = root::read_optional(&root.in_proc("self/cgroup"))? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes);
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return Ok(None);
    };
    let mount = root.in_sys("fs/cgroup");
    let mut tightest: Option<u64> = None;
    for group in Path::new(path).ancestors() {
        let read = |file: &str| -> Result<Option<String>, LinuxError> {
            let bytes = root::read_optional(&mount.join(group).join(file))?;
            Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        };
        // `max`, which is no number, means no limit.
        let Some(limit) = read("memory.max")?.as_deref().and_then(number) else { continue };
        let used = read("memory.current")?.as_deref().and_then(number).unwrap_or(0);
        let statistics = read("memory.stat")?.unwrap_or_default();
        let mut lines = statistics.lines();
        let cold = lines.find_map(|line| number(line.strip_prefix("inactive_file ")?)).unwrap_or(0);
        let left = limit.saturating_sub(used.saturating_sub(cold));
        tightest = Some(tightest.map_or(left, |other| other.min(left)));
    }
    Ok(tightest)
}

/// The first word as a number; `None` if it is none.
fn number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_kernel_without_numa_has_what_is_available() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        fs::create_dir_all(&root.proc).unwrap();
        let text = "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n";
        fs::write(root.in_proc("meminfo"), text).unwrap();
        let expected = NodeRoom { free_bytes: 512 << 20, total_bytes: 1 << 30 };
        assert_eq!(of_node(&root, 0).unwrap(), expected);
    }

    #[test]
    fn the_tightest_limit_above_the_process_counts() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        fs::create_dir_all(root.in_proc("self")).unwrap();
        assert_eq!(of_cgroup(&root).unwrap(), None);
        fs::write(root.in_proc("self/cgroup"), "0::/jobs/one\n").unwrap();
        let one = root.in_sys("fs/cgroup/jobs/one");
        fs::create_dir_all(&one).unwrap();
        fs::write(one.join("memory.max"), "max\n").unwrap();
        assert_eq!(of_cgroup(&root).unwrap(), None);
        let jobs = one.parent().unwrap();
        fs::write(jobs.join("memory.max"), "1000\n").unwrap();
        fs::write(jobs.join("memory.current"), "600\n").unwrap();
        fs::write(jobs.join("memory.stat"), "anon 5\ninactive_file 100\n").unwrap();
        assert_eq!(of_cgroup(&root).unwrap(), Some(500));
        fs::write(one.join("memory.max"), "70\n").unwrap();
        assert_eq!(of_cgroup(&root).unwrap(), Some(70));
    }
}
