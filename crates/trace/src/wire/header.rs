//! The first line.

use rondpoint_core::guard::GuardSettings;
use rondpoint_core::topology::{self, Description};
use rondpoint_core::{Bytes, Nanos, Topology};
use serde::{Deserialize, Serialize};

use super::costs::Costs;
use super::number::{Float, Set};
use super::table::Square;
use crate::{FORMAT, PolicyChoice, VERSION};

/// The first line: format, version, and the settings of the controller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    /// Name of the format, [`FORMAT`].
    format: String,
    /// Version of the format, up to [`VERSION`].
    version: u32,
    written_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    unix_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    command: Vec<String>,
    policies: Vec<Policy>,
    seed: u64,
    guard: Guard,
    pub(crate) machine: Machine,
    notes: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<String>,
}

/// The guard's settings; [`GuardSettings`] explains them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Guard {
    act: bool,
    min_confidence: Float,
    bytes_per_s_per_node: u64,
    calls_per_s: u32,
    samples_per_s_per_cpu: u32,
    page_residence_ns: u64,
    thread_residence_ns: u64,
    window_ns: u64,
    max_moves_per_window: u32,
    mover_share: Float,
    mover_allowance_ns: u64,
    reserve_share: Float,
    freeze: bool,
    opted_out: Set,
    back_off_ns: u64,
    max_failures: u32,
}

/// The machine; [`Description`] explains the fields.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_hz: Option<f64>,
    nodes: Vec<Node>,
    cpus: Vec<Cpu>,
    distances: Square<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth_bytes_per_s: Option<Square<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    coherence_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    penalty: Option<Penalty>,
    #[serde(default, skip_serializing_if = "Costs::is_empty")]
    costs: Costs,
    links: Vec<Link>,
    /// Indices of links by `[accessing][holding]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    routes: Option<Vec<Vec<Vec<usize>>>>,
}

/// N-MASS's penalty line of this machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Penalty {
    intercept: f64,
    slope_per_mpki: f64,
    most: f64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    kernel_id: u32,
    memory_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller_bytes_per_s: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cpu {
    kernel_id: u32,
    node: usize,
    cache_domain: usize,
    core: usize,
    package: usize,
    isolated: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    from: usize,
    to: usize,
    bytes_per_s: f64,
}

impl From<&crate::Header> for Header {
    fn from(header: &crate::Header) -> Self {
        let policy = |choice: &PolicyChoice| Policy {
            name: choice.name.clone(),
            preset: choice.preset.clone(),
        };
        Self {
            format: FORMAT.to_string(),
            version: VERSION,
            written_by: header.written_by.clone(),
            unix_s: header.unix_s,
            host: header.host.clone(),
            command: header.command.clone(),
            policies: header.policies.iter().map(policy).collect(),
            seed: header.seed,
            guard: (&header.guard).into(),
            machine: header.topology.description().into(),
            notes: header.notes.clone(),
        }
    }
}

impl Header {
    /// 64-bit words of its sets after they are expanded.
    pub(crate) fn words(&self) -> u64 {
        self.guard.opted_out.words()
    }

    /// The header with the topology of its machine.
    pub(crate) fn with(self, topology: Topology) -> crate::Header {
        let choice = |policy: Policy| PolicyChoice { name: policy.name, preset: policy.preset };
        crate::Header {
            written_by: self.written_by,
            unix_s: self.unix_s,
            host: self.host,
            command: self.command,
            policies: self.policies.into_iter().map(choice).collect(),
            seed: self.seed,
            guard: self.guard.into(),
            topology,
            notes: self.notes,
        }
    }
}

impl From<&GuardSettings> for Guard {
    fn from(guard: &GuardSettings) -> Self {
        Self {
            act: guard.act,
            min_confidence: Float(guard.min_confidence),
            bytes_per_s_per_node: guard.bytes_per_s_per_node,
            calls_per_s: guard.calls_per_s,
            samples_per_s_per_cpu: guard.samples_per_s_per_cpu,
            page_residence_ns: guard.page_residence.0,
            thread_residence_ns: guard.thread_residence.0,
            window_ns: guard.window.0,
            max_moves_per_window: guard.max_moves_per_window,
            mover_share: Float(guard.mover_share),
            mover_allowance_ns: guard.mover_allowance.0,
            reserve_share: Float(guard.reserve_share),
            freeze: guard.freeze,
            opted_out: Set::from(&guard.opted_out),
            back_off_ns: guard.back_off.0,
            max_failures: guard.max_failures,
        }
    }
}

