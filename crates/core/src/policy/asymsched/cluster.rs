//! Step 1: which nodes of a process belong together (ALGORITHMS 3.3).
//!
//! Counters see nodes, not threads. If threads of a process on node i use node j and the process
//! has threads there too, i and j join.

use super::preset::{Preset, Weight};
use super::subset::{Mask, nodes};
use crate::matrix::Matrix;
use alloc::vec::Vec;

/// Nodes of one process with threads that use each other's memory or caches.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// Index of the application in the caller's list.
    pub app: usize,
    /// Nodes of the cluster as bits, at least two.
    pub nodes: Mask,
    /// Requests per second between nodes of the cluster (`C_rbw`).
    pub traffic_per_s: f64,
    /// `ln C_rbw`, or 0 below one request per second [third-party code: demo; guard inferred]. The
    /// logarithm keeps a light cluster from being ignored beside a heavy one.
    pub weight: f64,
}

/// Clusters of one application in order of their lowest node. A pair of nodes with less than the
/// preset's negligible share of the remote traffic does not join them.
///
/// `traffic_per_s` is `[accessing node][holding node]` in requests per second. `threads` are the
/// nodes with threads of the application.
#[must_use]
pub fn clusters_of(
    app: usize,
    threads: Mask,
    traffic_per_s: &Matrix<f64>,
    preset: &Preset,
) -> Vec<Cluster> {
    let count = traffic_per_s.size();
    let remote = |&(i, j, rate): &(usize, usize, f64)| i != j && rate > 0.0;
    let total: f64 = traffic_per_s.cells().filter(remote).map(|(_, _, rate)| rate).sum();
    let all: f64 = traffic_per_s.cells().map(|(_, _, rate)| rate).sum();
    if total < preset.least_remote_share * all {
        return Vec::new();
    }
    let mut parent: Vec<usize> = (0..count).collect();
    for (i, j, rate) in traffic_per_s.cells().filter(remote) {
        let both_have_threads = threads >> i & 1 == 1 && threads >> j & 1 == 1;
        if both_have_threads && rate >= preset.negligible_share * total {
            join(&mut parent, i, j);
        }
    }
    let roots = (0..count).filter(|&node| parent[node] == node);
    let members = roots.map(|root| {
        nodes(threads).filter(|&node| find(&parent, node) == root).map(|node| 1 << node).sum()
    });
    members
        .filter(|nodes: &Mask| nodes.count_ones() >= 2)
        .map(|nodes| cluster(app, nodes, traffic_per_s, preset.weight))
        .collect()
}

fn cluster(app: usize, members: Mask, traffic_per_s: &Matrix<f64>, weight: Weight) -> Cluster {
    let inside =
        |i: usize| nodes(members).filter(move |&j| j != i).map(move |j| traffic_per_s[(i, j)]);
    let traffic: f64 = nodes(members).flat_map(inside).sum();
    let weight = match weight {
        _ if traffic < 1.0 => 0.0,
        Weight::Log => libm::log(traffic),
        Weight::One => 1.0,
    };
    Cluster { app, nodes: members, traffic_per_s: traffic, weight }
}

/// Joins the clusters of two nodes. The lower root stays, so a cluster's root is its lowest node.
fn join(parent: &mut [usize], i: usize, j: usize) {
    let (a, b) = (find(parent, i), find(parent, j));
    parent[a.max(b)] = a.min(b);
}

/// The root of a node's cluster.
fn find(parent: &[usize], mut node: usize) -> usize {
    while parent[node] != node {
        node = parent[node];
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    fn check(threads: Mask, traffic: &str, expected: &str) {
        check_with(&Preset::PUBLISHED, threads, traffic, expected);
    }

    /// "0>1:500 2>3:1" → "0,1 w6.21".
    fn check_with(preset: &Preset, threads: Mask, traffic: &str, expected: &str) {
        let mut matrix = Matrix::filled(6, 0.0);
        for entry in traffic.split_whitespace() {
            let (pair, rate) = entry.split_once(':').expect("pair:rate");
            let (from, to) = pair.split_once('>').expect("from>to");
            matrix[(from.parse().expect("node"), to.parse().expect("node"))] =
                rate.parse().expect("rate");
        }
        let print = |cluster: &Cluster| format!("{:06b}:{:.4}", cluster.nodes, cluster.weight);
        let found: Vec<String> =
            clusters_of(0, threads, &matrix, preset).iter().map(print).collect();
        assert_eq!(found.join(" "), expected, "{traffic}");
    }

    #[test]
    fn nodes_join_only_where_both_have_threads() {
        check(0b000011, "0>1:5000 1>0:5000", "000011:9.2103");
        check(0b000001, "0>1:5000", "");
        check(0b001011, "0>2:5000 0>1:10", "");
    }

    #[test]
    fn joining_is_transitive_and_ignores_direction() {
        check(0b111111, "4>2:100 4>0:100 1>3:100", "010101:5.2983 001010:4.6052");
    }

    #[test]
    fn a_pair_below_one_percent_joins_nothing() {
        check(0b001111, "0>1:10000 1>2:99", "000011:9.2103");
        check(0b001111, "0>1:9900 1>2:100", "000111:9.2103");
    }

    #[test]
    fn traffic_below_one_request_weighs_nothing() {
        check(0b000011, "0>1:0.25 1>0:0.5", "000011:0.0000");
    }

    #[test]
    fn traffic_that_hardly_leaves_its_nodes_joins_nothing_where_that_is_asked() {
        let (mostly_local, a_tenth) = ("0>0:9100 0>1:900", "0>0:9000 0>1:1000");
        check(0b000011, mostly_local, "000011:6.8024");
        check_with(&Preset::MEASURED, 0b000011, mostly_local, "");
        check_with(&Preset::MEASURED, 0b000011, a_tenth, "000011:6.9078");
    }

    #[test]
    fn local_traffic_and_silence_join_nothing() {
        check(0b111111, "0>0:5000 1>1:10", "");
        check(0b111111, "", "");
    }
}
