//! What happens around a change of nodes by AsymSched: the policies that wait, and the order in
//! which things are taken back.

use crate::scene::{Host, World, pages, process, second};
use expect_test::expect;
use rondpoint_core::observation::{Mapping, MappingKind, Replica};
use rondpoint_core::policy::asymsched::{AsymSchedReason, PlacementReason};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Action, Bytes, Matrix, Model, Nanos, Pid, Reason, Tid, Topology};

/// Four nodes of two CPUs; 0 and 1 are close to each other, 2 and 3 even more, other pairs are far.
fn machine(gib: u64) -> Topology {
    let mut description = synthetic::describe("node:4 core:2 mhz:2200").expect("a machine");
    let rate = |from: usize, to: usize| match (from.min(to), from.max(to)) {
        (0, 1) => 3e9,
        (2, 3) => 7e9,
        _ => 1e9,
    };
    description.bandwidth_bytes_per_s = Some(Matrix::from_fn(4, rate));
    description.nodes.iter_mut().for_each(|node| node.memory = Bytes::from_gib(gib));
    Topology::new(description).expect("a machine")
}

/// A process on the pair of nodes with CPUs `cpus`, which use each other's memory. Once its threads
/// took the other pair, pages on node 1 are seen that the first of them accesses.
fn pair(at: u64, topology: &Topology, cpus: [usize; 2], traffic: &str) -> Model {
    let mut model = second(at, topology);
    let threads = process(&mut model, topology, 1, &cpus, &[0.5, 0.5], traffic);
    threads.iter_mut().zip([100, 102]).for_each(|(thread, tid)| {
        thread.tid = Tid(tid);
        thread.rates.remote_dram_per_s = Some(9e6);
        thread.accesses_by_node = Some(vec![50, 50, 0, 0]);
    });
    if cpus == [4, 6] {
        pages(&mut model, 0, 2, 1, &[2]);
    }
    model
}

