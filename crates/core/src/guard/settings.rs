//! What the guard allows. Every number is a choice of ours unless a source is named; an operator
//! may tighten or widen all of them.

use crate::index_set::IndexSet;
use crate::units::Nanos;

/// Budgets and rules.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardSettings {
    /// Whether anything may change at all: off until the operator allows it.
    pub act: bool,
    /// Least confidence of the model; kernel statistics alone stay below it.
    pub min_confidence: f64,
    /// Bytes per second that may be moved from or to one node. Carrefour's own bound is 117 MiB/s
    /// (30,000 pages a second).
    pub bytes_per_s_per_node: u64,
    /// Calls per second (a batch of pages or one thread is a call).
    pub calls_per_s: u32,
    /// Samples per second and CPU; the PMU notes put the pain of large-buffer PEBS beyond a few
    /// thousand.
    pub samples_per_s_per_cpu: u32,
    /// A page stays this long (ALGORITHMS 5.6: at most once per 5 s).
    pub page_residence: Nanos,
    /// A thread stays this long where it was moved to, unless coherence wants it elsewhere.
    /// ALGORITHMS 5.6: 5 epochs. Here they are SAM's epochs of 100 ms, because the bound on moves
    /// holds slower policies.
    pub thread_residence: Nanos,
    /// The window in which moves of one subject are counted.
    pub window: Nanos,
    /// Moves of one page or thread in the window.
    pub max_moves_per_window: u32,
    /// Movers' time per time of a process (ALGORITHMS 5.6: 5 % of its run time). The CPU time of
    /// all its threads counts where that is more: a mover works beside them on one CPU. Time that
    /// went into changes that were found better does not count …
    pub mover_share: f64,
    /// … and this much each process may always take (our choice: a gigabyte or more of small
    /// pages).
    pub mover_allowance: Nanos,
    /// Share of a node's memory that stays free.
    pub reserve_share: f64,
    /// Whether a process may be stopped while its memory moves.
    pub freeze: bool,
    /// Processes that the user does not want touched (pids).
    pub opted_out: IndexSet,
    /// How long what was undone is refused the first time; each failure doubles it.
    pub back_off: Nanos,
    /// A process is left alone after this many failed trials.
    pub max_failures: u32,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            act: false,
            min_confidence: 0.5,
            bytes_per_s_per_node: 256 << 20,
            calls_per_s: 2_000,
            samples_per_s_per_cpu: 2_000,
            page_residence: Nanos::from_secs(5),
            thread_residence: Nanos::from_millis(500),
            window: Nanos::from_secs(30),
            max_moves_per_window: 3,
            mover_share: 0.05,
            mover_allowance: Nanos::from_secs(1),
            reserve_share: 0.02,
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
}
