//! The machine in hwloc's XML (format 2.0, hwloc2.dtd), for `lstopo -i FILE` and every program that
//! uses hwloc. Measured bandwidth and latency are its memory attributes.
//!
//! hwloc needs a tree in which each set of CPUs encloses those below it. A node is attached to the
//! object with exactly its CPUs; if there is none, a group is made.

use std::fmt::Write as _;

use rondpoint_core::{CpuSet, Topology};
use rondpoint_linux::topology::{Cache, Discovered};

use crate::calibrate::Calibration;

/// Flags of `struct hwloc_memattr`: higher or lower is better, and it depends on the accessing
/// node.
const BANDWIDTH_FLAGS: u32 = 1 | 4;
const LATENCY_FLAGS: u32 = 2 | 4;
/// Of a matrix of distances: the system tells it, and it means latency.
const DISTANCE_KIND: u32 = 1 | 4;
/// hwloc's bandwidth is in MiB/s.
const MIB_PER_MB: f64 = 1e6 / (1 << 20) as f64;
/// hwloc's number of a unified cache.
const UNIFIED: u32 = 0;
/// What a line of cache is on every processor that Rondpoint knows, in bytes.
const LINE_BYTES: u32 = 64;

/// What an object is, from the outermost to the innermost where sets are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Machine,
    Group,
    Package,
    Cache,
    Core,
    Thread,
}

struct Object {
    kind: Kind,
    /// The kernel's number, where it has one.
    number: Option<u32>,
    /// The kernel's numbers.
    cpus: CpuSet,
    /// Nodes of the topology that hang on it.
    nodes: Vec<usize>,
    children: Vec<Object>,
}

/// The document; with the measurements of a calibration where there is one.
pub(super) fn document(found: &Discovered, calibration: Option<&Calibration>) -> String {
    let cache = found.caches.iter().max_by_key(|cache| cache.level);
    let tree = tree(&found.topology, cache.is_some());
    let mut writer = Writer {
        topology: &found.topology,
        cache,
        text: String::new(),
        next: 1,
        nodes: vec![(0, CpuSet::new()); found.topology.node_count()],
    };
    writer.text += "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                    <!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n";
    writer.put(&tree, 1);
    writer.put_distances();
    if let Some(calibration) = calibration {
        let scaled = |rows: &[Vec<f64>], factor: f64| -> Vec<Vec<f64>> {
            rows.iter().map(|row| row.iter().map(|value| value * factor).collect()).collect()
        };
        let bandwidth = scaled(&calibration.bandwidth_mb_s, MIB_PER_MB);
        writer.put_attribute("Bandwidth", BANDWIDTH_FLAGS, &bandwidth);
        writer.put_attribute("Latency", LATENCY_FLAGS, &calibration.latency_ns);
    }
    writer.text + "</topology>\n"
}

/// All objects in each other; cache domains where a cache is known.
fn tree(topology: &Topology, has_cache: bool) -> Object {
    let kernel = |cpus: &CpuSet| -> CpuSet {
        cpus.iter().map(|cpu| topology.kernel_cpu(cpu) as usize).collect()
    };
    let object = |kind, number: Option<usize>, cpus: CpuSet| {
        let number = number.and_then(|number| u32::try_from(number).ok());
        Object { kind, number, cpus, nodes: Vec::new(), children: Vec::new() }
    };
    let mut machine = object(Kind::Machine, Some(0), kernel(&topology.all_cpus()));
    let mut others = Vec::new();
    for package in 0..topology.package_count() {
        let cpus = kernel(topology.cpus_of_package(package));
        others.push(object(Kind::Package, Some(package), cpus));
    }
    for domain in (0..topology.domain_count()).filter(|_| has_cache) {
        others.push(object(Kind::Cache, None, kernel(topology.cpus_of_domain(domain))));
    }
    let mut cores = std::collections::BTreeMap::<usize, CpuSet>::new();
    for cpu in topology.cpus() {
        let number = cpu.kernel_id as usize;
        cores.entry(cpu.core).or_default().insert(number);
        others.push(object(Kind::Thread, Some(number), [number].into_iter().collect()));
    }
    others.extend(cores.into_iter().map(|(core, cpus)| object(Kind::Core, Some(core), cpus)));
    for node in topology.compute_nodes().iter() {
        let cpus = kernel(topology.cpus_of_node(node));
        // A group is wanted only where nothing else has a node's CPUs.
        if others.iter().chain([&machine]).all(|other| other.cpus != cpus) {
            others.push(object(Kind::Group, None, cpus));
        }
    }
    others.sort_by_key(|one| (std::cmp::Reverse(one.cpus.len()), one.kind));
    for one in others {
        machine.insert(one);
    }
    for node in 0..topology.node_count() {
        machine.hang(node, &kernel(topology.cpus_of_node(node)));
    }
    machine.settle();
    machine
}

