//! Sensors of the plant: readings with the noise and the gaps of real sensors.

mod counters;
mod samples;

use std::ops::Range;

use rondpoint_core::counting_pause::Glance;
use rondpoint_core::observation::{
    AddressSample, Counter, Counters, Mapping, MappingKind, Observation, ProcessObservation,
    Replica, Samples, ThreadObservation,
};
use rondpoint_core::units::{Bytes, PAGE_BYTES, PAGE_SHIFT};
use rondpoint_core::{Matrix, Nanos, Random};
use rondpoint_machine::{Machine, Vendor};

use crate::plant::{Epoch, Group, Plant, Process};
use counters::Reading;

/// What the processor can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pmu {
    /// AMD's northbridges: IBS samples of all accesses, and a traffic matrix of the whole machine.
    Ibs,
    /// AMD Zen 1: IBS samples, and the lines that each node's controllers served. Neither its
    /// cores nor its fabric tell node from node.
    Zen1,
    /// Intel: PEBS samples of loads beyond the private caches, latencies and stalls. A traffic
    /// matrix on two nodes, controllers' lines on more.
    Pebs,
    /// Arm: SPE samples of all accesses. No unit outside the cores counts, as on Graviton.
    Spe,
    /// Samples of all accesses alone: nothing is counted.
    Samples,
    /// Counters of each thread and of the units outside the cores, as [`Self::Pebs`]; no samples.
    Counters,
    /// Nothing, as in most virtual machines: hint faults of the kernel's balancing remain.
    None,
}

/// Names on the command line, in the order of the enum.
pub const PMUS: [(&str, Pmu); 7] = [
    ("ibs", Pmu::Ibs),
    ("zen1", Pmu::Zen1),
    ("pebs", Pmu::Pebs),
    ("spe", Pmu::Spe),
    ("samples", Pmu::Samples),
    ("counters", Pmu::Counters),
    ("none", Pmu::None),
];

impl Pmu {
    /// That of a machine's processor.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        match machine.pmu.vendor {
            Vendor::Amd => Self::Ibs,
            Vendor::Intel => Self::Pebs,
            Vendor::Arm => Self::Spe,
        }
    }

    pub(crate) fn samples(self) -> bool {
        !matches!(self, Self::Counters | Self::None)
    }

    fn counts(self) -> bool {
        !matches!(self, Self::Samples | Self::None)
    }

    fn has_matrix(self, nodes: usize) -> bool {
        self == Self::Ibs || (matches!(self, Self::Pebs | Self::Counters) && nodes == 2)
    }

    /// As on real processors, controllers are counted where node cannot be told from node.
    fn counts_controllers(self, nodes: usize) -> bool {
        self.counts() && self != Self::Spe && !self.has_matrix(nodes)
    }
}

/// Hint faults kept between two looks: what the manager's sampler keeps (`MAX_SAMPLES`,
/// crates/linux/src/observe/sampler.rs).
const MAX_FAULTS: usize = 1 << 20;

/// The sensors of one machine.
#[derive(Debug, Clone)]
pub(crate) struct Sensors {
    pub(crate) pmu: Pmu,
    random: Random,
    /// Cycles between two samples of a CPU; `None` = off.
    pub(crate) period: Option<u64>,
    /// Nothing is counted or sampled during a pause.
    pub(crate) paused: bool,
    /// Whether the kernel can copy pages.
    pub(crate) replication: bool,
    samples: Vec<AddressSample>,
    /// Hint faults between two that are sampled; `None` = off.
    pub(crate) fault_period: Option<usize>,
    /// Hint faults until the next sampled one.
    faults_left: usize,
    faults: Vec<AddressSample>,
    readings: Vec<Reading>,
    traffic: Vec<Matrix<f64>>,
}

