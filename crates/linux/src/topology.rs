//! The machine as sysfs describes it: nodes, CPUs, caches, distances.
//!
//! What sysfs does not know (links, bandwidths) stays unknown here; a machine file or a measurement
//! adds it. Nodes and CPUs keep their order by kernel number; nodes with neither CPU nor memory are
//! left out.

use std::collections::BTreeMap;

use rondpoint_core::topology::{Cpu, Description, NodeDescription};
use rondpoint_core::{Bytes, Matrix, Topology};

use crate::LinuxError;
use crate::parse::cpuinfo::{self, CpuIdentity};
use crate::parse::{ParseError, cpulist, fields, meminfo};
use crate::root::{self, Root};

/// One level of cache of the first CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// 1, 2, 3 …
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Its size.
    pub bytes: u64,
    /// Associativity, where it is told.
    pub ways: Option<u32>,
    /// How many CPUs share it.
    pub shared_by: usize,
}

/// A machine as found.
#[derive(Debug, Clone, PartialEq)]
pub struct Discovered {
    /// What the policies see.
    pub topology: Topology,
    /// Which processor.
    pub identity: CpuIdentity,
    /// The caches of the first CPU, by level.
    pub caches: Vec<Cache>,
    /// What firmware says of each node's memory (ACPI HMAT), by index; mostly nothing.
    pub firmware: Vec<Option<Firmware>>,
}

/// What the nearest CPUs draw from a node's memory, by firmware.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Firmware {
    /// Read bandwidth, MB/s.
    pub bandwidth_mb_s: f64,
    /// Read latency, ns.
    pub latency_ns: f64,
}

/// Reads the machine beneath `root`.
///
/// # Errors
/// A file that is missing or malformed, and a description that contradicts itself.
pub fn discover(root: &Root) -> Result<Discovered, LinuxError> {
    let identity = match root::read_optional(&root.in_proc("cpuinfo"))? {
        Some(bytes) => cpuinfo::parse(&bytes)
            .map_err(|source| LinuxError::Format { path: root.in_proc("cpuinfo"), source })?,
        None => CpuIdentity::default(),
    };
    let online = list(root, "devices/system/cpu/online")?.ok_or_else(|| {
        let path = root.in_sys("devices/system/cpu/online");
        LinuxError::io(&path, "open", std::io::Error::from_raw_os_error(libc::ENOENT))
    })?;
    let nodes = read_nodes(root, &online)?;
    let isolated = isolated_cpus(root)?;
    let mut numbering = Numbering::default();
    let mut cpus = Vec::new();
    for (node, found) in nodes.iter().enumerate() {
        for &cpu in &found.cpus {
            let isolated = isolated.binary_search(&cpu).is_ok();
            cpus.push(read_cpu(root, cpu, node, isolated, &mut numbering)?);
        }
    }
    let description = Description {
        clock_hz: clock_hz(root, &identity)?,
        distances: distances(root, &nodes)?,
        ..Description::plain(nodes.into_iter().map(|node| node.description).collect(), cpus)
    };
    let caches = read_caches(root, online.first().copied().unwrap_or(0))?;
    let topology = Topology::new(description)?;
    let firmware =
        (0..topology.node_count()).map(|node| firmware(root, topology.kernel_node(node)));
    let firmware = firmware.collect::<Result<_, LinuxError>>()?;
    Ok(Discovered { firmware, topology, identity, caches })
}

struct FoundNode {
    description: NodeDescription,
    cpus: Vec<u32>,
}

fn parsed<T>(
    root: &Root,
    path: &str,
    parse: fn(&[u8]) -> Result<T, ParseError>,
) -> Result<Option<T>, LinuxError> {
    let path = root.in_sys(path);
    let bytes = root::read_optional(&path)?;
    bytes
        .map(|bytes| parse(&bytes).map_err(|source| LinuxError::Format { path, source }))
        .transpose()
}

fn list(root: &Root, path: &str) -> Result<Option<Vec<u32>>, LinuxError> {
    parsed(root, path, cpulist::parse)
}

