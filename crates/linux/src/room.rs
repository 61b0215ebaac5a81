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

/// Names of the files of one version of cgroups.
struct Version {
    /// Folder of the groups beneath `fs/cgroup`.
    folder: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Line of `memory.stat` with the inactive file pages of the group and its children.
    cold: &'static str,
}

/// Version 1 (Documentation/admin-guide/cgroup-v1/memory.rst).
const FIRST: Version = Version {
    folder: "memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cold: "total_inactive_file",
};

/// Version 2 (Documentation/admin-guide/cgroup-v2.rst).
const SECOND: Version =
    Version { folder: "", limit: "memory.max", used: "memory.current", cold: "inactive_file" };

/// Limits from here on are none. Version 1 shows "no limit" as 2^63 less a page
/// (`PAGE_COUNTER_MAX`, include/linux/page_counter.h).
const NO_LIMIT: u64 = 1 << 62;

/// Bytes left by the tightest memory limit of this process's cgroup and its parents; `None`
/// without a limit. Inactive file pages of the cgroup count as left.
///
/// # Errors
/// A file cannot be read.
pub fn of_cgroup(root: &Root) -> Result<Option<u64>, LinuxError> {
    let Some(bytes) = root::read_optional(&root.in_proc("self/cgroup"))? else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes);
    let Some((version, path)) = group_of(&text) else { return Ok(None) };
    let folder = root.in_sys("fs/cgroup").join(version.folder);
    let mut tightest: Option<u64> = None;
    // A container may see its own group as the root of the folder. Absent groups are passed over.
    for group in Path::new(path).ancestors() {
        let left = left_in(&folder.join(group), version)?;
        tightest = [tightest, left].into_iter().flatten().min();
    }
    Ok(tightest)
}

/// The group whose memory is limited, without the leading slash, by the lines of
/// `/proc/PID/cgroup`: number, controllers and path (cgroups(7)). A controller belongs to one
/// version only.
fn group_of(text: &str) -> Option<(&'static Version, &str)> {
    let first = text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
        controllers.split(',').any(|name| name == "memory").then_some((&FIRST, path))
    });
    first.or_else(|| {
        text.lines().find_map(|line| line.strip_prefix("0::/")).map(|path| (&SECOND, path))
    })
}

/// Bytes left in one group; `None` without a limit.
fn left_in(group: &Path, version: &Version) -> Result<Option<u64>, LinuxError> {
    let read = |file: &str| -> Result<Option<String>, LinuxError> {
        let bytes = root::read_optional(&group.join(file))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    };
    // `max`, which is no number, means no limit.
    let limit = read(version.limit)?.as_deref().and_then(number);
    let Some(limit) = limit.filter(|&limit| limit < NO_LIMIT) else { return Ok(None) };
    let used = read(version.used)?.as_deref().and_then(number).unwrap_or(0);
    let statistics = read("memory.stat")?.unwrap_or_default();
    let cold = statistics.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        number(value).filter(|_| name == version.cold)
    });
    Ok(Some(limit.saturating_sub(used.saturating_sub(cold.unwrap_or(0)))))
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

    #[test]
    fn limits_of_the_first_version_count_too() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        fs::create_dir_all(root.in_proc("self")).unwrap();
        // As with systemd's hybrid hierarchy: the second version has no memory controller.
        let text = "5:cpu,cpuacct:/\n4:memory:/job\n1:name=systemd:/job\n0::/job\n";
        fs::write(root.in_proc("self/cgroup"), text).unwrap();
        assert_eq!(of_cgroup(&root).unwrap(), None);
        let job = root.in_sys("fs/cgroup/memory/job");
        fs::create_dir_all(&job).unwrap();
        let all = job.parent().unwrap();
        fs::write(all.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        fs::write(all.join("memory.usage_in_bytes"), "5000\n").unwrap();
        assert_eq!(of_cgroup(&root).unwrap(), None, "2^63 less a page is no limit");
        fs::write(job.join("memory.limit_in_bytes"), "1000\n").unwrap();
        fs::write(job.join("memory.usage_in_bytes"), "600\n").unwrap();
        assert_eq!(of_cgroup(&root).unwrap(), Some(400));
        let statistics = "inactive_file 7\ntotal_inactive_file 100\n";
        fs::write(job.join("memory.stat"), statistics).unwrap();
        assert_eq!(of_cgroup(&root).unwrap(), Some(500));
        // A container's own group is the root of what it sees.
        fs::rename(job.join("memory.limit_in_bytes"), all.join("memory.limit_in_bytes")).unwrap();
        fs::write(all.join("memory.usage_in_bytes"), "900\n").unwrap();
        assert_eq!(of_cgroup(&root).unwrap(), Some(100));
    }
}
