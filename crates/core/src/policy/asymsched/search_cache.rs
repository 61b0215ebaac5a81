//! Results of earlier searches that save the next one: a steady machine is judged every second, but
//! rarely searched again.
//!
//! The weighted bandwidth is linear in the weights. Suppose the clusters are on the same nodes as
//! at the last search and no weight grew by more than a factor. Then the best value cannot have
//! grown by more than that factor. A current placement within the slack of that bound is within the
//! slack of the best, whatever the best is. This shortcut is exact.
//!
//! A placement that was refused for its cost is kept for some decisions, and only its cost is
//! judged. It is searched again when it becomes affordable or its time is over.

use super::cluster::Cluster;
use super::decision::Situation;
use super::problem::Problem;
use super::search::{Found, search};
use super::set_bandwidth::SetBandwidth;
use crate::matrix::Matrix;
use alloc::vec::Vec;

/// Decisions for which a placement over budget is kept (our choice): ten seconds at the published
/// period.
const KEPT_DECISIONS: u32 = 10;
/// Relative error of the fixed-point value of a placement: weights are in units of 2⁻²⁴, bandwidth
/// in whole MB/s.
const ROUNDING: f64 = 1e-6;

/// Results of earlier searches.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchCache {
    cache: SetBandwidth,
    last: Option<Last>,
}

/// The last search: its input and its bound.
#[derive(Debug, Clone, PartialEq)]
struct Last {
    bandwidth: Matrix<f64>,
    kinds: Vec<u64>,
    occupied: u64,
    clusters: Vec<Cluster>,
    /// Upper bound on the weighted bandwidth of any placement (weight × MB/s).
    bound: f64,
    /// The placement that was refused for its cost, and the number of decisions for which it is
    /// still kept.
    refused: Option<(Found, u32)>,
}

impl SearchCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the last search proves that the current placement is good enough.
    pub(super) fn proves_staying(
        &self,
        situation: &Situation,
        clusters: &[Cluster],
        problem: &Problem,
    ) -> bool {
        let Some(last) = self.last.as_ref().filter(|last| last.is_like(situation, clusters)) else {
            return false;
        };
        let growth = clusters
            .iter()
            .zip(&last.clusters)
            .map(|(now, then)| now.growth_since(then))
            .fold(0.0, f64::max);
        let staying = problem.weighted_mb_s(problem.value(&problem.homes()));
        let slack = problem.slack_permille as f64 / 1000.0;
        staying * (1.0 - ROUNDING) >= slack * growth * last.bound
    }

    /// The placement that was refused for its cost, while it is kept. Each call uses up one
    /// decision.
    pub(super) fn refused(&mut self, situation: &Situation, clusters: &[Cluster]) -> Option<Found> {
        let last = self.last.as_mut().filter(|last| last.is_like(situation, clusters))?;
        let (found, left) = last.refused.as_mut().filter(|(_, left)| *left > 0)?;
        *left -= 1;
        Some(found.clone())
    }

    /// Searches, and keeps the bound for the next decisions.
    pub(super) fn search(
        &mut self,
        situation: &Situation,
        clusters: &[Cluster],
        problem: &Problem,
    ) -> Found {
        let found = search(problem, &mut self.cache);
        self.last = Some(Last {
            bandwidth: situation.bandwidth.clone(),
            kinds: situation.kinds.clone(),
            occupied: situation.occupied(),
            clusters: clusters.to_vec(),
            bound: problem.weighted_mb_s(found.best_bound) * (1.0 + ROUNDING),
            refused: None,
        });
        found
    }

    /// Keeps a placement that costs too much for the next [`KEPT_DECISIONS`].
    pub(super) fn keep_refused(&mut self, found: &Found) {
        if let Some(last) = &mut self.last {
            last.refused = Some((found.clone(), KEPT_DECISIONS));
        }
    }
}

impl Last {
    /// Whether the machine, the occupied nodes and the nodes of the clusters are the same.
    fn is_like(&self, situation: &Situation, clusters: &[Cluster]) -> bool {
        let same_nodes = |(now, then): (&Cluster, &Cluster)| now.nodes == then.nodes;
        self.kinds == situation.kinds
            && self.occupied == situation.occupied()
            && self.clusters.len() == clusters.len()
            && clusters.iter().zip(&self.clusters).all(same_nodes)
            && self.bandwidth == situation.bandwidth
    }
}

impl Cluster {
    /// The factor by which the cluster's weight grew.
    fn growth_since(&self, then: &Cluster) -> f64 {
        if self.weight > 0.0 { self.weight / then.weight } else { 0.0 }
    }
}
