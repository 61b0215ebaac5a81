//! From samples to page records, homes, touches, latency, and the traffic of applications that no counter tells apart.

use super::rates::sum;
use super::{find_process, find_thread};
use crate::matrix::Matrix;
use crate::model::{App, Model, PageId, Touch, Traffic, TrafficSource};
use crate::observation::{AddressSample, Event, Observation, Samples, Source, UNKNOWN_NODE};
use crate::topology::Topology;
use crate::units::{Nanos, Pid, Tid};
use alloc::vec;
use alloc::vec::Vec;

/// What samples add up to for each application.
pub(super) struct SampleSums {
    dram: Vec<Matrix<f64>>,
    faults: Vec<Matrix<f64>>,
    /// Cycles and samples.
    latency: Vec<(f64, f64)>,
}

impl SampleSums {
    pub(super) fn new(apps: usize, nodes: usize) -> Self {
        Self {
            dram: vec![Matrix::filled(nodes, 0.0); apps],
            faults: vec![Matrix::filled(nodes, 0.0); apps],
            latency: vec![(0.0, 0.0); apps],
        }
    }
}

/// Finds the indices of a sample's process and thread; samples of one thread tend to come together, so the last one is kept.
struct Finder {
    last: Option<(Pid, Tid, usize, usize)>,
}

impl Finder {
    fn find(&mut self, model: &Model, sample: &AddressSample) -> Option<(usize, usize)> {
        if let Some((pid, tid, app, thread)) = self.last
            && (pid, tid) == (sample.pid, sample.tid)
        {
            return Some((app, thread));
        }
        let app = model.apps.binary_search_by_key(&sample.pid, |app| app.pid).ok()?;
        let threads = model.apps[app].threads.clone();
        let place = model.threads[threads.clone()]
            .binary_search_by_key(&sample.tid, |thread| thread.tid)
            .ok()?;
        self.last = Some((sample.pid, sample.tid, app, threads.start + place));
        Some((app, threads.start + place))
    }
}

pub(super) fn add_samples(
    model: &mut Model,
    topology: &Topology,
    samples: &Samples,
    sums: &mut SampleSums,
) {
    let mut finder = Finder { last: None };
    for sample in &samples.list {
        let Some((app, thread)) = finder.find(model, sample) else { continue };
        if usize::from(sample.cpu) >= topology.cpu_count() {
            continue;
        }
        let node = topology.node_of_cpu(usize::from(sample.cpu));
        let holder = usize::from(sample.node);
        let known = sample.node != UNKNOWN_NODE && holder < topology.node_count();
        let home = if known { sample.node } else { UNKNOWN_NODE };
        let address = sample.page_address();
        let page = model.pages.record(
            app as u32,
            address,
            sample.page_shift,
            home,
            node as u16,
            sample.store,
        );
        let from_memory = matches!(sample.source, Source::Dram | Source::HintFault);
        if from_memory && known {
            let sums =
                if sample.source == Source::Dram { &mut sums.dram } else { &mut sums.faults };
            sums[app][(node, holder)] += 1.0;
            let accesses = &mut model.threads[thread].accesses_by_node;
            accesses.get_or_insert_with(|| vec![0; topology.node_count()])[holder] += 1;
        }
        if sample.source == Source::Dram && sample.latency_cycles > 0 {
            sums.latency[app].0 += f64::from(sample.latency_cycles);
            sums.latency[app].1 += 1.0;
        }
        if let Some(page) = page {
            model.touches.push(touch(page, thread, sample, from_memory && known && holder != node));
        }
    }
}

fn touch(page: PageId, thread: usize, sample: &AddressSample, remote_memory: bool) -> Touch {
    let remote_cache = matches!(sample.source, Source::CacheRemote | Source::CacheRemoteModified);
    Touch { page, thread: thread as u32, remote: remote_memory || remote_cache }
}

