//! Counts of the hardware model while the job's program ran. The plugin writes them as JSON, and
//! the runner reads them and computes ratios.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Lines by `[accessing node][holding node]`.
pub type Matrix = Vec<Vec<u64>>;

/// The modelled part of a run. Times are guest time, in ns; a line is 64 bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// When the modelled part began.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// By vCPU.
    pub vcpus: Vec<VcpuMeasurement>,
    /// Lines that loads and stores read from DRAM.
    pub demand_lines: Matrix,
    /// Lines that prefetchers read from DRAM.
    pub prefetch_lines: Matrix,
    /// Modified lines written back to DRAM, by the node of the caches that gave them up.
    pub writeback_lines: Matrix,
    /// Lines that came out of another cache, `[accessing][owner]`.
    pub transfer_lines: Matrix,
    /// Sum of the latencies of `demand_lines`, ps.
    pub demand_latency_ps: u64,
    /// Memory controllers, by node; `None` for a node without memory.
    pub controllers: Vec<Option<PipeMeasurement>>,
    /// Directed links, in the machine file's order.
    pub links: Vec<PipeMeasurement>,
    /// The same in slices of time, so that a reader can see phases.
    pub slices: Vec<Slice>,
    /// What the manager under test took from the machine's CPUs.
    #[serde(default)]
    pub manager: ManagerMeasurement,
}

/// CPU time of a manager over the modelled part: its process, the kernel's work on its behalf, its
/// samples. Slow motion does not slow a manager down, so both prices are told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagerMeasurement {
    /// Charged: what the work costs on the real machine, ns.
    pub charged_ns: u64,
    /// The same work at the price of a managed program, ns.
    pub slow_motion_ns: u64,
    /// Instructions executed.
    #[serde(default)]
    pub instructions: u64,
}

/// One vCPU over the modelled part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VcpuMeasurement {
    /// Its node.
    pub node: usize,
    /// Time not halted.
    pub busy_ns: u64,
    /// Event counts by name; times in core cycles, as the event's name says.
    pub events: BTreeMap<String, u64>,
}

/// A controller or link over the modelled part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipeMeasurement {
    /// Bytes moved.
    pub bytes: u64,
    /// Requests that waited here.
    pub requests: u64,
    /// Sum of their waits, ps.
    pub queue_ps: u64,
    /// Capacity, bytes per second of guest time.
    pub bytes_per_s: f64,
}

/// What happened between the end of the slice before and `end_ns`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// End of the slice.
    pub end_ns: u64,
    /// Instructions of all vCPUs.
    pub instructions: u64,
    /// Those among them that a manager executed, or the kernel for it.
    #[serde(default)]
    pub manager_instructions: u64,
    /// Lines read from DRAM, demand and prefetch.
    pub dram_lines: Matrix,
    /// Demand lines among them.
    pub demand_lines: u64,
    /// Sum of the latencies of demand lines, ps.
    pub demand_latency_ps: u64,
}
