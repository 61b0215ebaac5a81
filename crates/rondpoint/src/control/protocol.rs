//! Types of the messages on the control socket. `docs/daemon.md` is their reference for people.
//!
//! Numbers of nodes, CPUs, processes and threads are the kernel's. Quantities without a sensor on
//! this machine are absent. Readers ignore fields that they do not know, so a daemon may be newer
//! than its client; a field changes its meaning only with [`VERSION`].

use std::collections::BTreeMap;

use rondpoint_core::cost::{CAUSES, Cause};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::story::words::{causes, name_of};

/// Version of the protocol: of [`Status::protocol`].
pub(crate) const VERSION: u32 = 1;
/// Name of the interface; a method is called by this name, a dot and its own.
pub(crate) const INTERFACE: &str = "org.rondpoint.Daemon";

/// Methods of the interface.
pub(crate) mod method {
    /// The whole state, once: [`super::StatusReply`].
    pub(crate) const STATUS: &str = "GetStatus";
    /// The state and the decisions after [`super::WatchRequest::after`]; with `more` again after
    /// each look of the daemon: [`super::WatchReply`].
    pub(crate) const WATCH: &str = "Watch";
    /// One process in detail: [`super::PidRequest`], [`super::ExplainReply`].
    pub(crate) const EXPLAIN: &str = "Explain";
    /// The metrics as OpenMetrics text: [`super::MetricsReply`].
    pub(crate) const METRICS: &str = "GetMetrics";
    /// Changes nothing from now on, and takes back the masks that were given.
    pub(crate) const PAUSE: &str = "Pause";
    /// Acts again, where the configuration lets it.
    pub(crate) const RESUME: &str = "Resume";
    /// Leaves processes alone: [`super::PidsRequest`].
    pub(crate) const LEAVE: &str = "Leave";
    /// Manages processes, whatever their size; exclusions win: [`super::PidsRequest`].
    pub(crate) const MANAGE: &str = "Manage";
    /// Withdraws what was asked for processes: [`super::WithdrawRequest`].
    pub(crate) const WITHDRAW: &str = "Withdraw";
    /// Reads the configuration anew: [`super::NotesReply`].
    pub(crate) const RELOAD: &str = "Reload";
}

/// A call as it is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Interface and method.
    pub(crate) method: String,
    /// Its parameters.
    #[serde(default)]
    pub(crate) parameters: Map<String, Value>,
    /// Several replies are welcome.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) more: bool,
    /// No reply is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) oneway: bool,
}

/// A reply as it is sent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// What was asked for, or what an error is about.
    #[serde(default)]
    pub(crate) parameters: Map<String, Value>,
    /// Interface and error; `None` of a call that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Another reply to the same call follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) continues: bool,
}

/// [`Sensor::rung`] where nothing is counted or sampled.
pub(crate) const STATISTICS: &str = "statistics";

/// Of [`method::STATUS`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StatusReply {
    pub(crate) status: Status,
}

/// Of [`method::WATCH`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct WatchRequest {
    /// Number of the last decision that the caller has; `None` = all that the daemon remembers.
    #[serde(default)]
    pub(crate) after: Option<u64>,
}

/// Of [`method::WATCH`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WatchReply {
    pub(crate) status: Status,
    /// Oldest first.
    pub(crate) decisions: Vec<Decision>,
}

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PidRequest {
    pub(crate) pid: u32,
}

/// Processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PidsRequest {
    pub(crate) pids: Vec<u32>,
}

/// Of [`method::WITHDRAW`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WithdrawRequest {
    pub(crate) pids: Vec<u32>,
    pub(crate) request: Withdrawn,
}

/// The kind of request that is withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Withdrawn {
    /// Of [`method::LEAVE`].
    Leave,
    /// Of [`method::MANAGE`].
    Manage,
}

/// Of [`method::EXPLAIN`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExplainReply {
    /// The kernel's number of each node, in the order of all lists by node.
    #[serde(default)]
    pub(crate) nodes: Vec<u32>,
    pub(crate) process: Process,
    pub(crate) threads: Vec<Thread>,
    /// Those about this process that the daemon remembers, oldest first.
    pub(crate) decisions: Vec<Decision>,
}

/// Of [`method::METRICS`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MetricsReply {
    pub(crate) text: String,
}

/// Sentences for the caller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct NotesReply {
    #[serde(default)]
    pub(crate) notes: Vec<String>,
}

/// Whether the daemon changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// It looks, and says what it would do.
    #[default]
    Observe,
    /// It places memory and threads.
    Act,
}

