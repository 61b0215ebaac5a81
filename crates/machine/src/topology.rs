//! The machine as the policies see it.
//!
//! Numbers of the kernel are taken to be ours: nodes and CPUs without holes, node by node.

use rondpoint_core::matrix::Matrix;
use rondpoint_core::topology::{
    Calibrated, Costs, Cpu, Description, Link, NodeDescription, Route, Topology,
};
use rondpoint_core::units::Bytes;

use crate::machine::Machine;

/// Bytes per second in one MB/s.
const MEGA: f64 = 1e6;

impl Machine {
    /// The topology of this machine, with bandwidth and routes. A route's own limit is in the
    /// bandwidth matrix, not in its links.
    #[must_use]
    pub fn topology(&self) -> Topology {
        let count = self.nodes.len();
        let route = |route: &crate::machine::Route| Route { links: route.links.clone() };
        let link = |link: &crate::machine::Link| Link {
            from: link.from,
            to: link.to,
            bytes_per_s: link.bandwidth_mb_s * MEGA,
        };
        let description = Description {
            clock_hz: Some(self.core.clock_mhz * 1e6),
            nodes: (0..count).map(|node| self.node_description(node)).collect(),
            cpus: (0..self.cpu_count()).map(|cpu| self.cpu_description(cpu)).collect(),
            distances: Matrix::from_fn(count, |a, h| self.distances[a][h]),
            bandwidth_bytes_per_s: Some(Matrix::from_fn(count, |a, h| {
                self.bandwidth_mb_s(a, h) * MEGA
            })),
            calibrated: Calibrated::default(),
            costs: self.costs(),
            links: self.links.iter().map(link).collect(),
            routes: Some(self.routes.iter().map(|row| row.iter().map(route).collect()).collect()),
        };
        Topology::new(description).expect("a machine that was checked makes a topology that holds")
    }

    fn costs(&self) -> Costs {
        let burst = |node: &crate::machine::Node| {
            node.controller.as_ref().map_or(0.0, |controller| controller.burst_latency_ns)
        };
        let square = |rows: &[Vec<f64>]| Matrix::from_rows(rows);
        Costs {
            latency_ns: square(&self.latency_ns),
            burst_ns: Some(self.nodes.iter().map(burst).collect()),
            same_domain_ns: Some(self.transfer_ns.same_domain_ns),
            same_node_ns: Some(self.transfer_ns.same_node_ns),
            remote_cache_ns: square(&self.transfer_ns.remote_ns),
            cache_hit_ns: Some(self.caches.llc.latency_ns),
            cache_bytes: Some(self.caches.llc.bytes),
            outstanding_misses: Some(f64::from(self.core.outstanding_misses)),
        }
    }

    fn node_description(&self, node: usize) -> NodeDescription {
        let found = &self.nodes[node];
        let rate = |controller: &crate::machine::Controller| controller.bandwidth_mb_s * MEGA;
        NodeDescription {
            kernel_id: node as u32,
            memory: Bytes(found.memory_bytes),
            controller_bytes_per_s: found.controller.as_ref().map(rate),
        }
    }

    fn cpu_description(&self, cpu: usize) -> Cpu {
        let node = self.node_of_cpu(cpu);
        Cpu {
            kernel_id: cpu as u32,
            node,
            cache_domain: self.domain_of_cpu(cpu),
            core: cpu / self.core.threads_per_core as usize,
            package: self.package_of_node(node),
            isolated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topology_has_the_machines_nodes_domains_and_widths() {
        let text = "nodes=2 cpus=4 domains=2 smt=2 memory_only=1 hop=40 link=5000 bandwidth=9000";
        let machine = Machine::synthetic(text).unwrap();
        let topology = machine.topology();
        assert_eq!(
            (topology.node_count(), topology.cpu_count(), topology.domain_count()),
            (3, 8, 4)
        );
        assert_eq!((topology.package_count(), topology.cpu(5).core), (2, 2));
        assert_eq!(topology.compute_nodes().len(), 2);
        let bandwidth = topology.bandwidth().unwrap();
        assert_eq!((bandwidth[(0, 0)], bandwidth[(0, 1)], bandwidth[(1, 2)]), (9e9, 5e9, 5e9));
        assert_eq!(topology.route(1, 2).unwrap().links.len(), 2);
        assert_eq!(topology.distance(1, 2), 22);
        let latency = topology.costs().latency_ns.as_ref().unwrap();
        assert_eq!(latency[(0, 2)] - latency[(0, 0)], 40.0, "a hop");
        assert_eq!(topology.costs().cache_bytes, Some(machine.caches.llc.bytes));
    }
}
