//! From a model to proposals: what is seen of the threads, masks, reasons.

use expect_test::{Expect, expect};
use rondpoint_core::model::{App, Model, Thread};
use rondpoint_core::observation::Exemption;
use rondpoint_core::policy::sam::{Preset, Sam};
use rondpoint_core::topology::{Topology, synthetic};
use rondpoint_core::{Bytes, Pid, Policy, Random, Tid};
use std::fmt::Write;

/// One process a line: `1: 0 coh, 4 coh` is the pid, then a thread a comma: its CPU and its
/// problems. `@1` before the colon puts all memory on node 1.
fn model(topology: &Topology, text: &str) -> Model {
    let mut model = Model::empty(topology.node_count());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (head, threads) = line.split_once(':').expect("a colon");
        let (pid, home) =
            head.split_once('@').map_or((head, None), |(pid, home)| (pid, home.parse().ok()));
        let pid: u32 = pid.parse().expect("a pid");
        let first = model.threads.len();
        for (place, words) in threads.split(',').enumerate() {
            let mut words = words.split_whitespace();
            let cpu = words.next().and_then(|cpu| cpu.parse().ok()).expect("a CPU");
            let tid = Tid(10 * pid + place as u32);
            let mut thread = Thread::new(tid, model.apps.len(), cpu, topology.all_cpus());
            words.for_each(|word| set(&mut thread, word));
            model.threads.push(thread);
        }
        let mut app = App::new(Pid(pid), first..model.threads.len());
        let bytes = |node| Bytes::from_gib(u64::from(Some(node) == home));
        app.memory = home.map(|_: usize| (0..topology.node_count()).map(bytes).collect());
        model.apps.push(app);
    }
    model.check(topology).expect("a model without contradictions");
    model
}

fn set(thread: &mut Thread, word: &str) {
    let rates = &mut thread.rates;
    match word {
        "coh" => rates.coherence_remote_per_s = Some(3e6),
        "snp" => rates.coherence_local_per_s = Some(3e6),
        "mem" => rates.memory_per_s = Some(10e6),
        "rdr" => rates.remote_dram_per_s = Some(9e6),
        "stalled" => (rates.stalls_per_coherence, rates.ipc) = (Some(300.0), Some(0.4)),
        "ipc" => rates.ipc = Some(0.4),
        "asleep" => thread.cpu_share = 0.0,
        "exempt" => thread.exempt = Some(Exemption::RealTime),
        _ => panic!("unknown word {word}"),
    }
}

fn step(policy: &mut Sam, topology: &Topology, text: &str) -> String {
    let mut out = String::new();
    for proposal in policy.propose(&model(topology, text), topology, &mut Random::new(0)) {
        writeln!(out, "{}: {}", proposal.action, proposal.reason).expect("text");
    }
    out
}

fn check(machine: &str, text: &str, expected: Expect) {
    let topology = synthetic::parse(machine).expect("a machine");
    expected.assert_eq(&step(&mut Sam::new(Preset::SLIDES), &topology, text));
}

