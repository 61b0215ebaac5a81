//! Start times, which tell a process from a later one with the same number.

use crate::model::Model;
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;

/// The processes of the last window and their start times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Starts(BTreeMap<Pid, Nanos>);

impl Starts {
    /// Whether the process that had a number in the last window is still there. One that the last
    /// window did not show is taken for the present one.
    pub(crate) fn is_there(&self, pid: Pid, model: &Model) -> bool {
        let started = self.0.get(&pid);
        model.app(pid).is_some_and(|app| started.is_none_or(|started| *started == app.started))
    }

    /// Takes over the processes of a window.
    pub(crate) fn take_over(&mut self, model: &Model) {
        self.0 = model.apps.iter().map(|app| (app.pid, app.started)).collect();
    }
}
