//! One look at the machine.

use rondpoint_core::observation::{
    self, Exemption as CoreExemption, MappingKind as CoreMappingKind,
};
use rondpoint_core::{Bytes, Nanos, Pid, Tid};
use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::names;
use super::number::{Float, Set};
use super::samples::Samples;
use super::table::{Counter, Square};

/// An observation of the machine. Values that were not read are left out.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Observation {
    pub(crate) at_ns: u64,
    #[serde(default, skip_serializing_if = "is_false")]
    after_rest: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_traffic: Option<Square<Counter>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller_lines: Option<Vec<Counter>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link_bytes: Option<Vec<Counter>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free_memory_bytes: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    births: Option<u64>,
    processes: Vec<Process>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<Samples>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint_faults: Option<Samples>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    pid: u32,
    started_ns: u64,
    threads: Vec<Thread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_traffic: Option<Square<Counter>>,
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    counters: Counters,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_traffic: Option<Square<Counter>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    faults: Option<u64>,
    /// `[start, end, kind]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    mappings: Option<Vec<(u64, u64, MappingKind)>>,
    /// `[start, end, device, inode, offset]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shared: Vec<(u64, u64, u64, u64, u64)>,
    /// `[address, collapses]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<Vec<(u64, u32)>>,
    /// `[start, end]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy_read: Option<Vec<(u64, u64)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Float>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_nodes: Option<Set>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exempt: Option<Exemption>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pages_moved_by_others: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Thread {
    tid: u32,
    cpu: usize,
    cpu_time_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slices: Option<u64>,
    allowed: Set,
    #[serde(skip_serializing_if = "Option::is_none")]
    exempt: Option<Exemption>,
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    counters: Counters,
}

names! {
    Exemption for CoreExemption {
        KernelThread = "kernel-thread",
        RealTime = "real-time",
        OwnAffinity = "own-affinity",
        OwnMemoryPolicy = "own-memory-policy",
        OtherManager = "other-manager",
        OptedOut = "opted-out",
        GivenUp = "given-up",
    }
}