#[test]
fn while_nodes_change_and_memory_follows_nobody_else_moves_the_process() {
    let mut world = World::without("gather", machine(4), Host::Obeys);
    let mut text = String::new();
    for at in 1000..1007 {
        // Its threads take the other pair in the first step; its memory is still on nodes 0 and 1.
        let model = match at {
            1000 => pair(at, &world.topology, [0, 2], "0>1:80 1>0:80"),
            _ => pair(at, &world.topology, [4, 6], "2>0:40 2>1:40 3>0:40 3>1:40"),
        };
        text += &format!("{at} s: {}", world.step(&model));
    }
    expect![[r#"
        1000 s: asymsched: thread 100 of 1 to CPUs 4-5
        asymsched: thread 102 of 1 to CPUs 6-7
        1001 s: asymsched: move 2 pages of 1 (following): 2 × 1→3
        held: carrefour: move 2 pages of 1 (co-location): 2 × 1→2; its memory is following its threads
        1002 s: held: carrefour: move 2 pages of 1 (co-location): 2 × 1→2; its memory is following its threads
        1003 s: asymsched: move 953.7 MiB of 1 frozen: 0→2 1→3
        held: carrefour: move 2 pages of 1 (co-location): 2 × 1→2; its memory is following its threads
        1004 s: carrefour: move 2 pages of 1 (co-location): 2 × 1→2
        1005 s: carrefour: move 2 pages of 1 (co-location): 2 × 1→2
        1006 s: carrefour: move 2 pages of 1 (co-location): 2 × 1→2
    "#]].assert_eq(&text);
}

/// A quarter of a second after `start` quarters.
fn quarter(mut model: Model, number: u64) -> Model {
    model.at = Nanos::from_millis(1_000_000 + 250 * number);
    model.elapsed = Nanos::from_millis(250);
    model
}

#[test]
fn threads_do_not_go_back_to_memory_that_follows_them() {
    let mut world = World::without("gather", machine(4), Host::Obeys);
    let mut text = String::new();
    for number in 1..=8 {
        let mut model = match number {
            1..=4 => pair(0, &world.topology, [0, 2], "0>1:80 1>0:80"),
            _ => pair(0, &world.topology, [4, 6], "2>0:40 2>1:40 3>0:40 3>1:40"),
        };
        for (node, thread) in model.threads.iter_mut().enumerate() {
            thread.accesses_by_node =
                Some((0..4).map(|n| if n == node { 100 } else { 0 }).collect());
        }
        let step = world.step(&quarter(model, number));
        text += &format!("{}: {step}", 250 * number);
    }
    expect![[r#"
        250: nothing
        500: nothing
        750: nothing
        1000: asymsched: thread 100 of 1 to CPUs 4-5
        asymsched: thread 102 of 1 to CPUs 6-7
        1250: held: sam: thread 100 of 1 to CPU 0, then CPUs 0-1; its memory is following its threads
        held: sam: thread 102 of 1 to CPU 2, then CPUs 2-3; its memory is following its threads
        1500: held: sam: thread 100 of 1 to CPU 0, then CPUs 0-1; its memory is following its threads
        held: sam: thread 102 of 1 to CPU 2, then CPUs 2-3; its memory is following its threads
        1750: held: sam: thread 100 of 1 to CPU 0, then CPUs 0-1; its memory is following its threads
        held: sam: thread 102 of 1 to CPU 2, then CPUs 2-3; its memory is following its threads
        2000: asymsched: move 2 pages of 1 (following): 2 × 1→3
        held: sam: thread 100 of 1 to CPU 0, then CPUs 0-1; its memory is following its threads
        held: sam: thread 102 of 1 to CPU 2, then CPUs 2-3; its memory is following its threads
        held: carrefour: move 2 pages of 1 (co-location): 2 × 1→2; its memory is following its threads
    "#]].assert_eq(&text);
}

#[test]
fn what_was_learnt_of_a_node_holds_for_the_one_that_is_taken() {
    // The node of the data is not known, only that it is not node 0. Then the node's occupants and
    // its memory go to node 2.
    let scene = |cpu: usize, remote_per_s: f64, at: u64, topology: &Topology| {
        let mut model = second(at, topology);
        let threads = process(&mut model, topology, 1, &[cpu], &[], "");
        threads[0].tid = Tid(100);
        threads[0].rates.remote_dram_per_s = Some(remote_per_s);
        model
    };
    let fifth = |tell: bool| {
        let mut world = World::without("gather", machine(4), Host::Refuses);
        for at in 1..=4 {
            let model = scene(0, 9e6, at, &world.topology);
            world.step(&model);
        }
        if tell {
            let cpus = world.topology.cpus_of_node(2).clone();
            let action = Action::SetAffinity { pid: Pid(1), tid: Tid(100), cpus, via: None };
            world.did(action, placement(0, 2), 0);
        }
        let model = scene(4, 0.0, 5, &world.topology);
        world.step(&model)
    };
    expect![[r#"
        held: sam: thread 100 of 1 to CPU 0, then CPUs 0-1; it is not worth it
    "#]]
    .assert_eq(&fifth(true));
    assert_eq!(fifth(false), "nothing\n");
}

fn placement(from: usize, to: usize) -> Reason {
    Reason::AsymSched(AsymSchedReason::Placement(PlacementReason {
        from,
        to,
        clusters: 1,
        staying: 1.0,
        chosen: 2.0,
        best: 2.0,
        best_gap: 0.0,
        from_nodes_without_threads: Bytes(0),
        moved: Bytes(0),
        moved_at_least: Bytes(0),
        seconds: 0.0,
        allowed_seconds: 1.0,
    }))
}

#[test]
fn memory_on_its_way_is_not_free_for_copies() {
    let run = |pairs: [[usize; 2]; 2]| {
        let mut world = World::without("gather", machine(4), Host::Obeys);
        let first = pair(1000, &world.topology, pairs[0], "0>1:80 1>0:80");
        world.step(&first);
        let text = {
            let mut model = pair(1001, &world.topology, pairs[1], "0>1:80 1>0:80");
            // 12.2 of 16 GiB are free: 76 %, and 75 % are needed. The gigabyte of the first process
            // makes the difference.
            model.free_memory = Some(vec![Bytes(12_500 << 18); 4]);
            process(&mut model, &world.topology, 2, &[1, 3], &[0.1], "0>0:80 1>0:80");
            let app = &mut model.apps[1];
            app.read_percent = Some(99.0);
            app.replicas = Some(Vec::new());
            let kind = MappingKind::PrivateAnonymous;
            app.mappings = Some(vec![Mapping { start: 0, end: 1 << 40, kind }]);
            pages(&mut model, 1, 600, 0, &[0, 1]);
            world.step(&model)
        };
        text.contains("replicate 600 pages of 2")
    };
    assert!(run([[4, 6], [4, 6]]));
    assert!(!run([[0, 2], [4, 6]]));
}

#[test]
fn n_mass_does_not_bring_a_process_back_while_its_memory_follows() {
    let mut world = World::without("gather", machine(4), Host::Obeys);
    let mut text = String::new();
    for at in 1000..1003 {
        let mut model = match at {
            1000 => pair(at, &world.topology, [0, 2], "0>1:80 1>0:80"),
            _ => pair(at, &world.topology, [4, 6], "2>0:40 2>1:40 3>0:40 3>1:40"),
        };
        // It runs on the node of the pair's first thread and goes with it; its memory is on node 0.
        let cpu = if at == 1000 { 1 } else { 5 };
        let threads = process(&mut model, &world.topology, 2, &[cpu], &[0.1], "");
        (threads[0].tid, threads[0].rates.mpki) = (Tid(200), Some(5.0));
        let step = world.step(&model);
        let of_second = step.lines().filter(|line| line.contains("of 2"));
        of_second.for_each(|line| text += &format!("{at} s: {line}\n"));
    }
    expect![[r#"
        1000 s: asymsched: thread 200 of 2 to CPUs 4-5
        1001 s: held: nmass: thread 200 of 2 to CPU 0, then CPUs 0-1; its memory is following its threads
        1002 s: held: nmass: thread 200 of 2 to CPU 0, then CPUs 0-1; its memory is following its threads
    "#]].assert_eq(&text);
}

#[test]
fn copies_are_taken_back_before_all_memory_goes() {
    let mut world = World::without("gather", machine(4), Host::Obeys);
    let mut text = String::new();
    for at in 1000..1004 {
        let mut model = match at {
            1000 => pair(at, &world.topology, [0, 2], "0>1:80 1>0:80"),
            _ => pair(at, &world.topology, [4, 6], "2>0:40 2>1:40 3>0:40 3>1:40"),
        };
        let replica = |address| Replica { address, collapses: 0 };
        model.apps[0].replicas = Some(vec![replica(0x9000), replica(0xa000)]);
        text = world.step(&model);
    }
    expect![[r#"
        asymsched: unreplicate 2 pages of 1
        asymsched: move 953.7 MiB of 1 frozen: 0→2 1→3
        held: carrefour: move 2 pages of 1 (co-location): 2 × 1→2; its memory is following its threads
    "#]]
    .assert_eq(&text);
}

#[test]
fn while_memory_follows_nobody_waits_for_a_quiet_carrefour() {
    let mut world = World::without("gather", machine(4), Host::Obeys);
    let (mut periods, mut under_way) = (Vec::new(), Vec::new());
    // In the tenth second its threads take another pair; nothing else is ever to be done.
    for at in 1000..1016 {
        let model = match at {
            ..1009 => pair(at, &world.topology, [0, 2], "0>0:8 1>1:8"),
            1009 => pair(at, &world.topology, [0, 2], "0>1:80 1>0:80"),
            _ => pair(at, &world.topology, [4, 6], "2>2:8 3>3:8"),
        };
        world.step(&model);
        periods.push(world.period().0 / 1_000_000);
        under_way.extend(world.is_under_way(1).then_some(at));
    }
    assert_eq!(periods[3..8], [2000; 5]);
    assert_eq!(periods[9..12], [1000; 3], "threads moved, and two seconds for their memory");
    assert_eq!(periods[12..], [2000; 4]);
    assert_eq!(under_way, [1009, 1010, 1011], "no trial is judged by then");
    expect![[r#"
        1000 s: sample 1: off
        1009 s: sample 1: every 65000 cycles, 30000 pages tracked
        1012 s: sample 1: off
    "#]]
    .assert_eq(&(world.rates.join("\n") + "\n"));
}
