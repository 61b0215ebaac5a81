//! The machine as a machine file.
//!
//! sysfs knows nodes, CPUs, caches and distances; firmware sometimes bandwidth and latency. What is
//! left (links, bandwidths, latencies, the core) is assumed and marked so in the file. A
//! measurement replaces it.

use std::fmt::Write;

use anyhow::{Context, Result};
use rondpoint_core::Topology;
use rondpoint_linux::topology::{Cache, Discovered};
use rondpoint_machine::Machine;

// Assumptions about what sysfs does not tell: an unremarkable server of about 2020, as the
// synthetic machines of rondpoint-machine. They claim no source, and the file says so.
const CLOCK_MHZ: f64 = 2000.0;
const LATENCY_NS: f64 = 90.0;
const BANDWIDTH_PER_CPU_MB_S: f64 = 5000.0;
const LINK_SHARE: f64 = 0.5;
/// ACPI's distance of a node to itself.
const LOCAL_DISTANCE: f64 = 10.0;

/// The file's text. It is parsed once more before it is given away.
pub(super) fn text(found: &Discovered) -> Result<String> {
    let mut text = String::new();
    put_head(&mut text, found);
    put_caches(&mut text, &found.caches);
    for node in 0..found.topology.node_count() {
        put_node(&mut text, found, node);
    }
    put_interconnect(&mut text, found);
    let vendor = match found.identity.vendor.as_str() {
        "AuthenticAMD" | "HygonGenuine" => "amd",
        vendor if vendor.starts_with("0x") => "arm",
        _ => "intel",
    };
    let _ = write!(
        text,
        "\n[transfer]             # assumed\nsame_domain_ns = 25\nsame_node_ns = 50\nremote_ns = 80\n\
         forwards_clean = {}\n",
        vendor == "intel"
    );
    let _ = write!(
        text,
        "\n[pmu]\ncounters = 4           # assumed\nvendor = \"{vendor}\"\nsample_cost_ns = 1000  # assumed\n\
         read_cost_ns = 50      # assumed\n"
    );
    Machine::parse(&text, "the machine file of this machine")
        .context("this machine does not fit a machine file")?;
    Ok(text)
}

fn put_head(text: &mut String, found: &Discovered) {
    let topology = &found.topology;
    // A name or title in a basic string must not end it.
    let name: String =
        found.identity.name.chars().filter(|letter| !matches!(letter, '"' | '\\')).collect();
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

/// How many nodes with CPUs each package has, if all have the same; else one.
fn nodes_per_package(topology: &Topology) -> usize {
    let (nodes, packages) = (topology.compute_nodes().len(), topology.package_count());
    if packages > 0 && nodes % packages == 0 { (nodes / packages).max(1) } else { 1 }
}

/// The number that divides the CPUs of every node, if the cores have as many.
fn threads_per_core(topology: &Topology) -> usize {
    let cores = topology.cpus().iter().map(|cpu| cpu.core + 1).max().unwrap_or(1);
    let threads = topology.cpu_count() / cores.max(1);
    let fits = (0..topology.node_count())
        .all(|node| topology.cpus_of_node(node).len().is_multiple_of(threads.max(1)));
    if threads > 0 && fits { threads } else { 1 }
}

fn put_caches(text: &mut String, caches: &[Cache]) {
    let data = |level: u32| {
        caches.iter().find(|cache| cache.level == level && cache.kind != "Instruction")
    };
    let last = caches.iter().map(|cache| cache.level).max().filter(|level| *level > 2);
    text.push_str("\n[caches]                       # latencies assumed\n");
    let levels = [
        ("l1", data(1), 32 << 10, 8, 2.0),
        ("l2", data(2), 512 << 10, 8, 6.0),
        ("llc", last.and_then(data), 8 << 20, 16, 20.0),
    ];
    for (name, cache, bytes, ways, latency) in levels {
        let assumed = if cache.is_some() { "" } else { "  # assumed" };
        let size = cache.map_or(bytes, |cache| cache.bytes) >> 10;
        let ways = cache.and_then(|cache| cache.ways).unwrap_or(ways);
        let _ = writeln!(
            text,
            "{name} = {{ size = \"{size}K\", ways = {ways}, latency_ns = {latency} }}{assumed}"
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
        let _ = writeln!(
            text,
            "memory = {}\ncontroller = {{ bandwidth_mb_s = {bandwidth}, latency_ns = {latency}, \
             burst_latency_ns = {latency} }}  # {source}; burst assumed",
            topology.memory(node).0
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
    for a in 0..nodes {
        let row: Vec<String> = (0..nodes).map(|b| topology.distance(a, b).to_string()).collect();
        let _ = writeln!(text, "  [{}],", row.join(", "));
    }
    text.push_str(
        "]\nlatency_ns = [                 # assumed: the holder's, in proportion to distance\n",
    );
    for a in 0..nodes {
        let row: Vec<String> = (0..nodes)
            .map(|b| {
                let distance = f64::from(topology.distance(a, b)) / LOCAL_DISTANCE;
                let latency = controller(found, b).1 * distance;
                if topology.has_memory(b) { latency } else { 0.0 }
            })
            .map(|latency| format!("{latency:.1}"))
            .collect();
        let _ = writeln!(text, "  [{}],", row.join(", "));
    }
    text.push_str("]\n");
}
