//! What no machine can be is refused with file, line, field and expectation.

use rondpoint_machine::{Machine, MachineError};

const BASE: &str = include_str!("base.toml");

/// Replaces `before` in the small machine by `after` and compares the error.
fn check(before: &str, after: &str, expected: &str) {
    assert!(BASE.contains(before), "{before}");
    let text = BASE.replacen(before, after, 1);
    match Machine::parse(&text, "small.toml") {
        Ok(_) => panic!("accepted {after}"),
        Err(error) => assert_eq!(error.to_string(), expected, "{after}"),
    }
}

#[test]
fn the_base_itself_is_good() {
    if let Err(error) = Machine::parse(BASE, "small.toml") {
        panic!("{error}");
    }
}

#[test]
fn unknown_missing_and_mistyped_keys() {
    check(
        "depth = 4",
        "deepth = 4",
        "small.toml:19: prefetch.deepth: unknown field `deepth`, expected `streams` or `depth`",
    );
    check(
        "count = 2\n",
        "count = 2\ncpu = 3\n",
        "small.toml:23: nodes[0].cpu: unknown field `cpu`, expected one of `count`, `cpus`, `cache_domains`, `memory`, `controller`",
    );
    check("clock_mhz = 2000\n", "", "small.toml:6: core: missing field `clock_mhz`");
    check(
        "cpus = 4",
        "cpus = \"four\"",
        "small.toml:23: nodes[0].cpus: invalid type: string \"four\", expected u32",
    );
    check(
        "cpus = 4",
        "cpus = -4",
        "small.toml:23: nodes[0].cpus: invalid value: integer `-4`, expected u32",
    );
    check(
        "\"4G\"",
        "\"4X\"",
        "small.toml:24: nodes[0].memory: expected a size like \"512K\", \"16G\" or a number of bytes, got \"4X\"",
    );
    check(
        "vendor = \"intel\"",
        "vendor = \"via\"",
        "small.toml:44: pmu.vendor: unknown variant `via`, expected one of `intel`, `amd`, `arm`",
    );
    check(
        "vendor = \"intel\"",
        "vendor = \"intel\"\nprocessor = \"amd-zen4\"",
        "small.toml:45: pmu.processor: expected a processor of the vendor, got amd-zen4",
    );
    check(
        "remote_ns = 80",
        "remote_ns = 80\nforwards_clean = 1",
        "small.toml:41: transfer.forwards_clean: invalid type: integer `1`, expected a boolean",
    );
    check("[pmu]", "[pmu", "small.toml:42: unclosed table, expected `]`");
}

#[test]
fn bandwidths_and_latencies_that_cannot_be() {
    let link = "between = [0, 1], bandwidth_mb_s = 9000";
    let field = "small.toml:34: interconnect.links[0].bandwidth_mb_s";
    for (value, said) in [("0", "0"), ("-5", "-5"), ("nan", "NaN"), ("inf", "inf")] {
        let after = format!("between = [0, 1], bandwidth_mb_s = {value}");
        check(
            link,
            &after,
            &format!("{field}: expected a number above 0 and up to 1e9, got {said}"),
        );
    }
    check(
        "latency_ns = 150",
        "latency_ns = -1",
        "small.toml:29: nodes[1].controller.latency_ns: expected a number above 0 and up to 1e9, got -1",
    );
    check(
        "hop_ns = 50",
        "hop_ns = 0",
        "small.toml:32: interconnect.hop_ns: expected a number above 0 and up to 1e9, got 0",
    );
    check(
        "hop_ns = 50\n",
        "",
        "small.toml:31: interconnect: expected hop_ns, a latency_ns for each link, or a latency_ns matrix",
    );
    check(
        "remote_ns = 80\n",
        "",
        "small.toml:38: transfer: expected remote_ns or matrix_ns between nodes",
    );
}

