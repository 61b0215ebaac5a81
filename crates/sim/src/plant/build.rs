//! Builds a plant from a machine and a workload. Processes begin with first touch.

use rondpoint_core::units::{Nanos, PAGE_BYTES};
use rondpoint_core::{CpuSet, Matrix, Pid, Random, Tid};
use rondpoint_machine::Machine;
use std::collections::BTreeMap;

use super::chance::{Chances, Purpose};
use super::counts::{ProcessCounts, ThreadCounts, Totals};
use super::memory::Group;
use super::queues::Queues;
use super::{FirstPlace, Plant, Process, Thread, Truth};
use crate::workload::{Program, Workload, pages_of};

/// Pid of the first process.
const FIRST_PID: u32 = 1000;
/// First page of the first group: address 4 GiB.
const FIRST_PAGE: u64 = 1 << 20;

impl Plant {
    /// The programs of `workload` on `machine`, not yet started. The same seed gives the same
    /// chances.
    pub(crate) fn new(
        machine: &Machine,
        workload: &Workload,
        truth: Truth,
        first_place: FirstPlace,
        seed: u64,
    ) -> Self {
        let nodes = machine.nodes.len();
        let memory = |node: &rondpoint_machine::Node| node.memory_bytes / PAGE_BYTES;
        let topology = machine.topology();
        let mut node_of_domain = vec![0; topology.domain_count()];
        topology.cpus().iter().for_each(|cpu| node_of_domain[cpu.cache_domain] = cpu.node);
        let mut plant = Self {
            topology,
            node_of_domain,
            queues: Queues::new(machine, &truth),
            truth,
            first_place,
            stops: (workload.stops_s > 0.0).then_some(Nanos((workload.stops_s * 1e9) as u64)),
            random: Random::new(seed),
            chances: Chances::new(seed),
            now: Nanos(0),
            processes: Vec::new(),
            threads: Vec::new(),
            groups: Vec::new(),
            by_page: BTreeMap::new(),
            unplugged_cpus: CpuSet::default(),
            unplugged_pages: vec![0; nodes],
            free_pages: machine.nodes.iter().map(memory).collect(),
            traffic: Matrix::filled(nodes, 0.0),
            controller_lines: vec![0.0; nodes],
            link_bytes: vec![0.0; machine.links.len()],
            totals: Totals::default(),
            machine: machine.clone(),
        };
        for program in &workload.programs {
            let mut due_s = program.start_s;
            for _ in 0..program.instances {
                plant.add(program, Nanos((due_s * 1e9) as u64));
                let chance = plant.chances.of(Purpose::Arrival, Nanos(0), plant.processes.len());
                due_s -= program.every_s * (1.0 - chance).ln();
            }
        }
        plant.connect();
        plant
    }

    fn add(&mut self, program: &Program, due: Nanos) {
        let index = self.processes.len();
        let count = program.threads_on(self.topology.cpu_count());
        let first = self.threads.len();
        let pid = FIRST_PID + (first + index) as u32;
        let nodes = self.topology.node_count();
        for number in 0..count {
            self.threads.push(Thread {
                tid: Tid(pid + number as u32),
                process: index,
                number,
                cpu: 0,
                allowed: self.topology.all_cpus(),
                mask: self.topology.all_cpus(),
                done: 0.0,
                finished: false,
                active: false,
                ready: 1.0,
                debt_ns: 0.0,
                counts: ThreadCounts::default(),
            });
        }
        let groups = (0..program.regions.len())
            .map(|region| self.add_groups(program, region, count, index))
            .collect();
        self.processes.push(Process {
            pid: Pid(pid),
            work: program.seconds * 1e9 / self.alone_ns(program),
            program: program.clone(),
            threads: first..first + count,
            asks: None,
            groups,
            due,
            backlog: 0.0,
            unheard: Vec::new(),
            started: None,
            ended: None,
            killed: false,
            moved_by_kernel: 0,
            faults: 0,
            allowed_nodes: None,
            exempt: None,
            counts: ProcessCounts::new(nodes),
        });
    }

