//! One thread over the interval: its CPU, the nodes of its data, and the rates that SAM and N-MASS
//! use.

use crate::index_set::CpuSet;
use crate::observation::Exemption;
use crate::topology::Topology;
use crate::units::Tid;
use alloc::vec::Vec;

/// Least share of a thread's accesses on its home node (inferred). A thread with half of its data
/// on each of two nodes gains nothing on either.
pub const MIN_HOME_SHARE: f64 = 0.60;
/// Least number of samples that give a thread a home (inferred).
pub(super) const MIN_SAMPLES: u32 = 8;
/// Least share of a CPU with which a thread needs a CPU of its own [inferred; Carrefour's author
/// code uses 10 %].
pub(crate) const RUNNING_SHARE: f64 = 0.10;
/// The share of samples must exceed a half by this many standard deviations of a fair coin.
/// Otherwise a thread with data on two nodes would alternate between two homes by chance.
const CHANCE: f64 = 2.0;

/// The node of a thread's data, by its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampledHome {
    /// Most data is on this node.
    Node(usize),
    /// No node has most of the data.
    Scattered,
    /// Too few samples.
    Unknown,
}

/// A thread of a managed process.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    /// Its number.
    pub tid: Tid,
    /// Index of its process in [`crate::Model::apps`].
    pub app: usize,
    /// The CPU that it ran on last.
    pub cpu: usize,
    /// The CPU that it had run on last when the interval began; `None` if it was not seen then.
    pub cpu_before: Option<usize>,
    /// CPUs that it may use, by its mask before Rondpoint narrowed it.
    pub allowed: CpuSet,
    /// Whether Rondpoint narrowed its mask.
    pub is_narrowed: bool,
    /// Why it is not to be touched, if so.
    pub exempt: Option<Exemption>,
    /// CPU time per wall time, 0..=1.
    pub cpu_share: f64,
    /// Time that it waited for a CPU per wall time, 0..=1; `None` if the kernel does not count it.
    pub queued_share: Option<f64>,
    /// Share of the interval in which managed threads ran on other hardware threads of its core,
    /// 0..=1. With more than two hardware threads it is an upper bound.
    pub core_shared: f64,
    /// Its rates; a field without a sensor is `None`.
    pub rates: ThreadRates,
    /// Sampled DRAM accesses (or hint faults) by holding node; `None` without samples.
    pub accesses_by_node: Option<Vec<u32>>,
    /// Samples by the node on which the thread ran, whatever they accessed; `None` without samples.
    pub ran_on: Option<Vec<u32>>,
}

/// Rates from its counters. "Per second" means per second of its own CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ThreadRates {
    /// Instructions per second of wall time: the thread's progress.
    pub instructions_per_s: Option<f64>,
    /// COH: misses served by a cache of another node, per second.
    pub coherence_remote_per_s: Option<f64>,
    /// SNP: misses of the private levels served by a neighbour behind the same last-level cache,
    /// per second.
    pub coherence_local_per_s: Option<f64>,
    /// MEM: last-level cache misses, per second.
    pub memory_per_s: Option<f64>,
    /// RDR: DRAM accesses on other nodes, per second.
    pub remote_dram_per_s: Option<f64>,
    /// Last-level cache misses per 1000 instructions.
    pub mpki: Option<f64>,
    /// Instructions per cycle.
    pub ipc: Option<f64>,
    /// Share of its cycles in which it waited for memory.
    pub stall_share: Option<f64>,
    /// SPC: stall cycles per coherence event between nodes.
    pub stalls_per_coherence: Option<f64>,
    /// Reads among its DRAM accesses in percent, if counted.
    pub read_percent: Option<f64>,
    /// Share of local DRAM accesses, if counted. It shows whether the CPI was measured near the
    /// thread's memory or far from it.
    pub local_dram_share: Option<f64>,
}

impl ThreadRates {
    /// Lines per second that caches of other nodes supplied, at most. Processors that do not count
    /// these lines count them with remote memory.
    #[must_use]
    pub fn coherence_at_most_per_s(&self) -> Option<f64> {
        self.coherence_remote_per_s.or(self.remote_dram_per_s)
    }

    /// Cycles per instruction.
    #[must_use]
    pub fn cpi(&self) -> Option<f64> {
        self.ipc.filter(|ipc| *ipc > 0.0).map(|ipc| 1.0 / ipc)
    }
}

impl Thread {
    /// A thread of which only its CPU and its mask are known.
    #[must_use]
    pub fn new(tid: Tid, app: usize, cpu: usize, allowed: CpuSet) -> Self {
        Self {
            tid,
            app,
            cpu,
            cpu_before: None,
            allowed,
            is_narrowed: false,
            exempt: None,
            cpu_share: 1.0,
            queued_share: None,
            core_shared: 0.0,
            rates: ThreadRates::default(),
            accesses_by_node: None,
            ran_on: None,
        }
    }

    /// The CPUs of a node that it may use.
    #[must_use]
    pub fn usable_on(&self, node: usize, topology: &Topology) -> CpuSet {
        topology.usable(&topology.cpus_of_node(node).intersection(&self.allowed))
    }

    /// Whether it uses enough of a CPU to disturb another thread there.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.cpu_share >= RUNNING_SHARE
    }

    /// Demand for CPU time per wall time, 0..=1: the time that it ran or waited for a CPU.
    #[must_use]
    pub fn wanted_share(&self) -> f64 {
        (self.cpu_share + self.queued_share.unwrap_or(0.0)).min(1.0)
    }

    /// The node of its data, if chance alone does not explain the samples.
    #[must_use]
    pub fn sampled_home(&self) -> SampledHome {
        let accesses = self.accesses_by_node.as_deref().unwrap_or_default();
        let total: u32 = accesses.iter().sum();
        if total < MIN_SAMPLES {
            return SampledHome::Unknown;
        }
        let total = f64::from(total);
        let least = total * MIN_HOME_SHARE.max(0.5 + CHANCE * libm::sqrt(0.25 / total));
        let home = accesses.iter().position(|&count| f64::from(count) > least);
        home.map_or(SampledHome::Scattered, SampledHome::Node)
    }

    /// The node that holds most of the data it accesses, from samples; the lower one on a tie.
    #[must_use]
    pub fn home(&self) -> Option<usize> {
        let accesses = self.accesses_by_node.as_ref()?;
        let most = *accesses.iter().max().filter(|count| **count > 0)?;
        accesses.iter().position(|count| *count == most)
    }
}