#[test]
fn topologies_that_cannot_be() {
    check(
        "[1, 2]",
        "[1, 3]",
        "small.toml:35: interconnect.links[1].between: expected a node from 0 to 2, got 3",
    );
    check(
        "between = [1, 2]",
        "from = 1, to = 7",
        "small.toml:35: interconnect.links[1].to: expected a node from 0 to 2, got 7",
    );
    check(
        "between = [1, 2]",
        "between = [1, 2], to = 2",
        "small.toml:35: interconnect.links[1]: expected either `between = [a, b]` or `from` and `to`",
    );
    check(
        "[1, 2]",
        "[1, 1]",
        "small.toml:35: interconnect.links[1]: expected a link between two nodes, got node 1 twice",
    );
    check(
        "[1, 2]",
        "[1, 0]",
        "small.toml:35: interconnect.links[1]: expected one link from node 1 to node 0, got a second",
    );
    check(
        "between = [1, 2]",
        "from = 1, to = 2",
        "small.toml:31: interconnect: expected links from node 2 to node 0, got no route",
    );
    check(
        "count = 2\ncpus = 4\nmemory = \"4G\"\n",
        "count = 2\n",
        "small.toml:21: nodes[0]: expected a node with CPUs or memory or both, got neither",
    );
    check(
        "memory = \"8G\"\n",
        "cpus = 4\n",
        "small.toml:29: nodes[1].controller: expected none on a node without memory",
    );
    check(
        "controller = { bandwidth_mb_s = 10000, latency_ns = 150, burst_latency_ns = 80 }\n",
        "",
        "small.toml:27: nodes[1].controller: expected one: the node has memory",
    );
    check(
        "cpus = 4",
        "cpus = 4\ncache_domains = 3",
        "small.toml:24: nodes[0].cache_domains: expected a divisor of the node's 4 CPUs, got 3",
    );
    check("count = 2", "count = 0", "small.toml:22: nodes[0].count: expected 1 to 64, got 0");
    check("count = 2", "count = 64", "small.toml:21: nodes: expected 1 to 64 nodes, got 65");
}

#[test]
fn caches_that_cannot_be() {
    check(
        "\"8M\"",
        "\"128K\"",
        "small.toml:15: caches.llc.size: expected at least the 262144 bytes of l2, got 131072",
    );
    check(
        "\"32K\"",
        "1000",
        "small.toml:13: caches.l1.size: expected a multiple of 512 bytes (8 ways of 64-byte lines) up to 4G, got 1000",
    );
    check("ways = 16", "ways = 0", "small.toml:15: caches.llc.ways: expected 1 to 128, got 0");
    check(
        "latency_ns = 20 }",
        "latency_ns = 3 }",
        "small.toml:15: caches.llc.latency_ns: expected at least l2's 6 ns, got 3",
    );
}

#[test]
fn routes_that_cannot_be() {
    let declare = |route: &str, expected: &str| {
        check("[transfer]", &format!("[[interconnect.routes]]\n{route}\n\n[transfer]"), expected);
    };
    declare(
        "accessing = 2\nholding = 0",
        "small.toml:38: interconnect.routes[0].via: expected links that connect, got none from node 0 to node 2",
    );
    declare(
        "accessing = 2\nholding = 0\nvia = [9]",
        "small.toml:41: interconnect.routes[0].via[0]: expected a node from 0 to 2, got 9",
    );
    declare(
        "accessing = 2\nholding = 0\nvia = [1, 0, 1]",
        "small.toml:38: interconnect.routes[0]: expected a way from node 0 to node 2 that passes no node twice",
    );
    declare(
        "accessing = 0\nholding = 0",
        "small.toml:38: interconnect.routes[0]: expected a way from node 0 to node 0 that passes no node twice",
    );
    declare(
        "accessing = 1\nholding = 0\nlimit_mb_s = 9001",
        "small.toml:41: interconnect.routes[0].limit_mb_s: expected at most the 9000 of its links, got 9001",
    );
}

#[test]
fn matrices_of_the_wrong_shape_or_content() {
    let matrix = |table: &str, expected: &str| {
        check("[transfer]", &format!("{table}\n\n[transfer]"), expected);
    };
    matrix(
        "distances = [[10, 20], [20, 10]]",
        "small.toml:38: interconnect.distances: expected 3 rows, one for each node, got 2",
    );
    matrix(
        "distances = [\n[10, 20, 20],\n[20, 10],\n[20, 20, 10]]",
        "small.toml:40: interconnect.distances[1]: expected 3 numbers, one for each node, got 2",
    );
    matrix(
        "distances = [\n[10, 20, 20],\n[20, 11, 20],\n[20, 20, 10]]",
        "small.toml:40: interconnect.distances[1][1]: expected 10 on the diagonal, 10 to 254 elsewhere, got 11",
    );
    matrix(
        "latency_ns = [\n[80, 130, 200],\n[130, 80, 200],\n[250, 200, 149]]",
        "small.toml:41: interconnect.latency_ns[2][2]: expected the controller's 150, got 149",
    );
    matrix(
        "bandwidth_mb_s = [[0]]",
        "small.toml:33: interconnect.links: expected either links or a bandwidth matrix, got both",
    );
}

const LINKS: &str = "links = [\n  { between = [0, 1], bandwidth_mb_s = 9000 },\n  { between = [1, 2], bandwidth_mb_s = 9000 },\n]\n";

