//! Sets CPU masks of threads and restores their first masks.
//!
//! Limitation: the kernel changes the mask of a thread only by its number. A thread may end after
//! it was found, and its number may go to another thread. The time for this is that of two readings
//! of `/proc` and a call.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use rondpoint_core::plan::StepResult;
use rondpoint_core::{CpuSet, Nanos, Pid, Tid};
use serde::Serialize;

use super::masks::{Change, Masks, Original, Standing, Task};
use super::{Identity, has_ended, stat_in};
use crate::observe::tasks::{Births, Tasks, started};
use crate::parse::stat::TaskStat;
use crate::root::{self, Root};
use crate::syscall::affinity;
use crate::syscall::time::since_boot_ns;
use crate::{LinuxError, cpuset};

/// Most rounds of restoring (our choice). While one creator's mask is restored, another
/// may still create threads.
const MAX_ROUNDS: usize = 16;
/// The kernel gives the CPUs of a changed cpuset to all its threads in a shorter time (our choice).
const SETTLES: Duration = Duration::from_millis(2);
/// Number of CPUs in the largest mask. No kernel is built for more.
const ALL_CPUS: usize = 8192;

/// A requested mask of a thread, in the kernel's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) plan: u64,
    pub(super) process: Identity,
    pub(super) tid: Tid,
    pub(super) cpus: CpuSet,
    pub(super) via: Option<usize>,
    /// Time of the observation. A thread that started later is another one with the same number.
    pub(super) seen: Nanos,
}

/// Results of restoring masks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Threads whose original mask was restored.
    pub put_back: u64,
    /// Threads that already had their original mask.
    pub in_place: u64,
    /// Threads that had inherited a mask of ours and got their creator's original one.
    pub heirs: u64,
    /// Threads that may use none of the CPUs of their original mask any more, for their cpuset has
    /// none of them or they are offline. They got all CPUs of their cpuset.
    pub outside: u64,
    /// Threads whose mask another process has changed. They are left as they are.
    pub left_alone: u64,
    /// Threads that have ended.
    pub gone: u64,
    /// Threads whose mask the kernel did not let us read or set.
    pub refused: u64,
}

impl Restored {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.put_back += other.put_back;
        self.in_place += other.in_place;
        self.heirs += other.heirs;
        self.outside += other.outside;
        self.left_alone += other.left_alone;
        self.gone += other.gone;
        self.refused += other.refused;
    }
}

/// The thread of a process that has this number now; `None` if it has ended.
///
/// # Errors
/// `/proc` cannot be read.
pub(super) fn find(root: &Root, process: Identity, tid: Tid) -> Result<Option<Task>, LinuxError> {
    let found = stat_in(root, format!("{}/task/{tid}/stat", process.pid))?;
    let found = found.filter(|found| !has_ended(found));
    Ok(found.map(|found| Task { process, tid, started: started(&found) }))
}

/// The origin of a thread's present mask `now`. A thread that is not the main one and calls
/// execve(2) gets the number and the start time of the main thread (`de_thread`, fs/exec.c). It
/// keeps its mask, and no other thread is left.
pub(super) fn standing(
    masks: &Masks,
    task: &Task,
    now: &CpuSet,
    cpuset: Option<&CpuSet>,
) -> Standing {
    let found = masks.standing(task, now, cpuset);
    let is_main = task.tid.0 == task.process.pid.0;
    if !is_main || !matches!(found, Standing::Untouched | Standing::Changed(_)) {
        return found;
    }
    let others = || masks.tasks_of(task.process).filter(|other| *other != task);
    let caller = others().find_map(|other| masks.original_of(other, now, cpuset));
    match caller {
        Some(original) if others().all(|other| is_gone(*other)) => Standing::Heir(original),
        _ => found,
    }
}

/// Whether no thread has this number any more.
pub(super) fn is_gone(task: Task) -> bool {
    affinity::get(thread(task)).is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
}

