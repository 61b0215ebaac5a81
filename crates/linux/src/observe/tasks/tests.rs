//! Trees of files that look like `/proc`.

use std::fs;

use rondpoint_core::topology::synthetic;

use super::*;
use crate::sleeper::Sleeper;
use crate::syscall::time::since_boot_ns;

mod members;
mod several;

struct Fixture {
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn root(&self) -> Root {
        Root::captured(self.directory.path())
    }

    /// A process with threads that last ran on the given CPUs.
    fn process(&self, pid: u32, threads: &[(u32, u32)], children: &str) {
        for &(tid, cpu) in threads {
            let task = self.root().in_proc(format!("{pid}/task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("stat"), line(tid, cpu)).unwrap();
            fs::write(task.join("schedstat"), "5000 1 1\n").unwrap();
            fs::write(task.join("status"), "Cpus_allowed_list:\t0-2\n").unwrap();
            fs::write(task.join("children"), children).unwrap();
        }
        let own = self.root().in_proc(pid.to_string());
        let leader = threads.iter().find(|(tid, _)| *tid == pid);
        fs::write(own.join("stat"), line(pid, leader.map_or(0, |(_, cpu)| *cpu))).unwrap();
        fs::write(own.join("status"), "Mems_allowed_list:\t0\n").unwrap();
        fs::write(own.join("numa_maps"), "1000 default N0=2 N1=3 kernelpagesize_kB=4\n").unwrap();
    }

    /// Its files say that it has ended, also where they are open already.
    fn ends(&self, pid: u32) {
        let own = self.root().in_proc(pid.to_string());
        for task in fs::read_dir(own.join("task")).unwrap() {
            fs::write(task.unwrap().path().join("schedstat"), "").unwrap();
        }
        fs::write(own.join("stat"), "").unwrap();
        fs::remove_dir_all(own).unwrap();
    }
}

fn line(id: u32, cpu: u32) -> String {
    child_line(id, 1, cpu)
}

fn child_line(id: u32, parent: u32, cpu: u32) -> String {
    format!(
        "{id} (x) S {parent} 1 1 0 -1 0 7 0 1 0 2 1 0 0 20 0 1 0 100 0 10 0 0 0 0 0 0 0 0 0 0 0 0 0 17 {cpu} 0 0\n"
    )
}

fn told(known: &[(Pid, Pid)]) -> Births<'_> {
    Births { known, all: true }
}

fn shown(processes: &[ProcessObservation]) -> String {
    let process = |process: &ProcessObservation| {
        let threads: Vec<String> =
            process.threads.iter().map(|t| format!("{}@{}", t.tid, t.cpu)).collect();
        format!("{}[{}]", process.pid, threads.join(" "))
    };
    processes.iter().map(process).collect::<Vec<_>>().join(" ")
}

#[test]
fn children_and_their_threads_are_found_and_leave() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:2 core:2").unwrap();
    fixture.process(10, &[(10, 0), (11, 3)], "20 ");
    fixture.process(20, &[(20, 1)], "");
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    let found = tasks.observe(&machine, Births::default()).unwrap();
    assert_eq!(shown(&found), "10[10@0 11@3] 20[20@1]");
    assert_eq!(found[0].memory, Some(vec![Bytes(8192), Bytes(12288)]));
    assert_eq!(found[0].faults, Some(8));
    assert_eq!(found[0].threads[0].cpu_time, Nanos(5000));
    assert_eq!(found[0].threads[0].queued, Some(Nanos(1)));
    assert_eq!(found[0].threads[0].slices, Some(1));
    assert_eq!(found[0].threads[0].allowed.to_string(), "0-2");
    assert_eq!(found[0].allowed_nodes.as_ref().unwrap().to_string(), "0");
    fixture.ends(20);
    assert_eq!(shown(&tasks.observe(&machine, Births::default()).unwrap()), "10[10@0 11@3]");
}

