//! The machine as text for a human.

use std::fmt::Write;

use rondpoint_core::{CpuSet, Topology};
use rondpoint_linux::parse::cpulist;
use rondpoint_linux::topology::Discovered;

/// Notes that are shown; the others are counted.
const NOTES: usize = 12;

/// The whole machine.
pub(super) fn text(found: &Discovered) -> String {
    let topology = &found.topology;
    let mut text = String::new();
    put_head(&mut text, found);
    for node in 0..topology.node_count() {
        put_node(&mut text, found, node);
    }
    if topology.node_count() > 1 {
        put_distances(&mut text, topology);
    }
    for cache in &found.caches {
        let shared = if cache.shared_by > 1 {
            format!(", shared by {} CPUs", cache.shared_by)
        } else {
            String::new()
        };
        let size = rondpoint_core::Bytes(cache.bytes);
        let _ = writeln!(text, "L{} {}: {size}{shared}", cache.level, cache.kind.to_lowercase());
    }
    put_notes(&mut text, found);
    text
}

/// Each note is a line: the text of a file that it quotes may have several.
fn put_notes(text: &mut String, found: &Discovered) {
    for note in found.notes.iter().take(NOTES) {
        let note = note.to_string();
        let _ = writeln!(text, "note: {}", note.lines().collect::<Vec<_>>().join(" "));
    }
    if let Some(more @ 1..) = found.notes.len().checked_sub(NOTES) {
        let _ = writeln!(text, "note: {more} more notes; `--json` has all of them.");
    }
}

fn put_head(text: &mut String, found: &Discovered) {
    let topology = &found.topology;
    let count = |number: usize, what: &str, many: &str| match number {
        1 => format!("1 {what}"),
        number => format!("{number} {many}"),
    };
    let name =
        if found.identity.name.is_empty() { "unknown processor" } else { &found.identity.name };
    let clock = topology.clock_hz().map_or(String::new(), |hz| format!(", {:.0} MHz", hz / 1e6));
    let parts = [
        count(topology.package_count(), "package", "packages"),
        count(topology.node_count(), "node", "nodes"),
        count(topology.domain_count(), "cache domain", "cache domains"),
        count(topology.cpu_count(), "CPU", "CPUs"),
    ];
    let _ = writeln!(text, "{name}{clock}: {}", parts.join(", "));
}

fn list(topology: &Topology, cpus: &CpuSet) -> String {
    cpulist::format(&cpus.iter().map(|cpu| topology.kernel_cpu(cpu)).collect::<Vec<u32>>())
}

fn put_node(text: &mut String, found: &Discovered, node: usize) {
    let topology = &found.topology;
    let cpus = topology.cpus_of_node(node);
    let who = if cpus.is_empty() {
        "no CPUs (memory only)".to_string()
    } else {
        format!("CPUs {}", list(topology, cpus))
    };
    let memory = match topology.memory(node) {
        rondpoint_core::Bytes(0) => "no memory".to_string(),
        bytes => bytes.to_string(),
    };
    let firmware = found.firmware[node].map_or(String::new(), |firmware| {
        let (rate, latency) = (firmware.bandwidth_mb_s, firmware.latency_ns);
        format!("; firmware says {rate:.0} MB/s, {latency:.0} ns")
    });
    let _ = writeln!(text, "node {}: {memory}, {who}{firmware}", topology.kernel_node(node));
    let domains: std::collections::BTreeSet<usize> =
        cpus.iter().map(|cpu| topology.domain_of_cpu(cpu)).collect();
    if domains.len() > 1 {
        for domain in domains {
            let cpus = list(topology, topology.cpus_of_domain(domain));
            let _ = writeln!(text, "  cache domain {domain}: CPUs {cpus}");
        }
    }
    let isolated: CpuSet = cpus.iter().filter(|&cpu| topology.cpu(cpu).isolated).collect();
    if !isolated.is_empty() {
        let _ = writeln!(text, "  isolated, never used: CPUs {}", list(topology, &isolated));
    }
}

fn put_distances(text: &mut String, topology: &Topology) {
    let nodes = 0..topology.node_count();
    let _ = write!(text, "distances (row accesses, column holds)\n      ");
    for node in nodes.clone() {
        let _ = write!(text, "{:>5}", topology.kernel_node(node));
    }
    text.push('\n');
    for accessing in nodes.clone() {
        let _ = write!(text, "{:>6}", topology.kernel_node(accessing));
        for holding in nodes.clone() {
            let _ = write!(text, "{:>5}", topology.distance(accessing, holding));
        }
        text.push('\n');
    }
}