impl Sensors {
    pub(crate) fn new(pmu: Pmu, plant: &Plant, replication: bool, seed: u64) -> Self {
        Self {
            pmu,
            random: Random::new(seed),
            period: None,
            paused: false,
            replication,
            samples: Vec::new(),
            fault_period: Some(1),
            faults_left: 0,
            faults: Vec::new(),
            readings: vec![Reading::default(); plant.threads.len()],
            traffic: vec![Matrix::filled(plant.topology.node_count(), 0.0); plant.processes.len()],
        }
    }

    /// Watches one epoch.
    pub(crate) fn watch(&mut self, plant: &mut Plant, epoch: &Epoch, faults: Vec<AddressSample>) {
        if !self.paused && self.pmu == Pmu::None {
            self.take_faults(faults);
        }
        if !self.paused && self.pmu.samples() {
            self.sample(plant, epoch);
        }
    }

    fn take_faults(&mut self, faults: Vec<AddressSample>) {
        let Some(period) = self.fault_period else { return };
        let made = faults.len();
        self.faults.extend(faults.into_iter().skip(self.faults_left).step_by(period));
        self.faults.truncate(MAX_FAULTS);
        self.faults_left = left_after(made, self.faults_left, period);
    }

    /// Looks at everything.
    pub(crate) fn observe(&mut self, plant: &Plant, after_pause: bool) -> Observation {
        self.count(plant);
        let matrix = self.pmu.has_matrix(plant.topology.node_count());
        let processes: Vec<ProcessObservation> = (0..plant.processes.len())
            .filter(|&process| plant.processes[process].runs())
            .map(|process| self.process(plant, process))
            .collect();
        // Only loads are sampled.
        let samples =
            |list: Vec<AddressSample>, period| Samples { list, period, ..Samples::default() };
        Observation {
            at: plant.now(),
            after_pause,
            node_traffic: matrix.then(|| self.machine_traffic()),
            controller_lines: self
                .pmu
                .counts_controllers(plant.topology.node_count())
                .then(|| controller_lines(plant)),
            link_bytes: None,
            free_memory: Some(plant.free_memory()),
            births: self.pmu.counts().then_some(0),
            processes,
            samples: self
                .pmu
                .samples()
                .then(|| samples(std::mem::take(&mut self.samples), self.period)),
            hint_faults: (self.pmu == Pmu::None)
                .then(|| samples(std::mem::take(&mut self.faults), None)),
        }
    }

    /// What a glance tells: CPU time and, where they are `wanted` and counted, requests.
    pub(crate) fn glance(&self, plant: &Plant, wanted: bool) -> Glance {
        let runs = plant.processes.iter().filter(|process| process.runs());
        let ran = |threads: Range<usize>| {
            plant.threads[threads].iter().map(|thread| thread.counts.cpu_ns).sum::<f64>()
        };
        let of = |process: &Process| process.counts.traffic.rows().flatten().sum::<f64>();
        let nodes = plant.topology.node_count();
        let requests = if self.pmu.has_matrix(nodes) {
            Some(plant.processes.iter().map(of).sum::<f64>())
        } else {
            self.pmu.counts_controllers(nodes).then(|| plant.controller_lines.iter().sum())
        };
        Glance {
            at: plant.now(),
            cpu_time: runs
                .map(|process| (process.pid, Nanos(ran(process.threads.clone()) as u64)))
                .collect(),
            requests: requests.filter(|_| wanted).map(|count| Counter::exact(count as u64)),
        }
    }

    fn machine_traffic(&self) -> Matrix<Counter> {
        let size = self.traffic.first().map_or(0, Matrix::size);
        Matrix::from_fn(size, |a, h| {
            let all: f64 = self.traffic.iter().map(|of| of[(a, h)]).sum();
            Counter::exact(all as u64)
        })
    }

