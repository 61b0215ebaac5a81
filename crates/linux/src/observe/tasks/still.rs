//! Finds processes that have not run since the last look, and processes whose files stay open.

use std::collections::BTreeSet;

use rondpoint_core::Pid;

use super::{MAX_KEPT_THREADS, Tasks};
use crate::LinuxError;

impl Tasks {
    /// Processes without a thread that has run since the last look. They have no new children,
    /// threads, faults or counts, so only their `schedstat` is read. Changes of their scheduling by
    /// other processes are observed when they run again.
    pub(super) fn still(&mut self) -> Result<BTreeSet<Pid>, LinuxError> {
        let mut still = BTreeSet::new();
        for (pid, process) in &mut self.processes {
            let mut ran = process.threads.is_empty();
            for thread in process.threads.values_mut() {
                ran |= thread.has_run()?;
            }
            if !ran {
                still.insert(*pid);
            }
        }
        Ok(still)
    }

    /// Whether the files of one more thread may be kept open.
    pub(super) fn may_keep(&self) -> bool {
        let threads: usize = self.processes.values().map(|process| process.threads.len()).sum();
        threads < MAX_KEPT_THREADS
    }
}
