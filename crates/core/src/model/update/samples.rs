//! Computes traffic and latency of each application from samples, where counters do not separate
//! the applications.

use super::rates::{from_remote_caches, llc_misses, sum};
use super::{at_beginning, began_within, find_process, find_thread};
use crate::matrix::Matrix;
use crate::model::{App, Model, Traffic, TrafficSource};
use crate::observation::{AddressSample, Event, Observation, Source};
use crate::units::{Nanos, Pid};
use alloc::vec;
use alloc::vec::Vec;

/// Sums of the samples of each application, `[accessing][holding]`.
pub(super) struct SampleSums {
    /// Accesses that DRAM served, or that waited for a line on its way.
    memory: Vec<Matrix<f64>>,
    faults: Vec<Matrix<f64>>,
    /// Cycles and samples.
    latency: Vec<(f64, f64)>,
}

impl SampleSums {
    pub(super) fn new(apps: usize, nodes: usize) -> Self {
        Self {
            memory: vec![Matrix::filled(nodes, 0.0); apps],
            faults: vec![Matrix::filled(nodes, 0.0); apps],
            latency: vec![(0.0, 0.0); apps],
        }
    }

    /// Adds an access of `node` to the memory of `holder`.
    pub(super) fn add_access(&mut self, app: usize, source: Source, node: usize, holder: usize) {
        let sums = if source == Source::HintFault { &mut self.faults } else { &mut self.memory };
        sums[app][(node, holder)] += 1.0;
    }

    /// The samples of all applications together.
    fn of_all(&self) -> Matrix<f64> {
        let nodes = self.memory.first().map_or(0, Matrix::size);
        let sum = |n, m| self.memory.iter().map(|one| one[(n, m)]).sum();
        Matrix::from_fn(nodes, sum)
    }

    /// Adds the latency of a DRAM access, if the sample has it.
    pub(super) fn add_latency(&mut self, app: usize, sample: &AddressSample) {
        if sample.source == Source::Dram && sample.latency_cycles > 0 {
            self.latency[app].0 += f64::from(sample.latency_cycles);
            self.latency[app].1 += 1.0;
        }
    }
}

/// Traffic of the controllers, divided among the accessing nodes by samples.
struct Served {
    /// Lines of each controller for each of its samples; 0 without samples.
    per_sample: Vec<f64>,
    /// Lines per microsecond by `[accessing][holding]`.
    machine: Matrix<f64>,
}

impl Served {
    /// `lines` are the lines that each controller served, `all` the samples of all applications.
    /// Lines of a controller without samples belong to other programs, and are assumed to come from
    /// its own node.
    fn new(lines: &[f64], all: &Matrix<f64>) -> Self {
        let nodes = lines.len();
        let per_sample = |m: usize| match (0..nodes).map(|n| all[(n, m)]).sum::<f64>() {
            0.0 => 0.0,
            sampled => lines[m] / sampled,
        };
        let per_sample: Vec<f64> = (0..nodes).map(per_sample).collect();
        let unsampled = |n, m| if n == m && per_sample[m] == 0.0 { lines[m] } else { 0.0 };
        let cell = |n, m| all[(n, m)] * per_sample[m] + unsampled(n, m);
        Self { machine: Matrix::from_fn(nodes, cell), per_sample }
    }

    /// The traffic of an application with these samples.
    fn part(&self, own: &Matrix<f64>) -> Matrix<f64> {
        Matrix::from_fn(own.size(), |n, m| own[(n, m)] * self.per_sample[m])
    }
}

