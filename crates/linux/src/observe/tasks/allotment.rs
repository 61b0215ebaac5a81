//! Gives each tree its share of the threads, open files and counters of one look.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::{Pid, Tid};

use super::members::Members;
use super::shares::shares;
use super::{MAX_DESCRIPTORS, MAX_KEPT_THREADS, Tasks};

/// Places of a tree that its threads have not taken yet.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Places {
    /// Threads of processes that run whose files may be kept open.
    files: usize,
    /// The same of processes that do not run.
    still_files: usize,
    /// Threads that may be counted.
    counters: usize,
}

/// A thread of a tree. Known threads come before new ones, so that their counts have no gap.
type Candidate = (bool, Pid, Tid);

impl Tasks {
    /// Leaves out the threads beyond each tree's share, and closes files and counters beyond it.
    /// Returns the processes that are looked at in part.
    pub(super) fn allot(&mut self, members: &mut Members) -> BTreeSet<Pid> {
        self.forget_ended(members);
        let wanted = self.wanted(members);
        let cut = match wanted.values().sum::<usize>() > self.most_threads {
            true => self.cut(members, &share_out(&wanted, self.most_threads)),
            false => BTreeSet::new(),
        };
        let wanted = if cut.is_empty() { wanted } else { self.wanted(members) };
        let awake = self.threads_by_root(members.awake.iter().map(|(pid, of)| (*pid, of.len())));
        let lives = |pid| match (members.awake.contains_key(&pid), members.still.contains(&pid)) {
            (true, _) => Some(State::Awake),
            (false, true) => Some(State::Still),
            (false, false) => None,
        };
        self.place(&wanted, &awake, lives);
        cut
    }

    /// As [`Tasks::allot`] for the known threads.
    pub(super) fn allot_known(&mut self) {
        let known = self.processes.iter().map(|(pid, process)| (*pid, process.threads.len()));
        let wanted = self.threads_by_root(known);
        self.place(&wanted, &wanted, |_| Some(State::Awake));
    }

    /// The sum of threads of each tree.
    fn threads_by_root(
        &self,
        processes: impl Iterator<Item = (Pid, usize)>,
    ) -> BTreeMap<Pid, usize> {
        let mut sums = BTreeMap::new();
        for (pid, threads) in processes {
            *sums.entry(self.root_of(pid)).or_default() += threads;
        }
        sums
    }

    /// Ended threads leave their places to living ones. Sorts the threads of each process.
    fn forget_ended(&mut self, members: &mut Members) {
        for (pid, alive) in &mut members.awake {
            alive.sort_unstable();
            if let Some(process) = self.processes.get_mut(pid) {
                process.threads.retain(|tid, _| alive.binary_search(tid).is_ok());
            }
        }
    }

    /// Threads of each tree. Those of a process that did not run are known.
    fn wanted(&self, members: &Members) -> BTreeMap<Pid, usize> {
        let known = |pid| self.processes.get(pid).map_or(0, |process| process.threads.len());
        let awake = members.awake.iter().map(|(pid, threads)| (*pid, threads.len()));
        self.threads_by_root(awake.chain(members.still.iter().map(|pid| (*pid, known(pid)))))
    }

    /// Leaves out the threads beyond the shares. A still process that loses a thread is looked at.
    fn cut(&self, members: &mut Members, shares: &BTreeMap<Pid, usize>) -> BTreeSet<Pid> {
        let mut trees: BTreeMap<Pid, Vec<Candidate>> = BTreeMap::new();
        for (pid, threads) in &members.awake {
            let known = self.processes.get(pid);
            let is_new = |tid| known.is_none_or(|known| !known.threads.contains_key(tid));
            let tree = trees.entry(self.root_of(*pid)).or_default();
            tree.extend(threads.iter().map(|tid| (is_new(tid), *pid, *tid)));
        }
        for pid in &members.still {
            let known = self.processes.get(pid).into_iter().flat_map(|known| known.threads.keys());
            let tree = trees.entry(self.root_of(*pid)).or_default();
            tree.extend(known.map(|tid| (false, *pid, *tid)));
        }
        let mut cut = BTreeSet::new();
        for (root, mut tree) in trees {
            let share = shares.get(&root).copied().unwrap_or(0);
            tree.sort_unstable();
            let beyond = tree.split_off(share.min(tree.len()));
            let losing: BTreeSet<Pid> = beyond.iter().map(|(_, pid, _)| *pid).collect();
            for pid in &losing {
                members.still.remove(pid);
                members.awake.insert(*pid, Vec::new());
            }
            for (_, pid, tid) in tree.into_iter().filter(|(_, pid, _)| losing.contains(pid)) {
                members.awake.entry(pid).or_default().push(tid);
            }
            cut.extend(losing);
        }
        cut
    }

