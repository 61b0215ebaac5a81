//! The file as it is written: tables with groups, shortcuts and defaults, before they mean
//! anything.
//!
//! Unknown keys are errors everywhere: a misspelt key would otherwise be a silent default.

use serde::Deserialize;

use crate::machine::{Caches, Controller, Core, Lab, Pmu, Prefetch};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) source: String,
    pub(crate) core: Core,
    pub(crate) caches: Caches,
    pub(crate) prefetch: Prefetch,
    pub(crate) nodes: Vec<NodeGroup>,
    #[serde(default = "one")]
    pub(crate) nodes_per_package: u32,
    #[serde(default)]
    pub(crate) interconnect: Interconnect,
    pub(crate) transfer: TransferTable,
    pub(crate) pmu: Pmu,
    pub(crate) lab: Option<Lab>,
}

/// `count` equal nodes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeGroup {
    #[serde(default = "one")]
    pub(crate) count: u32,
    #[serde(default)]
    pub(crate) cpus: u32,
    /// Last-level caches of a node. Default: one if it has CPUs.
    pub(crate) cache_domains: Option<u32>,
    #[serde(default, deserialize_with = "crate::size::deserialize")]
    pub(crate) memory: u64,
    pub(crate) controller: Option<Controller>,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Interconnect {
    /// Latency in ns that each link adds to an access, unless its entry has its own.
    pub(crate) hop_ns: Option<f64>,
    #[serde(default)]
    pub(crate) links: Vec<LinkEntry>,
    /// Instead of links: bandwidth by `[accessing][holding]`, 0 on the diagonal.
    pub(crate) bandwidth_mb_s: Option<Vec<Vec<f64>>>,
    pub(crate) distances: Option<Vec<Vec<u32>>>,
    /// Instead of `hop_ns`: unloaded latencies by `[accessing][holding]`.
    pub(crate) latency_ns: Option<Vec<Vec<f64>>>,
    #[serde(default)]
    pub(crate) routes: Vec<RouteEntry>,
}

/// A link in one direction (`from`, `to`) or in both (`between`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkEntry {
    pub(crate) between: Option<[usize; 2]>,
    pub(crate) from: Option<usize>,
    pub(crate) to: Option<usize>,
    pub(crate) bandwidth_mb_s: f64,
    /// Latency in ns that this link adds to an access.
    pub(crate) latency_ns: Option<f64>,
}

/// A route that differs from the derived one, or reaches less than its links carry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteEntry {
    pub(crate) accessing: usize,
    pub(crate) holding: usize,
    /// Nodes between the two, in the direction of the data: from the holding to the accessing node.
    #[serde(default)]
    pub(crate) via: Vec<usize>,
    pub(crate) limit_mb_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TransferTable {
    pub(crate) same_domain_ns: f64,
    /// Default: `same_domain_ns`.
    pub(crate) same_node_ns: Option<f64>,
    /// Latency between nodes without that of the links, which is added.
    pub(crate) remote_ns: Option<f64>,
    /// Instead of `remote_ns`: latencies by `[accessing][owner]`, the diagonal equal to
    /// `same_node_ns`.
    pub(crate) matrix_ns: Option<Vec<Vec<f64>>>,
    #[serde(default)]
    pub(crate) forwards_clean: bool,
}
