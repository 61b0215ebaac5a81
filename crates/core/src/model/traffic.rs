//! Memory traffic from node to node, and the metrics that Carrefour derives from it: load, LAR,
//! MC-IMB, MAPTU.

use crate::index_set::NodeSet;
use crate::matrix::Matrix;
use crate::topology::Topology;
use crate::units::{LINE_BYTES, Nanos};
use alloc::vec::Vec;
use core::fmt;

/// DRAM requests (cache lines) per microsecond by `[accessing][holding]`.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Traffic {
    /// The rates.
    pub requests_per_us: Matrix<f64>,
}

/// The kind of standard deviation. Carrefour's final table fits the population's, its draft and
/// author code the sample's (n − 1). For four controllers the second is 1.1547 times the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Deviation {
    /// Divide by n.
    Population,
    /// Divide by n − 1.
    Sample,
}

/// Empty for the usual kind, so that text names the other kind only.
impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Population => "",
            Self::Sample => " (divided by n - 1)",
        })
    }
}

/// 100 · sd / mean; `None` for no values or a mean of zero.
#[must_use]
pub fn imbalance_percent(values: &[f64], deviation: Deviation) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if mean.is_nan() || mean <= 0.0 {
        return None;
    }
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    let divisor = match deviation {
        Deviation::Population => count,
        Deviation::Sample => (count - 1.0).max(1.0),
    };
    Some(100.0 * libm::sqrt(squares / divisor) / mean)
}

impl Traffic {
    /// From rates in requests per microsecond.
    #[must_use]
    pub fn new(requests_per_us: Matrix<f64>) -> Self {
        Self { requests_per_us }
    }

    /// From requests counted in a time; `None` if that time is zero.
    #[must_use]
    pub fn from_counts(requests: &Matrix<f64>, elapsed: Nanos) -> Option<Self> {
        (elapsed > Nanos(0)).then(|| Self::new(requests.map(|count| count / elapsed.micros())))
    }

    /// Requests per microsecond of the whole machine (MAPTU).
    #[must_use]
    pub fn total_per_us(&self) -> f64 {
        self.requests_per_us.rows().flatten().sum()
    }

    /// Requests per microsecond that each node's controller serves: `load[m]`, MAPTU per node.
    #[must_use]
    pub fn load_per_us(&self) -> Vec<f64> {
        let mut load = alloc::vec![0.0; self.requests_per_us.size()];
        for row in self.requests_per_us.rows() {
            for (sum, rate) in load.iter_mut().zip(row) {
                *sum += rate;
            }
        }
        load
    }

    /// Bytes per second that `accessing` reads from and writes to `holding`.
    #[must_use]
    pub fn bytes_per_s(&self, accessing: usize, holding: usize) -> f64 {
        self.requests_per_us[(accessing, holding)] * 1e6 * LINE_BYTES as f64
    }

    /// Local access ratio in percent (LAR); `None` without traffic.
    #[must_use]
    pub fn local_percent(&self) -> Option<f64> {
        let total = self.total_per_us();
        let local: f64 =
            (0..self.requests_per_us.size()).map(|node| self.requests_per_us[(node, node)]).sum();
        (total > 0.0).then(|| 100.0 * local / total)
    }

    /// Controller imbalance in percent (MC-IMB) over [`Topology::controllers`]; `None` without
    /// traffic. Load is relative to bandwidth ([`Self::relative_capacity`]), so equal controllers
    /// give the published values. Reports print this number. For a process confined to some nodes
    /// policies use that of [`Self::imbalance_percent_among`].
    #[must_use]
    pub fn imbalance_percent(&self, deviation: Deviation, topology: &Topology) -> Option<f64> {
        self.imbalance_percent_among(&topology.controllers(), deviation, topology)
    }

    /// The same over those controllers that are among `nodes`.
    #[must_use]
    pub fn imbalance_percent_among(
        &self,
        nodes: &NodeSet,
        deviation: Deviation,
        topology: &Topology,
    ) -> Option<f64> {
        let (load, capacity) = (self.load_per_us(), Self::relative_capacity(topology));
        let controllers = topology.controllers().intersection(nodes);
        let loads: Vec<f64> = controllers.iter().map(|node| load[node] / capacity[node]).collect();
        imbalance_percent(&loads, deviation)
    }

    /// Bandwidth of each node's controller relative to the mean of [`Topology::controllers`]. All
    /// are 1 if the bandwidth of one of them is not known.
    #[must_use]
    pub fn relative_capacity(topology: &Topology) -> Vec<f64> {
        let Some(total) = topology.capacity_bytes_per_s() else {
            return alloc::vec![1.0; topology.node_count()];
        };
        let mean = total / topology.controllers().len() as f64;
        (0..topology.node_count())
            .map(|node| topology.controller_bytes_per_s(node).map_or(1.0, |rate| rate / mean))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::synthetic;
    use alloc::format;
    use alloc::string::String;

    /// Checks both kinds of imbalance for these loads of the controllers.
    fn check(loads: &[f64], expected: &str) {
        let machine = synthetic::parse(&format!("node:{}", loads.len())).expect("a machine");
        let traffic =
            Traffic::new(Matrix::from_fn(loads.len(), |n, m| if n == 0 { loads[m] } else { 0.0 }));
        let both = |deviation| {
            traffic
                .imbalance_percent(deviation, &machine)
                .map_or_else(|| String::from("none"), |percent| format!("{percent:.1}"))
        };
        assert_eq!(
            format!("{} / {}", both(Deviation::Population), both(Deviation::Sample)),
            expected
        );
    }

    /// The values are those of ALGORITHMS 1.5.
    #[test]
    fn imbalance_has_the_published_values() {
        check(&[1.0, 0.0, 0.0, 0.0], "173.2 / 200.0");
        check(&[40.0, 20.0, 20.0, 20.0], "34.6 / 40.0");
        check(&[2.0, 1.0, 1.0, 0.0], "70.7 / 81.6");
        check(&[33.0, 25.0, 22.0, 20.0], "19.8 / 22.9");
        check(&[97.0, 1.0, 1.0, 1.0], "166.3 / 192.0");
        check(&[0.0, 0.0], "none / none");
    }

    #[test]
    fn a_controller_with_a_quarter_of_the_bandwidth_is_even_with_a_quarter_of_the_load() {
        let mut description = synthetic::describe("node:4 core:4 gbs:10").expect("a machine");
        description.nodes[3].controller_bytes_per_s = Some(2.5e9);
        let machine = Topology::new(description).expect("a machine");
        let imbalance = |loads: [f64; 4]| {
            let traffic = Traffic::new(Matrix::from_fn(4, |_, holding| loads[holding]));
            traffic.imbalance_percent(Deviation::Population, &machine).expect("some traffic")
        };
        assert!(imbalance([40.0, 40.0, 40.0, 10.0]) < 1e-9);
        // Node 3 is used four times as much: 2.5, 2.5, 2.5 and 10.
        assert!((imbalance([25.0; 4]) - 74.2).abs() < 0.1);
    }

    #[test]
    fn local_ratio_and_load_follow_rows_and_columns() {
        let traffic = Traffic::new(
            Matrix::from_rows(&[alloc::vec![30.0, 10.0], alloc::vec![60.0, 0.0]]).expect("square"),
        );
        assert_eq!(traffic.load_per_us(), [90.0, 10.0]);
        assert_eq!(traffic.local_percent(), Some(30.0));
        assert_eq!(traffic.total_per_us(), 100.0);
        assert_eq!(traffic.bytes_per_s(0, 1), 640e6);
    }
}