/// As in kernels without `CONFIG_PROC_CHILDREN`.
#[test]
fn where_the_kernel_lists_no_children_each_process_names_its_parent() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    let process = |pid: u32, parent: u32, newest: u32| {
        fixture.process(pid, &[(pid, 0)], "");
        let own = fixture.root().in_proc(pid.to_string());
        fs::remove_file(own.join(format!("task/{pid}/children"))).unwrap();
        let line = line(pid, 0).replace(" S 1 ", &format!(" S {parent} "));
        fs::write(own.join("stat"), line).unwrap();
        fs::write(fixture.root().in_proc("loadavg"), format!("0 0 0 1/9 {newest}\n")).unwrap();
    };
    let mut looks = 0;
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    let mut look = || {
        looks += 1;
        // A process that did not run has no new thread or child.
        for pid in [10, 20] {
            let schedstat = fixture.root().in_proc(format!("{pid}/task/{pid}/schedstat"));
            let _ = fs::write(schedstat, format!("{} 1 1\n", 5000 + looks));
        }
        shown(&tasks.observe(&machine, Births::default()).unwrap())
    };
    process(10, 1, 10);
    process(15, 1, 15);
    assert_eq!(look(), "10[10@0]");
    process(20, 10, 20);
    process(30, 20, 30);
    assert_eq!(look(), "10[10@0] 20[20@0] 30[30@0]", "children and theirs, and no others");
    fixture.ends(20);
    assert_eq!(look(), "10[10@0] 30[30@0]", "the orphan stays, with no child born");
}

#[test]
fn what_processes_have_mapped_together_is_read_where_there_are_several() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:2 core:2").unwrap();
    let maps = |pid: u32| {
        let path = fixture.root().in_proc(format!("{pid}/maps"));
        fs::write(path, "7000-9000 rw-s 00001000 00:19 42 /dev/shm/a\n").unwrap();
    };
    fixture.process(10, &[(10, 0)], "");
    maps(10);
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    assert_eq!(tasks.observe(&machine, Births::default()).unwrap()[0].shared, []);
    fixture.process(10, &[(10, 0)], "20 ");
    fixture.process(20, &[(20, 1)], "");
    maps(20);
    let mut both = Tasks::new(fixture.root(), Pid(10), None);
    let found = both.observe(&machine, Births::default()).unwrap();
    let objects = found.iter().flat_map(|process| &process.shared).map(|one| one.object.inode);
    assert_eq!(objects.collect::<Vec<_>>(), [42, 42]);
}

#[test]
fn the_first_process_is_told_of_even_after_its_end_and_orphans_stay() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    fixture.process(10, &[(10, 2)], "");
    fixture.process(30, &[(30, 1)], "");
    fixture.process(40, &[(40, 1)], "");
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    assert_eq!(
        shown(
            &tasks
                .observe(
                    &machine,
                    told(&[(Pid(20), Pid(30)), (Pid(10), Pid(20)), (Pid(1), Pid(40))])
                )
                .unwrap()
        ),
        "10[10@2] 30[30@1]"
    );
    fixture.ends(10);
    assert_eq!(shown(&tasks.observe(&machine, Births::default()).unwrap()), "10[10@2] 30[30@1]");
}

#[test]
fn a_number_that_was_never_there_gives_nothing() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    assert_eq!(shown(&tasks.observe(&machine, told(&[(Pid(10), Pid(77))])).unwrap()), "");
}

#[test]
fn of_a_process_that_did_not_run_no_file_is_read() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:2 core:2").unwrap();
    fixture.process(10, &[(10, 0), (11, 1)], "");
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    let look = |tasks: &mut Tasks| shown(&tasks.observe(&machine, Births::default()).unwrap());
    assert_eq!(look(&mut tasks), "10[10@0 11@1]");
    // Mappings are read by the time, which has tests of its own.
    tasks.processes.values_mut().for_each(|process| process.maps.schedule.hold());
    let own = fixture.root().in_proc("10");
    let files = ["stat", "numa_maps", "status", "task/10/stat", "task/10/children", "task/11/stat"];
    for file in files {
        fs::write(own.join(file), "no reader accepts this\n").unwrap();
    }
    for _ in 0..100 {
        assert_eq!(look(&mut tasks), "10[10@0 11@1]");
    }
    // It runs again: one thread, on another CPU, which has started a third one.
    fixture.process(10, &[(10, 2), (11, 1)], "");
    fixture.process(10, &[(12, 3)], "");
    fs::write(own.join("task/10/schedstat"), "5001 1 2\n").unwrap();
    assert_eq!(look(&mut tasks), "10[10@2 11@1 12@3]");
}

