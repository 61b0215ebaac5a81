//! Solves the network of closed queues. Each thread has a bounded number of misses under way. Waits
//! depend on the load of the servers, and loads depend on the waits. The solver iterates until both
//! agree.

use super::charges::{Charges, Server};
use super::group::Group;
use alloc::vec;
use alloc::vec::Vec;

/// Wait in round trips per unit of load above the capacity. Above full use the backlog grows until
/// the waiting threads send no more. Our choice: the load then settles a few percent above the
/// capacity.
const OVERFULL: f64 = 60.0;
/// Most rounds; a dozen are usual.
const ROUNDS: usize = 60;
/// A round that changes no wait by more than this part of a round trip is the last.
const SETTLED: f64 = 1e-5;

/// Cycles that each server makes an access wait.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waits(pub(super) Vec<f64>);

impl Server {
    fn wait(&self, load: f64) -> f64 {
        let used = load / self.per_us;
        self.burst * used.min(1.0) + OVERFULL * self.unit * (used - 1.0).max(0.0)
    }

    /// Extra cycles of wait for each extra line per µs.
    fn steepness(&self, load: f64) -> f64 {
        match load < self.per_us {
            true => self.burst / self.per_us,
            false => OVERFULL * self.unit / self.per_us,
        }
    }
}

impl Waits {
    /// Waits at these loads.
    pub(super) fn at(charges: &Charges, load: &[f64]) -> Self {
        Self::at_scaled(charges, load, 1.0)
    }

    /// Waits with capacities scaled by `factor`.
    pub(super) fn at_scaled(charges: &Charges, load: &[f64], factor: f64) -> Self {
        let wait = |(place, load): (usize, &f64)| charges.scaled(place, factor).wait(*load);
        Self(load.iter().enumerate().map(wait).collect())
    }
}

impl Charges {
    /// Cycles of an access.
    pub(super) fn access(&self, accessing: usize, holding: usize, waits: &Waits) -> f64 {
        let way = self.way(accessing, holding).iter().map(|server| waits.0[*server as usize]);
        self.idle[(accessing, holding)] + waits.0[holding] + way.sum::<f64>()
    }

    /// Mean cycles of accesses with these shares.
    pub(super) fn latency(&self, node: usize, shares: &[(usize, f64)], waits: &Waits) -> f64 {
        shares.iter().map(|(holding, share)| share * self.access(node, *holding, waits)).sum()
    }
}

/// Adds the traffic between two nodes to all servers on its way.
pub(super) fn add_flow(
    charges: &Charges,
    load: &mut [f64],
    (accessing, holding): (usize, usize),
    per_us: f64,
) {
    load[holding] += per_us;
    charges.way(accessing, holding).iter().for_each(|server| load[*server as usize] += per_us);
}

/// Adds the loss of a group per cycle of wait, at all servers that it uses.
pub(super) fn add_exposure(charges: &Charges, exposure: &mut [f64], group: &Group, sign: f64) {
    let each = sign * group.cpus * group.misses / group.overlap / charges.cycles_per_us;
    for (holding, share) in &group.shares {
        add_flow(charges, exposure, (group.node, *holding), each * share);
    }
}

/// A group with the values that do not change while the queues are solved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runner<'a> {
    pub(super) group: &'a Group,
    /// CPUs that it gets.
    pub(super) cpus: f64,
    /// Cycles for the present work of a µs, without waits for DRAM.
    pub(super) fixed: f64,
    /// Misses in that work.
    pub(super) misses: f64,
}

impl Runner<'_> {
    /// Cycles for the present work of a µs.
    pub(super) fn cycles(&self, charges: &Charges, waits: &Waits) -> f64 {
        self.cycles_at(charges.latency(self.group.node, &self.group.shares, waits))
    }

    /// The same at this mean latency of its accesses.
    fn cycles_at(&self, latency: f64) -> f64 {
        self.fixed + self.misses * latency / self.group.overlap
    }
}

/// Servers whose load may change, each once. All other servers keep their waits; on a large machine
/// these are most.
#[derive(Debug, Clone)]
pub(super) struct Touched {
    servers: Vec<usize>,
    is_in: Vec<bool>,
}

impl Touched {
    /// No server.
    pub(super) fn none(charges: &Charges) -> Self {
        Self { servers: Vec::new(), is_in: vec![false; charges.servers.len()] }
    }