/// Prepares a change of a thread's mask. The new mask is inside the thread's original one. The
/// kernel keeps it inside the cpuset.
pub(super) fn prepare(root: &Root, masks: &Masks, wanted: &Wanted) -> Result<Change, StepResult> {
    let not_seen = |_| StepResult::Refused { errno: libc::EAGAIN };
    let task = find(root, wanted.process, wanted.tid).map_err(not_seen)?.ok_or(StepResult::Gone)?;
    let process = stat_in(root, format!("{}/stat", wanted.process.pid)).map_err(not_seen)?;
    let is_same = |found: &TaskStat| found.is_alive() && started(found) == wanted.process.started;
    let session = process.filter(is_same).ok_or(StepResult::Gone)?.session;
    if task.started > wanted.seen {
        return Err(StepResult::Gone);
    }
    let now = affinity::get(thread(task)).map_err(|error| result(&error))?;
    let cpuset = cpuset::cpus_of(root, task.process.pid);
    let original = match standing(masks, &task, &now, cpuset.as_ref()) {
        Standing::Ours(original) | Standing::Heir(original) => original,
        // Another process or the thread itself has changed the mask after us.
        Standing::Changed(_) => return Err(StepResult::Refused { errno: libc::EBUSY }),
        Standing::Untouched if masks.has_chosen(task.process, task.tid) => {
            return Err(StepResult::Refused { errno: libc::EBUSY });
        }
        Standing::Untouched => Original { whole: cpuset.as_ref() == Some(&now), cpus: now },
    };
    // A thread without a mask of its own may use CPUs that its cpuset got since the first change.
    let own = if original.whole { original.within(cpuset.as_ref()) } else { original.cpus.clone() };
    let cpus = wanted.cpus.intersection(&own);
    if cpus.is_empty() {
        return Err(StepResult::Refused { errno: libc::EINVAL });
    }
    let via = wanted.via.filter(|cpu| cpus.contains(*cpu));
    let at = Nanos(since_boot_ns());
    Ok(Change { plan: wanted.plan, task, session, at, original, via, cpus })
}

/// Makes a prepared change, which the ledger already has.
pub(super) fn give(masks: &mut Masks, change: &Change) -> StepResult {
    let before = masks.now(&change.task).unwrap_or(&change.original.cpus).clone();
    masks.enter(change);
    if let Some(cpu) = change.via {
        // This CPU may have just gone offline. The mask is set all the same.
        let _ = affinity::set(thread(change.task), &[cpu].into_iter().collect());
    }
    let set = match change.cpus == change.original.cpus {
        true => put_back(change.task, &change.original),
        false => affinity::set(thread(change.task), &change.cpus),
    };
    match set {
        Ok(()) => StepResult::Done,
        Err(error) => {
            masks.withdraw(&change.task);
            // The thread must not stay on the single CPU. If this fails too, the thread has ended
            // or belongs to another user.
            let _ = affinity::set(thread(change.task), &before);
            result(&error)
        }
    }
}

/// Restores a thread's original mask. A thread that had none of its own gets all possible CPUs,
/// which the kernel limits to its cpuset, now and later.
fn put_back(task: Task, original: &Original) -> io::Result<()> {
    match original.whole {
        true => affinity::set(thread(task), &CpuSet::first(ALL_CPUS)),
        false => affinity::set(thread(task), &original.cpus),
    }
}

/// Gives a thread that inherited a mask of ours its creator's original one. Returns whether it
/// succeeds.
pub(super) fn disinherit(task: Task, original: &Original) -> bool {
    put_back(task, original).is_ok()
}

/// What becomes of a thread whose cpuset has none of the CPUs of its original mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outside {
    /// It counts as refused: its CPUs may be back when it is tried again.
    TryAgain,
    /// It gets all CPUs of its cpuset.
    Widen,
}

/// Restores all masks of the tree for good. A thread or process that cannot be read counts as
/// refused.
#[must_use]
pub fn restore(root: &Root, masks: &Masks) -> Restored {
    restore_all(root, masks, Outside::Widen)
}

/// Restores all masks of the tree.
pub(super) fn restore_all(root: &Root, masks: &Masks, outside: Outside) -> Restored {
    // The search reads every process of the machine, and the end of a run waits for it. Without
    // heirs it is skipped.
    if !masks.may_have_heirs() {
        return Restored::default();
    }
    let (mut counts, looked_at) = restore_in_rounds(root, masks, outside, || tree(root, masks));
    for task in masks.tasks().filter(|task| !looked_at.contains(*task)) {
        // A thread that was not found and still exists counts as refused.
        let is_gone = find(root, task.process, task.tid).is_ok_and(|found| found != Some(*task));
        *(if is_gone { &mut counts.gone } else { &mut counts.refused }) += 1;
    }
    counts
}

