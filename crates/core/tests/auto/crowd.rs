//! More threads than CPUs: the policy `home` has them, and SAM, which reckons with one on each CPU,
//! leaves them.

use crate::scene::{Host, World, machine, process, second};
use rondpoint_core::plan::Reason;
use rondpoint_core::{Action, Model, Nanos, Pid, Tid, Topology};

/// An interval of 100 ms, seen by counters and samples. Threads run on these CPUs of two nodes of
/// two, each with its data on the other node.
fn interval(number: u64, cpus: &[usize], topology: &Topology) -> Model {
    let mut model = second(0, topology);
    (model.at, model.elapsed) =
        (Nanos::from_millis(10_000 + 100 * number), Nanos::from_millis(100));
    // Threads are named after the CPU on which they are drawn.
    let names: Vec<usize> = (0..cpus.len()).map(|index| index % 4).collect();
    let threads = process(&mut model, topology, 1, &names, &[1.0, 1.0], "0>1:9 1>0:9");
    for (index, (thread, &cpu)) in threads.iter_mut().zip(cpus).enumerate() {
        thread.tid = Tid(100 + index as u32);
        thread.cpu = cpu;
        thread.cpu_share = 0.5;
        thread.rates.memory_per_s = Some(9e6);
        thread.rates.remote_dram_per_s = Some(9e6);
        let node = topology.node_of_cpu(cpu);
        thread.accesses_by_node =
            Some((0..2).map(|other| if other == node { 0 } else { 50 }).collect());
    }
    model
}

/// What is said of threads in two seconds from one on, a line once.
fn lines(world: &mut World, from_second: u64, cpus: &[usize]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for number in 10 * from_second + 1..=10 * from_second + 20 {
        let model = interval(number, cpus, &world.topology);
        let step = world.step(&model);
        for line in step.lines().filter(|line| line.contains("thread")) {
            if !lines.iter().any(|seen| seen == line) {
                lines.push(line.to_owned());
            }
        }
    }
    lines
}

#[test]
fn threads_that_take_turns_go_to_their_data_all_at_once_and_sam_moves_none_of_them() {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::Refuses);
    let lines = lines(&mut world, 0, &[0, 0, 1, 1, 2, 2, 3, 3]);
    let of = |policy: &str| lines.iter().filter(|line| line.starts_with(policy)).count();
    assert_eq!((of("home: "), of("nmass: ")), (8, 0), "{lines:#?}");
    let held = "held: sam: thread 100 of 1 to CPU 2, then CPUs 2-3; 8 threads take turns on 4 CPUs";
    assert!(lines.iter().any(|line| line == held), "{lines:#?}");
}

#[test]
fn a_thread_on_each_cpu_is_sams() {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::Refuses);
    let lines = lines(&mut world, 0, &[0, 1, 2, 3]);
    let of = |policy: &str| lines.iter().filter(|line| line.starts_with(policy)).count();
    assert_eq!((of("home: "), of("sam: ")), (0, 4), "{lines:#?}");
}

#[test]
fn pages_that_were_spread_on_purpose_hold_no_thread() {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::Refuses);
    let first = interval(1, &[0, 0, 1, 1, 2, 2, 3, 3], &world.topology);
    world.step(&first);
    // More than a fifth of 2 GB.
    world.interleaved(1, 120_000);
    let lines = lines(&mut world, 0, &[0, 0, 1, 1, 2, 2, 3, 3]);
    let held = lines.iter().filter(|line| line.starts_with("held: home: ")).count();
    let done = lines.iter().filter(|line| line.starts_with("home: ")).count();
    assert_eq!((held, done), (8, 0), "{lines:#?}");
}

#[test]
fn a_thread_that_another_policy_moves_is_left_to_it() {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::Obeys);
    let cpus = [0, 0, 1, 1, 2, 2, 3, 3];
    let all = lines(&mut world, 0, &cpus);
    assert_eq!(all.iter().filter(|line| line.starts_with("home: ")).count(), 8, "{all:#?}");
    let cpus_of_node = world.topology.cpus_of_node(0).clone();
    let action = Action::SetAffinity { pid: Pid(1), tid: Tid(100), cpus: cpus_of_node, via: None };
    world.did(action, Reason::Other("a test".into()), 0);
    let again = lines(&mut world, 2, &cpus);
    let again: Vec<&String> = again.iter().filter(|line| line.starts_with("home: ")).collect();
    assert!(matches!(again[..], [one] if one.starts_with("home: thread 100 ")), "{again:#?}");
}
