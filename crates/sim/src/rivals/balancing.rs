//! The kernel's automatic NUMA balancing: hint faults, pages that follow them, preferred nodes.
//!
//! It follows kernel/sched/fair.c and mm/memory.c of v6.12. A scan removes translations, at most
//! 256 MB in a period of 1 s to 60 s. The next access of a page then faults. A page moves to the
//! node that faulted on it twice in a row. A thread prefers the node of most of its faults.

use rondpoint_core::Nanos;
use rondpoint_core::observation::{AddressSample, Source};
use rondpoint_core::units::PAGE_BYTES;

use crate::plant::{EPOCH, Epoch, IDLE, Moved, Plant, Thread};
use crate::sensors::page_sample;

/// `numa_balancing_scan_size_mb`.
const SCAN_PAGES: u64 = (256 << 20) / PAGE_BYTES;
const SHORTEST: Nanos = Nanos::from_secs(1);
const LONGEST: Nanos = Nanos::from_secs(60);
/// Above this share of local faults in a period scanning slows down, as NUMA_PERIOD_THRESHOLD does.
const LOCAL_ENOUGH: f64 = 0.7;
/// A thread moves if its preferred node has this much more of its faults than its own.
const PREFERS: f64 = 1.3;
/// Two threads change places for more than this share of their faults, as SMALLIMP of 30 in 1,000.
const LEAST_GAIN: f64 = 0.03;

/// What the kernel keeps for one process.
struct Scanner {
    /// Group (as a place in the process's list) and page that the scan has come to.
    cursor: (usize, usize),
    period: Nanos,
    /// The remainder of scanned pages: those of one epoch are a fraction.
    left: f64,
    ends: Nanos,
    local: u64,
    remote: u64,
}

/// The state of the balancing.
pub(crate) struct Balancing {
    scanners: Vec<Scanner>,
    /// By group and page, the node that faulted last, plus one.
    last: Vec<Vec<u16>>,
    /// By thread and node, faults; halved each period.
    faults: Vec<Vec<f64>>,
}

impl Balancing {
    pub(crate) fn new() -> Self {
        Self { scanners: Vec::new(), last: Vec::new(), faults: Vec::new() }
    }

    /// One epoch of scanning, faults and moves.
    pub(crate) fn act(&mut self, plant: &mut Plant, epoch: &Epoch) -> Vec<AddressSample> {
        self.prepare(plant);
        let users = users(plant, epoch);
        let mut seen = Vec::new();
        for process in 0..plant.processes.len() {
            if plant.processes[process].runs() {
                self.scan(plant, process, &users, &mut seen);
                if plant.now >= self.scanners[process].ends {
                    self.end_period(plant, process);
                }
            }
        }
        seen
    }

    fn prepare(&mut self, plant: &Plant) {
        let scanner = || Scanner {
            cursor: (0, 0),
            period: SHORTEST,
            left: 0.0,
            ends: plant.now + SHORTEST,
            local: 0,
            remote: 0,
        };
        self.scanners.resize_with(plant.processes.len(), scanner);
        for group in self.last.len()..plant.groups.len() {
            self.last.push(vec![0; plant.groups[group].homes.len()]);
        }
        self.faults.resize(plant.threads.len(), vec![0.0; plant.topology.node_count()]);
    }

    fn scan(
        &mut self,
        plant: &mut Plant,
        process: usize,
        users: &[Users],
        seen: &mut Vec<AddressSample>,
    ) {
        let groups: Vec<usize> =
            plant.processes[process].groups.iter().flatten().copied().collect();
        let scanner = &mut self.scanners[process];
        scanner.left += SCAN_PAGES as f64 * EPOCH.seconds() / scanner.period.seconds();
        let all: usize = groups.iter().map(|&group| plant.groups[group].homes.len()).sum();
        let pages = (scanner.left as usize).min(all);
        scanner.left -= scanner.left.floor();
        for _ in 0..pages {
            let (place, page) = self.scanners[process].cursor;
            let group = groups[place];
            let ends = page + 1 >= plant.groups[group].homes.len();
            self.scanners[process].cursor =
                if ends { ((place + 1) % groups.len(), 0) } else { (place, page + 1) };
            let Users { threads, shares } = &users[group];
            let Some(user) = plant.random.weighted(shares) else { continue };
            self.fault(plant, (threads[user], group, page), seen);
        }
    }

    fn fault(
        &mut self,
        plant: &mut Plant,
        (thread, group, page): (usize, usize, usize),
        seen: &mut Vec<AddressSample>,
    ) {
        let mut sample = page_sample(plant, (thread, group, page), 0);
        sample.source = Source::HintFault;
        seen.push(sample);
        let here = plant.topology.node_of_cpu(plant.threads[thread].cpu);
        let home = usize::from(sample.node);
        let process = plant.threads[thread].process;
        plant.threads[thread].debt_ns += plant.truth.fault_ns;
        plant.processes[process].faults += 1;
        self.faults[thread][home] += 1.0;
        let scanner = &mut self.scanners[process];
        let target = plant.topology.nearest_memory(here);
        if home == target {
            scanner.local += 1;
        } else {
            scanner.remote += 1;
        }
        let last = &mut self.last[group][page];
        let again = usize::from(*last) == here + 1 || *last == 0;
        *last = here as u16 + 1;
        if home != target && again && plant.move_page(group, page, target) == Moved::Done {
            plant.threads[thread].debt_ns += plant.truth.move_ns;
            plant.stall(process, plant.truth.flush_ns);
            plant.processes[process].moved_by_kernel += 1;
            plant.totals.pages_moved += 1;
        }
    }