#[test]
fn a_coherent_thread_is_put_on_an_exact_cpu_and_may_use_its_node() {
    check(
        "node:2 core:2 pu:2 mhz:2200",
        "1: 0 coh, 4 coh",
        expect![[r#"
            thread 11 of 1 to CPU 2, then CPUs 0-3: coherence between sockets 3.00 M/s above 0.55, 1→0 to an idle CPU
            thread 10 of 1 to CPUs 0-3: stays on node 0, where 11 joins it
        "#]],
    );
}

#[test]
fn an_exchange_is_two_proposals() {
    check(
        "node:2 core:1 mhz:2200",
        "1@1: 0 rdr\n 2: 1",
        expect![[r#"
        thread 10 of 1 to CPU 1, then CPUs 1: remote memory 9.00 M/s above 2.70, 0→1 to the place of a CPU-bound thread
        thread 20 of 2 to CPU 0, then CPUs 0: changes places with 10 (remote memory), 1→0
    "#]],
    );
}

#[test]
fn processes_that_do_not_share_are_not_gathered() {
    check("node:2 core:2 pu:2 mhz:2200", "1: 0 coh\n 2: 4 coh", expect![]);
}

#[test]
fn exempt_threads_keep_their_cpu_and_sleeping_ones_do_not() {
    check("node:2 core:1 mhz:2200", "1@1: 0 rdr\n 2: 1 exempt", expect![]);
    check(
        "node:2 core:1 mhz:2200",
        "1@1: 0 rdr\n 2: 1 asleep",
        expect![[r#"
        thread 10 of 1 to CPU 1, then CPUs 1: remote memory 9.00 M/s above 2.70, 0→1 to an idle CPU
    "#]],
    );
}

#[test]
fn memory_on_a_node_without_cpus_is_nobodys_home() {
    let mut description = synthetic::describe("node:3 core:2 mhz:2200").expect("a machine");
    description.cpus.truncate(4);
    let topology = Topology::new(description).expect("node 2 has only memory");
    let mut policy = Sam::new(Preset::SLIDES);
    assert_eq!(step(&mut policy, &topology, "1@2: 0 rdr"), "");
    assert_eq!(step(&mut policy, &topology, "1@1: 0 rdr").lines().count(), 1);
}

#[test]
fn a_thread_with_its_data_on_two_nodes_by_halves_is_sent_to_neither() {
    let topology = synthetic::parse("node:2 core:2 mhz:2200").expect("a machine");
    let proposals = |accesses: [u32; 2]| {
        let mut model = model(&topology, "1: 0 rdr");
        model.threads[0].accesses_by_node = Some(accesses.into());
        Sam::new(Preset::SLIDES).propose(&model, &topology, &mut Random::new(0)).len()
    };
    assert_eq!(proposals([9, 11]), 0, "chance");
    assert_eq!(proposals([4_500, 5_500]), 0, "sure, and nothing to gain");
    assert_eq!(proposals([3, 5]), 0, "nearly two thirds of too few");
    assert_eq!(proposals([2, 18]), 1);
    assert_eq!(proposals([3_500, 6_500]), 1);
}

#[test]
fn a_memory_bound_thread_leaves_a_crowded_socket_unless_half_of_its_data_is_there() {
    let topology = synthetic::parse("node:2 core:8 mhz:2200").expect("a machine");
    let leave = |accesses: [u32; 2]| {
        let crowd: Vec<String> = (0..8).map(|cpu| format!("{cpu} mem")).collect();
        let mut model = model(&topology, &format!("1: {}", crowd.join(", ")));
        model.threads.iter_mut().for_each(|one| one.accesses_by_node = Some(accesses.into()));
        Sam::new(Preset::SLIDES).propose(&model, &topology, &mut Random::new(0)).len()
    };
    assert_eq!(leave([54, 46]), 0, "not clearly at home, but no reason to leave it");
    assert_eq!(leave([46, 54]), 4);
    assert_eq!(leave([50, 50]), 4);
}

#[test]
fn nothing_known_means_nothing_proposed() {
    check("node:2 core:2 mhz:2200", "1: 0, 1, 2, 3", expect![]);
}

#[test]
fn mph_places_an_application_once_it_is_steady_and_asks_once() {
    let topology = synthetic::parse("node:2 core:2 pu:2 mhz:1900").expect("a machine");
    let mut policy = Sam::new(Preset::MPH);
    let apart = "1: 0 coh stalled, 4 coh stalled, 5 asleep";
    let first: Vec<String> = (0..3).map(|_| step(&mut policy, &topology, apart)).collect();
    assert_eq!(first.concat(), "", "a flicker so far");
    expect![[r#"
        thread 10 of 1 to CPUs 0-3: stalls on coherence, one socket: 2 threads, node 0
        thread 11 of 1 to CPUs 0-3: stalls on coherence, one socket: 2 threads, node 0
        thread 12 of 1 to CPUs 0-3: stalls on coherence, one socket: 2 threads, node 0
    "#]]
    .assert_eq(&step(&mut policy, &topology, apart));
    assert_eq!(step(&mut policy, &topology, "1: 0 snp stalled, 1 snp stalled, 2 asleep"), "");
}

#[test]
fn mph_spreads_an_application_that_no_node_holds_and_moves_no_more_than_it_must() {
    // Five latency-bound threads, nodes of four hardware threads: four stay together, one goes.
    let topology = synthetic::parse("node:2 core:2 pu:2 mhz:1900").expect("a machine");
    let mut policy = Sam::new(Preset::MPH);
    let apart = "1: 0 coh ipc, 1 coh ipc, 2 coh ipc, 4 coh ipc, 5 coh ipc";
    for _ in 0..3 {
        assert_eq!(step(&mut policy, &topology, apart), "");
    }
    expect![[r#"
        thread 10 of 1 to CPUs 0-3: bound by latency, may share cores: 5 threads, node 0
        thread 11 of 1 to CPUs 0-3: bound by latency, may share cores: 5 threads, node 0
        thread 12 of 1 to CPUs 0-3: bound by latency, may share cores: 5 threads, node 0
        thread 13 of 1 to CPUs 4-7: bound by latency, may share cores: 5 threads, node 1
        thread 14 of 1 to CPUs 0-3: bound by latency, may share cores: 5 threads, node 0
    "#]]
    .assert_eq(&step(&mut policy, &topology, apart));
}

#[test]
fn the_papers_machine_has_the_papers_thresholds() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/sam-2.toml");
    let topology = rondpoint_machine::Machine::load(&file).expect("a machine file").topology();
    let mut policy = Sam::new(Preset::SLIDES);
    // A thread of process 1 on each node, just below and just above 550,000 /s.
    let mut apart = model(&topology, "1: 0 coh, 20 coh");
    let mut proposals = |rate| {
        apart
            .threads
            .iter_mut()
            .for_each(|thread| thread.rates.coherence_remote_per_s = Some(rate));
        policy.propose(&apart, &topology, &mut Random::new(0)).len()
    };
    assert_eq!(
        (proposals(549_000.0), proposals(551_000.0)),
        (0, 2),
        "the mover and the thread that it joins"
    );
}

#[cfg(feature = "serde")]
#[test]
fn reasons_are_data() {
    let topology = synthetic::parse("node:2 core:1 mhz:2200").expect("a machine");
    let model = model(&topology, "1@1: 0 rdr\n 2: 1");
    let proposals = Sam::new(Preset::SLIDES).propose(&model, &topology, &mut Random::new(0));
    expect![[r#"
        [
          {
            "policy": "sam",
            "action": "set-affinity",
            "pid": 1,
            "tid": 10,
            "cpus": [
              1
            ],
            "via": 1,
            "reason": {
              "reason": "move",
              "phase": "remote",
              "destination": "cpu-bound",
              "side": "mover",
              "rate_per_s": 9000000.0,
              "threshold_per_s": 2700000.0,
              "from": 0,
              "to": 1
            }
          },
          {
            "policy": "sam",
            "action": "set-affinity",
            "pid": 2,
            "tid": 20,
            "cpus": [
              0
            ],
            "via": 0,
            "reason": {
              "reason": "move",
              "phase": "remote",
              "destination": "cpu-bound",
              "side": {
                "partner": {
                  "of": 10
                }
              },
              "rate_per_s": 9000000.0,
              "threshold_per_s": 2700000.0,
              "from": 1,
              "to": 0
            }
          }
        ]"#]]
    .assert_eq(&serde_json::to_string_pretty(&proposals).expect("plain data"));
}
