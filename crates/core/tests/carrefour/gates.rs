//! Step 1 of Carrefour: thresholds from both sides, in every preset that differs (ALGORITHMS 0.3
//! and 1.4).

use super::notation::{imbalance, mechanisms};
use rondpoint_core::model::Deviation;
use rondpoint_core::policy::carrefour::gates::scaled_limit;
use rondpoint_core::policy::carrefour::preset::{FINAL, LP};
use rondpoint_core::topology::{Topology, synthetic};

const A: &str = "node:4 core:4";

fn on(preset: &str, lines: &str) -> String {
    mechanisms(preset, &format!("{A}\n{lines}"))
}

#[test]
fn traffic_must_exceed_fifty_requests_a_microsecond_of_machine_a() {
    assert_eq!(on("final", "load 12.5 12.5 12.5 12.5\napp 1"), "50.0 DRAM requests/µs, limit 50.0");
    assert_eq!(on("final", "load 12.6 12.5 12.5 12.5\napp 1"), "co-location");
    // The author code takes the machine's total and lets exactly 50 pass.
    assert_eq!(on("code", "load 12.5 12.5 12.5 12.5\napp 1"), "co-location");
    assert_eq!(on("code", "load 12.4 12.5 12.5 12.5\napp 1"), "49.9 DRAM requests/µs, limit 50.0");
    // Carrefour-LP: 15 per node.
    assert_eq!(on("lp", "load 15 15 15 15\napp 1"), "co-location");
    assert_eq!(on("lp", "load 15 15 15 14\napp 1"), "14.8 DRAM requests/µs, limit 15.0");
}

#[test]
fn the_traffic_limit_is_a_share_of_the_capacity() {
    // Eight controllers of 12 GB/s are 96 GB/s, machine A has 25.8.
    let text = "node:8 core:4 gbs:12\nload 20 20 20 20 20 20 20 20\napp 1";
    assert_eq!(mechanisms("final", text), "160.0 DRAM requests/µs, limit 186.0");
}

#[test]
fn a_calibrated_traffic_limit_replaces_the_published_one() {
    let plain = synthetic::parse("node:4 core:4").expect("a machine");
    let mut description = plain.description().clone();
    description.calibrated.requests_per_us = Some(20.0);
    let calibrated = Topology::new(description).expect("fits");
    let limits = |topology| [&FINAL, &LP].map(|preset| scaled_limit(preset, topology));
    assert_eq!(limits(&plain), [50.0, 15.0]);
    assert_eq!(limits(&calibrated), [20.0, 5.0], "the machine's, and for each of its four nodes");
}

#[test]
fn an_application_is_judged_by_its_own_traffic() {
    let busy_machine = "load 100 100 100 100\napp 1\nown 2 2 2 2";
    assert_eq!(on("final", busy_machine), "8.0 DRAM requests/µs, limit 50.0");
    assert_eq!(on("code", busy_machine), "co-location");
}

#[test]
fn ours_compares_one_of_several_with_the_limit_of_its_cpus_where_the_machine_is_above_its_own() {
    // Half of 16 CPUs and 30 of the 60 requests that the machine makes.
    let half = |load: &str, cpu: u32, own: &str| {
        on("steady", &format!("load {load}\napp 1 cpu {cpu}\nown {own}"))
    };
    assert_eq!(half("15 15 15 15", 800, "7.5 7.5 7.5 7.5"), "co-location");
    assert_eq!(
        half("15 15 15 15", 800, "6 6 6 6"),
        "24.0 DRAM requests/µs, limit 25.0",
        "less than its share"
    );
    assert_eq!(
        half("12 12 12 12", 800, "7.5 7.5 7.5 7.5"),
        "30.0 DRAM requests/µs, limit 50.0",
        "the machine is not jammed"
    );
    assert_eq!(
        half("15 15 15 15", 30, "1 1 1 1"),
        "4.0 DRAM requests/µs, limit 50.0",
        "a process that hardly runs is as good as idle"
    );
    assert_eq!(
        on("final", "load 15 15 15 15\napp 1 cpu 800\nown 7.5 7.5 7.5 7.5"),
        "30.0 DRAM requests/µs, limit 50.0"
    );
}

#[test]
fn ours_leaves_alone_what_loses_little_on_a_measured_machine_however_much_traffic_it_has() {
    // Accesses of 2,000 cycles, of which an idle machine would take an eighth or less.
    let of = |preset: &str, machine: &str, load: &str, stalled: f64| {
        let text = format!("{machine}\nload {load}\napp 1 latency 2000 stalled {stalled}");
        on(preset, &text)
    };
    const MUCH: &str = "50 50 50 50";
    const LITTLE: &str = "1 1 1 1";
    assert_eq!(of("steady", "measured 100", MUCH, 0.5), "co-location");
    assert_eq!(of("steady", "measured 100", LITTLE, 0.5), "co-location");
    for load in [MUCH, LITTLE] {
        let verdict = of("steady", "measured 100", load, 0.01);
        assert!(verdict.starts_with("would win"), "{verdict}");
    }
    assert_eq!(of("steady", "", MUCH, 0.01), "co-location", "the idle latency is a guess");
    assert_eq!(of("final", "measured 100", MUCH, 0.01), "co-location", "as published");
}

/// Nobody counts stalls there, as on AMD's processors.
#[test]
fn ours_looks_at_what_likely_waits_by_its_instructions_however_little_its_traffic() {
    let of = |ipc: f64| {
        let text = format!("measured 100\nload 1 1 1 1\napp 1 cpu 1600 latency 1000 ipc {ipc}");
        on("steady", &text)
    };
    assert_eq!(of(0.5), "co-location");
    assert!(of(2.0).starts_with("would win"), "{}", of(2.0));
}

