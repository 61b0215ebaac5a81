//! What accesses cost on the recorded machine.

use rondpoint_core::topology;
use serde::{Deserialize, Serialize};

use super::table::Square;

/// Costs of accesses. Unknown ones are left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Costs {
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ns: Option<Square<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst_ns: Option<Vec<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    same_domain_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    same_node_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_cache_ns: Option<Square<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_hit_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outstanding_misses: Option<f64>,
}

impl Costs {
    /// Whether all costs are unknown.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<&topology::Costs> for Costs {
    fn from(costs: &topology::Costs) -> Self {
        Self {
            latency_ns: costs.latency_ns.clone().map(Square),
            burst_ns: costs.burst_ns.clone(),
            same_domain_ns: costs.same_domain_ns,
            same_node_ns: costs.same_node_ns,
            remote_cache_ns: costs.remote_cache_ns.clone().map(Square),
            cache_hit_ns: costs.cache_hit_ns,
            cache_bytes: costs.cache_bytes,
            outstanding_misses: costs.outstanding_misses,
        }
    }
}

impl From<&Costs> for topology::Costs {
    fn from(costs: &Costs) -> Self {
        Self {
            latency_ns: costs.latency_ns.clone().map(|table| table.0),
            burst_ns: costs.burst_ns.clone(),
            same_domain_ns: costs.same_domain_ns,
            same_node_ns: costs.same_node_ns,
            remote_cache_ns: costs.remote_cache_ns.clone().map(|table| table.0),
            cache_hit_ns: costs.cache_hit_ns,
            cache_bytes: costs.cache_bytes,
            outstanding_misses: costs.outstanding_misses,
        }
    }
}