/// Restores the masks of one process, while others of the tree are managed.
pub(super) fn restore_process(root: &Root, masks: &Masks, process: Identity) -> Restored {
    restore_in_rounds(root, masks, Outside::TryAgain, || threads_of(root, process)).0
}

/// Restores the masks of the threads that `list` finds, until it finds no other thread with one of
/// ours. A thread may be born between the list and the restoring of its creator's mask. Returns
/// also the threads that were looked at.
fn restore_in_rounds(
    root: &Root,
    masks: &Masks,
    outside: Outside,
    mut list: impl FnMut() -> Tree,
) -> (Restored, BTreeSet<Task>) {
    let mut counts = Restored::default();
    let (mut looked_at, mut stuck) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..MAX_ROUNDS {
        let before = counts.put_back + counts.heirs;
        let Tree { mut tasks, unseen } = list();
        stuck.clear();
        tasks.retain(|task| !looked_at.contains(task));
        for (task, done) in restore_each(root, masks, tasks, outside, &mut counts) {
            match done {
                Ok(()) => drop(looked_at.insert(task)),
                Err(Unseen) => drop(stuck.insert(task)),
            }
        }
        // Counts of this round only, because the next one replaces them.
        counts.refused = unseen + stuck.len() as u64;
        if counts.put_back + counts.heirs == before && counts.refused == 0 {
            break;
        }
    }
    looked_at.append(&mut stuck);
    (counts, looked_at)
}

/// The threads of one process.
fn threads_of(root: &Root, process: Identity) -> Tree {
    let mut tree = Tree::default();
    let Ok(threads) = root::list(&root.in_proc(format!("{}/task", process.pid))) else {
        return Tree { unseen: 1, ..tree };
    };
    for tid in threads.iter().filter_map(|name| name.parse().ok().map(Tid)) {
        match find(root, process, tid) {
            Ok(found) => tree.tasks.extend(found),
            Err(_) => tree.unseen += 1,
        }
    }
    tree
}

/// Error: the kernel did not let us read or set a mask.
struct Unseen;

/// Restores the masks of threads, with the result of each. While a cpuset changes, its CPUs and a
/// mask in it may not belong together. So threads with changed masks are looked at once more, after
/// one pause for all.
fn restore_each(
    root: &Root,
    masks: &Masks,
    tasks: Vec<Task>,
    outside: Outside,
    counts: &mut Restored,
) -> Vec<(Task, Result<(), Unseen>)> {
    let (mut done, mut changed) = (Vec::with_capacity(tasks.len()), Vec::new());
    for task in tasks {
        match look(root, masks, task) {
            Ok(Looked { standing: Standing::Changed(_), .. }) => changed.push(task),
            found => done.push((task, restore_one(task, found, outside, counts))),
        }
    }
    if !changed.is_empty() {
        std::thread::sleep(SETTLES);
    }
    for task in changed {
        done.push((task, restore_one(task, look(root, masks, task), outside, counts)));
    }
    done
}

/// What is seen of a thread's mask.
struct Looked {
    standing: Standing,
    now: CpuSet,
    cpuset: Option<CpuSet>,
}

fn look(root: &Root, masks: &Masks, task: Task) -> io::Result<Looked> {
    let now = affinity::get(thread(task))?;
    let cpuset = cpuset::cpus_of(root, task.process.pid);
    Ok(Looked { standing: standing(masks, &task, &now, cpuset.as_ref()), now, cpuset })
}

fn restore_one(
    task: Task,
    found: io::Result<Looked>,
    outside: Outside,
    counts: &mut Restored,
) -> Result<(), Unseen> {
    let Looked { standing, now, cpuset } = match found {
        Ok(found) => found,
        // A thread with a mask of ours that has just ended is counted as gone by the caller.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
        Err(_) => return Err(Unseen),
    };
    let (original, mut count) = match standing {
        Standing::Untouched => return Ok(()),
        Standing::Changed(original) if original.cpus == now => (None, &mut counts.in_place),
        Standing::Changed(_) => (None, &mut counts.left_alone),
        Standing::Ours(original) if original.cpus == now => (None, &mut counts.in_place),
        Standing::Ours(original) => (Some(original), &mut counts.put_back),
        Standing::Heir(original) => (Some(original), &mut counts.heirs),
    };
    let mut done = original.as_ref().map_or(Ok(()), |original| put_back(task, original));
    if let (Err(error), Some(original)) = (&done, &original)
        && error.raw_os_error() == Some(libc::EINVAL)
        && outside == Outside::Widen
    {
        done = widen(task, original, cpuset.as_ref());
        count = &mut counts.outside;
    }
    match done {
        Ok(()) => *count += 1,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
        Err(_) => return Err(Unseen),
    }
    Ok(())
}

