//! The history of the masks of threads: the first mask of each, and the masks that it was given,
//! with times.
//!
//! A new thread or process inherits the mask of its creator. So it may have a mask of Rondpoint
//! without a change of its own. The kernel does not distinguish inherited from chosen masks. So a
//! thread counts as an *heir* if its mask equals a mask in force at its birth. Masks of its process
//! count, or else masks of the tree. A thread with another mask has chosen it and is left alone.
//!
//! Masks here are sets of the kernel's CPU numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use rondpoint_core::{CpuSet, Nanos, Pid, Tid};

use super::Identity;
use crate::ledger_file::{Entry, MaskEntry};
use crate::observe::tasks::MAX_THREADS;
use crate::parse::cpulist;
use crate::syscall::process::ticks_per_second;

/// Most masks kept for one thread. The guard allows three moves in thirty seconds, so they reach
/// back ten minutes or more.
pub(crate) const MAX_GIVEN: usize = 64;
/// Most threads kept. Beyond it the threads that ended first are dropped, with the masks that their
/// heirs may have.
const MAX_HELD: usize = 2 * MAX_THREADS;

/// A thread by process, number and start time. The number alone may be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// Process of the thread.
    pub process: Identity,
    /// Number of the thread.
    pub tid: Tid,
    /// Start time since boot, in whole clock ticks.
    pub started: Nanos,
}

impl Task {
    /// The ledger's entry about a thread that has chosen its mask.
    #[must_use]
    pub fn entry(&self) -> Entry {
        self.own_mask(None)
    }

    /// The ledger's entry about a thread that got its first mask back.
    #[must_use]
    pub fn returned_entry(&self, at: Nanos) -> Entry {
        self.own_mask(Some(at.0))
    }

    fn own_mask(&self, returned: Option<u64>) -> Entry {
        let Self { process: Identity { pid, started }, tid, started: born } = *self;
        Entry::OwnMask { pid: pid.0, started: started.0, tid: tid.0, born: born.0, returned }
    }
}

/// The mask of a thread before our first change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// CPUs.
    pub cpus: CpuSet,
    /// Whether the mask was all CPUs of the thread's cpuset. Restoring it then sets all possible
    /// CPUs.
    pub whole: bool,
}

impl Original {
    /// The mask that a thread in this cpuset has with it.
    #[must_use]
    pub fn within(&self, cpuset: Option<&CpuSet>) -> CpuSet {
        match cpuset {
            Some(cpuset) if self.whole => cpuset.clone(),
            Some(cpuset) => within(&self.cpus, cpuset),
            None => self.cpus.clone(),
        }
    }
}

/// A mask that we gave to a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Given {
    plan: u64,
    at: Nanos,
    via: Option<usize>,
    cpus: CpuSet,
    /// Whether the manager may have been killed before this mask was set, or between the first CPU
    /// and the mask.
    uncertain: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    original: Original,
    given: Vec<Given>,
    /// Time at which the thread ended or chose a mask of its own; its masks are kept for its heirs.
    /// `None` while it has a mask of ours.
    until: Option<Nanos>,
}

/// A prepared change of one thread's mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Number of the plan.
    pub plan: u64,
    /// The thread that gets the mask.
    pub task: Task,
    /// The session that its process belongs to.
    pub session: u32,
    /// Time of the change, since boot.
    pub at: Nanos,
    /// The thread's mask before our first change.
    pub original: Original,
    /// The CPU that the thread is moved to first.
    pub via: Option<usize>,
    /// The new mask.
    pub cpus: CpuSet,
}

/// The origin of a thread's present mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// We did not change the mask, and it was not inherited from a thread with a mask of ours.
    Untouched,
    /// We set the mask; the thread's original one.
    Ours(Original),
    /// The thread inherited a mask of ours; its creator's original one.
    Heir(Original),
    /// We changed the mask, and then another process changed it; the thread's original one.
    Changed(Original),
}

/// Our changes of the masks in a tree of processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Masks {
    held: BTreeMap<Task, Held>,
    /// Every mask that any thread was given. `first` is the time of the first change.
    given: BTreeSet<CpuSet>,
    first: Option<Nanos>,
    /// Threads that chose a mask before we gave the same one to others. They are no heirs.
    own: BTreeSet<Task>,
    /// Processes first observed after the first change, and how many there may be before those that
    /// have ended are dropped.
    family: BTreeSet<Identity>,
    most_members: usize,
    /// The sessions (setsid(2)) of processes with changed masks.
    sessions: BTreeSet<u32>,
    /// Threads that looked as if they had chosen a mask, once.
    doubted: BTreeSet<Task>,
    /// Whether the manager was killed, so that it did not observe the youngest threads.
    was_killed: bool,
}