/// A program with hundreds of threads runs few of them at a time.
#[test]
fn of_a_thread_that_did_not_run_no_state_is_read_until_it_is_old() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:2 core:2").unwrap();
    fixture.process(10, &[(10, 0), (11, 1)], "");
    let mut tasks = Tasks::without_processes(fixture.root(), None);
    tasks.follow([(Pid(10), Nanos(0))].into(), BTreeSet::new());
    let mut ran = 5000;
    let mut look = |tasks: &mut Tasks| {
        ran += 1;
        let schedstat = fixture.root().in_proc("10/task/10/schedstat");
        fs::write(schedstat, format!("{ran} 1 1\n")).unwrap();
        shown(&tasks.observe(&machine, Births::default()).unwrap())
    };
    assert_eq!(look(&mut tasks), "10[10@0 11@1]");
    fixture.process(10, &[(11, 3)], "");
    assert_eq!(look(&mut tasks), "10[10@0 11@1]");
    let thread = tasks.processes.get_mut(&Pid(10)).unwrap().threads.get_mut(&Tid(11)).unwrap();
    let old = thread.stat_at.checked_sub(STATE_HOLDS);
    thread.stat_at = old.expect("the machine is up for so long");
    assert_eq!(look(&mut tasks), "10[10@0 11@3]", "another process may have changed its policy");
    fixture.process(10, &[(11, 2)], "");
    tasks.look_again_at(Pid(10));
    assert_eq!(look(&mut tasks), "10[10@0 11@2]", "it was moved by us");
}

#[test]
fn the_cpu_clocks_of_a_look_are_dated_before_its_files_are_read() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:2 core:2").unwrap();
    fixture.process(10, &[(10, 0)], "");
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    for _ in 0..2 {
        let (begin, begin_ns) = (Instant::now(), since_boot_ns());
        tasks.look_again_at_all();
        tasks.observe(&machine, Births::default()).unwrap();
        let (at, times) = tasks.cpu_times_of_look();
        assert_eq!(times, [(Pid(10), Nanos(5000))].into());
        let read = tasks.processes[&Pid(10)].read.as_ref().unwrap().at - begin;
        assert!(u128::from(at.0 - begin_ns) <= read.as_nanos());
    }
}

#[test]
fn a_process_that_was_changed_is_read_though_it_did_not_run() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:2 core:2").unwrap();
    fixture.process(10, &[(10, 0)], "");
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    let look = |tasks: &mut Tasks| tasks.observe(&machine, Births::default()).unwrap();
    look(&mut tasks);
    tasks.processes.values_mut().for_each(|process| process.maps.schedule.hold());
    fixture.process(10, &[(10, 2)], "");
    let numa_maps = fixture.root().in_proc("10/numa_maps");
    fs::write(numa_maps, "1000 default N1=5 kernelpagesize_kB=4\n").unwrap();
    let seen = |found: &[ProcessObservation]| (found[0].threads[0].cpu, found[0].memory.clone());
    let before = (0, Some(vec![Bytes(8192), Bytes(12288)]));
    assert_eq!(seen(&look(&mut tasks)), before);
    tasks.look_again_at(Pid(10));
    tasks.processes.values_mut().for_each(|process| process.maps.schedule.pass());
    assert_eq!(seen(&look(&mut tasks)), (2, Some(vec![Bytes(0), Bytes(20480)])));
}

#[test]
fn a_process_that_hardly_runs_is_read_when_its_use_has_added_up() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:2 core:2").unwrap();
    for is_told in [true, false] {
        fixture.process(10, &[(10, 0), (11, 1)], "");
        let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
        tasks.lets_rest = true;
        let mut look = |ran_us: u64| {
            let schedstat = fixture.root().in_proc("10/task/10/schedstat");
            fs::write(schedstat, format!("{} 1 1\n", 5000 + 1000 * ran_us)).unwrap();
            let births = Births { all: is_told, ..Births::default() };
            tasks.observe(&machine, births).unwrap()[0].threads[0].cpu
        };
        look(0);
        fixture.process(10, &[(10, 2)], "");
        assert_eq!([look(10), look(1990), look(2010)], [0, 0, 2], "{is_told}");
    }
}

/// Records of new processes are missing.
#[test]
fn changes_of_a_process_that_hardly_runs_are_found_without_records() {
    for (children, threads, expected) in [
        ("", &[(10, 2), (11, 3)][..], "10[10@0 11@1]"),
        ("20 ", &[(10, 2), (11, 3)], "10[10@0 11@1] 20[20@1]"),
        ("", &[(10, 2), (11, 3), (12, 0)], "10[10@2 11@3 12@0]"),
        ("", &[(10, 2)], "10[10@2]"),
    ] {
        let fixture = Fixture::new();
        let machine = synthetic::parse("node:2 core:2").unwrap();
        fixture.process(10, &[(10, 0), (11, 1)], "");
        let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
        tasks.lets_rest = true;
        let mut look = || shown(&tasks.observe(&machine, Births::default()).unwrap());
        assert_eq!(look(), "10[10@0 11@1]");
        if threads.len() == 1 {
            fs::remove_dir_all(fixture.root().in_proc("10/task/11")).unwrap();
        }
        fixture.process(20, &[(20, 1)], "");
        fixture.process(10, threads, children);
        for (tid, _) in threads {
            let schedstat = fixture.root().in_proc(format!("10/task/{tid}/schedstat"));
            fs::write(schedstat, "15001 1 2\n").unwrap();
        }
        assert_eq!(look(), expected);
    }
}