    fn process(&self, plant: &Plant, index: usize) -> ProcessObservation {
        let process = &plant.processes[index];
        let bytes = |pages: u64| Bytes(pages * PAGE_BYTES);
        let threads = process.threads.clone().filter(|&thread| !plant.threads[thread].finished);
        // Buffers that were allocated again have other addresses.
        let mut groups: Vec<&Group> =
            process.groups.iter().flatten().map(|&group| &plant.groups[group]).collect();
        groups.sort_unstable_by_key(|group| group.first_page);
        let replicas = groups.iter().flat_map(|group| {
            group.copied_pages().map(|page| Replica {
                address: group.address(page),
                collapses: u32::from(group.collapses(page)),
            })
        });
        ProcessObservation {
            pid: process.pid,
            started: process.started.unwrap_or(Nanos(0)),
            threads: threads.map(|thread| self.thread(plant, thread)).collect(),
            node_traffic: None,
            counters: self.process_counters(plant, index),
            cache_traffic: None,
            memory: Some(plant.pages_by_node(index).into_iter().map(bytes).collect()),
            faults: Some(process.faults),
            mappings: Some(mappings(&groups)),
            shared: Vec::new(),
            replicas: self.replication.then(|| replicas.collect()),
            policy_read: None,
            progress: None,
            allowed_nodes: process.allowed_nodes.clone(),
            exempt: process.exempt,
            pages_moved_by_others: Some(process.moved_by_kernel),
        }
    }

    fn thread(&self, plant: &Plant, index: usize) -> ThreadObservation {
        let thread = &plant.threads[index];
        ThreadObservation {
            tid: thread.tid,
            cpu: thread.cpu,
            cpu_time: Nanos(thread.counts.cpu_ns as u64),
            queued: Some(Nanos(thread.counts.queued_ns as u64)),
            slices: Some(thread.counts.slices as u64),
            allowed: plant.usable(index),
            exempt: None,
            counters: self.thread_counters(index),
        }
    }

    fn thread_counters(&self, index: usize) -> Counters {
        if self.pmu.counts() {
            self.readings[index].counters(self.pmu)
        } else {
            Counters::default()
        }
    }
}

/// What the controllers of each node served.
fn controller_lines(plant: &Plant) -> Vec<Counter> {
    plant.controller_lines.iter().map(|lines| Counter::exact(*lines as u64)).collect()
}

/// Events until the next sampled one, after so many of which the sampled ones came
/// `period` apart, from number `left` on.
fn left_after(events: usize, left: usize, period: usize) -> usize {
    match events.checked_sub(left) {
        None => left - events,
        Some(rest) => rest.next_multiple_of(period) - rest,
    }
}

/// An access of a thread to a page.
pub(crate) fn page_sample(
    plant: &Plant,
    (thread, group, page): (usize, usize, usize),
    offset: u64,
) -> AddressSample {
    let of = &plant.threads[thread];
    let cpu = of.cpu;
    let pages = &plant.groups[group];
    let here = plant.topology.node_of_cpu(cpu) as u16;
    AddressSample {
        pid: plant.processes[of.process].pid,
        tid: of.tid,
        cpu: cpu as u16,
        node: if pages.is_copied(page) { here } else { pages.homes[page] },
        address: pages.address(page) + offset,
        latency_cycles: 0,
        page_shift: PAGE_SHIFT,
        source: rondpoint_core::observation::Source::Unknown,
        store: false,
    }
}

