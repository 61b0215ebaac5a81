//! The files of `/proc` and `/sys` that describe a machine, read into memory: enough for every
//! reader of this crate that looks at a machine and not at a program.
//!
//! Nothing in it names a user, a host or a process.

use std::path::{Path, PathBuf};

use rondpoint_input::Budget;

use crate::LinuxError;
use crate::root::{self, Root};

/// One captured file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// `proc/…` or `sys/…`.
    pub path: PathBuf,
    /// What it said.
    pub bytes: Vec<u8>,
}

const PROC: [&str; 7] = [
    "cpuinfo",
    "meminfo",
    "version",
    "vmstat",
    "zoneinfo",
    "sys/kernel/numa_balancing",
    "sys/kernel/perf_event_paranoid",
];

/// Directories whose files are read, and those below them to a depth.
const SYS: [(&str, usize); 4] = [
    ("devices/system/node", 4),
    ("devices/system/cpu", 3),
    ("bus/event_source/devices", 2),
    ("kernel/mm/numa", 0),
];

/// Files of these directories are many and say nothing here.
const SKIPPED: [&str; 8] = [
    "hugepages",
    "power",
    "cpuidle",
    "hotplug",
    "microcode",
    "firmware_node",
    "device",
    "subsystem",
];

/// No file that describes a machine is longer; `zoneinfo` of a large one is 100 KiB.
const LONGEST_FILE: u64 = 4 << 20;
/// No machine has more such files: 8192 CPUs with 60 each.
const MOST_FILES: u64 = 500_000;
/// Bytes of all files: `zoneinfo` and half a million files of a line or two.
const MOST_BYTES: u64 = 256 << 20;

/// What was read, and how much more may be.
struct Found {
    files: Vec<Captured>,
    budget: Budget,
}

/// Reads all of them, in the order of their paths. What may not be read is left out.
///
/// # Errors
/// A directory cannot be listed; there are more files or bytes than any machine has.
pub fn files(root: &Root) -> Result<Vec<Captured>, LinuxError> {
    let mut found = Found { files: Vec::new(), budget: Budget::new(MOST_BYTES, MOST_FILES) };
    for name in PROC {
        take(&root.in_proc(name), Path::new("proc").join(name), &mut found)?;
    }
    for (directory, depth) in SYS {
        walk(&root.in_sys(directory), &Path::new("sys").join(directory), depth, &mut found)?;
    }
    found.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found.files)
}

fn take(source: &Path, path: PathBuf, found: &mut Found) -> Result<(), LinuxError> {
    let Ok(Some(bytes)) = root::read_limited(source, LONGEST_FILE) else { return Ok(()) };
    let charged =
        found.budget.take_items(1).and_then(|()| found.budget.take_bytes(bytes.len() as u64));
    charged.map_err(|error| LinuxError::io(source, "capture", error.into()))?;
    found.files.push(Captured { path, bytes });
    Ok(())
}

fn walk(source: &Path, path: &Path, depth: usize, found: &mut Found) -> Result<(), LinuxError> {
    for name in root::list(source)? {
        // node0/memory12 and node0/cpu3 are links to what is described elsewhere.
        let is_link_of_node = path.parent().is_some_and(|parent| parent.ends_with("node"))
            && (name.starts_with("memory") || name.starts_with("cpu") && name != "cpulist");
        // The PMU that counts energy is called as the folder that each device has for its sleep.
        let is_pmu = path.ends_with("event_source/devices");
        let is_skipped = SKIPPED.contains(&name.as_str()) && !is_pmu;
        if is_skipped || is_link_of_node {
            continue;
        }
        let (below, path) = (source.join(&name), path.join(&name));
        let Ok(kind) = std::fs::metadata(&below) else { continue };
        if kind.is_file() {
            take(&below, path, found)?;
        } else if kind.is_dir() && depth > 0 {
            walk(&below, &path, depth - 1, found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology;

    #[test]
    fn a_captured_machine_reads_like_the_machine_itself() {
        let live = Root::live();
        let directory = tempfile::tempdir().unwrap();
        for file in files(&live).unwrap() {
            let path = directory.path().join(&file.path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file.bytes).unwrap();
        }
        let captured = Root::captured(directory.path());
        let (mut one, mut other) =
            (topology::discover(&live).unwrap(), topology::discover(&captured).unwrap());
        // The clock of a virtual machine may change from one moment to the next.
        one.identity.clock_khz = None;
        other.identity.clock_khz = None;
        assert_eq!(one.identity, other.identity);
        assert_eq!(one.caches, other.caches);
        // Nor is its memory the same all the time.
        let nodes = |found: &topology::Discovered| {
            let nodes = &found.topology.description().nodes;
            nodes.iter().map(|node| node.kernel_id).collect::<Vec<u32>>()
        };
        assert_eq!(nodes(&one), nodes(&other));
        assert_eq!(one.topology.cpus(), other.topology.cpus());
        let units = |root| crate::perf::pmu::Pmus::discover(root).unwrap().0;
        assert_eq!(units(&live), units(&captured));
    }

    #[test]
    fn the_pmu_that_counts_energy_is_captured_and_how_devices_sleep_is_not() {
        let tree = tempfile::tempdir().unwrap();
        let devices = tree.path().join("sys/bus/event_source/devices");
        for name in ["power/type", "power/power/control", "msr/power/control", "msr/type"] {
            let path = devices.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "9").unwrap();
        }
        let captured = files(&Root::captured(tree.path())).unwrap();
        let paths: Vec<_> = captured.iter().map(|file| file.path.to_str().unwrap()).collect();
        let kept =
            ["msr/type", "power/type"].map(|name| format!("sys/bus/event_source/devices/{name}"));
        assert_eq!(paths, kept);
    }

    #[test]
    fn an_empty_tree_gives_nothing() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(files(&Root::captured(directory.path())).unwrap(), []);
    }
}
