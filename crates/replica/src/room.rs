//! Whether copies fit: the caller's budget, the free memory of each node, the cgroup's limit.

use std::collections::BTreeMap;
use std::path::Path;

use rondpoint_linux::parse::meminfo;
use rondpoint_linux::{LinuxError, Root, root};

use crate::{NodeMap, Options, Refusal};

/// A node keeps this part of its memory free of copies, so that other programs still find some.
const RESERVE: u64 = 16;

/// Checks that a copy of `length` bytes fits at every place, beside `held` bytes of earlier copies.
pub(crate) fn check(
    root: &Root,
    map: &NodeMap,
    length: u64,
    held: u64,
    options: &Options,
) -> Result<(), Refusal> {
    let needed = length.saturating_mul(map.places().len() as u64);
    if let Some(budget) = options.budget_bytes
        && needed.saturating_add(held) > budget
    {
        return Err(Refusal::Budget { needed, held, budget });
    }
    let mut by_node = BTreeMap::new();
    for place in map.places() {
        *by_node.entry(place.node).or_insert(0u64) += length;
    }
    for (node, needed) in by_node {
        let free = node_room(root, node)?;
        if needed > free {
            return Err(Refusal::NodeFull { node, needed, free });
        }
    }
    match cgroup_room(root)? {
        Some(free) if needed > free => Err(Refusal::CgroupFull { needed, free }),
        _ => Ok(()),
    }
}

/// What copies may take of a node: free memory and page cache without the reserve. A kernel without
/// NUMA describes no node; its one node then has all that is available.
fn node_room(root: &Root, node: u32) -> Result<u64, LinuxError> {
    let path = root.in_sys(format!("devices/system/node/node{node}/meminfo"));
    let Some(bytes) = root::read_optional(&path)? else {
        let path = root.in_proc("meminfo");
        let text = root::read_required(&path)?;
        let text = String::from_utf8_lossy(&text);
        let kib = |name: &str| number(text.lines().find_map(|line| line.strip_prefix(name))?);
        let available = kib("MemAvailable:").unwrap_or(0).saturating_mul(1024);
        let total = kib("MemTotal:").unwrap_or(0).saturating_mul(1024);
        return Ok(available.saturating_sub(total / RESERVE));
    };
    let memory = meminfo::parse(&bytes).map_err(|source| LinuxError::Format { path, source })?;
    Ok(memory.room_bytes().saturating_sub(memory.total_bytes / RESERVE))
}

/// What the tightest memory limit of this process's cgroup (version 2) and those above it leaves;
/// `None` without a limit. The cgroup's cold file pages give way.
fn cgroup_room(root: &Root) -> Result<Option<u64>, LinuxError> {
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
        // `max` is no number: no limit.
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

/// The first word, where it is a number.
fn number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::Place;

    const MIB: u64 = 1 << 20;

    /// Two nodes of 160 MiB, of which so much is free.
    fn machine(free_mib: [u64; 2]) -> (TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        for (node, free) in free_mib.iter().enumerate() {
            let folder = root.in_sys(format!("devices/system/node/node{node}"));
            fs::create_dir_all(&folder).unwrap();
            let (total, free) = (160 * 1024, free * 1024);
            let text =
                format!("Node {node} MemTotal: {total} kB\nNode {node} MemFree: {free} kB\n");
            fs::write(folder.join("meminfo"), text).unwrap();
        }
        (directory, root)
    }

    fn two_nodes() -> NodeMap {
        let places = [0, 1].map(|node| Place { node, cpus: vec![node] });
        NodeMap::by_hand(places.to_vec()).unwrap()
    }

    fn refusal(root: &Root, mib: u64, options: &Options) -> String {
        match check(root, &two_nodes(), mib * MIB, 8 * MIB, options) {
            Ok(()) => "fits".to_owned(),
            Err(refusal) => refusal.to_string(),
        }
    }

    #[test]
    fn copies_that_exceed_the_budget_with_earlier_ones_are_refused() {
        let (_directory, root) = machine([100, 100]);
        let options = Options { budget_bytes: Some(28 * MIB), ..Options::default() };
        assert_eq!(refusal(&root, 10, &options), "fits");
        assert_eq!(
            refusal(&root, 11, &options),
            "copies need 22 MiB beside 8 MiB of earlier ones; the budget is 28 MiB"
        );
    }

    #[test]
    fn the_node_that_is_too_full_is_named() {
        let (_directory, root) = machine([100, 30]);
        assert_eq!(refusal(&root, 20, &Options::default()), "fits");
        assert_eq!(
            refusal(&root, 21, &Options::default()),
            "node 1 has 20 MiB for copies and needs 21 MiB"
        );
    }

    #[test]
    fn two_places_on_one_node_need_twice_the_memory() {
        let (_directory, root) = machine([30, 30]);
        let places = [0, 1].map(|cpu| Place { node: 0, cpus: vec![cpu] });
        let map = NodeMap::by_hand(places.to_vec()).unwrap();
        let fits = |mib: u64| check(&root, &map, mib * MIB, 0, &Options::default()).is_ok();
        assert_eq!([fits(10), fits(11)], [true, false]);
    }

    #[test]
    fn the_tightest_cgroup_above_the_process_counts() {
        let (_directory, root) = machine([150, 150]);
        fs::create_dir_all(root.in_proc("self")).unwrap();
        fs::write(root.in_proc("self/cgroup"), "0::/jobs/one\n").unwrap();
        let one = root.in_sys("fs/cgroup/jobs/one");
        fs::create_dir_all(&one).unwrap();
        fs::write(one.join("memory.max"), "max\n").unwrap();
        assert_eq!(refusal(&root, 30, &Options::default()), "fits");
        let jobs = one.parent().unwrap();
        fs::write(jobs.join("memory.max"), format!("{}\n", 100 * MIB)).unwrap();
        fs::write(jobs.join("memory.current"), format!("{}\n", 60 * MIB)).unwrap();
        let cold = format!("anon 5\ninactive_file {}\n", 10 * MIB);
        fs::write(jobs.join("memory.stat"), cold).unwrap();
        assert_eq!(refusal(&root, 25, &Options::default()), "fits");
        assert_eq!(
            refusal(&root, 26, &Options::default()),
            "the cgroup's memory limit leaves 50 MiB and copies need 52 MiB"
        );
    }

    #[test]
    fn a_kernel_without_numa_has_what_is_available() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        fs::create_dir_all(&root.proc).unwrap();
        let text = "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n";
        fs::write(root.in_proc("meminfo"), text).unwrap();
        assert_eq!(node_room(&root, 0).unwrap(), (512 - 64) * MIB);
    }
}
