//! Costs of memory accesses on one machine, in cycles, and the queues on their way. They are
//! computed once from the topology. A value that the topology lacks has a default with its source.

use crate::matrix::Matrix;
use crate::topology::Topology;
use crate::units::LINE_BYTES;
use alloc::vec;
use alloc::vec::Vec;

use super::{CLOCK_HZ, IDLE_LOCAL_NS, REMOTE_EXTRA};

/// Latency that full use of a controller adds, as a share of a local access, if it was not
/// measured. Carrefour's table 1 has 476 cycles at 45 % use and about 200 on an idle machine.
const BURST_SHARE: f64 = 3.0;
/// Misses that a CPU keeps under way, if it was not measured: 10 line fill buffers of Intel's cores
/// from Nehalem to Skylake [product data].
const OUTSTANDING: f64 = 10.0;
/// ns to fetch a line from a neighbour's private cache, if it was not measured [ALGORITHMS 6, S2].
const SAME_DOMAIN_NS: f64 = 35.0;
/// ACPI's distance of a node to itself; each further multiple of it is a hop.
const LOCAL_DISTANCE: f64 = 10.0;

/// Costs and queues of a machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Charges {
    pub(super) cycles_per_us: f64,
    /// Cycles of a DRAM access on an idle machine, `[accessing][holding]`.
    pub(super) idle: Matrix<f64>,
    /// The least cost in a node's row: its own memory, or the nearest memory.
    pub(super) nearest: Vec<f64>,
    /// Cycles to fetch a line from a cache of another node, `[accessing][owning]`. The diagonal is
    /// another cache domain of the same node.
    pub(super) transfer: Matrix<f64>,
    /// Cycles to fetch a line from a CPU behind the same cache.
    pub(super) same_domain: f64,
    /// Misses that one CPU keeps under way.
    pub(super) outstanding: f64,
    /// Controllers in the order of nodes, then links, then pairs of nodes with a limit of their
    /// own.
    pub(super) servers: Vec<Server>,
    /// For each pair of nodes, its servers other than the controller.
    ways: Matrix<(u32, u32)>,
    on_ways: Vec<u32>,
}

/// A queue on the way of an access: a controller, a link, or a pair of nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Server {
    /// Capacity in lines per µs; infinite if unknown.
    pub(super) per_us: f64,
    /// Cycles that full use adds by bursts, before a backlog begins.
    pub(super) burst: f64,
    /// Cycles of a round trip through it: the unit of a backlog.
    pub(super) unit: f64,
}

impl Server {
    /// A server of `factor` times the capacity.
    pub(super) fn scaled(self, factor: f64) -> Self {
        Self { per_us: self.per_us * factor, ..self }
    }
}