/// The daemon and the machine at its last look.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// [`VERSION`].
    #[serde(deserialize_with = "known")]
    pub(crate) protocol: u32,
    /// Of Rondpoint.
    pub(crate) version: String,
    /// Name of the machine.
    pub(crate) host: Option<String>,
    /// Process number of the daemon.
    pub(crate) pid: u32,
    pub(crate) mode: Mode,
    pub(crate) paused: bool,
    /// Whether anything may be changed now: false while it is paused, while another manager runs,
    /// and if it may never act.
    #[serde(default)]
    pub(crate) acts: bool,
    /// File of its configuration.
    pub(crate) config: String,
    /// As they are configured, first the one with priority.
    pub(crate) policies: Vec<String>,
    /// When it looked last, seconds since boot.
    pub(crate) at_s: f64,
    /// How long it has run.
    pub(crate) running_s: f64,
    /// Seconds that the rates below are the mean of; 0 before the second look.
    pub(crate) window_s: f64,
    pub(crate) sensor: Sensor,
    /// Ascending by number.
    pub(crate) nodes: Vec<Node>,
    /// ACPI distances, by `[accessing][holding]` in the order of `nodes`.
    pub(crate) distances: Vec<Vec<u32>>,
    /// DRAM traffic by `[accessing][holding]` in the order of `nodes`.
    pub(crate) traffic_bytes_per_s: Option<Vec<Vec<f64>>>,
    pub(crate) links: Vec<Link>,
    /// Mean latency of a DRAM access.
    pub(crate) latency_ns: Option<f64>,
    pub(crate) factor: Factor,
    /// Managed processes, and those that only a rule keeps from it. A caller without privilege gets
    /// its own only. Ascending by number.
    pub(crate) processes: Vec<Process>,
    /// Since the daemon began.
    pub(crate) totals: Totals,
    /// Other programs and settings that place memory or threads here.
    pub(crate) others: Vec<Other>,
    pub(crate) own: Own,
    /// Sentences on what went wrong and what that means.
    pub(crate) problems: Vec<String>,
}

/// What feeds the daemon.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Sensor {
    /// Best rung that told something in the last window: `samples`, `counters`, `hint-faults` or
    /// `statistics`.
    pub(crate) rung: String,
    /// 0 to 1.
    pub(crate) confidence: f64,
    /// Event table in use.
    pub(crate) generation: String,
    /// Sentences on what cannot be seen here, and why.
    pub(crate) notes: Vec<String>,
}

/// A memory node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) node: u32,
    /// CPUs that are on line.
    pub(crate) cpus: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) free_bytes: Option<u64>,
    /// Drawn from its memory by all nodes.
    pub(crate) load_bytes_per_s: Option<f64>,
    /// What its controller can give.
    pub(crate) capacity_bytes_per_s: Option<f64>,
}

/// A directed link between two nodes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Link {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// 0 to 1.
    pub(crate) use_share: Option<f64>,
    pub(crate) capacity_bytes_per_s: Option<f64>,
}

/// Whether placement matters here: the answer to "is NUMA a factor?".
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Factor {
    /// Share of the CPU time of all managed processes that they lose to distance and queues;
    /// `None` where stalls or latency are not sensed.
    pub(crate) lost_share: Option<f64>,
    /// The same: what it is at least.
    pub(crate) least_lost_share: Option<f64>,
    /// Share of DRAM accesses that stay on their node.
    pub(crate) local_share: Option<f64>,
    /// 100 · standard deviation / mean over the controllers.
    pub(crate) imbalance_percent: Option<f64>,
}

/// What the daemon does with a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// Its memory and threads are placed.
    Managed,
    /// It is looked at, and nothing of it is changed.
    #[default]
    Watched,
    /// Another manager has it, or a rule or a request says so.
    Left,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Seconds since boot; with the number it names the process.
    pub(crate) started_s: f64,
    /// Name of its command.
    pub(crate) name: String,
    /// Its owner.
    pub(crate) user: u32,
    /// Path of its cgroup.
    pub(crate) cgroup: Option<String>,
    pub(crate) state: State,
    /// Why it is in that state, as a sentence.
    pub(crate) why: String,
    /// The managed process that it descends from; itself where that is this one.
    pub(crate) root: u32,
    pub(crate) threads: u32,
    /// Threads by the node that they ran on last, in the order of [`Status::nodes`].
    pub(crate) threads_by_node: Vec<u32>,
    /// 100 is one CPU.
    pub(crate) cpu_percent: f64,
    pub(crate) resident_bytes: u64,
    /// Resident memory by node, in the order of [`Status::nodes`].
    pub(crate) memory_bytes: Option<Vec<u64>>,
    /// DRAM accesses that stay on their node.
    pub(crate) local_share: Option<f64>,
    /// DRAM traffic by `[accessing][holding]`.
    pub(crate) traffic_bytes_per_s: Option<Vec<Vec<f64>>>,
    pub(crate) latency_ns: Option<f64>,
    /// Share of its CPU time that is lost to distance and queues.
    pub(crate) lost_share: Option<f64>,
    pub(crate) least_lost_share: Option<f64>,
    /// What the cost model says that it loses, by cause: shares of the CPU time that its threads
    /// ask for. Empty where neither stalls nor latency are known.
    #[serde(default)]
    pub(crate) lost_by_cause: BTreeMap<String, f64>,
    /// Why it is not touched although it is managed.
    pub(crate) exempt: Option<String>,
    /// Since the daemon manages it.
    pub(crate) moved_bytes: u64,
    pub(crate) moved_threads: u64,
    pub(crate) verdicts: Verdicts,
}