#[test]
fn a_two_hop_pair_cannot_reach_more_than_its_hops() {
    let matrix = "distances = [[10, 16, 22], [16, 10, 16], [22, 16, 10]]\nbandwidth_mb_s = [\n[0, 5, 4],\n[5, 0, 5],\n[6, 5, 0]]\n";
    check(
        LINKS,
        matrix,
        "small.toml:37: interconnect.bandwidth_mb_s[2][0]: expected at most 5, the widest way over one-hop links, got 6",
    );
    check(
        LINKS,
        &matrix.replace("[6,", "[0,"),
        "small.toml:37: interconnect.bandwidth_mb_s[2][0]: expected a number above 0 and up to 1e9, got 0",
    );
    let text = BASE.replacen(LINKS, &matrix.replace("[6,", "[3,"), 1);
    let machine = Machine::parse(&text, "small.toml").unwrap();
    assert_eq!((machine.hops(2, 0), machine.routes[2][0].limit_mb_s), (2, Some(3.0)));
    assert_eq!((machine.links.len(), machine.bandwidth_mb_s(2, 0)), (4, 3.0));
}

#[test]
fn labs_that_cannot_be() {
    check(
        "cpus_per_node = 2",
        "cpus_per_node = 0",
        "small.toml:50: lab.cpus_per_node: expected 1 to 24, got 0",
    );
    let many = BASE.replacen("cpus = 4", "cpus = 16", 1).replacen(
        "cpus_per_node = 2",
        "cpus_per_node = 13",
        1,
    );
    let error = Machine::parse(&many, "small.toml").unwrap_err().to_string();
    assert_eq!(error, "small.toml:50: lab.cpus_per_node: expected at most 24 vCPUs in all, got 26");
    check(
        "slow_motion = 10",
        "slow_motion = 0.5",
        "small.toml:49: lab.slow_motion: expected a number from 1 to 1000, got 0.5",
    );
    check(
        "cache_scale = 8",
        "cache_scale = 64",
        "small.toml:52: lab.cache_scale: expected a last-level cache no smaller than the second level, got 131072 and 262144 bytes after scaling",
    );
    check(
        "memory_mib = 256",
        "memory_mib = 1",
        "small.toml:51: lab.memory_mib: expected 32 to 67108864, got 1",
    );
    check(
        "quantum_ns = 20000",
        "quantum_ns = 1",
        "small.toml:53: lab.quantum_ns: expected 100 to 1000000, got 1",
    );
}

#[test]
fn the_lab_refuses_cpus_that_ask_for_too_little() {
    let weak = BASE.replacen("outstanding_misses = 10", "outstanding_misses = 1", 1);
    let machine = Machine::parse(&weak, "small.toml").unwrap();
    let MachineError::CannotSaturate { report, .. } = machine.for_lab().unwrap_err() else {
        panic!("another error");
    };
    let text = report.to_string();
    // 2 CPUs * 64 B / 160 ns from node 0 itself, / 210 ns from node 1; a tenth of it in slow
    // motion.
    assert!(
        text.contains("  controller 0, all CPUs: 141 of 1000 MB/s (0.14x), too little"),
        "{text}"
    );
    // 2 CPUs * 5 lines * 64 B / (130 + 80 * 0.45 ns), prefetches included.
    assert!(text.contains("  node 1 from node 0: 386 of 450 MB/s (0.86x), too little"), "{text}");
}

#[test]
fn a_file_without_a_lab_table_is_good_but_not_for_the_lab() {
    let (text, _) = BASE.split_once("[lab]").unwrap();
    let machine = Machine::parse(text, "small.toml").unwrap();
    let said = machine.for_lab().unwrap_err().to_string();
    assert_eq!(said, "machine small cannot run in the lab: its file has no [lab] table");
    assert_eq!(Machine::parse(&machine.to_toml(), "again").unwrap(), machine);
}

#[test]
fn a_file_that_is_not_there() {
    let said = Machine::load(std::path::Path::new("/nowhere/m.toml")).unwrap_err().to_string();
    assert!(said.starts_with("cannot read machine file /nowhere/m.toml: "), "{said}");
}

#[test]
fn synthetic_words_that_mean_nothing() {
    for (text, expected) in [
        ("nodes", "synthetic machine: nodes: expected key=value"),
        ("nodes=two", "synthetic machine: nodes=two: expected a whole number"),
        ("memory=2Q", "synthetic machine: memory=2Q: expected a size like 2G"),
        ("shape=torus", "synthetic machine: shape=torus: expected full, ring, line or star"),
        ("nodes=60 memory_only=5", "synthetic machine: nodes: expected 1 to 64 nodes, got 65"),
        (
            "link=0",
            "synthetic machine: interconnect.links[0].bandwidth_mb_s: expected a number above 0 and up to 1e9, got 0",
        ),
    ] {
        assert_eq!(Machine::synthetic(text).unwrap_err().to_string(), expected, "{text}");
    }
    let said = Machine::synthetic("colour=red").unwrap_err().to_string();
    assert!(said.starts_with("synthetic machine: colour=red: expected one of nodes, "), "{said}");
}
