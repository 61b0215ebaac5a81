//! The machine as JSON. Wire types: a name keeps its meaning within a schema number.

use anyhow::{Context, Result};
use rondpoint_core::Topology;
use rondpoint_linux::topology::Discovered;
use serde::Serialize;

const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Object {
    schema: u32,
    processor: Processor,
    nodes: Vec<Node>,
    cpus: Vec<Cpu>,
    /// ACPI SLIT, `[accessing][holding]`, 10 = local.
    distances: Vec<Vec<u32>>,
    caches: Vec<Cache>,
    cache_domains: usize,
    packages: usize,
    /// What the machine's files leave open or contradict.
    notes: Vec<Note>,
}

#[derive(Serialize)]
struct Note {
    kind: &'static str,
    text: String,
}

#[derive(Serialize)]
struct Processor {
    vendor: String,
    family: Option<u32>,
    model: Option<u32>,
    name: String,
    clock_hz: Option<f64>,
}

#[derive(Serialize)]
struct Node {
    node: u32,
    cpus: Vec<u32>,
    memory_bytes: u64,
    /// What the nearest CPUs draw, by firmware (ACPI HMAT).
    firmware_bandwidth_mb_s: Option<f64>,
    firmware_latency_ns: Option<f64>,
}

#[derive(Serialize)]
struct Cpu {
    cpu: u32,
    node: u32,
    cache_domain: usize,
    core: usize,
    package: usize,
    isolated: bool,
}

#[derive(Serialize)]
struct Cache {
    level: u32,
    kind: String,
    bytes: u64,
    ways: Option<u32>,
    shared_by: usize,
}

/// The whole machine.
pub(super) fn object(found: &Discovered) -> Result<String> {
    let topology = &found.topology;
    let identity = &found.identity;
    let object = Object {
        schema: SCHEMA,
        processor: Processor {
            vendor: identity.vendor.clone(),
            family: identity.family,
            model: identity.model,
            name: identity.name.clone(),
            clock_hz: topology.clock_hz(),
        },
        nodes: nodes(found),
        cpus: cpus(topology),
        distances: (0..topology.node_count())
            .map(|a| (0..topology.node_count()).map(|b| topology.distance(a, b)).collect())
            .collect(),
        caches: found
            .caches
            .iter()
            .map(|cache| Cache {
                level: cache.level,
                kind: cache.kind.clone(),
                bytes: cache.bytes,
                ways: cache.ways,
                shared_by: cache.shared_by,
            })
            .collect(),
        cache_domains: topology.domain_count(),
        packages: topology.package_count(),
        notes: found
            .notes
            .iter()
            .map(|note| Note { kind: note.kind(), text: note.to_string() })
            .collect(),
    };
    serde_json::to_string_pretty(&object).context("writing JSON")
}

fn nodes(found: &Discovered) -> Vec<Node> {
    let topology = &found.topology;
    let cpus = |node| topology.cpus_of_node(node).iter().map(|cpu| topology.kernel_cpu(cpu));
    (0..topology.node_count())
        .map(|node| Node {
            node: topology.kernel_node(node),
            cpus: cpus(node).collect(),
            memory_bytes: topology.memory(node).0,
            firmware_bandwidth_mb_s: found.firmware[node].map(|firmware| firmware.bandwidth_mb_s),
            firmware_latency_ns: found.firmware[node].map(|firmware| firmware.latency_ns),
        })
        .collect()
}

fn cpus(topology: &Topology) -> Vec<Cpu> {
    let cpus = topology.cpus().iter().map(|cpu| Cpu {
        cpu: cpu.kernel_id,
        node: topology.kernel_node(cpu.node),
        cache_domain: cpu.cache_domain,
        core: cpu.core,
        package: cpu.package,
        isolated: cpu.isolated,
    });
    cpus.collect()
}
