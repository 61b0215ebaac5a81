//! Whether what was read fits the machine of its trace, and is of a size that a machine can have. A
//! host never gives other input, so the core does not check it.

use rondpoint_core::observation::{ProcessObservation, SharedMapping, ThreadObservation};
use rondpoint_core::plan::StepResult;
use rondpoint_core::units::PAGE_SHIFT;
use rondpoint_core::{Bytes, IndexSet, Observation, Outcome, Topology};

/// Most bytes of one node: the reach of a 52-bit physical address, the largest on x86-64 and Arm.
/// Sums of numbers within this and the other bounds stay within 64 bits.
const MAX_BYTES: u64 = 1 << 52;
/// Most base pages of one action: those of [`MAX_BYTES`].
const MAX_PAGES: u64 = MAX_BYTES >> PAGE_SHIFT;
/// Largest time of a host's clock, ns: 36 years without a restart.
const MAX_TIME_NS: u64 = 1 << 60;
/// Most lost samples; no machine loses more.
const MAX_LOST: u64 = 1 << 48;

/// Checks the memory of each node. The error names the first impossible one.
pub(crate) fn machine(topology: &Topology) -> Result<(), String> {
    (0..topology.node_count()).try_for_each(|node| {
        let memory = topology.memory(node).0;
        at_most(&format!("nodes[{node}].memory_bytes"), memory, MAX_BYTES)
    })
}

/// Checks outcomes. The error names the first impossible one.
pub(crate) fn outcomes(read: &[Outcome]) -> Result<(), String> {
    read.iter().enumerate().try_for_each(|(place, outcome)| match outcome.result {
        StepResult::Pages(counts) => {
            let most = counts.each().max().unwrap_or(0);
            at_most(&format!("outcomes[{place}].result.pages"), most, MAX_PAGES)
        }
        _ => Ok(()),
    })
}

/// Checks an observation. The error names the first field that does not fit the topology, and the
/// expected value.
pub(crate) fn observation(read: &Observation, topology: &Topology) -> Result<(), String> {
    let nodes = topology.node_count();
    at_most("at_ns", read.at.0, MAX_TIME_NS)?;
    if let Some(traffic) = &read.node_traffic {
        count("node_traffic", traffic.size(), nodes)?;
    }
    if let Some(controller_lines) = &read.controller_lines {
        count("controller_lines", controller_lines.len(), nodes)?;
    }
    if let Some(links) = &read.link_bytes {
        count("link_bytes", links.len(), topology.links().len())?;
    }
    if let Some(free) = &read.free_memory {
        bytes("free_memory_bytes", free, nodes)?;
    }
    for (name, samples) in [("samples", &read.samples), ("hint_faults", &read.hint_faults)] {
        let lost = samples.as_ref().map_or(0, |samples| samples.lost);
        at_most(&format!("{name}.lost"), lost, MAX_LOST)?;
    }
    ascending("processes", read.processes.iter().map(|process| process.pid.0))?;
    for (place, of) in read.processes.iter().enumerate() {
        process(of, topology).map_err(|problem| format!("processes[{place}].{problem}"))?;
    }
    Ok(())
}

fn process(read: &ProcessObservation, topology: &Topology) -> Result<(), String> {
    let nodes = topology.node_count();
    for (name, table) in
        [("node_traffic", &read.node_traffic), ("cache_traffic", &read.cache_traffic)]
    {
        if let Some(table) = table {
            count(name, table.size(), nodes)?;
        }
    }
    if let Some(memory) = &read.memory {
        bytes("memory_bytes", memory, nodes)?;
    }
    if let Some(allowed) = &read.allowed_nodes {
        within("allowed_nodes", allowed, nodes)?;
    }
    if let Some(mappings) = &read.mappings {
        let disjoint = mappings.is_sorted_by(|one, next| one.end <= next.start);
        if !disjoint || mappings.iter().any(|mapping| mapping.end <= mapping.start) {
            return Err("mappings: expected ascending ranges that do not overlap".to_string());
        }
    }
    let is_range = |mapping: &SharedMapping| mapping.start < mapping.end;
    if !read.shared.is_sorted_by(|one, next| one.end <= next.start)
        || !read.shared.iter().all(is_range)
    {
        return Err("shared: expected ascending ranges that do not overlap".to_string());
    }
    if let Some(ranges) = &read.policy_read {
        let disjoint = ranges.is_sorted_by(|one, next| one.end <= next.start);
        if !disjoint || ranges.iter().any(|range| range.end <= range.start) {
            return Err("policy_read: expected ascending ranges that do not overlap".to_string());
        }
    }
    if let Some(replicas) = &read.replicas
        && !replicas.is_sorted_by(|one, next| one.address < next.address)
    {
        return Err("replicas: expected ascending addresses".to_string());
    }
    ascending("threads", read.threads.iter().map(|thread| thread.tid.0))?;
    for (place, of) in read.threads.iter().enumerate() {
        thread(of, topology.cpu_count())
            .map_err(|problem| format!("threads[{place}].{problem}"))?;
    }
    Ok(())
}

fn thread(read: &ThreadObservation, cpus: usize) -> Result<(), String> {
    if read.cpu >= cpus {
        return Err(format!("cpu: {}, expected below {cpus}", read.cpu));
    }
    within("allowed", &read.allowed, cpus)
}

fn count(name: &str, found: usize, expected: usize) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{name}: {found} entries, expected {expected}")),
    }
}

fn bytes(name: &str, read: &[Bytes], nodes: usize) -> Result<(), String> {
    count(name, read.len(), nodes)?;
    let mut nodes = read.iter().enumerate();
    nodes.try_for_each(|(node, bytes)| at_most(&format!("{name}[{node}]"), bytes.0, MAX_BYTES))
}

fn at_most(name: &str, found: u64, most: u64) -> Result<(), String> {
    match found <= most {
        true => Ok(()),
        false => Err(format!("{name}: {found}, expected at most {most}")),
    }
}

fn within(name: &str, set: &IndexSet, count: usize) -> Result<(), String> {
    match set.iter().find(|index| *index >= count) {
        None => Ok(()),
        Some(index) => Err(format!("{name}: {index}, expected below {count}")),
    }
}

fn ascending(name: &str, numbers: impl Iterator<Item = u32> + Clone) -> Result<(), String> {
    let after = numbers.clone().skip(1);
    match numbers.zip(after).find(|(one, next)| one >= next) {
        None => Ok(()),
        Some((one, next)) => Err(format!("{name}: {next} after {one}, expected ascending")),
    }
}
