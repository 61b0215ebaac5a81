//! Converts a calibration into the costs of the core's cost model.

use rondpoint_core::Matrix;
use rondpoint_core::topology::Costs;

use super::file::Calibration;

impl Calibration {
    /// Measured costs in place of written ones; gaps keep what was written.
    pub(super) fn complete_costs(&self, costs: &mut Costs) {
        let count = self.nodes.len();
        let written = costs.latency_ns.take();
        let latency = |a: usize, h: usize| match self.latency_ns[a][h] {
            0.0 => written.as_ref().map_or(0.0, |matrix| matrix[(a, h)]),
            measured => measured,
        };
        let known = Matrix::from_fn(count, latency);
        let is_known = known.cells().any(|(_, _, ns)| ns > 0.0);
        costs.latency_ns = is_known.then_some(known);
        if let Some(same) = self.sharing.same_domain_ns {
            costs.same_domain_ns = Some(same);
        }
        if let Some(nearest) = self.sharing.remote_ns {
            costs.remote_cache_ns = Some(self.transfers(nearest));
        }
        if let Some(burst) = self.contention.burst_ns {
            costs.burst_ns = Some(vec![burst; count]);
        }
        costs.outstanding_misses = self.contention.outstanding_misses.or(costs.outstanding_misses);
    }

    /// Lines between caches of two nodes: measured for the nearest pair, farther by what memory is
    /// farther.
    fn transfers(&self, nearest_ns: f64) -> Matrix<f64> {
        let count = self.nodes.len();
        let apart = |a: usize, b: usize| self.latency_ns[a][b].min(self.latency_ns[b][a]);
        let pairs = (0..count).flat_map(|a| (0..a).map(move |b| (a, b)));
        let known = pairs.map(|(a, b)| apart(a, b)).filter(|ns| *ns > 0.0);
        let least = known.fold(f64::INFINITY, f64::min);
        Matrix::from_fn(count, |a, b| match (a == b, apart(a, b)) {
            (true, _) => 0.0,
            (false, ns) if ns > 0.0 => nearest_ns + (ns - least),
            (false, _) => nearest_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rondpoint_core::topology::synthetic;

    #[test]
    fn what_was_measured_replaces_what_was_written_and_gaps_stay() {
        let machine = synthetic::parse("node:3 core:1").expect("a machine");
        let mut found = Calibration::of(&machine, None);
        found.latency_ns = vec![vec![80.0, 120.0, 0.0], vec![120.0, 80.0, 150.0], vec![0.0; 3]];
        found.sharing.remote_ns = Some(70.0);
        let mut costs = Costs {
            latency_ns: Some(Matrix::filled(3, 99.0)),
            outstanding_misses: Some(7.0),
            ..Costs::default()
        };
        found.complete_costs(&mut costs);
        let latency = costs.latency_ns.expect("known");
        assert_eq!([latency[(0, 1)], latency[(1, 2)], latency[(2, 0)]], [120.0, 150.0, 99.0]);
        assert_eq!(costs.outstanding_misses, Some(7.0));
        let transfers = costs.remote_cache_ns.expect("measured");
        assert_eq!(transfers[(0, 1)], 70.0, "the nearest");
        let nothing = Calibration::of(&machine, None);
        let mut unknown = Costs::default();
        nothing.complete_costs(&mut unknown);
        assert_eq!(unknown, Costs::default());
    }
}
