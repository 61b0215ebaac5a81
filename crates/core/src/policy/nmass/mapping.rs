//! The algorithm on plain numbers: processes, processors, and where each process goes.

use super::{Preset, maximum_local, refine};
use crate::CpuSet;
use alloc::vec::Vec;

/// One single-threaded process as the algorithm sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    /// Misses of the last-level cache per 1000 retired instructions in the last epoch: the
    /// process's cache pressure.
    pub mpki: f64,
    /// NUMA penalty: cycles per instruction with remote memory over the same with local memory; 1
    /// or more, lower is better.
    pub penalty: f64,
    /// The node that holds the process's memory.
    pub home: usize,
    /// The CPU where it runs now; kept if the mapping lets it.
    pub cpu: Option<usize>,
    /// CPUs that it may use; `None` for any.
    pub allowed: Option<CpuSet>,
}

impl Process {
    /// The pressure that the process puts on a processor with memory `node`: remote misses weigh
    /// more by the penalty.
    #[must_use]
    pub fn charge(&self, node: usize) -> f64 {
        if node == self.home { self.mpki } else { self.mpki * self.penalty }
    }

    pub(super) fn may_use(&self, cpu: usize) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(cpu))
    }
}

/// Cores that share one last-level cache, and the node of their local memory.
///
/// On parts with cache domains smaller than a node, several processors have the same node, and each
/// of them is home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processor {
    /// The node of its memory.
    pub node: usize,
    /// The CPUs that may be given away, one a core, in the order in which they are.
    pub cpus: Vec<usize>,
}

/// Why a process was placed where it is; pressures are in MPKI.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Cause {
    /// Maximum-local found a free core at home.
    Home,
    /// No core at home was free (or allowed) when its turn came.
    HomeFull,
    /// Refinement moved it to even out the pressures.
    Shifted {
        /// Pressure of the processor that it left, before the move.
        source_before: f64,
        /// The same after the move.
        source_after: f64,
        /// Pressure of the processor that it joined, before the move.
        target_before: f64,
        /// The same after the move, the penalty charged.
        target_after: f64,
    },
}

/// Where one process runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Index of the process.
    pub process: usize,
    /// Index of the processor.
    pub processor: usize,
    /// The CPU.
    pub cpu: usize,
    /// Why there.
    pub cause: Cause,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    /// One entry for each process that got a core, in the order of maximum-local (penalty
    /// descending).
    pub places: Vec<Place>,
    /// Pressure of every processor, MPKI.
    pub pressures: Vec<f64>,
    /// The processes that refinement moved, in the order of the moves.
    pub shifts: Vec<usize>,
}

/// Maximum-local, then refinement.
///
/// Processes beyond the number of free cores (or without an allowed one) get no place: the
/// algorithm only multiplexes in space.
#[must_use]
pub fn map(processes: &[Process], processors: &[Processor], preset: &Preset) -> Mapping {
    let places = maximum_local(processes, processors);
    refine(processes, processors, places, preset)
}
