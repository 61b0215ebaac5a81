//! The order in which members of several trees get the places for processes.
//!
//! Each tree in turn gets one place, until none is left. So a tree of thousands of processes takes
//! no place that a smaller tree could use. A round gives the shares of max-min fairness, without
//! reading the processes for which there is no place.

use std::collections::{BTreeMap, VecDeque};

use rondpoint_core::Pid;

/// Members that wait for a place, by root. The tree in front has its turn.
pub(super) struct Turns(VecDeque<(Pid, VecDeque<Pid>)>);

impl Turns {
    /// The members of `family`, each with its root. In each tree the root comes first, then the
    /// known processes, then the new ones.
    pub(super) fn new(family: &BTreeMap<Pid, Pid>, is_known: impl Fn(Pid) -> bool) -> Self {
        let mut trees: BTreeMap<Pid, Vec<Pid>> = BTreeMap::new();
        for (pid, root) in family {
            trees.entry(*root).or_default().push(*pid);
        }
        for (root, members) in &mut trees {
            members.sort_by_key(|pid| (pid != root, !is_known(*pid)));
        }
        Self(trees.into_iter().map(|(root, members)| (root, members.into())).collect())
    }

    /// The next process of the tree that has its turn, with the root.
    pub(super) fn next(&mut self) -> Option<(Pid, Pid)> {
        loop {
            let (root, members) = self.0.front_mut()?;
            match members.pop_front() {
                Some(pid) => return Some((pid, *root)),
                None => drop(self.0.pop_front()),
            }
        }
    }

    /// The process got a place, and `children` wait after the others of its tree. The next tree has
    /// its turn.
    pub(super) fn admit(&mut self, children: impl Iterator<Item = Pid>) {
        if let Some((_, members)) = self.0.front_mut() {
            members.extend(children);
            self.0.rotate_left(1);
        }
    }

    /// The tree that has its turn gets no further place.
    pub(super) fn refuse(&mut self) {
        self.0.pop_front();
    }
}
