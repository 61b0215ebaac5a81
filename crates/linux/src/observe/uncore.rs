//! Counts of whole nodes and links, whoever caused them: units outside the cores.
//!
//! They need the right to watch everybody; without it there are none, and the model does without.

use std::collections::BTreeMap;

use rondpoint_core::observation::Counter;
use rondpoint_core::{Matrix, Nanos, Topology};

use super::counters::added;
use crate::LinuxError;
use crate::perf::generation::{Available, LinkEnds};
use crate::perf::group::OpenGroup;
use crate::perf::pmu::Event;
use crate::syscall::perf::Target;

/// Counters that a unit outside the cores has at least: four in AMD's northbridge (BKDG 15h, 3.16)
/// and in each of Intel's (uncore performance monitoring guides).
const ROOM: usize = 4;

/// What is open. Each list is empty where not all of it can be counted.
#[derive(Default)]
pub(super) struct Uncore {
    /// Requests from the first node to the second.
    traffic: Vec<Group<(usize, usize)>>,
    /// Bytes of a link of the topology.
    links: Vec<Group<usize>>,
    link_count: usize,
}

/// Events on one CPU, and what each of them counts.
struct Group<T> {
    what: Vec<T>,
    open: OpenGroup,
}

impl Uncore {
    /// Opens all counts of requests or none, and all counts of links or none.
    pub(super) fn open(available: &Available, topology: &Topology) -> Self {
        let traffic = open(requests(available, topology)).unwrap_or_default();
        let links = links(available, topology).and_then(|links| open(links).ok());
        let link_count = topology.links().len();
        Self { traffic, links: links.unwrap_or_default(), link_count }
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

    /// Bytes of each link in the topology's order.
    pub(super) fn link_bytes(&self) -> Result<Option<Vec<Counter>>, LinuxError> {
        let mut bytes = vec![Counter::default(); self.link_count];
        for group in &self.links {
            for (link, counter) in group.read()? {
                bytes[link] = added(bytes[link], counter);
            }
        }
        Ok((!self.links.is_empty()).then_some(bytes))
    }
}

impl<T: Copy> Group<T> {
    fn read(&self) -> Result<impl Iterator<Item = (T, Counter)>, LinuxError> {
        let counter = |count: crate::perf::count::Count| Counter {
            value: count.value,
            enabled: Nanos(count.enabled_ns),
            running: Nanos(count.running_ns),
        };
        Ok(self.what.iter().copied().zip(self.open.read()?.into_iter().map(counter)))
    }
}

/// What is to be counted, by the kernel's number of the CPU that has to be asked.
type ByCpu<T> = BTreeMap<u32, Vec<(T, Event)>>;

fn requests(available: &Available, topology: &Topology) -> ByCpu<(usize, usize)> {
    let mut by_cpu = ByCpu::new();
    for (kernel_node, event) in &available.dram_to_node {
        let Some(holding) = topology.node_of_kernel_id(*kernel_node) else { continue };
        for (cpu, index) in cpus(event, topology) {
            let cell = (topology.node_of_cpu(index), holding);
            by_cpu.entry(cpu).or_default().push((cell, event.clone()));
        }
    }
    by_cpu
}

/// `None` as soon as one link is not counted.
fn links(available: &Available, topology: &Topology) -> Option<ByCpu<usize>> {
    let mut by_cpu = ByCpu::new();
    for (index, link) in topology.links().iter().enumerate() {
        let kernel = |node: usize| topology.kernel_node(node);
        let ends = LinkEnds { from: kernel(link.from), to: kernel(link.to) };
        let (_, event) = available.links.iter().find(|(found, _)| *found == ends)?;
        for (cpu, _) in cpus(event, topology) {
            by_cpu.entry(cpu).or_default().push((index, event.clone()));
        }
    }
    Some(by_cpu)
}

/// The CPUs that the event's unit names: the kernel's number and the topology's.
fn cpus(event: &Event, topology: &Topology) -> impl Iterator<Item = (u32, usize)> {
    let index = |&cpu: &u32| Some((cpu, topology.cpu_of_kernel_id(cpu)?));
    event.cpus.iter().flatten().filter_map(index)
}

/// Opens and starts all of it.
fn open<T: Copy>(wanted: ByCpu<T>) -> Result<Vec<Group<T>>, LinuxError> {
    let mut groups = Vec::new();
    for (cpu, wanted) in wanted {
        for part in wanted.chunks(ROOM) {
            let (what, events): (Vec<T>, Vec<Event>) = part.iter().cloned().unzip();
            let open = OpenGroup::open(&events, Target { task: -1, cpu: cpu as i32 }, |_| ())?;
            open.enable().map_err(|source| LinuxError::Call {
                call: "ioctl(PERF_EVENT_IOC_ENABLE)",
                attempted: events[0].name.clone(),
                source,
            })?;
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
        let odd = Event { attr: Attr::counting(9_999, 0), ..dummy(&[0]) };
        let available = Available { dram_to_node: vec![(0, odd)], ..Available::default() };
        assert_eq!(Uncore::open(&available, &machine).traffic(&machine).unwrap(), None);
        assert_eq!(Uncore::open(&available, &machine).link_bytes().unwrap(), None);
    }
}
