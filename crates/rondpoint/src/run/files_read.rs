//! Computes from samples which share of a program's memory accesses goes to files that it maps, and
//! from traffic which node's memory is used most.

use std::collections::BTreeMap;

use rondpoint_core::cost::Interval;
use rondpoint_core::model::Traffic;
use rondpoint_core::observation::{Observation, SharedObject, Source};
use rondpoint_core::units::LINE_BYTES;
use rondpoint_core::{Pid, Topology};

/// Sampled accesses to memory below which they tell nothing (our choice).
const LEAST_SAMPLES: u64 = 100;

/// What copies of the files would be worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CopiesWorth {
    /// Part of the program's accesses to memory that is to the files.
    pub(super) share: f64,
    /// Relative gain of speed, had there been copies from the start; 0.1 = 10 % faster.
    pub(super) gain: Interval,
    /// The node whose memory was used most; `None` where no traffic was seen.
    pub(super) fullest: Option<Fullest>,
}

/// The memory that was used most, as a mean over the run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fullest {
    /// The kernel's number of the node.
    pub(super) node: u32,
    /// What its memory gave and took, bytes per second.
    pub(super) bytes_per_s: f64,
    /// The same as a part of its controller's bandwidth, where that is known.
    pub(super) used: Option<f64>,
}

impl Fullest {
    /// The fullest node of this traffic; `None` if there was none.
    pub(super) fn of(traffic: &Traffic, topology: &Topology) -> Option<Self> {
        let loads = traffic.load_per_us().into_iter().enumerate();
        let (node, per_us) = loads.max_by(|one, other| one.1.total_cmp(&other.1))?;
        let bytes_per_s = per_us * 1e6 * LINE_BYTES as f64;
        let used = topology.controller_bytes_per_s(node).map(|most| bytes_per_s / most);
        let node = topology.kernel_node(node);
        (per_us > 0.0).then_some(Self { node, bytes_per_s, used })
    }
}

/// Sampled accesses to memory by process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FilesRead {
    files: Vec<SharedObject>,
    counts: BTreeMap<Pid, Count>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Count {
    to_files: u64,
    all: u64,
}

impl FilesRead {
    pub(super) fn of(files: Vec<SharedObject>) -> Self {
        Self { files, counts: BTreeMap::new() }
    }

    /// Adds an observation's samples that memory answered. The processes tell where they have
    /// mapped the files.
    pub(super) fn take_in(&mut self, observation: &Observation) {
        let Some(samples) = &observation.samples else { return };
        let mut mapped: BTreeMap<Pid, Vec<(u64, u64)>> = BTreeMap::new();
        for process in &observation.processes {
            let of_files = process.shared.iter().filter(|one| self.files.contains(&one.object));
            mapped.insert(process.pid, of_files.map(|one| (one.start, one.end)).collect());
        }
        for sample in samples.list.iter().filter(|sample| sample.source == Source::Dram) {
            let Some(ranges) = mapped.get(&sample.pid) else { continue };
            let is_in = |(start, end): &(u64, u64)| (*start..*end).contains(&sample.address);
            let count = self.counts.entry(sample.pid).or_default();
            count.all += 1;
            count.to_files += u64::from(ranges.iter().any(is_in));
        }
    }

    /// By process: the part of its accesses that is to the files.
    pub(super) fn shares(&self) -> Vec<(Pid, f64)> {
        let reads = self.counts.iter().filter(|(_, count)| count.to_files > 0);
        reads.map(|(pid, count)| (*pid, count.to_files as f64 / count.all as f64)).collect()
    }

    /// The same of all processes together; `None` where too few accesses were sampled.
    pub(super) fn share(&self) -> Option<f64> {
        let sum = |of: fn(&Count) -> u64| self.counts.values().map(of).sum::<u64>();
        let (to_files, all) = (sum(|count| count.to_files), sum(|count| count.all));
        (all >= LEAST_SAMPLES).then(|| to_files as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::observation::{AddressSample, ProcessObservation, Samples, SharedMapping};
    use rondpoint_core::topology::synthetic;
    use rondpoint_core::{Matrix, Tid};

    use super::*;

    const FILE: SharedObject = SharedObject { device: 8 << 20 | 1, inode: 42 };

    /// Process 7 has the file at 0x1000 to 0x3000, process 8 another file there.
    fn observation(samples: &[(u32, u64, Source)]) -> Observation {
        let process = |pid, object| ProcessObservation {
            shared: vec![SharedMapping { start: 0x1000, end: 0x3000, object, offset: 0 }],
            pid: Pid(pid),
            ..ProcessObservation::default()
        };
        let sample = |(pid, address, source): &(u32, u64, Source)| AddressSample {
            pid: Pid(*pid),
            tid: Tid(*pid),
            cpu: 0,
            node: 0,
            address: *address,
            latency_cycles: 300,
            page_shift: 12,
            source: *source,
            store: false,
        };
        let list = samples.iter().map(sample).collect();
        Observation {
            processes: vec![process(7, FILE), process(8, SharedObject { inode: 43, ..FILE })],
            samples: Some(Samples { list, ..Samples::default() }),
            ..Observation::default()
        }
    }

    #[test]
    fn the_fullest_node_is_the_one_whose_memory_is_used_most_whoever_uses_it() {
        let topology = synthetic::parse("node:2 core:2 gbs:4 mhz:2000").unwrap();
        let of = |local, remote| {
            let rate = |_, holding| if holding == 1 { remote } else { local };
            Fullest::of(&Traffic::new(Matrix::from_fn(2, rate)), &topology)
        };
        // Two nodes with 12.5 requests of 64 bytes a microsecond each.
        let found = of(1.0, 12.5).unwrap();
        assert_eq!((found.node, found.bytes_per_s), (1, 1.6e9));
        let most = topology.controller_bytes_per_s(1).unwrap();
        assert_eq!(found.used, Some(1.6e9 / most));
        assert_eq!(of(0.0, 0.0), None);
    }

    #[test]
    fn accesses_that_memory_answered_are_told_apart_by_the_file_behind_them() {
        let mut read = FilesRead::of(vec![FILE]);
        let dram = Source::Dram;
        let few = [(7, 0x1000, dram), (7, 0x2fff, dram), (7, 0x3000, dram), (8, 0x1000, dram)];
        read.take_in(&observation(&few));
        read.take_in(&observation(&[(7, 0x1000, Source::Private), (9, 0x1000, dram)]));
        assert_eq!(read.shares(), [(Pid(7), 2.0 / 3.0)]);
        assert_eq!(read.share(), None, "four samples tell nothing");
        for _ in 0..25 {
            read.take_in(&observation(&few));
        }
        assert_eq!(read.share(), Some(0.5));
    }
}
