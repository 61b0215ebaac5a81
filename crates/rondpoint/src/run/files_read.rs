//! Computes from samples which share of a program's memory accesses goes to files that it maps.

use std::collections::BTreeMap;

use rondpoint_core::Pid;
use rondpoint_core::cost::Interval;
use rondpoint_core::observation::{Observation, SharedObject, Source};

/// Sampled accesses to memory below which they tell nothing (our choice).
const LEAST_SAMPLES: u64 = 100;

/// What copies of the files would be worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CopiesWorth {
    /// Part of the program's accesses to memory that is to the files.
    pub(super) share: f64,
    /// Relative gain of speed, had there been copies from the start; 0.1 = 10 % faster.
    pub(super) gain: Interval,
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
    use rondpoint_core::Tid;
    use rondpoint_core::observation::{AddressSample, ProcessObservation, Samples, SharedMapping};

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
