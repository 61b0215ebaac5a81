//! The machine as the policies see it: nodes, CPUs, cache domains, memory, distances, bandwidth and
//! links. Checked once, here.
//!
//! It holds what does not change while the hardware stays the same. It may not hold a measurement
//! of a running program.

mod calibrated;
mod costs;
mod description;
pub mod synthetic;

pub use calibrated::{Calibrated, PenaltyLine};
pub use costs::Costs;
pub use description::{Cpu, Description, Link, NodeDescription, Route, TopologyError};

use crate::index_set::{CpuSet, IndexSet, NodeSet};
use crate::matrix::Matrix;
use crate::units::Bytes;
use alloc::vec::Vec;

/// A machine without contradictions. Indices of nodes, CPUs, cache domains and packages are dense,
/// from zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    description: Description,
    cpus_of_node: Vec<CpuSet>,
    cpus_of_domain: Vec<CpuSet>,
    cpus_of_package: Vec<CpuSet>,
    isolated: CpuSet,
}

impl Topology {
    /// Checks a description and builds its indices.
    ///
    /// # Errors
    /// The field that contradicts the others, and its expected value.
    pub fn new(description: Description) -> Result<Self, TopologyError> {
        description.check()?;
        let groups = |count: usize, group_of: fn(&Cpu) -> usize| {
            let mut groups = alloc::vec![CpuSet::new(); count];
            for (index, cpu) in description.cpus.iter().enumerate() {
                groups[group_of(cpu)].insert(index);
            }
            groups
        };
        let count = |group_of: fn(&Cpu) -> usize| {
            description.cpus.iter().map(group_of).max().map_or(0, |last| last + 1)
        };
        let cpus_of_node = groups(description.nodes.len(), |cpu| cpu.node);
        let cpus_of_domain = groups(count(|cpu| cpu.cache_domain), |cpu| cpu.cache_domain);
        let cpus_of_package = groups(count(|cpu| cpu.package), |cpu| cpu.package);
        let is_isolated = |(index, cpu): (usize, &Cpu)| cpu.isolated.then_some(index);
        let isolated = description.cpus.iter().enumerate().filter_map(is_isolated).collect();
        Ok(Self { description, cpus_of_node, cpus_of_domain, cpus_of_package, isolated })
    }

