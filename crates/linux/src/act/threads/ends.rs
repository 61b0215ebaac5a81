//! Tests of threads that end between two calls, of ended processes, and of unreadable files. Each
//! is counted once, as what it is.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::sleeper::Sleeper;

/// No process has this number: the kernel's are below 2^22.
const NOBODY: u32 = 5_000_000;
/// Flag of a kernel thread (`PF_KTHREAD`, include/linux/sched.h).
const KERNEL_THREAD: u32 = 0x0020_0000;
const SESSION: u32 = 9;
const NONE: Restored =
    Restored { put_back: 0, in_place: 0, heirs: 0, outside: 0, left_alone: 0, gone: 0, refused: 0 };

fn captured() -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::captured(directory.path());
    fs::create_dir_all(&root.proc).unwrap();
    (directory, root)
}

/// A process of one thread in a captured `/proc`, each in its state. Both started at one second.
fn put(root: &Root, pid: u32, (process, thread): (char, char), flags: u32) -> Identity {
    let line = |state| {
        format!(
            "{pid} (x) {state} 1 1 {SESSION} 0 -1 {flags} 7 0 1 0 2 1 0 0 20 0 1 0 100 0 10 \
             0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0\n"
        )
    };
    let task = root.in_proc(format!("{pid}/task/{pid}"));
    fs::create_dir_all(&task).unwrap();
    fs::write(task.join("stat"), line(thread)).unwrap();
    fs::write(root.in_proc(format!("{pid}/stat")), line(process)).unwrap();
    Identity { pid: Pid(pid), started: Nanos(1_000_000_000) }
}

/// A directory in the place of a file, which cannot be read.
fn make_unreadable(path: &std::path::Path) {
    let _ = fs::remove_file(path);
    fs::create_dir(path).unwrap();
}

fn main_thread(process: Identity) -> Task {
    Task { process, tid: Tid(process.pid.0), started: process.started }
}

fn change(process: Identity, original: Original, cpus: CpuSet) -> Change {
    let (task, at) = (main_thread(process), Nanos(1));
    Change { plan: 1, task, session: SESSION, at, original, via: None, cpus }
}

fn chosen(cpus: &CpuSet) -> Original {
    Original { cpus: cpus.clone(), whole: false }
}

fn held(process: Identity) -> Masks {
    let mut masks = Masks::default();
    masks.enter(&change(process, chosen(&CpuSet::first(2)), CpuSet::first(1)));
    masks
}

#[test]
fn a_thread_is_found_unless_it_has_ended() {
    let (_directory, root) = captured();
    for (state, is_found) in [('R', true), ('S', true), ('T', true), ('Z', false), ('X', false)] {
        let process = put(&root, NOBODY, ('S', state), 0);
        let found = find(&root, process, Tid(NOBODY)).unwrap();
        assert_eq!(found, is_found.then_some(main_thread(process)), "{state}");
    }
    let process = put(&root, NOBODY, ('S', 'S'), 0);
    fs::write(root.in_proc(format!("{NOBODY}/task/{NOBODY}/stat")), "").unwrap();
    assert_eq!(find(&root, process, Tid(NOBODY)).unwrap(), None, "it ended while it was read");
    assert!(is_gone(main_thread(process)));
    let sleeper = Sleeper::start();
    assert!(!is_gone(main_thread(sleeper.identity())));
}

#[test]
fn no_change_is_prepared_for_an_ended_thread_or_for_one_that_cannot_be_looked_at() {
    let (_directory, root) = captured();
    let process = put(&root, NOBODY, ('S', 'S'), 0);
    let prepared = || {
        let (tid, cpus, seen) = (Tid(NOBODY), CpuSet::first(1), Nanos(u64::MAX));
        let wanted = Wanted { plan: 1, process, tid, cpus, via: None, seen };
        prepare(&root, &Masks::default(), &wanted).map(drop)
    };
    let (gone, again) = (StepResult::Gone, StepResult::Refused { errno: libc::EAGAIN });
    assert_eq!(prepared(), Err(gone.clone()), "the kernel has no such thread");
    put(&root, NOBODY, ('Z', 'S'), 0);
    assert_eq!(prepared(), Err(gone.clone()), "its process has ended");
    let (own, task) = (format!("{NOBODY}/stat"), format!("{NOBODY}/task/{NOBODY}/stat"));
    make_unreadable(&root.in_proc(&own));
    assert_eq!(prepared(), Err(again.clone()));
    fs::remove_dir(root.in_proc(&own)).unwrap();
    assert_eq!(prepared(), Err(gone.clone()));
    make_unreadable(&root.in_proc(&task));
    assert_eq!(prepared(), Err(again));
    fs::remove_dir(root.in_proc(&task)).unwrap();
    assert_eq!(prepared(), Err(gone));
}

