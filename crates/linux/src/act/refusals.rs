//! Tests that no mask is forgotten if the kernel refuses to restore it, or changes a cpuset.

use std::collections::BTreeSet;

use rondpoint_core::observation::{Observation, ProcessObservation, ThreadObservation};
use rondpoint_core::plan::{Action, Plan, Proposal, Reason, StepResult};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{CpuSet, Nanos, Tid};

use super::masks::{Change, Masks, Original, Standing, Task};
use super::{Actor, Identity, threads};
use crate::Root;
use crate::ledger_file::{self, LedgerFile};
use crate::sleeper::Sleeper;
use crate::syscall::affinity;

/// A change of the mask of a process's first thread, which had `before` of its own.
fn change(plan: u64, process: Identity, before: &CpuSet, cpus: CpuSet) -> Change {
    Change {
        plan,
        task: Task { process, tid: Tid(process.pid.0), started: process.started },
        session: 1,
        at: Nanos(plan),
        original: Original { cpus: before.clone(), whole: false },
        via: None,
        cpus,
    }
}

/// The kernel refuses a mask without a CPU of the machine, as after a cpuset has shrunk.
#[test]
fn masks_that_the_kernel_refuses_to_restore_are_tried_again_at_the_end() {
    let sleeper = Sleeper::start();
    let process = sleeper.identity();
    let thread = process.pid.0 as i32;
    let before = affinity::get(thread).unwrap();
    let cpus = CpuSet::from_iter(before.iter().take(1));
    let machine = synthetic::parse("node:1 core:1").unwrap();
    let held = |before: &CpuSet| {
        let mut actor = Actor::new(Root::live(), machine.clone(), process.pid);
        affinity::set(thread, &cpus).unwrap();
        actor.masks.enter(&change(1, process, before, cpus.clone()));
        actor
    };
    let absent = CpuSet::from_iter([8000]);
    let mut actor = held(&absent);
    assert!(actor.has_changed_masks());
    assert_eq!(actor.release(process).0.refused, 1);
    assert_eq!(actor.begin_anew().0.refused, 1, "it is tried again");
    let restored = actor.restore_masks();
    assert_eq!((restored.outside, restored.refused), (1, 0), "for the last time");
    let mut actor = held(&before);
    assert_eq!(actor.release(process).0.refused, 0);
    assert_eq!(actor.masks.tasks().count(), 0);
    let mut actor = held(&before);
    assert_eq!(actor.begin_anew().0.refused, 0);
    assert!(!actor.has_changed_masks());
}

/// The kernel lowers the mask of a thread with its cpuset. A look may see the one before the other.
#[test]
fn a_mask_that_a_cpuset_has_changed_is_not_taken_for_one_that_a_thread_chose() {
    let sleeper = Sleeper::start();
    let process = sleeper.identity();
    let thread = process.pid.0 as i32;
    let before = affinity::get(thread).unwrap();
    if before.len() < 2 {
        return;
    }
    let one = |place| CpuSet::from_iter(before.iter().skip(place).take(1));
    let folder = tempfile::tempdir().unwrap();
    let root = Root::captured(folder.path());
    let own = root.in_proc(process.pid.to_string());
    std::fs::create_dir_all(&own).unwrap();
    for name in ["stat", "task"] {
        std::os::unix::fs::symlink(format!("/proc/{}/{name}", process.pid), own.join(name))
            .unwrap();
    }
    std::fs::write(own.join("cpuset"), "/a\n").unwrap();
    let cpuset = root.in_sys("fs/cgroup/cpuset/a");
    std::fs::create_dir_all(&cpuset).unwrap();
    let told = |cpus: &CpuSet| {
        std::fs::write(cpuset.join("cpuset.effective_cpus"), cpus.to_string()).unwrap();
    };
    let machine = crate::topology::discover(&Root::live()).unwrap().topology;
    let mut actor = Actor::new(root.clone(), machine, process.pid);
    let look = |actor: &mut Actor| {
        let tid = Tid(process.pid.0);
        let thread = ThreadObservation { tid, ..ThreadObservation::default() };
        let seen = ProcessObservation {
            pid: process.pid,
            started: process.started,
            threads: vec![thread],
            ..ProcessObservation::default()
        };
        let at = Nanos(crate::syscall::time::since_boot_ns());
        let mut observation = Observation { at, processes: vec![seen], ..Observation::default() };
        actor.follow(&mut observation, &BTreeSet::new()).left_alone
    };
    let original = Original { cpus: before.clone(), whole: true };
    actor.masks.enter(&Change { original, ..change(1, process, &before, one(0)) });
    // The cpuset has lost the CPU of the mask, has it again, and the mask is late.
    affinity::set(thread, &one(1)).unwrap();
    told(&before);
    assert_eq!(look(&mut actor), 0);
    told(&one(1));
    assert_eq!(look(&mut actor), 0);
    told(&before);
    assert_eq!(look(&mut actor), 0, "it was right in between");
    affinity::set(thread, &one(0)).unwrap();
    assert_eq!(look(&mut actor), 0);
    assert_eq!(actor.restore_masks().put_back, 1);
    assert_eq!(affinity::get(thread).unwrap(), before);
}