    /// Adds all servers on the ways of a group.
    pub(super) fn add(&mut self, charges: &Charges, group: &Group) {
        for (holding, _) in &group.shares {
            let way = charges.way(group.node, *holding).iter().map(|server| *server as usize);
            for server in way.chain([*holding]) {
                if !core::mem::replace(&mut self.is_in[server], true) {
                    self.servers.push(server);
                }
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.servers.iter().copied()
    }
}

/// The runners of one node. Runners share their ways to memory, so the cost of an access to each
/// holding node is computed once for all of them.
struct Row<'a> {
    node: usize,
    /// Nodes that hold their memory, each once.
    holding: Vec<usize>,
    runners: Vec<RowRunner<'a>>,
}

/// A runner of a row.
struct RowRunner<'a> {
    of: &'a Runner<'a>,
    /// For each of the group's shares, the place of its node in [`Row::holding`].
    slots: Vec<usize>,
}

/// The traffic of a row to one holding node.
#[derive(Debug, Clone, Copy, Default)]
struct Flow {
    /// Cycles of an access.
    access: f64,
    per_us: f64,
    /// Fewer misses per µs for one more cycle at each server of the way.
    slowed: f64,
}

impl<'a> Row<'a> {
    /// The runners by node, ascending; in a row they keep their order.
    fn of_all(runners: &'a [Runner<'a>], nodes: usize) -> Vec<Self> {
        let mut rows: Vec<Self> = Vec::new();
        let mut by_node: Vec<&Runner<'_>> = runners.iter().collect();
        by_node.sort_by_key(|one| one.group.node);
        // Places in the row of the present node.
        let mut slot_of: Vec<Option<usize>> = vec![None; nodes];
        for of in by_node {
            let node = of.group.node;
            if rows.last().is_none_or(|row| row.node != node) {
                let before = rows.last().into_iter().flat_map(|row| &row.holding);
                before.for_each(|holding| slot_of[*holding] = None);
                rows.push(Self { node, holding: Vec::new(), runners: Vec::new() });
            }
            let Some(row) = rows.last_mut() else { continue };
            let mut slot = |(holding, _): &(usize, f64)| {
                *slot_of[*holding].get_or_insert_with(|| {
                    row.holding.push(*holding);
                    row.holding.len() - 1
                })
            };
            let slots = of.group.shares.iter().map(&mut slot).collect();
            row.runners.push(RowRunner { of, slots });
        }
        rows
    }

    /// Adds the traffic of all runners at these waits, and how it responds to longer ones.
    fn add(&self, charges: &Charges, waits: &Waits, load: &mut [f64], response: &mut [f64]) {
        let access = |holding: &usize| charges.access(self.node, *holding, waits);
        let flow = |holding: &usize| Flow { access: access(holding), ..Flow::default() };
        let mut flows: Vec<Flow> = self.holding.iter().map(flow).collect();
        for RowRunner { of, slots } in &self.runners {
            let shares = || slots.iter().zip(&of.group.shares);
            let latency: f64 = shares().map(|(slot, (_, share))| share * flows[*slot].access).sum();
            let cycles = of.cycles_at(latency);
            let per_us = of.cpus * charges.cycles_per_us / cycles * of.misses;
            let slowed = per_us * of.misses / of.group.overlap / cycles;
            for (slot, (_, share)) in shares() {
                flows[*slot].per_us += per_us * share;
                flows[*slot].slowed += slowed * share;
            }
        }
        for (holding, flow) in self.holding.iter().zip(&flows) {
            let way = (self.node, *holding);
            // The slowing counts for each server on the way.
            let servers = 1 + charges.way(self.node, *holding).len();
            add_flow(charges, load, way, flow.per_us);
            add_flow(charges, response, way, flow.slowed * servers as f64);
        }
    }
}

/// Finds waits that agree with the traffic that the runners send at these waits, beside the traffic
/// of others. `touched` = the servers of the runners, and servers with another load than at the
/// start.
///
/// Each round makes a step of Newton's method for each server by itself, as if all servers on the
/// way of a flow changed equally. That is so at the end of a jam; in other cases the step is
/// smaller.
pub(super) fn settle(
    charges: &Charges,
    others: &[f64],
    start: &Waits,
    touched: &Touched,
    runners: &[Runner<'_>],
) -> Waits {
    let rows = Row::of_all(runners, charges.nearest.len());
    let mut waits = start.clone();
    let mut load = charges.no_load();
    let mut response = charges.no_load();
    for _ in 0..ROUNDS {
        for place in touched.iter() {
            (load[place], response[place]) = (others[place], 0.0);
        }
        rows.iter().for_each(|row| row.add(charges, &waits, &mut load, &mut response));
        let mut change: f64 = 0.0;
        for place in touched.iter() {
            let server = &charges.servers[place];
            let off = server.wait(load[place]) - waits.0[place];
            let steep = server.steepness(load[place]).max(server.steepness(0.0));
            let step = off / (1.0 + steep * response[place]);
            waits.0[place] = (waits.0[place] + step).max(0.0);
            change = change.max(step.abs() / server.unit);
        }
        if change < SETTLED {
            break;
        }
    }
    waits
}
