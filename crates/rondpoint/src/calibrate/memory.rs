//! Bandwidth and latency of each node's memory from the CPUs of each node. Loaded latency is for
//! people only; no policy uses it.

use std::time::Duration;

use anyhow::Result;
use rondpoint_linux::topology::Discovered;
use serde::Serialize;

use super::bench::Bench;
use super::file::Calibration;
use super::loaded::LoadedPoint;

/// Matrices by node: rows access, columns hold, in the order of `nodes`. `None` where a node has no
/// CPU or no memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// The kernel's numbers.
    pub(crate) nodes: Vec<u32>,
    pub(crate) cpus: usize,
    /// What a load waits for on the idle machine.
    pub(crate) latency_ns: Vec<Vec<Option<f64>>>,
    /// What all CPUs of a node draw.
    pub(crate) bandwidth_mb_s: Vec<Vec<Option<f64>>>,
    /// What all CPUs of the machine draw from a node.
    pub(crate) controller_mb_s: Vec<Option<f64>>,
    pub(crate) loaded: Vec<Curve>,
    /// What could not be measured, and why.
    pub(crate) missing: Vec<String>,
}

/// Loaded latency of one node's memory, drawn from by its own CPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Curve {
    /// The kernel's number.
    pub(crate) node: u32,
    pub(crate) points: Vec<LoadedPoint>,
}

/// Measures this machine's memory, each point for `time`, with a last-level cache of this size
/// (else as sysfs has it).
///
/// # Errors
/// This process may not use all CPUs, or gets no memory of a node.
pub(crate) fn measure(
    machine: &Discovered,
    cache_bytes: Option<u64>,
    time: Duration,
) -> Result<Measured> {
    let topology = &machine.topology;
    let bench = Bench::new(machine, cache_bytes, time)?;
    let mut found = Calibration::of(topology, None);
    bench.measure_memory(&mut found)?;
    let mut measured = matrices(&found);
    for node in topology.memory_nodes().iter() {
        let number = topology.kernel_node(node);
        match topology.cpus_of_node(node).len() {
            0 | 1 => measured
                .missing
                .push(format!("loaded latency of node {number}: it takes two CPUs of the node")),
            _ => measured.loaded.push(Curve { node: number, points: bench.loaded(node)? }),
        }
    }
    Ok(measured)
}

/// The matrices of a calibration: what could not be measured is `None` in place of 0.
fn matrices(found: &Calibration) -> Measured {
    let known = |value: &f64| (*value > 0.0).then_some(*value);
    let row = |row: &Vec<f64>| row.iter().map(known).collect();
    let matrix = |rows: &[Vec<f64>]| rows.iter().map(row).collect();
    Measured {
        nodes: found.nodes.clone(),
        cpus: found.cpus,
        latency_ns: matrix(&found.latency_ns),
        bandwidth_mb_s: matrix(&found.bandwidth_mb_s),
        controller_mb_s: row(&found.controller_mb_s),
        loaded: Vec::new(),
        missing: Vec::new(),
    }
}

/// Measurements of two nodes, of which the second has no CPU.
#[cfg(test)]
pub(crate) fn example() -> Measured {
    let machine =
        rondpoint_core::topology::synthetic::parse("node:2 core:2 gbs:1").expect("a machine");
    let mut found = Calibration::of(&machine, None);
    found.latency_ns = vec![vec![90.0, 180.0], vec![0.0, 0.0]];
    found.bandwidth_mb_s = vec![vec![20_000.0, 9_000.0], vec![0.0, 0.0]];
    found.controller_mb_s = vec![20_000.0, 9_000.0];
    let point = |rounds, mb_s, ns| LoadedPoint { rounds, mb_s, ns };
    let points = vec![point(None, 711.0, 90.0), point(Some(8), 9_000.0, 110.0)];
    Measured {
        loaded: vec![Curve { node: 0, points }],
        missing: vec!["loaded latency of node 1: it takes two CPUs of the node".to_string()],
        ..matrices(&found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_null_and_never_0() {
        let value = serde_json::to_value(example()).expect("JSON");
        assert_eq!(value["latency_ns"][0][1], 180.0);
        assert_eq!(value["latency_ns"][1][0], serde_json::Value::Null);
        assert_eq!(value["bandwidth_mb_s"][1][1], serde_json::Value::Null);
        assert_eq!(value["loaded"][0]["points"][0]["rounds"], serde_json::Value::Null);
    }
}
