//! Reads the files of `/proc` and `/sys` that describe a machine into memory. All readers of this
//! crate that look at the machine can work on such a capture.
//!
//! A capture names no user, host or process. It lists files that cannot be read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rondpoint_input::Budget;

use crate::LinuxError;
use crate::observe::kernel::numbered;
use crate::root::{self, Root};

/// One captured file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Path of the file, `proc/…` or `sys/…`.
    pub path: PathBuf,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

/// An existing file that is not captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Path of the file, `proc/…` or `sys/…`.
    pub path: PathBuf,
    /// Why the file is not captured.
    pub reason: String,
}

/// A captured machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// Captured files, sorted by path.
    pub files: Vec<Captured>,
    /// Links between nodes, CPUs and memory blocks (`cpu3/node1`, `node1/memory7`), as empty
    /// folders, because only their names matter.
    pub folders: Vec<PathBuf>,
    /// Files that are not captured, in the order of reading.
    pub left_out: Vec<LeftOut>,
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

/// Directories to read beneath `/sys`, with the depth of their subdirectories.
const SYS: [(&str, usize); 4] =
    [(NODES, 4), (CPUS, 3), ("bus/event_source/devices", 2), ("kernel/mm/numa", 0)];
const NODES: &str = "devices/system/node";
const CPUS: &str = "devices/system/cpu";
/// Single files beneath `/sys`.
const SYS_FILES: [&str; 1] = ["devices/system/memory/block_size_bytes"];

/// Names of files that are many and not needed. `driver` links to every CPU of the machine.
const SKIPPED: [&str; 10] = [
    "hugepages",
    "power",
    "cpuidle",
    "hotplug",
    "microcode",
    "firmware_node",
    "device",
    "subsystem",
    "driver",
    "uevent",
];

/// Most bytes of one file. `zoneinfo` has 160 bytes for each CPU in each zone: 22 MB with 64 nodes
/// and 896 CPUs.
const LONGEST_FILE: u64 = 128 << 20;
/// Most files: 8192 CPUs have 60 each, and there may be as many memory blocks.
const MOST_FILES: u64 = 1_000_000;
/// Most bytes of all files: `zoneinfo` and half a million files of one or two lines.
const MOST_BYTES: u64 = 256 << 20;

/// Captures the machine beneath `root`.
///
/// # Errors
/// A directory cannot be listed, or there are more than [`MOST_FILES`] files or [`MOST_BYTES`].
pub fn read(root: &Root) -> Result<Capture, LinuxError> {
    read_limited(root, LONGEST_FILE)
}

fn read_limited(root: &Root, longest_file: u64) -> Result<Capture, LinuxError> {
    let found = Capture { files: Vec::new(), folders: Vec::new(), left_out: Vec::new() };
    let mut reader = Reader { found, budget: Budget::new(MOST_BYTES, MOST_FILES), longest_file };
    for name in PROC {
        reader.take(&root.in_proc(name), Path::new("proc").join(name))?;
    }
    for name in SYS_FILES {
        reader.take(&root.in_sys(name), Path::new("sys").join(name))?;
    }
    for (directory, depth) in SYS {
        reader.walk(&root.in_sys(directory), &Path::new("sys").join(directory), depth)?;
    }
    let mut found = reader.found;
    found.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The capture so far, and the files and bytes that may still be read.
struct Reader {
    found: Capture,
    budget: Budget,
    longest_file: u64,
}

impl Reader {
    fn take(&mut self, source: &Path, path: PathBuf) -> Result<(), LinuxError> {
        match root::read_limited(source, self.longest_file) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                self.charge(source, bytes.len() as u64)?;
                self.found.files.push(Captured { path, bytes });
            }
            // Files such as `node0/compact` are write-only switches.
            Err(_) if is_write_only(source) => {}
            Err(LinuxError::Io { source, .. }) => {
                self.found.left_out.push(LeftOut { path, reason: source.to_string() });
            }
            Err(other) => self.found.left_out.push(LeftOut { path, reason: other.to_string() }),
        }
        Ok(())
    }

    fn charge(&mut self, source: &Path, bytes: u64) -> Result<(), LinuxError> {
        let charged = self.budget.take_items(1).and_then(|()| self.budget.take_bytes(bytes));
        charged.map_err(|error| LinuxError::io(source, "capture", error.into()))
    }

    fn walk(&mut self, source: &Path, path: &Path, depth: usize) -> Result<(), LinuxError> {
        // The PMU of energy events is named `power`, as each device's folder for sleep states.
        let is_pmus = path.ends_with("event_source/devices");
        for name in root::list(source)? {
            if SKIPPED.contains(&name.as_str()) && !is_pmus {
                continue;
            }
            let (below, path) = (source.join(&name), path.join(&name));
            if is_link(&path, &name) {
                self.charge(&below, 0)?;
                self.found.folders.push(path);
                continue;
            }
            let Ok(kind) = std::fs::metadata(&below) else { continue };
            if kind.is_file() {
                self.take(&below, path)?;
            } else if kind.is_dir() && depth > 0 {
                self.walk(&below, &path, depth - 1)?;
            }
        }
        Ok(())
    }
}