impl Process {
    /// What it loses by cause, in words. Causes that this version does not know are left out.
    pub(crate) fn causes(&self) -> Option<String> {
        let lost = |cause: Cause| Some((cause, 100.0 * self.lost_by_cause.get(&name_of(cause))?));
        causes(CAUSES.into_iter().filter_map(lost))
    }
}

/// A thread of a process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) name: String,
    /// CPU that it ran on last, and that CPU's node.
    pub(crate) cpu: u32,
    pub(crate) node: u32,
    /// CPUs that it may use without us, as the kernel writes lists.
    pub(crate) allowed: String,
    /// 100 is one CPU.
    pub(crate) cpu_percent: f64,
    /// Sampled accesses by holding node, in the order of [`Status::nodes`].
    pub(crate) accesses_by_node: Option<Vec<u32>>,
    pub(crate) exempt: Option<String>,
}

/// Trials that ended, by verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Verdicts {
    pub(crate) better: u64,
    pub(crate) worse: u64,
    pub(crate) unclear: u64,
    /// Void, traded or without a way back.
    pub(crate) other: u64,
}

/// What became of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Event {
    /// A step of a plan was done, or tried: `detail` is its outcome.
    Step,
    /// A proposal was held back: `detail` says why.
    Held,
    /// A trial ended: `detail` is the comparison.
    Judged,
}

/// A decision about a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// Counts up from 1 while the daemon runs.
    pub(crate) number: u64,
    /// Seconds since boot.
    pub(crate) at_s: f64,
    /// `None` of what concerns all processes.
    pub(crate) pid: Option<u32>,
    /// Plan that it is part of.
    pub(crate) plan: u64,
    pub(crate) policy: String,
    pub(crate) event: Event,
    /// `pages`, `replication`, `affinity`, `bulk` or `sampling`.
    pub(crate) kind: String,
    /// What, as a sentence; of a trial its verdict.
    pub(crate) action: String,
    /// Why, as a sentence.
    pub(crate) reason: String,
    pub(crate) detail: String,
}

/// Sums over all processes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// Looks at the managed processes.
    pub(crate) looks: u64,
    pub(crate) plans: u64,
    /// Steps done by kind.
    pub(crate) page_steps: u64,
    pub(crate) thread_steps: u64,
    pub(crate) bulk_steps: u64,
    /// Steps that the kernel refused, or of a process or thread that had ended.
    pub(crate) failed_steps: u64,
    /// Proposals held back.
    pub(crate) held: u64,
    pub(crate) moved_bytes: u64,
    pub(crate) verdicts: Verdicts,
}

impl Status {
    /// Whether it has looked and found no sensor beyond kernel statistics, on which the guard lets
    /// nothing change.
    pub(crate) fn senses_too_little(&self) -> bool {
        self.sensor.rung == STATISTICS && self.sensor.confidence > 0.0
    }
}

/// Another program or setting that places memory or threads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Other {
    /// `numad`, `oeaware`, `memtierd`, `sched_ext`, `damon`, `cache_aware` or `numa_balancing`.
    pub(crate) kind: String,
    pub(crate) pid: Option<u32>,
    /// What it does here, and what the daemon makes of it.
    pub(crate) what: String,
}

/// What the daemon itself costs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Own {
    /// CPU time since it began.
    pub(crate) cpu_s: f64,
    /// Share of one CPU in the last minute.
    pub(crate) cpu_share: f64,
    pub(crate) resident_bytes: u64,
    /// Processes and threads of the machine that it knows of.
    pub(crate) processes_seen: u64,
    /// Processes and threads that it follows.
    pub(crate) processes_followed: u64,
    pub(crate) threads_followed: u64,
}

/// A field of another version may mean something else.
fn known<'d, D: Deserializer<'d>>(reader: D) -> Result<u32, D::Error> {
    match u32::deserialize(reader)? {
        VERSION => Ok(VERSION),
        other => Err(serde::de::Error::custom(format_args!(
            "version {other}, this program reads {VERSION}; use the rondpoint of the daemon"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_speaks_another_version_is_refused_in_one_sentence() {
        let mut status = serde_json::to_value(Status { protocol: VERSION, ..Status::default() });
        let status = status.as_mut().expect("it has text keys");
        let read = |status: &Value| serde_path_to_error::deserialize::<_, Status>(status.clone());
        assert!(read(status).is_ok());
        status["protocol"] = 2.into();
        assert_eq!(
            read(status).unwrap_err().to_string(),
            "protocol: version 2, this program reads 1; use the rondpoint of the daemon"
        );
    }
}
