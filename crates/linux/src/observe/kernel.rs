//! Readings of the kernel about the whole machine: free memory, statistics, settings, and the node
//! of each physical address.

use std::collections::BTreeMap;

use rondpoint_core::{Bytes, Topology};

use crate::LinuxError;
use crate::kept::Kept;
use crate::lines::Lines;
use crate::parse::cpuinfo::CpuIdentity;
use crate::parse::zoneinfo::{self, PhysicalMap, ZoneSpan};
use crate::parse::{ParseError, fields, meminfo, vmstat};
use crate::root::{self, Root};
use crate::syscall::memory::page_bytes;

/// Value of `kernel.perf_event_paranoid`; `None` if it cannot be read.
#[must_use]
pub fn paranoid_level(root: &Root) -> Option<i64> {
    let bytes = root::read_optional(&root.in_proc("sys/kernel/perf_event_paranoid")).ok()??;
    let text = fields::trim(&bytes);
    let (sign, digits) = text.strip_prefix(b"-").map_or((1, text), |digits| (-1, digits));
    Some(sign * i64::try_from(fields::decimal(digits)?).ok()?)
}

/// Whether the kernel's NMI watchdog holds a counter of each core, for a pinned event of cycles
/// (`kernel.nmi_watchdog`; `hardlockup_detector_event_create`, kernel/watchdog_perf.c, Linux 6.12).
///
/// Only x86's watchdog does so by default. Power has its own kind, and Arm's needs an option at
/// boot. Virtual machines have the setting at 0, because KVM's guests disable it
/// (`kvm_guest_init`, arch/x86/kernel/kvm.c) and others have no counter for it. A kernel with the
/// buddy detector (`CONFIG_HARDLOCKUP_DETECTOR_BUDDY`) uses none, and one counter stays free there.
#[must_use]
pub(super) fn watchdog_counts(root: &Root, identity: &CpuIdentity) -> bool {
    let is_x86 = identity.family.is_some();
    let read = || root::read_optional(&root.in_proc("sys/kernel/nmi_watchdog")).ok()?;
    is_x86 && read().is_some_and(|bytes| fields::trim(&bytes) == b"1")
}

/// The map from physical addresses to nodes, by the spans of the zones. If zones of two nodes
/// overlap, the nodes' memory blocks decide. Without the right to read the file the map is empty.
///
/// # Errors
/// `/proc/zoneinfo` is malformed.
pub fn physical_map(root: &Root) -> Result<PhysicalMap, LinuxError> {
    let mut scan = zoneinfo::Scan::default();
    if let Ok(Some(mut lines)) = Lines::open(&root.in_proc("zoneinfo")) {
        while let Some((number, line)) = lines.next_line()? {
            scan.take(number, line).map_err(|source| lines.format(source))?;
        }
    }
    let map = PhysicalMap::new(scan.spans(), page_bytes() as u64);
    if !map.has_overlaps() {
        return Ok(map);
    }
    let blocks = memory_blocks(root, page_bytes() as u64)?;
    Ok(map.with_blocks(&blocks))
}

/// The blocks of memory hot-plug, by the links `nodeN/memoryM` (Documentation/admin-guide/mm/
/// memory-hotplug.rst); none on a kernel without it.
fn memory_blocks(root: &Root, page_bytes: u64) -> Result<Vec<ZoneSpan>, LinuxError> {
    let path = root.in_sys("devices/system/memory/block_size_bytes");
    let size = root::read_optional(&path)?;
    let frames =
        size.and_then(|size| fields::single_hexadecimal(&size).ok()).unwrap_or(0) / page_bytes;
    let mut blocks = Vec::new();
    for folder in root::list(&root.in_sys("devices/system/node"))? {
        let Some(node) = numbered(&folder, "node") else { continue };
        let names = root::list(&root.in_sys(format!("devices/system/node/{folder}")))?;
        let numbers = names.iter().filter_map(|name| numbered(name, "memory"));
        blocks.extend(numbers.map(|number| ZoneSpan {
            node,
            first_frame: frames.saturating_mul(number.into()),
            frames,
        }));
    }
    Ok(blocks)
}

/// The number in a name such as `node3`.
pub(crate) fn numbered(name: &str, kind: &str) -> Option<u32> {
    fields::decimal(name.strip_prefix(kind)?.as_bytes())?.try_into().ok()
}

/// Reader of each node's memory that pages can take. Its files stay open, because every look reads
/// them.
pub struct FreeMemory {
    nodes: Vec<Kept>,
    parse: fn(&[u8]) -> Result<u64, ParseError>,
}

impl FreeMemory {
    /// Reads free memory alone.
    #[must_use]
    pub fn of(root: &Root, topology: &Topology) -> Self {
        Self::by(root, topology, meminfo::free_bytes)
    }

