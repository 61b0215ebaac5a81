//! SAM and N-MASS: steady flags, coherence first, and pages that wait for threads.

use crate::scene::{Host, World, machine, pages, process, second};
use expect_test::expect;
use rondpoint_core::model::Traffic;
use rondpoint_core::plan::{Mechanism, PageMove};
use rondpoint_core::policy::nmass::{Cause, Due, NMassReason, Penalty, PenaltySource};
use rondpoint_core::{Action, Matrix, Model, Nanos, Pid, Reason, Tid, Topology};

/// An interval of 100 ms with two sharers, on two nodes or together.
fn sharers(number: u64, topology: &Topology, cpus: [usize; 2], coherence: f64) -> Model {
    let mut model = second(0, topology);
    model.at = Nanos::from_millis(100 * number);
    model.elapsed = Nanos::from_millis(100);
    for thread in process(&mut model, topology, 1, &cpus, &[0.1, 0.1], "0>1:80 1>0:80") {
        thread.rates.coherence_remote_per_s = Some(coherence);
    }
    pages(&mut model, 0, 2, 1, &[0]);
    model
}

#[test]
fn sam_acts_on_a_flag_in_the_fourth_interval_that_has_it() {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::Refuses);
    let mut text = String::new();
    for number in 1..=4 {
        let model = sharers(number, &world.topology, [0, 2], 2e6);
        text += &world.step(&model);
    }
    expect![[r#"
        held: sam: thread 102 of 1 to CPU 1, then CPUs 0-1; seen in 1 of the last 16 intervals, more than 3 needed
        held: sam: thread 102 of 1 to CPU 1, then CPUs 0-1; seen in 2 of the last 16 intervals, more than 3 needed
        held: sam: thread 102 of 1 to CPU 1, then CPUs 0-1; seen in 3 of the last 16 intervals, more than 3 needed
        sam: thread 102 of 1 to CPU 1, then CPUs 0-1
        sam: thread 100 of 1 to CPUs 0-1
    "#]]
    .assert_eq(&text);
}

#[test]
fn threads_brought_together_in_vain_are_left_for_longer_each_time() {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::Obeys);
    let mut text = String::new();
    let mut last = String::new();
    for number in 1..=180 {
        // What they exchange stays as it is, as on a line that others write as well.
        let step = world.step(&sharers(number, &world.topology, [0, 2], 2e6));
        let of_sam = step.lines().find(|line| line.contains("sam:")).unwrap_or("nothing");
        let what = of_sam.split("left for").next().unwrap_or(of_sam);
        if number > 3 && what != last {
            text += &format!("{number}00 ms: {of_sam}\n");
            last = what.to_string();
        }
    }
    expect![[r#"
        400 ms: sam: thread 102 of 1 to CPU 1, then CPUs 0-1
        1400 ms: held: sam: thread 102 of 1 to CPU 1, then CPUs 0-1; its threads exchanged 2.00 M/s between nodes and, brought together, 2.00: left for 5000.0 ms
        6400 ms: sam: thread 102 of 1 to CPU 1, then CPUs 0-1
        7400 ms: held: sam: thread 102 of 1 to CPU 1, then CPUs 0-1; its threads exchanged 2.00 M/s between nodes and, brought together, 2.00: left for 10.0 s
        17400 ms: sam: thread 102 of 1 to CPU 1, then CPUs 0-1
    "#]].assert_eq(&text);
}

#[test]
fn pages_are_placed_once_a_second_and_not_before_threads_rested_for_two() {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::Obeys);
    let mut text = String::new();
    for number in 1..=30 {
        // In the fourth interval they come together on node 0, where they do not disturb each
        // other.
        let (cpus, coherence) = if number <= 4 { ([0, 2], 2e6) } else { ([0, 1], 0.0) };
        let step = world.step(&sharers(number, &world.topology, cpus, coherence));
        if number > 3 && step != "nothing\n" {
            text += &format!("{number}00 ms: {step}");
        }
    }
    expect![[r#"
        400 ms: sam: thread 102 of 1 to CPU 1, then CPUs 0-1
        sam: thread 100 of 1 to CPUs 0-1
        1000 ms: held: carrefour: move 2 pages of 1 (co-location): 2 × 1→0; its threads rested for 0 of 2 epochs
        2000 ms: held: carrefour: move 2 pages of 1 (co-location): 2 × 1→0; its threads rested for 1 of 2 epochs
        3000 ms: carrefour: move 2 pages of 1 (co-location): 2 × 1→0
    "#]].assert_eq(&text);
}

/// Four processes at home on node 0 that together press on its cache; `sharing` says how much the
/// cheapest of them exchanges.
fn crowd(at: u64, topology: &Topology, sharing: f64) -> Model {
    let mut model = second(at, topology);
    for (cpu, mpki) in [(0, 30.0), (1, 22.0), (2, 18.0), (3, 25.0)] {
        let threads = process(&mut model, topology, 1 + cpu as u32, &[cpu], &[0.1], "");
        threads[0].rates.mpki = Some(mpki);
        threads[0].rates.instructions_per_s = Some(1e9);
        threads[0].rates.coherence_local_per_s = (cpu == 2).then_some(sharing);
    }
    model
}

#[test]
fn n_mass_moves_only_threads_that_exchange_no_data() {
    let step = |sharing| {
        let mut world = World::new(machine("node:2 core:4 mhz:2200"), Host::Obeys);
        world.step(&crowd(1, &world.topology, sharing))
    };
    expect![[r#"
        nmass: thread 201 of 2 to CPU 5, then CPUs 4-7
        nmass: thread 302 of 3 to CPU 4, then CPUs 4-7
    "#]]
    .assert_eq(&step(0.0));
    expect![[r#"
        nmass: thread 201 of 2 to CPU 4, then CPUs 4-7
        held: nmass: thread 302 of 3 to CPU 4, then CPUs 4-7; it exchanges data with others, and coherence comes first
    "#]].assert_eq(&step(2e6));
}

/// N-MASS puts process 3 on node 1, away from its memory.
fn left_remote(world: &mut World) {
    let cpus = world.topology.cpus_of_node(1).clone();
    let action = Action::SetAffinity { pid: Pid(3), tid: Tid(302), cpus, via: None };
    let reason = NMassReason {
        mpki: 18.0,
        penalty: Penalty { value: 1.3, source: PenaltySource::Regression },
        home: 0,
        from: 0,
        to: 1,
        cause: Cause::HomeFull,
        threshold_mpki: 60.0,
        due: Due::Started(Pid(3)),
    };
    world.did(action, Reason::NMass(reason), 0);
}

/// Then its pages are pulled there.
fn pulled_after_it_was_left_remote(world: &mut World) {
    left_remote(world);
    let pages = vec![PageMove { address: 0x1000, shift: 12, from: 0, to: 1 }];
    let action = Action::MovePages { pid: Pid(3), mechanism: Mechanism::CoLocation, pages };
    world.did(action, Reason::Other("a test".into()), 1);
}

#[test]
fn a_process_and_the_pages_that_came_to_it_settle_for_five_epochs() {
    let mut world = World::new(machine("node:2 core:4 mhz:2200"), Host::Refuses);
    let mut text = String::new();
    for at in 1..=7 {
        let mut model = crowd(at, &world.topology, 0.0);
        model.apps[2].traffic = Some(all_from(1, 0));
        pages(&mut model, 2, 1, 0, &[1]);
        let step = world.step(&model);
        let of_third = step.lines().filter(|line| line.contains("of 3"));
        of_third.for_each(|line| text += &format!("{at} s: {line}\n"));
        if at == 1 {
            pulled_after_it_was_left_remote(&mut world);
        }
    }
    expect![[r#"
        1 s: nmass: thread 302 of 3 to CPU 4, then CPUs 4-7
        1 s: held: carrefour: move 1 page of 3 (co-location): 1 × 0→1; its threads rested for 0 of 2 epochs
        2 s: held: nmass: thread 302 of 3 to CPU 4, then CPUs 4-7; its pages came to it, settles for 4000.0 ms
        2 s: held: carrefour: move 1 page of 3 (co-location): 1 × 0→1; its pages came to it, settles for 4000.0 ms
        3 s: held: nmass: thread 302 of 3 to CPU 4, then CPUs 4-7; its pages came to it, settles for 3000.0 ms
        3 s: held: carrefour: move 1 page of 3 (co-location): 1 × 0→1; its pages came to it, settles for 3000.0 ms
        4 s: held: nmass: thread 302 of 3 to CPU 4, then CPUs 4-7; its pages came to it, settles for 2000.0 ms
        4 s: held: carrefour: move 1 page of 3 (co-location): 1 × 0→1; its pages came to it, settles for 2000.0 ms
        5 s: held: nmass: thread 302 of 3 to CPU 4, then CPUs 4-7; its pages came to it, settles for 1000.0 ms
        5 s: held: carrefour: move 1 page of 3 (co-location): 1 × 0→1; its pages came to it, settles for 1000.0 ms
        6 s: nmass: thread 302 of 3 to CPU 4, then CPUs 4-7
        6 s: held: carrefour: move 1 page of 3 (co-location): 1 × 0→1; its threads rested for 0 of 2 epochs
        7 s: nmass: thread 302 of 3 to CPU 4, then CPUs 4-7
        7 s: held: carrefour: move 1 page of 3 (co-location): 1 × 0→1; its threads rested for 0 of 2 epochs
    "#]].assert_eq(&text);
}

fn all_from(accessing: usize, holding: usize) -> Traffic {
    let at = |n, m| if (n, m) == (accessing, holding) { 160.0 } else { 0.0 };
    Traffic::new(Matrix::from_fn(2, at))
}

#[test]
fn n_mass_leaves_processes_when_sam_moves_one_in_the_same_step() {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::Refuses);
    let mut text = String::new();
    for number in 1..=4 {
        let mut model = second(0, &world.topology);
        model.at = Nanos::from_millis(250 * number);
        model.elapsed = Nanos::from_millis(250);
        let threads = process(&mut model, &world.topology, 1, &[2], &[0.1], "");
        threads[0].rates.remote_dram_per_s = Some(9e6);
        threads[0].rates.mpki = Some(10.0);
        let threads = process(&mut model, &world.topology, 2, &[3], &[0.1], "");
        threads[0].rates.mpki = Some(1.0);
        text = world.step(&model);
    }
    expect![[r#"
        sam: thread 102 of 1 to CPU 0, then CPUs 0-1
        held: nmass: thread 102 of 1 to CPU 0, then CPUs 0-1; its threads rested for 0 of 2 epochs
    "#]]
    .assert_eq(&text);
}

#[test]
fn sam_does_not_take_back_a_thread_that_n_mass_sent_away_from_its_data() {
    let fourth = |is_left: bool| {
        let mut world = World::new(machine("node:2 core:4 mhz:2200"), Host::Refuses);
        let interval = |number: u64, topology: &Topology| {
            let mut model = second(0, topology);
            model.at = Nanos::from_millis(100 * number);
            model.elapsed = Nanos::from_millis(100);
            let threads = process(&mut model, topology, 3, &[4], &[0.1, 0.0], "1>0:80");
            threads[0].tid = Tid(302);
            threads[0].rates.remote_dram_per_s = Some(1e7);
            model
        };
        for number in 1..=3 {
            let _ = world.step(&interval(number, &world.topology));
        }
        if is_left {
            left_remote(&mut world);
        }
        world.step(&interval(4, &world.topology))
    };
    expect![[r#"
        sam: thread 302 of 3 to CPU 0, then CPUs 0-3
    "#]]
    .assert_eq(&fourth(false));
    expect![[r#"
        held: sam: thread 302 of 3 to CPU 0, then CPUs 0-3; N-MASS sent it away to make room in a cache
    "#]].assert_eq(&fourth(true));
}

#[test]
fn where_samples_will_tell_where_data_is_no_node_is_tried() {
    let fourth = |samples: Option<u32>| {
        let mut world = World::new(machine("node:4 core:2 mhz:2200"), Host::Refuses);
        let mut text = String::new();
        for number in 1..=4 {
            let mut model = second(0, &world.topology);
            model.at = Nanos::from_millis(100 * number);
            model.elapsed = Nanos::from_millis(100);
            let memory = [0.1, 0.1, 0.0, 0.0];
            let threads = process(&mut model, &world.topology, 3, &[4, 6], &memory, "");
            threads[0].rates.remote_dram_per_s = Some(1e7);
            threads[0].accesses_by_node = samples.map(|count| vec![0, count, 0, 0]);
            text = world.step(&model);
        }
        text
    };
    expect![[r#"
        sam: thread 304 of 3 to CPU 7, then CPUs 6-7
    "#]]
    .assert_eq(&fourth(None));
    expect![[r#"
        held: sam: thread 304 of 3 to CPU 7, then CPUs 6-7; too few samples yet to say where its data is
    "#]].assert_eq(&fourth(Some(3)));
    expect![[r#"
        sam: thread 304 of 3 to CPU 2, then CPUs 2-3
    "#]]
    .assert_eq(&fourth(Some(30)));
}