    /// The description behind this topology.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Number of nodes, those without CPUs or without memory included.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.description.nodes.len()
    }

    /// Number of logical CPUs, isolated ones included.
    #[must_use]
    pub fn cpu_count(&self) -> usize {
        self.description.cpus.len()
    }

    /// Number of last-level cache domains.
    #[must_use]
    pub fn domain_count(&self) -> usize {
        self.cpus_of_domain.len()
    }

    /// Number of packages (sockets).
    #[must_use]
    pub fn package_count(&self) -> usize {
        self.cpus_of_package.len()
    }

    /// The CPU with this index.
    #[must_use]
    pub fn cpu(&self, cpu: usize) -> &Cpu {
        &self.description.cpus[cpu]
    }

    /// All CPUs by index.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.description.cpus
    }

    /// The node of a CPU.
    #[must_use]
    pub fn node_of_cpu(&self, cpu: usize) -> usize {
        self.description.cpus[cpu].node
    }

    /// The last-level cache domain of a CPU.
    #[must_use]
    pub fn domain_of_cpu(&self, cpu: usize) -> usize {
        self.description.cpus[cpu].cache_domain
    }

    /// The CPUs of a node; empty for a memory-only node.
    #[must_use]
    pub fn cpus_of_node(&self, node: usize) -> &CpuSet {
        &self.cpus_of_node[node]
    }

    /// The CPUs that share a last-level cache.
    #[must_use]
    pub fn cpus_of_domain(&self, domain: usize) -> &CpuSet {
        &self.cpus_of_domain[domain]
    }

    /// The CPUs of a package (socket).
    #[must_use]
    pub fn cpus_of_package(&self, package: usize) -> &CpuSet {
        &self.cpus_of_package[package]
    }

    /// All CPUs, isolated ones included.
    #[must_use]
    pub fn all_cpus(&self) -> CpuSet {
        CpuSet::first(self.cpu_count())
    }

    /// The CPUs of `cpus` that a manager may use: those that are not isolated.
    #[must_use]
    pub fn usable(&self, cpus: &CpuSet) -> CpuSet {
        cpus.difference(&self.isolated)
    }

    /// Memory of a node.
    #[must_use]
    pub fn memory(&self, node: usize) -> Bytes {
        self.description.nodes[node].memory
    }

    /// Whether a node has memory.
    #[must_use]
    pub fn has_memory(&self, node: usize) -> bool {
        self.memory(node) > Bytes(0)
    }

    /// Nodes with CPUs.
    #[must_use]
    pub fn compute_nodes(&self) -> NodeSet {
        (0..self.node_count()).filter(|&node| !self.cpus_of_node[node].is_empty()).collect()
    }

    /// Nodes with memory.
    #[must_use]
    pub fn memory_nodes(&self) -> NodeSet {
        (0..self.node_count()).filter(|&node| self.has_memory(node)).collect()
    }

    /// Nodes that should have equally loaded controllers. They are the nodes with memory and CPUs,
    /// or all with memory if no node has both. A memory-only node (CXL) is a slower tier, which may
    /// be idle.
    #[must_use]
    pub fn controllers(&self) -> NodeSet {
        let both = self.memory_nodes().intersection(&self.compute_nodes());
        if both.is_empty() { self.memory_nodes() } else { both }
    }

    /// ACPI SLIT distance: 10 for the node itself.
    #[must_use]
    pub fn distance(&self, accessing: usize, holding: usize) -> u32 {
        self.description.distances[(accessing, holding)]
    }

    /// The node itself, or the nearest with memory (the lowest on a tie) if it has none.
    #[must_use]
    pub fn nearest_memory(&self, node: usize) -> usize {
        let holders = || (0..self.node_count()).filter(|&held| self.has_memory(held));
        match self.has_memory(node) {
            true => node,
            false => holders().min_by_key(|&held| self.distance(node, held)).unwrap_or(node),
        }
    }

    /// Thresholds measured on this machine, which replace published ones.
    #[must_use]
    pub fn calibrated(&self) -> &Calibrated {
        &self.description.calibrated
    }

    /// Costs of accesses on this machine, as far as they are known.
    #[must_use]
    pub fn costs(&self) -> &Costs {
        &self.description.costs
    }

    /// Measured bandwidth in bytes per second by `[accessing][holding]`, the diagonal for local
    /// accesses. `None` if it was not measured.
    #[must_use]
    pub fn bandwidth(&self) -> Option<&Matrix<f64>> {
        self.description.bandwidth_bytes_per_s.as_ref()
    }

    /// Directed links; data flows from the node that holds it (`from`) to the node that reads it
    /// (`to`).
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.description.links
    }

    /// The links between two nodes, where routes are known; empty on the diagonal.
    #[must_use]
    pub fn route(&self, accessing: usize, holding: usize) -> Option<&Route> {
        self.description.routes.as_ref().map(|routes| &routes[accessing][holding])
    }

    /// Bandwidth of a node's controller in bytes per second, where known.
    #[must_use]
    pub fn controller_bytes_per_s(&self, node: usize) -> Option<f64> {
        self.description.nodes[node].controller_bytes_per_s
    }

    /// Bandwidth of all [`Topology::controllers`] together in bytes per second; `None` if one of
    /// them is unknown.
    #[must_use]
    pub fn capacity_bytes_per_s(&self) -> Option<f64> {
        self.controllers().iter().map(|node| self.controller_bytes_per_s(node)).sum()
    }

    /// Nominal clock in cycles per second, where known: the rate of the reference-cycle counter.
    #[must_use]
    pub fn clock_hz(&self) -> Option<f64> {
        self.description.clock_hz
    }

    /// The kernel's number of a node.
    #[must_use]
    pub fn kernel_node(&self, node: usize) -> u32 {
        self.description.nodes[node].kernel_id
    }

    /// The kernel's number of a CPU.
    #[must_use]
    pub fn kernel_cpu(&self, cpu: usize) -> u32 {
        self.description.cpus[cpu].kernel_id
    }

    /// The kernel's numbers of these CPUs.
    #[must_use]
    pub fn kernel_cpus(&self, cpus: &CpuSet) -> IndexSet {
        cpus.iter().map(|cpu| self.kernel_cpu(cpu) as usize).collect()
    }

    /// The kernel's numbers of these nodes.
    #[must_use]
    pub fn kernel_nodes(&self, nodes: &NodeSet) -> IndexSet {
        nodes.iter().map(|node| self.kernel_node(node) as usize).collect()
    }

    /// The node with this kernel number. It scans all nodes, so do not call it per sample.
    #[must_use]
    pub fn node_of_kernel_id(&self, kernel_id: u32) -> Option<usize> {
        self.description.nodes.iter().position(|node| node.kernel_id == kernel_id)
    }

    /// The CPU with this kernel number. It scans all CPUs, so do not call it per sample.
    #[must_use]
    pub fn cpu_of_kernel_id(&self, kernel_id: u32) -> Option<usize> {
        self.description.cpus.iter().position(|cpu| cpu.kernel_id == kernel_id)
    }
}
