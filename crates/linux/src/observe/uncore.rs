//! Counts of whole nodes and links, of all programs together: units outside the cores.
//!
//! They need the right to watch all programs. Without it there are none.

use rondpoint_core::observation::Counter;
use rondpoint_core::{Matrix, Topology};

use super::counters::added;
use crate::LinuxError;
use crate::perf::generation::Available;
use crate::perf::units::Units;
use crate::perf::whole;

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
    /// counted if requests are not.
    pub(super) fn open(available: &Available, topology: &Topology) -> Self {
        let traffic = Units::open(whole::traffic(available, topology)).unwrap_or_default();
        let controllers = match traffic.is_empty() {
            true => Units::open(whole::controller_lines(available, topology)).unwrap_or_default(),
            false => Units::default(),
        };
        let links = Units::open(whole::links(available, topology)).unwrap_or_default();
        let (node_count, link_count) = (topology.node_count(), topology.links().len());
        Self { traffic, controllers, links, node_count, link_count }
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
        let uncore = Uncore::open(&available, &machine);
        let matrix = uncore.traffic(&machine).unwrap();
        if let Some(matrix) = matrix {
            assert_eq!((matrix.size(), matrix[(0, 0)].value), (1, 0));
        }
        let odd = Event { attr: Attr::counting(9_999, 0), ..dummy(&[0]) };
        let available = Available { dram_to_node: vec![(0, odd)], ..Available::default() };
        assert_eq!(Uncore::open(&available, &machine).traffic(&machine).unwrap(), None);
        assert_eq!(Uncore::open(&available, &machine).link_bytes().unwrap(), None);
    }
}