/// Gives a thread all CPUs of its cpuset where that has none of its original ones, as the kernel
/// does when a cpuset changes. The original ones stay in the mask for a time when they are back.
fn widen(task: Task, original: &Original, cpuset: Option<&CpuSet>) -> io::Result<()> {
    let allowed = cpuset.cloned().unwrap_or_else(|| CpuSet::first(ALL_CPUS));
    affinity::set(thread(task), &original.cpus.union(&allowed))
}

/// Processes that may belong to the tree although their parents have ended and no observation had
/// them. Adds the processes that cannot be read to `unseen`.
fn orphans(root: &Root, masks: &Masks, unseen: &mut u64) -> Vec<Identity> {
    let names = root::list(&root.proc).unwrap_or_else(|_| {
        *unseen += 1;
        Vec::new()
    });
    let mut process = |name: &String| {
        let pid = Pid(name.parse().ok()?);
        let found = stat_in(root, format!("{pid}/stat")).unwrap_or_else(|error| {
            *unseen += u64::from(!is_closed(&error));
            None
        })?;
        let process = Identity { pid, started: started(&found) };
        // Kernel threads have session 0 too, as processes of sessions from outside a container do.
        let may_have = !found.is_kernel_thread && masks.may_have_borne(&process, found.session);
        may_have.then_some(process)
    };
    names.iter().filter_map(&mut process).collect()
}

/// Whether the kernel hides the process from this user (`hidepid`, proc(5)). Such a user cannot
/// have changed it.
fn is_closed(error: &LinuxError) -> bool {
    matches!(error, LinuxError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
}

/// Threads that could have a mask of ours.
#[derive(Default)]
struct Tree {
    tasks: Vec<Task>,
    /// Number of processes and threads that could not be read.
    unseen: u64,
}

fn tree(root: &Root, masks: &Masks) -> Tree {
    let mut tree = Tree::default();
    let mut there = Vec::new();
    for process in masks.processes() {
        match process.lives(root) {
            Ok(true) => there.push(process),
            Ok(false) => {}
            Err(_) => tree.unseen += 1,
        }
    }
    there.extend(orphans(root, masks, &mut tree.unseen));
    let Some(first) = there.first().map(|process| process.pid) else { return tree };
    let known: Vec<(Pid, Pid)> = there.iter().map(|process| (first, process.pid)).collect();
    let mut tasks = Tasks::new(root.clone(), first, None).without_limit();
    let births = Births { known: &known, ..Births::default() };
    // If another user's process cannot be read, the other masks are restored all the same.
    let members = tasks.members(births).unwrap_or_else(|error| {
        tree.unseen += u64::from(!is_closed(&error));
        let threads = |process: &Identity| match tasks.threads_of(process.pid) {
            Ok(threads) => (process.pid, threads),
            Err(_) => {
                tree.unseen += 1;
                (process.pid, Vec::new())
            }
        };
        there.iter().map(threads).collect()
    });
    for (pid, threads) in members {
        match Identity::find(root, pid) {
            Ok(Some(process)) => {
                for tid in threads {
                    match find(root, process, tid) {
                        Ok(task) => tree.tasks.extend(task),
                        Err(_) => tree.unseen += 1,
                    }
                }
            }
            Ok(None) => {}
            Err(_) => tree.unseen += 1,
        }
    }
    tree
}

pub(super) fn thread(task: Task) -> i32 {
    i32::try_from(task.tid.0).expect("the kernel's thread numbers are below 2^22")
}

fn result(error: &io::Error) -> StepResult {
    match error.raw_os_error() {
        Some(libc::ESRCH) => StepResult::Gone,
        errno => StepResult::Refused { errno: errno.unwrap_or(libc::EIO) },
    }
}

#[cfg(test)]
mod ends;
#[cfg(test)]
mod tests;
