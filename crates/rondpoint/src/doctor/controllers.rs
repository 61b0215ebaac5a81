//! The units of memory controllers, each read by itself: the observer needs only traffic and links.

use anyhow::Result;
use rondpoint_core::Topology;
use rondpoint_core::observation::Counter;
use rondpoint_linux::perf::generation::{Available, UncoreCount, UncoreMetric};
use rondpoint_linux::perf::units::Units;
use rondpoint_linux::perf::whole::{self, Part};

/// The open units, all of one metric.
pub(super) struct Controllers {
    metric: Option<UncoreMetric>,
    open: Vec<Unit>,
}

struct Unit {
    name: String,
    /// Its bytes, by the node that it counts for.
    bytes: Units<usize>,
}

/// What a unit counted since it was opened.
pub(super) struct UnitCount {
    /// The unit's name in sysfs.
    pub(super) name: String,
    /// The node that it counts for, by the topology.
    pub(super) node: usize,
    /// Bytes read from DRAM, or read and written where that cannot be told apart.
    pub(super) bytes: Counter,
}

impl Controllers {
    /// Opens the reads of every controller, else the reads and writes. Events that the kernel
    /// refuses are left out, all of them where it refuses all.
    pub(super) fn open(available: &Available, topology: &Topology) -> Self {
        for metric in [UncoreMetric::ControllerReads, UncoreMetric::ControllerBytes] {
            let counts = available.uncore.iter().filter(|count| count.metric == metric);
            let open: Vec<Unit> = counts.flat_map(|count| units(count, topology)).collect();
            if !open.is_empty() {
                return Self { metric: Some(metric), open };
            }
        }
        Self { metric: None, open: Vec::new() }
    }

    /// What is counted; `None` where nothing is.
    pub(super) fn metric(&self) -> Option<UncoreMetric> {
        self.metric
    }

    pub(super) fn read(&self) -> Result<Vec<UnitCount>> {
        let mut counts: Vec<UnitCount> = Vec::new();
        for unit in &self.open {
            let read = unit.bytes.read()?.into_iter();
            counts.extend(read.map(|(node, bytes)| UnitCount {
                name: unit.name.clone(),
                node,
                bytes,
            }));
        }
        Ok(counts)
    }
}

/// A count opened on each CPU that its unit names, each by itself.
fn units(count: &UncoreCount, topology: &Topology) -> Vec<Unit> {
    let Some(scale) = count.bytes else { return Vec::new() };
    let asked = whole::asked(&count.event, topology);
    let open = asked.filter_map(|(cpu, node)| {
        let part = Part { what: node, cpu, event: count.event.clone(), scale };
        Some(Unit { name: count.unit.clone(), bytes: Units::open(vec![part], 1).ok()? })
    });
    open.collect()
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;
    use rondpoint_linux::perf::attr::{Attr, SW_DUMMY, TYPE_SOFTWARE};
    use rondpoint_linux::perf::pmu::Event;

    use super::*;

    #[test]
    fn units_are_opened_once_for_each_node_and_refusals_leave_none() {
        let machine = synthetic::parse("node:1 core:1").expect("a machine");
        let attr = |kind| Attr::counting(kind, SW_DUMMY);
        let count = |kind, bytes| UncoreCount {
            metric: UncoreMetric::ControllerBytes,
            unit: "unit_0".to_string(),
            event: Event { name: "x".to_string(), attr: attr(kind), cpus: Some(vec![0, 99]) },
            bytes,
        };
        let open = |count| {
            let available = Available { uncore: vec![count], ..Available::default() };
            Controllers::open(&available, &machine)
        };
        assert_eq!(open(count(9_999, Some((64, 1)))).metric(), None);
        assert_eq!(open(count(TYPE_SOFTWARE, None)).metric(), None, "requests are no bytes");
        // Without the right to watch a whole CPU there is no unit at all.
        let controllers = open(count(TYPE_SOFTWARE, Some((64, 1))));
        for unit in controllers.read().expect("can be read") {
            assert_eq!((unit.name.as_str(), unit.node, unit.bytes.value), ("unit_0", 0, 0));
        }
    }
}