impl Masks {
    /// The changes in the ledger of a manager that has ended. `entries` are in the order of
    /// writing.
    pub fn of_ledger<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Self {
        let mut masks = Self { was_killed: true, ..Self::default() };
        let mut last = None;
        for entry in entries {
            match entry {
                Entry::Mask(mask) => {
                    let Some(change) = Change::of_entry(mask) else { continue };
                    last = Some(change.plan);
                    masks.enter(&change);
                }
                Entry::OwnMask { tid, born, returned, .. } => {
                    let Some(process) = entry.process() else { continue };
                    let task = Task { process, tid: Tid(*tid), started: Nanos(*born) };
                    match returned {
                        Some(at) => masks.let_go(&task, Nanos(*at)),
                        None => masks.let_choose(task),
                    }
                }
                Entry::Member { .. } => masks.family.extend(entry.process()),
                _ => {}
            }
        }
        // All changes of a plan are written before its first step, so some may not have been made.
        let given = masks.held.values_mut().flat_map(|held| &mut held.given);
        given.for_each(|given| given.uncertain = Some(given.plan) == last);
        masks
    }

    /// Adds a change before it is made.
    pub fn enter(&mut self, change: &Change) {
        let new = || Held { original: change.original.clone(), given: Vec::new(), until: None };
        let held = self.held.entry(change.task).or_insert_with(new);
        if held.until.is_some() {
            *held = new();
        }
        self.own.remove(&change.task);
        self.sessions.insert(change.session);
        let Change { plan, at, via, ref cpus, .. } = *change;
        self.first.get_or_insert(at);
        self.given.insert(cpus.clone());
        self.given.extend(via.map(|cpu| [cpu].into_iter().collect()));
        held.given.push(Given { plan, at, via, cpus: cpus.clone(), uncertain: false });
        if held.given.len() > MAX_GIVEN {
            held.given.remove(0);
        }
    }

    /// Removes a thread's last change, which was not made.
    pub fn withdraw(&mut self, task: &Task) {
        if let Some(held) = self.held.get_mut(task) {
            held.given.pop();
            if held.given.is_empty() {
                self.held.remove(task);
            }
        }
    }

    /// Records that a thread has chosen a mask of its own, whatever it is.
    pub fn let_choose(&mut self, task: Task) {
        self.own.insert(task);
        if let Some(held) = self.held.get_mut(&task) {
            held.until.get_or_insert(Nanos(u64::MAX));
        }
    }

    /// Whether a thread looks for the second time as if it had chosen a mask. While a cpuset
    /// changes, the kernel gives its CPUs and the masks of its threads one after the other.
    pub fn is_confirmed(&mut self, task: Task) -> bool {
        !self.doubted.insert(task) && self.doubted.remove(&task)
    }

    /// A thread has the mask that it was given.
    pub fn trust(&mut self, task: &Task) {
        self.doubted.remove(task);
    }

    /// Whether the thread of this number has ever chosen a mask since we changed it or gave the
    /// same to others.
    #[must_use]
    pub fn has_chosen(&self, process: Identity, tid: Tid) -> bool {
        self.own.range(numbered(process, tid)).next().is_some()
    }

    /// Drops threads that have ended. Masks of ours that their heirs may have are kept.
    pub fn forget_gone(&mut self, at: Nanos, is_gone: impl Fn(&Task) -> bool) {
        self.own.retain(|task| !is_gone(task));
        self.doubted.retain(|task| !is_gone(task));
        let ended: Vec<Task> = self.tasks().filter(|task| is_gone(task)).copied().collect();
        ended.iter().for_each(|task| self.let_go(task, at));
    }

    /// Records that a thread ended or chose a mask of its own at a time. Threads created later do
    /// not inherit a mask of ours from it.
    pub fn let_go(&mut self, task: &Task, at: Nanos) {
        if let Some(held) = self.held.get_mut(task) {
            held.until = Some(at);
        }
        if self.held.len() > MAX_HELD {
            let mut ends: Vec<Nanos> = self.held.values().filter_map(|held| held.until).collect();
            ends.sort_unstable();
            if let Some(old) = ends.get(ends.len() / 2) {
                self.held.retain(|_, held| held.until.is_none_or(|until| until > *old));
            }
        }
    }

    /// Whether a process whose parents have ended may belong to the tree without having been
    /// observed. That is so if the manager was killed, and the process is of one of the tree's
    /// sessions and younger than the first change. In a container the kernel shows each session
    /// from outside as 0, which is compared in the same way.
    #[must_use]
    pub fn may_have_borne(&self, process: &Identity, session: u32) -> bool {
        self.was_killed && self.sessions.contains(&session) && self.is_late(process)
    }

