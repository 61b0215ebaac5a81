//! The state as metrics. Names and labels are in docs/daemon.md; a change of one breaks dashboards.
//!
//! Values have base units: seconds and bytes. A ratio is between 0 and 1. What is not measured has
//! no sample.

mod groups;
#[cfg(test)]
mod tests;
mod text;
mod trees;

use std::collections::BTreeMap;

pub(super) use self::groups::{Groups, Moved, Name};
pub(super) use self::text::Format;
use self::text::{Family, Kind, Labels};
use crate::control::protocol::{State, Status};
use crate::others::is_rival;

const RATIO: Option<&str> = Some("ratio");
const SECONDS: Option<&str> = Some("seconds");
const BYTES: Option<&str> = Some("bytes");
const BYTES_PER_S: Option<&str> = Some("bytes_per_second");

/// Kinds of steps that change something.
const STEPS: [&str; 4] = ["pages", "replication", "affinity", "bulk"];
/// Why a step failed.
const CAUSES: [&str; 3] = ["gone", "unsupported", "refused"];

/// Steps that failed, by kind and cause.
pub(super) type FailedSteps = BTreeMap<(&'static str, &'static str), u64>;

/// What is shown.
#[derive(Clone, Copy)]
pub(super) struct Shown<'a> {
    /// Of all users.
    pub(super) status: &'a Status,
    pub(super) groups: &'a Groups,
    /// Trees that may be managed at a time.
    pub(super) places: usize,
    pub(super) failed_looks: u64,
    pub(super) failed_steps: &'a FailedSteps,
}

/// The whole text.
pub(super) fn text(shown: Shown<'_>, format: Format) -> String {
    let status = shown.status;
    let mut families = daemon(shown);
    families.extend(machine(status));
    families.extend(nodes(status));
    families.extend(trees::families(status, shown.groups));
    families.extend(decisions(shown));
    text::write(&families, format)
}

type Unit = Option<&'static str>;

/// A gauge without labels.
fn gauge(name: &'static str, unit: Unit, help: &'static str, value: Option<f64>) -> Family {
    let samples = value.into_iter().map(|value| (Labels::new(), value)).collect();
    Family { kind: Kind::Gauge, name, unit, help, samples }
}

/// A counter without labels.
fn counter(name: &'static str, unit: Unit, help: &'static str, value: f64) -> Family {
    Family { kind: Kind::Counter, ..gauge(name, unit, help, Some(value)) }
}

/// Gauges with labels; no sample where there is no value.
fn gauges(
    (name, unit, help): (&'static str, Unit, &'static str),
    values: impl Iterator<Item = (Labels, Option<f64>)>,
) -> Family {
    let samples = values.filter_map(|(labels, value)| Some((labels, value?))).collect();
    Family { kind: Kind::Gauge, name, unit, help, samples }
}

fn daemon(Shown { status, groups, places, failed_looks, .. }: Shown<'_>) -> Vec<Family> {
    let own = &status.own;
    let version = vec![("version", status.version.clone())];
    let is = |holds: bool| Some(f64::from(holds));
    let count = |value: u64| Some(value as f64);
    let in_state = |state| {
        let them = status.processes.iter().filter(|process| process.state == state);
        Some(them.count() as f64)
    };
    // Before the first window, and while no process is managed, there is nothing to be trusted.
    let confidence = (status.window_s > 0.0).then_some(status.sensor.confidence);
    // Memory that cannot be read is 0 in the state.
    let resident = Some(own.resident_bytes as f64).filter(|bytes| *bytes > 0.0);
    vec![
        Family {
            kind: Kind::Info,
            name: "build",
            unit: None,
            help: "The program that the daemon runs.",
            samples: vec![(version, 1.0)],
        },
        gauge("acts", None, "1 if the daemon may change something now, else 0.", is(status.acts)),
        gauge("paused", None, "1 if the daemon was told to pause, else 0.", is(status.paused)),
        gauge(
            "rival_found",
            None,
            "1 if another manager of placement runs, for which the daemon changes nothing.",
            is(status.others.iter().any(is_rival)),
        ),
        gauge(
            "problems",
            None,
            "Sentences of rondpoint status on what went wrong.",
            Some(status.problems.len() as f64),
        ),
        counter("own_cpu", SECONDS, "CPU time of the daemon.", own.cpu_s),
        gauge("own_resident", BYTES, "Resident memory of the daemon.", resident),
        gauge(
            "managed_trees",
            None,
            "Process trees that are managed or watched.",
            Some(groups.trees() as f64),
        ),
        gauge("places", None, "Trees that may be managed at a time.", Some(places as f64)),
        gauge("processes_seen", None, "Processes of the machine.", count(own.processes_seen)),
        gauge(
            "processes_followed",
            None,
            "Processes in the last window.",
            count(own.processes_followed),
        ),
        gauge("threads_followed", None, "Threads in the last window.", count(own.threads_followed)),
        gauge("processes_managed", None, "Processes that are placed.", in_state(State::Managed)),
        gauge(
            "processes_watched",
            None,
            "Processes that are looked at and not changed.",
            in_state(State::Watched),
        ),
        gauge("processes_left", None, "Processes that are left alone.", in_state(State::Left)),
        gauge("confidence", RATIO, "How far the last window is to be trusted.", confidence),
        counter("looks", None, "Looks at the managed processes.", status.totals.looks as f64),
        counter("failed_looks", None, "Looks that failed.", failed_looks as f64),
    ]
}

