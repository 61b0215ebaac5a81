//! Trees of several users share the budgets of a look.

use super::super::allotment::State;
use super::*;

/// Most threads of a look in these tests.
const MOST: usize = 40;

/// A process with many threads.
fn crowd(fixture: &Fixture, pid: u32, threads: usize) {
    let others = (1..).filter(|tid| *tid != pid).map(|tid| (tid, 0));
    let all: Vec<(u32, u32)> = [(pid, 0)].into_iter().chain(others).take(threads).collect();
    fixture.process(pid, &all, "");
}

fn tasks_of(fixture: &Fixture, plan: Option<ThreadPlan>) -> Tasks {
    let tasks = Tasks::without_processes(fixture.root(), plan);
    Tasks { most_threads: MOST, ..tasks }
}

fn follow(tasks: &mut Tasks, roots: &[u32]) {
    tasks.follow(roots.iter().map(|root| (Pid(*root), Nanos(0))).collect(), BTreeSet::new());
}

fn threads(found: &[ProcessObservation]) -> Vec<(u32, usize)> {
    found.iter().map(|process| (process.pid.0, process.threads.len())).collect()
}

fn run(fixture: &Fixture, pid: u32, ns: u64) {
    let schedstat = fixture.root().in_proc(format!("{pid}/task/{pid}/schedstat"));
    fs::write(schedstat, format!("{ns} 1 1\n")).unwrap();
}

#[test]
fn a_process_of_thousands_of_threads_hides_no_other_tree() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    crowd(&fixture, 10_000, MOST + 9);
    let mut tasks = tasks_of(&fixture, None);
    let look = |tasks: &mut Tasks| threads(&tasks.observe(&machine, told(&[])).unwrap());
    follow(&mut tasks, &[10_000]);
    assert_eq!(look(&mut tasks), [(10_000, MOST)], "alone it may have all");
    assert_eq!(tasks.seen_in_part(), [Pid(10_000)].into());
    // Its number is higher, so it would be the last to be looked at.
    fixture.process(20_000, &[(20_000, 0), (20_001, 1)], "");
    follow(&mut tasks, &[10_000, 20_000]);
    assert_eq!(look(&mut tasks), [(10_000, MOST - 2), (20_000, 2)], "it did not run");
    assert_eq!(tasks.seen_in_part(), [Pid(10_000)].into());
    crowd(&fixture, 30_000, MOST);
    follow(&mut tasks, &[10_000, 20_000, 30_000]);
    let half = (MOST - 2) / 2;
    assert_eq!(look(&mut tasks), [(10_000, half), (20_000, 2), (30_000, half)]);
    assert_eq!(tasks.seen_in_part(), [Pid(10_000), Pid(30_000)].into());
    assert!(tasks.processes.values().map(|one| one.threads.len()).sum::<usize>() <= MOST);
}

#[test]
fn threads_of_the_last_look_stay_and_new_ones_take_what_is_left() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    fixture.process(5000, &[(5000, 0)], "");
    crowd(&fixture, 9000, MOST - 1);
    let mut tasks = tasks_of(&fixture, None);
    let look = |tasks: &mut Tasks| tasks.observe(&machine, told(&[])).unwrap();
    let tids = |found: &[ProcessObservation], at: usize| -> BTreeSet<Tid> {
        found[at].threads.iter().map(|thread| thread.tid).collect()
    };
    follow(&mut tasks, &[5000, 9000]);
    let before = look(&mut tasks);
    // The number of the new thread is below all others.
    fixture.process(9000, &[(0, 0)], "");
    run(&fixture, 9000, 6000);
    let after = look(&mut tasks);
    assert_eq!(tids(&after, 1), tids(&before, 1));
    assert_eq!(tasks.seen_in_part(), [Pid(9000)].into());
    fs::remove_dir_all(fixture.root().in_proc("9000/task/1")).unwrap();
    run(&fixture, 9000, 7000);
    let after = look(&mut tasks);
    assert!(tids(&after, 1).contains(&Tid(0)) && !tids(&after, 1).contains(&Tid(1)));
    assert_eq!(tasks.seen_in_part(), BTreeSet::new());
}

#[test]
fn a_tree_of_many_processes_takes_no_place_of_another_one() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    for pid in [10, 11, 12, 13, 14, 90, 91] {
        fixture.process(pid, &[(pid, 0)], "");
    }
    let mut tasks = tasks_of(&fixture, None);
    tasks.most_processes = 5;
    let born: Vec<(Pid, Pid)> = (11..15).map(|pid| (Pid(10), Pid(pid))).collect();
    let look = |tasks: &mut Tasks, born: &[(Pid, Pid)]| {
        let found = tasks.observe(&machine, told(born)).unwrap();
        found.iter().map(|process| process.pid.0).collect::<Vec<_>>()
    };
    follow(&mut tasks, &[10]);
    assert_eq!(look(&mut tasks, &born), [10, 11, 12, 13, 14]);
    assert_eq!(tasks.seen_in_part(), BTreeSet::new());
    follow(&mut tasks, &[10, 90]);
    assert_eq!(look(&mut tasks, &[(Pid(90), Pid(91))]), [10, 11, 12, 90, 91]);
    assert_eq!(tasks.seen_in_part(), [Pid(10)].into());
    assert_eq!(look(&mut tasks, &[]), [10, 11, 12, 90, 91], "the known ones stay");
}

