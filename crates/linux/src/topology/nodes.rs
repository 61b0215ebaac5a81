//! The nodes and CPUs of the machine, and the node of each CPU.
//!
//! The kernel has three sources: lists of online CPUs and nodes, each node's list of CPUs, and a
//! link `cpuN/nodeM` in each CPU's folder. On real machines these contradict each other. A
//! container may show its own `cpu/online` beside the host's other files. A kernel with `numa=fake`
//! lists a CPU in several nodes. A node may be offline while its CPUs run.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::Bytes;

use super::Note;
use super::reader::Reader;
use crate::LinuxError;
use crate::parse::{cpulist, fields, meminfo};
use crate::root;

const NODES: &str = "devices/system/node";
const CPUS: &str = "devices/system/cpu";

/// A node with CPUs or memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundNode {
    pub(super) kernel_id: u32,
    pub(super) memory: Bytes,
    /// CPUs of the node, the kernel's numbers, ascending.
    pub(super) cpus: Vec<u32>,
}

/// The nodes with CPUs or memory, by number.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Vec<FoundNode>, LinuxError> {
    let online = reader.list(&format!("{CPUS}/online"))?.ok_or_else(|| {
        let path = reader.root.in_sys(CPUS).join("online");
        LinuxError::io(&path, "open", std::io::Error::from_raw_os_error(libc::ENOENT))
    })?;
    let numbers = numbers(reader)?;
    if numbers.is_empty() {
        // A kernel without NUMA has no nodes in sysfs, so the machine is one node.
        let memory = memory_of_machine(reader)?;
        return Ok(vec![FoundNode { kernel_id: 0, memory, cpus: online }]);
    }
    let mut lists = Vec::new();
    for number in &numbers {
        lists.push(cpus_listed(reader, *number)?);
    }
    let cpus = running(reader, &online, &lists);
    let node_of = Assignment::new(reader, &numbers, &lists, &cpus).finish(reader);
    let mut nodes = Vec::new();
    for (index, kernel_id) in numbers.into_iter().enumerate() {
        let path = format!("{NODES}/node{kernel_id}/meminfo");
        let memory = Bytes(reader.parsed(&path, meminfo::total_bytes)?.unwrap_or(0));
        let cpus: Vec<u32> = cpus.iter().copied().filter(|cpu| node_of[cpu] == index).collect();
        if !cpus.is_empty() || memory > Bytes(0) {
            nodes.push(FoundNode { kernel_id, memory, cpus });
        }
    }
    if let [only] = &mut nodes[..]
        && only.memory == Bytes(0)
    {
        only.memory = memory_of_machine(reader)?;
        reader.notes.push(Note::MemoryOfMachine);
    }
    Ok(nodes)
}

/// Numbers of the online nodes; none on a kernel without NUMA.
pub(super) fn numbers(reader: &mut Reader<'_>) -> Result<Vec<u32>, LinuxError> {
    let folders = reader.numbered(NODES, "node");
    let Some(listed) = reader.list(&format!("{NODES}/online"))? else { return Ok(folders) };
    if folders.is_empty() || listed.iter().any(|number| folders.contains(number)) {
        return Ok(listed);
    }
    let note = Note::NodesDiffer { listed, counted: folders.clone() };
    if !reader.notes.contains(&note) {
        reader.notes.push(note);
    }
    Ok(folders)
}

fn cpus_listed(reader: &Reader<'_>, node: u32) -> Result<Vec<u32>, LinuxError> {
    let list = reader.list(&format!("{NODES}/node{node}/cpulist"))?;
    let mask = || reader.parsed(&format!("{NODES}/node{node}/cpumap"), cpulist::parse_mask);
    Ok(list.map_or_else(mask, |list| Ok(Some(list)))?.unwrap_or_default())
}

/// Memory of the machine by `/proc/meminfo`; zero if it has none.
fn memory_of_machine(reader: &Reader<'_>) -> Result<Bytes, LinuxError> {
    let text = root::read_optional(&reader.root.in_proc("meminfo"))?.unwrap_or_default();
    let kib = fields::lines(&text).find_map(|(_, line)| {
        let rest = line.strip_prefix(b"MemTotal:")?;
        fields::words(rest).next().and_then(fields::decimal)
    });
    Ok(Bytes(kib.unwrap_or(0).saturating_mul(1024)))
}