/// The nodes that have something, with their online CPUs. A kernel without NUMA has none in sysfs:
/// then the machine is one node.
fn read_nodes(root: &Root, online: &[u32]) -> Result<Vec<FoundNode>, LinuxError> {
    let Some(numbers) = list(root, "devices/system/node/online")? else {
        let memory = root::read_required(&root.in_proc("meminfo"))?;
        let memory = fields::lines(&memory).find_map(|(_, line)| {
            let kib = line.strip_prefix(b"MemTotal:").and_then(|rest| fields::words(rest).next());
            kib.and_then(fields::decimal)
        });
        let memory = Bytes(memory.unwrap_or(0) * 1024);
        let description = NodeDescription { kernel_id: 0, memory, controller_bytes_per_s: None };
        return Ok(vec![FoundNode { description, cpus: online.to_vec() }]);
    };
    let mut nodes = Vec::new();
    for kernel_id in numbers {
        let directory = format!("devices/system/node/node{kernel_id}");
        let mut cpus = list(root, &format!("{directory}/cpulist"))?.unwrap_or_default();
        cpus.retain(|cpu| online.binary_search(cpu).is_ok());
        let memory = parsed(root, &format!("{directory}/meminfo"), meminfo::parse)?;
        let memory = Bytes(memory.map_or(0, |memory| memory.total_bytes));
        if cpus.is_empty() && memory == Bytes(0) {
            continue;
        }
        let description = NodeDescription { kernel_id, memory, controller_bytes_per_s: None };
        nodes.push(FoundNode { description, cpus });
    }
    Ok(nodes)
}

/// The kernel writes one distance for each node with CPUs or memory, in the order of their numbers.
fn distances(root: &Root, nodes: &[FoundNode]) -> Result<Matrix<u32>, LinuxError> {
    let online = list(root, "devices/system/node/online")?.unwrap_or_else(|| vec![0]);
    let column = |kernel_id: u32| online.iter().position(|&number| number == kernel_id);
    let mut matrix =
        Matrix::from_fn(nodes.len(), |row, column| if row == column { 10 } else { 20 });
    for (row, node) in nodes.iter().enumerate() {
        let number = node.description.kernel_id;
        let path = format!("devices/system/node/node{number}/distance");
        let Some(distances) = parsed(root, &path, fields::number_row)? else { continue };
        for (place, other) in nodes.iter().enumerate() {
            let found = column(other.description.kernel_id).and_then(|at| distances.get(at));
            let Some(&distance) = found else {
                let expected = "one distance for each online node";
                let text = format!("{distances:?}");
                let source = ParseError::new(1, expected, text.as_bytes());
                return Err(LinuxError::Format { path: root.in_sys(path), source });
            };
            matrix[(row, place)] = u32::try_from(distance).unwrap_or(u32::MAX);
        }
    }
    Ok(matrix)
}

