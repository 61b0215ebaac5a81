//! Load of the controllers and links in a window, and capacities that explain the measured latency.

use super::charges::Charges;
use super::solve::{self, Waits};
use crate::model::{Model, Traffic, TrafficSource};
use alloc::vec;
use alloc::vec::Vec;

/// Bounds of the factor on capacities (our choice). Real capacities differ from the machine file:
/// threads that wait for each other send bursts, counts miss write-backs, and data sheets promise
/// too much.
const FITS: (f64, f64) = (0.5, 1.5);
/// Steps of the fit. Each halves the range.
const FIT_STEPS: usize = 24;

/// Load on every server: that of the whole machine if it is counted, otherwise that of the
/// applications.
pub(super) fn present_load(model: &Model, charges: &Charges) -> Vec<f64> {
    let mut load = charges.no_load();
    let counted = model.apps.iter().filter(|app| app.traffic_source != TrafficSource::HintFaults);
    let all: Vec<&Traffic> = match &model.traffic {
        Some(traffic) => vec![traffic],
        None => counted.filter_map(|app| app.traffic.as_ref()).collect(),
    };
    for traffic in all {
        let flows = traffic.requests_per_us.cells().filter(|(_, _, rate)| *rate > 0.0);
        flows.for_each(|(a, h, rate)| solve::add_flow(charges, &mut load, (a, h), rate));
    }
    load
}

/// Lowers the capacity of links by the traffic that is no request of a thread, such as write-backs.
pub(super) fn fit_links(charges: &mut Charges, model: &Model, load: &[f64]) {
    let Some(uses) = &model.link_use else { return };
    let nodes = charges.nearest.len();
    let links = charges.servers[nodes..].iter().zip(uses);
    let carried: f64 = links.map(|(link, share)| share * link.per_us).sum();
    let asked: f64 = load[nodes..].iter().take(uses.len()).sum();
    if 0.0 < asked && asked < carried {
        let links = charges.servers[nodes..].iter_mut().take(uses.len());
        links.for_each(|link| *link = link.scaled(asked / carried));
    }
}

/// Scales the servers so that the mean latency of accesses equals the measured one. A controller of
/// unknown capacity gets a capacity.
pub(super) fn fit_capacity(charges: &mut Charges, model: &Model, load: &[f64]) {
    let latencies = model.apps.iter().filter_map(|app| {
        let traffic = app.traffic.as_ref()?;
        let weight = traffic.total_per_us();
        Some((traffic, app.latency_cycles?, weight)).filter(|_| weight > 0.0)
    });
    let apps: Vec<(&Traffic, f64, f64)> = latencies.collect();
    let weight: f64 = apps.iter().map(|(_, _, weight)| weight).sum();
    if weight <= 0.0 {
        return;
    }
    let measured = apps.iter().map(|(_, latency, weight)| latency * weight).sum::<f64>() / weight;
    let nodes = charges.nearest.len();
    let busiest = load[..nodes].iter().copied().fold(0.0, f64::max);
    let (mut small, mut large) = FITS;
    for server in &mut charges.servers[..nodes] {
        if server.per_us.is_infinite() && busiest > 0.0 {
            // The fit then searches between half of the busiest node's load and a thousand times
            // that load.
            server.per_us = busiest;
            (small, large) = (0.5, 1000.0);
        }
    }
    let flows: Vec<(usize, usize, f64)> = apps
        .iter()
        .flat_map(|(traffic, ..)| {
            traffic.requests_per_us.cells().filter(|(_, _, rate)| *rate > 0.0)
        })
        .collect();
    let mean = |factor: f64| {
        let waits = Waits::at_scaled(charges, load, factor);
        let of = |(a, h, rate): &(usize, usize, f64)| rate * charges.access(*a, *h, &waits);
        flows.iter().map(of).sum::<f64>() / weight
    };
    for _ in 0..FIT_STEPS {
        // The search takes geometric means, because the range may be wide.
        let middle = libm::sqrt(small * large);
        match mean(middle) > measured {
            true => small = middle,
            false => large = middle,
        }
    }
    charges.scale(large);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Link, Topology, synthetic};

    #[test]
    fn what_links_carry_beside_requests_leaves_less_of_them_for_requests() {
        let mut description = synthetic::describe("node:2 core:1 mhz:2000").expect("a machine");
        description.links =
            [(0, 1), (1, 0)].map(|(from, to)| Link { from, to, bytes_per_s: 6.4e9 }).into();
        let topology = Topology::new(description).expect("sound");
        // Two controllers without load, then two links of 100 lines/µs with 20 and 30 requests/µs.
        let load = [0.0, 0.0, 20.0, 30.0];
        let fitted = |uses: Option<[f64; 2]>| {
            let mut charges = Charges::of(&topology);
            let mut model = Model::empty(2);
            model.link_use = uses.map(Into::into);
            fit_links(&mut charges, &model, &load);
            [charges.servers[2].per_us, charges.servers[3].per_us]
        };
        assert_eq!(fitted(None), [100.0; 2]);
        assert_eq!(fitted(Some([0.2, 0.3])), [100.0; 2], "nothing but requests");
        assert_eq!(fitted(Some([0.5, 0.5])), [50.0; 2], "half of it is none");
    }
}
