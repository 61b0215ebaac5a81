//! Controllers and links: delays that grow until the traffic fits.
//!
//! The network is closed: each thread keeps a bounded number of misses under way, so demand falls
//! as latency grows. A server that is asked for more than it carries adds delay round by round
//! until what is asked equals what it carries.

use rondpoint_core::Matrix;

use super::{Plant, Truth};
use rondpoint_machine::Machine;

/// Step of a round. A route of controller, two links and a limit multiplies the gain by four, so
/// it stays below a half.
const DAMPING: f64 = 0.4;
/// Delay at which a link's queue starts to grow, ns: the time of a short burst of lines.
const LEAST_LINK_NS: f64 = 50.0;

/// Delays of servers, ns, and use, 0 to 1.
#[derive(Debug, Clone)]
pub(crate) struct Queues {
    controllers: Vec<f64>,
    links: Vec<f64>,
    pairs: Matrix<f64>,
    pub(crate) utilisation: Vec<f64>,
    pub(crate) link_use: Vec<f64>,
}

/// Bytes per ns by `[accessing][holding]`: from memory and from other caches.
pub(super) struct Flow {
    pub(super) memory: Matrix<f64>,
    pub(super) caches: Matrix<f64>,
}

impl Queues {
    pub(super) fn new(machine: &Machine) -> Self {
        let nodes = machine.nodes.len();
        Self {
            controllers: vec![0.0; nodes],
            links: vec![0.0; machine.links.len()],
            pairs: Matrix::filled(nodes, 0.0),
            utilisation: vec![0.0; nodes],
            link_use: vec![0.0; machine.links.len()],
        }
    }

    /// One round. Gives the largest relative change of a delay.
    pub(super) fn update(&mut self, machine: &Machine, truth: &Truth, flow: &Flow) -> f64 {
        let mut change: f64 = 0.0;
        let mut grow = |queue: &mut f64, latency: f64, load: f64| {
            let step = DAMPING * (latency + *queue) * (load - 1.0).min(1.0);
            let next = (*queue + step).max(0.0);
            change = change.max((next - *queue).abs() / (latency + *queue));
            *queue = next;
        };
        self.link_use.iter_mut().for_each(|load| *load = 0.0);
        for (a, h, from_memory) in flow.memory.cells() {
            let amount = from_memory + flow.caches[(a, h)];
            if amount <= 0.0 {
                continue;
            }
            let route = &machine.routes[a][h];
            route.links.iter().for_each(|&link| self.link_use[link] += amount);
            if let Some(limit) = route.limit_mb_s {
                let latency = machine.latency_ns[a][h].max(LEAST_LINK_NS);
                grow(&mut self.pairs[(a, h)], latency, amount / (limit / 1000.0));
            }
        }
        for (h, node) in machine.nodes.iter().enumerate() {
            let Some(controller) = &node.controller else { continue };
            let all: f64 = flow.memory.column(h).sum();
            let remote = if all > 0.0 { 1.0 - flow.memory[(h, h)] / all } else { 0.0 };
            let mixed = 1.0 - truth.mixing * remote;
            let load = all / (controller.bandwidth_mb_s / 1000.0 * truth.bandwidth * mixed);
            let before = self.utilisation[h];
            self.utilisation[h] = before + DAMPING * (load.min(1.0) - before);
            grow(&mut self.controllers[h], controller.latency_ns, load);
        }
        for (index, link) in machine.links.iter().enumerate() {
            self.link_use[index] /= link.bandwidth_mb_s / 1000.0;
            let latency = machine.latency_ns[link.to][link.from].max(LEAST_LINK_NS);
            grow(&mut self.links[index], latency, self.link_use[index]);
        }
        change
    }

    fn on_route(&self, machine: &Machine, a: usize, h: usize) -> f64 {
        machine.routes[a][h].links.iter().map(|&link| self.links[link]).sum()
    }
}

impl Plant {
    /// Latency of a miss by `[accessing][holding]`, ns; zero where there is no memory.
    pub(crate) fn latencies(&self) -> Matrix<f64> {
        let (machine, truth, queues) = (&self.machine, &self.truth, &self.queues);
        Matrix::from_fn(machine.nodes.len(), |a, h| {
            let Some(controller) = &machine.nodes[h].controller else { return 0.0 };
            let wire = (machine.latency_ns[a][h] - controller.latency_ns) * truth.wire;
            let crowd = queues.utilisation[h].max(0.0).powf(truth.burst_power);
            let burst = controller.burst_latency_ns * truth.burst * crowd;
            let queued = queues.controllers[h] + queues.pairs[(a, h)];
            controller.latency_ns + wire + burst + queued + queues.on_route(machine, a, h)
        })
    }

    /// Latency of a line from a cache of another domain by `[accessing][owning]`, ns.
    pub(super) fn transfer_latencies(&self) -> Matrix<f64> {
        let machine = &self.machine;
        Matrix::from_fn(machine.nodes.len(), |a, owner| match a == owner {
            true => machine.transfer_ns.same_node_ns,
            false => {
                let unloaded = machine.transfer_ns.remote_ns[a][owner];
                unloaded * self.truth.wire + self.queues.on_route(machine, a, owner)
            }
        })
    }
}
