//! The machine as a machine file.
//!
//! sysfs has nodes, CPUs, caches and distances, and sometimes bandwidth and latency from the
//! firmware. All other values (links, bandwidths, latencies, the core) are assumed and marked as
//! assumed in the file. A measurement replaces them.

mod caches;

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use rondpoint_core::Topology;
use rondpoint_linux::topology::{Cache, Discovered};
use rondpoint_machine::Machine;
use rondpoint_machine::limits::{NODE_MEMORY_MAX, NODES_MAX};

// Assumptions about what sysfs does not tell: an unremarkable server of about 2020, as the
// synthetic machines of rondpoint-machine. They claim no source, and the file says so.
const CLOCK_MHZ: f64 = 2000.0;
const LATENCY_NS: f64 = 90.0;
const BANDWIDTH_PER_CPU_MB_S: f64 = 5000.0;
const LINK_SHARE: f64 = 0.5;
/// ACPI's distance of a node to itself.
const LOCAL_DISTANCE: f64 = 10.0;

/// The largest distance that a machine file holds: 255 means that there is no way.
const LARGEST_DISTANCE: u32 = 254;
/// Between cache domains of a node, ns.
const SAME_NODE_NS: f64 = 50.0;
/// Between caches of two nodes, ns, before the wire is added.
const TRANSFER_NS: f64 = 80.0;

/// The file's text. It is parsed once more before it is given away.
pub(super) fn text(found: &Discovered) -> Result<String> {
    let nodes = found.topology.node_count();
    if nodes > NODES_MAX {
        bail!("a machine file holds {NODES_MAX} nodes, and this machine has {nodes}");
    }
    let mut text = String::new();
    put_head(&mut text, found);
    put_caches(&mut text, &found.caches);
    for node in 0..found.topology.node_count() {
        put_node(&mut text, found, node);
    }
    put_interconnect(&mut text, found);
    put_transfer_and_pmu(&mut text, found);
    Machine::parse(&text, "the machine file of this machine")
        .context("this machine does not fit a machine file")?;
    Ok(text)
}

fn put_transfer_and_pmu(text: &mut String, found: &Discovered) {
    let (vendor, remark) = match found.identity.vendor.as_str() {
        "AuthenticAMD" | "HygonGenuine" => ("amd", ""),
        "GenuineIntel" => ("intel", ""),
        vendor if vendor.starts_with("0x") => ("arm", ""),
        _ => ("intel", "       # assumed"),
    };
    let topology = &found.topology;
    let _ = write!(
        text,
        "\n[transfer]             # assumed\nsame_domain_ns = 25\nsame_node_ns = {SAME_NODE_NS}\n\
         forwards_clean = {}\n",
        vendor == "intel"
    );
    let compute = topology.compute_nodes();
    if compute.iter().all(|node| topology.has_memory(node)) {
        let _ = writeln!(text, "remote_ns = {TRANSFER_NS}");
    } else {
        // Without a controller there is no latency that tells the wire's part.
        text.push_str("matrix_ns = [          # in proportion to distance\n");
        put_rows(text, topology.node_count(), |accessing, owner| {
            let wire = LATENCY_NS * (relative_distance(topology, accessing, owner) - 1.0);
            match compute.contains(accessing) && compute.contains(owner) {
                false => "0".to_string(),
                true if accessing == owner => SAME_NODE_NS.to_string(),
                true => format!("{:.1}", TRANSFER_NS + wire),
            }
        });
        text.push_str("]\n");
    }
    let _ = write!(
        text,
        "\n[pmu]\ncounters = 4           # assumed\nvendor = \"{vendor}\"{remark}\n\
         sample_cost_ns = 1000  # assumed\nread_cost_ns = 50      # assumed\n"
    );
}

/// Rows of a matrix, one for each accessing node.
fn put_rows(text: &mut String, nodes: usize, cell: impl Fn(usize, usize) -> String) {
    for accessing in 0..nodes {
        let row: Vec<String> = (0..nodes).map(|holding| cell(accessing, holding)).collect();
        let _ = writeln!(text, "  [{}],", row.join(", "));
    }
}

/// The distance that the file gives two nodes.
fn distance(topology: &Topology, accessing: usize, holding: usize) -> u32 {
    topology.distance(accessing, holding).min(LARGEST_DISTANCE)
}

/// How many times as far as a node is from itself.
fn relative_distance(topology: &Topology, accessing: usize, holding: usize) -> f64 {
    f64::from(distance(topology, accessing, holding)) / LOCAL_DISTANCE
}

fn put_head(text: &mut String, found: &Discovered) {
    let topology = &found.topology;
    // A name or title in a basic string must not end it.
    let name: String =
        found.identity.name.chars().filter(|letter| can_be_quoted(*letter)).collect();
    let name = if name.trim().is_empty() { "unknown processor" } else { name.trim() };
    let (nodes, cpus) = (topology.node_count(), topology.cpu_count());
    let clock = topology.clock_hz().map_or(CLOCK_MHZ, |hz| hz / 1e6);
    let told = if topology.clock_hz().is_some() { "" } else { "  # assumed" };
    let _ = write!(
        text,
        "# Found by `rondpoint topology --write-machine`. What sysfs does not tell is marked: assumed.\n\
         name = \"here\"\ntitle = \"{name}: {nodes} nodes, {cpus} CPUs\"\n\
         source = \"sysfs; latencies, bandwidths and links are assumptions, not measurements\"\n\
         nodes_per_package = {}\n\n[core]\nclock_mhz = {clock}{told}\n\
         cycles_per_instruction = 0.5   # assumed\noutstanding_misses = 10        # assumed\n\
         reorder_window = 200           # assumed\nthreads_per_core = {}\n",
        nodes_per_package(topology),
        threads_per_core(topology)
    );
}

