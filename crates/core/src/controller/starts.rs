//! Start times, which tell a process from a later one with the same number.

use crate::model::Model;
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;

/// The processes of the last window and their start times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Starts(BTreeMap<Pid, Nanos>);

impl Starts {
    /// Whether the process that had a number in the last window is still there. One that the last
    /// window did not show is taken for the present one.
    pub(super) fn is_there(&self, pid: Pid, model: &Model) -> bool {
        let started = self.0.get(&pid);
        model.app(pid).is_some_and(|app| started.is_none_or(|started| *started == app.started))
    }

    /// Takes over the processes of a window.
    pub(super) fn take_over(&mut self, model: &Model) {
        self.0 = model.apps.iter().map(|app| (app.pid, app.started)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::App;

    #[test]
    fn a_later_process_of_the_same_number_is_another_one() {
        let window = |started: u64| {
            let mut model = Model::empty(1);
            model.apps.push(App { started: Nanos(started), ..App::new(Pid(1), 0..0) });
            model
        };
        let mut starts = Starts::default();
        assert!(starts.is_there(Pid(1), &window(5)), "nothing is known yet");
        assert!(!starts.is_there(Pid(1), &Model::empty(1)));
        starts.take_over(&window(5));
        assert!(starts.is_there(Pid(1), &window(5)) && !starts.is_there(Pid(1), &window(7)));
        starts.take_over(&window(7));
        assert!(starts.is_there(Pid(1), &window(7)));
    }
}
