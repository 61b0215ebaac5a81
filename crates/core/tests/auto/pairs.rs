//! Pairs that samples name: before SAM's phase C, and left to it where samples say nothing.

use crate::scene::{Host, World, machine, process, second};
use expect_test::{Expect, expect};
use rondpoint_core::model::{Rung, Touch};
use rondpoint_core::{Model, Nanos, Topology};

/// What two readers, each of which the one that fills its buffers sits away from, show in an
/// interval of 100 ms.
#[derive(Clone, Copy)]
struct Pairs {
    /// Threads 100 and 101 fill, 102 and 103 read.
    cpus: [usize; 4],
    /// Lines that a reader fetches from caches of other nodes, per second.
    fetched: f64,
    /// Pairs of threads that touch the same page, if samples tell.
    touch: &'static [[usize; 2]],
    rung: Rung,
    /// The readers are there.
    read: bool,
    /// This many of them, the last first, fetch anything.
    begun: usize,
}

const APART: Pairs = Pairs {
    cpus: [0, 2, 1, 3],
    fetched: 2e6,
    touch: &[[0, 3], [1, 2]],
    rung: Rung::Samples,
    read: true,
    begun: 2,
};
/// The readers have changed places.
const TOGETHER: Pairs = Pairs { cpus: [0, 2, 3, 1], ..APART };

impl Pairs {
    fn interval(self, number: u64, topology: &Topology) -> Model {
        let mut model = second(0, topology);
        model.at = Nanos::from_millis(100 * number);
        model.elapsed = Nanos::from_millis(100);
        model.sensing.rung = self.rung;
        // Threads are named after the CPUs where they begin.
        let count = if self.read { 4 } else { 2 };
        let threads = process(&mut model, topology, 1, &[0, 1, 2, 3][..count], &[0.1, 0.1], "");
        for (index, thread) in threads.iter_mut().enumerate() {
            thread.cpu = self.cpus[index];
            thread.rates.coherence_remote_per_s =
                Some(if index + self.begun < 4 { 0.0 } else { self.fetched });
            thread.rates.memory_per_s = Some(0.0);
        }
        for (place, pair) in self.touch.iter().enumerate() {
            for thread in pair.iter().filter(|thread| **thread < count) {
                let address = (1 + place as u64) << 12;
                let node = topology.node_of_cpu(self.cpus[*thread]) as u16;
                let page = model.pages.record(0, address, 12, 0, node, true).expect("room");
                model.touches.push(Touch { page, thread: *thread as u32, remote: true });
            }
        }
        model
    }
}

/// The first line of each kind that a step tells, with its time, over this many seconds.
fn check(seconds: u64, pairs: impl Fn(u64) -> Pairs, expected: Expect) -> World {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::Obeys);
    let (mut text, mut last) = (String::new(), String::new());
    for number in 1..=10 * seconds {
        let model = pairs(number).interval(number, &world.topology);
        let step = world.step(&model);
        let of_threads: Vec<&str> = step.lines().filter(|line| line.contains("thread")).collect();
        let what = of_threads.join("\n  ");
        let kind: String = what.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        if kind != last && !what.is_empty() && !what.contains("more than 3 needed") {
            text += &format!("{:.1} s: {what}\n", number as f64 / 10.0);
        }
        last = kind;
    }
    expected.assert_eq(&text);
    world
}

