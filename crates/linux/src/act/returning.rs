//! Gives threads their first masks back: of a whole tree, or of a process that is left alone.

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
    /// when the tree ends.
    pub fn release(&mut self, process: Identity) -> (threads::Restored, Vec<Entry>) {
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
