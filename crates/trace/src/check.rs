//! Whether an observation fits the machine of its trace: what a host never gives and the core
//! therefore does not check.

use rondpoint_core::observation::{ProcessObservation, ThreadObservation};
use rondpoint_core::{IndexSet, Observation, Topology};

/// More samples than any machine loses in a lifetime; sums of them stay within 64 bits.
const MAX_LOST: u64 = 1 << 48;

/// Names the first field that does not fit, and what was expected.
pub(crate) fn observation(read: &Observation, topology: &Topology) -> Result<(), String> {
    let nodes = topology.node_count();
    if let Some(traffic) = &read.node_traffic {
        count("node_traffic", traffic.size(), nodes)?;
    }
    if let Some(links) = &read.link_bytes {
        count("link_bytes", links.len(), topology.links().len())?;
    }
    if let Some(free) = &read.free_memory {
        count("free_memory_bytes", free.len(), nodes)?;
    }
    for (name, samples) in [("samples", &read.samples), ("hint_faults", &read.hint_faults)] {
        let lost = samples.as_ref().map_or(0, |samples| samples.lost);
        if lost > MAX_LOST {
            return Err(format!("{name}.lost: {lost}, expected at most {MAX_LOST}"));
        }
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
        count("memory_bytes", memory.len(), nodes)?;
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
