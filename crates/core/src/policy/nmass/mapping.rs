//! The algorithm on plain numbers: processes, processors, and where each process goes.

use super::{Preset, maximum_local, refine};
use crate::CpuSet;
use alloc::vec::Vec;

/// One single-threaded process as the algorithm sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    /// Cache pressure: last-level cache misses per 1000 retired instructions in the last epoch.
    pub mpki: f64,
    /// NUMA penalty: cycles per instruction with remote memory over those with local memory, 1 or
    /// more.
    pub penalty: f64,
    /// The node that holds the process's memory.
    pub home: usize,
    /// The CPU of its present core. The mapping keeps it where it can.
    pub cpu: Option<usize>,
    /// CPUs that the process may use; `None` for any.
    pub allowed: Option<CpuSet>,
}

impl Process {
    /// The pressure of the process on a processor of `node`, MPKI: times the penalty if it is
    /// remote there.
    #[must_use]
    pub fn charge(&self, node: usize) -> f64 {
        if node == self.home { self.mpki } else { self.mpki * self.penalty }
    }

    pub(super) fn may_use(&self, cpu: usize) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(cpu))
    }
}

/// Cores that share one last-level cache, and the node of their local memory. If cache domains are
/// smaller than a node, several processors have the same node, and each of them is local to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processor {
    /// The node of its memory.
    pub node: usize,
    /// One CPU of each core that may be used, in the order in which they are taken.
    pub cpus: Vec<usize>,
}

/// The step that placed a process. Pressures are in MPKI.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Cause {
    /// Maximum-local found a free core at home.
    Home,
    /// Maximum-local found no free, allowed core at home.
    HomeFull,
    /// Refinement moved the process to even out the pressures.
    Shifted {
        /// Pressure of the processor that the process left, before the move.
        source_before: f64,
        /// Pressure of that processor after the move.
        source_after: f64,
        /// Pressure of the processor that the process joined, before the move.
        target_before: f64,
        /// Pressure of that processor after the move, with the penalty.
        target_after: f64,
    },
}

/// The place of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Index of the process.
    pub process: usize,
    /// Index of the processor.
    pub processor: usize,
    /// The CPU of the core.
    pub cpu: usize,
    /// The step that placed it.
    pub cause: Cause,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    /// Places of the processes that got a core, in the order of maximum-local (penalty descending).
    pub places: Vec<Place>,
    /// Pressure of every processor, MPKI.
    pub pressures: Vec<f64>,
    /// The processes that refinement moved, in the order of the moves.
    pub shifts: Vec<usize>,
}

/// Maps processes to processors: maximum-local, then refinement.
///
/// Processes without a free, allowed core get no place: the algorithm puts one process on a core.
#[must_use]
pub fn map(processes: &[Process], processors: &[Processor], preset: &Preset) -> Mapping {
    let places = maximum_local(processes, processors);
    refine(processes, processors, places, preset)
}
