//! Shares of the last-level caches: a group of pages with more accesses gets a larger share.

use super::Plant;
use std::collections::BTreeMap;

/// By cache domain, the resident share of each group that its threads use, 0 to 1.
pub(super) type Resident = Vec<BTreeMap<usize, f64>>;

impl Plant {
    /// Divides every last-level cache among the groups that running threads of its domain use.
    ///
    /// `uses` lists domain, group and accesses; the accesses are weights.
    pub(super) fn resident(&self, uses: &[(usize, usize, f64)]) -> Resident {
        let mut pressure: Resident = vec![BTreeMap::new(); self.topology.domain_count()];
        for &(domain, group, rate) in uses {
            *pressure[domain].entry(group).or_insert(0.0) += rate;
        }
        let capacity = self.machine.caches.llc.bytes as f64;
        for groups in &mut pressure {
            let mut left = capacity;
            let mut weight: f64 = groups.values().sum();
            // Small or busy groups fit whole; the others divide the rest by their pressure.
            let mut order: Vec<(f64, usize)> = groups
                .iter()
                .map(|(&group, &rate)| (self.groups[group].bytes() / rate.max(1e-12), group))
                .collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            for (_, group) in order {
                let bytes = self.groups[group].bytes();
                let rate = groups[&group];
                let own = (left * rate / weight.max(1e-12)).min(bytes).max(0.0);
                left -= own;
                weight -= rate;
                groups.insert(group, own / bytes);
            }
        }
        pressure
    }
}