    /// Reads free memory and the page cache, which the kernel drops when pages move to the node.
    #[must_use]
    pub fn with_page_cache(root: &Root, topology: &Topology) -> Self {
        Self::by(root, topology, meminfo::room_bytes)
    }

    fn by(root: &Root, topology: &Topology, parse: fn(&[u8]) -> Result<u64, ParseError>) -> Self {
        let file = |node| {
            let number = topology.kernel_node(node);
            let path = root.in_sys(format!("devices/system/node/node{number}/meminfo"));
            Kept::new(path, true)
        };
        Self { nodes: (0..topology.node_count()).map(file).collect(), parse }
    }

    /// Memory by node, at most all of the node; `None` if a node's file does not exist.
    ///
    /// # Errors
    /// A file cannot be read or is malformed.
    pub fn read(&mut self, topology: &Topology) -> Result<Option<Vec<Bytes>>, LinuxError> {
        let mut free = Vec::with_capacity(self.nodes.len());
        for (node, file) in self.nodes.iter_mut().enumerate() {
            let Some(bytes) = file.read(self.parse)? else { return Ok(None) };
            free.push(Bytes(bytes.min(topology.memory(node).0)));
        }
        Ok(Some(free))
    }
}

/// The counters of `/proc/vmstat` about NUMA.
pub(super) fn numa_statistics(root: &Root) -> Result<BTreeMap<String, u64>, LinuxError> {
    let path = root.in_proc("vmstat");
    let bytes = root::read_optional(&path)?.unwrap_or_default();
    // numa_hit and numa_local grow with every allocation, whatever the placement.
    let kept = ["numa_hint", "numa_pages_migrated", "numa_pte", "numa_miss", "pgmigrate"];
    let is_kept = |name: &[u8]| kept.iter().any(|kept| name.starts_with(kept.as_bytes()));
    vmstat::parse(&bytes, is_kept).map_err(|source| LinuxError::Format { path, source })
}

/// Mode of the kernel's NUMA balancing (`kernel.numa_balancing`, a set of bits:
/// Documentation/admin-guide/sysctl/kernel.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balancing {
    /// Bit 0: the kernel moves pages to the threads that use them, with hint faults on all nodes.
    pub ordinary: bool,
    /// Bit 1: the kernel promotes pages from slow memory. Alone, it causes hint faults on slow
    /// nodes only.
    pub tiering: bool,
}

/// Why page faults show only where pages are touched first, and the command that makes them show
/// later use; `None` where they show it already.
///
/// NUMA balancing removes the mappings of pages in use, so their next use is a fault.
#[must_use]
pub fn first_touches_only(root: &Root) -> Option<(&'static str, Option<&'static str>)> {
    const SWITCH_ON: Option<&str> = Some("sudo sysctl kernel.numa_balancing=1");
    match numa_balancing(root) {
        Some(Balancing { ordinary: true, .. }) => None,
        Some(Balancing { tiering: true, .. }) => Some((
            "only promotes pages from slow memory (2): page faults show first touches, and no later \
             use of ordinary nodes",
            SWITCH_ON,
        )),
        Some(_) => Some(("off: page faults show only where pages are touched first", SWITCH_ON)),
        None => {
            Some(("not in this kernel: page faults show only where pages are touched first", None))
        }
    }
}