    fn is_late(&self, process: &Identity) -> bool {
        self.first.is_some_and(|first| process.started.0 + tick() > first.0)
    }

    /// Adds an observed process. True if it must be written into the ledger: it is younger than the
    /// first change, so a later search for heirs could miss it.
    pub fn see(&mut self, process: Identity) -> bool {
        self.is_late(&process) && self.family.insert(process)
    }

    /// Drops observed processes that have ended, whenever their number has doubled.
    pub fn drop_ended_members(&mut self, lives: impl Fn(&Identity) -> bool) {
        if self.family.len() >= self.most_members.max(MAX_HELD) {
            self.family.retain(lives);
            self.most_members = 2 * self.family.len();
        }
    }

    /// Whether no mask was changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether a thread may have inherited a mask of ours. Even a change that was removed may have
    /// been in effect for a moment.
    #[must_use]
    pub fn may_have_heirs(&self) -> bool {
        self.first.is_some()
    }

    /// Every known thread with a mask of ours.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.held.iter().filter(|(_, held)| held.until.is_none()).map(|(task, _)| task)
    }

    /// Threads of a process with masks of ours.
    pub fn tasks_of(&self, process: Identity) -> impl Iterator<Item = &Task> {
        let at = |tid, started| Task { process, tid: Tid(tid), started: Nanos(started) };
        let held = self.held.range(at(0, 0)..=at(u32::MAX, u64::MAX));
        held.filter(|(_, held)| held.until.is_none()).map(|(task, _)| task)
    }

    /// The original mask of a thread that has this mask, which we gave to it last.
    #[must_use]
    pub fn original_of(
        &self,
        task: &Task,
        now: &CpuSet,
        cpuset: Option<&CpuSet>,
    ) -> Option<Original> {
        let held = self.held.get(task).filter(|held| held.has(now, cpuset))?;
        Some(held.original.clone())
    }

    /// The thread of this number, if it has a mask of ours.
    #[must_use]
    pub fn task(&self, process: Identity, tid: Tid) -> Option<&Task> {
        self.held
            .range(numbered(process, tid))
            .find(|(_, held)| held.until.is_none())
            .map(|(task, _)| task)
    }

    /// The mask that we gave to a thread last.
    #[must_use]
    pub fn now(&self, task: &Task) -> Option<&CpuSet> {
        Some(&self.held.get(task)?.given.last()?.cpus)
    }

    /// All processes that may have threads with masks of ours.
    #[must_use]
    pub fn processes(&self) -> BTreeSet<Identity> {
        self.held.keys().map(|task| task.process).chain(self.family.iter().copied()).collect()
    }

    /// Whether we gave this mask to any thread, or one of which the cpuset leaves this. A thread
    /// with another mask is no heir.
    #[must_use]
    pub fn was_given(&self, now: &CpuSet, cpuset: Option<&CpuSet>) -> bool {
        let is_rest = |cpuset: &CpuSet| {
            let cut = self.given.iter().filter(|given| !given.is_subset(cpuset));
            cut.into_iter().any(|given| within(given, cpuset) == *now)
        };
        self.given.contains(now) || cpuset.is_some_and(is_rest)
    }

    /// The origin of a thread's present mask `now`. `cpuset`: CPUs of its cpuset, if known. The
    /// kernel removes CPUs from masks when a cpuset loses them, and replaces an empty mask.
    #[must_use]
    pub fn standing(&self, task: &Task, now: &CpuSet, cpuset: Option<&CpuSet>) -> Standing {
        match self.held.get(task).filter(|held| held.until.is_none()) {
            Some(held) if held.has(now, cpuset) => Standing::Ours(held.original.clone()),
            Some(held) => Standing::Changed(held.original.clone()),
            None if self.held.contains_key(task) || self.own.contains(task) => Standing::Untouched,
            None => self.inherited(task, now, cpuset).map_or(Standing::Untouched, Standing::Heir),
        }
    }

    /// The original mask of the creator, if this mask was inherited by a thread that never got one
    /// of ours. With several possible creators it is the CPUs that all of them had.
    fn inherited(&self, task: &Task, now: &CpuSet, cpuset: Option<&CpuSet>) -> Option<Original> {
        let had = |(_, held): &(&Task, &Held)| held.had(now, cpuset, task.started);
        let all: Vec<(&Task, &Held)> = self.held.iter().filter(had).collect();
        let own = all.iter().filter(|(of, _)| of.process == task.process);
        let near: Vec<_> = own.copied().collect();
        let creators = if near.is_empty() { all } else { near };
        creators.into_iter().map(|(_, held)| held.original.clone()).reduce(|a, b| Original {
            cpus: a.cpus.intersection(&b.cpus),
            whole: a.whole && b.whole,
        })
    }
}

