//! Estimates the cost of inherited events for a program that starts many processes. Above a limit,
//! events are opened on CPUs instead of tasks, if the user may do that. In the core,
//! `counting_pause/price.rs` decides whether counting pauses sooner in such a program; there, time
//! slices count as births do.

use rondpoint_core::Nanos;

/// Time that each inherited event adds to a task's start and end. Measured by hand on a busy
/// virtual machine: 2 to 9 µs, with 0 to 512 dummy events on a task that forks.
const PER_EVENT: Nanos = Nanos(5_000);
/// Share of one CPU above which inherited events are too expensive. Our choice: half of the largest
/// allowed cost of observation.
const DEAR_SHARE: f64 = 0.01;
/// Least length of a window in which new tasks are counted (our choice).
const WINDOW: Nanos = Nanos(500_000_000);
/// Least time of expensive windows, at least two, until the cost counts as lasting (our choice). A
/// program's first threads start in one window, or in two short ones.
const LASTING: Nanos = Nanos(1_500_000_000);

/// Cost of the events that new tasks inherit.
#[derive(Debug)]
pub(super) struct Inherited {
    /// Number of events on one task.
    events: usize,
    since: Option<Nanos>,
    births: u64,
    /// `(number, total length)` of the last consecutive expensive windows.
    dear: (u32, Nanos),
}

impl Inherited {
    /// For this number of events on a task.
    pub(super) fn of(events: usize) -> Self {
        Self { events, since: None, births: 0, dear: (0, Nanos(0)) }
    }

    /// Adds the number of new tasks of a look at time `at`.
    pub(super) fn add(&mut self, at: Nanos, births: u64) {
        let since = *self.since.get_or_insert(at);
        self.births += births;
        let elapsed = at.since(since);
        if elapsed < WINDOW {
            return;
        }
        let cost = self.births as f64 * self.events as f64 * PER_EVENT.seconds();
        let is_dear = cost > DEAR_SHARE * elapsed.seconds();
        let (windows, time) = self.dear;
        self.dear = if is_dear { (windows + 1, time + elapsed) } else { (0, Nanos(0)) };
        (self.since, self.births) = (Some(at), 0);
    }

    /// Whether the cost has been too high for [`LASTING`] in at least two windows.
    pub(super) fn cost_much(&self) -> bool {
        self.dear.0 >= 2 && self.dear.1 >= LASTING
    }

    /// Drops all windows.
    pub(super) fn forget(&mut self) {
        *self = Self::of(self.events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks ten times a second, with these births in each half second, of tasks with a hundred
    /// events.
    fn dear_after(births: &[u64]) -> Vec<bool> {
        let mut inherited = Inherited::of(100);
        inherited.add(Nanos(0), 0);
        let mut half_second = |(number, births): (usize, &u64)| {
            for look in 1..=5 {
                let at = Nanos::from_millis(500 * number as u64 + 100 * look);
                inherited.add(at, if look == 3 { *births } else { 0 });
            }
            inherited.cost_much()
        };
        births.iter().enumerate().map(&mut half_second).collect()
    }

    #[test]
    fn many_inheriting_costs_much_if_they_go_on() {
        assert_eq!(dear_after(&[11, 11, 11]), [false, false, true]);
        assert_eq!(dear_after(&[10, 10, 10, 10]), [false; 4]);
        assert_eq!(dear_after(&[500, 500, 0, 500]), [false; 4], "threads of the start");
    }

    #[test]
    fn a_long_time_between_two_looks_is_no_more_than_its_births() {
        let mut inherited = Inherited::of(100);
        for second in 0..5 {
            inherited.add(Nanos::from_secs(10 * second), 100);
        }
        assert!(!inherited.cost_much());
        inherited.add(Nanos::from_secs(50), 300);
        assert!(!inherited.cost_much());
        inherited.add(Nanos::from_secs(60), 300);
        assert!(inherited.cost_much());
        inherited.forget();
        assert!(!inherited.cost_much());
    }
}
