//! The managed process trees, each with its actuator and its ledger.
//!
//! `run` and `attach` have one tree; the daemon's trees begin and end. Masks are kept by tree: a
//! program may by chance have a mask that another tree was given, without inheriting it.

mod folders;

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use anyhow::Result;
use rondpoint_core::controller::Step;
use rondpoint_core::observation::{Observation, ProcessObservation};
use rondpoint_core::plan::{Action, Outcome, StepResult};
use rondpoint_core::{Nanos, Pid, Plan, Topology};
use rondpoint_linux::act::threads::Restored;
use rondpoint_linux::act::{Actor, Identity};
use rondpoint_linux::ledger_file::{Entry, LedgerFile};
use rondpoint_linux::{LinuxError, Root};

use self::folders::Folders;
use crate::ledgers;

/// All trees.
pub(crate) struct Trees {
    topology: Topology,
    /// By root.
    trees: BTreeMap<Pid, Tree>,
    /// The root of each followed process at the last look.
    origins: BTreeMap<Pid, Pid>,
    /// Threads that had inherited a mask of ours, and that chose one of their own after we had
    /// changed it.
    pub(crate) heirs: u64,
    pub(crate) left_alone: u64,
    folders: Folders,
}

struct Tree {
    actor: Actor,
    ledger: LedgerFile,
    /// The last look had no process of it.
    is_unseen: bool,
}

impl Trees {
    /// Without any.
    pub(crate) fn new(topology: Topology) -> Self {
        let (trees, origins, folders) = (BTreeMap::new(), BTreeMap::new(), Folders::default());
        Self { topology, trees, origins, heirs: 0, left_alone: 0, folders }
    }

    /// One more, which begins with `root`.
    pub(crate) fn add(&mut self, root: Pid, ledger: LedgerFile) {
        let actor = Actor::new(Root::live(), self.topology.clone(), root);
        self.trees.insert(root, Tree { actor, ledger, is_unseen: false });
    }

    /// Gives the processes of a new tree the masks that they would have without us. They descend
    /// from `ancestors`, the nearest first. The nearest one that is followed may have given
    /// them a mask that its tree did not note. The new tree would take that mask for theirs.
    pub(crate) fn disinherit(
        &mut self,
        processes: impl FnOnce() -> Vec<Identity>,
        mut ancestors: impl Iterator<Item = Pid>,
    ) -> Restored {
        let mut all = Restored::default();
        let nearest = ancestors.find_map(|pid| self.root_of(pid));
        let tree = nearest.and_then(|root| self.trees.get(&root));
        if !tree.is_some_and(|tree| tree.actor.has_changed_masks()) {
            return all;
        }
        let mut processes = processes();
        let is_of_another = |pid| self.root_of(pid).is_some_and(|root| Some(root) != nearest);
        processes.retain(|one| !is_of_another(one.pid));
        let Some(tree) = nearest.and_then(|root| self.trees.get_mut(&root)) else { return all };
        for process in processes {
            let (restored, entries) = tree.actor.release(process);
            all.add(&restored);
            // A ledger that cannot be written stops all later plans.
            let _ = tree.ledger.write(&entries);
        }
        self.heirs += all.heirs;
        all
    }

    /// The root of a process of the last look.
    pub(crate) fn root_of(&self, pid: Pid) -> Option<Pid> {
        let own = self.trees.contains_key(&pid).then_some(pid);
        own.or_else(|| self.origins.get(&pid).copied())
    }

    /// Takes in a look before any other part does. Fills in what threads are allowed, gives heirs
    /// of our masks those of their creators, and writes down which threads were born with one.
    /// Processes that are not followed any more get their masks back. `origins` has the root of
    /// each followed process, also of those that the observation leaves out. Processes in `still`
    /// have hardly run since their files were read.
    ///
    /// # Errors
    /// A ledger cannot be written; the look is taken in all the same.
    pub(crate) fn follow(
        &mut self,
        observation: &mut Observation,
        origins: &BTreeMap<Pid, Pid>,
        still: &BTreeSet<Pid>,
    ) -> Result<(), LinuxError> {
        let only = (self.trees.len() == 1).then(|| self.trees.keys().next().copied()).flatten();
        let mut parts: BTreeMap<Pid, Vec<ProcessObservation>> =
            self.trees.keys().map(|root| (*root, Vec::new())).collect();
        let mut others = Vec::new();
        self.origins.clone_from(origins);
        for process in std::mem::take(&mut observation.processes) {
            let root = self.root_of(process.pid).or(only);
            match root.and_then(|root| Some((root, parts.get_mut(&root)?))) {
                Some((root, part)) => {
                    self.origins.insert(process.pid, root);
                    part.push(process);
                }
                None => others.push(process),
            }
        }
        // Before a tree follows a process of another one, whose mask it would take for the first.
        let mut written = self.release_strays();
        for (root, processes) in parts {
            let Some(tree) = self.trees.get_mut(&root) else { continue };
            // Of thousands of idle trees, of which nothing was changed, nothing is to be followed.
            let was_unseen = std::mem::replace(&mut tree.is_unseen, processes.is_empty());
            if was_unseen && tree.is_unseen && !tree.actor.has_changed_masks() {
                continue;
            }
            let mut part = Observation { at: observation.at, processes, ..Observation::default() };
            let followed = tree.actor.follow(&mut part, still);
            self.heirs += followed.heirs;
            self.left_alone += followed.left_alone;
            written = written.and(tree.ledger.write(&followed.entries));
            others.append(&mut part.processes);
        }
        others.sort_by_key(|process| process.pid);
        observation.processes = others;
        written
    }

