//! Finds the managed tree of a process, and the processes outside of all managed trees.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::{Nanos, Pid};

/// The members of one tree, or of several that come and go.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// The only root, reported even after its end; `None` if roots come and go.
    first: Option<Pid>,
    /// Roots with start times; 0 if only the number is known.
    roots: BTreeMap<Pid, Nanos>,
    /// Processes that are not followed, with their descendants.
    left: BTreeSet<Pid>,
    /// The root of each process at the last look.
    origins: BTreeMap<Pid, Pid>,
    /// Processes that may belong to the tree of their parent, though no new record tells of it.
    /// They are former roots, those no longer left out, and those that were too young.
    loose: BTreeSet<Pid>,
}

impl Family {
    /// The tree that begins with `first`.
    pub(super) fn of(first: Pid) -> Self {
        Self { first: Some(first), roots: [(first, Nanos(0))].into(), ..Self::default() }
    }

    /// The only root; `None` if roots come and go.
    pub(super) fn first(&self) -> Option<Pid> {
        self.first
    }

    /// Sets the roots, and the processes to leave out.
    pub(super) fn follow(&mut self, roots: BTreeMap<Pid, Nanos>, left: BTreeSet<Pid>) {
        let former = std::mem::replace(&mut self.roots, roots).into_keys();
        let Self { roots, left: now_left, origins, loose, .. } = self;
        loose.extend(former.chain(std::mem::replace(now_left, left)));
        loose.retain(|pid| !roots.contains_key(pid) && !now_left.contains(pid));
        origins.retain(|pid, root| roots.contains_key(root) && !now_left.contains(pid));
    }

    /// Processes whose parents are to be asked for.
    pub(super) fn loose(&self) -> &BTreeSet<Pid> {
        &self.loose
    }

    /// The parent of this process is to be asked for: it is not followed, or its number belongs to
    /// another process now.
    pub(super) fn loosen(&mut self, pid: Pid) {
        self.origins.remove(&pid);
        self.loose.insert(pid);
    }

    /// Ends a look. It did not follow the processes in `young` yet.
    pub(super) fn set_loose(&mut self, young: BTreeSet<Pid>) {
        self.loose = young;
    }

    /// The root of each process at the last look.
    pub(super) fn origins(&self) -> &BTreeMap<Pid, Pid> {
        &self.origins
    }

    /// The processes of the last look, and the roots.
    pub(super) fn followed(&self) -> impl Iterator<Item = Pid> {
        self.origins.keys().chain(self.roots.keys()).copied()
    }

    /// The root of a process of the last look. A root is its own.
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

    /// Whether the start time of a root must be checked first.
    pub(super) fn names_start(&self, pid: Pid) -> bool {
        self.roots.get(&pid).is_some_and(|root| *root != Nanos(0))
    }

    /// The members, each process with its root: the roots, the processes in `known` that still have
    /// one, and new processes. `born` has pairs `(parent, child)`. A child of a member becomes one.
    /// Records of different CPUs have no order, so a child may come before its parent.
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

    /// Sets the results of a look.
    pub(super) fn settle(&mut self, origins: BTreeMap<Pid, Pid>) {
        self.origins = origins;
    }
}
