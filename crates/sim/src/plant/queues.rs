//! Controllers and links: delays that grow until the traffic fits.
//!
//! Requests come in bursts, so controllers and links have latency long before they are full.
//! [`Bursts`] divides the burst latency of the machine file among them.
//!
//! The network is closed: each thread has a bounded number of misses under way, so demand falls as
//! latency grows. An overloaded server adds delay in each round until the demand equals its
//! capacity.

use rondpoint_core::Matrix;

use super::{Plant, Truth};
use rondpoint_machine::Machine;

/// Step of a round. A route of controller, two links and a limit multiplies the gain by four, so
/// it stays below a half.
const DAMPING: f64 = 0.4;
/// Share of the way to its load that a use moves in a round. Bursts slow demand at most about in
/// proportion to use, so the rest of the way shrinks to 0.6 or less.
const USE_DAMPING: f64 = 0.7;
/// Weight of a use's step against a delay's when a round is judged: a step of 0.005 has settled.
/// What is left of the way is shorter than its last step.
const USE_WEIGHT: f64 = 0.4;
/// Delay at which a link's queue starts to grow, ns: the time of a short burst of lines.
const LEAST_LINK_NS: f64 = 50.0;

/// Delays of servers, ns, and use, 0 to 1.
#[derive(Debug, Clone)]
pub(crate) struct Queues {
    bursts: Bursts,
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
    pub(super) fn new(machine: &Machine, truth: &Truth) -> Self {
        let nodes = machine.nodes.len();
        Self {
            bursts: Bursts::of(machine, truth.link_bursts),
            controllers: vec![0.0; nodes],
            links: vec![0.0; machine.links.len()],
            pairs: Matrix::filled(nodes, 0.0),
            utilisation: vec![0.0; nodes],
            link_use: vec![0.0; machine.links.len()],
        }
    }

    /// One round. Gives the largest change of a delay relative to its latency, or of a use with
    /// its weight.
    pub(super) fn update(&mut self, machine: &Machine, truth: &Truth, flow: &Flow) -> f64 {
        let mut round = Round { change: 0.0 };
        let mut carried = vec![0.0; machine.links.len()];
        for (a, h, from_memory) in flow.memory.cells() {
            let amount = from_memory + flow.caches[(a, h)];
            if amount <= 0.0 {
                continue;
            }
            let route = &machine.routes[a][h];
            route.links.iter().for_each(|&link| carried[link] += amount);
            if let Some(limit) = route.limit_mb_s {
                let latency = machine.latency_ns[a][h].max(LEAST_LINK_NS);
                round.grow(&mut self.pairs[(a, h)], latency, amount / (limit / 1000.0));
            }
        }
        for (h, node) in machine.nodes.iter().enumerate() {
            let Some(controller) = &node.controller else { continue };
            let all: f64 = flow.memory.column(h).sum();
            let remote = if all > 0.0 { 1.0 - flow.memory[(h, h)] / all } else { 0.0 };
            let mixed = 1.0 - truth.mixing * remote;
            let load = all / (controller.bandwidth_mb_s / 1000.0 * truth.bandwidth * mixed);
            round.follow(&mut self.utilisation[h], load);
            round.grow(&mut self.controllers[h], controller.latency_ns, load);
        }
        for (index, link) in machine.links.iter().enumerate() {
            let load = carried[index] / (link.bandwidth_mb_s / 1000.0);
            round.follow(&mut self.link_use[index], load);
            let latency = machine.latency_ns[link.to][link.from].max(LEAST_LINK_NS);
            round.grow(&mut self.links[index], latency, load);
        }
        round.change
    }

    /// Delay of each link, bursts included, ns.
    fn of_links(&self, truth: &Truth) -> Vec<f64> {
        let delay = |(link, used): (usize, &f64)| {
            self.links[link] + self.bursts.links[link] * truth.burst * used.powf(truth.burst_power)
        };
        self.link_use.iter().enumerate().map(delay).collect()
    }
}

/// The largest change in one round: of a delay relative to its latency, or of a use.
struct Round {
    change: f64,
}

impl Round {
    /// Lets a queue grow where the load is above 1, and shrink below.
    fn grow(&mut self, queue: &mut f64, latency: f64, load: f64) {
        let step = DAMPING * (latency + *queue) * (load - 1.0).min(1.0);
        let next = (*queue + step).max(0.0);
        self.change = self.change.max((next - *queue).abs() / (latency + *queue));
        *queue = next;
    }

    /// Moves the use of a server towards its load. An overloaded server is in full use.
    fn follow(&mut self, used: &mut f64, load: f64) {
        let step = USE_DAMPING * (load.min(1.0) - *used);
        self.change = self.change.max(USE_WEIGHT * step.abs());
        *used += step;
    }
}

/// Latency of bursts at a server in full use, ns.
#[derive(Debug, Clone)]
struct Bursts {
    controllers: Vec<f64>,
    links: Vec<f64>,
}

