//! The state as OpenMetrics text. Names and labels are in docs/daemon.md; a change of one breaks
//! dashboards.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::control::protocol::{Mode, Process, State, Status, Totals};

type Number = Gauge<f64, AtomicU64>;

/// Pairs of a label's name and its value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Labels(Vec<(&'static str, String)>);

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.iter().try_for_each(|pair| {
            prometheus_client::encoding::EncodeLabel::encode(pair, encoder.encode_label())
        })
    }
}

/// The whole text, with its end.
pub(super) fn text(status: &Status, totals: Totals) -> String {
    let mut registry = Registry::with_prefix("rondpoint");
    daemon(&mut registry, status);
    machine(&mut registry, status);
    processes(&mut registry, status);
    decisions(&mut registry, totals);
    let mut text = String::new();
    // Writing into a text does not fail.
    let _ = encode(&mut text, &registry);
    text
}

fn gauge(registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>, value: f64) {
    let gauge = Number::default();
    gauge.set(value);
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, gauge),
        None => registry.register(name, help, gauge),
    }
}

/// A gauge with labels; nothing where there is no value.
fn family(
    registry: &mut Registry,
    (name, help): (&str, &str),
    unit: Option<Unit>,
    values: impl Iterator<Item = (Vec<(&'static str, String)>, Option<f64>)>,
) {
    let family = Family::<Labels, Number>::default();
    let mut is_empty = true;
    for (labels, value) in values {
        let Some(value) = value else { continue };
        is_empty = false;
        family.get_or_create(&Labels(labels)).set(value);
    }
    match unit {
        _ if is_empty => {}
        Some(unit) => registry.register_with_unit(name, help, unit, family),
        None => registry.register(name, help, family),
    }
}

fn daemon(registry: &mut Registry, status: &Status) {
    let acts = status.mode == Mode::Act && !status.paused;
    gauge(registry, "acts", "1 where the daemon may change something", None, f64::from(acts));
    let own = &status.own;
    let help = "CPU time of the daemon";
    registry.register_with_unit("own_cpu", help, Unit::Seconds, ConstCounter::new(own.cpu_s));
    let bytes = own.resident_bytes as f64;
    gauge(registry, "own_resident", "Memory of the daemon", Some(Unit::Bytes), bytes);
    let seen = own.processes_seen as f64;
    gauge(registry, "processes_seen", "Processes of the machine", None, seen);
    let followed = own.processes_followed as f64;
    gauge(registry, "processes_followed", "Processes that are watched closely", None, followed);
    let threads = own.threads_followed as f64;
    gauge(registry, "threads_followed", "Threads that are watched closely", None, threads);
    let confidence = status.sensor.confidence;
    let help = "How far the last window is to be trusted, 0 to 1";
    gauge(registry, "confidence", help, Some(Unit::Ratios), confidence);
}

fn machine(registry: &mut Registry, status: &Status) {
    let factor = &status.factor;
    for (name, help, value) in [
        (
            "numa_lost",
            "Is NUMA a factor here: share of the managed processes' CPU time lost to placement",
            factor.lost_share,
        ),
        ("numa_lost_least", "Lower bound of numa_lost", factor.least_lost_share),
        ("local_accesses", "Share of DRAM accesses that stay on their node", factor.local_share),
    ] {
        if let Some(value) = value {
            gauge(registry, name, help, Some(Unit::Ratios), value);
        }
    }
    if let Some(percent) = factor.imbalance_percent {
        let help = "Standard deviation over mean of the controllers' load";
        gauge(registry, "controller_imbalance", help, Some(Unit::Ratios), percent / 100.0);
    }
    if let Some(ns) = status.latency_ns {
        let help = "Mean latency of a DRAM access";
        gauge(registry, "memory_latency", help, Some(Unit::Seconds), ns / 1e9);
    }
    let of = |node: u32| vec![("node", node.to_string())];
    let nodes = || status.nodes.iter();
    let memory = nodes().map(|one| (of(one.node), Some(one.memory_bytes as f64)));
    family(registry, ("node_memory", "Memory of a node"), Some(Unit::Bytes), memory);
    let free = nodes().map(|one| (of(one.node), one.free_bytes.map(|bytes| bytes as f64)));
    family(registry, ("node_free", "Free memory of a node"), Some(Unit::Bytes), free);
    let load = nodes().map(|one| (of(one.node), one.load_bytes_per_s));
    let help = "Bytes per second drawn from a node's memory";
    family(registry, ("node_load_bytes_per_second", help), None, load);
    let capacity = nodes().map(|one| (of(one.node), one.capacity_bytes_per_s));
    let help = "Bytes per second that a node's controller can give";
    family(registry, ("node_capacity_bytes_per_second", help), None, capacity);
    let links = status.links.iter().map(|link| {
        (vec![("from", link.from.to_string()), ("to", link.to.to_string())], link.use_share)
    });
    family(registry, ("link_use", "Use of a directed link"), Some(Unit::Ratios), links);
    let traffic = status.traffic_bytes_per_s.iter().flat_map(|rows| {
        rows.iter().enumerate().flat_map(move |(from, row)| {
            row.iter().enumerate().map(move |(to, rate)| (from, to, *rate))
        })
    });
    let traffic = traffic.map(|(from, to, rate)| {
        let node = |index: usize| status.nodes[index].node.to_string();
        (vec![("accessing", node(from)), ("holding", node(to))], Some(rate))
    });
    let help = "Bytes per second by accessing and holding node";
    family(registry, ("traffic_bytes_per_second", help), None, traffic);
}

fn processes(registry: &mut Registry, status: &Status) {
    let shown = || status.processes.iter().filter(|process| process.state != State::Left);
    let labels = |process: &Process| {
        vec![("pid", process.pid.to_string()), ("command", process.name.clone())]
    };
    for state in [State::Managed, State::Watched, State::Left] {
        let count = status.processes.iter().filter(|process| process.state == state).count();
        let (name, help) = match state {
            State::Managed => ("processes_managed", "Processes that are placed"),
            State::Watched => ("processes_watched", "Processes that are only looked at"),
            State::Left => ("processes_left", "Large processes that are left alone"),
        };
        gauge(registry, name, help, None, count as f64);
    }
    type Get = fn(&Process) -> Option<f64>;
    let gauges: [(&str, &str, Option<Unit>, Get); 7] = [
        ("process_cpus", "CPUs that a process uses", None, |one| Some(one.cpu_percent / 100.0)),
        ("process_resident", "Resident memory of a process", Some(Unit::Bytes), |one| {
            Some(one.resident_bytes as f64)
        }),
        (
            "process_local_accesses",
            "Share of a process's DRAM accesses that stay on their node",
            Some(Unit::Ratios),
            |one| one.local_share,
        ),
        (
            "process_lost",
            "Share of a process's CPU time lost to placement",
            Some(Unit::Ratios),
            |one| one.lost_share,
        ),
        ("process_moved", "Memory moved for a process", Some(Unit::Bytes), |one| {
            Some(one.moved_bytes as f64)
        }),
        ("process_moved_threads", "Masks given to threads of a process", None, |one| {
            Some(one.moved_threads as f64)
        }),
        ("process_threads", "Threads of a process", None, |one| Some(f64::from(one.threads))),
    ];
    for (name, help, unit, get) in gauges {
        family(registry, (name, help), unit, shown().map(|one| (labels(one), get(one))));
    }
    let memory = shown().flat_map(|process| {
        let nodes = process.memory_bytes.iter().flatten().zip(&status.nodes);
        nodes.map(move |(bytes, node)| {
            let mut all = labels(process);
            all.push(("node", node.node.to_string()));
            (all, Some(*bytes as f64))
        })
    });
    let name = ("process_node_memory", "Resident memory of a process on a node");
    family(registry, name, Some(Unit::Bytes), memory);
}

fn decisions(registry: &mut Registry, totals: Totals) {
    let counts = [
        ("looks", "Looks at the managed processes", totals.looks),
        ("plans", "Plans that changed something", totals.plans),
        ("page_steps", "Steps that moved pages", totals.page_steps),
        ("thread_steps", "Masks given to threads", totals.thread_steps),
        ("bulk_steps", "Steps that moved the memory of whole processes", totals.bulk_steps),
        (
            "failed_steps",
            "Steps that the kernel refused, or whose process or thread had ended",
            totals.failed_steps,
        ),
        ("held_back", "Proposals that the guard held back", totals.held),
        ("moved_bytes", "Bytes of memory moved", totals.moved_bytes),
        ("verdicts_better", "Trials that ended better", totals.verdicts.better),
        ("verdicts_worse", "Trials that ended worse and were taken back", totals.verdicts.worse),
        ("verdicts_unclear", "Trials without a clear difference", totals.verdicts.unclear),
        ("verdicts_other", "Trials that were void or traded", totals.verdicts.other),
    ];
    for (name, help, count) in counts {
        registry.register(name, help, ConstCounter::new(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{Factor, Link, Node};

    #[test]
    fn what_is_known_is_shown_and_what_is_not_is_absent() {
        let node = |node| Node { node, memory_bytes: 8, free_bytes: Some(3), ..Node::default() };
        let process = Process {
            pid: 7,
            name: "a\"b".to_string(),
            state: State::Managed,
            lost_share: Some(0.25),
            memory_bytes: Some(vec![5, 6]),
            ..Process::default()
        };
        let status = Status {
            nodes: vec![node(0), node(2)],
            links: vec![Link { from: 0, to: 2, use_share: Some(0.5), ..Link::default() }],
            traffic_bytes_per_s: Some(vec![vec![1.0, 2.0], vec![3.0, 4.0]]),
            factor: Factor { lost_share: Some(0.125), ..Factor::default() },
            processes: vec![process],
            ..Status::default()
        };
        let text = text(&status, Totals { held: 9, ..Totals::default() });
        for line in [
            "rondpoint_numa_lost_ratios 0.125",
            "rondpoint_node_free_bytes{node=\"2\"} 3.0",
            "rondpoint_link_use_ratios{from=\"0\",to=\"2\"} 0.5",
            "rondpoint_traffic_bytes_per_second{accessing=\"2\",holding=\"0\"} 3.0",
            "rondpoint_process_lost_ratios{pid=\"7\",command=\"a\\\"b\"} 0.25",
            "rondpoint_process_node_memory_bytes{pid=\"7\",command=\"a\\\"b\",node=\"2\"} 6.0",
            "rondpoint_processes_managed 1.0",
            "rondpoint_held_back_total 9",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(!text.contains("numa_lost_least") && !text.contains("node_load"), "{text}");
    }

    /// The dashboard asks for nothing that a machine with every sensor does not give.
    #[test]
    fn each_metric_of_the_dashboard_is_there() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana.json");
        let dashboard = std::fs::read_to_string(path).expect("packaging/grafana.json");
        let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
        let (share, rate) = (Some(0.5), Some(1.0));
        let status = Status {
            nodes: vec![Node {
                free_bytes: Some(1),
                load_bytes_per_s: rate,
                capacity_bytes_per_s: rate,
                ..Node::default()
            }],
            links: vec![Link { use_share: share, ..Link::default() }],
            traffic_bytes_per_s: Some(vec![vec![1.0]]),
            factor: Factor { lost_share: share, local_share: share, ..Factor::default() },
            processes: vec![Process {
                lost_share: share,
                memory_bytes: Some(vec![1]),
                ..Process::default()
            }],
            ..Status::default()
        };
        let text = text(&status, Totals::default());
        let panels = dashboard["panels"].as_array().expect("panels");
        let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
        let mut asked = 0;
        for target in targets {
            let expression = target["expr"].as_str().expect("an expression");
            let begin = expression.find("rondpoint_").expect("one of ours");
            let name: String = expression[begin..]
                .chars()
                .take_while(|one| one.is_ascii_alphanumeric() || *one == '_')
                .collect();
            let is_there = |line: &str| line.starts_with(&name) && !line.starts_with('#');
            assert!(text.lines().any(is_there), "{name} is not in\n{text}");
            asked += 1;
        }
        assert!(asked >= 20, "{asked}");
    }
}
