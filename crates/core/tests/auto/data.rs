//! Whether threads go to their data or data comes to them, and what interleaving does to that.

use crate::scene::{Host, World, machine, pages, process, second};
use expect_test::{Expect, expect};
use rondpoint_core::{Model, Nanos, Topology};

/// A thread on node 0 with 0.5 GB of data on node 1, the sampled pages accessed by these nodes.
/// `local` of its 150 requests/µs are local.
fn far(at: u64, topology: &Topology, accessed_by: &[u16], local: u64) -> Model {
    let mut model = second(at, topology);
    let traffic = format!("0>0:{local} 0>1:{}", 150 - local);
    let threads = process(&mut model, topology, 1, &[0], &[0.0, 0.5], &traffic);
    threads[0].rates.remote_dram_per_s = Some(9e6);
    threads[0].rates.memory_per_s = Some(9e6);
    threads[0].accesses_by_node = Some(vec![0, 100]);
    pages(&mut model, 0, 3, 1, accessed_by);
    model
}

/// The fourth of four seconds that end at `last`. Co-location shows: without that Carrefour would
/// give it up after the first.
fn fourth(last: u64, accessed_by: &[u16], prepare: impl Fn(&mut World), expected: Expect) {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::KeepsPages);
    let mut text = String::new();
    for at in last - 3..=last {
        let local = 10 + 15 * (at + 3 - last);
        let model = far(at, &world.topology, accessed_by, local);
        text = world.step(&model);
        if at == last - 3 {
            prepare(&mut world);
        }
    }
    expected.assert_eq(&text);
}

#[test]
fn private_data_comes_to_its_thread_if_that_is_cheap() {
    fourth(
        1000,
        &[0],
        |_| {},
        expect![[r#"
            carrefour: move 3 pages of 1 (co-location): 3 × 1→0
            held: sam: thread 100 of 1 to CPU 2, then CPUs 2-3; its data comes to it, 2.55 of 50.00 s
        "#]],
    );
}

#[test]
fn else_the_thread_goes_to_its_data() {
    // 0.5 GB at 5.1 s are 2.55 s: 5 % of 51 s.
    fourth(
        50,
        &[0],
        |_| {},
        expect![[r#"
            sam: thread 100 of 1 to CPU 2, then CPUs 2-3
            held: carrefour: move 3 pages of 1 (co-location): 3 × 1→0; its threads rested for 0 of 2 epochs
        "#]],
    );
    // Other nodes use the pages as well.
    fourth(
        1000,
        &[0, 1],
        |_| {},
        expect![[r#"
        sam: thread 100 of 1 to CPU 2, then CPUs 2-3
    "#]],
    );
}

/// Linux takes a thread away from its data now and then. Data that runs after it is late wherever
/// it arrives.
#[test]
fn a_thread_that_has_just_come_goes_back_even_if_its_data_could_follow() {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::KeepsPages);
    let mut text = String::new();
    for at in 997..=1000 {
        let model = far(at, &world.topology, &[0], 10 + 15 * (at - 997));
        if at == 1000 {
            // It was at home for a moment.
            let mut home = model.clone();
            home.at = Nanos(home.at.0 - 500_000_000);
            home.threads[0].cpu = 2;
            world.step(&home);
        }
        text = world.step(&model);
    }
    expect![[r#"
        sam: thread 100 of 1 to CPU 2, then CPUs 2-3
        held: carrefour: move 3 pages of 1 (co-location): 3 × 1→0; its threads rested for 0 of 2 epochs
    "#]].assert_eq(&text);
}

/// The fifth second of one process with threads on these CPUs of two nodes. They use memory much,
/// each with these sampled accesses by node.
fn fifth(threads: &[(usize, [u32; 2])], traffic: &str, expected: Expect) {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::KeepsPages);
    let mut text = String::new();
    let cpus: Vec<usize> = threads.iter().map(|(cpu, _)| *cpu).collect();
    for at in 1..=5 {
        let mut model = second(at, &world.topology);
        let running = process(&mut model, &world.topology, 1, &cpus, &[0.2, 0.2], traffic);
        for (thread, (_, accesses)) in running.iter_mut().zip(threads) {
            thread.rates.memory_per_s = Some(9e6);
            thread.accesses_by_node = Some(accesses.to_vec());
        }
        text = world.step(&model);
    }
    expected.assert_eq(&text);
}

/// Of what their node asks for half is here, but one of them asks for all of the other half.
#[test]
fn of_two_threads_of_a_process_each_goes_by_its_own_samples() {
    fifth(
        &[(0, [100, 0]), (1, [0, 100])],
        "0>0:75 0>1:75",
        expect![[r#"
        sam: thread 101 of 1 to CPU 2, then CPUs 2-3
        sam: thread 100 of 1 to CPUs 0-1
    "#]],
    );
}

#[test]
fn threads_stay_if_the_node_of_their_data_has_no_cpus_for_them() {
    let far = [0, 100];
    fifth(
        &[(0, far), (1, far), (2, far)],
        "",
        expect![[r#"
        held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; 3 threads have their data there, for 2 CPUs
    "#]],
    );
}

#[test]
fn remote_accesses_of_an_interleaved_process_move_no_thread() {
    let a_quarter = 125_000_000 / 4096;
    fourth(
        50,
        &[0],
        |world| world.interleaved(1, a_quarter),
        expect![[r#"
            carrefour: move 3 pages of 1 (co-location): 3 × 1→0
            held: sam: thread 100 of 1 to CPU 2, then CPUs 2-3; 25.0 % of its memory is interleaved, limit 20.0
        "#]],
    );
    let a_tenth = 50_000_000 / 4096;
    fourth(
        50,
        &[0],
        |world| world.interleaved(1, a_tenth),
        expect![[r#"
            sam: thread 100 of 1 to CPU 2, then CPUs 2-3
            held: carrefour: move 3 pages of 1 (co-location): 3 × 1→0; its threads rested for 0 of 2 epochs
        "#]],
    );
}

/// A thread that uses two nodes' memory alike is as far from half of it on either.
#[test]
fn a_thread_with_data_here_as_well_does_not_go_there() {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::KeepsPages);
    let mut last = |local| {
        let mut text = String::new();
        for at in 47..=50 {
            let model = far(at, &world.topology, &[0, 1], local);
            text = world.step(&model);
        }
        text
    };
    expect![[r#"
        held: sam: thread 100 of 1 to CPU 2, then CPUs 2-3; 1.00 requests to its home for one to its own node, more than 1.5 needed
    "#]]
    .assert_eq(&last(75));
    expect![[r#"
        sam: thread 100 of 1 to CPU 2, then CPUs 2-3
    "#]]
    .assert_eq(&last(50));
}
