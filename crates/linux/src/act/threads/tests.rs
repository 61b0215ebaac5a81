//! Tests that masks reach the right thread, are restored, and are counted if the kernel gives no
//! answer.

use super::*;

#[test]
fn each_thread_that_cannot_be_looked_at_counts_as_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::captured(directory.path());
    for unreadable in ["7/task/7/stat", "7/task/8/stat"] {
        std::fs::create_dir_all(root.in_proc(unreadable)).unwrap();
    }
    let refused = |pid| {
        let process = Identity { pid: Pid(pid), started: Nanos(10) };
        restore_process(&root, &Masks::default(), process).refused
    };
    assert_eq!(refused(7), 2);
    assert_eq!(refused(9), 0, "it has ended");
}

/// No process has this number: the kernel's are below 2^22.
const NOBODY: u32 = 5_000_000;

fn held(process: Identity, tid: u32) -> Masks {
    let task = Task { process, tid: Tid(tid), started: process.started };
    let original = Original { cpus: CpuSet::first(2), whole: false };
    let mut masks = Masks::default();
    let (via, cpus) = (None, CpuSet::first(1));
    masks.enter(&Change { plan: 1, task, session: 1, at: Nanos(1), original, via, cpus });
    masks
}

#[test]
fn what_is_not_told_of_a_tree_counts_as_refused_and_what_has_ended_as_gone() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::captured(directory.path());
    let process = Identity { pid: Pid(NOBODY), started: Nanos(1_000_000_000) };
    let masks = held(process, NOBODY);
    std::fs::create_dir_all(root.in_proc("sys")).unwrap();
    let gone = Restored { gone: 1, ..Restored::default() };
    assert_eq!(restore(&root, &masks), gone);
    // A directory cannot be read as a file.
    let unreadable = |pid: u32| {
        std::fs::create_dir_all(root.in_proc(format!("{pid}/stat"))).unwrap();
    };
    unreadable(NOBODY + 1);
    assert_eq!(restore(&root, &masks), Restored { refused: 1, ..gone });
    unreadable(NOBODY);
    let expected = Restored { refused: 3, ..gone };
    assert_eq!(restore(&root, &masks), expected, "of the tree, and of two of all processes");
}

#[test]
fn threads_that_cannot_be_looked_at_hide_no_others_of_their_process() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::captured(directory.path());
    let stat = format!(
        "{NOBODY} (x) S 1 1 1 0 -1 0 7 0 1 0 2 1 0 0 20 0 1 0 100 0 10 \
         0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0\n"
    );
    let task = root.in_proc(format!("{NOBODY}/task/{NOBODY}"));
    std::fs::create_dir_all(&task).unwrap();
    std::fs::write(task.join("stat"), &stat).unwrap();
    std::fs::write(root.in_proc(format!("{NOBODY}/stat")), &stat).unwrap();
    let process = Identity::of(&root, Pid(NOBODY)).unwrap();
    let masks = held(process, NOBODY);
    // It is there as far as `/proc` tells, and the kernel has no such thread.
    assert_eq!(restore(&root, &masks), Restored::default());
    let other = root.in_proc(format!("{NOBODY}/task/{}/stat", NOBODY + 1));
    std::fs::create_dir_all(other).unwrap();
    assert_eq!(restore(&root, &masks), Restored { refused: 1, ..Restored::default() });
    let found = tree(&root, &masks);
    assert_eq!((found.tasks.len(), found.unseen), (1, 1));
}

#[test]
fn a_hidden_process_is_no_failure_to_look() {
    let error = |errno| {
        let source = io::Error::from_raw_os_error(errno);
        LinuxError::io(std::path::Path::new("/proc/1/stat"), "open", source)
    };
    assert!(is_closed(&error(libc::EACCES)) && is_closed(&error(libc::EPERM)));
    assert!(!is_closed(&error(libc::EIO)) && !is_closed(&error(libc::EMFILE)));
}

/// No kernel has this CPU.
const NO_CPU: usize = ALL_CPUS - 1;

