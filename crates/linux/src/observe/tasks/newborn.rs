//! Handles programs whose tasks mostly begin and end between two looks.
//!
//! Reading the memory map of a child and opening and closing its counters costs the manager
//! milliseconds. A child that has ended by the next look cannot be helped. So if most new tasks of
//! one look have ended by the next, new tasks are followed only from their second look on. Each
//! tree is judged by its own tasks.
//! docs/results/watch-children.md has the cost of observing such a program.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::{Pid, Tid};

/// Least number of new threads from which their lifetime is judged (our choice).
const MIN_NEWCOMERS: usize = 4;

/// The new threads of each tree, by root.
#[derive(Debug, Default)]
pub(super) struct Newborn(BTreeMap<Pid, OfTree>);

/// New threads of a tree, and whether most new threads end soon.
#[derive(Debug, Default)]
struct OfTree {
    /// New threads of the last look, followed or not.
    last: BTreeSet<(Pid, Tid)>,
    /// Whether most of the earlier new threads have ended.
    are_fleeting: bool,
}

impl Newborn {
    /// Holds no thread back until most new ones end soon again.
    pub(super) fn admit_all(&mut self) {
        *self = Self::default();
    }

    /// Removes the threads from `found` that are too young to follow, and returns the processes
    /// that go with them. `still`: processes that have not run since the last look, so that none of
    /// their threads ended. `is_known`: whether a thread is already followed. `root_of`: the root
    /// of a process in `found`.
    pub(super) fn hold_back(
        &mut self,
        found: &mut BTreeMap<Pid, Vec<Tid>>,
        still: &BTreeSet<Pid>,
        is_known: impl Fn(Pid, Tid) -> bool,
        root_of: impl Fn(Pid) -> Pid,
    ) -> BTreeSet<Pid> {
        let is_judged = self.0.values().any(|tree| tree.last.len() >= MIN_NEWCOMERS);
        let there: BTreeSet<(Pid, Tid)> = tasks(found).filter(|_| is_judged).collect();
        let lives = |task: &&(Pid, Tid)| still.contains(&task.0) || there.contains(task);
        let mut before = BTreeSet::new();
        for tree in self.0.values_mut() {
            if tree.last.len() >= MIN_NEWCOMERS {
                let stayed = tree.last.iter().filter(lives).count();
                tree.are_fleeting = 2 * stayed < tree.last.len();
            }
            before.append(&mut tree.last);
        }
        let mut young = BTreeSet::new();
        for (pid, tid) in tasks(found) {
            if is_known(pid, tid) || before.contains(&(pid, tid)) {
                continue;
            }
            let tree = self.0.entry(root_of(pid)).or_default();
            tree.last.insert((pid, tid));
            if tree.are_fleeting {
                young.insert((pid, tid));
            }
        }
        for (pid, tids) in found.iter_mut().filter(|_| !young.is_empty()) {
            tids.retain(|tid| !young.contains(&(*pid, *tid)));
        }
        // Of other trees nothing is to be remembered.
        self.0.retain(|_, tree| tree.are_fleeting || !tree.last.is_empty());
        let empty = |(pid, tids): (&Pid, &Vec<Tid>)| tids.is_empty().then_some(*pid);
        let held: BTreeSet<Pid> = found.iter().filter_map(empty).collect();
        found.retain(|pid, _| !held.contains(pid));
        held
    }

    /// Forgets the trees that are not followed.
    pub(super) fn keep(&mut self, is_root: impl Fn(Pid) -> bool) {
        self.0.retain(|root, _| is_root(*root));
    }
}

fn tasks(found: &BTreeMap<Pid, Vec<Tid>>) -> impl Iterator<Item = (Pid, Tid)> {
    found.iter().flat_map(|(pid, tids)| tids.iter().map(|tid| (*pid, *tid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at processes with one thread each of the same number. Returns those followed after
    /// each look.
    fn followed(looks: &[&[u32]]) -> Vec<Vec<u32>> {
        followed_in(looks, |_| Pid(1))
    }

    fn followed_in(looks: &[&[u32]], root_of: fn(Pid) -> Pid) -> Vec<Vec<u32>> {
        let mut newborn = Newborn::default();
        let mut known = BTreeSet::new();
        let mut look = |alive: &&[u32]| {
            let mut found = alive.iter().map(|&one| (Pid(one), vec![Tid(one)])).collect();
            let is_known = |pid, _| known.contains(&pid);
            newborn.hold_back(&mut found, &BTreeSet::new(), is_known, root_of);
            known = found.keys().copied().collect();
            known.iter().map(|pid| pid.0).collect()
        };
        looks.iter().map(&mut look).collect()
    }

    #[test]
    fn fleeting_children_of_one_tree_hold_back_those_of_no_other() {
        let looks: [&[u32]; 3] =
            [&[1, 11, 12, 13, 14, 100], &[1, 21, 22, 23, 24, 100, 101], &[1, 31, 100, 101, 102]];
        let root_of = |pid: Pid| Pid(if pid.0 >= 100 { 100 } else { 1 });
        let found = followed_in(&looks, root_of);
        assert_eq!(found[1..], [vec![1, 100, 101], vec![1, 100, 101, 102]]);
    }

    #[test]
    fn where_newcomers_do_not_stay_they_are_followed_from_the_second_look_on() {
        let looks: [&[u32]; 4] =
            [&[1, 11, 12, 13, 14], &[1, 21, 22, 23, 24], &[1, 21, 31, 32, 33], &[1, 21, 31, 41]];
        assert_eq!(
            followed(&looks),
            [vec![1, 11, 12, 13, 14], vec![1], vec![1, 21], vec![1, 21, 31]]
        );
    }

    #[test]
    fn where_they_stay_they_are_followed_at_once() {
        let looks: [&[u32]; 3] = [&[1], &[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5, 6]];
        assert_eq!(followed(&looks)[1..], [vec![1, 2, 3, 4, 5], vec![1, 2, 3, 4, 5, 6]]);
        let few: [&[u32]; 3] = [&[1, 2, 3], &[1, 4], &[1, 5]];
        assert_eq!(followed(&few)[1..], [vec![1, 4], vec![1, 5]], "one or two are chance");
        let again: [&[u32]; 5] = [
            &[1, 11, 12, 13, 14],
            &[1, 21, 22, 23, 24],
            &[1, 21, 22, 23, 24],
            &[1, 21, 22, 23, 24, 31],
            &[1, 21],
        ];
        let then = [vec![1], vec![1, 21, 22, 23, 24], vec![1, 21, 22, 23, 24, 31], vec![1, 21]];
        assert_eq!(followed(&again)[1..], then);
    }
}
