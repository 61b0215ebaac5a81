//! Pairs that samples name: before SAM's phase C, and left to it where samples say nothing.

use crate::scene::{Host, World, machine, process, second};
use expect_test::{Expect, expect};
use rondpoint_core::model::{Rung, Touch};
use rondpoint_core::plan::{Refusal, Refused};
use rondpoint_core::policy::auto::Veto;
use rondpoint_core::{Action, Model, Nanos, Proposal, Tid, Topology};

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
    /// The processor counts these lines. Others count them as accesses to remote memory.
    counted: bool,
    /// Accesses of the readers to memory of the node where they were apart, per second.
    far_memory: f64,
}

const APART: Pairs = Pairs {
    cpus: [0, 2, 1, 3],
    fetched: 2e6,
    touch: &[[0, 3], [1, 2]],
    rung: Rung::Samples,
    read: true,
    begun: 2,
    counted: true,
    far_memory: 0.0,
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
            let fetched = Some(if index + self.begun < 4 { 0.0 } else { self.fetched });
            match self.counted {
                true => thread.rates.coherence_remote_per_s = fetched,
                false => thread.rates.remote_dram_per_s = fetched,
            }
            thread.rates.memory_per_s = Some(0.0);
            if self.far_memory > 0.0 && index > 1 {
                thread.rates.memory_per_s = Some(self.far_memory);
                thread.rates.remote_dram_per_s = Some(self.far_memory);
                let home = topology.node_of_cpu(APART.cpus[index]);
                thread.accesses_by_node =
                    Some((0..2).map(|node| 100 * u32::from(node == home)).collect());
            }
            thread.rates.instructions_per_s = Some(1e9);
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

    /// Whether thread 103 is on the node of thread 100, and thread 102 on that of thread 101, after
    /// these steps.
    fn are_together_after(self, steps: &[Proposal], topology: &Topology) -> bool {
        let node = |index: usize| {
            let of_thread = |step: &&Proposal| step.action.tid() == Some(Tid(100 + index as u32));
            let cpu = match steps.iter().find(of_thread).map(|step| &step.action) {
                Some(Action::SetAffinity { cpus, .. }) => cpus.iter().next(),
                _ => None,
            };
            topology.node_of_cpu(cpu.unwrap_or(self.cpus[index]))
        };
        node(0) == node(3) && node(1) == node(2)
    }
}

/// What each policy does with threads, and whether the pairs of `touch` share a node after it. Each
/// line has the time at which it is first so, over this many seconds.
fn check(seconds: u64, pairs: impl Fn(u64) -> Pairs, expected: Expect) -> World {
    check_beside_trial(Nanos(0), seconds, pairs, expected)
}

/// The same while a trial of another policy makes all steps wait until a time.
fn check_beside_trial(
    until: Nanos,
    seconds: u64,
    pairs: impl Fn(u64) -> Pairs,
    expected: Expect,
) -> World {
    let mut world = World::new(machine("node:2 core:2 mhz:2200"), Host::Obeys);
    world.trial_until = until;
    let (mut text, mut last) = (String::new(), String::new());
    for number in 1..=10 * seconds {
        let shown = pairs(number);
        let (steps, vetoed) = world.decide(&shown.interval(number, &world.topology));
        let waits = |one: &Refused| one.refusal == Refusal::Vetoed { veto: Veto::SamplesFirst };
        let what = match moved(&steps) {
            Some(policy) if shown.are_together_after(&steps, &world.topology) => {
                format!("{policy} brings pairs together")
            }
            Some(policy) => format!("{policy} moves threads, pairs are apart"),
            None if vetoed.iter().any(waits) => "threads wait for samples".to_string(),
            None => match vetoed.iter().find(|one| one.proposal.action.tid().is_some()) {
                Some(held) => format!("{} finds no move worth its cost", held.proposal.policy),
                None => String::new(),
            },
        };
        if what != last && !what.is_empty() {
            text += &format!("{:.1} s: {what}\n", number as f64 / 10.0);
        }
        last = what;
    }
    expected.assert_eq(&text);
    world
}

/// The policy that moves threads, if one does.
fn moved(steps: &[Proposal]) -> Option<&'static str> {
    steps.iter().find(|step| step.action.tid().is_some()).map(|step| step.policy)
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
            0.1 s: threads wait for samples
            0.4 s: sharing brings pairs together
        "#]],
    );
}

/// The lane of pairs is not due at the end of the trial, SAM's is.
#[test]
fn pairs_that_wait_for_a_trial_come_together_when_it_ends() {
    check_beside_trial(
        Nanos::from_millis(700),
        1,
        |number| match number {
            8.. => TOGETHER,
            _ => APART,
        },
        expect![[r#"
            0.1 s: threads wait for samples
            0.4 s: sam finds no move worth its cost
            0.7 s: sharing brings pairs together
            0.8 s: sam finds no move worth its cost
        "#]],
    );
}

#[test]
fn a_thread_that_is_not_named_yet_is_waited_for_until_the_epoch_ends() {
    check(
        1,
        |_| Pairs { touch: &[[0, 3], [1, 1], [2, 2]], ..APART },
        expect![[r#"
            0.1 s: threads wait for samples
            1.0 s: sharing brings pairs together
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
            0.1 s: threads wait for samples
            0.4 s: sharing brings pairs together
            0.5 s: sam finds no move worth its cost
        "#]],
    );
}

/// Behind one cache no counter shows what the pairs exchange. Their memory is far then.
#[test]
fn counters_do_not_take_a_pair_apart_whose_lines_they_do_not_show() {
    let joined = |number| match number {
        5.. => Pairs { fetched: 0.0, far_memory: 2e7, ..TOGETHER },
        _ => APART,
    };
    check(
        3,
        joined,
        expect![[r#"
        0.1 s: threads wait for samples
        0.4 s: sharing brings pairs together
        0.5 s: sam finds no move worth its cost
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
            0.1 s: threads wait for samples
            0.4 s: sharing brings pairs together
            0.7 s: sam finds no move worth its cost
        "#]],
    );
}

#[test]
fn without_samples_of_addresses_sam_gathers_the_threads_it_sees() {
    check(
        1,
        |_| Pairs { rung: Rung::Counters, ..APART },
        expect![[r#"
            0.1 s: sam moves threads, pairs are apart
        "#]],
    );
}

/// Samples tell lines of other caches from memory once they are many.
#[test]
fn pairs_are_named_where_the_processor_does_not_count_what_they_exchange() {
    check(
        1,
        |number| match number {
            5.. => Pairs { fetched: 0.0, ..TOGETHER },
            _ => Pairs { counted: number > 2, ..APART },
        },
        expect![[r#"
            0.3 s: threads wait for samples
            0.4 s: sharing brings pairs together
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
            1.5 s: threads wait for samples
            2.0 s: sharing brings pairs together
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
            0.6 s: sharing brings pairs together
            1.0 s: sharing brings pairs together
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
            0.1 s: threads wait for samples
            1.0 s: sam moves threads, pairs are apart
        "#]],
    );
    check(
        3,
        with(&[]),
        expect![[r#"
            0.1 s: threads wait for samples
            2.1 s: sam moves threads, pairs are apart
        "#]],
    );
}
