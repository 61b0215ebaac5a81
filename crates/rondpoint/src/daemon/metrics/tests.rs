//! Tests of the metrics as a whole: their format, labels, units and sums.

use super::*;
use crate::control::protocol::{Factor, Link, Node, Other, Own, Process, Sensor, Totals};
use rondpoint_core::Pid;
use std::time::Instant;

/// A managed process of a tree.
fn process(pid: u32, root: u32) -> Process {
    let traffic_bytes_per_s = Some(vec![vec![3.0, 1.0], vec![0.0, 4.0]]);
    let memory_bytes = Some(vec![5, 6]);
    Process {
        pid,
        root,
        state: State::Managed,
        threads: 2,
        cpu_percent: 50.0,
        resident_bytes: 11,
        lost_share: Some(0.25),
        lost_by_cause: [("remote-dram".to_string(), 0.125), ("coherence".to_string(), 0.0)].into(),
        traffic_bytes_per_s,
        memory_bytes,
        ..Process::default()
    }
}

/// A machine of two nodes where every sensor says something.
fn status() -> Status {
    let (share, rate) = (Some(0.5), Some(1.0));
    let node = |node| Node {
        node,
        memory_bytes: 8,
        free_bytes: Some(3),
        load_bytes_per_s: rate,
        capacity_bytes_per_s: rate,
        ..Node::default()
    };
    Status {
        version: "1.2".to_string(),
        window_s: 1.0,
        latency_ns: Some(100.0),
        acts: true,
        nodes: vec![node(0), node(2)],
        links: vec![Link { from: 0, to: 2, use_share: share, ..Link::default() }],
        traffic_bytes_per_s: Some(vec![vec![1.0, 2.0], vec![3.0, 4.0]]),
        factor: Factor {
            lost_share: Some(0.125),
            least_lost_share: Some(0.0),
            local_share: share,
            imbalance_percent: Some(250.0),
        },
        processes: vec![process(7, 7), process(8, 7), process(9, 9)],
        totals: Totals { looks: 3, held: 9, moved_bytes: 4096, ..Totals::default() },
        own: Own { cpu_s: 1.5, resident_bytes: 77, processes_seen: 400, ..Own::default() },
        ..Status::default()
    }
}

/// Trees 7 and 9 of one service, and what was moved in them.
fn groups() -> Groups {
    let name = || Some(Name::of("a\"b", Some("/system.slice/x.service")));
    let mut groups = Groups::default();
    groups.follow([Pid(7), Pid(9)].into_iter(), |_| name(), Instant::now());
    groups.add(Some(Pid(7)), Moved { bytes: 4096, threads: 2 });
    groups
}

fn shown(status: &Status, groups: &Groups) -> String {
    let failed_steps = [(("affinity", "refused"), 2)].into();
    let failed_steps = &failed_steps;
    text(Shown { status, groups, places: 64, failed_looks: 5, failed_steps }, Format::OpenMetrics)
}

fn samples(text: &str) -> impl Iterator<Item = (&str, f64)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let split = |line: &str| line.rfind(' ').expect("a value");
    lines
        .map(move |line| (&line[..split(line)], line[split(line) + 1..].parse().expect("a number")))
}

#[test]
fn a_cause_is_weighted_by_what_processes_ask_for() {
    let one = |pid, waiting| Process {
        cpu_percent: 100.0,
        lost_by_cause: [("waiting-for-cpu".to_string(), waiting)].into(),
        ..process(pid, 7)
    };
    // One process gets one of four CPUs that it asks for, the other gets its one.
    let status = Status { processes: vec![one(7, 0.75), one(8, 0.0)], ..status() };
    let text = shown(&status, &groups());
    let lost = |name: &str| {
        name.starts_with("rondpoint_tree_lost_cause_ratio{")
            && name.contains("cause=\"waiting-for-cpu\"")
    };
    let found: Vec<f64> = samples(&text).filter(|(name, _)| lost(name)).map(|one| one.1).collect();
    assert_eq!(found, [0.6], "{text}");
}