/// The mappings of a process, in the order of its groups of pages.
fn mappings(groups: &[&Group]) -> Vec<Mapping> {
    let mapping = |group: &&Group| Mapping {
        start: group.address(0),
        end: group.address(group.homes.len()),
        kind: MappingKind::PrivateAnonymous,
    };
    groups.iter().map(mapping).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::plant::FirstPlace;
    use crate::rivals::Rival;
    use crate::world::{Scene, World};

    fn world(machine: &str, workload: &str, pmu: Pmu) -> World {
        let scene = Scene {
            pmu,
            ..Scene::new(
                catalogue::machine(machine).expect("a machine"),
                catalogue::workload(workload).expect("a workload"),
                5,
            )
        };
        World::new(&scene, FirstPlace::Touch, Rival::Nothing)
    }

    /// Lines by node that a window's controllers counted.
    fn counted(from: &Observation, to: &Observation) -> Vec<f64> {
        let lines = |of: &Observation| of.controller_lines.clone().expect("they are counted");
        let pairs = lines(from).into_iter().zip(lines(to));
        pairs.map(|(from, to)| to.since(from).expect("they only grow").events).collect()
    }

    #[test]
    fn controllers_of_a_window_count_what_threads_read_and_wrote_in_it() {
        for (machine, pmu) in [("carrefour-a", Pmu::Zen1), ("asymsched-8", Pmu::Pebs)] {
            let mut world = world(machine, "write-shared", pmu);
            (0..10).for_each(|_| world.pass());
            let drawn = |plant: &Plant| {
                let of = |counts: &crate::plant::ThreadCounts| {
                    counts.misses + counts.writes * plant.truth.write_back
                };
                plant.threads.iter().map(|thread| of(&thread.counts)).sum::<f64>()
            };
            let (before, reads) = (drawn(&world.plant), world.plant.traffic.clone());
            let began = world.sensors.observe(&world.plant, false);
            (0..20).for_each(|_| world.pass());
            let ended = world.sensors.observe(&world.plant, false);
            let (lines, truth) = (counted(&began, &ended), drawn(&world.plant) - before);
            let sum: f64 = lines.iter().sum();
            assert!((sum / truth - 1.0).abs() < 1e-6, "{machine}: {sum} of {truth}");
            for (node, lines) in lines.iter().enumerate() {
                let read = |of: &Matrix<f64>| of.column(node).sum::<f64>();
                let read = read(&world.plant.traffic) - read(&reads);
                assert!(*lines + 1.0 > read && *lines < 2.0 * read + 1.0, "{machine}: node {node}");
            }
            assert!(began.node_traffic.is_none());
            let glance = world.sensors.glance(&world.plant, true).requests;
            let all: u64 = ended.controller_lines.iter().flatten().map(|one| one.value).sum();
            let glanced = glance.map_or(0, |one| one.value);
            assert!(glanced.abs_diff(all) <= lines.len() as u64, "{glanced} of {all}");
        }
    }

    #[test]
    fn each_processor_counts_what_its_kind_can() {
        let kinds = |machine: &str, pmu| {
            let mut world = world(machine, "private", pmu);
            (0..4).for_each(|_| world.pass());
            let look = world.sensors.observe(&world.plant, false);
            let thread = &look.processes[0].threads[0];
            assert!(thread.queued.is_some(), "the kernel tells it on every processor");
            let counters = thread.counters.iter().count() > 0;
            [look.node_traffic.is_some(), look.controller_lines.is_some(), counters]
        };
        assert_eq!(kinds("carrefour-a", Pmu::Ibs), [true, false, true]);
        assert_eq!(kinds("carrefour-a", Pmu::Zen1), [false, true, true]);
        assert_eq!(kinds("sam-2", Pmu::Pebs), [true, false, true]);
        assert_eq!(kinds("carrefour-a", Pmu::Pebs), [false, true, true]);
        assert_eq!(kinds("altra-2", Pmu::Spe), [false, false, true]);
        assert_eq!(kinds("altra-2", Pmu::Samples), [false, false, false]);
        assert_eq!(kinds("carrefour-a", Pmu::None), [false, false, false]);
    }

    #[test]
    fn sampled_events_are_a_period_apart_however_they_are_cut_into_epochs() {
        for period in [1, 4, 16] {
            for size in 1..40 {
                let all: Vec<usize> = (0..400).collect();
                let (mut left, mut taken) = (0, Vec::<usize>::new());
                for epoch in all.chunks(size) {
                    taken.extend(epoch.iter().skip(left).step_by(period));
                    left = left_after(epoch.len(), left, period);
                }
                assert_eq!(taken, (0..400).step_by(period).collect::<Vec<_>>(), "{period} {size}");
            }
        }
    }
}