/// Whether a path is a link between CPUs, nodes and memory blocks. Following them would read each
/// node once for each of its CPUs.
fn is_link(path: &Path, name: &str) -> bool {
    let is_below = |kinds: &str| {
        let above = path.parent().and_then(Path::parent);
        above.is_some_and(|above| above == Path::new("sys").join(kinds))
    };
    let is = |kind: &str| numbered(name, kind).is_some();
    is_below(CPUS) && is("node") || is_below(NODES) && (is("cpu") || is("memory"))
}

fn is_write_only(path: &Path) -> bool {
    let mode = std::fs::metadata(path).map(|found| found.permissions().mode());
    mode.is_ok_and(|mode| mode & 0o444 == 0 && mode & 0o222 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology;

    fn put(tree: &Path, path: &str, text: &str) {
        let path = tree.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn paths(captured: &Capture) -> Vec<&str> {
        captured.files.iter().map(|file| file.path.to_str().unwrap()).collect()
    }

    #[test]
    fn a_captured_machine_reads_like_the_machine_itself() {
        let live = Root::live();
        let directory = tempfile::tempdir().unwrap();
        let capture = read(&live).unwrap();
        for folder in capture.folders {
            std::fs::create_dir_all(directory.path().join(folder)).unwrap();
        }
        for file in capture.files {
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
        assert_eq!(one.notes, other.notes);
        // Nor is its memory the same all the time.
        let nodes = |found: &topology::Discovered| {
            let nodes = &found.topology.description().nodes;
            nodes.iter().map(|node| node.kernel_id).collect::<Vec<u32>>()
        };
        assert_eq!(nodes(&one), nodes(&other));
        assert_eq!(one.topology.cpus(), other.topology.cpus());
        let units = |root| crate::perf::pmu::Pmus::discover(root).unwrap().0;
        assert_eq!(units(&live), units(&captured));
        let map = |root| crate::observe::kernel::physical_map(root).unwrap();
        assert_eq!(format!("{:?}", map(&live)), format!("{:?}", map(&captured)));
    }

    #[test]
    fn the_pmu_that_counts_energy_is_captured_and_how_devices_sleep_is_not() {
        let tree = tempfile::tempdir().unwrap();
        for name in ["power/type", "power/power/control", "msr/power/control", "msr/type"] {
            put(tree.path(), &format!("sys/bus/event_source/devices/{name}"), "9");
        }
        let captured = read(&Root::captured(tree.path())).unwrap();
        let kept =
            ["msr/type", "power/type"].map(|name| format!("sys/bus/event_source/devices/{name}"));
        assert_eq!(paths(&captured), kept);
    }

    #[test]
    fn each_node_is_read_once_and_links_to_it_keep_their_names() {
        let tree = tempfile::tempdir().unwrap();
        let (cpus, nodes) =
            (tree.path().join("sys").join(CPUS), tree.path().join("sys").join(NODES));
        put(&cpus, "cpu3/topology/core_id", "0");
        put(&cpus, "cpu3/cpufreq/base_frequency", "2000000");
        put(&nodes, "node1/cpumap", "8");
        put(&nodes, "node1/memory_side_cache/index1/size", "0");
        for (link, target) in [
            (cpus.join("cpu3/node1"), nodes.join("node1")),
            (nodes.join("node1/cpu3"), cpus.join("cpu3")),
            (cpus.join("cpu3/driver"), cpus.clone()),
        ] {
            std::os::unix::fs::symlink(target, link).unwrap();
        }
        put(&nodes, "node1/memory7/state", "online");
        let captured = read(&Root::captured(tree.path())).unwrap();
        let expected = [
            "sys/devices/system/cpu/cpu3/cpufreq/base_frequency",
            "sys/devices/system/cpu/cpu3/topology/core_id",
            "sys/devices/system/node/node1/cpumap",
            "sys/devices/system/node/node1/memory_side_cache/index1/size",
        ];
        assert_eq!(paths(&captured), expected);
        let links = ["node/node1/cpu3", "node/node1/memory7", "cpu/cpu3/node1"];
        let links = links.map(|link| Path::new("sys/devices/system").join(link));
        assert_eq!(captured.folders, links);
    }

    #[test]
    fn a_file_that_is_left_out_is_told() {
        let tree = tempfile::tempdir().unwrap();
        put(tree.path(), "proc/zoneinfo", "Node 0, zone DMA\n");
        put(tree.path(), "proc/version", "Linux\n");
        std::fs::create_dir_all(tree.path().join("proc/cpuinfo")).unwrap();
        let captured = read_limited(&Root::captured(tree.path()), 10).unwrap();
        assert_eq!(paths(&captured), ["proc/version"]);
        let left_out: Vec<String> = captured
            .left_out
            .iter()
            .map(|file| format!("{}: {}", file.path.display(), file.reason))
            .collect();
        let expected =
            ["proc/cpuinfo: Is a directory (os error 21)", "proc/zoneinfo: longer than 10 bytes"];
        assert_eq!(left_out, expected);
    }

    #[test]
    fn an_empty_tree_gives_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let captured = read(&Root::captured(directory.path())).unwrap();
        assert_eq!((captured.files, captured.folders, captured.left_out), (vec![], vec![], vec![]));
    }
}
