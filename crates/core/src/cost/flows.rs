//! Traffic from node to node in a window: counted, sampled, or estimated from hint faults.

use super::charges::Charges;
use crate::matrix::Matrix;
use crate::model::{App, Thread, TrafficSource};
use crate::topology::Topology;
use alloc::vec;
use alloc::vec::Vec;

/// Share of its time for which a thread is assumed to wait for memory if neither requests nor
/// stalls are counted. Half has the smallest possible error.
const ASSUMED_WAIT: f64 = 0.5;

/// DRAM requests per µs, `[accessing][holding]`, counted or sampled. Hint faults give only
/// proportions. The rate then comes from the threads' misses or, without such counts, from
/// [`ASSUMED_WAIT`].
pub(super) fn flows(
    app: &App,
    threads: &[Thread],
    topology: &Topology,
    charges: &Charges,
) -> Option<Matrix<f64>> {
    let traffic = app.traffic.as_ref()?;
    if app.traffic_source != TrafficSource::HintFaults {
        return Some(traffic.requests_per_us.clone());
    }
    let (nodes, per_us) = (topology.node_count(), &traffic.requests_per_us);
    let counts = threads.iter().any(|thread| thread.rates.memory_per_s.is_some());
    let each = |thread: &Thread, node: usize| match counts {
        true => counted(thread),
        false => ASSUMED_WAIT * charges.outstanding * charges.cycles_per_us / charges.nearest[node],
    };
    let asked = by_node(threads, topology, each);
    let scale = |(row, asked): (&[f64], f64)| {
        let all: f64 = row.iter().sum();
        if all > 0.0 { asked / all } else { 0.0 }
    };
    let scales: Vec<f64> = per_us.rows().zip(asked).map(scale).collect();
    Some(Matrix::from_fn(nodes, |a, h| scales[a] * per_us[(a, h)]))
}

/// Traffic without counts or samples: each thread is assumed to use all memory of its process
/// equally.
pub(super) fn by_memory(app: &App, threads: &[Thread], topology: &Topology) -> Matrix<f64> {
    let nodes = topology.node_count();
    let misses = by_node(threads, topology, |thread, _| counted(thread));
    let resident = |node: usize| app.memory.as_ref().map_or(0.0, |bytes| bytes[node].0 as f64);
    let all: f64 = (0..nodes).map(resident).sum();
    Matrix::from_fn(nodes, |a, h| if all > 0.0 { misses[a] * resident(h) / all } else { 0.0 })
}

/// Misses of a thread that were counted, in a µs of its CPU time.
fn counted(thread: &Thread) -> f64 {
    thread.rates.memory_per_s.unwrap_or(0.0) / 1e6
}

/// Sum by node of a rate of each thread on its node.
fn by_node(
    threads: &[Thread],
    topology: &Topology,
    each: impl Fn(&Thread, usize) -> f64,
) -> Vec<f64> {
    let mut sums = vec![0.0; topology.node_count()];
    for thread in threads {
        let node = topology.node_of_cpu(thread.cpu);
        sums[node] += thread.cpu_share * each(thread, node);
    }
    sums
}