    fn add_groups(
        &mut self,
        program: &Program,
        region: usize,
        threads: usize,
        process: usize,
    ) -> Vec<usize> {
        let parts = program.parts_of(region, threads);
        let region = &program.regions[region];
        let pages = pages_of(region);
        let place = |_| {
            let first_page = self.free_address();
            let index = self.groups.len();
            let shape = (first_page, pages, self.topology.node_count());
            self.groups.push(Group::new(process, shape, (region.writes, region.reuse)));
            self.by_page.insert(first_page, index);
            index
        };
        (0..parts).map(place).collect()
    }

    /// The first page of a new mapping. A gap of a page keeps the mappings apart.
    pub(super) fn free_address(&self) -> u64 {
        let last = self.by_page.last_key_value();
        let end = last.map(|(page, group)| page + self.groups[*group].homes.len() as u64);
        end.map_or(FIRST_PAGE, |end| end + 1)
    }

    /// Misses that a thread of a program keeps under way: its own bound, or the core's with its
    /// prefetcher.
    pub(super) fn outstanding(&self, program: &Program) -> f64 {
        let core = self.machine.core.outstanding_misses;
        let ahead = if self.machine.prefetch.streams > 0 { self.machine.prefetch.depth } else { 0 };
        program.outstanding.min(f64::from(core + ahead)).max(0.5)
    }

    /// Time of an instruction alone, with idle local memory and a last-level cache of its own, ns.
    fn alone_ns(&self, program: &Program) -> f64 {
        let machine = &self.machine;
        let local = |node: &rondpoint_machine::Node| Some(node.controller.as_ref()?.latency_ns);
        let latency = machine.nodes.iter().find_map(local).unwrap_or(100.0);
        let regions = program.regions.iter().enumerate();
        let reuse: f64 = regions.map(|(at, region)| program.share_of(at) * region.reuse).sum();
        let access = reuse * machine.caches.llc.latency_ns + (1.0 - reuse) * latency;
        program.cycles_per_instruction * machine.cycle_ns()
            + program.accesses_per_kilo / 1000.0 * access / self.outstanding(program)
            + program.transfers_per_kilo / 1000.0 * machine.transfer_ns.same_domain_ns
    }

    /// Starts programs that are due: threads are placed, then pages touched.
    pub(crate) fn start(&mut self) {
        for index in 0..self.processes.len() {
            let process = &self.processes[index];
            if process.started.is_some() || process.due > self.now {
                continue;
            }
            let threads = process.threads.clone();
            self.processes[index].started = Some(self.now);
            self.fork(threads);
            self.touch(index);
        }
    }

    /// The node with memory nearest to a thread of a process.
    pub(crate) fn near(&self, process: usize, number: usize) -> usize {
        let cpu = self.threads[self.processes[process].threads.start + number].cpu;
        self.topology.nearest_memory(self.topology.node_of_cpu(cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn processes_of_a_storm_start_one_after_the_other_at_random_times() {
        let machine = catalogue::machine("carrefour-a").expect("a machine");
        let word = "fork-storm:short.instances=200,short.every_s=0.2,short.seconds=0.1";
        let workload = catalogue::workload(word).expect("a workload");
        let starts = |seed| {
            let truth = Truth::middle();
            let mut plant = Plant::new(&machine, &workload, truth, FirstPlace::Touch, seed);
            while plant.processes.iter().any(|process| process.started.is_none()) {
                plant.advance();
            }
            let short = plant.processes.iter().filter(|one| one.program.name == "short");
            short.filter_map(|one| Some(one.started?.seconds())).collect::<Vec<f64>>()
        };
        let one = starts(1);
        assert_eq!(one.len(), 200);
        assert!(one.is_sorted() && one[0] < 1e-9, "{one:?}");
        // 199 exponential times of 0.2 s: their sum is 39.8 s, give or take 2.8 s.
        assert!((30.0..50.0).contains(&one[199]), "{}", one[199]);
        let gaps = || one.windows(2).map(|pair| pair[1] - pair[0]);
        let long = gaps().filter(|gap| *gap > 0.4).count();
        assert!((10..50).contains(&long), "27 of 199 are expected: {long}");
        assert_ne!(one, starts(2));
    }
}
