//! From the file as written to the machine as meant: groups expanded, links and routes derived,
//! latencies and distances filled in. Says what does not fit together.

use crate::check;
use crate::error::{Fault, require};
use crate::file::{File, NodeGroup};
use crate::latency;
use crate::limits;
use crate::machine::{Lab, Machine, Node};
use crate::matrix;
use crate::network;

/// Builds the machine of a file. The error names the field that does not fit.
pub(crate) fn machine(file: File) -> Result<Machine, Fault> {
    check::values(&file)?;
    let nodes = nodes(&file)?;
    let net = &file.interconnect;
    let (links, link_ns) = network::links(net, nodes.len())?;
    let routes = network::routes(net, nodes.len(), &links)?;
    let wire = latency::wire(&routes, &link_ns);
    let latency_ns = latency::latencies(net, &nodes, &wire)?;
    let transfer_ns = latency::transfers(&file.transfer, net, &nodes, &latency_ns, &wire)?;
    let distances = matrix::distances(net, nodes.len(), &routes)?;
    if let Some(lab) = &file.lab {
        check::lab(&file, lab)?;
    }
    Ok(Machine {
        name: file.name,
        title: file.title,
        source: file.source,
        core: file.core,
        caches: file.caches,
        prefetch: file.prefetch,
        nodes,
        nodes_per_package: file.nodes_per_package,
        latency_ns,
        transfer_ns,
        distances,
        links,
        routes,
        pmu: file.pmu,
        lab: file.lab.unwrap_or(NOT_FOR_THE_LAB),
    })
}

/// The scale of a machine whose file has no `[lab]` table.
const NOT_FOR_THE_LAB: Lab = Lab {
    slow_motion: 1.0,
    manager_slow_motion: 1.0,
    cpus_per_node: 0,
    cache_domains_per_node: 0,
    memory_mib: 0,
    cache_scale: 1.0,
    l2_scale: 1.0,
    quantum_ns: 0,
    applied: false,
};

fn nodes(file: &File) -> Result<Vec<Node>, Fault> {
    let count = check::expanded(file).count();
    require(
        (1..=limits::NODES_MAX).contains(&count),
        || "nodes".into(),
        || format!("expected 1 to {} nodes, got {count}", limits::NODES_MAX),
    )?;
    let cpus: u64 = check::expanded(file).map(|group| u64::from(group.cpus)).sum();
    require(
        cpus <= limits::CPUS_MAX as u64,
        || "nodes".into(),
        || format!("expected at most {} CPUs in all, got {cpus}", limits::CPUS_MAX),
    )?;
    for (found, kind) in [
        (file.nodes.iter().any(|group| group.cpus > 0), "CPUs"),
        (file.nodes.iter().any(|group| group.memory > 0), "memory"),
    ] {
        require(found, || "nodes".into(), || format!("expected at least one node with {kind}"))?;
    }
    let node = |group: &NodeGroup| Node {
        cpus: group.cpus,
        cache_domains: group.domains(),
        memory_bytes: group.memory,
        controller: group.controller.clone(),
    };
    Ok(check::expanded(file).map(node).collect())
}