impl Charges {
    pub(super) fn of(topology: &Topology) -> Self {
        let count = topology.node_count();
        let costs = topology.costs();
        let cycles_per_ns = topology.clock_hz().unwrap_or(CLOCK_HZ) / 1e9;
        let told = |a: usize, h: usize| {
            costs.latency_ns.as_ref().map(|matrix| matrix[(a, h)]).filter(|ns| *ns > 0.0)
        };
        let idle = Matrix::from_fn(count, |a, h| {
            let local = told(h, h).unwrap_or(IDLE_LOCAL_NS);
            let hops = (f64::from(topology.distance(a, h)) / LOCAL_DISTANCE - 1.0).max(0.0);
            cycles_per_ns * told(a, h).unwrap_or(local * (1.0 + REMOTE_EXTRA * hops))
        });
        let holders = topology.memory_nodes();
        let nearest = |a: usize| holders.iter().map(|h| idle[(a, h)]).fold(f64::INFINITY, f64::min);
        let same_domain = cycles_per_ns * costs.same_domain_ns.unwrap_or(SAME_DOMAIN_NS);
        let transfer = Matrix::from_fn(count, |a, owner| {
            let remote = costs.remote_cache_ns.as_ref().map(|matrix| matrix[(a, owner)]);
            match a == owner {
                true => costs.same_node_ns.map_or(same_domain, |ns| ns * cycles_per_ns),
                // A line of another node's cache takes about as long as one of its memory.
                false => match remote.filter(|ns| *ns > 0.0) {
                    Some(ns) => ns * cycles_per_ns,
                    None => idle[(a, owner)],
                },
            }
        });
        let controllers = (0..count).map(|node| {
            let burst = costs.burst_ns.as_ref().map(|bursts| bursts[node] * cycles_per_ns);
            Server {
                per_us: topology.controller_bytes_per_s(node).map_or(f64::INFINITY, lines_per_us),
                burst: burst.unwrap_or(BURST_SHARE * idle[(node, node)]),
                unit: idle[(node, node)],
            }
        });
        let links = topology.links().iter().map(|link| Server {
            per_us: lines_per_us(link.bytes_per_s),
            burst: 0.0,
            unit: idle[(link.to, link.from)],
        });
        let mut charges = Self {
            cycles_per_us: 1000.0 * cycles_per_ns,
            nearest: (0..count).map(nearest).collect(),
            transfer,
            same_domain,
            outstanding: costs.outstanding_misses.filter(|of| *of >= 1.0).unwrap_or(OUTSTANDING),
            servers: controllers.chain(links).collect(),
            ways: Matrix::filled(count, (0, 0)),
            on_ways: Vec::new(),
            idle,
        };
        charges.lay_ways(topology);
        charges
    }

    /// Notes the links of each pair of nodes, and the pair itself if its bandwidth is below that of
    /// its links.
    fn lay_ways(&mut self, topology: &Topology) {
        let count = topology.node_count();
        for (a, h) in (0..count).flat_map(|a| (0..count).map(move |h| (a, h))) {
            let begin = self.on_ways.len() as u32;
            let links = topology.route(a, h).map_or(&[][..], |route| &route.links);
            self.on_ways.extend(links.iter().map(|link| (count + link) as u32));
            let widest = links.iter().map(|link| topology.links()[*link].bytes_per_s);
            let widest = widest.fold(f64::INFINITY, f64::min);
            let controller = topology.controller_bytes_per_s(h).unwrap_or(f64::INFINITY);
            let reached = topology.bandwidth().map(|matrix| matrix[(a, h)]);
            let limit = reached.filter(|rate| a != h && *rate > 0.0);
            if let Some(rate) = limit.filter(|rate| *rate < widest.min(controller)) {
                self.on_ways.push(self.servers.len() as u32);
                let per_us = lines_per_us(rate);
                self.servers.push(Server { per_us, burst: 0.0, unit: self.idle[(a, h)] });
            }
            self.ways[(a, h)] = (begin, self.on_ways.len() as u32);
        }
    }

    /// Servers beside the controller between two nodes.
    pub(super) fn way(&self, accessing: usize, holding: usize) -> &[u32] {
        let (begin, end) = self.ways[(accessing, holding)];
        &self.on_ways[begin as usize..end as usize]
    }

    /// A server after the fit to the measured latency. A `factor` below 1 stands for traffic in
    /// bursts, so it scales links as well as controllers. A factor above 1 corrects the capacity of
    /// controllers only.
    pub(super) fn scaled(&self, place: usize, factor: f64) -> Server {
        let is_controller = place < self.nearest.len();
        self.servers[place].scaled(if is_controller { factor } else { factor.min(1.0) })
    }

    /// Scales all servers in this way.
    pub(super) fn scale(&mut self, factor: f64) {
        self.servers = (0..self.servers.len()).map(|place| self.scaled(place, factor)).collect();
    }

    /// No load on any server.
    pub(super) fn no_load(&self) -> Vec<f64> {
        vec![0.0; self.servers.len()]
    }
}

fn lines_per_us(bytes_per_s: f64) -> f64 {
    bytes_per_s / (1e6 * LINE_BYTES as f64)
}