impl Object {
    /// Puts an object into the innermost object that encloses it. An object that crosses another's
    /// border is left out: hwloc has no place for it.
    fn insert(&mut self, one: Object) {
        if let Some(child) = self.children.iter_mut().find(|child| one.cpus.is_subset(&child.cpus))
        {
            return child.insert(one);
        }
        if self.children.iter().all(|child| !one.cpus.intersects(&child.cpus)) {
            self.children.push(one);
        }
    }

    /// Hangs a node on the outermost object with exactly these CPUs, or else on the innermost that
    /// encloses them. Memory alone hangs on the machine.
    fn hang(&mut self, node: usize, cpus: &CpuSet) {
        let is_inside = |child: &&mut Self| !cpus.is_empty() && cpus.is_subset(&child.cpus);
        match self.children.iter_mut().find(is_inside) {
            Some(child) if self.cpus != *cpus => child.hang(node, cpus),
            _ => self.nodes.push(node),
        }
    }

    /// Orders children by their first CPU, as hwloc has them.
    fn settle(&mut self) {
        self.children.sort_by_key(|child| child.cpus.iter().next());
        self.children.iter_mut().for_each(Object::settle);
    }

    /// Nodes of the topology with the memory nearest to these CPUs.
    fn all_nodes(&self, topology: &Topology) -> Vec<u32> {
        let is_here = |cpu: &usize| self.cpus.contains(topology.kernel_cpu(*cpu) as usize);
        let cpus = (0..topology.cpu_count()).filter(is_here);
        let mut nodes: Vec<usize> = cpus.map(|cpu| topology.node_of_cpu(cpu)).collect();
        nodes.extend(&self.nodes);
        nodes.sort_unstable();
        nodes.dedup();
        nodes.into_iter().map(|node| topology.kernel_node(node)).collect()
    }
}

struct Writer<'a> {
    topology: &'a Topology,
    /// The last-level cache.
    cache: Option<&'a Cache>,
    text: String,
    /// The next object's number for others to name it by.
    next: usize,
    /// Each node's such number, and the CPUs beside it.
    nodes: Vec<(usize, CpuSet)>,
}

