//! Which node asks which memory, and how much, as far as a window tells.

use super::charges::Charges;
use crate::matrix::Matrix;
use crate::model::{App, Thread, TrafficSource};
use crate::topology::Topology;
use alloc::vec;
use alloc::vec::Vec;

/// Part of its time for which a thread is assumed to wait for memory where neither its requests nor
/// its stalls are counted. It lies between nothing and all, so half is least wrong.
const ASSUMED_WAIT: f64 = 0.5;

/// DRAM requests in a µs by `[accessing][holding]`: counted or sampled. Hint faults tell
/// proportions. How many there are the misses of the threads tell, and where nothing counts these,
/// an assumption.
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

/// Without counts or samples of the memory asked, each thread asks all memory of its process alike.
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

/// What threads ask for in a µs, each as said on its node, by that node.
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