/// Gives each application without counters of its own its traffic: the machine's if it is alone, else its samples scaled to the
/// requests that its threads counted, else to its share of the machine's.
pub(super) fn finish_traffic(
    model: &mut Model,
    current: &Observation,
    previous: &Observation,
    sums: &SampleSums,
    elapsed: Nanos,
) {
    let all_samples: f64 = sums.dram.iter().map(total).sum();
    let mut latency = (0.0, 0.0);
    for (index, app) in model.apps.iter_mut().enumerate() {
        // Counted latency is exact and sampled latency is not: a process that has the first needs no second.
        let (cycles, count) =
            counted_latency(current, previous, app.pid).unwrap_or(sums.latency[index]);
        app.latency_cycles = (count > 0.0).then(|| cycles / count);
        latency = (latency.0 + cycles, latency.1 + count);
        if app.traffic.is_some() {
            continue;
        }
        let sampled = total(&sums.dram[index]);
        let counted =
            counted_requests(current, previous, app.pid).map(|count| count / elapsed.micros());
        let share = model
            .traffic
            .as_ref()
            .map(|machine| machine.total_per_us() * sampled / all_samples.max(1.0));
        if let Some(per_us) = counted.or(share).filter(|_| sampled > 0.0) {
            app.traffic =
                Some(Traffic::new(sums.dram[index].map(|count| per_us * count / sampled)));
            app.traffic_source = TrafficSource::Samples;
        } else if total(&sums.faults[index]) > 0.0 {
            app.traffic = Traffic::from_counts(&sums.faults[index], elapsed);
            app.traffic_source = TrafficSource::HintFaults;
        }
    }
    model.latency_cycles = (latency.1 > 0.0).then(|| latency.0 / latency.1);
    if let ([app], Some(machine)) = (&mut model.apps[..], &model.traffic)
        && app.traffic.is_none()
    {
        app.traffic = Some(machine.clone());
        app.traffic_source = TrafficSource::Machine;
    }
    if model.traffic.is_none() {
        model.traffic = sum_of_apps(model);
    }
}

/// Where the machine cannot be counted: what the managed applications draw together, if all are known in the same unit.
fn sum_of_apps(model: &Model) -> Option<Traffic> {
    let faults = |app: &App| app.traffic_source == TrafficSource::HintFaults;
    let unit = faults(model.apps.first()?);
    let mut sum: Option<Matrix<f64>> = None;
    for app in &model.apps {
        let own = &app.traffic.as_ref().filter(|_| faults(app) == unit)?.requests_per_us;
        sum = Some(match sum {
            Some(sum) => Matrix::from_fn(own.size(), |n, m| sum[(n, m)] + own[(n, m)]),
            None => own.clone(),
        });
    }
    sum.map(Traffic::new)
}

fn total(matrix: &Matrix<f64>) -> f64 {
    matrix.rows().flatten().sum()
}

/// Cycles and requests that the process counted, if both were.
fn counted_latency(current: &Observation, previous: &Observation, pid: Pid) -> Option<(f64, f64)> {
    let place = current.processes.binary_search_by_key(&pid, |process| process.pid).ok()?;
    let process = &current.processes[place];
    let earlier = find_process(previous, process)?;
    let events = |event| Some(process.counters.since(&earlier.counters, event)?.events);
    events(Event::DramLatencyCycles).zip(events(Event::DramRequests))
}

/// DRAM requests that the threads of a process counted, local and remote.
fn counted_requests(current: &Observation, previous: &Observation, pid: Pid) -> Option<f64> {
    let place = current.processes.binary_search_by_key(&pid, |process| process.pid).ok()?;
    let process = &current.processes[place];
    let earlier = find_process(previous, process);
    let mut requests = None;
    for thread in &process.threads {
        let Some(before) = find_thread(earlier, thread.tid) else { continue };
        let events =
            |event| thread.counters.since(&before.counters, event).map(|delta| delta.events);
        requests = sum(requests, sum(events(Event::LocalDram), events(Event::RemoteDram)));
    }
    requests
}
