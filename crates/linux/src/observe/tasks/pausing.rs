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
        let counted = self.threads().filter(|thread| thread.counters.is_some()).count();
        let way = Paused::of(counted * events);
        self.paused = Some(way);
        self.look_again_at_counted();
        if way == Paused::Stopped {
            return self.stop(true);
        }
        self.threads().for_each(|thread| thread.counters = None);
        Ok(())
    }

    /// Stops counting, and drops all processes with their open files and events.
    pub fn let_go(&mut self) {
        self.plan = None;
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
        self.allot_known();
        let known: Vec<(Pid, Tid)> = self
            .processes
            .iter()
            .flat_map(|(pid, process)| process.threads.iter().map(|one| (*pid, one)))
            // Those that began in the pause are counted already.
            .filter(|(_, (_, thread))| thread.counters.is_none())
            .map(|(pid, (tid, _))| (pid, *tid))
            .collect();
        for (pid, tid) in known {
            let counters = self.open_counters(pid, tid);
            let process = self.processes.get_mut(&pid);
            if let Some(thread) = process.and_then(|process| process.threads.get_mut(&tid)) {
                thread.counters = counters;
            }
        }
    }
}
