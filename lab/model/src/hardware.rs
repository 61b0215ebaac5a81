//! The whole machine: its parts, their construction, and the public interface.
//!
//! The path of an access is in `access.rs`, the coherence protocol in `coherence.rs`.

use rondpoint_machine::Machine;

use crate::cache::Cache;
use crate::counters::Counters;
use crate::directory::{Directory, MAX_HOLDERS};
use crate::error::ModelError;
use crate::event::Event;
use crate::first_level::FirstLevel;
use crate::memory::{Memory, Region};
use crate::misses::{MAX_SLOTS, Misses};
use crate::network::{Network, PipeUsage};
use crate::prefetch::Prefetcher;
use crate::traffic::Traffic;
use crate::{LINE_BYTES, LINE_SHIFT, PAGE_BYTES};

/// Nodes that the events `dram_node0`… have numbers for.
const MAX_NODES: usize = 16;

/// What belongs to one vCPU.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) first: FirstLevel,
    pub(crate) counters: Counters,
    pub(crate) second: Cache,
    pub(crate) misses: Misses,
    pub(crate) prefetcher: Prefetcher,
    pub(crate) node: usize,
    pub(crate) domain: usize,
    /// It executes for a manager.
    pub(crate) manages: bool,
}

/// Latencies that depend on no node pair, ps.
#[derive(Debug)]
pub(crate) struct Latencies {
    pub(crate) first: u64,
    pub(crate) second: u64,
    pub(crate) last: u64,
    pub(crate) same_domain: u64,
    pub(crate) same_node: u64,
}

/// Which CPUs and cache domains belong together, as bit sets.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) cpus_of_domain: Vec<u32>,
    pub(crate) cpus_of_node: Vec<u32>,
    pub(crate) domains_of_node: Vec<u32>,
    pub(crate) node_of_domain: Vec<usize>,
    /// For each node, the others by transfer latency, nearest first.
    pub(crate) nearest: Vec<Vec<usize>>,
}

/// The modelled hardware.
#[derive(Debug)]
pub struct Hardware {
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) last_levels: Vec<Cache>,
    pub(crate) directory: Directory,
    pub(crate) memory: Memory,
    pub(crate) network: Network,
    pub(crate) groups: Groups,
    pub(crate) latencies: Latencies,
    /// A cache of another node answers for a clean line it holds. With MESIF one holder is the
    /// forwarder; here any will do.
    pub(crate) forwards_clean: bool,
}

impl Hardware {
    /// Builds `machine` (as it is: scale it first) around the guest's physical `memory`.
    ///
    /// # Errors
    /// If the machine has more vCPUs, cache domains, nodes or outstanding misses than the model's
    /// records hold. If a cache has no whole set, or the memory map does not fit the machine.
    pub fn new(machine: &Machine, memory: &[Region]) -> Result<Hardware, ModelError> {
        check_machine(machine)?;
        check_regions(machine, memory)?;
        let memory = Memory::new(memory)?;
        let count = machine.cpu_count();
        Ok(Hardware {
            cpus: (0..count).map(|cpu| new_cpu(machine, cpu)).collect(),
            last_levels: (0..machine.domain_count())
                .map(|_| Cache::new(machine.caches.llc.bytes, machine.caches.llc.ways))
                .collect(),
            directory: Directory::new(memory.end_line()),
            memory,
            network: Network::new(machine),
            groups: new_groups(machine),
            latencies: Latencies {
                first: ps(machine.caches.l1.latency_ns),
                second: ps(machine.caches.l2.latency_ns),
                last: ps(machine.caches.llc.latency_ns),
                same_domain: ps(machine.transfer_ns.same_domain_ns),
                same_node: ps(machine.transfer_ns.same_node_ns),
            },
            forwards_clean: machine.transfer_ns.forwards_clean,
        })
    }

    /// First-level filter, by virtual line. True: a hit, counted, nothing more to do. False: ask
    /// [`Hardware::access`]. Panics if there is no such vCPU.
    #[inline(always)]
    pub fn first_level_hit(&mut self, cpu: usize, vaddr: u64, store: bool) -> bool {
        let cpu = &mut self.cpus[cpu];
        let hit = cpu.first.filter.hit(vaddr, store);
        if hit {
            cpu.counters.retire(store);
        }
        hit
    }

    /// The latency that a first-level hit has, ps; it stalls no vCPU.
    #[must_use]
    pub fn first_level_latency_ps(&self) -> u64 {
        self.latencies.first
    }

    /// Forgets which virtual lines are in the first level: the vCPU's address space changes. The
    /// caches themselves are physical and stay as they are.
    pub fn flush_first_level(&mut self, cpu: usize) {
        self.cpus[cpu].first.filter.clear();
    }

    /// The same for the 4 KiB page of `vaddr`. A huge page has many: flush the whole level then.
    pub fn flush_page(&mut self, cpu: usize, vaddr: u64) {
        let first = (vaddr & !(PAGE_BYTES - 1)) >> LINE_SHIFT;
        for line in first..first + PAGE_BYTES / LINE_BYTES {
            self.cpus[cpu].first.filter.remove(line);
        }
    }

    /// The stall that the vCPU owes for misses behind which its reorder window has filled up, ps.
    /// [`Hardware::access`] charges it at the next miss. A caller that shows the vCPU's clock to
    /// the guest in between asks here first, and advances the vCPU by the stall.
    pub fn settle(&mut self, cpu: usize, now_ps: u64, instructions: u64) -> u64 {
        let cpu = &mut self.cpus[cpu];
        let stall_ps = cpu.misses.settle(now_ps, instructions);
        cpu.counters.add(Event::Stall, stall_ps);
        stall_ps
    }

