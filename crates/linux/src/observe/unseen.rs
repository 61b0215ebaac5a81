//! Threads that began and ended between two looks.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::observation::{AddressSample, ProcessObservation, ThreadObservation};
use rondpoint_core::{Pid, Tid, Topology};

use super::tasks::MAX_THREADS;

/// Adds threads with samples that `/proc` does not have, because they lived between two looks. Only
/// the CPU of their last sample is known.
pub(super) fn add_unseen(
    processes: &mut Vec<ProcessObservation>,
    samples: &[AddressSample],
    topology: &Topology,
) {
    let known: BTreeSet<(Pid, Tid)> = processes
        .iter()
        .flat_map(|process| process.threads.iter().map(|thread| (process.pid, thread.tid)))
        .collect();
    let mut unseen: BTreeMap<(Pid, Tid), u16> = BTreeMap::new();
    for sample in samples {
        let thread = (sample.pid, sample.tid);
        if !known.contains(&thread)
            && (unseen.contains_key(&thread) || known.len() + unseen.len() < MAX_THREADS)
        {
            unseen.insert(thread, sample.cpu);
        }
    }
    for ((pid, tid), cpu) in unseen {
        let place = match processes.binary_search_by_key(&pid, |process| process.pid) {
            Ok(place) => place,
            Err(place) => {
                processes
                    .insert(place, ProcessObservation { pid, ..ProcessObservation::default() });
                place
            }
        };
        let threads = &mut processes[place].threads;
        if let Err(place) = threads.binary_search_by_key(&tid, |thread| thread.tid) {
            let (cpu, allowed) = (usize::from(cpu), topology.all_cpus());
            threads.insert(
                place,
                ThreadObservation { tid, cpu, allowed, ..ThreadObservation::default() },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::observation::Source;
    use rondpoint_core::topology::synthetic;

    use super::*;

    #[test]
    fn threads_that_only_samples_tell_of_are_added_in_their_place() {
        let machine = synthetic::parse("node:1 core:4").unwrap();
        let thread = ThreadObservation { tid: Tid(10), cpu: 2, ..ThreadObservation::default() };
        let threads = vec![thread];
        let mut found = vec![ProcessObservation { pid: Pid(10), threads, ..Default::default() }];
        let sample = |pid, tid, cpu| AddressSample {
            pid: Pid(pid),
            tid: Tid(tid),
            cpu,
            node: 0,
            address: 0x1000,
            latency_cycles: 1,
            page_shift: 12,
            source: Source::Dram,
            store: false,
        };
        let samples = [sample(10, 12, 0), sample(9, 9, 1), sample(10, 10, 3), sample(10, 12, 1)];
        add_unseen(&mut found, &samples, &machine);
        let shown: Vec<(u32, Vec<(u32, usize)>)> = found
            .iter()
            .map(|process| {
                let threads = process.threads.iter().map(|t| (t.tid.0, t.cpu)).collect();
                (process.pid.0, threads)
            })
            .collect();
        assert_eq!(shown, [(9, vec![(9, 1)]), (10, vec![(10, 2), (12, 1)])]);
    }
}
