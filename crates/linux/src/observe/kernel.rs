//! What the kernel tells of the machine as a whole: memory left, statistics, settings, and which
//! physical addresses belong to which node.

use std::collections::BTreeMap;

use rondpoint_core::{Bytes, Topology};

use crate::LinuxError;
use crate::kept::Kept;
use crate::parse::zoneinfo::{self, PhysicalMap};
use crate::parse::{fields, meminfo, vmstat};
use crate::root::{self, Root};
use crate::syscall::memory::page_bytes;

/// `kernel.perf_event_paranoid`.
#[must_use]
pub fn paranoid_level(root: &Root) -> Option<i64> {
    let bytes = root::read_optional(&root.in_proc("sys/kernel/perf_event_paranoid")).ok()??;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
}

/// From physical addresses to nodes, by the spans of the zones.
///
/// # Errors
/// `/proc/zoneinfo` is malformed; where it may not be read there are simply no spans.
pub fn physical_map(root: &Root) -> Result<PhysicalMap, LinuxError> {
    let path = root.in_proc("zoneinfo");
    let bytes = root::read_optional(&path).ok().flatten().unwrap_or_default();
    let spans = zoneinfo::parse(&bytes).map_err(|source| LinuxError::Format { path, source })?;
    Ok(PhysicalMap::new(spans, page_bytes() as u64))
}

/// What is free on each node. Its files stay open: it is read at every look.
pub(super) struct FreeMemory(Vec<Kept>);

impl FreeMemory {
    pub(super) fn of(root: &Root, topology: &Topology) -> Self {
        let file = |node| {
            let number = topology.kernel_node(node);
            let path = root.in_sys(format!("devices/system/node/node{number}/meminfo"));
            Kept::new(path, true)
        };
        Self((0..topology.node_count()).map(file).collect())
    }

    /// `None` where a node's file is not there.
    pub(super) fn read(&mut self, topology: &Topology) -> Result<Option<Vec<Bytes>>, LinuxError> {
        let mut free = Vec::with_capacity(self.0.len());
        for (node, file) in self.0.iter_mut().enumerate() {
            let Some(bytes) = file.read(meminfo::free_bytes)? else { return Ok(None) };
            free.push(Bytes(bytes.min(topology.memory(node).0)));
        }
        Ok(Some(free))
    }
}

/// The lines of `/proc/vmstat` that concern NUMA.
pub(super) fn numa_statistics(root: &Root) -> Result<BTreeMap<String, u64>, LinuxError> {
    let path = root.in_proc("vmstat");
    let bytes = root::read_optional(&path)?.unwrap_or_default();
    let mut all = vmstat::parse(&bytes).map_err(|source| LinuxError::Format { path, source })?;
    // numa_hit and numa_local grow with every allocation and say nothing about a program.
    let kept = ["numa_hint", "numa_pages_migrated", "numa_pte", "numa_miss", "pgmigrate"];
    all.retain(|name, _| kept.iter().any(|kept| name.starts_with(kept)));
    Ok(all)
}

/// Whether the kernel's own NUMA balancing is on; `None` where the kernel has none.
#[must_use]
pub fn numa_balancing(root: &Root) -> Option<bool> {
    let bytes = root::read_optional(&root.in_proc("sys/kernel/numa_balancing")).ok()??;
    fields::single_number(&bytes).ok().map(|mode| mode != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rondpoint_core::topology::synthetic;

    use super::*;

    fn fixture(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::captured(directory.path());
        (directory, root)
    }

    #[test]
    fn settings_that_a_kernel_lacks_are_none() {
        let (_directory, root) = fixture(&[]);
        assert_eq!((paranoid_level(&root), numa_balancing(&root)), (None, None));
        let (_directory, root) = fixture(&[
            ("proc/sys/kernel/perf_event_paranoid", "-1\n"),
            ("proc/sys/kernel/numa_balancing", "1\n"),
        ]);
        assert_eq!((paranoid_level(&root), numa_balancing(&root)), (Some(-1), Some(true)));
    }

    #[test]
    fn free_memory_is_never_more_than_there_is() {
        let machine = synthetic::parse("node:1 core:1").unwrap();
        let total = machine.memory(0).0;
        let text = format!("Node 0 MemTotal: 1 kB\nNode 0 MemFree: {} kB\n", total >> 9);
        let (_directory, root) = fixture(&[("sys/devices/system/node/node0/meminfo", &text)]);
        let free = |root| FreeMemory::of(root, &machine).read(&machine).unwrap();
        assert_eq!(free(&root), Some(vec![Bytes(total)]));
        let (_directory, root) = fixture(&[]);
        assert_eq!(free(&root), None);
    }

    #[test]
    fn only_counters_of_moves_and_hints_are_kept() {
        let text = "nr_free 3\nnuma_hit 9\nnuma_hint_faults 2\npgmigrate_success 1\n";
        let (_directory, root) = fixture(&[("proc/vmstat", text)]);
        let found: Vec<String> = numa_statistics(&root).unwrap().into_keys().collect();
        assert_eq!(found, ["numa_hint_faults", "pgmigrate_success"]);
        let (_directory, root) = fixture(&[("proc/vmstat", "broken\n")]);
        assert!(numa_statistics(&root).unwrap_err().to_string().contains("proc/vmstat: line 1"));
    }
}
