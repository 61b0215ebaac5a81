//! Every bound on a machine, in one place. They keep arithmetic far from overflow and catch typos.

/// Most bytes of a machine file. A file of 64 nodes with three matrices, all links and all routes
/// has about 400 KB.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Most nodes of a machine; the largest Linux servers have fewer.
pub const NODES_MAX: usize = 64;
/// Most CPUs of one node. A kernel without NUMA has all CPUs on one.
pub const CPUS_PER_NODE_MAX: u32 = CPUS_MAX as u32;
/// Most CPUs of a machine, as of a topology.
pub const CPUS_MAX: usize = rondpoint_core::limits::MAX_CPUS;
/// Most memory of one node, bytes: 64 TiB.
pub const NODE_MEMORY_MAX: u64 = 64 << 40;
/// Largest cache, bytes: 4 GiB.
pub const CACHE_BYTES_MAX: u64 = 4 << 30;
/// Most ways of a cache.
pub const WAYS_MAX: u32 = 128;
/// Largest latency, cost or bandwidth: 10⁹ ns is a second, 10⁹ MB/s a petabyte per second.
pub const QUANTITY_MAX: f64 = 1e9;
/// Most vCPUs of a machine in the lab. The emulation runs them in turn on one host core, so with
/// more a guest second takes minutes.
pub const LAB_CPUS_MAX: u32 = 24;
/// Most nodes of a machine in the lab: the number of its PMU's per-node counters.
pub const LAB_NODES_MAX: usize = 16;
/// Largest slow-motion factor.
pub const SLOW_MOTION_MAX: f64 = 1000.0;
/// Least memory of a lab node, MiB. A smaller node cannot hold its share of the kernel.
pub const LAB_MEMORY_MIB_MIN: u64 = 32;
/// Range of the lab's quantum, ns.
pub const QUANTUM_NS: std::ops::RangeInclusive<u64> = 100..=1_000_000;

const _: () = assert!(LAB_NODES_MAX <= NODES_MAX);
const _: () = assert!(LAB_CPUS_MAX as usize >= LAB_NODES_MAX);