fn isolated_cpus(root: &Root) -> Result<Vec<u32>, LinuxError> {
    let mut cpus = list(root, "devices/system/cpu/isolated")?.unwrap_or_default();
    // `(null)` is what the kernel prints where nohz_full is compiled in but not used.
    if let Ok(Some(more)) = list(root, "devices/system/cpu/nohz_full") {
        cpus.extend(more);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Dense numbers for what the kernel names by keys, in the order first seen.
#[derive(Default)]
struct Numbering {
    domains: BTreeMap<(usize, String), usize>,
    cores: BTreeMap<String, usize>,
    packages: BTreeMap<u64, usize>,
}

fn number<K: Ord>(map: &mut BTreeMap<K, usize>, key: K) -> usize {
    let next = map.len();
    *map.entry(key).or_insert(next)
}

fn read_cpu(
    root: &Root,
    cpu: u32,
    node: usize,
    isolated: bool,
    numbering: &mut Numbering,
) -> Result<Cpu, LinuxError> {
    let directory = format!("devices/system/cpu/cpu{cpu}");
    let package = format!("{directory}/topology/physical_package_id");
    // Arm kernels before 5.x write -1 here.
    let package = parsed(root, &package, fields::single_number).unwrap_or(None).unwrap_or(0);
    let siblings = match list(root, &format!("{directory}/topology/core_cpus_list"))? {
        Some(siblings) => Some(siblings),
        None => list(root, &format!("{directory}/topology/thread_siblings_list"))?,
    };
    let core = siblings.map_or_else(|| cpu.to_string(), |list| cpulist::format(&list));
    // A domain never crosses nodes here: with sub-NUMA clustering one cache serves several nodes,
    // and each node's slice of it is what its threads compete for.
    let domain = last_level(root, &directory)?.unwrap_or_else(|| format!("package {package}"));
    Ok(Cpu {
        kernel_id: cpu,
        node,
        cache_domain: number(&mut numbering.domains, (node, domain)),
        core: number(&mut numbering.cores, core),
        package: number(&mut numbering.packages, package),
        isolated,
    })
}

/// The CPUs that share the last level of cache, as a key; `None` where the machine does not tell.
fn last_level(root: &Root, directory: &str) -> Result<Option<String>, LinuxError> {
    let mut last: Option<(u64, String)> = None;
    for index in root::list(&root.in_sys(format!("{directory}/cache")))? {
        if !index.starts_with("index") {
            continue;
        }
        let level =
            parsed(root, &format!("{directory}/cache/{index}/level"), fields::single_number)?;
        let shared = list(root, &format!("{directory}/cache/{index}/shared_cpu_list"))?;
        if let (Some(level), Some(shared)) = (level, shared)
            && last.as_ref().is_none_or(|(highest, _)| level > *highest)
        {
            last = Some((level, cpulist::format(&shared)));
        }
    }
    // A first-level cache alone says nothing about sharing: emulators describe no more.
    Ok(last.filter(|(level, _)| *level > 1).map(|(_, key)| key))
}

fn read_caches(root: &Root, cpu: u32) -> Result<Vec<Cache>, LinuxError> {
    let directory = format!("devices/system/cpu/cpu{cpu}/cache");
    let mut caches = Vec::new();
    for index in root::list(&root.in_sys(&directory))? {
        let file = |name: &str| format!("{directory}/{index}/{name}");
        let level = parsed(root, &file("level"), fields::single_number)?;
        let bytes = parsed(root, &file("size"), fields::size)?;
        let (Some(level), Some(bytes)) = (level, bytes) else { continue };
        let kind = root::read_optional(&root.in_sys(file("type")))?.unwrap_or_default();
        let ways = parsed(root, &file("ways_of_associativity"), fields::single_number)?;
        caches.push(Cache {
            level: u32::try_from(level).unwrap_or(u32::MAX),
            kind: String::from_utf8_lossy(&kind).trim().to_string(),
            bytes,
            ways: ways.and_then(|ways| u32::try_from(ways).ok()).filter(|ways| *ways > 0),
            shared_by: list(root, &file("shared_cpu_list"))?.map_or(1, |cpus| cpus.len()),
        });
    }
    caches.sort_by(|a, b| (a.level, &a.kind).cmp(&(b.level, &b.kind)));
    Ok(caches)
}

/// `access0` is the class of the nearest initiators (Documentation/admin-guide/mm/numaperf.rst);
/// the kernel gives MB/s and ns, and zero for what firmware left out.
fn firmware(root: &Root, kernel_id: u32) -> Result<Option<Firmware>, LinuxError> {
    let file = |name: &str| {
        let path = format!("devices/system/node/node{kernel_id}/access0/initiators/{name}");
        let number = parsed(root, &path, fields::single_number)?;
        Ok::<_, LinuxError>(number.filter(|number| *number > 0).map(|number| number as f64))
    };
    let both = file("read_bandwidth")?.zip(file("read_latency")?);
    Ok(both.map(|(bandwidth_mb_s, latency_ns)| Firmware { bandwidth_mb_s, latency_ns }))
}

/// The nominal clock: the base frequency where the driver tells one, else what /proc/cpuinfo says.
fn clock_hz(root: &Root, identity: &CpuIdentity) -> Result<Option<f64>, LinuxError> {
    let base = "devices/system/cpu/cpu0/cpufreq/base_frequency";
    let khz = parsed(root, base, fields::single_number)?.or(identity.clock_khz);
    Ok(khz.filter(|khz| *khz > 0).map(|khz| khz as f64 * 1e3))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A tree from lines `path: content` beneath `sys`, or beneath `proc` where the path says so.
    fn check(text: &str, expected: &str) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        for line in text.lines() {
            let (path, content) = line.trim_start().split_once(": ").unwrap();
            let path = match path.strip_prefix("/proc/") {
                Some(path) => root.in_proc(path),
                None => root.in_sys("devices/system").join(path),
            };
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content.replace('|', "\n")).unwrap();
        }
        let shown = match discover(&root) {
            Ok(found) => shown(&found.topology),
            Err(error) => error.to_string().replace(&directory.path().display().to_string(), ""),
        };
        assert_eq!(shown.trim(), expected.lines().map(str::trim).collect::<Vec<_>>().join("\n"));
    }

    fn shown(topology: &Topology) -> String {
        let nodes = (0..topology.node_count()).map(|node| {
            let distances: Vec<String> = (0..topology.node_count())
                .map(|other| topology.distance(node, other).to_string())
                .collect();
            let cpus: Vec<String> = topology
                .cpus_of_node(node)
                .iter()
                .map(|cpu| {
                    let cpu = topology.cpu(cpu);
                    let isolated = if cpu.isolated { "!" } else { "" };
                    let (domain, core) = (cpu.cache_domain, cpu.core);
                    format!("{}:d{domain}c{core}p{}{isolated}", cpu.kernel_id, cpu.package)
                })
                .collect();
            let (id, memory) = (topology.kernel_node(node), topology.memory(node).0 >> 10);
            format!("node{id} {memory} KiB [{}] {}", distances.join(" "), cpus.join(" "))
        });
        nodes.map(|line| line.trim().to_string()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn two_sockets_with_sparse_numbers_and_a_memory_only_node() {
        check(
            "cpu/online: 0-1,4-5
            cpu/isolated: 5
            cpu/nohz_full: (null)
            cpu/cpu0/topology/physical_package_id: 0
            cpu/cpu1/topology/physical_package_id: 0
            cpu/cpu4/topology/physical_package_id: 3
            cpu/cpu5/topology/physical_package_id: 3
            cpu/cpu0/topology/core_cpus_list: 0-1
            cpu/cpu1/topology/core_cpus_list: 0-1
            cpu/cpu4/cache/index3/level: 3
            cpu/cpu4/cache/index3/shared_cpu_list: 4
            cpu/cpu5/cache/index3/level: 3
            cpu/cpu5/cache/index3/shared_cpu_list: 5
            node/online: 0,2,5
            node/node0/cpulist: 0-1
            node/node0/meminfo: Node 0 MemTotal: 100 kB|Node 0 MemFree: 50 kB
            node/node0/distance: 10 21 30
            node/node2/cpulist: 4-6
            node/node2/meminfo: Node 2 MemTotal: 200 kB|Node 2 MemFree: 50 kB
            node/node2/distance: 21 10 30
            node/node5/cpulist: 
            node/node5/meminfo: Node 5 MemTotal: 900 kB|Node 5 MemFree: 50 kB
            node/node5/distance: 30 30 10",
            "node0 100 KiB [10 21 30] 0:d0c0p0 1:d0c0p0
            node2 200 KiB [21 10 30] 4:d1c1p1 5:d2c2p1!
            node5 900 KiB [30 30 10]",
        );
    }

    #[test]
    fn a_kernel_without_numa_is_one_node() {
        check(
            "cpu/online: 0-1
            /proc/meminfo: MemTotal: 4096 kB|MemFree: 1 kB",
            "node0 4096 KiB [10] 0:d0c0p0 1:d0c1p0",
        );
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        check(
            "x: y",
            "/sys/devices/system/cpu/online: cannot open: No such file or directory (os error 2)",
        );
        check(
            "cpu/online: 0
            node/online: 0-1
            node/node0/cpulist: 0
            node/node0/meminfo: Node 0 MemTotal: 100 kB|Node 0 MemFree: 50 kB
            node/node1/meminfo: Node 1 MemTotal: 100 kB|Node 1 MemFree: 50 kB
            node/node0/distance: 10",
            "/sys/devices/system/node/node0/distance: line 1: expected one distance for each online node, found `[10]`",
        );
        check(
            "cpu/online: 0-z",
            "/sys/devices/system/cpu/online: line 1: expected a list such as 0-3,8, found `0-z`",
        );
    }
}
