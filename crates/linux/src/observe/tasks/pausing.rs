//! Stops counters of threads, for a pause or for good.

use std::io;

use rondpoint_core::{Pid, Tid};

use super::super::pause::Paused;
use super::super::threads::ThreadPlan;
use super::Tasks;

impl Tasks {
    /// Stops the counting of single threads until [`Tasks::resume`]. Many counters are stopped, few
    /// are closed. A thread that starts meanwhile is counted.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn pause(&mut self) -> io::Result<()> {
        let events = self.plan.as_ref().map_or(0, ThreadPlan::events);
        let way = Paused::of(self.counted_threads * events);
        self.paused = Some(way);
        self.look_again_at_counted();
        if way == Paused::Stopped {
            return self.stop(true);
        }
        self.threads().for_each(|thread| thread.counters = None);
        self.counted_threads = 0;
        Ok(())
    }

    /// Stops counting, and drops all processes with their open files and events.
    pub fn let_go(&mut self) {
        self.plan = None;
        self.counted_threads = 0;
        self.processes.clear();
    }

    /// Counts the known threads again, closed events from zero.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn resume(&mut self) -> io::Result<()> {
        match self.paused.take() {
            None => return Ok(()),
            Some(Paused::Stopped) => self.stop(false)?,
            Some(Paused::Closed) => self.open_again(),
        }
        self.look_again_at_counted();
        Ok(())
    }

    fn open_again(&mut self) {
        let known: Vec<(Pid, Tid)> = self
            .processes
            .iter()
            .flat_map(|(pid, process)| process.threads.keys().map(|tid| (*pid, *tid)))
            .collect();
        for (pid, tid) in known {
            let counters = self.open_counters(tid);
            let process = self.processes.get_mut(&pid);
            if let Some(thread) = process.and_then(|process| process.threads.get_mut(&tid)) {
                thread.counters = counters;
            }
        }
    }
}
