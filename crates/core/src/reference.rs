//! Machines on which published rates were found: a rate keeps its meaning on another machine only
//! relative to capacity and clock.
//!
//! The values repeat `machines/*.toml`, which says where they come from; a test beside the machine
//! files compares them.

use crate::topology::Topology;
use crate::units::LINE_BYTES;

/// What a published rate is relative to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reference {
    /// Name of its machine file.
    pub machine: &'static str,
    /// Memory controllers.
    pub controllers: usize,
    /// Bandwidth of each in bytes per second.
    pub controller_bytes_per_s: f64,
    /// Nominal clock in cycles per second.
    pub clock_hz: f64,
    /// Logical CPUs of a socket.
    pub cpus_per_socket: usize,
}

/// Carrefour's machine A: 4 × Opteron 8385. Bandwidth, from Table 1: Streamcluster under first
/// touch draws 93 lines/µs. Of these 97 % come from one saturated controller, with the traffic that
/// samples do not show on top (ALGORITHMS 1.11; the machine file).
pub const CARREFOUR_A: Reference = Reference {
    machine: "carrefour-a",
    controllers: 4,
    controller_bytes_per_s: 6.45e9,
    clock_hz: 2.3e9,
    cpus_per_socket: 4,
};

impl Reference {
    /// Requests (lines) per microsecond that all its controllers together can serve.
    #[must_use]
    pub fn requests_per_us(&self) -> f64 {
        self.controllers as f64 * self.controller_bytes_per_s / LINE_BYTES as f64 / 1e6
    }

    /// A request rate of this machine, as the same share of another machine's capacity. Controllers
    /// of unknown bandwidth count as one of this machine's.
    #[must_use]
    pub fn scale_requests_per_us(&self, published: f64, topology: &Topology) -> f64 {
        published * requests_per_us(topology, self) / self.requests_per_us()
    }

    /// The same for a rate per controller.
    #[must_use]
    pub fn scale_requests_per_us_and_node(&self, published: f64, topology: &Topology) -> f64 {
        let nodes = topology.controllers().len().max(1) as f64;
        let each = requests_per_us(topology, self) / nodes;
        published * each * self.controllers as f64 / self.requests_per_us()
    }
}

fn requests_per_us(topology: &Topology, reference: &Reference) -> f64 {
    let of =
        |node| topology.controller_bytes_per_s(node).unwrap_or(reference.controller_bytes_per_s);
    topology.controllers().iter().map(of).sum::<f64>() / LINE_BYTES as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::synthetic;

    #[test]
    fn a_rate_is_the_same_share_of_another_capacity() {
        let twice = synthetic::parse("node:8 gbs:5").expect("a machine");
        let expected = 50.0 * (8.0 * 5.0) / (4.0 * 6.45);
        assert!((CARREFOUR_A.scale_requests_per_us(50.0, &twice) - expected).abs() < 1e-9);
        let unknown = synthetic::parse("node:2").expect("a machine");
        assert!((CARREFOUR_A.scale_requests_per_us(50.0, &unknown) - 25.0).abs() < 1e-9);
        assert!((CARREFOUR_A.scale_requests_per_us_and_node(15.0, &unknown) - 15.0).abs() < 1e-9);
    }
}