#[test]
fn what_is_known_is_shown() {
    let text = shown(&status(), &groups());
    let tree = "{unit=\"x.service\",command=\"a\\\"b\"}";
    let of_cause = |cause: &str| tree.replace('}', &format!(",cause=\"{cause}\"}}"));
    for line in [
        "rondpoint_build_info{version=\"1.2\"} 1",
        "rondpoint_acts 1",
        "rondpoint_paused 0",
        "rondpoint_rival_found 0",
        "rondpoint_places 64",
        "rondpoint_managed_trees 2",
        "rondpoint_processes_seen 400",
        "rondpoint_processes_managed 3",
        "rondpoint_own_cpu_seconds_total 1.5",
        "rondpoint_own_resident_bytes 77",
        "rondpoint_looks_total 3",
        "rondpoint_failed_looks_total 5",
        "rondpoint_numa_lost_ratio 0.125",
        "rondpoint_numa_lost_least_ratio 0",
        "rondpoint_controller_imbalance 2.5",
        "rondpoint_memory_latency_seconds 0.0000001",
        "rondpoint_node_free_bytes{node=\"2\"} 3",
        "rondpoint_link_use_ratio{from=\"0\",to=\"2\"} 0.5",
        "rondpoint_traffic_bytes_per_second{accessing=\"2\",holding=\"0\"} 3",
        "rondpoint_failed_steps_total{kind=\"affinity\",cause=\"refused\"} 2",
        "rondpoint_failed_steps_total{kind=\"bulk\",cause=\"gone\"} 0",
        "rondpoint_held_back_total 9",
        "rondpoint_moved_bytes_total 4096",
        &format!("rondpoint_trees{tree} 2"),
        &format!("rondpoint_tree_processes{tree} 3"),
        &format!("rondpoint_tree_threads{tree} 6"),
        &format!("rondpoint_tree_cpus{tree} 1.5"),
        &format!("rondpoint_tree_resident_bytes{tree} 33"),
        &format!("rondpoint_tree_local_accesses_ratio{tree} 0.875"),
        &format!("rondpoint_tree_lost_ratio{tree} 0.25"),
        &format!("rondpoint_tree_lost_cause_ratio{} 0.125", of_cause("remote-dram")),
        &format!("rondpoint_tree_lost_cause_ratio{} 0", of_cause("coherence")),
        &format!("rondpoint_tree_moved_bytes_total{tree} 4096"),
        &format!("rondpoint_tree_moved_threads_total{tree} 2"),
        "rondpoint_tree_node_memory_bytes{unit=\"x.service\",command=\"a\\\"b\",node=\"2\"} 18",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line} is not in\n{text}");
    }
    let is_named = |name: &str| name.contains("pid=") || name.contains("process=");
    assert!(!samples(&text).any(|(name, _)| is_named(name)), "a process number is no label");
    let rival = Other { kind: "numad".to_string(), ..Other::default() };
    let text = shown(&Status { others: vec![rival], paused: true, ..status() }, &groups());
    assert!(
        text.contains("\nrondpoint_rival_found 1\n") && text.contains("\nrondpoint_paused 1\n")
    );
}

#[test]
fn what_is_not_measured_is_absent_and_not_zero() {
    let silent = Process {
        lost_share: None,
        lost_by_cause: BTreeMap::new(),
        traffic_bytes_per_s: None,
        memory_bytes: None,
        ..process(7, 7)
    };
    let node = Node { memory_bytes: 8, ..Node::default() };
    let sensor = Sensor::default();
    let status = Status { nodes: vec![node], processes: vec![silent], sensor, ..Status::default() };
    let text = shown(&status, &groups());
    for name in [
        "numa_lost",
        "local_accesses",
        "imbalance",
        "latency",
        "confidence",
        "node_free",
        "node_load",
        "link_use",
        "traffic",
        "tree_lost",
        "tree_node_memory",
        "own_resident",
    ] {
        assert!(!text.contains(name), "{name} is in\n{text}");
    }
}