#[test]
fn threads_of_the_kernel_are_no_orphans_and_a_list_that_cannot_be_read_counts() {
    let (_directory, root) = captured();
    let first = Identity { pid: Pid(NOBODY), started: Nanos(1_000_000_000) };
    let entry = change(first, chosen(&CpuSet::first(2)), CpuSet::first(1)).entry();
    let masks = Masks::of_ledger(&[entry]);
    let orphan = put(&root, NOBODY + 1, ('S', 'S'), 0);
    put(&root, NOBODY + 2, ('S', 'S'), KERNEL_THREAD);
    let mut unseen = 0;
    assert_eq!(orphans(&root, &masks, &mut unseen), [orphan]);
    assert_eq!(unseen, 0);
    let (_directory, looped) = captured();
    fs::remove_dir(&looped.proc).unwrap();
    symlink(&looped.proc, &looped.proc).unwrap();
    assert!(orphans(&looped, &masks, &mut unseen).is_empty());
    assert_eq!(unseen, 1);
}

#[test]
fn what_cannot_be_read_of_a_tree_counts_and_hides_nothing_else_of_it() {
    // Threads that are found, and what could not be read.
    let found = |spoil: &dyn Fn(&Root)| {
        let (_directory, root) = captured();
        let process = put(&root, NOBODY, ('S', 'S'), 0);
        spoil(&root);
        let tree = tree(&root, &held(process));
        (tree.tasks.len(), tree.unseen)
    };
    let task = format!("{NOBODY}/task");
    assert_eq!(found(&|_| ()), (1, 0));
    let has_ended = |root: &Root| {
        put(root, NOBODY, ('Z', 'S'), 0);
    };
    assert_eq!(found(&has_ended), (0, 0));
    let without_children =
        |root: &Root| make_unreadable(&root.in_proc(format!("{task}/{NOBODY}/children")));
    assert_eq!(found(&without_children), (1, 1));
    let without_threads = |root: &Root| {
        fs::remove_dir_all(root.in_proc(&task)).unwrap();
        symlink(root.in_proc(&task), root.in_proc(&task)).unwrap();
    };
    assert_eq!(found(&without_threads), (0, 2), "of the tree, and of the process");
    let with_hidden_child = |root: &Root| {
        let child = NOBODY + 1;
        put(root, child, ('S', 'S'), 0);
        let children = |pid: u32| root.in_proc(format!("{pid}/task/{pid}/children"));
        fs::write(children(NOBODY), format!("{child} ")).unwrap();
        fs::write(children(child), "").unwrap();
        make_unreadable(&root.in_proc(format!("{child}/stat")));
    };
    assert_eq!(found(&with_hidden_child), (1, 2), "of all processes, and of the tree");
}

#[test]
fn a_process_whose_threads_cannot_be_listed_counts_as_refused() {
    let (_directory, root) = captured();
    let process = put(&root, NOBODY, ('S', 'S'), 0);
    let task = root.in_proc(format!("{NOBODY}/task"));
    fs::remove_dir_all(&task).unwrap();
    symlink(&task, &task).unwrap();
    let refused = Restored { refused: 1, ..NONE };
    assert_eq!(restore_process(&root, &Masks::default(), process), refused);
}

#[test]
fn a_thread_that_no_list_has_counts_as_gone_only_if_it_has_ended() {
    let (_directory, root) = captured();
    let process = put(&root, NOBODY, ('Z', 'S'), 0);
    let masks = held(process);
    assert_eq!(restore(&root, &masks), Restored { refused: 1, ..NONE });
    put(&root, NOBODY, ('Z', 'Z'), 0);
    assert_eq!(restore(&root, &masks), Restored { gone: 1, ..NONE });
}

#[test]
fn a_thread_that_ends_while_it_is_restored_is_no_failure_and_a_refusal_is_one() {
    let task = main_thread(Identity { pid: Pid(NOBODY), started: Nanos(1) });
    let one = |found: io::Result<Looked>| {
        let mut counts = Restored::default();
        let is_done = restore_one(task, found, Outside::Widen, &mut counts).is_ok();
        (is_done, counts)
    };
    let failed = |errno| Err(io::Error::from_raw_os_error(errno));
    assert_eq!(one(failed(libc::ESRCH)), (true, NONE));
    assert_eq!(one(failed(libc::EPERM)), (false, NONE));
    let looked = |standing| Ok(Looked { standing, now: CpuSet::first(1), cpuset: None });
    let original = chosen(&CpuSet::first(2));
    assert_eq!(one(looked(Standing::Ours(original.clone()))), (true, NONE));
    assert_eq!(one(looked(Standing::Heir(original.clone()))), (true, NONE));
    assert_eq!(one(looked(Standing::Untouched)), (true, NONE));
    let (is_done, counts) = one(looked(Standing::Changed(original)));
    assert_eq!((is_done, counts), (true, Restored { left_alone: 1, ..NONE }));
    assert!(!disinherit(task, &chosen(&CpuSet::first(2))), "it has ended");
}

