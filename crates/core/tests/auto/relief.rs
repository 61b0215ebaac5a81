//! Data that comes to its thread because going there would crowd a node that is crowded already.

use crate::scene::{Host, World, machine, pages, process, second};
use expect_test::expect;
use rondpoint_core::model::Traffic;
use rondpoint_core::{Matrix, Model, Nanos, Tid, Topology};

/// Thread, CPU and home of one process with 1 MB.
type Placed = (u32, usize, u16);

/// An interval of 100 ms with such processes of one thread, each of which asks its home for 100
/// requests/µs.
fn interval(number: u64, topology: &Topology, placed: &[Placed]) -> Model {
    let mut model = second(0, topology);
    model.at = Nanos::from_millis(100 * number);
    model.elapsed = Nanos::from_millis(100);
    let mut machine = Matrix::filled(2, 0.0);
    for (index, &(pid, cpu, home)) in placed.iter().enumerate() {
        let node = topology.node_of_cpu(cpu);
        machine[(node, usize::from(home))] += 100.0;
        let memory = [0, 1].map(|node| if node == home { 0.001 } else { 0.0 });
        let traffic = format!("{node}>{home}:100");
        for thread in process(&mut model, topology, pid, &[cpu], &memory, &traffic) {
            thread.tid = Tid(100 * pid);
            let is_away = node != usize::from(home);
            thread.rates.remote_dram_per_s = Some(if is_away { 9e6 } else { 0.0 });
            thread.rates.memory_per_s = Some(9e6);
            thread.rates.mpki = Some(20.0);
            thread.rates.instructions_per_s = Some(1e9);
            thread.rates.coherence_remote_per_s = Some(0.0);
            let accesses = [0, 1].map(|node| if node == home { 100 } else { 0 });
            thread.accesses_by_node = Some(accesses.to_vec());
        }
        pages(&mut model, index as u32, 2, home, &[node as u16]);
    }
    model.traffic = Some(Traffic::new(machine));
    model
}

/// What was done in these intervals, and what was held for other reasons than that flags are not
/// steady yet.
fn told<const N: usize>(
    intervals: impl IntoIterator<Item = u64>,
    placed: impl Fn(u64) -> [Placed; N],
) -> String {
    told_with(intervals, placed, |_| {})
}

/// The same of intervals that are changed first.
fn told_with<const N: usize>(
    intervals: impl IntoIterator<Item = u64>,
    placed: impl Fn(u64) -> [Placed; N],
    change: impl Fn(&mut Model),
) -> String {
    let mut world = World::new(machine("node:2 core:4 mhz:2200"), Host::Obeys);
    let mut told = String::new();
    for number in intervals {
        let mut model = interval(number, &world.topology, &placed(number));
        change(&mut model);
        let step = world.step(&model);
        let news = step.lines().filter(|line| *line != "nothing" && !line.contains("seen in"));
        news.for_each(|line| told += &format!("{number}00 ms: {line}\n"));
    }
    told
}