#[test]
fn moved_memory_of_a_tree_stays_in_its_counter_when_the_tree_ends() {
    let (mut groups, name) = (groups(), "rondpoint_tree_moved_bytes_total");
    let moved = |groups: &Groups| {
        let text = shown(&Status { processes: Vec::new(), ..status() }, groups);
        samples(&text).filter(|(one, _)| one.starts_with(name)).map(|(_, value)| value).sum::<f64>()
    };
    assert_eq!(moved(&groups), 4096.0);
    groups.follow([].into_iter(), |_| None, Instant::now());
    assert_eq!(moved(&groups), 4096.0);
    // A move of a process whose tree is not known counts too.
    groups.add(None, Moved { bytes: 1, threads: 0 });
    assert_eq!(moved(&groups), 4097.0);
}

/// OpenMetrics 1.0.0: each family has one block with its type, and its unit ends its name. Samples
/// of counters end in `_total`. No sample is there twice, and the text ends with `# EOF`.
#[test]
fn the_text_is_open_metrics() {
    let text = shown(&status(), &groups());
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
    let (mut family, mut kind) = (String::new(), "");
    let (mut families, mut seen) = (Vec::new(), std::collections::BTreeSet::new());
    for line in text.lines().filter(|line| *line != "# EOF") {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                assert!(help.ends_with('.') && !help.contains('\\'), "{line}");
                assert!(!families.contains(&name), "{line}");
                families.push(name);
                family = name.to_string();
            }
            ["#", "TYPE", name, told] => {
                assert_eq!(name, family, "{line}");
                assert!(["counter", "gauge", "info"].contains(&told), "{line}");
                kind = told;
            }
            ["#", "UNIT", name, unit] => {
                assert!(name == family && name.ends_with(&format!("_{unit}")), "{line}");
                let known = ["ratio", "seconds", "bytes", "bytes_per_second"];
                assert!(known.contains(&unit), "{line}");
            }
            _ => {
                let name = line.split(['{', ' ']).next().expect("a name");
                let suffix = match kind {
                    "counter" => "_total",
                    "info" => "_info",
                    _ => "",
                };
                assert_eq!(name, format!("{family}{suffix}"), "{line}");
            }
        }
    }
    for (sample, value) in samples(&text) {
        assert!(seen.insert(sample), "{sample} is there twice");
        let name = sample.split('{').next().expect("a name");
        assert!(!name.ends_with("_ratio") || (0.0..=1.0).contains(&value), "{sample} {value}");
    }
    // What only grows is a counter.
    let grows = |name: &&str| name.contains("moved") || name.contains("cpu_seconds");
    let (text, families) = (&text, families.iter().filter(|name| grows(name)));
    assert!(families.clone().count() >= 4);
    for name in families {
        assert!(text.contains(&format!("# TYPE {name} counter\n")), "{name}");
    }
}

/// The dashboard asks for nothing that a machine with every sensor does not give.
#[test]
fn each_metric_of_the_dashboard_is_there() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana.json");
    let dashboard = std::fs::read_to_string(path).expect("packaging/grafana.json");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let text = shown(&status(), &groups());
    let names: Vec<&str> =
        samples(&text).map(|(sample, _)| sample.split('{').next().expect("a name")).collect();
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut asked = Vec::new();
    for target in targets {
        let expression = target["expr"].as_str().expect("an expression");
        let label = target["legendFormat"].as_str().unwrap_or_default();
        assert!(!expression.contains("pid") && !label.contains("pid"), "{expression} {label}");
        let is_of_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
        for (begin, _) in expression.match_indices("rondpoint_") {
            let name = expression[begin..].split(|one| !is_of_name(one)).next().expect("a name");
            assert!(names.contains(&name), "{name} is not in\n{text}");
            asked.push(name);
        }
    }
    assert!(asked.len() >= 25, "{asked:?}");
    // What an operator opens it for.
    for name in ["numa_lost_ratio", "tree_lost_ratio", "tree_lost_cause_ratio"] {
        assert!(asked.contains(&format!("rondpoint_{name}").as_str()), "{name}: {asked:?}");
    }
}
