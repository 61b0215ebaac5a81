//! Counts of whole nodes and links, of all programs together: units outside the cores.
//!
//! They need the right to watch all programs. Without it there are none.

use std::collections::BTreeMap;

use rondpoint_core::observation::Counter;
use rondpoint_core::{Matrix, Nanos, Topology};

use super::counters::added;
use crate::LinuxError;
use crate::perf::count::Count;
use crate::perf::generation::Available;
use crate::perf::group::OpenGroup;
use crate::perf::pmu::Event;
use crate::perf::whole::{self, Part};
use crate::syscall::perf::Target;

/// Counters that a unit outside the cores has at least: four. AMD's northbridge has four (BKDG 15h,
/// 3.16), and each of Intel's units has at least four (uncore performance monitoring guides).
const ROOM: usize = 4;

/// What is open. Each list is empty where not all of it can be counted.
#[derive(Default)]
pub(super) struct Uncore {
    /// Requests from the first node to the second.
    traffic: Vec<Group<(usize, usize)>>,
    /// Lines of a node's controllers; empty where `traffic` is not.
    controllers: Vec<Group<usize>>,
    /// Bytes of a link of the topology.
    links: Vec<Group<usize>>,
    node_count: usize,
    link_count: usize,
}

/// Events of one unit on one CPU, what each of them counts, and its scale.
struct Group<T> {
    what: Vec<(T, (u32, u32))>,
    open: OpenGroup,
}

impl Uncore {
    /// Opens all counts of requests or none, and all counts of links or none. Controllers are
    /// counted where requests are not.
    pub(super) fn open(available: &Available, topology: &Topology) -> Self {
        let traffic = open(whole::traffic(available, topology)).unwrap_or_default();
        let controllers = match traffic.is_empty() {
            true => open(whole::controller_lines(available, topology)).unwrap_or_default(),
            false => Vec::new(),
        };
        let links = open(whole::links(available, topology)).unwrap_or_default();
        let (node_count, link_count) = (topology.node_count(), topology.links().len());
        Self { traffic, controllers, node_count, links, link_count }
    }

    /// DRAM requests of the whole machine by `[accessing][holding]`.
    pub(super) fn traffic(
        &self,
        topology: &Topology,
    ) -> Result<Option<Matrix<Counter>>, LinuxError> {
        let mut matrix = Matrix::filled(topology.node_count(), Counter::default());
        for group in &self.traffic {
            for (cell, counter) in group.read()? {
                matrix[cell] = added(matrix[cell], counter);
            }
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

/// The counts of `groups` by node or link; `None` where nothing is open.
fn sums(groups: &[Group<usize>], count: usize) -> Result<Option<Vec<Counter>>, LinuxError> {
    let mut sums = vec![Counter::default(); count];
    for group in groups {
        for (place, counter) in group.read()? {
            sums[place] = added(sums[place], counter);
        }
    }
    Ok((!groups.is_empty()).then_some(sums))
}

impl<T: Copy> Group<T> {
    fn read(&self) -> Result<impl Iterator<Item = (T, Counter)>, LinuxError> {
        let counter = |(&(what, scale), count): (&(T, (u32, u32)), Count)| {
            let counter = Counter {
                value: scaled(count.value, scale),
                enabled: Nanos(count.enabled_ns),
                running: Nanos(count.running_ns),
            };
            (what, counter)
        };
        Ok(self.what.iter().zip(self.open.read()?).map(counter))
    }
}

/// The count in requests or bytes, at most `u64::MAX`.
fn scaled(count: u64, (times, through): (u32, u32)) -> u64 {
    let scaled = u128::from(count) * u128::from(times) / u128::from(through.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Opens and starts all of it. A group has the events of one unit on one CPU: the kernel refuses a
/// group of several units.
fn open<T: Copy>(wanted: Vec<Part<T>>) -> Result<Vec<Group<T>>, LinuxError> {
    let mut by_unit: BTreeMap<(u32, u32), Vec<Part<T>>> = BTreeMap::new();
    for part in wanted {
        by_unit.entry((part.cpu, part.event.attr.kind)).or_default().push(part);
    }
    let mut groups = Vec::new();
    for ((cpu, _), parts) in by_unit {
        for parts in parts.chunks(ROOM) {
            let events: Vec<Event> = parts.iter().map(|part| part.event.clone()).collect();
            let open = OpenGroup::open(&events, Target { task: -1, cpu: cpu as i32 }, |_| ())?;
            open.enable().map_err(|source| LinuxError::Call {
                call: "ioctl(PERF_EVENT_IOC_ENABLE)",
                attempted: events[0].name.clone(),
                source,
            })?;
            let what = parts.iter().map(|part| (part.what, part.scale)).collect();
            groups.push(Group { what, open });
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;
    use crate::perf::attr::{Attr, SW_DUMMY, TYPE_SOFTWARE};

    fn dummy(cpus: &[u32]) -> Event {
        let attr = Attr::counting(TYPE_SOFTWARE, SW_DUMMY);
        Event { name: "dummy".to_string(), attr, cpus: Some(cpus.to_vec()) }
    }

    /// Where everybody may be watched a software event stands for the unit; else there is nothing.
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
        assert_eq!(scaled(9 << 50, (64, 9)), 64 << 50);
        assert_eq!(scaled(u64::MAX, (64, 9)), u64::MAX);
        let odd = Event { attr: Attr::counting(9_999, 0), ..dummy(&[0]) };
        let available = Available { dram_to_node: vec![(0, odd)], ..Available::default() };
        assert_eq!(Uncore::open(&available, &machine).traffic(&machine).unwrap(), None);
        assert_eq!(Uncore::open(&available, &machine).link_bytes().unwrap(), None);
    }
}
