//! When `numa_maps` of a process is read next: ever more seldom, and most seldom while the process
//! does not run.

use std::time::{Duration, Instant};

use rondpoint_core::Bytes;

use super::REST;

/// First time between two readings of a process (our choice). No policy acts on faster changes.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time between two readings (our choice). Each interval is twice the one before, because
/// most memory stays on its first node.
const LONGEST: Duration = Duration::from_secs(4);
/// The same for a process that does not run (our choice). Only the kernel and other managers move
/// its memory.
const LONGEST_STILL: Duration = Duration::from_secs(64);

/// Change of a process's resident memory, as a share, after which a reading is due at once (our
/// choice). A new program is first read before it has touched its data.
const CHANGED: f64 = 0.25;

/// Times of the readings of one process.
#[derive(Debug, Default)]
pub(in crate::observe) struct Schedule {
    /// Start of the last reading; `None` if the next one is due at once.
    read_at: Option<Instant>,
    is_still: bool,
    /// Earliest time of the next reading by [`REST`].
    rests_until: Option<Instant>,
    interval: Option<Duration>,
    /// Resident memory at the last reading.
    pub(super) resident: Bytes,
}

impl Schedule {
    /// Whether a reading is due: after the interval, or at once after a large change of memory.
    pub(in crate::observe) fn is_due(&self, now: Instant, resident: Bytes) -> bool {
        let change = resident.0.abs_diff(self.resident.0) as f64;
        let has_changed = change > CHANGED * resident.0 as f64;
        let may_read = self.rests_until.is_none_or(|until| now >= until);
        may_read && (has_changed || self.read_at.is_none_or(|read| now >= read + self.wait()))
    }

    /// Sets whether the process does not run now.
    pub(in crate::observe) fn settle(&mut self, is_still: bool) {
        self.is_still = is_still;
    }

    /// Makes a reading due, because the memory was moved.
    pub(in crate::observe) fn expire(&mut self) {
        self.read_at = None;
    }

    /// Time from the last reading to the next.
    pub(super) fn wait(&self) -> Duration {
        let longest = if self.is_still { LONGEST_STILL } else { LONGEST };
        self.interval.unwrap_or(INTERVAL).min(longest)
    }

    /// Sets the earliest time of the next reading, after one that began at `begin`.
    pub(super) fn rest(&mut self, begin: Instant) {
        let longest = if self.is_still { LONGEST_STILL } else { LONGEST };
        self.interval = Some(self.interval.map_or(INTERVAL, |_| (2 * self.wait()).min(longest)));
        self.rests_until = Some(begin + begin.elapsed() * REST);
        self.read_at = Some(begin);
    }

    /// Lets the time pass until a reading is due.
    #[cfg(test)]
    pub(in crate::observe) fn pass(&mut self) {
        (self.read_at, self.rests_until) = (None, None);
    }

    /// Lets no reading be due for a day, however slow the test is.
    #[cfg(test)]
    pub(in crate::observe) fn hold(&mut self) {
        self.rests_until = Some(Instant::now() + Duration::from_secs(86_400));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that has just begun is read before it has touched its data.
    #[test]
    fn a_process_that_has_grown_is_read_at_once_unless_reading_took_long() {
        let now = Instant::now();
        let later = Some(now + Duration::from_secs(60));
        let small = Bytes(400 << 20);
        let schedule = Schedule { read_at: Some(now), resident: small, ..Schedule::default() };
        assert!(!schedule.is_due(now, small));
        assert!(!schedule.is_due(now, Bytes(500 << 20)));
        assert!(schedule.is_due(now, Bytes(600 << 20)));
        assert!(schedule.is_due(now, Bytes(300 << 20)), "pages that it gave back");
        let resting = Schedule { rests_until: later, ..schedule };
        assert!(!resting.is_due(now, Bytes(600 << 20)));
    }

    #[test]
    fn the_maps_of_a_process_are_read_seldom_while_it_does_not_run() {
        let small = Bytes(400 << 20);
        let mut schedule = Schedule { resident: small, ..Schedule::default() };
        let waits = |schedule: &mut Schedule, is_still: bool| {
            schedule.settle(is_still);
            schedule.rest(Instant::now());
            schedule.rests_until = None;
            schedule.wait().as_secs()
        };
        assert_eq!([0; 4].map(|_| waits(&mut schedule, false)), [1, 2, 4, 4]);
        assert_eq!([0; 5].map(|_| waits(&mut schedule, true)), [8, 16, 32, 64, 64]);
        let in_a_while = Instant::now() + Duration::from_secs(5);
        assert!(!schedule.is_due(in_a_while, small));
        schedule.settle(false);
        assert!(schedule.is_due(in_a_while, small), "it runs again");
        schedule.settle(true);
        schedule.expire();
        assert!(schedule.is_due(in_a_while, small), "its pages were moved");
    }
}