impl Writer<'_> {
    fn put(&mut self, object: &Object, depth: usize) {
        let indent = "  ".repeat(depth);
        let kind = match (object.kind, self.cache) {
            (Kind::Machine, _) => "Machine".to_string(),
            (Kind::Group, _) => "Group".to_string(),
            (Kind::Package, _) => "Package".to_string(),
            (Kind::Core, _) => "Core".to_string(),
            (Kind::Thread, _) => "PU".to_string(),
            (Kind::Cache, Some(cache)) => format!("L{}Cache", cache.level),
            (Kind::Cache, None) => "Group".to_string(),
        };
        let nodes = object.all_nodes(self.topology);
        let _ = write!(self.text, "{indent}<object type=\"{kind}\"");
        if let Some(number) = object.number {
            let _ = write!(self.text, " os_index=\"{number}\"");
        }
        self.put_sets(&object.cpus, &nodes, object.kind == Kind::Machine);
        match (object.kind, self.cache) {
            (Kind::Group, _) => self.text += " kind=\"0\" subkind=\"0\"",
            (Kind::Cache, Some(cache)) => {
                let (bytes, level) = (cache.bytes, cache.level);
                let ways = cache.ways.unwrap_or(0);
                let _ = write!(
                    self.text,
                    " cache_size=\"{bytes}\" depth=\"{level}\" cache_linesize=\"{LINE_BYTES}\" \
                     cache_associativity=\"{ways}\" cache_type=\"{UNIFIED}\""
                );
            }
            _ => {}
        }
        self.text += ">\n";
        for &node in &object.nodes {
            let number = self.topology.kernel_node(node);
            let _ = write!(self.text, "{indent}  <object type=\"NUMANode\" os_index=\"{number}\"");
            self.nodes[node] = (self.next, object.cpus.clone());
            self.put_sets(&object.cpus, &[number], false);
            let _ = writeln!(self.text, " local_memory=\"{}\"/>", self.topology.memory(node).0);
        }
        for child in &object.children {
            self.put(child, depth + 1);
        }
        let _ = writeln!(self.text, "{indent}</object>");
    }

    fn put_sets(&mut self, cpus: &CpuSet, nodes: &[u32], is_root: bool) {
        let cpus = mask(cpus);
        let nodes = mask(&nodes.iter().map(|node| *node as usize).collect());
        let _ = write!(
            self.text,
            " cpuset=\"{cpus}\" complete_cpuset=\"{cpus}\" nodeset=\"{nodes}\" \
             complete_nodeset=\"{nodes}\" gp_index=\"{}\"",
            self.next
        );
        if is_root {
            let _ = write!(self.text, " allowed_cpuset=\"{cpus}\" allowed_nodeset=\"{nodes}\"");
        }
        self.next += 1;
    }

    fn put_distances(&mut self) {
        let count = self.topology.node_count();
        if count < 2 {
            return;
        }
        let joined = |numbers: Vec<u32>| {
            numbers.iter().fold(String::new(), |mut text, number| {
                let _ = write!(text, "{number} ");
                text
            })
        };
        let indexes = joined((0..count).map(|node| self.topology.kernel_node(node)).collect());
        let _ = writeln!(
            self.text,
            "  <distances2 type=\"NUMANode\" nbobjs=\"{count}\" kind=\"{DISTANCE_KIND}\" \
             name=\"NUMALatency\" indexing=\"os\">\n    <indexes length=\"{}\">{indexes}</indexes>",
            indexes.len()
        );
        for from in 0..count {
            let row = joined((0..count).map(|to| self.topology.distance(from, to)).collect());
            let _ =
                writeln!(self.text, "    <u64values length=\"{}\">{row}</u64values>", row.len());
        }
        self.text += "  </distances2>\n";
    }

    /// Values by accessing and holding node; values that were not measured are left out.
    fn put_attribute(&mut self, name: &str, flags: u32, values: &[Vec<f64>]) {
        let _ = writeln!(self.text, "  <memattr name=\"{name}\" flags=\"{flags}\">");
        for (from, row) in values.iter().enumerate() {
            let cpus = self.topology.cpus_of_node(from).iter();
            let cpus: CpuSet = cpus.map(|cpu| self.topology.kernel_cpu(cpu) as usize).collect();
            for (to, value) in row.iter().enumerate().filter(|(_, value)| **value > 0.0) {
                let _ = writeln!(
                    self.text,
                    "    <memattr_value target_obj_gp_index=\"{}\" target_obj_type=\"NUMANode\" \
                     value=\"{value:.0}\" initiator_cpuset=\"{}\"/>",
                    self.nodes[to].0,
                    mask(&cpus)
                );
            }
        }
        self.text += "  </memattr>\n";
    }
}

