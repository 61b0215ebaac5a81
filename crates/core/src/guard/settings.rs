//! Budgets and rules of the guard. Every number is our choice unless a source is named. An operator
//! may change all of them.

use alloc::vec::Vec;

use crate::index_set::IndexSet;
use crate::limits::RESERVE_SHARE;
use crate::topology::Topology;
use crate::units::Nanos;

/// Bytes per second from or to one node: the least, and where no bandwidth is known (our choice).
const BYTES_PER_S: u64 = 256 << 20;
/// Share of a controller's bandwidth for moving pages (our choice). [`BYTES_PER_S`] is this share
/// of 13 GB/s.
const CONTROLLER_SHARE: f64 = 0.02;

/// Budgets and rules.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardSettings {
    /// Whether any change is allowed. Off by default.
    pub act: bool,
    /// Least confidence of the model for a change. Kernel statistics alone stay below it.
    pub min_confidence: f64,
    /// Bytes per second that may be moved from or to one node. Carrefour's own bound is 117 MiB/s
    /// (30,000 pages a second).
    pub bytes_per_s_per_node: u64,
    /// Calls per second (a batch of pages or one thread is a call).
    pub calls_per_s: u32,
    /// Samples per second and CPU. By the PMU notes, large-buffer PEBS slows programs beyond a few
    /// thousand.
    pub samples_per_s_per_cpu: u32,
    /// Least time between two moves of a page (ALGORITHMS 5.6: 5 s).
    pub page_residence: Nanos,
    /// Least time between two moves of a thread, except moves for coherence. ALGORITHMS 5.6 has 5
    /// epochs. They are taken as SAM's epochs of 100 ms, because the bound on moves limits slower
    /// policies anyway.
    pub thread_residence: Nanos,
    /// The window in which moves of one subject are counted.
    pub window: Nanos,
    /// Most moves of one page or thread in the window.
    pub max_moves_per_window: u32,
    /// Most time of movers, as a share of the process's run time (ALGORITHMS 5.6: 5 %). If the CPU
    /// time of all its threads is larger, that counts instead. Time for changes that a trial found
    /// better does not count …
    pub mover_share: f64,
    /// … and this much time is always allowed for each process (our choice: enough to move a
    /// gigabyte of small pages).
    pub mover_allowance: Nanos,
    /// Share of a node's memory that stays free.
    pub reserve_share: f64,
    /// Whether a process may be stopped while its memory moves.
    pub freeze: bool,
    /// Processes that the user excluded (pids).
    pub opted_out: IndexSet,
    /// How long a kind of change is refused after its first failure. Each further failure doubles
    /// the time.
    pub back_off: Nanos,
    /// Number of failed trials after which a process is left alone.
    pub max_failures: u32,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            act: false,
            min_confidence: 0.5,
            bytes_per_s_per_node: BYTES_PER_S,
            calls_per_s: 2_000,
            samples_per_s_per_cpu: 2_000,
            page_residence: Nanos::from_secs(5),
            thread_residence: Nanos::from_millis(500),
            window: Nanos::from_secs(30),
            max_moves_per_window: 3,
            mover_share: 0.05,
            mover_allowance: Nanos::from_secs(1),
            reserve_share: RESERVE_SHARE,
            freeze: false,
            opted_out: IndexSet::new(),
            back_off: Nanos::from_secs(5),
            max_failures: 3,
        }
    }
}

impl GuardSettings {
    /// The defaults with permission to act.
    #[must_use]
    pub fn acting() -> Self {
        Self { act: true, ..Self::default() }
    }

    /// These settings with a budget of moved memory for the controllers of a machine. It is a share
    /// of the slowest one's bandwidth, and no less than the default.
    #[must_use]
    pub fn for_machine(self, topology: &Topology) -> Self {
        let bandwidth = |node| topology.controller_bytes_per_s(node);
        let known: Option<Vec<f64>> = topology.controllers().iter().map(bandwidth).collect();
        let slowest = known.into_iter().flatten().fold(f64::INFINITY, f64::min);
        let fits = if slowest.is_finite() { (CONTROLLER_SHARE * slowest) as u64 } else { 0 };
        Self { bytes_per_s_per_node: fits.max(BYTES_PER_S), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::synthetic;

    #[test]
    fn the_budget_of_moved_memory_follows_the_slowest_controller() {
        let budget = |bytes_per_s: [Option<f64>; 2]| {
            let mut description = synthetic::describe("node:2 core:2").expect("a machine");
            for (node, bandwidth) in description.nodes.iter_mut().zip(bytes_per_s) {
                node.controller_bytes_per_s = bandwidth;
            }
            let topology = Topology::new(description).expect("a machine");
            GuardSettings::acting().for_machine(&topology).bytes_per_s_per_node
        };
        assert_eq!(budget([Some(100e9), Some(40e9)]), 800_000_000);
        assert_eq!(budget([Some(13e9), Some(13e9)]), BYTES_PER_S, "a slow controller");
        assert_eq!(budget([Some(100e9), None]), BYTES_PER_S);
        assert_eq!(budget([None, None]), BYTES_PER_S);
    }
}
