//! Counts of whole nodes and links, of all programs together: units outside the cores.
//!
//! They need the right to watch all programs. Without it there are none.

use rondpoint_core::observation::Counter;
use rondpoint_core::{Matrix, Topology};

use super::counters::added;
use crate::LinuxError;
use crate::perf::generation::Available;
use crate::perf::units::Units;
use crate::perf::whole::{self, Part};

/// A kind of counts that the kernel refused.
pub(super) struct Missing {
    /// The consequence.
    pub(super) what: &'static str,
    /// The kernel's error about the first refused event.
    pub(super) why: LinuxError,
}

/// Open counters of the uncore. Each kind is empty if not all of it can be counted.
#[derive(Default)]
pub(super) struct Uncore {
    /// Requests by `(accessing, holding)` node.
    traffic: Units<(usize, usize)>,
    /// Lines by node of the controller; empty if `traffic` is not.
    controllers: Units<usize>,
    /// Bytes by link of the topology.
    links: Units<usize>,
    node_count: usize,
    link_count: usize,
}

impl Uncore {
    /// Opens all counters of requests or none, and all counters of links or none. Controllers are
    /// counted if requests are not. Returns what the kernel refused too. `core_room`: number of
    /// free counters of a core.
    pub(super) fn open(
        available: &Available,
        topology: &Topology,
        core_room: usize,
    ) -> (Self, Vec<Missing>) {
        let mut missing = Vec::new();
        let (traffic, refused) =
            first_accepted(whole::traffic_choices(available, topology), core_room);
        missing.extend(refused.map(|why| match traffic.is_empty() {
            true => Missing { what: "the machine's traffic between nodes is not counted", why },
            false => Missing { what: "traffic is counted at the home of its lines", why },
        }));
        let (mut controllers, mut refused) = (Units::default(), None);
        if traffic.is_empty() {
            let lines = whole::controller_lines(available, topology);
            (controllers, refused) = first_accepted([lines], core_room);
        }
        let what = "lines of the memory controllers are not counted";
        missing.extend(refused.map(|why| Missing { what, why }));
        let (links, refused) = first_accepted([whole::links(available, topology)], core_room);
        let what = "bytes of links are not counted";
        missing.extend(refused.map(|why| Missing { what, why }));
        let (node_count, link_count) = (topology.node_count(), topology.links().len());
        (Self { traffic, controllers, links, node_count, link_count }, missing)
    }

    /// DRAM requests of the whole machine by `[accessing][holding]`.
    pub(super) fn traffic(
        &self,
        topology: &Topology,
    ) -> Result<Option<Matrix<Counter>>, LinuxError> {
        let mut matrix = Matrix::filled(topology.node_count(), Counter::default());
        for (cell, counter) in self.traffic.read()? {
            matrix[cell] = added(matrix[cell], counter);
        }
        Ok((!self.traffic.is_empty()).then_some(matrix))
    }

    /// Lines that each node's controllers served.
    pub(super) fn controller_lines(&self) -> Result<Option<Vec<Counter>>, LinuxError> {
        sums(&self.controllers, self.node_count)
    }

    /// Bytes of each link in the topology's order.
    pub(super) fn link_bytes(&self) -> Result<Option<Vec<Counter>>, LinuxError> {
        sums(&self.links, self.link_count)
    }
}

/// The units of the first choice that the kernel accepts, and its error about the best one.
fn first_accepted<T: Copy>(
    choices: impl IntoIterator<Item = Vec<Part<T>>>,
    core_room: usize,
) -> (Units<T>, Option<LinuxError>) {
    let mut refused = None;
    for parts in choices {
        match Units::open(parts, core_room) {
            Ok(units) => return (units, refused),
            Err(error) => drop(refused.get_or_insert(error)),
        }
    }
    (Units::default(), refused)
}

/// Sums of `units` by node or link; `None` if no counter is open.
fn sums(units: &Units<usize>, count: usize) -> Result<Option<Vec<Counter>>, LinuxError> {
    let mut sums = vec![Counter::default(); count];
    for (place, counter) in units.read()? {
        sums[place] = added(sums[place], counter);
    }
    Ok((!units.is_empty()).then_some(sums))
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;
    use crate::perf::attr::{Attr, SW_DUMMY, TYPE_SOFTWARE};
    use crate::perf::pmu::Event;

    fn dummy(cpus: &[u32]) -> Event {
        let attr = Attr::counting(TYPE_SOFTWARE, SW_DUMMY);
        Event { name: "dummy".to_string(), attr, cpus: Some(cpus.to_vec()) }
    }

    /// If all tasks may be counted, a software event replaces the unit; otherwise there is none.
    #[test]
    fn all_requests_are_counted_or_none() {
        let machine = synthetic::parse("node:1 core:1").unwrap();
        let available =
            Available { dram_to_node: vec![(0, dummy(&[0, 99]))], ..Available::default() };
        let (uncore, missing) = Uncore::open(&available, &machine, 4);
        assert_eq!(missing.is_empty(), !uncore.traffic.is_empty(), "never silent");
        let matrix = uncore.traffic(&machine).unwrap();
        if let Some(matrix) = matrix {
            assert_eq!((matrix.size(), matrix[(0, 0)].value), (1, 0));
        }
        let odd = Event { attr: Attr::counting(9_999, 0), ..dummy(&[0]) };
        let available = Available { dram_to_node: vec![(0, odd)], ..Available::default() };
        let (uncore, missing) = Uncore::open(&available, &machine, 4);
        assert_eq!(uncore.traffic(&machine).unwrap(), None);
        assert_eq!(uncore.link_bytes().unwrap(), None);
        let missing: Vec<&str> = missing.iter().map(|missing| missing.what).collect();
        assert_eq!(missing, ["the machine's traffic between nodes is not counted"]);
    }

    /// Where no CPU may be counted as a whole, the second list is refused too.
    #[test]
    fn the_next_list_of_events_is_tried_and_the_refusal_of_the_best_is_kept() {
        let part = |event: Event| Part { what: 0usize, cpu: 0, event, scale: (1, 1) };
        let odd = |kind| Event { attr: Attr::counting(kind, 0), ..dummy(&[0]) };
        let odd = |kind| vec![part(odd(kind))];
        let (units, refused) = first_accepted([odd(9_999), vec![part(dummy(&[0]))]], 4);
        assert_eq!(units.is_empty(), crate::probe::whole_cpu().is_err());
        assert_eq!(refused.and_then(|why| why.errno()), Some(libc::ENOENT));
        let (units, refused) = first_accepted([odd(9_999), odd(9_998)], 4);
        assert!(units.is_empty() && refused.is_some());
        let (units, refused) = first_accepted([Vec::<Part<usize>>::new()], 4);
        assert!(units.is_empty() && refused.is_none(), "nothing to count is no refusal");
    }
}
