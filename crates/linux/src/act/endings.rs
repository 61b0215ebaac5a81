//! Tests that an actor changes nothing in the name of an ended process or thread. One look notes
//! new processes, heirs and ended threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rondpoint_core::observation::{Exemption, Observation, ProcessObservation, ThreadObservation};
use rondpoint_core::plan::{Action, Mechanism, Plan, Proposal, Reason, StepResult};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Bytes, CpuSet, Nanos, Pid, Tid};

use super::masks::{Change, Original, Standing, Task};
use super::{Actor, Identity, threads};
use crate::Root;
use crate::ledger_file::{Entry, LedgerFile};
use crate::sleeper::Sleeper;
use crate::syscall::affinity;
use crate::syscall::time::since_boot_ns;

/// No process has this number: the kernel's are below 2^22.
const NOBODY: u32 = 5_000_000;

fn actor(first: Pid) -> Actor {
    let machine = crate::topology::discover(&Root::live()).unwrap().topology;
    Actor::new(Root::live(), machine, first)
}

/// An actor that has observed these processes.
fn seeing(processes: &[Identity]) -> Actor {
    let mut actor = actor(processes[0].pid);
    actor.seen = Nanos(u64::MAX);
    actor.started = processes.iter().map(|process| (process.pid, process.started)).collect();
    actor
}

fn plan(action: Action) -> Plan {
    let reason = Reason::Other("a test".to_string());
    Plan { number: 1, steps: vec![Proposal { policy: "test", action, reason }], ..Plan::default() }
}

fn affinity_of(process: Identity, cpus: CpuSet) -> Action {
    Action::SetAffinity { pid: process.pid, tid: Tid(process.pid.0), cpus, via: None }
}

fn main_thread(process: Identity) -> Task {
    Task { process, tid: Tid(process.pid.0), started: process.started }
}

fn change(task: Task, at: Nanos, before: &CpuSet, cpus: &CpuSet) -> Change {
    let original = Original { cpus: before.clone(), whole: false };
    Change { plan: 1, task, session: 1, at, original, via: None, cpus: cpus.clone() }
}

/// An observation of these processes and their main threads.
fn observed(processes: &[Identity]) -> Observation {
    let seen = |process: &Identity| {
        let thread = ThreadObservation { tid: Tid(process.pid.0), ..ThreadObservation::default() };
        let (pid, started, threads) = (process.pid, process.started, vec![thread]);
        ProcessObservation { pid, started, threads, ..ProcessObservation::default() }
    };
    let processes = processes.iter().map(seen).collect();
    Observation { at: Nanos(since_boot_ns()), processes, ..Observation::default() }
}

fn mask(process: Identity) -> CpuSet {
    affinity::get(process.pid.0 as i32).unwrap()
}

fn ledger() -> (tempfile::TempDir, LedgerFile) {
    let folder = tempfile::tempdir().unwrap();
    let ledger = LedgerFile::create(&folder.path().join("ledgers"), &Root::live()).unwrap();
    (folder, ledger)
}

#[test]
fn a_process_lives_if_its_number_and_its_start_are_there() {
    let own = Identity::of(&Root::live(), Pid(std::process::id())).unwrap();
    let later = Identity { started: Nanos(own.started.0 + 1), ..own };
    let nobody = Identity { pid: Pid(NOBODY), ..own };
    let lives = [own, later, nobody].map(|process| process.lives(&Root::live()).unwrap());
    assert_eq!(lives, [true, false, false]);
    let directory = tempfile::tempdir().unwrap();
    let root = Root::captured(directory.path());
    fs::create_dir_all(root.in_proc("7")).unwrap();
    fs::write(root.in_proc("7/stat"), "").unwrap();
    assert_eq!(Identity::find(&root, Pid(7)).unwrap(), None, "it ended while it was read");
    fs::write(root.in_proc("7/stat"), "7 (x) S").unwrap();
    assert!(Identity::find(&root, Pid(7)).is_err());
}

#[test]
fn a_step_about_a_process_that_was_not_observed_is_gone() {
    let mut actor = actor(Pid(std::process::id()));
    let (_folder, mut ledger) = ledger();
    let nobody = Identity { pid: Pid(NOBODY), started: Nanos(1) };
    let (pid, nodes, pages) = (nobody.pid, Vec::new(), Vec::new());
    for action in [
        affinity_of(nobody, CpuSet::first(1)),
        Action::MoveProcessMemory { pid, nodes, freeze: false, memory: Bytes(0) },
        Action::MovePages { pid, mechanism: Mechanism::CoLocation, pages },
        Action::Replicate { pid, pages: Vec::new() },
        Action::Unreplicate { pid, pages: Vec::new() },
    ] {
        let plan = plan(action);
        assert!(actor.prepare(&plan).is_empty());
        assert_eq!(actor.step(&plan, 0, &mut ledger).result, StepResult::Gone, "{plan:?}");
        assert_eq!(actor.step(&plan, 1, &mut ledger).result, StepResult::Gone, "no such step");
    }
}