    /// Adapts the period and sends threads to the nodes that they prefer.
    fn end_period(&mut self, plant: &mut Plant, process: usize) {
        let scanner = &mut self.scanners[process];
        let all = scanner.local + scanner.remote;
        let enough = all == 0 || scanner.local as f64 >= LOCAL_ENOUGH * all as f64;
        let factor = if enough { 2.0 } else { 0.5 };
        let period = (scanner.period.0 as f64 * factor) as u64;
        scanner.period = Nanos(period.clamp(SHORTEST.0, LONGEST.0));
        scanner.ends = plant.now + scanner.period;
        (scanner.local, scanner.remote) = (0, 0);
        let mut loads = plant.loads();
        for thread in plant.processes[process].threads.clone() {
            let faults = &self.faults[thread];
            let cpu = plant.threads[thread].cpu;
            let here = plant.topology.node_of_cpu(cpu);
            let most = (0..faults.len()).max_by(|&a, &b| faults[a].total_cmp(&faults[b]));
            let prefers = most.filter(|&node| faults[node] > PREFERS * faults[here].max(1.0));
            let mask = &plant.threads[thread].mask;
            let idle = prefers.and_then(|node| {
                let cpus = plant.topology.cpus_of_node(node).intersection(mask);
                cpus.iter().find(|&cpu| loads[cpu] < IDLE)
            });
            let partner = prefers.filter(|_| idle.is_none() && plant.threads[thread].active);
            if let Some(other) = partner.and_then(|node| self.partner(plant, thread, node)) {
                let there = plant.threads[other].cpu;
                plant.run_on(thread, there);
                plant.run_on(other, cpu);
            }
            if let Some(target) = idle.filter(|_| plant.threads[thread].active) {
                loads[cpu] -= plant.threads[thread].ready;
                loads[target] += plant.threads[thread].ready;
                plant.run_on(thread, target);
            }
            self.faults[thread].iter_mut().for_each(|count| *count /= 2.0);
        }
    }
}

impl Balancing {
    /// The thread on `node` with which a thread best changes places. Both together then have more
    /// of their faults at home, as `task_numa_compare` weighs it.
    fn partner(&self, plant: &Plant, thread: usize, node: usize) -> Option<usize> {
        let own = &plant.threads[thread];
        let here = plant.topology.node_of_cpu(own.cpu);
        let share = |thread: usize, node: usize| {
            let all: f64 = self.faults[thread].iter().sum();
            if all > 0.0 { self.faults[thread][node] / all } else { 0.0 }
        };
        let gain = share(thread, node) - share(thread, here);
        let fits = |(_, other): &(usize, &Thread)| {
            other.active
                && plant.topology.node_of_cpu(other.cpu) == node
                && own.mask.contains(other.cpu)
                && other.mask.contains(own.cpu)
        };
        let others = plant.threads.iter().enumerate().filter(fits);
        let gains =
            others.map(|(place, _)| (place, gain + share(place, here) - share(place, node)));
        let best = gains.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        (best.1 > LEAST_GAIN).then_some(best.0)
    }
}

/// The running threads that use a group, and the share of each one's accesses that it is.
#[derive(Clone, Default)]
struct Users {
    threads: Vec<usize>,
    shares: Vec<f64>,
}

/// By group.
fn users(plant: &Plant, epoch: &Epoch) -> Vec<Users> {
    let mut users = vec![Users::default(); plant.groups.len()];
    for of in &epoch.running {
        let process = &plant.processes[of.process];
        let thread = &plant.threads[of.thread];
        let rotate = process.phase(thread.done).rotate;
        for region in 0..process.program.regions.len() {
            let share = process.program.share_of(region);
            if share > 0.0 {
                let group = process.group_of(region, thread.number, rotate);
                users[group].threads.push(of.thread);
                users[group].shares.push(share);
            }
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::plant::FirstPlace;
    use crate::rivals::Rival;
    use crate::world::World;

    #[test]
    fn pages_that_threads_use_inside_of_a_lock_only_fault_too() {
        let word = "locked:threads=4,regions.0.share=1,regions.1.share=0";
        let scene = catalogue::scene("nodes=2 cpus=2 memory=4G", word, 3).expect("a scene");
        let mut world = World::new(&scene, FirstPlace::Touch, Rival::Nothing);
        let epoch = world.plant.advance();
        let users = users(&world.plant, &epoch);
        let process = &world.plant.processes[0];
        let [own, table] = [0, 1].map(|region| &users[process.groups[region][0]]);
        assert_eq!((own.threads.len(), table.threads.len()), (1, 4));
        let shares = (own.shares[0], table.shares[0]);
        assert!((shares.0 - 0.9).abs() < 1e-12 && (shares.1 - 0.1).abs() < 1e-12, "{shares:?}");
    }
}