/// The online CPUs: those in both lists, and those in one list whose folders show that they are
/// online. The kernel lists only online CPUs in a node. A node with none so far therefore keeps its
/// list, without CPUs that have an `online` file.
fn running(reader: &mut Reader<'_>, online: &[u32], lists: &[Vec<u32>]) -> Vec<u32> {
    let folders: BTreeSet<u32> = reader.numbered(CPUS, "cpu").into_iter().collect();
    let listed: BTreeSet<u32> = lists.iter().flatten().copied().collect();
    let all: BTreeSet<u32> = online.iter().chain(&listed).copied().collect();
    let mut differs = false;
    let mut runs = |cpu: &u32| {
        let is_online = online.binary_search(cpu).is_ok();
        if is_online && listed.contains(cpu) {
            return true;
        }
        let state = reader.told(&format!("{CPUS}/cpu{cpu}/online"), fields::single_number);
        // Only online CPUs have a topology folder.
        let topology = || reader.root.in_sys(format!("{CPUS}/cpu{cpu}/topology")).exists();
        let runs = match (state, is_online) {
            (Some(state), _) => state != 0,
            (None, _) if folders.is_empty() => true,
            (None, true) => folders.contains(cpu),
            (None, false) => topology(),
        };
        differs |= runs != is_online;
        runs
    };
    let mut counted: BTreeSet<u32> = all.iter().filter(|cpu| runs(cpu)).copied().collect();
    let is_off = |cpu: &u32| reader.root.in_sys(format!("{CPUS}/cpu{cpu}/online")).exists();
    for list in lists {
        if !list.iter().any(|cpu| counted.contains(cpu)) {
            let hidden: Vec<u32> = list.iter().copied().filter(|cpu| !is_off(cpu)).collect();
            differs |= !hidden.is_empty();
            counted.extend(hidden);
        }
    }
    let counted: Vec<u32> = counted.into_iter().collect();
    if differs && !counted.is_empty() {
        let note = Note::OnlineDiffers { listed: online.to_vec(), counted: counted.clone() };
        reader.notes.push(note);
    }
    if counted.is_empty() { online.to_vec() } else { counted }
}

/// The node of each CPU by index, if known, and the contradictions found.
#[derive(Default)]
struct Assignment {
    node_of: BTreeMap<u32, usize>,
    numbers: Vec<u32>,
    several: [Vec<u32>; 2],
    differs: Vec<u32>,
    homeless: Vec<u32>,
}

impl Assignment {
    fn new(reader: &Reader<'_>, numbers: &[u32], lists: &[Vec<u32>], cpus: &[u32]) -> Self {
        let mut found = Self { numbers: numbers.to_vec(), ..Self::default() };
        let mut listing: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (index, list) in lists.iter().enumerate() {
            list.iter().for_each(|cpu| listing.entry(*cpu).or_default().push(index));
        }
        for &cpu in cpus {
            let nodes = listing.get(&cpu).map_or(&[][..], Vec::as_slice);
            found.assign(cpu, nodes, link(reader, numbers, cpu));
        }
        found
    }

    /// Assigns a CPU to a node. The link decides, because the kernel makes it from the node that it
    /// uses itself.
    fn assign(&mut self, cpu: u32, listing: &[usize], link: Option<usize>) {
        match listing {
            [_, _, ..] => self.several[usize::from(link.is_some())].push(cpu),
            [node] if link.is_some_and(|link| link != *node) => self.differs.push(cpu),
            _ => {}
        }
        match link.or(listing.first().copied()) {
            Some(node) => drop(self.node_of.insert(cpu, node)),
            None => self.homeless.push(cpu),
        }
    }

    /// Assigns CPUs of no node to the node of most CPUs of their package, else to the first node.
    fn finish(mut self, reader: &mut Reader<'_>) -> BTreeMap<u32, usize> {
        let package_of = |cpu: u32| {
            let path = format!("{CPUS}/cpu{cpu}/topology/physical_package_id");
            reader.parsed(&path, fields::single_number).ok().flatten()
        };
        let mut by_node: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for cpu in std::mem::take(&mut self.homeless) {
            let package = package_of(cpu);
            let mut near = vec![0usize; self.numbers.len()];
            for (other, node) in self.node_of.iter().filter(|_| package.is_some()) {
                near[*node] += usize::from(package_of(*other) == package);
            }
            let most = near.iter().max().copied().unwrap_or(0);
            let node = near.iter().position(|count| *count == most).unwrap_or(0);
            by_node.entry(node).or_default().push(cpu);
        }
        for (node, cpus) in by_node {
            self.node_of.extend(cpus.iter().map(|cpu| (*cpu, node)));
            reader.notes.push(Note::OfNoNode { cpus, node: self.numbers[node] });
        }
        for (have_links, cpus) in [false, true].into_iter().zip(self.several) {
            if !cpus.is_empty() {
                reader.notes.push(Note::InSeveralNodes { cpus, have_links });
            }
        }
        if !self.differs.is_empty() {
            reader.notes.push(Note::LinkDiffers { cpus: self.differs });
        }
        self.node_of
    }
}

/// The index of the node in a CPU's folder; `None` if it has none or several.
fn link(reader: &Reader<'_>, numbers: &[u32], cpu: u32) -> Option<usize> {
    match reader.numbered(&format!("{CPUS}/cpu{cpu}"), "node")[..] {
        [node] => numbers.iter().position(|number| *number == node),
        _ => None,
    }
}
