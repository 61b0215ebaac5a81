//! What a manager that lives does to masks, and does not.

use rondpoint_core::observation::Exemption;
use rondpoint_core::plan::{Plan, StepResult};
use rondpoint_core::{CpuSet, Observation, Tid};
use rondpoint_linux::ledger_file::Entry;
use rondpoint_linux::syscall::affinity;

use crate::harness::Test;
use crate::stepping::Parts;
use crate::target::{Target, mask};

pub(crate) const TESTS: &[Test] = &[
    ("living::a_thread_never_gets_a_wider_mask_than_it_had", never_wider),
    ("living::who_is_born_with_our_mask_gets_what_its_creator_had", born_with_our_mask),
    ("living::a_thread_that_chooses_its_own_mask_is_left_alone", chooses),
    ("living::a_number_that_is_another_thread_by_now_is_gone", another_by_now),
    ("living::the_end_puts_every_mask_back", end),
];

fn apply(parts: &mut Parts, plan: &Plan) -> Vec<StepResult> {
    parts.actor.prepare(plan);
    (0..plan.steps.len()).map(|step| parts.step(plan, step).result).collect()
}

fn exempt(observation: &Observation, tid: u32) -> Option<Exemption> {
    let mut threads = observation.processes.iter().flat_map(|process| &process.threads);
    threads.find(|thread| thread.tid == Tid(tid)).expect("it was seen").exempt
}

fn never_wider(own: &CpuSet) {
    let target = Target::start();
    let first = own.min().expect("a CPU");
    let narrow: CpuSet = [first].into_iter().collect();
    affinity::set(target.pid() as i32, &narrow).expect("a CPU of ours");
    let other = own.iter().nth(1).expect("two CPUs");
    let mut parts = Parts::of(target.pid());
    let (observation, _) = parts.look();
    assert_eq!(
        exempt(&observation, target.pid()),
        None,
        "a whole program may be moved inside its mask"
    );
    let plan =
        parts.plan(target.pid(), &[(target.pid(), other, true), (target.pid(), other, false)]);
    let results = apply(&mut parts, &plan);
    assert_eq!(results, [StepResult::Done, StepResult::Refused { errno: 22 }]);
    assert_eq!(mask(target.pid()), narrow);
}

fn born_with_our_mask(own: &CpuSet) {
    let mut target = Target::start();
    let worker = target.order("thread");
    let mut parts = Parts::of(target.pid());
    parts.look();
    let cpu = own.min().expect("a CPU");
    let plan = parts.plan(target.pid(), &[(target.pid(), cpu, false)]);
    assert_eq!(apply(&mut parts, &plan), [StepResult::Done]);
    let (thread, child) = (target.order("thread"), target.order("child"));
    assert_eq!([mask(thread), mask(child), mask(worker)].map(|mask| mask.len()), [1, 1, own.len()]);
    let (observation, followed) = parts.look();
    assert_eq!(followed.heirs, 2, "{followed:?}");
    let is_child = |entry: &Entry| matches!(entry, Entry::Member { pid, .. } if *pid == child);
    assert!(followed.entries.iter().any(is_child), "{followed:?}");
    assert_eq!([mask(thread), mask(child)], [own.clone(), own.clone()]);
    assert_eq!(mask(target.pid()).len(), 1, "the creator keeps what it was given");
    for tid in [thread, child, worker, target.pid()] {
        assert_eq!(exempt(&observation, tid), None);
    }
    let (_, followed) = parts.look();
    assert_eq!((followed.heirs, followed.entries.len()), (0, 0));
}

fn chooses(own: &CpuSet) {
    let mut target = Target::start();
    let worker = target.order("thread");
    let mut parts = Parts::of(target.pid());
    parts.look();
    let (first, second) = (own.min().expect("a CPU"), own.iter().nth(1).expect("two CPUs"));
    let plan = parts.plan(target.pid(), &[(target.pid(), first, false)]);
    assert_eq!(apply(&mut parts, &plan), [StepResult::Done]);
    let plan = parts.plan(target.pid(), &[(target.pid(), first, true)]);
    target.order(&format!("pin {second}"));
    assert_eq!(apply(&mut parts, &plan), [StepResult::Refused { errno: 16 }]);
    for times in [0, 1] {
        let (observation, followed) = parts.look();
        assert_eq!(followed.left_alone, times, "told when it is seen twice");
        assert_eq!(exempt(&observation, target.pid()), Some(Exemption::OwnAffinity));
    }
    let (observation, _) = parts.look();
    assert_eq!(exempt(&observation, target.pid()), Some(Exemption::OwnAffinity));
    assert_eq!(exempt(&observation, worker), None);
    let plan = parts.plan(target.pid(), &[(target.pid(), first, false)]);
    assert_eq!(apply(&mut parts, &plan), [StepResult::Refused { errno: 16 }], "it has chosen");
    assert_eq!(parts.actor.restore_masks().put_back, 0);
    assert_eq!(mask(target.pid()), [second].into_iter().collect());
}

fn another_by_now(own: &CpuSet) {
    let mut target = Target::start();
    let mut parts = Parts::of(target.pid());
    parts.look();
    // It started after the look, so the plan cannot have meant it.
    let late = target.order("thread");
    let cpu = own.min().expect("a CPU");
    let child = target.order("child");
    let plan = parts.plan(target.pid(), &[(late, cpu, false), (child, cpu, false)]);
    assert_eq!(apply(&mut parts, &plan)[1], StepResult::Gone, "a thread of another process");
    assert_eq!(mask(child), *own);
    let orphan = target.order("orphan");
    rondpoint_linux::syscall::process::kill(orphan as i32, 9).expect("it runs");
}

fn end(own: &CpuSet) {
    let mut target = Target::start();
    let threads: Vec<u32> = (0..3).map(|_| target.order("thread")).collect();
    let before = target.masks();
    let mut parts = Parts::of(target.pid());
    parts.look();
    assert!(!parts.actor.has_changed_masks());
    for round in 0..2 {
        let cpus: Vec<usize> = own.iter().take(2).collect();
        let moves: Vec<_> =
            threads.iter().map(|tid| (*tid, cpus[(*tid as usize + round) % 2], false)).collect();
        let plan = parts.plan(target.pid(), &moves);
        assert!(apply(&mut parts, &plan).iter().all(|result| *result == StepResult::Done));
    }
    assert_ne!(target.masks(), before);
    assert!(parts.actor.has_changed_masks());
    let restored = parts.actor.restore_masks();
    assert_eq!((restored.put_back, restored.left_alone, restored.refused), (3, 0, 0));
    assert_eq!(target.masks(), before);
}