#[test]
fn a_process_that_has_hardly_run_for_long_is_left_out_until_it_runs() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:2 core:2").unwrap();
    let ran = |us: u64| {
        let schedstat = fixture.root().in_proc("10/task/10/schedstat");
        fs::write(schedstat, format!("{} 1 1\n", 5000 + 1000 * us)).unwrap();
    };
    let look = |tasks: &mut Tasks| shown(&tasks.observe(&machine, told(&[])).unwrap());
    fixture.process(10, &[(10, 0)], "");
    let begin = || {
        let mut tasks = Tasks::without_processes(fixture.root(), None);
        tasks.lets_rest = true;
        ran(0);
        tasks.follow([(Pid(10), Nanos(0))].into(), BTreeSet::new());
        assert_eq!(look(&mut tasks), "10[10@0]");
        tasks
    };
    let pass = |tasks: &mut Tasks| {
        tasks.processes.values_mut().for_each(|process| process.doze.pass());
    };
    let mut tasks = begin();
    ran(500);
    assert_eq!(look(&mut tasks), "10[10@0]", "not for long");
    assert_eq!(tasks.dozing(Pid(10)), None);
    pass(&mut tasks);
    assert_eq!(look(&mut tasks), "");
    assert_eq!(tasks.dozing(Pid(10)).unwrap().memory, Some(vec![Bytes(8192), Bytes(12288)]));
    assert_eq!(tasks.cpu_times_of_look().1, BTreeMap::new());
    assert_eq!(tasks.origins(), &[(Pid(10), Pid(10))].into(), "it is still of its tree");
    let clock = |us: u64| Nanos(5000 + 1000 * us);
    assert_eq!(tasks.cpu_time_of_look(Pid(10)), Some(clock(500)));
    assert!(!tasks.is_awakened(Pid(10), clock(1000)) && tasks.is_awakened(Pid(10), clock(1001)));
    ran(1001);
    assert_eq!(look(&mut tasks), "10[10@0]", "it runs");
    assert!(!tasks.is_awakened(Pid(10), clock(9000)), "it did not doze");
    pass(&mut tasks);
    assert_eq!(look(&mut tasks), "");
    let mut changed = begin();
    changed.look_again_at(Pid(10));
    pass(&mut changed);
    assert_eq!(look(&mut changed), "10[10@0]", "a process that was changed never dozes");
}

#[test]
fn a_tree_by_itself_is_observed_whole_however_idle() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    fixture.process(10, &[(10, 0)], "");
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    tasks.lets_rest = true;
    for _ in 0..2 {
        assert_eq!(shown(&tasks.observe(&machine, told(&[])).unwrap()), "10[10@0]");
        tasks.processes.values_mut().for_each(|process| process.doze.pass());
    }
}

/// Its clocks are software events, so that this runs where there is no unit.
#[test]
fn after_a_pause_every_process_that_is_counted_is_looked_at() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:2 core:2").unwrap();
    let sleeper = Sleeper::start();
    let (own, other) = (std::process::id(), sleeper.pid());
    fixture.process(own, &[(own, 0)], "");
    fixture.process(other.0, &[(other.0, 0)], "");
    let mut tasks = Tasks::without_processes(fixture.root(), Some(ThreadPlan::of_clock()));
    tasks.follow([(Pid(own), Nanos(0)), (other, Nanos(0))].into(), BTreeSet::new());
    tasks.observe(&machine, Births::default()).unwrap();
    if tasks.processes[&Pid(own)].threads.values().all(|thread| thread.counters.is_none()) {
        println!("not tried: this user may not count its own threads");
        return;
    }
    let process = tasks.processes.get_mut(&other).unwrap();
    process.threads.values_mut().for_each(|thread| thread.counters = None);
    for (cpu, change) in [(1, Tasks::pause as fn(&mut Tasks) -> io::Result<()>), (2, Tasks::resume)]
    {
        fixture.process(own, &[(own, cpu)], "");
        change(&mut tasks).unwrap();
        let found = tasks.observe(&machine, Births::default()).unwrap();
        let found = found.iter().find(|process| process.pid == Pid(own)).unwrap();
        assert_eq!(found.threads[0].cpu, cpu as usize);
        assert!(tasks.still_ones().contains(&other) == (cpu == 1), "not counted in the pause");
    }
}
