//! The metrics that can be counted, under names that do not depend on the processor.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

/// A metric counted in a core. The names are those of the tables in `processors/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are those of the tables and say it")]
pub enum Metric {
    Instructions,
    Cycles,
    LocalDram,
    RemoteDram,
    RemoteHitm,
    RemoteForward,
    LocalHitm,
    LocalForward,
    LlcHits,
    LlcMisses,
    PrivateMisses,
    StallCycles,
    Refills,
    RefillsModified,
    DramLatencyCycles,
    DramRequests,
    Writebacks,
    Loads,
    Stores,
    DramReads,
    PrefetchDram,
    /// Requests to the DRAM of one node, by the kernel's number, which replaces `{node}`.
    #[serde(rename = "dram_node")]
    DramNode(#[serde(skip)] u32),
}

impl Metric {
    /// All metrics, with [`Metric::DramNode`] for every node.
    pub const ALL: [Self; 22] = [
        Self::Instructions,
        Self::Cycles,
        Self::LocalDram,
        Self::RemoteDram,
        Self::RemoteHitm,
        Self::RemoteForward,
        Self::LocalHitm,
        Self::LocalForward,
        Self::LlcHits,
        Self::LlcMisses,
        Self::PrivateMisses,
        Self::StallCycles,
        Self::Refills,
        Self::RefillsModified,
        Self::DramLatencyCycles,
        Self::DramRequests,
        Self::Writebacks,
        Self::Loads,
        Self::Stores,
        Self::DramReads,
        Self::PrefetchDram,
        Self::DramNode(0),
    ];

    /// The metric of this name in the tables; `dram_node` is for all nodes.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if name == "dram_node" {
            return Some(Self::DramNode(0));
        }
        let name: StrDeserializer<'_, Error> = name.into_deserializer();
        Self::deserialize(name).ok()
    }

    /// All names in the tables, ascending.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<&str> = Self::ALL.into_iter().map(Self::kind_name).collect();
        names.sort_unstable();
        names
    }

    /// Name of the metric, with the node's number if it has one.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::DramNode(node) => format!("dram_node{node}"),
            other => other.kind_name().to_string(),
        }
    }

    /// Name of the metric in the tables.
    #[must_use]
    pub fn kind_name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Cycles => "cycles",
            Self::LocalDram => "local_dram",
            Self::RemoteDram => "remote_dram",
            Self::RemoteHitm => "remote_hitm",
            Self::RemoteForward => "remote_forward",
            Self::LocalHitm => "local_hitm",
            Self::LocalForward => "local_forward",
            Self::LlcHits => "llc_hits",
            Self::LlcMisses => "llc_misses",
            Self::PrivateMisses => "private_misses",
            Self::StallCycles => "stall_cycles",
            Self::Refills => "refills",
            Self::RefillsModified => "refills_modified",
            Self::DramLatencyCycles => "dram_latency_cycles",
            Self::DramRequests => "dram_requests",
            Self::Writebacks => "writebacks",
            Self::Loads => "loads",
            Self::Stores => "stores",
            Self::DramReads => "dram_reads",
            Self::PrefetchDram => "prefetch_dram",
            Self::DramNode(_) => "dram_node",
        }
    }

    /// Whether two metrics differ at most in the node.
    #[must_use]
    pub fn same_kind(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// A metric of units outside the cores: controllers, links, shared caches. Each unit counts for the
/// node of the CPU in its `cpumask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UncoreMetric {
    /// Requests of the unit's node to the DRAM of each node; `{node}` is the holding node's number.
    DramToNode,
    /// Bytes over one directed link of the lab; `{link}` is its number.
    Link,
    /// Requests of the unit's node that its last-level cache missed and its own memory answered.
    MissesLocal,
    /// Requests of the unit's node that its last-level cache missed and another node's memory
    /// answered.
    MissesRemote,
    /// Reads that reached the unit's memory from its own node.
    HomeReadsLocal,
    /// Reads that reached the unit's memory from another node.
    HomeReadsRemote,
    /// Writes that reached the unit's memory from its own node.
    HomeWritesLocal,
    /// Writes that reached the unit's memory from another node.
    HomeWritesRemote,
    /// Bytes read from the DRAM behind the unit.
    ControllerReads,
    /// Bytes written to the DRAM behind the unit.
    ControllerWrites,
    /// Bytes read and written together.
    ControllerBytes,
    /// Bytes of data that the unit's node sends to other sockets.
    LinkOut,
    /// Bytes of data that the unit's node receives from other sockets.
    LinkIn,
    /// Bytes that the unit's node reads from the memory of other sockets.
    RemoteReads,
    /// Bytes that the unit's node writes to the memory of other sockets.
    RemoteWrites,
    /// Requests to a shared cache.
    CacheLookups,
    /// Requests that a shared cache missed.
    CacheMisses,
}

impl UncoreMetric {
    /// All metrics.
    pub const ALL: [Self; 17] = [
        Self::DramToNode,
        Self::Link,
        Self::MissesLocal,
        Self::MissesRemote,
        Self::HomeReadsLocal,
        Self::HomeReadsRemote,
        Self::HomeWritesLocal,
        Self::HomeWritesRemote,
        Self::ControllerReads,
        Self::ControllerWrites,
        Self::ControllerBytes,
        Self::LinkOut,
        Self::LinkIn,
        Self::RemoteReads,
        Self::RemoteWrites,
        Self::CacheLookups,
        Self::CacheMisses,
    ];

    /// Name of the metric in the tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DramToNode => "dram_to_node",
            Self::Link => "link",
            Self::MissesLocal => "misses_local",
            Self::MissesRemote => "misses_remote",
            Self::HomeReadsLocal => "home_reads_local",
            Self::HomeReadsRemote => "home_reads_remote",
            Self::HomeWritesLocal => "home_writes_local",
            Self::HomeWritesRemote => "home_writes_remote",
            Self::ControllerReads => "controller_reads",
            Self::ControllerWrites => "controller_writes",
            Self::ControllerBytes => "controller_bytes",
            Self::LinkOut => "link_out",
            Self::LinkIn => "link_in",
            Self::RemoteReads => "remote_reads",
            Self::RemoteWrites => "remote_writes",
            Self::CacheLookups => "cache_lookups",
            Self::CacheMisses => "cache_misses",
        }
    }

    /// The metric of this name in the tables.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_metric() {
        for metric in Metric::ALL {
            assert_eq!(Metric::named(metric.kind_name()), Some(metric));
        }
        for metric in UncoreMetric::ALL {
            let name: StrDeserializer<'_, Error> = metric.name().into_deserializer();
            assert_eq!(UncoreMetric::deserialize(name).unwrap(), metric);
            assert_eq!(UncoreMetric::named(metric.name()), Some(metric));
        }
        assert_eq!((Metric::named("colour"), UncoreMetric::named("dram_node")), (None, None));
    }
}
