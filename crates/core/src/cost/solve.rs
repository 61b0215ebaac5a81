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
        let latency = charges.latency(self.group.node, &self.group.shares, waits);
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
    let mut waits = start.clone();
    let mut load = charges.no_load();
    let mut response = charges.no_load();
    for _ in 0..ROUNDS {
        for place in touched.iter() {
            (load[place], response[place]) = (others[place], 0.0);
        }
        for of in runners {
            let cycles = of.cycles(charges, &waits);
            let per_us = of.cpus * charges.cycles_per_us / cycles * of.misses;
            // Fewer misses per µs for one more cycle at every server, counted for each server on
            // the way.
            let slowed = per_us * of.misses / of.group.overlap / cycles;
            for (holding, share) in &of.group.shares {
                let way = charges.way(of.group.node, *holding);
                let servers = 1 + way.len();
                add_flow(charges, &mut load, (of.group.node, *holding), per_us * share);
                let less = slowed * share * servers as f64;
                add_flow(charges, &mut response, (of.group.node, *holding), less);
            }
        }
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