fn machine(status: &Status) -> Vec<Family> {
    let factor = &status.factor;
    let imbalance = factor.imbalance_percent.map(|percent| percent / 100.0);
    vec![
        gauge(
            "numa_lost",
            RATIO,
            "Is NUMA a factor here: share of the managed CPU time that placement loses.",
            factor.lost_share,
        ),
        gauge(
            "numa_lost_least",
            RATIO,
            "Lower bound of rondpoint_numa_lost_ratio.",
            factor.least_lost_share,
        ),
        gauge(
            "local_accesses",
            RATIO,
            "Share of DRAM accesses that stay on their node.",
            factor.local_share,
        ),
        // Above 1 where one of many controllers has all the load.
        gauge(
            "controller_imbalance",
            None,
            "Standard deviation of the load of memory controllers, over its mean.",
            imbalance,
        ),
        gauge(
            "memory_latency",
            SECONDS,
            "Mean latency of a DRAM access.",
            status.latency_ns.map(|ns| ns / 1e9),
        ),
    ]
}

fn nodes(status: &Status) -> Vec<Family> {
    let of = |node: u32| vec![("node", node.to_string())];
    let nodes = || status.nodes.iter();
    let links = status.links.iter().map(|link| {
        (vec![("from", link.from.to_string()), ("to", link.to.to_string())], link.use_share)
    });
    let cells = status.traffic_bytes_per_s.iter().flat_map(|rows| {
        rows.iter()
            .enumerate()
            .flat_map(|(from, row)| row.iter().enumerate().map(move |(to, rate)| (from, to, *rate)))
    });
    let traffic = cells.map(|(from, to, rate)| {
        let node = |index: usize| status.nodes[index].node.to_string();
        (vec![("accessing", node(from)), ("holding", node(to))], Some(rate))
    });
    vec![
        gauges(
            ("node_memory", BYTES, "Memory of a node."),
            nodes().map(|one| (of(one.node), Some(one.memory_bytes as f64))),
        ),
        gauges(
            ("node_free", BYTES, "Free memory of a node."),
            nodes().map(|one| (of(one.node), one.free_bytes.map(|bytes| bytes as f64))),
        ),
        gauges(
            ("node_load", BYTES_PER_S, "Rate at which all nodes draw from the memory of a node."),
            nodes().map(|one| (of(one.node), one.load_bytes_per_s)),
        ),
        gauges(
            ("node_capacity", BYTES_PER_S, "Rate that the controller of a node can give."),
            nodes().map(|one| (of(one.node), one.capacity_bytes_per_s)),
        ),
        gauges(("link_use", RATIO, "Use of a directed link."), links),
        gauges(("traffic", BYTES_PER_S, "Rate by accessing and holding node."), traffic),
    ]
}

fn decisions(Shown { status, failed_steps, .. }: Shown<'_>) -> Vec<Family> {
    let totals = &status.totals;
    let verdicts = &totals.verdicts;
    let pairs = STEPS.iter().flat_map(|kind| CAUSES.iter().map(move |cause| (*kind, *cause)));
    let failed = pairs.map(|(kind, cause)| {
        let labels = vec![("kind", kind.to_string()), ("cause", cause.to_string())];
        (labels, failed_steps.get(&(kind, cause)).copied().unwrap_or(0) as f64)
    });
    let count = |name, help, value: u64| counter(name, None, help, value as f64);
    vec![
        count("plans", "Plans that changed something.", totals.plans),
        count("page_steps", "Steps that moved or replicated pages.", totals.page_steps),
        count("thread_steps", "Masks given to threads.", totals.thread_steps),
        count("bulk_steps", "Steps that moved all memory of a process.", totals.bulk_steps),
        Family {
            kind: Kind::Counter,
            name: "failed_steps",
            unit: None,
            help: "Steps that failed, by kind and cause.",
            samples: failed.collect(),
        },
        count("held_back", "Proposals that the guard held back.", totals.held),
        counter("moved", BYTES, "Memory that was moved.", totals.moved_bytes as f64),
        count("verdicts_better", "Trials that ended better.", verdicts.better),
        count("verdicts_worse", "Trials that ended worse and were taken back.", verdicts.worse),
        count("verdicts_unclear", "Trials without a clear difference.", verdicts.unclear),
        count("verdicts_other", "Trials that were void or traded.", verdicts.other),
    ]
}
