//! Instructions of the manager itself, and the part of them that carried out actions.

use rondpoint_linux::perf::event::OpenEvent;
use rondpoint_linux::probe;

/// Counts from its making on, where instructions can be counted at all.
#[derive(Default)]
pub(crate) struct OwnInstructions {
    event: Option<OpenEvent>,
    acting: u64,
}

impl OwnInstructions {
    /// Those of the calling thread, the kernel's on its behalf included.
    pub(crate) fn counted() -> Self {
        Self { event: probe::own_instructions(), acting: 0 }
    }

    /// All of them so far; `None` where they cannot be counted.
    pub(crate) fn all(&self) -> Option<u64> {
        Some(self.event.as_ref()?.read(1).ok()?[0].value)
    }

    /// Those of carrying out plans so far; `None` where they cannot be counted.
    pub(crate) fn acting(&self) -> Option<u64> {
        self.event.as_ref().map(|_| self.acting)
    }

    /// Ascribes to acting what was used since `began`.
    pub(super) fn acted_since(&mut self, began: Option<u64>) {
        if let (Some(began), Some(now)) = (began, self.all()) {
            self.acting += now.saturating_sub(began);
        }
    }
}