/// Computes the traffic of each application without counters of its own, from the first available
/// source:
///
/// 1. the machine's traffic, if the application is alone;
/// 2. its share of the machine's by samples;
/// 3. its samples, scaled to the requests that its threads counted;
/// 4. its share of what the controllers served.
///
/// An application without samples has no traffic if other applications have samples.
pub(super) fn finish_traffic(
    model: &mut Model,
    (previous, current): (&Observation, &Observation),
    sums: &SampleSums,
    controller_lines: Option<&[f64]>,
) {
    let elapsed = model.elapsed;
    let all_sampled: f64 = sums.memory.iter().map(total).sum();
    let served = controller_lines.filter(|_| all_sampled > 0.0);
    let served = served.map(|lines| Served::new(lines, &sums.of_all()));
    let mut latency = (0.0, 0.0);
    let is_alone = model.apps.len() == 1;
    for (index, app) in model.apps.iter_mut().enumerate() {
        // Counted latency is exact and takes precedence over sampled latency.
        let (cycles, count) =
            counted_latency(current, previous, app.pid).unwrap_or(sums.latency[index]);
        app.latency_cycles = (count > 0.0).then(|| cycles / count);
        app.latency_accesses = count;
        latency = (latency.0 + cycles, latency.1 + count);
        if app.traffic.is_some() {
            continue;
        }
        if let (true, Some(machine)) = (is_alone, &model.traffic) {
            app.traffic = Some(machine.clone());
            app.traffic_source = TrafficSource::Machine;
            continue;
        }
        let sampled = total(&sums.memory[index]);
        let counted = counted_requests(current, previous, app.pid, elapsed)
            .map(|count| count / elapsed.micros());
        let share = model
            .traffic
            .as_ref()
            .map(|machine| machine.total_per_us() * sampled / all_sampled.max(1.0));
        // A rate needs samples that show its nodes. A rate of zero needs none if other processes
        // have samples.
        let placed = |rate: &f64| sampled > 0.0 || (all_sampled > 0.0 && *rate == 0.0);
        if let Some(per_us) = share.or(counted).filter(placed) {
            let own = sums.memory[index].map(|count| per_us * count / sampled.max(1.0));
            app.traffic = Some(Traffic::new(own));
            app.traffic_source = TrafficSource::Samples;
        } else if let Some(served) = &served {
            app.traffic = Some(Traffic::new(served.part(&sums.memory[index])));
            app.traffic_source = TrafficSource::Samples;
        } else if total(&sums.faults[index]) > 0.0 {
            app.traffic = Traffic::from_counts(&sums.faults[index], elapsed);
            app.traffic_source = TrafficSource::HintFaults;
        }
    }
    model.latency_cycles = (latency.1 > 0.0).then(|| latency.0 / latency.1);
    if model.traffic.is_none() {
        let served = served.map(|served| Traffic::new(served.machine));
        model.traffic = served.or_else(|| sum_of_apps(model));
    }
}

/// The traffic of all managed applications, used if the machine cannot be counted. `None` unless
/// all are known in the same unit.
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

/// DRAM requests that the threads of a process counted.
fn counted_requests(
    current: &Observation,
    previous: &Observation,
    pid: Pid,
    elapsed: Nanos,
) -> Option<f64> {
    let place = current.processes.binary_search_by_key(&pid, |process| process.pid).ok()?;
    let process = &current.processes[place];
    let earlier = find_process(previous, process);
    let mut requests = None;
    for thread in &process.threads {
        let before = find_thread(earlier, thread.tid);
        if before.is_none() && !began_within(thread, elapsed) {
            continue;
        }
        let events =
            |event| Some(thread.counters.get(event)?.since(at_beginning(before, event)?)?.events);
        requests = sum(requests, requests_of(events));
    }
    requests
}

/// DRAM requests of a thread from its counters. Intel's processors count local and remote memory
/// for retired loads only, without prefetches. Misses of the last-level cache include prefetches,
/// so the larger of both counts is used. Lines from another node's cache are no DRAM requests.
fn requests_of(events: impl Fn(Event) -> Option<f64>) -> Option<f64> {
    let told_apart = sum(events(Event::LocalDram), events(Event::RemoteDram))?;
    let missed = llc_misses(&events).unwrap_or(0.0);
    Some(told_apart.max(missed - from_remote_caches(&events).unwrap_or(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(counts: &[(Event, f64)]) -> Option<f64> {
        requests_of(|event| counts.iter().find(|(of, _)| *of == event).map(|(_, count)| *count))
    }

    /// Controller 0 has two samples from node 0 for each from node 1. Controller 1 has none.
    #[test]
    fn what_controllers_served_belongs_to_the_nodes_that_were_sampled_there() {
        let mut sums = SampleSums::new(2, 2);
        for (app, node) in [(0, 0), (0, 0), (1, 1)] {
            sums.add_access(app, Source::Dram, node, 0);
        }
        let served = Served::new(&[30.0, 5.0], &sums.of_all());
        let cells: Vec<f64> = served.machine.rows().flatten().copied().collect();
        assert_eq!(cells, [20.0, 0.0, 10.0, 5.0], "controller 1 serves its own node");
    }

    #[test]
    fn prefetched_lines_are_requests_too() {
        let loads = [(Event::LocalDram, 10.0), (Event::RemoteDram, 5.0)];
        assert_eq!(requests(&loads), Some(15.0));
        let misses = [(Event::LlcMisses, 100.0), (Event::RemoteHitm, 6.0)];
        assert_eq!(requests(&[loads, misses].concat()), Some(94.0));
        let prefetches = [(Event::LlcPrefetchMisses, 50.0)];
        assert_eq!(requests(&[&loads[..], &misses, &prefetches].concat()), Some(144.0));
        assert_eq!(requests(&misses), None, "what missed may lie in another node's caches");
        let few = [(Event::LlcMisses, 8.0)];
        assert_eq!(requests(&[&loads[..], &few].concat()), Some(15.0));
    }
}
