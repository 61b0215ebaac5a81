//! Gives threads their first masks back: of a whole tree, or of a process that is left alone.

use std::collections::BTreeSet;

use rondpoint_core::Nanos;

use super::answers::Answers;
use super::masks::Task;
use super::threads::{self, Outside};
use super::{Actor, Identity};
use crate::ledger_file::Entry;
use crate::syscall::time::since_boot_ns;

impl Actor {
    /// Whether the mask of any thread was ever changed.
    #[must_use]
    pub fn has_changed_masks(&self) -> bool {
        !self.masks.is_empty()
    }

    /// Processes with threads that have masks of ours.
    #[must_use]
    pub fn changed_processes(&self) -> BTreeSet<Identity> {
        self.masks.tasks().map(|task| task.process).collect()
    }

    /// Restores all masks of the tree, and forgets them unless the kernel refused one. Returns the
    /// entries that tell the ledger of it: masks that these threads get later are not ours.
    pub fn begin_anew(&mut self) -> (threads::Restored, Vec<Entry>) {
        let restored = threads::restore_all(&self.root, &self.masks, Outside::TryAgain);
        if restored.refused > 0 {
            return (restored, Vec::new());
        }
        let now = Nanos(since_boot_ns());
        let entries = self.masks.tasks().map(|task| task.returned_entry(now)).collect();
        *self = Self::new(self.root.clone(), self.topology.clone(), self.home.first);
        (restored, entries)
    }

    /// Restores the masks of one process, which is not managed from now on. Returns the entries for
    /// the ledger as [`Self::begin_anew`] does. If the kernel refuses a mask, all are tried again
    /// when the tree ends. Nothing happens for a process that has ended: its number may belong to
    /// another one.
    pub fn release(&mut self, process: Identity) -> (threads::Restored, Vec<Entry>) {
        if matches!(process.lives(&self.root), Ok(false)) {
            return Default::default();
        }
        let restored = threads::restore_process(&self.root, &self.masks, process);
        if restored.refused > 0 {
            return (restored, Vec::new());
        }
        let now = Nanos(since_boot_ns());
        let own: Vec<Task> =
            self.masks.tasks().filter(|task| task.process == process).copied().collect();
        own.iter().for_each(|task| self.masks.let_go(task, now));
        self.answers = Answers::default();
        (restored, own.iter().map(|task| task.returned_entry(now)).collect())
    }

    /// Restores all masks of the tree for good.
    #[must_use]
    pub fn restore_masks(&self) -> threads::Restored {
        threads::restore(&self.root, &self.masks)
    }
}
