//! Whether the CPUs of a machine can saturate its controllers and routes.
//!
//! A program on CPUs that wait for every miss never meets a full queue, and everything that this
//! project manages would stay invisible. The demand is a closed loop's (Little's law). Each CPU has
//! its outstanding misses under way, and each miss takes the latency of a server that is just full.

use std::fmt;

use crate::machine::{LINE_BYTES, Machine, Route};

/// The resource that requests compete for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contended {
    /// The memory controller of a node, with requests from all CPUs of the machine.
    Controller {
        /// The node.
        node: usize,
    },
    /// The links between two nodes, with requests from the CPUs of the accessing node alone.
    Route {
        /// The node that reads.
        accessing: usize,
        /// The node that holds the memory.
        holding: usize,
    },
}

/// Demand and capacity of one controller or route.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// The controller or route.
    pub of: Contended,
    /// Bandwidth that the CPUs draw at the latency of full use, within the capacity of links, MB/s.
    pub demand_mb_s: f64,
    /// Bandwidth that the controller or route carries, MB/s.
    pub capacity_mb_s: f64,
}

impl Demand {
    /// Demand divided by capacity; 1 and above saturates.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.demand_mb_s / self.capacity_mb_s
    }

    /// True if the demand reaches the capacity.
    #[must_use]
    pub fn saturates(&self) -> bool {
        // The quotient of two sums of floats may fall short of 1 by rounding alone.
        self.ratio() >= 1.0 - 1e-9
    }
}

/// The demand-to-capacity report of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Saturation {
    /// Controllers in node order, then routes by accessing and holding node.
    pub demands: Vec<Demand>,
}

impl Saturation {
    /// Whether the CPUs can saturate every controller and route of the report.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.demands.iter().all(Demand::saturates)
    }
}

impl fmt::Display for Saturation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, demand) in self.demands.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            match demand.of {
                Contended::Controller { node } => write!(f, "  controller {node}, all CPUs")?,
                Contended::Route { accessing, holding } => {
                    write!(f, "  node {accessing} from node {holding}")?;
                }
            }
            let Demand { demand_mb_s, capacity_mb_s, .. } = demand;
            write!(f, ": {demand_mb_s:.0} of {capacity_mb_s:.0} MB/s ({:.2}x)", demand.ratio())?;
            if !demand.saturates() {
                write!(f, ", too little")?;
            }
        }
        Ok(())
    }
}

impl Machine {
    /// Compares demand with capacity for every controller, and for every route narrower than its
    /// controller. A controller gets the demand misses of all CPUs. A route gets the misses and
    /// prefetches of one node's CPUs.
    #[must_use]
    pub fn check_saturation(&self) -> Saturation {
        let nodes = 0..self.nodes.len();
        let controllers = nodes.clone().filter_map(|node| controller_demand(self, node));
        let pairs = nodes.clone().flat_map(|accessing| nodes.clone().map(move |h| (accessing, h)));
        let routes =
            pairs.filter_map(|(accessing, holding)| route_demand(self, accessing, holding));
        Saturation { demands: controllers.chain(routes).collect() }
    }
}

/// One requester of a controller.
struct Flow<'m> {
    route: &'m Route,
    /// Most bandwidth that it can draw, MB/s: its demand or the route's limit.
    cap: f64,
}

/// Demand on the controller of a node; `None` without memory.
fn controller_demand(machine: &Machine, node: usize) -> Option<Demand> {
    let bandwidth = machine.nodes[node].controller.as_ref()?.bandwidth_mb_s;
    let accessing = || (0..machine.nodes.len()).filter(|&a| machine.nodes[a].cpus > 0);
    let flow = |accessing: usize, wanted: f64| {
        let route = &machine.routes[accessing][node];
        Flow { route, cap: wanted.min(route.limit_mb_s.unwrap_or(f64::INFINITY)) }
    };
    let lines = f64::from(machine.core.outstanding_misses);
    let wanted = |accessing: usize| closed_loop(machine, accessing, node, lines, 1.0);
    let demand = fill(machine, accessing().map(|a| flow(a, wanted(a))).collect());
    // Links may carry less than the controller serves, for example to a memory-only node behind one
    // link. Their bandwidth is the capacity then.
    let carried = fill(machine, accessing().map(|a| flow(a, bandwidth)).collect());
    Some(Demand {
        of: Contended::Controller { node },
        demand_mb_s: demand,
        capacity_mb_s: bandwidth.min(carried),
    })
}

/// Demand on a route; `None` if it is local, has no CPUs or is as wide as the controller.
fn route_demand(machine: &Machine, accessing: usize, holding: usize) -> Option<Demand> {
    let controller = machine.nodes[holding].controller.as_ref()?;
    let capacity = machine.bandwidth_mb_s(accessing, holding);
    let narrower = capacity < controller.bandwidth_mb_s;
    if accessing == holding || machine.nodes[accessing].cpus == 0 || !narrower {
        return None;
    }
    let ahead = if machine.prefetch.streams > 0 { machine.prefetch.depth } else { 0 };
    let lines = f64::from(machine.core.outstanding_misses + ahead);
    let utilisation = capacity / controller.bandwidth_mb_s;
    Some(Demand {
        of: Contended::Route { accessing, holding },
        demand_mb_s: closed_loop(machine, accessing, holding, lines, utilisation),
        capacity_mb_s: capacity,
    })
}

/// Bandwidth in MB/s that a node's CPUs draw with `lines` outstanding each. `used`: utilisation of
/// the controller, 0 to 1.
fn closed_loop(machine: &Machine, accessing: usize, holding: usize, lines: f64, used: f64) -> f64 {
    let burst = machine.nodes[holding].controller.as_ref().map_or(0.0, |c| c.burst_latency_ns);
    let latency_ns = machine.latency_ns[accessing][holding] + burst * used;
    let cpus = f64::from(machine.nodes[accessing].cpus);
    // Bytes per ns are 10⁹ bytes per second, that is 1000 MB/s.
    1000.0 * cpus * lines * LINE_BYTES as f64 / latency_ns
}

/// Total bandwidth of flows under max-min fairness, MB/s. All flows rise together until each
/// reaches its cap or a full link.
fn fill(machine: &Machine, flows: Vec<Flow<'_>>) -> f64 {
    let mut room: Vec<f64> = machine.links.iter().map(|link| link.bandwidth_mb_s).collect();
    let mut rates = vec![0.0; flows.len()];
    let mut open: Vec<usize> = (0..flows.len()).collect();
    while !open.is_empty() {
        let users =
            |link: usize| open.iter().filter(|&&f| flows[f].route.links.contains(&link)).count();
        let shares = (0..room.len()).map(|link| (room[link], users(link))).filter(|(_, n)| *n > 0);
        let by_links = shares.map(|(room, n)| room / n as f64).fold(f64::INFINITY, f64::min);
        let by_caps = open.iter().map(|&f| flows[f].cap - rates[f]).fold(f64::INFINITY, f64::min);
        let step = by_links.min(by_caps);
        for &flow in &open {
            rates[flow] += step;
            flows[flow].route.links.iter().for_each(|&link| room[link] -= step);
        }
        // Rounding must not keep a full link or a met cap open. The round that stops here closes at
        // least the link or cap that set the step.
        let full = |link: &usize| room[*link] <= machine.links[*link].bandwidth_mb_s * 1e-9;
        open.retain(|&f| {
            let met = flows[f].cap - rates[f] <= flows[f].cap * 1e-9;
            !met && !flows[f].route.links.iter().any(full)
        });
    }
    rates.iter().sum()
}
