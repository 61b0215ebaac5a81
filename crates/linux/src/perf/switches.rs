//! The task that ran on a CPU at a time, by the records of its task switches.
//!
//! An auxiliary buffer of all tasks has packets with times and no task. The kernel writes a record
//! of each switch, and the record about the buffer's bytes comes after the switches among them.

use super::sample::Origin;

/// Most switches between two records about the buffer (our choice). Of more, the first are
/// forgotten, with the samples among them.
const MAX_SWITCHES: usize = 1 << 16;

/// The tasks of one CPU in the order of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Switches {
    /// The task before the first switch of `since`; `None` if it is unknown.
    before: Option<Origin>,
    /// Records of switches are lost, and no task has begun since. Nothing is known until then.
    is_unknown: bool,
    /// Times from which a task ran, ns of the perf clock, ascending.
    since: Vec<(u64, Origin)>,
}

impl Switches {
    /// A task begins to run.
    pub fn begin(&mut self, time_ns: u64, task: Origin) {
        if self.since.len() == MAX_SWITCHES {
            self.forget_before_last();
        }
        self.is_unknown = false;
        self.since.push((time_ns, task));
    }

    /// A task stops running. Before the first known switch it was the one that ran.
    pub fn end(&mut self, task: Origin) {
        if self.since.is_empty() && !self.is_unknown {
            self.before = Some(task);
        }
    }

    /// The task at a time. `last`: the task that ran when the bytes were reported, for a CPU
    /// without any switch.
    #[must_use]
    pub fn at(&self, time_ns: u64, last: Origin) -> Option<Origin> {
        let index = self.since.partition_point(|(since, _)| *since <= time_ns);
        match index.checked_sub(1) {
            Some(index) => Some(self.since[index].1),
            None if self.is_unknown => None,
            None if self.since.is_empty() => Some(self.before.unwrap_or(last)),
            None => self.before,
        }
    }

    /// Forgets all switches before the last one, whose samples were taken.
    pub fn forget_before_last(&mut self) {
        if let Some(last) = self.since.pop() {
            self.before = None;
            self.since.clear();
            self.since.push(last);
        }
    }

    /// Forgets all switches, because some are lost.
    pub fn forget(&mut self) {
        *self = Self { is_unknown: true, ..Self::default() };
    }
}

/// Conversion from ticks of the timer in packets to the perf clock, as the kernel gives it
/// (`time_zero`, perf_event_open(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Time of tick 0, ns.
    pub zero_ns: u64,
    /// A tick is `multiplier / 2^shift` nanoseconds.
    pub multiplier: u32,
    /// See `multiplier`; below 64.
    pub shift: u16,
}

impl Clock {
    /// The time of a tick, ns of the perf clock.
    #[must_use]
    pub fn ns(&self, ticks: u64) -> u64 {
        let since = (u128::from(ticks) * u128::from(self.multiplier)) >> self.shift;
        self.zero_ns.wrapping_add(since as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(thread: u32) -> Origin {
        Origin { process: 1, thread, cpu: 0 }
    }

    fn check(switches: &Switches, time_ns: u64, expected: Option<u32>) {
        let found = switches.at(time_ns, task(9)).map(|task| task.thread);
        assert_eq!(found, expected, "at {time_ns} ns");
    }

    #[test]
    fn each_time_belongs_to_the_task_that_ran() {
        let mut switches = Switches::default();
        check(&switches, 50, Some(9));
        switches.end(task(1));
        check(&switches, 50, Some(1));
        switches.begin(100, task(2));
        switches.end(task(2));
        switches.begin(200, task(3));
        check(&switches, 99, Some(1));
        check(&switches, 100, Some(2));
        check(&switches, 199, Some(2));
        check(&switches, 900, Some(3));
        switches.forget_before_last();
        check(&switches, 150, None);
        check(&switches, 200, Some(3));
    }

    #[test]
    fn after_a_loss_nothing_is_known_before_the_next_switch() {
        let mut switches = Switches::default();
        switches.begin(100, task(2));
        switches.forget();
        check(&switches, 150, None);
        // The kernel writes the end of a task before the beginning of the next.
        switches.end(task(3));
        check(&switches, 150, None);
        switches.begin(300, task(4));
        check(&switches, 150, None);
        check(&switches, 300, Some(4));
    }

    #[test]
    fn ticks_are_converted_without_overflow() {
        let clock = Clock { zero_ns: 1_000, multiplier: 1 << 31, shift: 30 };
        assert_eq!(clock.ns(7), 1_014);
        assert_eq!(clock.ns(1 << 62), 1_000 + (1 << 63));
        let early = Clock { zero_ns: 0u64.wrapping_sub(500), ..clock };
        assert_eq!(early.ns(300), 100);
    }
}