/// A cpuset that shrinks beneath a manager leaves a mask without a CPU: EINVAL.
#[test]
fn a_thread_whose_mask_is_refused_has_the_mask_of_before_and_none_of_ours() {
    let sleeping = Sleeping::start();
    let mask = || affinity::get(sleeping.thread()).unwrap();
    let before = mask();
    let original = Original { cpus: before.clone(), whole: false };
    let (via, cpus) = (before.iter().next(), CpuSet::from_iter([NO_CPU]));
    let task = sleeping.task();
    let mut masks = Masks::default();
    let change = Change { plan: 1, task, session: 1, at: Nanos(1), original, via, cpus };
    let refused = StepResult::Refused { errno: libc::EINVAL };
    assert_eq!(give(&mut masks, &change), refused);
    assert_eq!(mask(), before, "it is not left on the one CPU");
    assert!(masks.is_empty(), "nothing is to be put back");
}

/// A process of one thread that ends with its owner.
struct Sleeping(std::process::Child);

impl Sleeping {
    fn start() -> Self {
        Self(std::process::Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn thread(&self) -> i32 {
        self.0.id() as i32
    }

    fn task(&self) -> Task {
        let process = Identity::of(&Root::live(), Pid(self.0.id())).unwrap();
        find(&Root::live(), process, Tid(self.0.id())).unwrap().unwrap()
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_thread_has_its_mask_again_or_is_counted_for_what_it_is() {
    let own = affinity::get(std::process::id() as i32).unwrap();
    let alone: Vec<CpuSet> = own.iter().map(|cpu| [cpu].into_iter().collect()).collect();
    let [one, other, ..] = &alone[..] else {
        println!("not tried: this machine has one CPU");
        return;
    };
    let none = Restored::default();
    for (given, now, expected, after) in [
        (one, one, Restored { put_back: 1, ..none }, &own),
        (one, &own, Restored { in_place: 1, ..none }, &own),
        (&own, &own, Restored { in_place: 1, ..none }, &own),
        (one, other, Restored { left_alone: 1, ..none }, other),
    ] {
        let target = Sleeping::start();
        let task = target.task();
        let original = Original { cpus: own.clone(), whole: false };
        let change = Change {
            plan: 1,
            task,
            session: 0,
            at: task.started,
            original,
            via: None,
            cpus: given.clone(),
        };
        let mut masks = Masks::default();
        masks.enter(&change);
        affinity::set(target.thread(), now).unwrap();
        assert_eq!(restore(&Root::live(), &masks), expected, "given {given}, now {now}");
        assert_eq!(&affinity::get(target.thread()).unwrap(), after);
        affinity::set(target.thread(), now).unwrap();
        let again = restore_process(&Root::live(), &masks, task.process);
        assert_eq!(again, expected, "given {given}, now {now}");
        assert_eq!(&affinity::get(target.thread()).unwrap(), after);
        // A child of the target, as far as the ledger knows.
        let child = Sleeping::start();
        affinity::set(child.thread(), given).unwrap();
        assert!(masks.see(child.task().process));
        let heirs = u64::from(given != &own);
        assert_eq!(restore(&Root::live(), &masks).heirs, heirs);
        assert_eq!(affinity::get(child.thread()).unwrap(), own);
    }
}

/// Its creator still has our mask when the threads are listed, and then gets its first one.
#[test]
fn a_thread_that_is_born_while_masks_are_restored_keeps_none_of_ours() {
    let own = affinity::get(std::process::id() as i32).unwrap();
    let one: CpuSet = own.iter().take(1).collect();
    if one == own {
        println!("not tried: this machine has one CPU");
        return;
    }
    let creator = Sleeping::start();
    let task = creator.task();
    let original = Original { cpus: own.clone(), whole: false };
    let (at, cpus) = (task.started, one.clone());
    let mut masks = Masks::default();
    masks.enter(&Change { plan: 1, task, session: 0, at, original, via: None, cpus });
    affinity::set(creator.thread(), &one).unwrap();
    let mut born: Option<Sleeping> = None;
    let mut rounds = 0;
    let list = || {
        rounds += 1;
        let mut tree = Tree { tasks: vec![task], unseen: 0 };
        tree.tasks.extend(born.as_ref().map(Sleeping::task));
        let child = born.get_or_insert_with(Sleeping::start);
        if tree.tasks.len() == 1 {
            affinity::set(child.thread(), &one).unwrap();
        }
        tree
    };
    let (done, _) = restore_in_rounds(&Root::live(), &masks, Outside::TryAgain, list);
    assert_eq!(done, Restored { put_back: 1, heirs: 1, ..Restored::default() });
    assert_eq!(rounds, 3, "the last one finds nothing");
    let born = born.expect("born in the first round");
    assert_eq!(affinity::get(born.thread()).unwrap(), own);
}

#[test]
fn a_change_is_prepared_for_the_thread_that_was_seen_and_for_no_later_one() {
    let own = affinity::get(std::process::id() as i32).unwrap();
    let target = Sleeping::start();
    let Task { process, tid, started } = target.task();
    let one: CpuSet = own.iter().take(1).collect();
    let wanted = Wanted { plan: 1, process, tid, cpus: one.clone(), via: None, seen: started };
    let prepared = |wanted: &Wanted| prepare(&Root::live(), &Masks::default(), wanted);
    let change = prepared(&wanted).unwrap();
    assert_eq!((change.cpus, &change.original.cpus), (one, &own));
    let cpuset = cpuset::cpus_of(&Root::live(), process.pid);
    assert_eq!(change.original.whole, cpuset == Some(own));
    let before = Wanted { seen: Nanos(started.0 - 1), ..wanted.clone() };
    assert_eq!(prepared(&before), Err(StepResult::Gone), "it started later");
    let other = Identity { started: Nanos(process.started.0 + 1), ..process };
    let other = Wanted { process: other, ..wanted };
    assert_eq!(prepared(&other), Err(StepResult::Gone), "another process had the number");
}

#[test]
fn a_change_widens_no_mask_and_meets_no_thread_that_has_chosen_its_own() {
    let own = affinity::get(std::process::id() as i32).unwrap();
    let Some(other) = own.iter().nth(1) else {
        println!("not tried: this machine has one CPU");
        return;
    };
    let target = Sleeping::start();
    let narrow: CpuSet = own.iter().take(1).collect();
    affinity::set(target.thread(), &narrow).unwrap();
    let Task { process, tid, started } = target.task();
    let wanted = |cpus: &CpuSet| Wanted {
        plan: 1,
        process,
        tid,
        cpus: cpus.clone(),
        via: Some(other),
        seen: started,
    };
    let mut masks = Masks::default();
    let change = prepare(&Root::live(), &masks, &wanted(&own)).unwrap();
    assert_eq!((change.cpus, change.via), (narrow, None));
    let outside = prepare(&Root::live(), &masks, &wanted(&CpuSet::from_iter([other])));
    assert_eq!(outside, Err(StepResult::Refused { errno: libc::EINVAL }));
    masks.let_choose(target.task());
    let chosen = prepare(&Root::live(), &masks, &wanted(&own));
    assert_eq!(chosen, Err(StepResult::Refused { errno: libc::EBUSY }));
}

#[test]
fn counts_of_several_processes_add_up() {
    let one = |number| Restored {
        put_back: number,
        in_place: number + 1,
        heirs: number + 2,
        left_alone: number + 3,
        gone: number + 4,
        refused: number + 5,
        outside: number + 6,
    };
    let mut sum = one(10);
    sum.add(&one(2));
    let expected = Restored {
        put_back: 12,
        in_place: 14,
        heirs: 16,
        left_alone: 18,
        gone: 20,
        refused: 22,
        outside: 24,
    };
    assert_eq!(sum, expected);
}

/// The cpuset has lost them, or they are offline.
#[test]
fn a_thread_without_any_of_its_first_cpus_gets_all_of_its_cpuset_in_the_end() {
    let own = affinity::get(std::process::id() as i32).unwrap();
    let one: CpuSet = own.iter().take(1).collect();
    let none = Restored::default();
    for is_end in [false, true] {
        let target = Sleeping::start();
        let task = target.task();
        let original = Original { cpus: CpuSet::from_iter([NO_CPU]), whole: false };
        let (at, cpus) = (task.started, one.clone());
        let mut masks = Masks::default();
        masks.enter(&Change { plan: 1, task, session: 0, at, original, via: None, cpus });
        affinity::set(target.thread(), &one).unwrap();
        let (done, expected, after) = match is_end {
            true => (restore(&Root::live(), &masks), Restored { outside: 1, ..none }, &own),
            false => {
                let done = restore_process(&Root::live(), &masks, task.process);
                (done, Restored { refused: 1, ..none }, &one)
            }
        };
        assert_eq!(done, expected);
        assert_eq!(&affinity::get(target.thread()).unwrap(), after);
    }
}

/// A root with a process of this machine in a cpuset of the test.
fn with_cpuset(process: Identity, cpus: &str) -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::captured(directory.path());
    let own = root.in_proc(process.pid.to_string());
    let task = own.join(format!("task/{}", process.pid));
    std::fs::create_dir_all(&task).unwrap();
    for (folder, name) in [(&own, "stat"), (&task, "stat")] {
        let stat = format!("/proc/{}/{name}", process.pid);
        std::fs::write(folder.join(name), std::fs::read(stat).unwrap()).unwrap();
    }
    std::fs::write(own.join("cpuset"), "/job\n").unwrap();
    let job = root.in_sys("fs/cgroup/job");
    std::fs::create_dir_all(&job).unwrap();
    std::fs::write(job.join("cpuset.cpus.effective"), format!("{cpus}\n")).unwrap();
    (directory, root)
}

#[test]
fn a_mask_stays_within_the_cpuset_of_now_and_within_a_chosen_mask() {
    let target = Sleeping::start();
    let task = target.task();
    let now = affinity::get(target.thread()).unwrap();
    let (_directory, root) = with_cpuset(task.process, "2-5");
    for (whole, wanted, given) in
        [(true, "0-7", Some("2-5")), (true, "6-7", None), (false, "0-7", Some("0-3"))]
    {
        let cpus = |list: &str| -> CpuSet {
            let list = crate::parse::cpulist::parse(list.as_bytes()).unwrap();
            list.into_iter().map(|cpu| cpu as usize).collect()
        };
        let mut masks = Masks::default();
        let original = Original { cpus: cpus("0-3"), whole };
        let (at, via) = (task.started, None);
        let first = Change { plan: 1, task, session: 0, at, original, via, cpus: now.clone() };
        masks.enter(&first);
        let Task { process, tid, started } = task;
        let wanted = Wanted { plan: 2, process, tid, cpus: cpus(wanted), via, seen: started };
        let prepared = prepare(&root, &masks, &wanted).map(|change| change.cpus);
        let refused = StepResult::Refused { errno: libc::EINVAL };
        assert_eq!(prepared, given.map(cpus).ok_or(refused), "{wanted:?}");
    }
}

#[test]
fn a_mask_is_the_whole_one_if_it_is_all_of_the_cpuset() {
    let target = Sleeping::start();
    let Task { process, tid, started } = target.task();
    let now = affinity::get(target.thread()).unwrap();
    for (cpuset, whole) in [(now.to_string(), true), ("8000".to_string(), false)] {
        let (_directory, root) = with_cpuset(process, &cpuset);
        let cpus = now.clone();
        let wanted = Wanted { plan: 1, process, tid, cpus, via: None, seen: started };
        let change = prepare(&root, &Masks::default(), &wanted).unwrap();
        assert_eq!(change.original, Original { cpus: now.clone(), whole }, "{cpuset}");
    }
}