    /// Puts back the masks of processes that their trees do not follow any more. What the kernel
    /// refuses is tried again at the next look.
    fn release_strays(&mut self) -> Result<(), LinuxError> {
        let mut strays = Vec::new();
        for (root, tree) in &self.trees {
            let mut changed = tree.actor.changed_processes();
            changed.retain(|process| self.root_of(process.pid) != Some(*root));
            strays.extend(changed.into_iter().map(|process| (*root, process)));
        }
        let mut written = Ok(());
        for (root, process) in strays {
            let Some(tree) = self.trees.get_mut(&root) else { continue };
            let (_, entries) = tree.actor.release(process);
            written = written.and(tree.ledger.write(&entries));
        }
        written
    }

    /// Writes down how to put back what the step is about to change, and what may stay.
    ///
    /// # Errors
    /// A ledger cannot be written: nothing of the step may be done.
    pub(crate) fn write_down(&mut self, step: &Step) -> Result<(), LinuxError> {
        let mut entries: BTreeMap<Pid, Vec<Entry>> = BTreeMap::new();
        for judged in step.judged.iter().filter(|judged| !judged.verdict.is_undone()) {
            let Some(root) = self.root_of(judged.pid) else { continue };
            let entry = Entry::Settled { pid: judged.pid.0, plans: judged.plans.clone() };
            entries.entry(root).or_default().push(entry);
        }
        for inverse in &step.plan.inverses {
            let pid = inverse.action.as_ref().and_then(Action::pid);
            let Some(root) = pid.and_then(|pid| self.root_of(pid)) else { continue };
            let tree = self.trees.get(&root);
            let process = pid.and_then(|pid| tree?.actor.identity(pid));
            let Some(process) = process else { continue };
            let entry = Entry::of(inverse, process.started, &self.topology);
            entries.entry(root).or_default().extend(entry);
        }
        for (root, tree) in &mut self.trees {
            let mut all = entries.remove(root).unwrap_or_default();
            all.extend(tree.actor.prepare(&step.plan));
            tree.ledger.write(&all)?;
        }
        Ok(())
    }

    /// Does a step that is about a process. While memory moves, `is_called` is asked whether to end
    /// that.
    pub(crate) fn act(
        &mut self,
        plan: &Plan,
        step: usize,
        is_called: &mut dyn FnMut() -> bool,
    ) -> Outcome {
        let root = plan.steps[step].action.pid().and_then(|pid| self.root_of(pid));
        match root.and_then(|root| self.trees.get_mut(&root)) {
            Some(Tree { actor, ledger, .. }) => actor.step_until(plan, step, ledger, is_called),
            None => {
                let (spent, frozen) = (Nanos(0), Nanos(0));
                Outcome { plan: plan.number, step, result: StepResult::Gone, spent, frozen }
            }
        }
    }

    /// Whether the mask of any thread was ever changed.
    pub(crate) fn has_changed_masks(&self) -> bool {
        self.trees.values().any(|tree| tree.actor.has_changed_masks())
    }

    /// Every thread gets back the mask that it had.
    pub(crate) fn restore_masks(&self) -> Restored {
        let mut all = Restored::default();
        self.trees.values().for_each(|tree| all.add(&tree.actor.restore_masks()));
        all
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.trees.is_empty()
    }

    /// Every thread gets back the mask that it had, and nothing is remembered of it. What was
    /// refused is tried again when its tree ends.
    pub(crate) fn begin_anew(&mut self) -> Restored {
        let mut all = Restored::default();
        for tree in self.trees.values_mut() {
            let (restored, entries) = tree.actor.begin_anew();
            all.add(&restored);
            // A ledger that cannot be written stops all later plans.
            let _ = tree.ledger.write(&entries);
        }
        all
    }

    /// The masks of one process are put back, and it is left alone from now on.
    pub(crate) fn release(&mut self, process: Identity) -> Restored {
        let tree = self.root_of(process.pid).and_then(|root| self.trees.get_mut(&root));
        let Some(tree) = tree else { return Restored::default() };
        let (restored, entries) = tree.actor.release(process);
        // As above.
        let _ = tree.ledger.write(&entries);
        restored
    }

    /// Puts back the masks of a tree, which is none from now on. Its ledger goes too, unless the
    /// kernel refused something.
    ///
    /// # Errors
    /// As [`ledgers::close`].
    pub(crate) fn remove(&mut self, root: Pid) -> Result<Restored> {
        let Some(tree) = self.trees.remove(&root) else { return Ok(Restored::default()) };
        self.origins.retain(|_, of| *of != root);
        let restored = tree.actor.restore_masks();
        if restored.refused == 0 {
            ledgers::close(tree.ledger)?;
        }
        Ok(restored)
    }

    /// Trees whose ledger somebody has removed: nothing of them may be changed any more.
    pub(crate) fn without_ledger(&mut self) -> Vec<Pid> {
        let paths = self.trees.values().map(|tree| tree.ledger.path());
        if !self.folders.may_have_changed(paths, SystemTime::now()) {
            return Vec::new();
        }
        let lost = self.trees.iter().filter(|(_, tree)| tree.ledger.is_lost());
        lost.map(|(root, _)| *root).collect()
    }

    /// Takes all ledgers away: everything that had to be put back has been.
    ///
    /// # Errors
    /// As [`ledgers::close`], of the first that stays.
    pub(crate) fn close(self) -> Result<()> {
        let closed = self.trees.into_values().map(|tree| ledgers::close(tree.ledger));
        closed.fold(Ok(()), Result::and)
    }
}

#[cfg(test)]
mod tests;
