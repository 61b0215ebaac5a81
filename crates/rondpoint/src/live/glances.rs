//! Glances between two looks, at a bounded cost. Each glance reads the processes that run. The
//! idle ones, of which there may be thousands, are read if the machine's idle time says that one
//! may have begun to run.

use std::time::{Duration, Instant};

use anyhow::Result;
use rondpoint_core::Pid;
use rondpoint_core::counting_pause::{Glance, Rest, Watch};
use rondpoint_core::limits::QUICK_GLANCE;
use rondpoint_linux::observe::Observer;
use rondpoint_linux::syscall::time::own_cpu_time_ns;

/// Glances of either kind take this part of one CPU at most. Our choice: a tenth of what a manager
/// may use where nothing is done.
const AT_MOST: u32 = 2_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Glances {
    rest: Rest,
    /// CPU time of the last glance, without the idle processes.
    spent: Duration,
    /// Earliest time of the next reading of idle processes.
    idle_from: Option<Instant>,
}

impl Glances {
    /// A look has read all processes.
    pub(super) fn begin(&mut self) {
        self.rest.all_read();
        self.spent = Duration::ZERO;
    }

    /// Time until the next glance.
    pub(super) fn pause(&self) -> Duration {
        between(self.spent)
    }

    /// Glances at the `busy` processes and, where that is due, at all others.
    pub(super) fn glance(
        &mut self,
        observer: &mut Observer,
        watch: &Watch,
        busy: &[Pid],
    ) -> Result<Glance> {
        let began = own_cpu_time_ns();
        let mut glance = observer.glance(busy, watch.wants_requests())?;
        let idle = observer.idle_time();
        let cpus = observer.machine().topology.cpu_count();
        let may_hide = self.rest.may_hide_a_start(&glance, idle, cpus);
        let read = own_cpu_time_ns();
        self.spent = Duration::from_nanos(read - began);
        if may_hide && self.idle_from.is_none_or(|from| Instant::now() >= from) {
            observer.glance_at_more(&mut glance);
            self.rest.all_read();
            let spent = Duration::from_nanos(own_cpu_time_ns() - read);
            self.idle_from = Some(Instant::now() + between(spent));
        }
        Ok(glance)
    }
}

/// Time from one reading to the next, where the last took this much CPU time: many processes make
/// it dear. Time in which the program had the CPU does not count.
fn between(spent: Duration) -> Duration {
    Duration::from_nanos(QUICK_GLANCE.0).max(spent * AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glances_at_many_processes_come_less_often() {
        let between = |us| between(Duration::from_micros(us)).as_millis();
        assert_eq!([0, 10, 50, 400].map(between), [100, 100, 100, 800]);
    }
}
