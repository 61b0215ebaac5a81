//! An observation: the readings of a host at one instant. Counters are cumulative. Each source is
//! an `Option` (`None` = not readable here).
//!
//! An observation holds no rates; two observations make a [`crate::Model`]. Samples and hint faults
//! are lists since the previous observation. Nodes and CPUs are indices of the topology: the reader
//! translates the kernel's numbers.

mod counters;
mod samples;

pub use counters::{Counter, Counters, Event};
pub use samples::{AddressSample, Samples, Source, UNKNOWN_NODE};

use crate::index_set::{CpuSet, NodeSet};
use crate::matrix::Matrix;
use crate::units::{Bytes, Nanos, Pid, Tid};
use alloc::vec::Vec;
use core::fmt;

/// One observation of the machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observation {
    /// Time on the host's monotonic clock.
    pub at: Nanos,
    /// Whether this observation only begins a window. The time since the previous observation was
    /// not counted, or contains a change.
    pub after_pause: bool,
    /// DRAM requests (lines) by `[accessing][holding]`, the whole machine, since counting began.
    pub node_traffic: Option<Matrix<Counter>>,
    /// Lines that each node's controllers served, for the whole machine, since counting began. Only
    /// reads, if reads can be counted separately. It is read only if `node_traffic` cannot be.
    pub controller_lines: Option<Vec<Counter>>,
    /// Bytes carried by each directed link, in the topology's order.
    pub link_bytes: Option<Vec<Counter>>,
    /// Memory of each node that pages can take now: free memory and the page cache.
    pub free_memory: Option<Vec<Bytes>>,
    /// Processes and threads that the managed ones have started since the previous observation.
    pub births: Option<u64>,
    /// Managed processes, ascending by pid.
    pub processes: Vec<ProcessObservation>,
    /// Address samples since the previous observation.
    pub samples: Option<Samples>,
    /// NUMA hint faults since the previous observation, as samples of source [`Source::HintFault`].
    pub hint_faults: Option<Samples>,
}

/// One managed process.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProcessObservation {
    /// Its number.
    pub pid: Pid,
    /// When it started, on the host's clock: with the pid, its identity.
    pub started: Nanos,
    /// Its threads, ascending by tid.
    pub threads: Vec<ThreadObservation>,
    /// DRAM requests of its threads by `[accessing][holding]`.
    pub node_traffic: Option<Matrix<Counter>>,
    /// Counts of the whole process, used if counts are not taken per thread. They include children
    /// that are not managed separately.
    pub counters: Counters,
    /// Cache lines fetched from the caches of another node by `[accessing][owning]`.
    pub cache_traffic: Option<Matrix<Counter>>,
    /// Resident memory by node now.
    pub memory: Option<Vec<Bytes>>,
    /// Minor and major faults since its start.
    pub faults: Option<u64>,
    /// Mappings now, ascending by address.
    pub mappings: Option<Vec<Mapping>>,
    /// Memory that other processes may have mapped too, ascending by address. Memory that is not
    /// readable is left out.
    pub shared: Vec<SharedMapping>,
    /// Pages with copies on several nodes, ascending by address, if the kernel replicates pages.
    pub replicas: Option<Vec<Replica>>,
    /// Ranges whose memory policy was read and is `default` or `local`, ascending by address;
    /// `None` = all of its memory. Other pages may have a policy of their own, or belong to a copy
    /// of a file.
    pub policy_read: Option<Vec<AddressRange>>,
    /// The application's own count of work done, if it reports one.
    pub progress: Option<f64>,
    /// Nodes from which it may have memory (its cpuset); `None` = all.
    pub allowed_nodes: Option<NodeSet>,
    /// Reason for which it must not be changed, if any.
    pub exempt: Option<Exemption>,
    /// Pages that the kernel's balancing or another program moved since its start.
    pub pages_moved_by_others: Option<u64>,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ThreadObservation {
    /// Its number.
    pub tid: Tid,
    /// The CPU that it ran on last.
    pub cpu: usize,
    /// CPU time since its start.
    pub cpu_time: Nanos,
    /// Time since its start for which it could run and waited for a CPU.
    pub queued: Option<Nanos>,
    /// Number of time slices since its start.
    pub slices: Option<u64>,
    /// CPUs that it may use: its mask before Rondpoint changed it, within its cpuset.
    pub allowed: CpuSet,
    /// Reason for which it must not be changed, if any.
    pub exempt: Option<Exemption>,
    /// Its counters.
    pub counters: Counters,
}

/// Addresses from `start` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressRange {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
}

/// Reason for which a process or thread is observed but never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Exemption {
    /// A kernel thread.
    KernelThread,
    /// A real-time or deadline task.
    RealTime,
    /// It has an affinity mask of its own.
    OwnAffinity,
    /// It has a memory policy of its own.
    OwnMemoryPolicy,
    /// Another manager's cgroup.
    OtherManager,
    /// The user excluded it.
    OptedOut,
    /// Several trials made it slower.
    GivenUp,
}

impl fmt::Display for Exemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KernelThread => "it is a kernel thread",
            Self::RealTime => "it is a real-time task",
            Self::OwnAffinity => "it has chosen its CPUs itself",
            Self::OwnMemoryPolicy => "it has a memory policy of its own",
            Self::OtherManager => "it is in a cpuset of another manager",
            Self::OptedOut => "the user said so",
            Self::GivenUp => "earlier trials made it slower again and again",
        })
    }
}

/// A page with a copy on another node. If memory is short, some nodes may lack one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    /// First address.
    pub address: u64,
    /// How often a write dropped its copies.
    pub collapses: u32,
}

/// A range of addresses and what it maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// What the range holds.
    pub kind: MappingKind,
}

/// A range of addresses and the part of shared memory that it maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedMapping {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// What is mapped.
    pub object: SharedObject,
    /// Offset of the range in the object, in bytes.
    pub offset: u64,
}

/// A file or a piece of shared memory, independent of the processes that map it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedObject {
    /// Number of its device.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// Kind of a mapping, for the question whether its pages may move or get copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingKind {
    /// Private anonymous memory, readable and writable.
    PrivateAnonymous,
    /// Private anonymous memory, partly in huge pages.
    PrivateHuge,
    /// Private, but not readable and writable, or from a file.
    PrivateOther,
    /// Shared with other processes.
    Shared,
    /// Special (vdso, device memory): never moved.
    Special,
}