/// The range of all threads of this number, with any start time.
fn numbered(process: Identity, tid: Tid) -> RangeInclusive<Task> {
    let at = |started| Task { process, tid, started };
    at(Nanos(0))..=at(Nanos(u64::MAX))
}

impl Held {
    /// Whether the mask is the one that we gave to the thread last, or may have given.
    fn has(&self, now: &CpuSet, cpuset: Option<&CpuSet>) -> bool {
        let certain = self.given.iter().rposition(|given| !given.uncertain);
        let later = &self.given[certain.map_or(0, |place| place + 1)..];
        let last_certain = match certain {
            Some(place) => self.given[place].is(now, cpuset),
            None => self.original.cpus == *now,
        };
        let may = |given: &Given| given.is(now, cpuset) || given.is_via(now);
        last_certain || later.iter().any(may)
    }

    /// Whether the thread had this mask at a time, within a clock tick, which is the resolution of
    /// start times. With a mask that the cpuset has cut since, the whole mask would come back when
    /// the cpuset grows.
    fn had(&self, mask: &CpuSet, cpuset: Option<&CpuSet>, at: Nanos) -> bool {
        // A mask equal to the original one was not set by us.
        let is_ours = self.original.cpus != *mask;
        is_ours
            && self.given.iter().enumerate().any(|(place, given)| {
                let next = self.given[place + 1..].iter().find(|next| !next.uncertain);
                let end = next.map(|next| next.at).or(self.until).unwrap_or(Nanos(u64::MAX));
                let born =
                    given.at.0 < at.0.saturating_add(tick()) && at.0 < end.0.saturating_add(tick());
                // The thread has the single-CPU mask for the moment between two calls.
                let moment = given.uncertain || at.0 < given.at.0.saturating_add(tick());
                born && (given.is(mask, cpuset) || moment && given.is_via(mask))
            })
    }
}

impl Given {
    fn is_via(&self, mask: &CpuSet) -> bool {
        self.via.is_some_and(|cpu| mask.len() == 1 && mask.contains(cpu))
    }

    fn is(&self, now: &CpuSet, cpuset: Option<&CpuSet>) -> bool {
        self.cpus == *now || cpuset.is_some_and(|cpuset| within(&self.cpus, cpuset) == *now)
    }
}

/// What the kernel leaves of a mask in a cpuset. Where that would be nothing, it gives all CPUs of
/// the cpuset.
fn within(mask: &CpuSet, cpuset: &CpuSet) -> CpuSet {
    match mask.intersection(cpuset) {
        left if left.is_empty() => cpuset.clone(),
        left => left,
    }
}

impl Change {
    /// Whether the change gives its thread this mask, even for a moment.
    #[must_use]
    pub fn gives(&self, mask: &CpuSet) -> bool {
        self.cpus == *mask || self.via.is_some_and(|cpu| mask.len() == 1 && mask.contains(cpu))
    }

    /// The ledger's entry, which is written before the change is made.
    #[must_use]
    pub fn entry(&self) -> Entry {
        Entry::Mask(MaskEntry {
            plan: self.plan,
            pid: self.task.process.pid.0,
            started: self.task.process.started.0,
            session: self.session,
            tid: self.task.tid.0,
            born: self.task.started.0,
            at: self.at.0,
            before: list(&self.original.cpus),
            whole: self.original.whole,
            via: self.via.and_then(|cpu| u32::try_from(cpu).ok()),
            given: list(&self.cpus),
        })
    }

    fn of_entry(entry: &MaskEntry) -> Option<Self> {
        let process = Identity { pid: Pid(entry.pid), started: Nanos(entry.started) };
        Some(Self {
            plan: entry.plan,
            task: Task { process, tid: Tid(entry.tid), started: Nanos(entry.born) },
            session: entry.session,
            at: Nanos(entry.at),
            original: Original { cpus: set(&entry.before)?, whole: entry.whole },
            via: entry.via.map(|cpu| cpu as usize),
            cpus: set(&entry.given)?,
        })
    }
}

fn list(cpus: &CpuSet) -> String {
    cpus.to_string()
}

fn set(list: &str) -> Option<CpuSet> {
    let cpus = cpulist::parse(list.as_bytes()).ok()?;
    Some(cpus.iter().map(|&cpu| cpu as usize).collect())
}

/// Length of a clock tick, ns.
fn tick() -> u64 {
    1_000_000_000 / ticks_per_second()
}

#[cfg(test)]
mod tests;