/// Mode of the kernel's NUMA balancing; `None` if the kernel has none.
#[must_use]
pub fn numa_balancing(root: &Root) -> Option<Balancing> {
    let bytes = root::read_optional(&root.in_proc("sys/kernel/numa_balancing")).ok()??;
    let mode = fields::single_number(&bytes).ok()?;
    Some(Balancing { ordinary: mode & 1 != 0, tiering: mode & 2 != 0 })
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use rondpoint_core::topology::synthetic;

    use super::*;

    /// A machine of these files, for the readers of this folder.
    pub(in crate::observe) fn fixture(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::captured(directory.path());
        (directory, root)
    }

    /// No other mode makes faults on pages in use on all nodes, and no command adds what a kernel
    /// lacks.
    #[test]
    fn only_ordinary_balancing_makes_faults_show_later_use() {
        let found = |mode: Option<&str>| {
            let files: Vec<_> =
                mode.into_iter().map(|mode| ("proc/sys/kernel/numa_balancing", mode)).collect();
            first_touches_only(&fixture(&files).1)
        };
        assert_eq!((found(Some("1\n")), found(Some("3\n"))), (None, None));
        let (off, promotes) = (found(Some("0\n")).unwrap(), found(Some("2\n")).unwrap());
        assert!(off.0.starts_with("off") && off.1.is_some(), "{off:?}");
        assert!(promotes.0.contains("promotes") && promotes.1.is_some(), "{promotes:?}");
        assert_eq!(found(None).unwrap().1, None);
    }

    #[test]
    fn settings_that_a_kernel_lacks_are_none() {
        let (_directory, root) = fixture(&[]);
        assert_eq!((paranoid_level(&root), numa_balancing(&root)), (None, None));
        let (_directory, root) = fixture(&[
            ("proc/sys/kernel/perf_event_paranoid", "-1\n"),
            ("proc/sys/kernel/numa_balancing", "1\n"),
        ]);
        let on = Balancing { ordinary: true, tiering: false };
        assert_eq!((paranoid_level(&root), numa_balancing(&root)), (Some(-1), Some(on)));
    }

    #[test]
    fn the_watchdog_holds_a_counter_on_x86_where_it_is_on() {
        let x86 = CpuIdentity { family: Some(6), ..CpuIdentity::default() };
        let counts = |value: Option<&str>, identity| {
            let files: Vec<_> =
                value.into_iter().map(|value| ("proc/sys/kernel/nmi_watchdog", value)).collect();
            watchdog_counts(&fixture(&files).1, identity)
        };
        assert!(counts(Some("1\n"), &x86));
        assert!(!counts(Some("0\n"), &x86) && !counts(None, &x86));
        assert!(!counts(Some("1\n"), &CpuIdentity::default()), "neither Arm nor Power");
    }

    #[test]
    fn balancing_is_a_set_of_bits() {
        let read = |text: &str| {
            let (_directory, root) = fixture(&[("proc/sys/kernel/numa_balancing", text)]);
            numa_balancing(&root).map(|found| (found.ordinary, found.tiering))
        };
        assert_eq!(read("0\n"), Some((false, false)));
        assert_eq!(read("2\n\0\0"), Some((false, true)));
        assert_eq!(read("3\n"), Some((true, true)));
        assert_eq!(read("4\n"), Some((false, false)));
        assert_eq!(read("+1\n"), None);
    }

    #[test]
    fn overlapping_zones_are_told_apart_by_memory_blocks() {
        let zone = |node, first| {
            format!(
                "Node {node}, zone Normal\n spanned 98304\n present 65536\n start_pfn: {first}\n"
            )
        };
        let zoneinfo = zone(0, 0) + &zone(1, 32768);
        let block =
            |node, number| format!("sys/devices/system/node/node{node}/memory{number}/state");
        let blocks = [block(0, 0), block(1, 1), block(0, 2), block(1, 3)];
        let mut files = vec![("proc/zoneinfo", zoneinfo.as_str())];
        let nodes = |files: &[(&str, &str)]| {
            let (_directory, root) = fixture(files);
            let map = physical_map(&root).unwrap();
            [1u64, 32768, 65536, 98304].map(|frame| map.node_of(frame * page_bytes() as u64))
        };
        assert_eq!(nodes(&files), [Some(0), None, None, Some(1)]);
        let size = format!("{:x}\n", 32768 * page_bytes());
        files.push(("sys/devices/system/memory/block_size_bytes", &size));
        files.extend(blocks.iter().map(|path| (path.as_str(), "online\n")));
        assert_eq!(nodes(&files), [Some(0), Some(1), Some(0), Some(1)]);
    }

    #[test]
    fn zones_are_read_however_long_the_file_is() {
        let cpu =
            "    cpu: 1\n              count:    0\n              high:     62\n".repeat(9000);
        let zone = |node: u64| {
            let first = node * 262_144;
            format!(
                "Node {node}, zone Normal\n spanned 262144\n present 262144\n pagesets\n{cpu}  start_pfn: {first}\n"
            )
        };
        let text: String = (0..32).map(zone).collect();
        assert!(text.len() as u64 > root::MAX_FILE_BYTES);
        let (_directory, root) = fixture(&[("proc/zoneinfo", &text)]);
        let map = physical_map(&root).unwrap();
        let node = |node: u64| map.node_of((node * 262_144 + 1) * page_bytes() as u64);
        assert_eq!((node(0), node(31), node(32)), (Some(0), Some(31), None));
        let (_directory, root) = fixture(&[("proc/zoneinfo", "Node x, zone Normal\n")]);
        assert!(physical_map(&root).unwrap_err().to_string().contains("zoneinfo: line 1"));
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

    /// On a host that has run for long, files fill the memory that programs leave.
    #[test]
    fn pages_can_take_the_place_of_the_page_cache() {
        let machine = synthetic::parse("node:1 core:1").unwrap();
        let text = "Node 0 MemTotal: 64 kB\nNode 0 MemFree: 4 kB\n\
            Node 0 Active(file): 8 kB\nNode 0 Inactive(file): 16 kB\n";
        let (_directory, root) = fixture(&[("sys/devices/system/node/node0/meminfo", text)]);
        let read = |mut memory: FreeMemory| memory.read(&machine).unwrap();
        assert_eq!(read(FreeMemory::of(&root, &machine)), Some(vec![Bytes(4 << 10)]));
        assert_eq!(read(FreeMemory::with_page_cache(&root, &machine)), Some(vec![Bytes(28 << 10)]));
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