    /// Divides files and counters among trees that want so many threads, `awake` of them in
    /// processes that run. Only the files of these are read at each look, so they come first. Those
    /// of known threads in the processes that `state` knows stay within the shares.
    pub(super) fn place(
        &mut self,
        wanted: &BTreeMap<Pid, usize>,
        awake: &BTreeMap<Pid, usize>,
        state: impl Fn(Pid) -> Option<State>,
    ) {
        let events = self.plan.as_ref().map_or(1, |plan| plan.events().max(1));
        let files = share_out(awake, MAX_KEPT_THREADS);
        let left = MAX_KEPT_THREADS - files.values().sum::<usize>();
        let rest = |(root, all): (&Pid, &usize)| (*root, all - awake.get(root).unwrap_or(&0));
        let still: BTreeMap<Pid, usize> = wanted.iter().map(rest).collect();
        let still_files = share_out(&still, left);
        let most_counters = MAX_DESCRIPTORS / events;
        let counters = share_out(wanted, most_counters);
        self.may_count_all = wanted.values().sum::<usize>() <= most_counters;
        let place = |root: &Pid| {
            let [files, still_files, counters] =
                [&files, &still_files, &counters].map(|of| of.get(root).copied().unwrap_or(0));
            (*root, Places { files, still_files, counters })
        };
        let mut places: BTreeMap<Pid, Places> = wanted.keys().map(place).collect();
        let Self { processes, family, .. } = self;
        for (pid, process) in processes {
            let Some(state) = state(*pid) else { continue };
            let root = family.root_of(*pid).unwrap_or(*pid);
            let Some(left) = places.get_mut(&root) else { continue };
            process.stat.keep(left.files_of(state) > &mut 0);
            for thread in process.threads.values_mut() {
                let keep = take(left.files_of(state));
                thread.stat.keep(keep);
                thread.schedstat.keep(keep);
                if thread.counters.is_some() && !left.take_counters() {
                    thread.counters = None;
                    thread.gave_counters = true;
                }
            }
        }
        self.places = places;
    }

    /// Whether the files of one more thread of a process may be kept open.
    pub(super) fn may_keep(&mut self, pid: Pid) -> bool {
        self.places_of(pid).is_some_and(Places::take_files)
    }

    /// Whether one more thread of a process may be counted.
    pub(super) fn may_count(&mut self, pid: Pid) -> bool {
        self.places_of(pid).is_some_and(Places::take_counters)
    }

    /// Counts a known thread again that gave its counters to another tree. It waits until there are
    /// counters for every thread: else they would go back and forth.
    pub(super) fn count_again(&mut self, pid: Pid, tid: Tid) {
        let thread = self.processes.get(&pid).and_then(|known| known.threads.get(&tid));
        let gave_counters = thread.is_some_and(|thread| thread.gave_counters);
        if !gave_counters || !self.may_count_all || self.paused.is_some() {
            return;
        }
        let counters = self.open_counters(pid, tid);
        let thread = self.processes.get_mut(&pid).and_then(|known| known.threads.get_mut(&tid));
        if let Some(thread) = thread {
            (thread.counters, thread.gave_counters) = (counters, false);
        }
    }

    fn places_of(&mut self, pid: Pid) -> Option<&mut Places> {
        let root = self.root_of(pid);
        self.places.get_mut(&root)
    }

    /// The root of a member.
    fn root_of(&self, pid: Pid) -> Pid {
        self.family.root_of(pid).unwrap_or(pid)
    }
}

/// What a process does at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It may have run since its files were read.
    Awake,
    /// It has hardly run.
    Still,
}

impl Places {
    fn files_of(&mut self, state: State) -> &mut usize {
        match state {
            State::Awake => &mut self.files,
            State::Still => &mut self.still_files,
        }
    }

    fn take_files(&mut self) -> bool {
        take(&mut self.files)
    }

    fn take_counters(&mut self) -> bool {
        take(&mut self.counters)
    }
}

fn take(left: &mut usize) -> bool {
    let is_any = *left > 0;
    *left -= usize::from(is_any);
    is_any
}

fn share_out(wanted: &BTreeMap<Pid, usize>, budget: usize) -> BTreeMap<Pid, usize> {
    let wants: Vec<usize> = wanted.values().copied().collect();
    wanted.keys().copied().zip(shares(&wants, budget)).collect()
}