/// A child of this test with its mask; `None` where there is no choice of CPUs.
fn sleeping() -> Option<(Sleeper, Identity, [CpuSet; 3])> {
    let sleeper = Sleeper::start();
    let process = sleeper.identity();
    let own = affinity::get(process.pid.0 as i32).unwrap();
    let one = |place| CpuSet::from_iter(own.iter().skip(place).take(1));
    let (first, second) = (one(0), one(1));
    if second.is_empty() {
        println!("not tried: this machine has one CPU");
        return None;
    }
    Some((sleeper, process, [own, first, second]))
}

#[test]
fn a_chosen_mask_comes_back_as_it_was_and_a_thread_without_one_gets_none() {
    let Some((_sleeper, process, [own, first, second])) = sleeping() else { return };
    let thread = process.pid.0 as i32;
    let mask = || affinity::get(thread).unwrap();
    for whole in [false, true] {
        let original = Original { cpus: second.clone(), whole };
        let expected = |mask: &CpuSet| match whole {
            true => own.is_subset(mask),
            false => *mask == second,
        };
        let mut masks = Masks::default();
        masks.enter(&change(process, original.clone(), first.clone()));
        affinity::set(thread, &first).unwrap();
        assert_eq!(restore(&Root::live(), &masks), Restored { put_back: 1, ..NONE });
        assert!(expected(&mask()), "{whole} {}", mask());
        // A policy may take its change back, too.
        affinity::set(thread, &first).unwrap();
        let back = change(process, original.clone(), second.clone());
        assert_eq!(give(&mut masks, &back), StepResult::Done);
        assert!(expected(&mask()), "{whole} {}", mask());
        affinity::set(thread, &first).unwrap();
        assert!(disinherit(main_thread(process), &original));
        assert!(expected(&mask()), "{whole} {}", mask());
    }
    let absent = chosen(&CpuSet::from_iter([ALL_CPUS - 1]));
    assert!(!disinherit(main_thread(process), &absent), "the kernel refuses it");
}

#[test]
fn a_widened_mask_has_all_of_the_cpuset_and_keeps_the_first_cpus() {
    let Some((_sleeper, process, [own, first, second])) = sleeping() else { return };
    let mask = || affinity::get(process.pid.0 as i32).unwrap();
    widen(main_thread(process), &chosen(&second), Some(&first)).unwrap();
    assert_eq!(mask(), first.union(&second));
    affinity::set(process.pid.0 as i32, &first).unwrap();
    widen(main_thread(process), &chosen(&second), None).unwrap();
    assert!(own.is_subset(&mask()), "its cpuset is not known");
}

#[test]
fn restoring_ends_when_nothing_is_left_and_tries_again_what_was_refused() {
    let in_rounds = |masks: &Masks, list: &dyn Fn(usize) -> Tree| {
        let mut rounds = 0;
        let (counts, looked_at) =
            restore_in_rounds(&Root::live(), masks, Outside::TryAgain, || {
                rounds += 1;
                list(rounds)
            });
        (rounds, counts, looked_at)
    };
    let unseen = |unseen| Tree { tasks: Vec::new(), unseen };
    let nobody = Masks::default();
    assert_eq!(in_rounds(&nobody, &|_| unseen(0)), (1, NONE, BTreeSet::new()));
    let readable_later = |round: usize| unseen(if round == 1 { 2 } else { 0 });
    assert_eq!(in_rounds(&nobody, &readable_later), (2, NONE, BTreeSet::new()));
    let sleeper = Sleeper::start();
    let process = sleeper.identity();
    let now = affinity::get(process.pid.0 as i32).unwrap();
    let mut masks = Masks::default();
    masks.enter(&change(process, chosen(&CpuSet::from_iter([ALL_CPUS - 1])), now));
    let task = main_thread(process);
    let refused = |_: usize| Tree { tasks: vec![task], ..unseen(2) };
    let expected = (MAX_ROUNDS, Restored { refused: 3, ..NONE }, BTreeSet::from([task]));
    assert_eq!(in_rounds(&masks, &refused), expected);
}
