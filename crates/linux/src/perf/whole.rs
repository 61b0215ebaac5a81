//! The events of units outside the cores that give the traffic between nodes and over links.
//!
//! A unit counts for the node of the CPU on which it is read. Most units distinguish the own node
//! from all others together. This suffices with two nodes. With more nodes only a unit that counts
//! by target node gives the traffic.

use std::collections::BTreeMap;

use rondpoint_core::Topology;

use super::generation::{Available, LinkEnds, UncoreCount, UncoreMetric};
use super::pmu::Event;

/// Bytes of a request: a cache line.
const LINE: u32 = 64;

/// Most units of a node that are counted (our choice). Caching agents get lines by a hash of the
/// address, so each of `n` gets one line in `n`. All 120 of a Granite Rapids would need a thousand
/// descriptors, and milliseconds for each look.
const MOST_UNITS: usize = 8;

/// `(accessing node, holding node)`.
pub type Cell = (usize, usize);

/// An event on one CPU, with the key of the sum that it adds to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<T> {
    /// Key of the sum.
    pub what: T,
    /// The kernel's number of the CPU to open it on.
    pub cpu: u32,
    /// The event.
    pub event: Event,
    /// `(numerator, denominator)` of the factor from counts to requests or bytes.
    pub scale: (u32, u32),
}

/// Events for the DRAM requests of the whole machine by `(accessing, holding)`; none if a cell
/// cannot be counted.
#[must_use]
pub fn traffic(available: &Available, topology: &Topology) -> Vec<Part<Cell>> {
    traffic_choices(available, topology).into_iter().next().unwrap_or_default()
}

/// Lists of events that each give the whole [`traffic`], the best first.
#[must_use]
pub fn traffic_choices(available: &Available, topology: &Topology) -> Vec<Vec<Part<Cell>>> {
    let mut parts = Vec::new();
    for (kernel_node, event) in &available.dram_to_node {
        let Some(holding) = topology.node_of_kernel_id(*kernel_node) else { continue };
        for (cpu, node) in asked(event, topology) {
            let what = (node, holding);
            parts.push(Part { what, cpu, event: event.clone(), scale: (1, 1) });
        }
    }
    if !parts.is_empty() {
        return vec![parts];
    }
    [by_requester(available, topology), by_home(available, topology)]
        .into_iter()
        .filter(|parts| is_whole(parts, topology))
        .collect()
}

/// Events for the lines that the controllers of each node served, of all programs; none if a node
/// with memory cannot be counted. They are reads alone if these have an event, because cache misses
/// are reads.
#[must_use]
pub fn controller_lines(available: &Available, topology: &Topology) -> Vec<Part<usize>> {
    let of_metric = |metric| {
        let parts = counts(available, topology, metric).filter_map(|(count, cpu, node)| {
            let (bytes, counts) = count.bytes?;
            let scale = (bytes, counts * LINE);
            Some(Part { what: node, cpu, event: count.event.clone(), scale })
        });
        let parts: Vec<Part<usize>> = parts.collect();
        let is_counted = |node: &usize| parts.iter().any(|part| part.what == *node);
        topology.controllers().iter().all(|node| is_counted(&node)).then_some(parts)
    };
    [UncoreMetric::ControllerReads, UncoreMetric::ControllerBytes]
        .into_iter()
        .find_map(of_metric)
        .unwrap_or_default()
}

/// Events for the bytes of each link of the topology, by its number; none if a link cannot be
/// counted.
#[must_use]
pub fn links(available: &Available, topology: &Topology) -> Vec<Part<usize>> {
    let mut parts = Vec::new();
    for (index, link) in topology.links().iter().enumerate() {
        let kernel = |node: usize| topology.kernel_node(node);
        let ends = LinkEnds { from: kernel(link.from), to: kernel(link.to) };
        let before = parts.len();
        if let Some((_, event)) = available.links.iter().find(|(found, _)| *found == ends) {
            let part = |(cpu, _)| Part { what: index, cpu, event: event.clone(), scale: (1, 1) };
            parts.extend(asked(event, topology).map(part));
        } else if is_only_link_of(topology, link.from) {
            parts.extend(sent(available, topology, (link.from, link.to), index));
        }
        if parts.len() == before {
            return Vec::new();
        }
    }
    parts
}

/// Whether all data that a node sends goes over its one link, in a machine of two nodes.
fn is_only_link_of(topology: &Topology, node: usize) -> bool {
    let outgoing = topology.links().iter().filter(|link| link.from == node).count();
    topology.node_count() == 2 && outgoing == 1
}

