//! Data for the summary of the whole run: the first look, the last look at every process and
//! thread, and the samples. Too many samples are thinned evenly.

use std::collections::BTreeMap;

use rondpoint_core::observation::{
    Counter, Observation, ProcessObservation, Samples, ThreadObservation,
};
use rondpoint_core::{Nanos, Pid, Tid};
use rondpoint_linux::observe::tasks::{MAX_PROCESSES, MAX_THREADS};

/// Samples kept for the summary: 40 bytes each.
const KEPT_SAMPLES: usize = 1 << 18;

/// Accumulates observations.
#[derive(Default)]
pub(crate) struct History {
    processes: BTreeMap<Pid, (ProcessObservation, BTreeMap<Tid, ThreadObservation>)>,
    threads: usize,
    samples: Option<Thinned>,
    hint_faults: Option<Thinned>,
}

/// Every n-th sample, n doubling when there are too many.
#[derive(Default)]
struct Thinned {
    kept: Samples,
    stride: usize,
    passed: usize,
}

impl Thinned {
    fn add(&mut self, more: &Samples) {
        self.stride = self.stride.max(1);
        self.kept.lost += more.lost;
        self.kept.throttled |= more.throttled;
        self.kept.period = more.period;
        for sample in &more.list {
            if self.passed.is_multiple_of(self.stride) {
                self.kept.list.push(*sample);
            }
            self.passed += 1;
            if self.kept.list.len() >= KEPT_SAMPLES {
                let mut index = 0;
                self.kept.list.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
        }
    }
}

impl History {
    /// Takes in one look.
    pub(crate) fn add(&mut self, look: &Observation) {
        for process in &look.processes {
            let known = self.processes.get(&process.pid);
            let is_same = known.is_some_and(|(known, _)| known.started == process.started);
            if !is_same && self.processes.len() >= MAX_PROCESSES {
                continue;
            }
            let mut threads = match self.processes.remove(&process.pid) {
                Some((_, threads)) if is_same => threads,
                _ => BTreeMap::new(),
            };
            for thread in &process.threads {
                // A thread that only samples tell of has ended: what was known of it says more.
                let known = threads.get(&thread.tid);
                if known.is_some_and(|known| known.cpu_time > thread.cpu_time) {
                    continue;
                }
                if known.is_some() || self.threads < MAX_THREADS {
                    self.threads +=
                        usize::from(threads.insert(thread.tid, thread.clone()).is_none());
                }
            }
            let last = ProcessObservation { threads: Vec::new(), ..process.clone() };
            self.processes.insert(process.pid, (last, threads));
        }
        let keep = |kept: &mut Option<Thinned>, more: &Option<Samples>| {
            if let Some(more) = more {
                kept.get_or_insert_default().add(more);
            }
        };
        keep(&mut self.samples, &look.samples);
        keep(&mut self.hint_faults, &look.hint_faults);
    }

