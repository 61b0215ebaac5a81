//! numad's rule: a process that fits into some nodes is bound to them, with its memory.
//!
//! From numad's manual: it uses CPU use and resident memory, and leaves a process alone that needs
//! all nodes. It prefers nodes with much free memory and idle CPUs. It runs here at its shortest
//! interval, 5 s.

use rondpoint_core::units::PAGE_BYTES;
use rondpoint_core::{CpuSet, Nanos};

use crate::plant::{EPOCH, IDLE, Moved, Plant};

const INTERVAL: Nanos = Nanos::from_secs(5);
/// Below this much resident memory it does not look at a process: 300 MB.
const LEAST_PAGES: u64 = 300_000_000 / PAGE_BYTES;

/// Its state: which processes it has bound.
pub(crate) struct Numad {
    next: Nanos,
    bound: Vec<usize>,
}

impl Numad {
    pub(crate) fn new() -> Self {
        Self { next: INTERVAL, bound: Vec::new() }
    }

    pub(crate) fn act(&mut self, plant: &mut Plant) {
        if plant.now < self.next {
            return;
        }
        self.next = plant.now + INTERVAL;
        for process in 0..plant.processes.len() {
            let pages: u64 = plant.pages_by_node(process).iter().sum();
            let bound = self.bound.contains(&process);
            if bound || !plant.processes[process].runs() || pages < LEAST_PAGES {
                continue;
            }
            if let Some(nodes) = choose(plant, process, pages) {
                self.bound.push(process);
                bind(plant, process, &nodes);
            }
        }
    }
}

/// The fewest nodes with room for threads and memory; `None` if that is all of them.
fn choose(plant: &Plant, process: usize, pages: u64) -> Option<Vec<usize>> {
    let topology = &plant.topology;
    let mut busy = plant.loads();
    for thread in &plant.threads[plant.processes[process].threads.clone()] {
        busy[thread.cpu] -= if thread.active { thread.ready } else { 0.0 };
    }
    let here = plant.pages_by_node(process);
    let idle = |node: usize| {
        topology.cpus_of_node(node).iter().filter(|&cpu| busy[cpu] < IDLE).count() as u64
    };
    let mut nodes: Vec<usize> = topology.controllers().iter().collect();
    let all = nodes.len();
    let magnitude = |&node: &usize| idle(node) * (plant.free_pages[node] + here[node]);
    nodes.sort_by_key(|node| std::cmp::Reverse((magnitude(node), here[*node])));
    let wanted = plant.processes[process].threads.len() as u64;
    let (mut cpus, mut room, mut chosen) = (0, 0, Vec::new());
    for node in nodes {
        if cpus >= wanted && room >= pages {
            break;
        }
        cpus += idle(node);
        room += plant.free_pages[node] + here[node];
        chosen.push(node);
    }
    (chosen.len() < all && cpus >= wanted).then_some(chosen)
}

fn bind(plant: &mut Plant, process: usize, nodes: &[usize]) {
    let cpus: CpuSet =
        nodes.iter().flat_map(|&node| plant.topology.cpus_of_node(node).iter()).collect();
    let pid = plant.processes[process].pid;
    for thread in plant.processes[process].threads.clone() {
        let tid = plant.threads[thread].tid;
        // A thread that has ended needs no mask.
        let _ = plant.set_mask((pid, tid), &cpus, None);
    }
    let mut moved = 0_u64;
    for group in plant.processes[process].groups.clone().into_iter().flatten() {
        for page in 0..plant.groups[group].homes.len() {
            let home = usize::from(plant.groups[group].homes[page]);
            let target = nodes[page % nodes.len()];
            if !nodes.contains(&home) && plant.move_page(group, page, target) == Moved::Done {
                moved += 1;
            }
        }
    }
    plant.totals.pages_moved += moved;
    // It moves memory in one go, while the process runs.
    let ns = moved as f64 * plant.truth.move_ns;
    plant.stall(process, moved as f64 * plant.truth.flush_ns);
    plant.occupy(ns.min(EPOCH.0 as f64));
}