/// Events for the data on the only link between two nodes. It is what the first node sends, or what
/// it writes and the other reads. None if a part of it is not counted.
fn sent(
    available: &Available,
    topology: &Topology,
    (from, to): (usize, usize),
    link: usize,
) -> Vec<Part<usize>> {
    let of = |metric, node| {
        let parts = counts(available, topology, metric).filter_map(|(count, cpu, at)| {
            let scale = count.bytes.filter(|_| at == node)?;
            Some(Part { what: link, cpu, event: count.event.clone(), scale })
        });
        parts.collect::<Vec<_>>()
    };
    let sent = of(UncoreMetric::LinkOut, from);
    if !sent.is_empty() {
        return sent;
    }
    let (written, read) = (of(UncoreMetric::RemoteWrites, from), of(UncoreMetric::RemoteReads, to));
    match written.is_empty() || read.is_empty() {
        true => Vec::new(),
        false => [written, read].concat(),
    }
}

/// Events for the misses of a node's last-level caches, by own and other node's memory.
fn by_requester(available: &Available, topology: &Topology) -> Vec<Part<Cell>> {
    let kinds = [(UncoreMetric::MissesLocal, true), (UncoreMetric::MissesRemote, false)];
    of_two(available, topology, &kinds, |node, other| (node, other))
}

/// Events for the requests to a node's memory, from its own and the other node's CPUs.
fn by_home(available: &Available, topology: &Topology) -> Vec<Part<Cell>> {
    let kinds = [
        (UncoreMetric::HomeReadsLocal, true),
        (UncoreMetric::HomeReadsRemote, false),
        (UncoreMetric::HomeWritesLocal, true),
        (UncoreMetric::HomeWritesRemote, false),
    ];
    of_two(available, topology, &kinds, |node, other| (other, node))
}

/// Events for the cells of two nodes. `cell`: the cell of the counting node and the other end.
fn of_two(
    available: &Available,
    topology: &Topology,
    kinds: &[(UncoreMetric, bool)],
    cell: fn(usize, usize) -> Cell,
) -> Vec<Part<Cell>> {
    let mut parts = Vec::new();
    if topology.node_count() != 2 {
        return parts;
    }
    for &(metric, own) in kinds {
        let mut by_event: BTreeMap<(&str, u32), Vec<Part<Cell>>> = BTreeMap::new();
        for (count, cpu, node) in counts(available, topology, metric) {
            let what = cell(node, if own { node } else { 1 - node });
            let scale = count.bytes.map_or((1, 1), |(bytes, counts)| (bytes, counts * LINE));
            let part = Part { what, cpu, event: count.event.clone(), scale };
            by_event.entry((&count.event.name, cpu)).or_default().push(part);
        }
        if by_event.is_empty() {
            return Vec::new();
        }
        parts.extend(by_event.into_values().flat_map(some_units));
    }
    parts
}

/// At most [`MOST_UNITS`] of the units of one event, evenly spread and scaled to all units.
fn some_units<T: Copy>(units: Vec<Part<T>>) -> impl Iterator<Item = Part<T>> {
    let all = units.len();
    let asked = all.min(MOST_UNITS);
    let share = move |(times, through): (u32, u32)| match all == asked {
        true => (times, through),
        false => (times * all as u32, through * asked as u32),
    };
    (0..asked).map(move |index| {
        let part = &units[index * all / asked];
        Part { scale: share(part.scale), event: part.event.clone(), ..*part }
    })
}

/// Whether every cell of two nodes is counted. One unit for each socket cannot count two nodes of
/// one socket.
fn is_whole(parts: &[Part<Cell>], topology: &Topology) -> bool {
    let nodes = topology.node_count();
    let mut cells = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
    !parts.is_empty() && cells.all(|cell| parts.iter().any(|part| part.what == cell))
}

/// Each count of a metric with a CPU to open it on and its node.
fn counts<'a>(
    available: &'a Available,
    topology: &'a Topology,
    metric: UncoreMetric,
) -> impl Iterator<Item = (&'a UncoreCount, u32, usize)> {
    let of_metric = available.uncore.iter().filter(move |count| count.metric == metric);
    of_metric.flat_map(move |count| {
        asked(&count.event, topology).map(move |(cpu, node)| (count, cpu, node))
    })
}

/// The CPUs to open an event on, the kernel's numbers, with their nodes. They are those of the
/// unit. If cores count for their node, as on AMD's family 10h, it is the first CPU of each node.
pub fn asked(event: &Event, topology: &Topology) -> impl Iterator<Item = (u32, usize)> {
    let cpus: Vec<u32> = match &event.cpus {
        Some(cpus) => cpus.clone(),
        None => {
            let first = |node: usize| topology.cpus_of_node(node).iter().next();
            let first = (0..topology.node_count()).filter_map(first);
            first.map(|cpu| topology.kernel_cpu(cpu)).collect()
        }
    };
    let node = |cpu: u32| Some((cpu, topology.node_of_cpu(topology.cpu_of_kernel_id(cpu)?)));
    cpus.into_iter().filter_map(node)
}
