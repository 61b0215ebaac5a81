//! The plain fields of a topology, and the check that they fit each other.

use super::calibrated::Calibrated;
use super::costs::Costs;
use crate::limits::{MAX_CPUS, MAX_NODES};
use crate::matrix::Matrix;
use crate::units::Bytes;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A machine as plain fields without a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Nominal clock in cycles per second: the rate of the reference-cycle counter.
    pub clock_hz: Option<f64>,
    /// Nodes by index.
    pub nodes: Vec<NodeDescription>,
    /// CPUs by index, node by node.
    pub cpus: Vec<Cpu>,
    /// ACPI SLIT distances by `[accessing][holding]`, 10 on the diagonal.
    pub distances: Matrix<u32>,
    /// Measured bandwidth in bytes per second by `[accessing][holding]`.
    pub bandwidth_bytes_per_s: Option<Matrix<f64>>,
    /// Thresholds measured on this machine.
    pub calibrated: Calibrated,
    /// Costs of an access.
    pub costs: Costs,
    /// Directed links of the interconnect.
    pub links: Vec<Link>,
    /// Routes by `[accessing][holding]`; `None` if they are not known.
    pub routes: Option<Vec<Vec<Route>>>,
}

/// A node: CPUs, memory or both.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDescription {
    /// The kernel's number; may have holes.
    pub kernel_id: u32,
    /// Size of its memory; zero for a node without memory.
    pub memory: Bytes,
    /// Bandwidth of its memory controller in bytes per second; `None` if not known.
    pub controller_bytes_per_s: Option<f64>,
}

/// A logical CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number; may have holes.
    pub kernel_id: u32,
    /// Index of its node.
    pub node: usize,
    /// Index of its last-level cache domain, over the whole machine.
    pub cache_domain: usize,
    /// Index of its physical core, over the whole machine; hardware threads of one core share it.
    pub core: usize,
    /// Index of its package (socket).
    pub package: usize,
    /// Removed from scheduling by the administrator (isolcpus, nohz_full, isolated cpuset
    /// partition). A manager never uses it.
    pub isolated: bool,
}

/// A directed link. Data flows from the node that holds it to the node that reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Node that sends the data.
    pub from: usize,
    /// Node that receives it.
    pub to: usize,
    /// Capacity in bytes per second.
    pub bytes_per_s: f64,
}

/// The links that data takes from a holding to an accessing node. Empty: not known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Route {
    /// Indices of links, from the holding node on.
    pub links: Vec<usize>,
}

/// A description that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("topology: {path}: {expected}")]
pub struct TopologyError {
    /// Path of the field, such as `cpus[3].node`.
    pub path: String,
    /// The value found and the one expected.
    pub expected: String,
}

pub(super) fn refuse<T>(path: impl ToString, expected: impl ToString) -> Result<T, TopologyError> {
    Err(TopologyError { path: path.to_string(), expected: expected.to_string() })
}

impl Description {
    /// A machine of which only nodes and CPUs are known: distances 10 and 20, no bandwidth, no
    /// links.
    #[must_use]
    pub fn plain(nodes: Vec<NodeDescription>, cpus: Vec<Cpu>) -> Self {
        let distances = Matrix::from_fn(nodes.len(), |a, b| if a == b { 10 } else { 20 });
        Self {
            clock_hz: None,
            nodes,
            cpus,
            distances,
            bandwidth_bytes_per_s: None,
            calibrated: Calibrated::default(),
            costs: Costs::default(),
            links: Vec::new(),
            routes: None,
        }
    }

    /// Checks that the fields fit each other.
    pub(super) fn check(&self) -> Result<(), TopologyError> {
        self.check_nodes()?;
        self.check_cpus()?;
        self.check_matrices()?;
        self.calibrated.check()?;
        self.costs.check(self.nodes.len())?;
        self.check_links()
    }

    fn check_nodes(&self) -> Result<(), TopologyError> {
        if self.nodes.is_empty() || self.nodes.len() > MAX_NODES {
            return refuse(
                "nodes",
                format!("{} nodes, expected 1 to {MAX_NODES}", self.nodes.len()),
            );
        }
        if let Some(hz) = self.clock_hz.filter(|hz| !positive(*hz)) {
            return refuse("clock_hz", format!("{hz}, expected more than zero"));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            if self.nodes[..i].iter().any(|other| other.kernel_id == node.kernel_id) {
                return refuse(
                    format!("nodes[{i}].kernel_id"),
                    format!("{} is another node's already", node.kernel_id),
                );
            }
            if let Some(rate) = node.controller_bytes_per_s.filter(|rate| !positive(*rate)) {
                return refuse(
                    format!("nodes[{i}].controller_bytes_per_s"),
                    format!("{rate}, expected more than zero"),
                );
            }
        }
        if self.nodes.iter().all(|node| node.memory == Bytes(0)) {
            return refuse("nodes", "no node has memory");
        }
        Ok(())
    }