impl Bursts {
    /// A burst at a link has `at_links` of the bytes that it has at a controller. The machine
    /// file's latency is measured with links in use. So of even traffic, the mean over all accesses
    /// is that latency. Traffic is even where every node reads each controller alike.
    fn of(machine: &Machine, at_links: f64) -> Self {
        let nodes = machine.nodes.len();
        let mut bursts = Self {
            controllers: vec![0.0; nodes],
            links: machine.links.iter().map(|_| 0.0).collect(),
        };
        // Bytes in ns; the bytes of a burst at a controller in full use.
        let carries = |mb_s: f64| mb_s / 1000.0;
        let (mut bytes, mut count) = (0.0, 0.0);
        for (node, burst) in machine.nodes.iter().zip(&mut bursts.controllers) {
            let Some(controller) = &node.controller else { continue };
            *burst = controller.burst_latency_ns;
            bytes += *burst * carries(controller.bandwidth_mb_s);
            count += 1.0;
        }
        if count == 0.0 {
            return bursts;
        }
        for (link, burst) in machine.links.iter().zip(&mut bursts.links) {
            *burst = at_links * bytes / count / carries(link.bandwidth_mb_s);
        }
        let readers: Vec<usize> = (0..nodes).filter(|&node| machine.nodes[node].cpus > 0).collect();
        let pairs = || {
            let holders = (0..nodes).filter(|&h| machine.nodes[h].controller.is_some());
            holders.flat_map(|h| readers.iter().map(move |&a| (a, h)))
        };
        let mut carried = vec![0.0; machine.links.len()];
        for (a, h) in pairs() {
            machine.routes[a][h].links.iter().for_each(|&link| carried[link] += 1.0);
        }
        let (mut in_controllers, mut in_links) = (0.0, 0.0);
        for (a, h) in pairs() {
            let controller = machine.nodes[h].controller.as_ref();
            let bandwidth = controller.map_or(f64::INFINITY, |one| carries(one.bandwidth_mb_s));
            in_controllers += bursts.controllers[h] * readers.len() as f64 / bandwidth;
            let delay = |&link: &usize| {
                bursts.links[link] * carried[link] / carries(machine.links[link].bandwidth_mb_s)
            };
            in_links += machine.routes[a][h].links.iter().map(delay).sum::<f64>();
        }
        let part = if in_links > 0.0 { in_controllers / (in_controllers + in_links) } else { 1.0 };
        bursts.controllers.iter_mut().chain(&mut bursts.links).for_each(|burst| *burst *= part);
        bursts
    }
}

/// Delay of all links of a route, ns, by the delay of each link.
fn on_route(machine: &Machine, (a, h): (usize, usize), of_links: &[f64]) -> f64 {
    machine.routes[a][h].links.iter().map(|link| of_links[*link]).sum()
}

impl Plant {
    /// Latency of a miss by `[accessing][holding]`, ns; zero where there is no memory.
    pub(crate) fn latencies(&self) -> Matrix<f64> {
        let (machine, truth, queues) = (&self.machine, &self.truth, &self.queues);
        let of_links = queues.of_links(truth);
        Matrix::from_fn(machine.nodes.len(), |a, h| {
            let Some(controller) = &machine.nodes[h].controller else { return 0.0 };
            let wire = (machine.latency_ns[a][h] - controller.latency_ns) * truth.wire;
            let crowd = queues.utilisation[h].powf(truth.burst_power);
            let burst = queues.bursts.controllers[h] * truth.burst * crowd;
            let queued = queues.controllers[h] + queues.pairs[(a, h)];
            controller.latency_ns + wire + burst + queued + on_route(machine, (a, h), &of_links)
        })
    }

    /// Latency of a line from a cache of another domain by `[accessing][owning]`, ns.
    pub(super) fn transfer_latencies(&self) -> Matrix<f64> {
        let machine = &self.machine;
        let of_links = self.queues.of_links(&self.truth);
        Matrix::from_fn(machine.nodes.len(), |a, owner| match a == owner {
            true => machine.transfer_ns.same_node_ns,
            false => {
                let unloaded = machine.transfer_ns.remote_ns[a][owner];
                unloaded * self.truth.wire + on_route(machine, (a, owner), &of_links)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    /// Mean burst latency of even traffic at which every controller would be full, ns.
    fn of_even_traffic(machine: &Machine, at_links: f64) -> f64 {
        let bursts = Bursts::of(machine, at_links);
        let nodes = machine.nodes.len();
        let bandwidth: f64 = machine
            .nodes
            .iter()
            .flat_map(|node| &node.controller)
            .map(|it| it.bandwidth_mb_s)
            .sum();
        let pair = bandwidth / (nodes * nodes) as f64;
        let mut carried = vec![0.0; machine.links.len()];
        let pairs = || (0..nodes).flat_map(|a| (0..nodes).map(move |h| (a, h)));
        for (a, h) in pairs() {
            machine.routes[a][h].links.iter().for_each(|&link| carried[link] += pair);
        }
        let delay = |(a, h): (usize, usize)| {
            let at = |&link: &usize| {
                bursts.links[link] * carried[link] / machine.links[link].bandwidth_mb_s
            };
            bursts.controllers[h] + machine.routes[a][h].links.iter().map(at).sum::<f64>()
        };
        pairs().map(delay).sum::<f64>() / (nodes * nodes) as f64
    }

    #[test]
    fn bursts_at_links_take_from_controllers_what_even_traffic_waits_at_links() {
        for name in ["carrefour-a", "nmass-2", "sam-2"] {
            let machine = catalogue::machine(name).expect(name);
            let file = machine.nodes[0].controller.as_ref().map_or(0.0, |it| it.burst_latency_ns);
            for at_links in [0.0, 0.1, 1.0] {
                let mean = of_even_traffic(&machine, at_links);
                assert!((mean / file - 1.0).abs() < 1e-9, "{name}, {at_links}: {mean} of {file}");
            }
            let [none, some] = [0.0, 0.1].map(|at_links| Bursts::of(&machine, at_links));
            assert!(some.controllers[0] < none.controllers[0], "{name}");
            assert!(some.links.iter().all(|link| *link > 0.0), "{name}");
            assert!(none.links.iter().all(|link| *link == 0.0), "{name}");
        }
    }
}
