//! The frozen ranges of the generator: `swarm.toml`, read once.

use serde::Deserialize;

use crate::results;

const TEXT: &str = include_str!("../../swarm.toml");

/// Two bounds.
pub(super) type Between = [f64; 2];

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ranges {
    pub(super) machine: MachineRanges,
    pub(super) workload: WorkloadRanges,
    pub(super) manager: ManagerRanges,
    pub(super) faults: FaultRanges,
    pub(super) time: TimeRanges,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineRanges {
    pub(super) nodes: Vec<u32>,
    pub(super) cpus: Vec<u32>,
    pub(super) smt: Vec<u32>,
    pub(super) memory_only: Vec<u32>,
    pub(super) clock_mhz: Between,
    pub(super) latency_ns: Between,
    pub(super) hop_ns: Between,
    pub(super) burst_ns: Between,
    pub(super) bandwidth_mb_s: Between,
    pub(super) link_share: Between,
    pub(super) memory_gib: Between,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadRanges {
    pub(super) programs: Vec<u32>,
    pub(super) instances: Vec<u32>,
    pub(super) threads_share: Between,
    pub(super) cycles_per_instruction: Between,
    pub(super) accesses_per_kilo: Between,
    pub(super) outstanding: Between,
    pub(super) transfers_per_kilo: Between,
    pub(super) burst: Between,
    pub(super) mib: Between,
    pub(super) writes: Between,
    pub(super) reuse: Between,
    pub(super) phases: f64,
    pub(super) services: f64,
    pub(super) kilo_instructions: Between,
    pub(super) lines: Between,
    pub(super) fleeting: f64,
    pub(super) lives_s: Between,
    pub(super) late: f64,
    pub(super) latest_s: f64,
    pub(super) confined: f64,
    pub(super) exempt: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ManagerRanges {
    pub(super) pmu: Vec<String>,
    pub(super) policy: Vec<String>,
    pub(super) replication: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultRanges {
    pub(super) cases: f64,
    pub(super) until_s: f64,
    pub(super) refused: f64,
    pub(super) busy: f64,
    pub(super) no_memory: f64,
    pub(super) stale: f64,
    pub(super) wrapped: f64,
    pub(super) missing: f64,
    pub(super) lost: f64,
    pub(super) late: f64,
    pub(super) jump: f64,
    pub(super) exits: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimeRanges {
    pub(super) with_faults_s: f64,
    pub(super) without_faults_s: f64,
}

impl Ranges {
    /// The ranges of `swarm.toml`.
    pub(crate) fn frozen() -> Self {
        toml::from_str(TEXT).expect("swarm.toml is a part of the program, and a test reads it")
    }

    /// The digest of the file.
    pub(crate) fn digest() -> String {
        results::digest(TEXT)
    }
}