#[test]
fn a_process_without_a_place_for_its_threads_has_none() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    fixture.process(8000, &[(8000, 0)], "");
    fixture.process(9000, &[(9000, 0)], "");
    let mut tasks = tasks_of(&fixture, None);
    let look = |tasks: &mut Tasks, born: &[(Pid, Pid)]| {
        threads(&tasks.observe(&machine, told(born)).unwrap())
    };
    follow(&mut tasks, &[8000]);
    assert_eq!(look(&mut tasks, &[(Pid(8000), Pid(9000))]), [(8000, 1), (9000, 1)]);
    crowd(&fixture, 8000, MOST);
    run(&fixture, 8000, 6000);
    assert_eq!(look(&mut tasks, &[]), [(8000, MOST - 1), (9000, 1)], "known ones first");
    crowd(&fixture, 10_000, MOST);
    follow(&mut tasks, &[8000, 10_000]);
    let half = MOST / 2;
    assert_eq!(look(&mut tasks, &[]), [(8000, half), (9000, 0), (10_000, half)]);
}

/// Their clocks are software events, so that this runs where there is no unit.
#[test]
fn open_files_and_counters_are_shared_too() {
    // An ordinary user's soft limit is 1,024; as many are open here.
    crate::syscall::process::raise_descriptor_limit().unwrap();
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    let sleeper = Sleeper::start();
    let (large, small) = (std::process::id(), sleeper.pid().0);
    crowd(&fixture, large, MAX_KEPT_THREADS);
    let mut tasks = tasks_of(&fixture, Some(ThreadPlan::of_clock()));
    tasks.most_threads = MAX_THREADS;
    let look = |tasks: &mut Tasks| drop(tasks.observe(&machine, told(&[])).unwrap());
    let open = |tasks: &Tasks, pid: u32| {
        tasks.processes[&Pid(pid)].threads.values().filter(|one| one.schedstat.is_open()).count()
    };
    follow(&mut tasks, &[large]);
    look(&mut tasks);
    assert_eq!(open(&tasks, large), MAX_KEPT_THREADS, "alone it may have all");
    fixture.process(small, &[(small, 0)], "");
    follow(&mut tasks, &[large, small]);
    look(&mut tasks);
    assert_eq!((open(&tasks, large), open(&tasks, small)), (MAX_KEPT_THREADS - 1, 1));
    let is_counted = |tasks: &Tasks| {
        tasks.processes[&Pid(small)].threads.values().any(|one| one.counters.is_some())
    };
    if !is_counted(&tasks) {
        println!("not tried: this user may not count a thread");
        return;
    }
    let place = |tasks: &mut Tasks, wanted: &BTreeMap<Pid, usize>| {
        tasks.place(wanted, wanted, |_| Some(State::Awake));
    };
    place(&mut tasks, &[(Pid(large), 2 * MAX_DESCRIPTORS), (Pid(small), 1)].into());
    assert!(is_counted(&tasks) && tasks.may_count(Pid(large)));
    // Among more trees than there are counters, the share of the first ones is none.
    let many = (0..2 * MAX_DESCRIPTORS).map(|more| (Pid(small + more as u32), 1));
    place(&mut tasks, &many.collect());
    assert!(!is_counted(&tasks) && !tasks.may_count(Pid(small)));
}

#[test]
fn files_of_a_process_that_runs_stay_open_among_idle_ones() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    // More than there are files.
    let idle: Vec<u32> = (10_000..10_000 + MAX_KEPT_THREADS as u32 + 8).collect();
    idle.iter().for_each(|pid| fixture.process(*pid, &[(*pid, 0)], ""));
    crowd(&fixture, 90_000, 10);
    let mut tasks = tasks_of(&fixture, None);
    tasks.most_threads = MAX_THREADS;
    follow(&mut tasks, &[&idle[..], &[90_000]].concat());
    for ns in [6000, 7000] {
        run(&fixture, 90_000, ns);
        tasks.observe(&machine, told(&[])).unwrap();
    }
    let open = |pid: u32| {
        let threads = tasks.processes[&Pid(pid)].threads.values();
        threads.filter(|one| one.schedstat.is_open()).count()
    };
    assert_eq!(open(90_000), 10);
    assert!(idle.iter().map(|pid| open(*pid)).sum::<usize>() <= MAX_KEPT_THREADS - 10);
}

#[test]
fn an_ended_thread_leaves_its_place_to_a_living_one() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    fixture.process(10, &[(10, 0), (11, 0), (12, 0)], "");
    let mut tasks = tasks_of(&fixture, None);
    follow(&mut tasks, &[10]);
    let open = |tasks: &mut Tasks| -> Vec<u32> {
        drop(tasks.observe(&machine, told(&[])).unwrap());
        let threads = tasks.processes[&Pid(10)].threads.iter();
        threads.filter(|(_, one)| one.schedstat.is_open()).map(|(tid, _)| tid.0).collect()
    };
    assert_eq!(open(&mut tasks), [10, 11, 12]);
    fs::remove_dir_all(fixture.root().in_proc("10/task/11")).unwrap();
    fixture.process(10, &[(13, 0)], "");
    run(&fixture, 10, 6000);
    assert_eq!(open(&mut tasks), [10, 12, 13]);
}
