//! The model as it is written in JSON, version 1. Names and units are those of the file and stay
//! when the core's types change. Unknown fields are refused, because a misspelt one would be a
//! wrong decision.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The version that this reads.
pub(super) const VERSION: u32 = 1;

/// One interval of a machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Model {
    /// 1.
    pub(super) version: u32,
    /// What it shows, for people.
    #[serde(default, rename = "about")]
    _about: Option<String>,
    /// End of the interval in seconds since some start.
    #[serde(default = "long_since")]
    pub(super) at_s: f64,
    /// Its length.
    #[serde(default = "one")]
    pub(super) elapsed_s: f64,
    /// Which rung of the sensing ladder it stands for.
    #[serde(default)]
    pub(super) rung: Rung,
    /// 0 to 1.
    #[serde(default = "one")]
    pub(super) confidence: f64,
    /// DRAM requests per microsecond, `[accessing][holding]`; the sum of the applications' where it
    /// is left out.
    pub(super) traffic: Option<Vec<Vec<f64>>>,
    /// Mean DRAM latency.
    pub(super) latency_cycles: Option<f64>,
    /// Use of each link, 0 to 1, in the machine file's order.
    pub(super) link_use: Option<Vec<f64>>,
    /// Free memory by node in percent of its memory.
    pub(super) free_percent: Option<Vec<f64>>,
    /// Managed processes.
    pub(super) apps: Vec<App>,
}

/// A rung of the sensing ladder.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Rung {
    /// Address samples.
    #[default]
    Samples,
    /// Counters only.
    Counters,
    /// NUMA hint faults.
    HintFaults,
    /// Kernel statistics.
    Statistics,
}

/// One process.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct App {
    pub(super) pid: u32,
    /// For people.
    #[serde(default, rename = "name")]
    _name: Option<String>,
    #[serde(default = "minute")]
    pub(super) run_time_s: f64,
    pub(super) traffic: Option<Vec<Vec<f64>>>,
    #[serde(default)]
    pub(super) traffic_source: TrafficSource,
    /// Lines per microsecond fetched from other nodes' caches.
    pub(super) cache_traffic: Option<Vec<Vec<f64>>>,
    pub(super) read_percent: Option<f64>,
    #[serde(default)]
    pub(super) read_source: ReadSource,
    pub(super) latency_cycles: Option<f64>,
    pub(super) faults_per_s: Option<f64>,
    pub(super) cpu_percent: Option<f64>,
    pub(super) memory_mib: Option<Vec<f64>>,
    pub(super) allowed_nodes: Option<Vec<usize>>,
    pub(super) exempt: Option<Exemption>,
    pub(super) progress_per_s: Option<f64>,
    pub(super) mappings: Option<Vec<Mapping>>,
    #[serde(default)]
    pub(super) replicas: Vec<Replica>,
    pub(super) policy_read: Option<Vec<Range>>,
    pub(super) threads: Vec<Thread>,
    #[serde(default)]
    pub(super) pages: Vec<Pages>,
}

/// Where the traffic is from.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TrafficSource {
    #[default]
    Counters,
    Samples,
    Machine,
    HintFaults,
}

/// Where the share of reads is from.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ReadSource {
    #[default]
    Counters,
    Samples,
}

/// Why something is not to be touched.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Exemption {
    KernelThread,
    RealTime,
    OwnAffinity,
    OwnMemoryPolicy,
    OtherManager,
    OptedOut,
    GivenUp,
}

/// A range of addresses.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mapping {
    pub(super) start: Address,
    pub(super) end: Address,
    pub(super) kind: MappingKind,
}

/// Addresses from `start` up to `end`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Range {
    pub(super) start: Address,
    pub(super) end: Address,
}

/// What a mapping is.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MappingKind {
    PrivateAnonymous,
    PrivateHuge,
    PrivateOther,
    Shared,
    Special,
}

/// A replicated page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replica {
    pub(super) address: Address,
    pub(super) collapses: u32,
}

/// An address: a number, or text as `"0x7f0000001000"`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Address {
    Number(u64),
    Text(String),
}

/// One thread. Rates are per second of its CPU time.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Thread {
    pub(super) tid: u32,
    #[serde(default, rename = "name")]
    _name: Option<String>,
    pub(super) cpu: usize,
    pub(super) cpu_before: Option<usize>,
    /// CPUs that it may use, as `"0-3,8"`; all where left out.
    pub(super) allowed: Option<String>,
    #[serde(default = "one")]
    pub(super) cpu_share: f64,
    pub(super) queued_share: Option<f64>,
    #[serde(default)]
    pub(super) core_shared: f64,
    #[serde(default)]
    pub(super) is_narrowed: bool,
    pub(super) exempt: Option<Exemption>,
    pub(super) instructions_per_s: Option<f64>,
    pub(super) coherence_remote_per_s: Option<f64>,
    pub(super) coherence_local_per_s: Option<f64>,
    pub(super) memory_per_s: Option<f64>,
    pub(super) remote_dram_per_s: Option<f64>,
    pub(super) mpki: Option<f64>,
    pub(super) ipc: Option<f64>,
    pub(super) stall_share: Option<f64>,
    pub(super) stalls_per_coherence: Option<f64>,
    pub(super) read_percent: Option<f64>,
    pub(super) local_dram_share: Option<f64>,
    pub(super) accesses_by_node: Option<Vec<u32>>,
    pub(super) ran_on: Option<Vec<u32>>,
}

/// Sampled pages that look alike, one after the other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pages {
    /// First address of the first page.
    pub(super) address: Address,
    /// How many.
    #[serde(default = "one_page")]
    pub(super) count: u64,
    /// Huge pages of 2 MiB.
    #[serde(default)]
    pub(super) huge: bool,
    /// Node that holds them.
    pub(super) home: Option<usize>,
    /// Sampled accesses of each page by accessing node.
    pub(super) accesses: BTreeMap<usize, u32>,
    /// How many of them were stores.
    #[serde(default)]
    pub(super) stores: u32,
    /// Threads that were seen on each page (tids), for sharing.
    #[serde(default)]
    pub(super) touched_by: Vec<u32>,
}

fn one() -> f64 {
    1.0
}

fn one_page() -> u64 {
    1
}

fn minute() -> f64 {
    60.0
}

fn long_since() -> f64 {
    1e6
}