#[test]
fn data_on_the_busier_node_comes_even_before_carrefour_was_asked() {
    let placed = |_| [(1, 0, 0), (2, 4, 0)];
    expect![[r#"
        400 ms: held: sam: thread 200 of 2 to CPU 1, then CPUs 0-3; its data comes to it, 0.01 of 0.02 s
        1000 ms: carrefour: move 2 pages of 2 (co-location): 2 × 0→1
        1000 ms: held: sam: thread 200 of 2 to CPU 1, then CPUs 0-3; its data comes to it, 0.01 of 0.05 s
    "#]]
        .assert_eq(&told([1, 2, 3, 4, 10], placed));
}

#[test]
fn where_both_nodes_serve_alike_threads_go_to_their_data() {
    let placed = |_| [(1, 0, 1), (2, 4, 0)];
    expect![[r#"
        400 ms: sam: thread 100 of 1 to CPU 4, then CPUs 4-7
        400 ms: sam: thread 200 of 2 to CPU 0, then CPUs 0-3
        500 ms: sam: thread 100 of 1 to CPU 4, then CPUs 4-7
        500 ms: sam: thread 200 of 2 to CPU 0, then CPUs 0-3
    "#]]
    .assert_eq(&told(1..=5, placed));
}

#[test]
fn a_thread_that_came_from_elsewhere_goes_back_as_ever() {
    let placed = |number| [(1, 0, 0), (2, if number == 1 { 1 } else { 4 }, 0)];
    expect![[r#"
        500 ms: sam: thread 200 of 2 to CPU 1, then CPUs 0-3
        600 ms: sam: thread 200 of 2 to CPU 1, then CPUs 0-3
    "#]]
    .assert_eq(&told(1..=6, placed));
}

/// Two at home on node 0, which N-MASS would part if it took node 1 for empty.
#[test]
fn n_mass_reckons_with_the_cache_of_processes_that_stay() {
    let placed = |_| [(1, 0, 0), (2, 1, 0), (3, 4, 0), (4, 5, 0)];
    expect![[r#"
        400 ms: held: sam: thread 300 of 3 to CPU 2, then CPUs 0-3; its data comes to it, 0.01 of 0.02 s
        400 ms: held: sam: thread 400 of 4 to CPU 3, then CPUs 0-3; its data comes to it, 0.01 of 0.02 s
        1000 ms: carrefour: move 2 pages of 3 (co-location): 2 × 0→1
        1000 ms: carrefour: move 2 pages of 4 (co-location): 2 × 0→1
        1000 ms: held: sam: thread 300 of 3 to CPU 2, then CPUs 0-3; its data comes to it, 0.01 of 0.05 s
        1000 ms: held: sam: thread 400 of 4 to CPU 3, then CPUs 0-3; its data comes to it, 0.01 of 0.05 s
    "#]]
        .assert_eq(&told([1, 2, 3, 4, 10], placed));
}

/// Too little for SAM to flag, but N-MASS goes by misses.
#[test]
fn n_mass_leaves_a_process_that_its_data_comes_to() {
    let unseen_by_sam = |model: &mut Model| {
        for thread in &mut model.threads {
            thread.rates.remote_dram_per_s = Some(0.0);
            thread.rates.memory_per_s = Some(0.0);
        }
    };
    let placed = |_| [(2, 4, 0)];
    expect![[r#"
        1000 ms: carrefour: move 2 pages of 2 (co-location): 2 × 0→1
        1000 ms: held: nmass: thread 200 of 2 to CPU 0, then CPUs 0-3; its data comes to it, 0.01 of 0.05 s
        2000 ms: held: nmass: thread 200 of 2 to CPU 0, then CPUs 0-3; its data comes to it, 0.01 of 0.10 s
    "#]].assert_eq(&told_with([1, 2, 3, 4, 10, 20], placed, unseen_by_sam));
}

#[test]
fn where_nobody_counts_for_the_machine_the_programs_own_requests_do() {
    let uncounted = |model: &mut Model| model.traffic = None;
    let placed = |_| [(2, 4, 0)];
    expect![[r#"
        400 ms: held: sam: thread 200 of 2 to CPU 0, then CPUs 0-3; its data comes to it, 0.01 of 0.02 s
    "#]].assert_eq(&told_with([1, 2, 3, 4], placed, uncounted));
}

#[test]
fn a_round_that_had_no_samples_yet_is_no_reason_to_stop() {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::Obeys);
    let round = |world: &mut World, number: u64, sampled: u64| {
        let mut model = second(number, &world.topology);
        process(&mut model, &world.topology, 1, &[0, 2], &[1.0, 0.0], "0>0:900 1>0:900");
        pages(&mut model, 0, sampled, 0, &[0, 1]);
        world.step(&model).lines().filter(|line| line.starts_with("carrefour: move")).count()
    };
    // Samples were off until now: there is traffic, and no page to move.
    assert_eq!(round(&mut world, 1, 0), 0);
    assert_eq!(round(&mut world, 2, 40), 1, "half of the pages go");
    // That did not help: nothing fell, nothing rose.
    assert_eq!(round(&mut world, 3, 40), 0);
}
