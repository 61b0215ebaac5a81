//! Costs of an access on this machine: latencies, bursts, transfers between caches.

use super::description::{TopologyError, refuse};
use crate::matrix::Matrix;
use alloc::format;
use alloc::vec::Vec;

/// Costs from measurements or a machine file. Where one is `None`, the cost model has a default
/// with its source ([`crate::cost`]).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Costs {
    /// Latency of a DRAM access on an idle machine in ns, by `[accessing][holding]`; 0: not known.
    pub latency_ns: Option<Matrix<f64>>,
    /// By holding node, the latency in ns that full use of its controller adds before a queue
    /// builds up.
    pub burst_ns: Option<Vec<f64>>,
    /// Transfer of a cache line from another CPU's private cache behind the same last-level cache,
    /// ns.
    pub same_domain_ns: Option<f64>,
    /// Transfer of a cache line from another cache domain of the same node, ns.
    pub same_node_ns: Option<f64>,
    /// Transfer of a cache line from a cache of another node in ns, by `[accessing][owning]`; 0:
    /// not known.
    pub remote_cache_ns: Option<Matrix<f64>>,
    /// Hit in the last-level cache, ns.
    pub cache_hit_ns: Option<f64>,
    /// Size of one last-level cache, bytes.
    pub cache_bytes: Option<u64>,
    /// Largest number of outstanding misses of one CPU.
    pub outstanding_misses: Option<f64>,
}

impl Costs {
    /// Checks that the values are finite, zero or more, and have the shape of `nodes` nodes.
    pub(super) fn check(&self, nodes: usize) -> Result<(), TopologyError> {
        let matrices =
            [("latency_ns", &self.latency_ns), ("remote_cache_ns", &self.remote_cache_ns)];
        for (name, matrix) in matrices {
            let Some(matrix) = matrix else { continue };
            let path = format!("costs.{name}");
            if matrix.size() != nodes {
                return refuse(path, format!("{} rows, expected {nodes}", matrix.size()));
            }
            check_all(&path, matrix.rows().flatten().copied())?;
        }
        if let Some(bursts) = &self.burst_ns {
            if bursts.len() != nodes {
                let found = bursts.len();
                return refuse("costs.burst_ns", format!("{found} numbers, expected {nodes}"));
            }
            check_all("costs.burst_ns", bursts.iter().copied())?;
        }
        let single = [
            ("same_domain_ns", self.same_domain_ns),
            ("same_node_ns", self.same_node_ns),
            ("cache_hit_ns", self.cache_hit_ns),
            ("outstanding_misses", self.outstanding_misses),
        ];
        single.into_iter().try_for_each(|(name, value)| check_all(&format!("costs.{name}"), value))
    }
}

fn check_all(path: &str, values: impl IntoIterator<Item = f64>) -> Result<(), TopologyError> {
    match values.into_iter().find(|value| !(value.is_finite() && *value >= 0.0)) {
        Some(odd) => refuse(path, format!("{odd}, expected zero or more")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn what_does_not_fit_the_machine_is_refused_with_its_name() {
        let refused = |costs: Costs| costs.check(2).map_err(|error| error.path);
        assert_eq!(refused(Costs::default()), Ok(()));
        let latency_ns = Some(Matrix::filled(3, 90.0));
        assert_eq!(
            refused(Costs { latency_ns, ..Costs::default() }),
            Err("costs.latency_ns".into())
        );
        let burst_ns = Some(vec![1.0, f64::NAN]);
        assert_eq!(refused(Costs { burst_ns, ..Costs::default() }), Err("costs.burst_ns".into()));
        let cache_hit_ns = Some(-1.0);
        assert_eq!(
            refused(Costs { cache_hit_ns, ..Costs::default() }),
            Err("costs.cache_hit_ns".into())
        );
    }
}