/// The manager writes a plan down, and the kernel refuses it. Later plans follow, and it is killed.
#[test]
fn a_mask_is_restored_from_a_ledger_although_a_later_one_was_refused() {
    let sleeper = Sleeper::start();
    let process = sleeper.identity();
    let thread = process.pid.0 as i32;
    let before = affinity::get(thread).unwrap();
    let machine = synthetic::parse("node:1 core:1").unwrap();
    let mut actor = Actor::new(Root::live(), machine, process.pid);
    let folder = tempfile::tempdir().unwrap();
    let ledgers = folder.path().join("ledgers");
    let mut ledger = LedgerFile::create(&ledgers, &Root::live()).unwrap();
    let (one, absent) = (CpuSet::from_iter(before.iter().take(1)), CpuSet::from_iter([8000]));
    for (number, cpus) in [(1, one.clone()), (2, absent)] {
        let (pid, tid) = (process.pid, Tid(process.pid.0));
        let action = Action::SetAffinity { pid, tid, cpus: cpus.clone(), via: None };
        let reason = Reason::Other("a test".to_string());
        let steps = vec![Proposal { policy: "test", action, reason }];
        let plan = Plan { number, steps, ..Plan::default() };
        let change = change(number, process, &before, cpus);
        ledger.write(&[change.entry()]).unwrap();
        actor.prepared.insert((number, 0), Ok(change));
        let result = actor.step(&plan, 0, &mut ledger).result;
        assert_eq!(matches!(result, StepResult::Refused { .. }), number == 2, "{result:?}");
    }
    assert_eq!(affinity::get(thread).unwrap(), one);
    // Of a thread that has ended since.
    let mut ended = change(3, process, &before, one);
    ended.task.tid = Tid(5_000_000);
    ledger.write(&[ended.entry()]).unwrap();
    drop(ledger);
    // A child that another test forked has the ledger's lock until its program begins.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let left = loop {
        let left = ledger_file::left_behind(&ledgers).unwrap().left;
        if !left.is_empty() || std::time::Instant::now() > deadline {
            break left;
        }
        std::thread::yield_now();
    };
    let restored = super::threads::restore(&Root::live(), &left[0].masks);
    assert_eq!((restored.left_alone, restored.refused), (0, 0), "{restored:?}");
    assert_eq!(affinity::get(thread).unwrap(), before);
}

/// execve(2) gives the number and the start time of the main thread to the thread that calls it.
#[test]
fn a_program_that_another_thread_began_gets_that_threads_first_mask() {
    let sleeper = Sleeper::start();
    let process = sleeper.identity();
    let before = affinity::get(process.pid.0 as i32).unwrap();
    let given: CpuSet = before.iter().take(1).collect();
    let main = Task { process, tid: Tid(process.pid.0), started: process.started };
    let other = |tid| Task { process, tid: Tid(tid), started: Nanos(process.started.0 + 1) };
    // A number above the kernel's largest one, and a thread that lives.
    let (ended, lives) = (other(1 << 22), other(std::process::id()));
    let found = |tasks: &[Task]| {
        let mut masks = Masks::default();
        for task in tasks {
            let at = Nanos(process.started.0 + 1_000_000_000);
            let change = change(1, process, &before, given.clone());
            masks.enter(&Change { task: *task, at, ..change });
        }
        threads::standing(&masks, &main, &given, None)
    };
    let heir = Standing::Heir(Original { cpus: before.clone(), whole: false });
    assert_eq!(found(&[ended]), heir);
    assert_eq!(found(&[ended, lives]), Standing::Untouched, "it chose the same mask");
    assert_eq!(found(&[main, ended]), Standing::Ours(Original { cpus: before, whole: false }));
}
