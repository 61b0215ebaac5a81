//! Finds the managed tree of a process, and the processes outside of all managed trees.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::{Nanos, Pid};

/// One tree, or several that come and go.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// The only root, reported even when it has ended; `None` where roots come and go.
    first: Option<Pid>,
    /// Roots, and when each started; 0 where its number is all that is known.
    roots: BTreeMap<Pid, Nanos>,
    /// Never followed, nor what they start.
    left: BTreeSet<Pid>,
    /// The root of each process at the last look.
    origins: BTreeMap<Pid, Pid>,
}

impl Family {
    /// The tree that begins with `first`.
    pub(super) fn of(first: Pid) -> Self {
        Self { first: Some(first), roots: [(first, Nanos(0))].into(), ..Self::default() }
    }

    /// The only root, where there is only one for good.
    pub(super) fn first(&self) -> Option<Pid> {
        self.first
    }

    /// These are the roots from now on, and these are left alone.
    pub(super) fn follow(&mut self, roots: BTreeMap<Pid, Nanos>, left: BTreeSet<Pid>) {
        (self.roots, self.left) = (roots, left);
        let Self { roots, left, origins, .. } = self;
        origins.retain(|pid, root| roots.contains_key(root) && !left.contains(pid));
    }

    /// The root of each process at the last look.
    pub(super) fn origins(&self) -> &BTreeMap<Pid, Pid> {
        &self.origins
    }

    /// The root of a process of the last look, itself where it is one.
    pub(super) fn root_of(&self, pid: Pid) -> Option<Pid> {
        let own = self.roots.contains_key(&pid).then_some(pid);
        own.or_else(|| self.origins.get(&pid).copied())
    }

    pub(super) fn is_root(&self, pid: Pid) -> bool {
        self.roots.contains_key(&pid)
    }

    pub(super) fn is_left(&self, pid: Pid) -> bool {
        self.left.contains(&pid)
    }

    /// Whether a root's number belongs to a process that started at another time.
    pub(super) fn is_another(&self, pid: Pid, started: Nanos) -> bool {
        self.roots.get(&pid).is_some_and(|root| *root != Nanos(0) && *root != started)
    }

    /// Whether a root has to be looked up before anything of it is believed.
    pub(super) fn names_start(&self, pid: Pid) -> bool {
        self.roots.get(&pid).is_some_and(|root| *root != Nanos(0))
    }

    /// The family, each process with its root: each root, the members of `known` that still have
    /// one, and the newborn. `born` has pairs (parent, child); a child whose parent is of the
    /// family joins it. The records of different CPUs come in no order, so a child may be named
    /// before its parent.
    pub(super) fn begin(
        &self,
        known: impl Iterator<Item = Pid>,
        born: &[(Pid, Pid)],
    ) -> BTreeMap<Pid, Pid> {
        let of = |pid: Pid| Some((pid, self.root_of(pid)?));
        let mut family: BTreeMap<Pid, Pid> = known.filter_map(of).collect();
        family.extend(self.roots.keys().map(|root| (*root, *root)));
        loop {
            let before = family.len();
            for (parent, child) in born {
                if let Some(root) = family.get(parent).copied() {
                    family.entry(*child).or_insert(root);
                }
            }
            if family.len() == before {
                return family;
            }
        }
    }

    /// What a look has found.
    pub(super) fn settle(&mut self, origins: BTreeMap<Pid, Pid>) {
        self.origins = origins;
    }
}