    /// The last look, with all processes and threads that were ever seen and all samples.
    pub(crate) fn whole(&self, last: &Observation) -> Observation {
        let processes = self.processes.values().map(|(process, threads)| ProcessObservation {
            threads: threads.values().cloned().collect(),
            ..process.clone()
        });
        let samples = |kept: &Option<Thinned>| kept.as_ref().map(|thinned| thinned.kept.clone());
        Observation {
            processes: processes.collect(),
            samples: samples(&self.samples),
            hint_faults: samples(&self.hint_faults),
            ..last.clone()
        }
    }
}

/// Adds to `previous` the processes and threads that only `current` has, with nothing counted yet.
/// They were born in between, so all that they have done belongs to this interval.
pub(crate) fn add_newborn(previous: &mut Observation, current: &Observation) {
    let mut processes: BTreeMap<Pid, ProcessObservation> = std::mem::take(&mut previous.processes)
        .into_iter()
        .map(|known| (known.pid, known))
        .collect();
    for process in &current.processes {
        let known = processes.get(&process.pid).filter(|known| known.started == process.started);
        let mut threads: BTreeMap<Tid, ThreadObservation> = known
            .map(|known| known.threads.iter().map(|thread| (thread.tid, thread.clone())).collect())
            .unwrap_or_default();
        for thread in &process.threads {
            threads.entry(thread.tid).or_insert_with(|| newborn(thread));
        }
        let before = match known {
            Some(known) => ProcessObservation { threads: Vec::new(), ..known.clone() },
            None => ProcessObservation {
                pid: process.pid,
                started: process.started,
                faults: process.faults.map(|_| 0),
                ..ProcessObservation::default()
            },
        };
        let before = ProcessObservation { threads: threads.into_values().collect(), ..before };
        processes.insert(process.pid, before);
    }
    previous.processes = processes.into_values().collect();
}

fn newborn(thread: &ThreadObservation) -> ThreadObservation {
    let zero = |(event, _)| (event, Counter::default());
    let counters = thread.counters.iter().map(zero).collect();
    ThreadObservation { cpu_time: Nanos(0), counters, ..thread.clone() }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::observation::{AddressSample, Source};

    use super::*;

    fn look(processes: &[(u32, &[u32])], samples: usize) -> Observation {
        let process = |(pid, tids): &(u32, &[u32])| ProcessObservation {
            pid: Pid(*pid),
            threads: tids
                .iter()
                .map(|tid| ThreadObservation { tid: Tid(*tid), ..ThreadObservation::default() })
                .collect(),
            ..ProcessObservation::default()
        };
        let sample = AddressSample {
            pid: Pid(1),
            tid: Tid(1),
            cpu: 0,
            node: 0,
            address: 0x1000,
            latency_cycles: 1,
            page_shift: 12,
            source: Source::Dram,
            store: false,
        };
        Observation {
            processes: processes.iter().map(process).collect(),
            samples: Some(Samples { list: vec![sample; samples], ..Samples::default() }),
            ..Observation::default()
        }
    }

    #[test]
    fn processes_and_threads_that_have_gone_are_in_the_whole() {
        let mut history = History::default();
        history.add(&look(&[(1, &[1, 2]), (5, &[5])], 1));
        let last = look(&[(1, &[1, 3])], 1);
        history.add(&last);
        let whole = history.whole(&last);
        let shown: Vec<(u32, Vec<u32>)> = whole
            .processes
            .iter()
            .map(|process| (process.pid.0, process.threads.iter().map(|t| t.tid.0).collect()))
            .collect();
        assert_eq!(shown, [(1, vec![1, 2, 3]), (5, vec![5])]);
        assert_eq!(whole.samples.unwrap().list.len(), 2);
    }

    #[test]
    fn threads_born_in_between_began_with_nothing() {
        let mut current = look(&[(1, &[1, 2]), (5, &[5])], 0);
        for thread in current.processes.iter_mut().flat_map(|process| &mut process.threads) {
            thread.cpu_time = Nanos(7);
        }
        let mut previous = look(&[(1, &[1])], 0);
        previous.processes[0].threads[0].cpu_time = Nanos(3);
        add_newborn(&mut previous, &current);
        let shown: Vec<(u32, u32, u64)> = previous
            .processes
            .iter()
            .flat_map(|process| {
                process.threads.iter().map(|t| (process.pid.0, t.tid.0, t.cpu_time.0))
            })
            .collect();
        assert_eq!(shown, [(1, 1, 3), (1, 2, 0), (5, 5, 0)]);
    }

    #[test]
    fn a_late_sample_replaces_no_counts_of_a_thread() {
        let mut history = History::default();
        let mut early = look(&[(1, &[1])], 0);
        early.processes[0].threads[0].cpu_time = Nanos(5);
        history.add(&early);
        let late = look(&[(1, &[1])], 0);
        history.add(&late);
        assert_eq!(history.whole(&late).processes[0].threads[0].cpu_time, Nanos(5));
    }

    #[test]
    fn too_many_samples_are_thinned_evenly() {
        let mut history = History::default();
        for _ in 0..5 {
            history.add(&look(&[], KEPT_SAMPLES / 2));
        }
        let kept = history.whole(&Observation::default()).samples.unwrap().list.len();
        assert_eq!(kept, KEPT_SAMPLES * 5 / 2 / 4);
    }
}
