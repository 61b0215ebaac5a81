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
    /// Contradictions and assumptions, in the order of reading.
    pub notes: Vec<Note>,
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
/// The lists of CPUs and nodes, or a node's memory are malformed. The list of online CPUs is
/// missing. Or no machine can be as described. Other files are passed over with a note.
pub fn discover(root: &Root) -> Result<Discovered, LinuxError> {
    let mut reader = Reader::new(root);
    let identity = identity(root)?;
    let nodes = nodes::read(&mut reader)?;
    let isolated = isolated_cpus(&reader)?;
    let (mut numbering, mut cpus) = (cpu::Cpus::default(), Vec::new());
    for (index, node) in nodes.iter().enumerate() {
        for &number in &node.cpus {
            let is_isolated = isolated.binary_search(&number).is_ok();
            cpus.push(numbering.read(&mut reader, number, index, is_isolated));
        }
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

/// Which processor; nothing where `/proc/cpuinfo` is absent.
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

/// `(null)` is what the kernel prints where nohz_full is compiled in but not used.
fn list_or_null(bytes: &[u8]) -> Result<Vec<u32>, ParseError> {
    if fields::trim(bytes) == b"(null)" { Ok(Vec::new()) } else { cpulist::parse(bytes) }
}

/// Bandwidths in MB/s and latencies in ns that a memory may have. Firmware writes all ones for
/// unknown.
const PLAUSIBLE: std::ops::RangeInclusive<u64> = 1..=10_000_000;

/// `access0` is the class of the nearest initiators (Documentation/admin-guide/mm/numaperf.rst);
/// the kernel gives MB/s and ns, and zero for what firmware left out.
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
