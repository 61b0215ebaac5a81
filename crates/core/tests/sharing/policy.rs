//! From a model with sampled touches to proposals.

use expect_test::{Expect, expect};
use rondpoint_core::model::{App, Model, PageId, Thread, Touch};
use rondpoint_core::policy::sharing::{Preset, Sharing};
use rondpoint_core::topology::{Topology, synthetic};
use rondpoint_core::{Pid, Policy, Random, Tid};
use std::fmt::Write;

/// Threads of one process on these CPUs; `touches` are `(page, thread)`.
fn model(topology: &Topology, cpus: &[usize], touches: &[(u32, u32)]) -> Model {
    let mut model = Model::empty(topology.node_count());
    model.apps.push(App::new(Pid(7), 0..cpus.len()));
    for (index, &cpu) in cpus.iter().enumerate() {
        let mut thread = Thread::new(Tid(index as u32), 0, cpu, topology.all_cpus());
        thread.rates.mpki = Some(1.0);
        model.threads.push(thread);
    }
    for &(page, thread) in touches {
        let node = topology.node_of_cpu(cpus[thread as usize]) as u16;
        model.pages.record(0, u64::from(page) << 12, 12, 0, node, false);
        model.touches.push(Touch { page: PageId(page), thread, remote: true });
    }
    model.check(topology).expect("a model without contradictions");
    model
}

fn step(policy: &mut Sharing, topology: &Topology, model: &Model) -> String {
    let mut out = String::new();
    for proposal in policy.propose(model, topology, &mut Random::new(0)) {
        writeln!(out, "{}: {}", proposal.action, proposal.reason).expect("text");
    }
    out
}

/// Six samples of two threads in turn on one page: five common ones.
const FIVE_COMMON: [(u32, u32); 6] = [(0, 0), (0, 1), (0, 0), (0, 1), (0, 0), (0, 1)];

fn check(preset: Preset, touches: &[(u32, u32)], expected: Expect) {
    let topology = synthetic::parse("node:2 core:2 pu:2").expect("a machine");
    let model = model(&topology, &[0, 4, 1], touches);
    expected.assert_eq(&step(&mut Sharing::new(preset), &topology, &model));
}

#[test]
fn five_common_samples_bring_threads_together_and_four_do_not() {
    check(
        Preset::KAMALI,
        &FIVE_COMMON,
        expect![[r#"
            thread 0 of 7 to CPU 6, then CPUs 4-7: shares data in a group of 2 (at least 5 in common), 0→1
            thread 1 of 7 to CPUs 4-7: stays on node 1 with its group of 2
        "#]],
    );
    check(Preset::KAMALI, &FIVE_COMMON[1..], expect![]);
}

#[test]
fn threads_together_by_chance_are_held_once_others_come_together() {
    // Threads 0 and 1 share a page, and so do 2 and 3, which are on node 1 both.
    let topology = synthetic::parse("node:2 core:4").expect("a machine");
    let second = FIVE_COMMON.map(|(_, thread)| (1, thread + 2));
    let touches: Vec<(u32, u32)> = FIVE_COMMON.into_iter().chain(second).collect();
    let told = |cpus: &[usize]| {
        let model = model(&topology, cpus, &touches);
        step(&mut Sharing::new(Preset::KAMALI), &topology, &model)
    };
    expect![[r#"
        thread 1 of 7 to CPU 1, then CPUs 0-3: shares data in a group of 2 (at least 5 in common), 1→0
        thread 0 of 7 to CPUs 0-3: stays on node 0 with its group of 2
        thread 2 of 7 to CPUs 4-7: stays on node 1 with its group of 2
        thread 3 of 7 to CPUs 4-7: stays on node 1 with its group of 2
    "#]]
    .assert_eq(&told(&[0, 4, 5, 6]));
    assert_eq!(told(&[0, 1, 5, 6]), "", "no thread has to move, so none is pinned");
}

#[test]
fn threads_of_processes_that_are_not_asked_for_neither_join_nor_make_room() {
    // Threads 0 and 1 share a page, and 2 and 3 another. Those from 2 on are another process, which
    // fills node 1.
    let topology = synthetic::parse("node:2 core:2").expect("a machine");
    let second = FIVE_COMMON.map(|(_, thread)| (1, thread + 2));
    let touches: Vec<(u32, u32)> = FIVE_COMMON.into_iter().chain(second).collect();
    let mut model = model(&topology, &[0, 2, 1, 3], &touches);
    model.apps[0].threads = 0..2;
    model.apps.push(App::new(Pid(8), 2..4));
    model.threads[2..].iter_mut().for_each(|thread| thread.app = 1);
    let moved = |asked: &[u32]| {
        let is_asked = |app: &App| asked.contains(&app.pid.0);
        let proposals = Sharing::new(Preset::KAMALI).propose_for(&model, &topology, is_asked);
        proposals.iter().map(|one| format!("{}\n", one.action)).collect::<String>()
    };
    expect![[""]].assert_eq(&moved(&[7]));
    expect![[r#"
        thread 1 of 7 to CPU 1, then CPUs 0-1
        thread 2 of 8 to CPU 2, then CPUs 2-3
        thread 0 of 7 to CPUs 0-1
        thread 3 of 8 to CPUs 2-3
    "#]]
    .assert_eq(&moved(&[7, 8]));
}

#[test]
fn the_authors_code_releases_the_mask_and_leaves_the_next_round_to_pages() {
    let topology = synthetic::parse("node:2 core:2 pu:2").expect("a machine");
    let apart = model(&topology, &[0, 4, 1], &FIVE_COMMON);
    let mut policy = Sharing::new(Preset::AUTHOR);
    expect![[r#"
        thread 0 of 7 to CPU 6, then CPUs 0-7: shares data in a group of 2 (at least 5 in common), 0→1
    "#]].assert_eq(&step(&mut policy, &topology, &apart));
    assert_eq!(step(&mut policy, &topology, &apart), "", "the pages' round");
    assert_eq!(step(&mut policy, &topology, &apart).lines().count(), 1);
    let together = model(&topology, &[0, 1, 4], &FIVE_COMMON);
    assert_eq!(step(&mut policy, &topology, &together), "", "the pages' round");
    assert_eq!(
        step(&mut policy, &topology, &together),
        "",
        "no thread moved: pages are next at once"
    );
}

#[test]
fn signatures_need_many_remote_accesses_in_common() {
    let touches: Vec<(u32, u32)> = (0..4200).map(|i| (0, i / 10 % 2)).collect();
    check(
        Preset::TAM,
        &touches,
        expect![[r#"
            thread 0 of 7 to CPU 6, then CPUs 4-7: shares data in a group of 2 (at least 44100 in common), 0→1
            thread 1 of 7 to CPUs 4-7: stays on node 1 with its group of 2
        "#]],
    );
    check(Preset::TAM, &touches[..2000], expect![]);
}