    fn check_cpus(&self) -> Result<(), TopologyError> {
        if self.cpus.is_empty() || self.cpus.len() > MAX_CPUS {
            return refuse("cpus", format!("{} CPUs, expected 1 to {MAX_CPUS}", self.cpus.len()));
        }
        let mut seen = alloc::collections::BTreeSet::new();
        for (i, cpu) in self.cpus.iter().enumerate() {
            if cpu.node >= self.nodes.len() {
                return refuse(
                    format!("cpus[{i}].node"),
                    format!("{}, expected below {}", cpu.node, self.nodes.len()),
                );
            }
            if !seen.insert(cpu.kernel_id) {
                return refuse(
                    format!("cpus[{i}].kernel_id"),
                    format!("{} is another CPU's already", cpu.kernel_id),
                );
            }
            for (name, group) in
                [("cache_domain", cpu.cache_domain), ("core", cpu.core), ("package", cpu.package)]
            {
                if group >= self.cpus.len() {
                    return refuse(
                        format!("cpus[{i}].{name}"),
                        format!("{group}, expected below {}", self.cpus.len()),
                    );
                }
            }
        }
        Ok(())
    }

    fn check_matrices(&self) -> Result<(), TopologyError> {
        let count = self.nodes.len();
        if self.distances.size() != count {
            return refuse(
                "distances",
                format!("{} rows, expected {count}", self.distances.size()),
            );
        }
        if let Some((a, h, _)) =
            self.distances.cells().find(|&(a, h, d)| if a == h { d != 10 } else { d < 10 })
        {
            return refuse(
                format!("distances[{a}][{h}]"),
                "expected 10 on the diagonal and at least 10 beside it",
            );
        }
        let Some(bandwidth) = &self.bandwidth_bytes_per_s else { return Ok(()) };
        if bandwidth.size() != count {
            return refuse("bandwidth", format!("{} rows, expected {count}", bandwidth.size()));
        }
        match bandwidth.cells().find(|&(_, _, rate)| !(rate.is_finite() && rate >= 0.0)) {
            Some((a, h, rate)) => {
                refuse(format!("bandwidth[{a}][{h}]"), format!("{rate}, expected zero or more"))
            }
            None => Ok(()),
        }
    }

    fn check_links(&self) -> Result<(), TopologyError> {
        for (i, link) in self.links.iter().enumerate() {
            if link.from >= self.nodes.len() || link.to >= self.nodes.len() || link.from == link.to
            {
                return refuse(
                    format!("links[{i}]"),
                    format!("{} → {}, expected two different nodes", link.from, link.to),
                );
            }
            if !positive(link.bytes_per_s) {
                return refuse(
                    format!("links[{i}].bytes_per_s"),
                    format!("{}, expected more than zero", link.bytes_per_s),
                );
            }
        }
        let Some(routes) = &self.routes else { return Ok(()) };
        if routes.len() != self.nodes.len()
            || routes.iter().any(|row| row.len() != self.nodes.len())
        {
            return refuse("routes", format!("expected {0} rows of {0}", self.nodes.len()));
        }
        for (accessing, row) in routes.iter().enumerate() {
            for (holding, route) in row.iter().enumerate() {
                self.check_route(accessing, holding, route)?;
            }
        }
        Ok(())
    }

    /// Checks that a route is a chain of links from the holding to the accessing node. An empty
    /// route means that it is not known.
    fn check_route(
        &self,
        accessing: usize,
        holding: usize,
        route: &Route,
    ) -> Result<(), TopologyError> {
        let path = format!("routes[{accessing}][{holding}]");
        let mut at = holding;
        for &link in &route.links {
            match self.links.get(link) {
                Some(link) if link.from == at => at = link.to,
                Some(_) => {
                    return refuse(
                        path,
                        format!("link {link} does not start where the one before it ends"),
                    );
                }
                None => {
                    return refuse(
                        path,
                        format!("link {link}, expected below {}", self.links.len()),
                    );
                }
            }
        }
        if at == accessing || route.links.is_empty() {
            return Ok(());
        }
        refuse(path, format!("ends on node {at}, expected {accessing}"))
    }
}

pub(super) fn positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}