#[test]
fn a_mask_goes_to_the_thread_it_was_prepared_for_and_to_no_later_one() {
    let sleeper = Sleeper::start();
    let process = sleeper.identity();
    let before = mask(process);
    let one = CpuSet::from_iter(before.iter().take(1));
    let mut actor = seeing(&[process]);
    let (_folder, mut ledger) = ledger();
    let text = |ledger: &LedgerFile| fs::read_to_string(ledger.path()).unwrap();
    let written = text(&ledger);
    let plan = plan(affinity_of(process, one.clone()));
    let task = main_thread(process);
    let earlier = Task { started: Nanos(task.started.0 - 1), ..task };
    for (task, expected, now) in [
        (earlier, StepResult::Gone, &before),
        (Task { tid: Tid(NOBODY), ..task }, StepResult::Gone, &before),
        (task, StepResult::Done, &one),
    ] {
        let change = change(task, Nanos(1), &before, &one);
        actor.prepared = BTreeMap::from([((1, 0), Ok(change))]);
        assert_eq!(actor.step(&plan, 0, &mut ledger).result, expected, "{task:?}");
        assert_eq!(&mask(process), now, "{task:?}");
        assert_eq!(text(&ledger), written, "only a refusal needs another line");
    }
}

/// It would look like an heir of the threads that are given the same mask.
#[test]
fn a_thread_that_has_a_mask_already_is_written_down_before_others_get_it() {
    let sleepers = [Sleeper::start(), Sleeper::start()];
    let [target, bystander] = [0, 1].map(|place| sleepers[place].identity());
    let cpu = mask(target).iter().next().unwrap();
    let one = CpuSet::from_iter([cpu]);
    let mut actor = seeing(&[target, bystander]);
    affinity::set(bystander.pid.0 as i32, &one).unwrap();
    actor.bound = vec![(bystander, Tid(bystander.pid.0), one.clone())];
    let index = actor.topology.cpu_of_kernel_id(cpu as u32).unwrap();
    let entries = actor.prepare(&plan(affinity_of(target, CpuSet::from_iter([index]))));
    let of_target = |entry: &Entry| matches!(entry, Entry::Mask(_));
    assert_eq!(entries[0], main_thread(bystander).entry());
    assert!(entries.len() == 2 && of_target(&entries[1]), "{entries:?}");
    assert!(actor.masks.has_chosen(bystander, Tid(bystander.pid.0)));
    let untouched = actor.masks.standing(&main_thread(bystander), &one, None);
    assert_eq!(untouched, Standing::Untouched);
    let mut observation = observed(&[bystander]);
    actor.follow(&mut observation, &BTreeSet::new());
    let exempt = observation.processes[0].threads[0].exempt;
    assert_eq!(exempt, Some(Exemption::OwnAffinity), "its mask is its own choice");
}

#[test]
fn nothing_is_restored_in_the_name_of_an_ended_process_whose_number_another_has() {
    let sleeper = Sleeper::start();
    let later = sleeper.identity();
    let before = mask(later);
    let one = CpuSet::from_iter(before.iter().take(1));
    let earlier = Identity { started: Nanos(later.started.0 - 1), ..later };
    let machine = synthetic::parse("node:1 core:1").unwrap();
    let mut actor = Actor::new(Root::live(), machine, later.pid);
    actor.masks.enter(&change(main_thread(earlier), Nanos(1), &before, &one));
    // The user of the later process has chosen the same mask.
    affinity::set(later.pid.0 as i32, &one).unwrap();
    assert_eq!(actor.release(earlier), (threads::Restored::default(), Vec::new()));
    assert_eq!(mask(later), one);
}

#[test]
fn a_look_notes_new_processes_widens_heirs_and_forgets_ended_threads() {
    let creator = Sleeper::start();
    let process = creator.identity();
    let own = mask(process);
    let one = CpuSet::from_iter(own.iter().take(1));
    if one == own {
        println!("not tried: this machine has one CPU");
        return;
    }
    let mut actor = actor(process.pid);
    let at = process.started;
    let ended = Task { tid: Tid(NOBODY), ..main_thread(process) };
    for task in [main_thread(process), ended] {
        actor.masks.enter(&change(task, at, &own, &one));
    }
    let child = Sleeper::start();
    let born = child.identity();
    for one_of in [process, born] {
        affinity::set(one_of.pid.0 as i32, &one).unwrap();
    }
    let mut look = || {
        let mut observation = observed(&[process, born]);
        let found = actor.follow(&mut observation, &BTreeSet::new());
        let threads = observation.processes.iter().flat_map(|process| &process.threads);
        let told: Vec<_> = threads.map(|one| (one.allowed.len(), one.exempt)).collect();
        assert_eq!(told, [(own.len(), None); 2], "as without our changes");
        let is_known = actor.masks.task(process, ended.tid).is_some();
        (found.entries, found.heirs, found.left_alone, is_known)
    };
    let member = |process: Identity| {
        let (pid, started) = (process.pid.0, process.started.0);
        Entry::Member { pid, started }
    };
    assert_eq!(look(), (vec![member(process), member(born)], 1, 0, false));
    assert_eq!((mask(process), mask(born)), (one, own.clone()));
    assert_eq!(look(), (Vec::new(), 0, 0, false), "all is known");
}
