//! The machine as sysfs describes it: nodes, CPUs, caches, distances.
//!
//! Links and bandwidths are not in sysfs; a machine file or a measurement adds them. Nodes and CPUs
//! keep their order by kernel number; nodes with neither CPU nor memory are left out. If files of a
//! running machine contradict each other, one of them is used, and a [`Note`] names it.

mod clock;
mod cpu;
mod distances;
mod nodes;
mod note;
mod reader;

pub use note::Note;

use rondpoint_core::Topology;
use rondpoint_core::topology::{Description, NodeDescription};

use self::reader::Reader;
use crate::LinuxError;
use crate::lines::Lines;
use crate::parse::cpuinfo::{self, CpuIdentity};
use crate::parse::{ParseError, cpulist, fields};
use crate::root::Root;

/// One level of cache of the first CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// Level, from 1.
    pub level: u32,
    /// Kind: `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Associativity, if known.
    pub ways: Option<u32>,
    /// Number of CPUs that share it.
    pub shared_by: usize,
}

/// A discovered machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Discovered {
    /// The topology for the policies.
    pub topology: Topology,
    /// Identity of the processor.
    pub identity: CpuIdentity,
    /// The caches of the first CPU, by level.
    pub caches: Vec<Cache>,
    /// Firmware's values for each node's memory (ACPI HMAT), by index. Most machines have none.
    pub firmware: Vec<Option<Firmware>>,
    /// Contradictions and assumptions, in the order of reading.
    pub notes: Vec<Note>,
}

/// Bandwidth and latency of a node's memory from its nearest CPUs, by firmware.
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
/// A list of CPUs or nodes, or a node's memory is malformed. Or the list of online CPUs is missing,
/// or the files contradict each other. Other malformed files only give a note.
pub fn discover(root: &Root) -> Result<Discovered, LinuxError> {
    let mut reader = Reader::new(root);
    let identity = identity(root)?;
    let nodes = nodes::read(&mut reader)?;
    let isolated = isolated_cpus(&reader)?;
    let (mut numbering, mut cpus) = (cpu::Cpus::default(), Vec::new());
    for (index, node) in nodes.iter().enumerate() {
        let is_isolated = |cpu| isolated.binary_search(&cpu).is_ok();
        cpus.extend(numbering.read(&mut reader, index, &node.cpus, is_isolated));
    }
    reader.notes.extend(numbering.notes());
    let first = cpus.iter().map(|cpu| cpu.kernel_id).min().unwrap_or(0);
    let distances = distances::read(&mut reader, &nodes)?;
    let clock_hz = clock::nominal_hz(&mut reader, first, &identity);
    let caches = cpu::caches(&mut reader, first);
    let firmware = nodes.iter().map(|node| firmware(&mut reader, node.kernel_id)).collect();
    let describe = |node: nodes::FoundNode| NodeDescription {
        kernel_id: node.kernel_id,
        memory: node.memory,
        controller_bytes_per_s: None,
    };
    let nodes = nodes.into_iter().map(describe).collect();
    let description = Description { clock_hz, distances, ..Description::plain(nodes, cpus) };
    let topology = Topology::new(description)?;
    Ok(Discovered { topology, identity, caches, firmware, notes: reader.notes })
}

/// Identity of the processor; empty without `/proc/cpuinfo`.
fn identity(root: &Root) -> Result<CpuIdentity, LinuxError> {
    let mut scan = cpuinfo::Scan::default();
    if let Some(mut lines) = Lines::open(&root.in_proc("cpuinfo"))? {
        while let Some((_, line)) = lines.next_or_empty()? {
            if scan.take(line) {
                break;
            }
        }
    }
    Ok(scan.identity())
}

fn isolated_cpus(reader: &Reader<'_>) -> Result<Vec<u32>, LinuxError> {
    let mut cpus = Vec::new();
    for file in ["isolated", "nohz_full"] {
        let path = format!("devices/system/cpu/{file}");
        cpus.extend(reader.parsed(&path, list_or_null)?.unwrap_or_default());
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Parses a list of CPUs. The kernel prints `(null)` if nohz_full is compiled in but not used.
fn list_or_null(bytes: &[u8]) -> Result<Vec<u32>, ParseError> {
    if fields::trim(bytes) == b"(null)" { Ok(Vec::new()) } else { cpulist::parse(bytes) }
}

/// Plausible bandwidths in MB/s and latencies in ns of memory. Firmware writes all ones for
/// unknown.
const PLAUSIBLE: std::ops::RangeInclusive<u64> = 1..=10_000_000;

/// Firmware's values for a node, from `access0`, the class of the nearest initiators
/// (Documentation/admin-guide/mm/numaperf.rst). The kernel gives MB/s and ns, and zero for missing
/// values.
fn firmware(reader: &mut Reader<'_>, kernel_id: u32) -> Option<Firmware> {
    let mut file = |name: &str| {
        let path = format!("devices/system/node/node{kernel_id}/access0/initiators/{name}");
        let number = reader.told(&path, fields::single_number)?;
        PLAUSIBLE.contains(&number).then_some(number as f64)
    };
    let (bandwidth_mb_s, latency_ns) = (file("read_bandwidth")?, file("read_latency")?);
    Some(Firmware { bandwidth_mb_s, latency_ns })
}

#[cfg(test)]
mod tests;