impl From<Guard> for GuardSettings {
    fn from(guard: Guard) -> Self {
        Self {
            act: guard.act,
            min_confidence: guard.min_confidence.0,
            bytes_per_s_per_node: guard.bytes_per_s_per_node,
            calls_per_s: guard.calls_per_s,
            samples_per_s_per_cpu: guard.samples_per_s_per_cpu,
            page_residence: Nanos(guard.page_residence_ns),
            thread_residence: Nanos(guard.thread_residence_ns),
            window: Nanos(guard.window_ns),
            max_moves_per_window: guard.max_moves_per_window,
            mover_share: guard.mover_share.0,
            mover_allowance: Nanos(guard.mover_allowance_ns),
            reserve_share: guard.reserve_share.0,
            freeze: guard.freeze,
            opted_out: guard.opted_out.expand(),
            back_off: Nanos(guard.back_off_ns),
            max_failures: guard.max_failures,
        }
    }
}

impl From<&Description> for Machine {
    fn from(machine: &Description) -> Self {
        let node = |node: &topology::NodeDescription| Node {
            kernel_id: node.kernel_id,
            memory_bytes: node.memory.0,
            controller_bytes_per_s: node.controller_bytes_per_s,
        };
        let cpu = |cpu: &topology::Cpu| Cpu {
            kernel_id: cpu.kernel_id,
            node: cpu.node,
            cache_domain: cpu.cache_domain,
            core: cpu.core,
            package: cpu.package,
            isolated: cpu.isolated,
        };
        let link = |link: &topology::Link| Link {
            from: link.from,
            to: link.to,
            bytes_per_s: link.bytes_per_s,
        };
        let routes_of = |routes: &Vec<topology::Route>| {
            routes.iter().map(|route| route.links.clone()).collect()
        };
        let calibrated = &machine.calibrated;
        let penalty = |line: topology::PenaltyLine| Penalty {
            intercept: line.intercept,
            slope_per_mpki: line.slope_per_mpki,
            most: line.most,
        };
        Self {
            clock_hz: machine.clock_hz,
            nodes: machine.nodes.iter().map(node).collect(),
            cpus: machine.cpus.iter().map(cpu).collect(),
            distances: Square(machine.distances.clone()),
            bandwidth_bytes_per_s: machine.bandwidth_bytes_per_s.clone().map(Square),
            requests_per_us: calibrated.requests_per_us,
            coherence_per_s: calibrated.coherence_per_s,
            memory_per_s: calibrated.memory_per_s,
            remote_per_s: calibrated.remote_per_s,
            penalty: calibrated.penalty.map(penalty),
            costs: (&machine.costs).into(),
            links: machine.links.iter().map(link).collect(),
            routes: machine.routes.as_ref().map(|rows| rows.iter().map(routes_of).collect()),
        }
    }
}

impl From<&Machine> for Description {
    fn from(machine: &Machine) -> Self {
        let node = |node: &Node| topology::NodeDescription {
            kernel_id: node.kernel_id,
            memory: Bytes(node.memory_bytes),
            controller_bytes_per_s: node.controller_bytes_per_s,
        };
        let cpu = |cpu: &Cpu| topology::Cpu {
            kernel_id: cpu.kernel_id,
            node: cpu.node,
            cache_domain: cpu.cache_domain,
            core: cpu.core,
            package: cpu.package,
            isolated: cpu.isolated,
        };
        let link = |link: &Link| topology::Link {
            from: link.from,
            to: link.to,
            bytes_per_s: link.bytes_per_s,
        };
        let routes_of = |routes: &Vec<Vec<usize>>| {
            routes.iter().map(|links| topology::Route { links: links.clone() }).collect()
        };
        let penalty = |line: &Penalty| topology::PenaltyLine {
            intercept: line.intercept,
            slope_per_mpki: line.slope_per_mpki,
            most: line.most,
        };
        Self {
            clock_hz: machine.clock_hz,
            nodes: machine.nodes.iter().map(node).collect(),
            cpus: machine.cpus.iter().map(cpu).collect(),
            distances: machine.distances.0.clone(),
            bandwidth_bytes_per_s: machine.bandwidth_bytes_per_s.clone().map(|rates| rates.0),
            calibrated: topology::Calibrated {
                requests_per_us: machine.requests_per_us,
                coherence_per_s: machine.coherence_per_s,
                memory_per_s: machine.memory_per_s,
                remote_per_s: machine.remote_per_s,
                penalty: machine.penalty.as_ref().map(penalty),
            },
            costs: (&machine.costs).into(),
            links: machine.links.iter().map(link).collect(),
            routes: machine.routes.as_ref().map(|rows| rows.iter().map(routes_of).collect()),
        }
    }
}