names! {
    MappingKind for CoreMappingKind {
        PrivateAnonymous = "private-anonymous",
        PrivateHuge = "private-huge",
        PrivateOther = "private-other",
        Shared = "shared",
        Special = "special",
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn table(read: &Option<rondpoint_core::Matrix<observation::Counter>>) -> Option<Square<Counter>> {
    read.as_ref().map(|table| Square(table.map(Counter)))
}

fn core_table(
    read: Option<Square<Counter>>,
) -> Option<rondpoint_core::Matrix<observation::Counter>> {
    read.map(|table| table.0.map(|counter| counter.0))
}

fn list(read: &Option<Vec<observation::Counter>>) -> Option<Vec<Counter>> {
    read.as_ref().map(|all| all.iter().copied().map(Counter).collect())
}

fn core_list(read: Option<Vec<Counter>>) -> Option<Vec<observation::Counter>> {
    read.map(|all| all.into_iter().map(|counter| counter.0).collect())
}

fn bytes(read: &Option<Vec<Bytes>>) -> Option<Vec<u64>> {
    read.as_ref().map(|nodes| nodes.iter().map(|bytes| bytes.0).collect())
}

fn core_bytes(read: Option<Vec<u64>>) -> Option<Vec<Bytes>> {
    read.map(|nodes| nodes.into_iter().map(Bytes).collect())
}

impl Observation {
    /// 64-bit words of its sets after they are expanded.
    pub(crate) fn words(&self) -> u64 {
        let nodes = |process: &Process| process.allowed_nodes.as_ref().map_or(0, Set::words);
        let threads = self.processes.iter().flat_map(|process| &process.threads);
        let cpus: u64 = threads.map(|thread| thread.allowed.words()).sum();
        cpus + self.processes.iter().map(nodes).sum::<u64>()
    }
}

impl From<&observation::Observation> for Observation {
    fn from(read: &observation::Observation) -> Self {
        Self {
            at_ns: read.at.0,
            after_rest: read.after_pause,
            node_traffic: table(&read.node_traffic),
            controller_lines: list(&read.controller_lines),
            link_bytes: list(&read.link_bytes),
            free_memory_bytes: bytes(&read.free_memory),
            births: read.births,
            processes: read.processes.iter().map(Into::into).collect(),
            samples: read.samples.as_ref().map(Into::into),
            hint_faults: read.hint_faults.as_ref().map(Into::into),
        }
    }
}

impl From<Observation> for observation::Observation {
    fn from(read: Observation) -> Self {
        Self {
            at: Nanos(read.at_ns),
            after_pause: read.after_rest,
            node_traffic: core_table(read.node_traffic),
            controller_lines: core_list(read.controller_lines),
            link_bytes: core_list(read.link_bytes),
            free_memory: core_bytes(read.free_memory_bytes),
            births: read.births,
            processes: read.processes.into_iter().map(Into::into).collect(),
            samples: read.samples.map(Into::into),
            hint_faults: read.hint_faults.map(Into::into),
        }
    }
}

impl From<&observation::ProcessObservation> for Process {
    fn from(read: &observation::ProcessObservation) -> Self {
        let mapping =
            |one: &observation::Mapping| (one.start, one.end, MappingKind::from(one.kind));
        let replica = |one: &observation::Replica| (one.address, one.collapses);
        let range = |one: &observation::AddressRange| (one.start, one.end);
        let shared = |mapping: &observation::SharedMapping| {
            let observation::SharedMapping { start, end, object, offset } = *mapping;
            (start, end, object.device, object.inode, offset)
        };
        Self {
            pid: read.pid.0,
            started_ns: read.started.0,
            threads: read.threads.iter().map(Into::into).collect(),
            node_traffic: table(&read.node_traffic),
            counters: Counters(read.counters.clone()),
            cache_traffic: table(&read.cache_traffic),
            memory_bytes: bytes(&read.memory),
            faults: read.faults,
            mappings: read.mappings.as_ref().map(|all| all.iter().map(mapping).collect()),
            shared: read.shared.iter().map(shared).collect(),
            replicas: read.replicas.as_ref().map(|all| all.iter().map(replica).collect()),
            policy_read: read.policy_read.as_ref().map(|all| all.iter().map(range).collect()),
            progress: read.progress.map(Float),
            allowed_nodes: read.allowed_nodes.as_ref().map(Set::from),
            exempt: read.exempt.map(Into::into),
            pages_moved_by_others: read.pages_moved_by_others,
        }
    }
}

impl From<Process> for observation::ProcessObservation {
    fn from(read: Process) -> Self {
        let mapping = |(start, end, kind): (u64, u64, MappingKind)| observation::Mapping {
            start,
            end,
            kind: kind.into(),
        };
        let replica = |(address, collapses)| observation::Replica { address, collapses };
        let range = |(start, end)| observation::AddressRange { start, end };
        let shared = |(start, end, device, inode, offset)| observation::SharedMapping {
            start,
            end,
            object: observation::SharedObject { device, inode },
            offset,
        };
        Self {
            pid: Pid(read.pid),
            started: Nanos(read.started_ns),
            threads: read.threads.into_iter().map(Into::into).collect(),
            node_traffic: core_table(read.node_traffic),
            counters: read.counters.0,
            cache_traffic: core_table(read.cache_traffic),
            memory: core_bytes(read.memory_bytes),
            faults: read.faults,
            mappings: read.mappings.map(|all| all.into_iter().map(mapping).collect()),
            shared: read.shared.into_iter().map(shared).collect(),
            replicas: read.replicas.map(|all| all.into_iter().map(replica).collect()),
            policy_read: read.policy_read.map(|all| all.into_iter().map(range).collect()),
            progress: read.progress.map(|progress| progress.0),
            allowed_nodes: read.allowed_nodes.map(|nodes| nodes.expand()),
            exempt: read.exempt.map(Into::into),
            pages_moved_by_others: read.pages_moved_by_others,
        }
    }
}

impl From<&observation::ThreadObservation> for Thread {
    fn from(read: &observation::ThreadObservation) -> Self {
        Self {
            tid: read.tid.0,
            cpu: read.cpu,
            cpu_time_ns: read.cpu_time.0,
            queued_ns: read.queued.map(|queued| queued.0),
            slices: read.slices,
            allowed: Set::from(&read.allowed),
            exempt: read.exempt.map(Into::into),
            counters: Counters(read.counters.clone()),
        }
    }
}

impl From<Thread> for observation::ThreadObservation {
    fn from(read: Thread) -> Self {
        Self {
            tid: Tid(read.tid),
            cpu: read.cpu,
            cpu_time: Nanos(read.cpu_time_ns),
            queued: read.queued_ns.map(Nanos),
            slices: read.slices,
            allowed: read.allowed.expand(),
            exempt: read.exempt.map(Into::into),
            counters: read.counters.0,
        }
    }
}
