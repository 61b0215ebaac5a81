//! Counts of whole nodes and links, whoever caused them: units outside the cores.
//!
//! They need the right to watch everybody; without it there are none, and the model does without.

use std::os::fd::AsFd;

use rondpoint_core::observation::Counter;
use rondpoint_core::{Matrix, Nanos, Topology};

use super::counters::added;
use crate::LinuxError;
use crate::perf::event::OpenEvent;
use crate::perf::generation::{Available, LinkEnds};
use crate::perf::pmu::Event;
use crate::syscall::perf::Target;

/// What is open.
#[derive(Default)]
pub(super) struct Uncore {
    /// Requests from the first node to the second.
    traffic: Vec<(usize, usize, OpenEvent)>,
    /// For each link of the topology, what counts its bytes.
    links: Vec<Vec<OpenEvent>>,
}

impl Uncore {
    /// Opens all counts of requests or none, and all counts of links or none.
    pub(super) fn open(available: &Available, topology: &Topology) -> Self {
        let traffic = open_traffic(available, topology).unwrap_or_default();
        let links = open_links(available, topology).unwrap_or_default();
        Self { traffic, links }
    }

    /// DRAM requests of the whole machine by `[accessing][holding]`.
    pub(super) fn traffic(
        &self,
        topology: &Topology,
    ) -> Result<Option<Matrix<Counter>>, LinuxError> {
        if self.traffic.is_empty() {
            return Ok(None);
        }
        let mut matrix = Matrix::filled(topology.node_count(), Counter::default());
        for (accessing, holding, event) in &self.traffic {
            let cell = &mut matrix[(*accessing, *holding)];
            *cell = added(*cell, read(event)?);
        }
        Ok(Some(matrix))
    }

    /// Bytes of each link in the topology's order.
    pub(super) fn link_bytes(&self) -> Result<Option<Vec<Counter>>, LinuxError> {
        if self.links.is_empty() {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(self.links.len());
        for events in &self.links {
            let mut sum = Counter::default();
            for event in events {
                sum = added(sum, read(event)?);
            }
            bytes.push(sum);
        }
        Ok(Some(bytes))
    }
}

fn open_traffic(
    available: &Available,
    topology: &Topology,
) -> Result<Vec<(usize, usize, OpenEvent)>, LinuxError> {
    let mut traffic = Vec::new();
    for (kernel_node, event) in &available.dram_to_node {
        let Some(holding) = topology.node_of_kernel_id(*kernel_node) else { continue };
        for (cpu, open) in open_on_cpus(event, topology)? {
            traffic.push((topology.node_of_cpu(cpu), holding, open));
        }
    }
    Ok(traffic)
}

/// An error or nothing as soon as one link is not counted.
fn open_links(
    available: &Available,
    topology: &Topology,
) -> Result<Vec<Vec<OpenEvent>>, LinuxError> {
    let mut links = Vec::new();
    for link in topology.links() {
        let kernel = |node: usize| topology.kernel_node(node);
        let ends = LinkEnds { from: kernel(link.from), to: kernel(link.to) };
        let Some((_, event)) = available.links.iter().find(|(found, _)| *found == ends) else {
            return Ok(Vec::new());
        };
        links.push(open_on_cpus(event, topology)?.into_iter().map(|(_, open)| open).collect());
    }
    Ok(links)
}

/// Opens an event on the CPUs that its unit names, and starts it.
fn open_on_cpus(event: &Event, topology: &Topology) -> Result<Vec<(usize, OpenEvent)>, LinuxError> {
    let mut opened = Vec::new();
    for &cpu in event.cpus.iter().flatten() {
        let Some(index) = topology.cpu_of_kernel_id(cpu) else { continue };
        let target = Target { task: -1, cpu: cpu as i32 };
        let open = OpenEvent::open(&event.name, &event.attr, target, None)?;
        open.enable().map_err(|source| LinuxError::Call {
            call: "ioctl(PERF_EVENT_IOC_ENABLE)",
            attempted: event.name.clone(),
            source,
        })?;
        opened.push((index, open));
    }
    Ok(opened)
}

fn read(event: &OpenEvent) -> Result<Counter, LinuxError> {
    let counts = event.read(1).map_err(|source| LinuxError::Call {
        call: "read",
        attempted: format!("perf event {:?} of a whole node", event.as_fd()),
        source,
    })?;
    let count = counts.first().copied().unwrap_or_default();
    Ok(Counter {
        value: count.value,
        enabled: Nanos(count.enabled_ns),
        running: Nanos(count.running_ns),
    })
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