#[test]
fn pairs_come_together_by_their_pages_before_readers_do_by_counters() {
    check(
        3,
        |number| match number {
            5.. => Pairs { fetched: 0.0, ..TOGETHER },
            _ => APART,
        },
        expect![[r#"
            0.1 s: held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; samples are asked first which threads share data with each other
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; samples are asked first which threads share data with each other
              held: sam: thread 102 of 1 to CPUs 0-1; samples are asked first which threads share data with each other
            0.4 s: sharing: thread 102 of 1 to CPU 3, then CPUs 2-3
              sharing: thread 103 of 1 to CPU 1, then CPUs 0-1
              sharing: thread 100 of 1 to CPUs 0-1
              sharing: thread 101 of 1 to CPUs 2-3
              held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; it is not worth it
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; it is not worth it
              held: sam: thread 102 of 1 to CPUs 0-1; it is not worth it
        "#]],
    );
}

#[test]
fn a_thread_that_is_not_named_yet_is_waited_for_until_the_epoch_ends() {
    check(
        1,
        |_| Pairs { touch: &[[0, 3], [1, 1], [2, 2]], ..APART },
        expect![[r#"
            0.1 s: held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; samples are asked first which threads share data with each other
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; samples are asked first which threads share data with each other
              held: sam: thread 102 of 1 to CPUs 0-1; samples are asked first which threads share data with each other
            1.0 s: sharing: thread 102 of 1 to CPU 3, then CPUs 2-3
              sharing: thread 103 of 1 to CPU 1, then CPUs 0-1
              sharing: thread 100 of 1 to CPUs 0-1
              held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; it is not worth it
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; it is not worth it
              held: sam: thread 102 of 1 to CPUs 0-1; it is not worth it
        "#]],
    );
}

#[test]
fn counters_do_not_take_a_pair_apart_that_still_exchanges_something() {
    check(
        5,
        |number| match number {
            5.. => Pairs { fetched: 9e5, ..TOGETHER },
            _ => APART,
        },
        expect![[r#"
            0.1 s: held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; samples are asked first which threads share data with each other
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; samples are asked first which threads share data with each other
              held: sam: thread 102 of 1 to CPUs 0-1; samples are asked first which threads share data with each other
            0.4 s: sharing: thread 102 of 1 to CPU 3, then CPUs 2-3
              sharing: thread 103 of 1 to CPU 1, then CPUs 0-1
              sharing: thread 100 of 1 to CPUs 0-1
              sharing: thread 101 of 1 to CPUs 2-3
              held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; it is not worth it
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; it is not worth it
              held: sam: thread 102 of 1 to CPUs 0-1; it is not worth it
            0.5 s: held: sam: thread 102 of 1 to CPU 0, then CPUs 0-1; it is not worth it
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; it is not worth it
              held: sam: thread 103 of 1 to CPUs 0-1; it is not worth it
        "#]],
    );
}

#[test]
fn a_thread_with_the_number_of_one_that_ended_was_brought_to_no_partner() {
    // New readers, far from the threads that fill their buffers. Samples do not name their pages.
    const NEW: Pairs = Pairs { touch: &[[0, 0], [1, 1], [2, 2], [3, 3]], fetched: 9e5, ..APART };
    check(
        3,
        |number| match number {
            5 | 6 => Pairs { read: false, ..TOGETHER },
            7.. => NEW,
            _ => APART,
        },
        expect![[r#"
            0.1 s: held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; samples are asked first which threads share data with each other
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; samples are asked first which threads share data with each other
              held: sam: thread 102 of 1 to CPUs 0-1; samples are asked first which threads share data with each other
            0.4 s: sharing: thread 102 of 1 to CPU 3, then CPUs 2-3
              sharing: thread 103 of 1 to CPU 1, then CPUs 0-1
              sharing: thread 100 of 1 to CPUs 0-1
              sharing: thread 101 of 1 to CPUs 2-3
              held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; it is not worth it
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; it is not worth it
              held: sam: thread 102 of 1 to CPUs 0-1; it is not worth it
            0.7 s: held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; it is not worth it
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; it is not worth it
              held: sam: thread 102 of 1 to CPUs 0-1; it is not worth it
        "#]],
    );
}

#[test]
fn without_samples_of_addresses_sam_gathers_the_threads_it_sees() {
    check(
        1,
        |_| Pairs { rung: Rung::Counters, ..APART },
        expect![[r#"
            0.1 s: sam: thread 103 of 1 to CPU 0, then CPUs 0-1
              sam: thread 100 of 1 to CPU 3, then CPUs 2-3
              sam: thread 102 of 1 to CPUs 0-1
        "#]],
    );
}

#[test]
fn samples_are_many_again_for_pairs_that_come_apart_when_carrefour_asks_for_few() {
    let told = check(
        4,
        |number| match number {
            // Carrefour sees no traffic to memory.
            ..=14 => Pairs { fetched: 0.0, touch: &[], ..TOGETHER },
            15..=17 => Pairs { rung: Rung::Counters, touch: &[], ..APART },
            18..=20 => APART,
            21.. => Pairs { fetched: 0.0, rung: Rung::Counters, ..TOGETHER },
        },
        expect![[r#"
            1.5 s: held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; samples are asked first which threads share data with each other
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; samples are asked first which threads share data with each other
              held: sam: thread 102 of 1 to CPUs 0-1; samples are asked first which threads share data with each other
            2.0 s: sharing: thread 102 of 1 to CPU 3, then CPUs 2-3
              sharing: thread 103 of 1 to CPU 1, then CPUs 0-1
              sharing: thread 100 of 1 to CPUs 0-1
              sharing: thread 101 of 1 to CPUs 2-3
              held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; it is not worth it
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; it is not worth it
              held: sam: thread 102 of 1 to CPUs 0-1; it is not worth it
        "#]],
    );
    expect![[r#"
        1 s: sample 1: every 260000 cycles, 30000 pages tracked
        1 s: sample 1: every 65000 cycles, 30000 pages tracked
        2 s: sample 1: every 260000 cycles, 30000 pages tracked"#]]
    .assert_eq(&told.rates.join("\n"));
}

#[test]
fn a_thread_that_was_not_seen_is_named_too_before_others_push_it_away() {
    // The reader 102 has not begun yet.
    const HALF: Pairs = Pairs { touch: &[[0, 3]], begun: 1, ..APART };
    check(
        1,
        |number| match number {
            ..=3 => HALF,
            _ => Pairs { touch: APART.touch, ..HALF },
        },
        expect![[r#"
            0.6 s: sharing: thread 102 of 1 to CPU 3, then CPUs 2-3
              sharing: thread 103 of 1 to CPU 1, then CPUs 0-1
              sharing: thread 100 of 1 to CPUs 0-1
              sharing: thread 101 of 1 to CPUs 2-3
            1.0 s: sharing: thread 102 of 1 to CPU 3, then CPUs 2-3
              sharing: thread 103 of 1 to CPU 1, then CPUs 0-1
              sharing: thread 100 of 1 to CPUs 0-1
              sharing: thread 101 of 1 to CPUs 2-3
        "#]],
    );
}

#[test]
fn where_samples_name_nobody_sam_acts() {
    let with = |touch| move |_| Pairs { touch, ..APART };
    check(
        2,
        with(&[[0, 0], [1, 1], [2, 2], [3, 3]]),
        expect![[r#"
            0.1 s: held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; samples are asked first which threads share data with each other
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; samples are asked first which threads share data with each other
              held: sam: thread 102 of 1 to CPUs 0-1; samples are asked first which threads share data with each other
            1.0 s: sam: thread 103 of 1 to CPU 0, then CPUs 0-1
              sam: thread 100 of 1 to CPU 3, then CPUs 2-3
              sam: thread 102 of 1 to CPUs 0-1
        "#]],
    );
    check(
        3,
        with(&[]),
        expect![[r#"
            0.1 s: held: sam: thread 103 of 1 to CPU 0, then CPUs 0-1; samples are asked first which threads share data with each other
              held: sam: thread 100 of 1 to CPU 3, then CPUs 2-3; samples are asked first which threads share data with each other
              held: sam: thread 102 of 1 to CPUs 0-1; samples are asked first which threads share data with each other
            2.1 s: sam: thread 103 of 1 to CPU 0, then CPUs 0-1
              sam: thread 100 of 1 to CPU 3, then CPUs 2-3
              sam: thread 102 of 1 to CPUs 0-1
        "#]],
    );
}