#[test]
fn interleaving_needs_an_imbalance_above_35_percent() {
    let loads = [40.0, 20.0, 20.0, 20.0];
    assert!((imbalance(&loads, Deviation::Population) - 34.6).abs() < 0.05);
    assert!((imbalance(&loads, Deviation::Sample) - 40.0).abs() < 0.05);
    // Off with the population's deviation, on with the sample's (ALGORITHMS 1.5); LAR is 25 %.
    assert_eq!(on("final", "load 40 20 20 20\napp 1"), "co-location");
    assert_eq!(on("code", "load 40 20 20 20\napp 1"), "interleaving co-location");
    assert_eq!(on("draft", "load 40 20 20 20\napp 1 ipc 0.5"), "interleaving co-location");
}

#[test]
fn interleaving_of_the_draft_also_needs_a_local_ratio_below_40_percent() {
    let local_45 = "matrix 45 0 0 0 / 20 0 0 0 / 20 0 0 0 / 15 0 0 0\napp 1 ipc 0.5";
    assert_eq!(on("draft", local_45), "co-location");
    assert_eq!(on("final", local_45), "interleaving co-location");
}

#[test]
fn an_application_with_even_traffic_is_not_interleaved_because_of_its_neighbour() {
    assert_eq!(on("final", "load 200 10 10 10\napp 1\nown 20 20 20 20"), "co-location");
}

#[test]
fn colocation_needs_a_low_local_ratio() {
    let local = |percent: u32| format!("matrix {percent} {} / 0 0\napp 1", 100 - percent);
    let on =
        |preset: &str, percent| mechanisms(preset, &format!("node:2 core:4\n{}", local(percent)));
    assert_eq!(on("final", 79), "interleaving co-location");
    assert_eq!(on("final", 80), "interleaving");
    assert_eq!(on("draft", 69), "co-location");
    assert_eq!(on("draft", 70), "nothing");
}

#[test]
fn replication_needs_reads_and_free_memory() {
    let even = "load 25 25 25 25";
    assert_eq!(
        on("final", &format!("{even}\nfree 75\napp 1 reads 95.1")),
        "replication co-location"
    );
    assert_eq!(on("final", &format!("{even}\nfree 75\napp 1 reads 95")), "co-location");
    assert_eq!(on("final", &format!("{even}\nfree 74\napp 1 reads 99")), "co-location");
    // What is not known is not there.
    assert_eq!(on("final", &format!("{even}\nfree 90\napp 1")), "co-location");
    assert_eq!(on("final", &format!("{even}\napp 1 reads 99")), "co-location");
    // 1 − 1/N: half on two nodes, 87.5 % on eight.
    let two = |free: u32| {
        mechanisms("final", &format!("node:2\nload 30 30\nfree {free}\napp 1 reads 99"))
    };
    assert_eq!((two(50).as_str(), two(49).as_str()), ("replication co-location", "co-location"));
    let eight = |free: &str| {
        mechanisms(
            "final",
            &format!("node:8\nload 20 20 20 20 20 20 20 20\nfree {free}\napp 1 reads 99"),
        )
    };
    assert_eq!(
        (eight("87.5").as_str(), eight("87").as_str()),
        ("replication co-location", "co-location")
    );
}

#[test]
fn replication_presets_differ_in_reads_faults_and_memory() {
    let app = |rest: &str| format!("load 25 25 25 25\nfree 80\napp 1 ipc 0.5 {rest}");
    assert_eq!(on("draft", &app("reads 95 faults 500")), "replication co-location");
    assert_eq!(on("draft", &app("reads 95 faults 501")), "co-location");
    assert_eq!(on("code", &app("reads 95")), "replication co-location");
    assert_eq!(on("code-mrr", &app("reads 90")), "replication co-location");
    assert_eq!(on("code-mrr", &app("reads 89.9")), "co-location");
    assert_eq!(on("lp", &app("reads 100")), "co-location");
    // Every busy thread by itself.
    assert_eq!(on("per-pid", &app("reads 99 thread-reads 90")), "co-location");
    assert_eq!(on("per-pid", &app("reads 80 thread-reads 96")), "replication co-location");
    assert_eq!(on("per-pid", &app("reads 99")), "co-location");
}

#[test]
fn the_draft_wants_a_thread_with_few_instructions_per_cycle() {
    let app = |ipc: f64| format!("load 25 25 25 25\napp 1 ipc {ipc}");
    assert_eq!(on("draft", &app(0.69)), "co-location");
    assert_eq!(on("draft", &app(0.7)), "0.70 instructions per cycle, limit 0.70");
    assert_eq!(on("final", &app(2.0)), "co-location");
}

#[test]
fn an_idle_memory_only_node_is_no_imbalance() {
    let mut description =
        rondpoint_core::topology::synthetic::describe("node:3 core:2").expect("a machine");
    description.cpus.retain(|cpu| cpu.node != 2);
    let topology = rondpoint_core::Topology::new(description).expect("a machine");
    let load = |loads: [f64; 3]| {
        let traffic =
            rondpoint_core::model::Traffic::new(rondpoint_core::Matrix::from_fn(3, |_, m| {
                loads[m]
            }));
        traffic.imbalance_percent(Deviation::Population, &topology)
    };
    assert_eq!(load([50.0, 50.0, 0.0]), Some(0.0));
    assert_eq!(load([100.0, 0.0, 50.0]), Some(100.0));
}