fn can_be_quoted(letter: char) -> bool {
    !matches!(letter, '"' | '\\') && !letter.is_control()
}

/// How many nodes with CPUs each package has, if all have the same; else one.
fn nodes_per_package(topology: &Topology) -> usize {
    let (nodes, packages) = (topology.compute_nodes().len(), topology.package_count());
    if packages > 0 && nodes % packages == 0 { (nodes / packages).max(1) } else { 1 }
}

/// Hardware threads of a core in a machine file; POWER has 8.
const MOST_THREADS_PER_CORE: usize = 8;

/// The number that divides the CPUs of every node, if the cores have as many.
fn threads_per_core(topology: &Topology) -> usize {
    let cores = topology.cpus().iter().map(|cpu| cpu.core + 1).max().unwrap_or(1);
    let threads = topology.cpu_count() / cores.max(1);
    let fits = (0..topology.node_count())
        .all(|node| topology.cpus_of_node(node).len().is_multiple_of(threads.max(1)));
    if (1..=MOST_THREADS_PER_CORE).contains(&threads) && fits { threads } else { 1 }
}

fn put_caches(text: &mut String, caches: &[Cache]) {
    text.push_str("\n[caches]                       # latencies assumed\n");
    for (name, latency, level) in caches::levels(caches) {
        let caches::Level { bytes, ways, remark } = level;
        let size = if bytes % 1024 == 0 { format!("{}K", bytes >> 10) } else { bytes.to_string() };
        let remark = remark.map_or(String::new(), |remark| format!("  # {remark}"));
        let _ = writeln!(
            text,
            "{name} = {{ size = \"{size}\", ways = {ways}, latency_ns = {latency} }}{remark}"
        );
    }
    text.push_str("\n[prefetch]                     # assumed\nstreams = 16\ndepth = 8\n");
}

fn put_node(text: &mut String, found: &Discovered, node: usize) {
    let topology = &found.topology;
    let cpus = topology.cpus_of_node(node);
    let domains: std::collections::BTreeSet<usize> =
        cpus.iter().map(|cpu| topology.domain_of_cpu(cpu)).collect();
    let _ =
        write!(text, "\n[[nodes]]                      # node {}\n", topology.kernel_node(node));
    if !cpus.is_empty() {
        let domains = if cpus.len().is_multiple_of(domains.len()) { domains.len() } else { 1 };
        let _ = writeln!(text, "cpus = {}\ncache_domains = {domains}", cpus.len());
    }
    if topology.has_memory(node) {
        let (bandwidth, latency, source) = controller(found, node);
        let told = topology.memory(node).0;
        let remark = if told > NODE_MEMORY_MAX { "  # adjusted: sysfs reports more" } else { "" };
        let _ = writeln!(
            text,
            "memory = {}{remark}\ncontroller = {{ bandwidth_mb_s = {bandwidth}, latency_ns = {latency}, \
             burst_latency_ns = {latency} }}  # {source}; burst assumed",
            told.min(NODE_MEMORY_MAX)
        );
    }
}

fn controller(found: &Discovered, node: usize) -> (f64, f64, &'static str) {
    if let Some(firmware) = found.firmware[node] {
        return (firmware.bandwidth_mb_s, firmware.latency_ns, "firmware (HMAT)");
    }
    let most = (0..found.topology.node_count()).map(|node| found.topology.cpus_of_node(node).len());
    let bandwidth = BANDWIDTH_PER_CPU_MB_S * most.max().unwrap_or(1).max(1) as f64;
    (bandwidth, LATENCY_NS, "assumed")
}

/// All nodes linked to each other; the latency of a pair grows with its distance.
fn put_interconnect(text: &mut String, found: &Discovered) {
    let topology = &found.topology;
    let nodes = topology.node_count();
    text.push_str(
        "\n[interconnect]                 # links assumed; distances are the firmware's\n",
    );
    text.push_str("links = [\n");
    for a in 0..nodes {
        for b in a + 1..nodes {
            let bandwidth = LINK_SHARE * controller(found, a).0.min(controller(found, b).0);
            let _ = writeln!(text, "  {{ between = [{a}, {b}], bandwidth_mb_s = {bandwidth} }},");
        }
    }
    text.push_str("]\ndistances = [\n");
    put_rows(text, nodes, |a, b| distance(topology, a, b).to_string());
    text.push_str(
        "]\nlatency_ns = [                 # assumed: the holder's, in proportion to distance\n",
    );
    put_rows(text, nodes, |a, b| {
        let latency = controller(found, b).1 * relative_distance(topology, a, b);
        format!("{:.1}", if topology.has_memory(b) { latency } else { 0.0 })
    });
    text.push_str("]\n");
}
