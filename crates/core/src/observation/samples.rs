//! Address samples: each is one access, as reported by the hardware or a hint fault.

use crate::units::{PAGE_SHIFT, Pid, Tid};
use alloc::vec::Vec;

/// The node of a sample without a known physical address.
pub const UNKNOWN_NODE: u16 = u16::MAX;

/// Where an access was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// First-level cache. Prefetched lines are found there.
    FirstLevel,
    /// Another private cache level of the same CPU.
    Private,
    /// A line already on its way, from memory or a cache. A prefetched stream waits for such lines.
    InFlight,
    /// Last-level cache of the own domain.
    LastLevel,
    /// Another cache of the same node.
    CacheSameNode,
    /// A cache of another node, line clean.
    CacheRemote,
    /// A cache of another node, line modified.
    CacheRemoteModified,
    /// DRAM of the sample's node.
    Dram,
    /// A NUMA hint fault: an access of unknown source to the page.
    HintFault,
    /// Not reported.
    Unknown,
}

/// One sampled access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressSample {
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// CPU index.
    pub cpu: u16,
    /// Index of the node that holds the page, or [`UNKNOWN_NODE`].
    pub node: u16,
    /// Virtual address.
    pub address: u64,
    /// Latency in cycles, 0 = not reported.
    pub latency_cycles: u32,
    /// log2 of the page size; 12 if not reported.
    pub page_shift: u8,
    /// Where it was served.
    pub source: Source,
    /// A store (else a load).
    pub store: bool,
}

impl AddressSample {
    /// First address of the page.
    #[must_use]
    pub fn page_address(&self) -> u64 {
        let shift = self.page_shift.clamp(PAGE_SHIFT, 63);
        self.address >> shift << shift
    }
}

/// The samples of one interval, with the number of lost samples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Samples {
    /// In the order in which they were read.
    pub list: Vec<AddressSample>,
    /// Samples lost in full buffers.
    pub lost: u64,
    /// Whether the kernel throttled an event: the rate is then unknown.
    pub throttled: bool,
    /// The sampling period in its own event (cycles or operations), if fixed.
    pub period: Option<u64>,
    /// Whether stores are sampled as well as loads.
    pub stores: bool,
}