/// A set as hwloc writes it: groups of 32 bits, the highest first.
fn mask(set: &CpuSet) -> String {
    let halves: Vec<u32> =
        set.words().iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]).collect();
    let last = halves.iter().rposition(|half| *half != 0).unwrap_or(0);
    let groups: Vec<String> = (0..=last)
        .rev()
        .map(|at| format!("{:#010x}", halves.get(at).copied().unwrap_or(0)))
        .collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::{Description, synthetic};

    use super::*;

    fn found(description: Description) -> Discovered {
        let node_count = description.nodes.len();
        let cache = Cache {
            level: 3,
            kind: "Unified".into(),
            bytes: 32 << 20,
            ways: Some(16),
            shared_by: 2,
        };
        Discovered {
            topology: Topology::new(description).expect("a machine"),
            identity: rondpoint_linux::parse::cpuinfo::CpuIdentity::default(),
            caches: vec![cache],
            firmware: vec![None; node_count],
            notes: Vec::new(),
        }
    }

    /// Types in each other, as `Machine(Package(Node L3Cache(Core(PU))))`, and that every element
    /// is closed.
    fn shape(document: &str) -> String {
        let mut shape = String::new();
        let mut open = 0;
        for line in document.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("<object type=\"") {
                let kind = rest.split('"').next().expect("a type");
                shape += kind;
                match line.ends_with("/>") {
                    true => shape.push(' '),
                    false => {
                        shape.push('(');
                        open += 1;
                    }
                }
            } else if line == "</object>" {
                shape.push(')');
                open -= 1;
            }
        }
        assert_eq!(open, 0, "{document}");
        shape
    }

    #[test]
    fn a_machine_of_two_sockets_is_a_tree_with_a_node_on_each() {
        let found =
            found(synthetic::describe("node:2 llc:1 core:1 pu:2 mem:1").expect("a machine"));
        let document = document(&found, None);
        let socket = "Package(NUMANode L3Cache(Core(PU()PU())))";
        assert_eq!(shape(&document), format!("Machine({socket}{socket})"), "{document}");
        assert!(
            document.contains("<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x0000000c\"")
        );
        assert!(document.contains("local_memory=\"1073741824\""));
        assert!(document.contains("<u64values length=\"6\">10 20 </u64values>"), "{document}");
        assert!(!document.contains("memattr"), "nothing was measured");
    }

    #[test]
    fn nodes_within_a_socket_are_groups_and_memory_alone_hangs_on_the_machine() {
        let mut description = synthetic::describe("node:3 core:2 mem:1").expect("a machine");
        for cpu in &mut description.cpus {
            cpu.package = 0;
        }
        description.cpus.retain(|cpu| cpu.node < 2);
        let shown = shape(&document(&found(description), None));
        assert!(shown.starts_with("Machine(NUMANode Package("), "{shown}");
        assert_eq!(shown.matches("NUMANode").count(), 3, "{shown}");
    }

    #[test]
    fn measurements_are_memory_attributes_of_the_nodes() {
        let found = found(synthetic::describe("node:2 core:1").expect("a machine"));
        let mut calibration = Calibration::of(&found.topology, None);
        calibration.bandwidth_mb_s = vec![vec![1048.576, 0.0], vec![0.0, 0.0]];
        calibration.latency_ns = vec![vec![80.0, 140.0], vec![0.0, 0.0]];
        let document = document(&found, Some(&calibration));
        let node = |number: u32| {
            let line = document.lines().find(|line| {
                line.contains("NUMANode\"") && line.contains(&format!("os_index=\"{number}\""))
            });
            let rest = line.and_then(|line| line.split_once("gp_index=\"")).expect("a node").1;
            rest.split('"').next().expect("a number").to_owned()
        };
        let value = |target: String, value: u32| {
            format!(
                "<memattr_value target_obj_gp_index=\"{target}\" target_obj_type=\"NUMANode\" \
                 value=\"{value}\" initiator_cpuset=\"0x00000001\"/>"
            )
        };
        assert!(document.contains(&value(node(0), 1000)), "MiB/s: {document}");
        assert!(document.contains(&value(node(1), 140)), "{document}");
        assert_eq!(document.matches("<memattr_value").count(), 3);
    }

    #[test]
    fn masks_are_groups_of_32_bits() {
        assert_eq!(mask(&CpuSet::new()), "0x00000000");
        assert_eq!(mask(&[0, 33].into_iter().collect()), "0x00000002,0x00000001");
        assert_eq!(mask(&[95].into_iter().collect()), "0x80000000,0x00000000,0x00000000");
    }
}