    /// All vCPUs have run `elapsed_ps` of guest time on. When a window's worth has passed, its
    /// traffic decides on the queueing delays of the next.
    pub fn end_quantum(&mut self, elapsed_ps: u64) {
        self.network.advance(elapsed_ps);
    }

    /// Lets managers run `speed_up` times as fast as programs, at least 1. The lines of as many
    /// accesses then take the room of one in controllers and links.
    pub fn speed_up_managers(&mut self, speed_up: f64) {
        self.network.speed_up_managers(speed_up);
    }

    /// The vCPU executes for a manager from now on, or no longer. Panics if there is no such vCPU.
    pub fn set_manages(&mut self, cpu: usize, manages: bool) {
        self.cpus[cpu].manages = manages;
    }

    /// What a vCPU has counted. Panics if there is no such vCPU.
    #[must_use]
    pub fn counters(&self, cpu: usize) -> &Counters {
        &self.cpus[cpu].counters
    }

    /// Adds to a counter that the caller keeps: instructions and cycles.
    pub fn count(&mut self, cpu: usize, event: Event, amount: u64) {
        self.cpus[cpu].counters.add(event, amount);
    }

    /// vCPUs of the machine.
    #[must_use]
    pub fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    /// The node of a vCPU. Panics if there is no such vCPU.
    #[must_use]
    pub fn node_of_cpu(&self, cpu: usize) -> usize {
        self.cpus[cpu].node
    }

    /// The node of the memory that holds a physical address; `None` for devices and holes.
    #[must_use]
    pub fn node_of_address(&self, paddr: u64) -> Option<usize> {
        self.memory.home(paddr)
    }

    /// Lines moved between nodes, by kind.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.network.traffic
    }

    /// The controllers in node order; `None` for a node without memory.
    pub fn controllers(&self) -> impl Iterator<Item = Option<PipeUsage>> {
        self.network.controllers()
    }

    /// The links in the machine file's order.
    pub fn links(&self) -> impl Iterator<Item = PipeUsage> {
        self.network.links()
    }
}

fn ps(ns: f64) -> u64 {
    (ns * 1e3).round() as u64
}

fn check_machine(machine: &Machine) -> Result<(), ModelError> {
    let counts = [
        ("vCPUs", machine.cpu_count(), 1, MAX_HOLDERS),
        ("cache domains", machine.domain_count(), 1, MAX_HOLDERS),
        ("nodes", machine.nodes.len(), 1, MAX_NODES),
        ("outstanding misses", machine.core.outstanding_misses as usize, 1, MAX_SLOTS),
    ];
    for (what, found, least, most) in counts {
        if !(least..=most).contains(&found) {
            let machine = machine.name.clone();
            return Err(ModelError::Count { machine, what, found, least, most });
        }
    }
    let caches = [
        ("the first level", &machine.caches.l1),
        ("the second level", &machine.caches.l2),
        ("the last level", &machine.caches.llc),
    ];
    for (name, cache) in caches {
        let (bytes, ways) = (cache.bytes, cache.ways);
        let whole = u64::from(ways) * LINE_BYTES;
        if ways == 0 || ways > u32::from(u8::MAX) || bytes < whole || bytes > 1 << 36 {
            let machine = machine.name.clone();
            return Err(ModelError::Cache { machine, cache: name, bytes, ways });
        }
    }
    Ok(())
}

fn check_regions(machine: &Machine, regions: &[Region]) -> Result<(), ModelError> {
    for (index, region) in regions.iter().enumerate() {
        let node = region.node;
        if machine.nodes.get(node).is_none_or(|node| node.controller.is_none()) {
            let machine = machine.name.clone();
            return Err(ModelError::NoController { index, node, machine });
        }
    }
    Ok(())
}

fn new_cpu(machine: &Machine, cpu: usize) -> Cpu {
    let core = &machine.core;
    let instruction_ps = ps(machine.cycle_ns() * core.cycles_per_instruction);
    Cpu {
        first: FirstLevel::new(machine.caches.l1.bytes, machine.caches.l1.ways),
        counters: Counters::default(),
        second: Cache::new(machine.caches.l2.bytes, machine.caches.l2.ways),
        misses: Misses::new(
            core.outstanding_misses as usize,
            u64::from(core.reorder_window),
            instruction_ps,
        ),
        prefetcher: Prefetcher::new(machine.prefetch.streams, machine.prefetch.depth),
        node: machine.node_of_cpu(cpu),
        domain: machine.domain_of_cpu(cpu),
        manages: false,
    }
}

fn new_groups(machine: &Machine) -> Groups {
    let nodes = machine.nodes.len();
    let domains = machine.domain_count();
    let mut groups = Groups {
        cpus_of_domain: vec![0; domains],
        cpus_of_node: vec![0; nodes],
        domains_of_node: vec![0; nodes],
        node_of_domain: vec![0; domains],
        nearest: Vec::new(),
    };
    for cpu in 0..machine.cpu_count() {
        let (node, domain) = (machine.node_of_cpu(cpu), machine.domain_of_cpu(cpu));
        groups.cpus_of_domain[domain] |= 1 << cpu;
        groups.cpus_of_node[node] |= 1 << cpu;
        groups.domains_of_node[node] |= 1 << domain;
        groups.node_of_domain[domain] = node;
    }
    for node in 0..nodes {
        let mut others: Vec<usize> =
            (0..nodes).filter(|&other| other != node && machine.nodes[other].cpus > 0).collect();
        // A stable sort: equally near nodes stay in node order.
        others.sort_by_key(|&other| ps(machine.transfer_ns.remote_ns[node][other]));
        groups.nearest.push(others);
    }
    groups
}
