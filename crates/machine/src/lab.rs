//! The lab's machine: the same ratios with fewer CPUs, smaller caches and everything slower.
//!
//! One factor stretches all that is time. Bandwidth shrinks by it and by the share of CPUs kept,
//! so that demand and capacity stay in proportion. One share for the whole machine: controllers
//! and links of nodes without CPUs must shrink too, and bandwidths must keep their ratios.

use crate::error::MachineError;
use crate::limits;
use crate::machine::{
    Cache, Caches, Controller, Core, LINE_BYTES, Lab, Link, Machine, Node, Pmu, Route, Transfer,
};

impl Machine {
    /// The machine that the lab models: scaled and slowed by the `[lab]` table, in guest time. A
    /// machine that is already scaled is returned unchanged.
    ///
    /// # Errors
    /// There is no `[lab]` table, or the machine is too large for the lab. Or the CPUs left cannot
    /// saturate a controller or a route, so that measurements would mean nothing (see
    /// [`Machine::check_saturation`]).
    pub fn for_lab(&self) -> Result<Self, MachineError> {
        let refuse =
            |reason: String| MachineError::NotForTheLab { name: self.name.clone(), reason };
        if self.lab.cpus_per_node == 0 {
            return Err(refuse("its file has no [lab] table".into()));
        }
        let machine = if self.lab.applied { self.clone() } else { scaled(self) };
        let (cpus, nodes) = (machine.cpu_count(), machine.nodes.len());
        if cpus > limits::LAB_CPUS_MAX as usize || nodes > limits::LAB_NODES_MAX {
            let (most_cpus, most_nodes) = (limits::LAB_CPUS_MAX, limits::LAB_NODES_MAX);
            return Err(refuse(format!(
                "expected at most {most_cpus} vCPUs on {most_nodes} nodes, got {cpus} on {nodes}"
            )));
        }
        let report = machine.check_saturation();
        if report.holds() {
            Ok(machine)
        } else {
            Err(MachineError::CannotSaturate { name: self.name.clone(), report })
        }
    }
}

fn scaled(full: &Machine) -> Machine {
    let slow = full.lab.slow_motion;
    let nodes: Vec<Node> = full.nodes.iter().map(|node| lab_node(node, &full.lab)).collect();
    let kept: u32 = nodes.iter().map(|node| node.cpus).sum();
    let share = f64::from(kept) / full.cpu_count() as f64 / slow;
    let slower = |matrix: &[Vec<f64>]| -> Vec<Vec<f64>> {
        matrix.iter().map(|row| row.iter().map(|ns| ns * slow).collect()).collect()
    };
    Machine {
        name: full.name.clone(),
        title: full.title.clone(),
        source: full.source.clone(),
        // The guest's vCPUs are whole cores, because the emulation models no resources of a core
        // that hardware threads share.
        core: Core {
            clock_mhz: full.core.clock_mhz / slow,
            threads_per_core: 1,
            ..full.core.clone()
        },
        caches: Caches {
            l1: lab_cache(&full.caches.l1, 1.0, slow),
            l2: lab_cache(&full.caches.l2, full.lab.l2_scale, slow),
            llc: lab_cache(&full.caches.llc, full.lab.cache_scale, slow),
        },
        prefetch: full.prefetch.clone(),
        nodes: nodes.into_iter().map(|node| slow_node(node, slow, share)).collect(),
        nodes_per_package: full.nodes_per_package,
        latency_ns: slower(&full.latency_ns),
        transfer_ns: Transfer {
            same_domain_ns: full.transfer_ns.same_domain_ns * slow,
            same_node_ns: full.transfer_ns.same_node_ns * slow,
            remote_ns: slower(&full.transfer_ns.remote_ns),
            forwards_clean: full.transfer_ns.forwards_clean,
        },
        distances: full.distances.clone(),
        links: full.links.iter().map(|link| narrow_link(link, share)).collect(),
        routes: full
            .routes
            .iter()
            .map(|row| row.iter().map(|r| narrow_route(r, share)).collect())
            .collect(),
        pmu: Pmu {
            sample_cost_ns: full.pmu.sample_cost_ns * slow,
            read_cost_ns: full.pmu.read_cost_ns * slow,
            ..full.pmu.clone()
        },
        lab: Lab { applied: true, ..full.lab.clone() },
    }
}

fn lab_node(node: &Node, lab: &Lab) -> Node {
    Node {
        cpus: node.cpus.min(lab.cpus_per_node),
        cache_domains: node.cache_domains.min(lab.cache_domains_per_node),
        memory_bytes: if node.memory_bytes > 0 { lab.memory_mib << 20 } else { 0 },
        controller: node.controller.clone(),
    }
}

fn slow_node(node: Node, slow: f64, share: f64) -> Node {
    let controller = node.controller.map(|full| Controller {
        bandwidth_mb_s: full.bandwidth_mb_s * share,
        latency_ns: full.latency_ns * slow,
        burst_latency_ns: full.burst_latency_ns * slow,
    });
    Node { controller, ..node }
}

/// A cache divided by `scale`, in whole sets and at least one, with a latency times `slow`.
fn lab_cache(cache: &Cache, scale: f64, slow: f64) -> Cache {
    let way = u64::from(cache.ways) * LINE_BYTES;
    let sets = (cache.bytes as f64 / scale / way as f64).round().max(1.0) as u64;
    Cache { bytes: sets * way, ways: cache.ways, latency_ns: cache.latency_ns * slow }
}

fn narrow_link(link: &Link, share: f64) -> Link {
    Link { bandwidth_mb_s: link.bandwidth_mb_s * share, ..link.clone() }
}

fn narrow_route(route: &Route, share: f64) -> Route {
    Route { links: route.links.clone(), limit_mb_s: route.limit_mb_s.map(|limit| limit * share) }
}
