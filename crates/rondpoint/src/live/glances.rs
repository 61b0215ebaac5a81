//! Glances between two looks, at a bounded cost. Each glance reads the processes that run. The
//! idle ones, of which there may be thousands, are read if the machine's idle time says that one
//! may have begun to run. Other programs that run may hide a start, so while they do, the idle ones
//! are read too, at a cost of its own bound.

use std::time::{Duration, Instant};

use anyhow::Result;
use rondpoint_core::Pid;
use rondpoint_core::counting_pause::{Glance, Rest, Watch};
use rondpoint_core::limits::QUICK_GLANCE;
use rondpoint_linux::observe::Observer;
use rondpoint_linux::syscall::time::own_cpu_time_ns;

/// Glances of each of the three kinds take this part of one CPU at most. Our choice: a tenth of
/// what a manager may use where nothing is done.
const AT_MOST: u32 = 2_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Glances {
    rest: Rest,
    /// CPU time of the last glance, without the idle processes.
    spent: Duration,
    idle: Idle,
}

/// Earliest times of the next reading of idle processes.
#[derive(Debug, Default)]
struct Idle {
    /// Where the machine shows that one may have begun.
    of_start: Option<Instant>,
    /// Where the use of other programs may hide a start.
    of_swap: Option<Instant>,
}

impl Idle {
    /// Whether to read the idle processes now.
    fn is_due(&self, now: Instant, may_start: bool, may_swap: bool) -> bool {
        let passed = |from: Option<Instant>| from.is_none_or(|from| now >= from);
        (may_start && passed(self.of_start)) || (may_swap && passed(self.of_swap))
    }

    /// Notes a reading that ended at `now`. One for a swap does not delay one for a start.
    fn read(&mut self, now: Instant, may_start: bool, spent: Duration) {
        let from = Some(now + between(spent));
        self.of_swap = from;
        if may_start {
            self.of_start = from;
        }
    }
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

    /// Glances at the `busy` processes and, where that is due, at all others. Also returns whether
    /// a process that dozed has begun to run.
    pub(super) fn glance(
        &mut self,
        observer: &mut Observer,
        watch: &Watch,
        busy: &[Pid],
    ) -> Result<(Glance, bool)> {
        let began = own_cpu_time_ns();
        let mut glance = observer.glance(busy, watch.wants_requests())?;
        let idle = observer.idle_time();
        let cpus = observer.machine().topology.cpu_count();
        let may_hide = self.rest.may_hide_a_start(&glance, idle, cpus);
        let read = own_cpu_time_ns();
        self.spent = Duration::from_nanos(read - began);
        let mut has_begun = false;
        let may_swap = self.rest.may_hide_a_swap();
        if self.idle.is_due(Instant::now(), may_hide, may_swap) {
            has_begun = observer.glance_at_more(&mut glance);
            self.rest.all_read();
            let spent = Duration::from_nanos(own_cpu_time_ns() - read);
            self.idle.read(Instant::now(), may_hide, spent);
        }
        Ok((glance, has_begun))
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

    #[test]
    fn what_others_use_has_idle_processes_read_and_delays_no_reading_for_a_start() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut idle = Idle::default();
        assert!(!idle.is_due(now, false, false) && idle.is_due(now, false, true));
        idle.read(now, false, Duration::from_micros(400));
        assert!(!idle.is_due(at(799), false, true) && idle.is_due(at(800), false, true));
        assert!(idle.is_due(at(1), true, true), "a start is not delayed");
        idle.read(at(1), true, Duration::from_micros(400));
        assert!(!idle.is_due(at(800), true, true) && idle.is_due(at(801), true, true));
    }
}
