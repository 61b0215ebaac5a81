//! Every bound on a machine, in one place. They keep arithmetic far from overflow and catch typos.

/// Bytes of a machine file: 64 nodes with three matrices, every link and every route written out
/// are about 400 KB.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Nodes of a machine: the largest Linux servers stay below it.
pub const NODES_MAX: usize = 64;
/// CPUs of one node: a kernel without NUMA has all of them on one.
pub const CPUS_PER_NODE_MAX: u32 = CPUS_MAX as u32;
/// CPUs of a machine: a topology holds no more.
pub const CPUS_MAX: usize = rondpoint_core::limits::MAX_CPUS;
/// Memory of one node, bytes: 64 TiB.
pub const NODE_MEMORY_MAX: u64 = 64 << 40;
/// Any cache, bytes: 4 GiB.
pub const CACHE_BYTES_MAX: u64 = 4 << 30;
/// Ways of any cache.
pub const WAYS_MAX: u32 = 128;
/// Any latency, cost or bandwidth number; 10⁹ ns is a second, 10⁹ MB/s a petabyte per second.
pub const QUANTITY_MAX: f64 = 1e9;
/// vCPUs of a machine in the lab: round-robin emulation on one host core makes a guest second of
/// more than these take minutes.
pub const LAB_CPUS_MAX: u32 = 24;
/// Nodes of a machine in the lab: its PMU has this many per-node counters.
pub const LAB_NODES_MAX: usize = 16;
/// The largest slow-motion factor.
pub const SLOW_MOTION_MAX: f64 = 1000.0;
/// The least memory of a lab node, MiB: below it a node cannot hold its share of the kernel.
pub const LAB_MEMORY_MIB_MIN: u64 = 32;
/// Bounds of the lab's quantum, ns.
pub const QUANTUM_NS: std::ops::RangeInclusive<u64> = 100..=1_000_000;

const _: () = assert!(LAB_NODES_MAX <= NODES_MAX);
const _: () = assert!(LAB_CPUS_MAX as usize >= LAB_NODES_MAX);
