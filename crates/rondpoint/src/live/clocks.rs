//! Windows of which the clocks tell no length. The machine was suspended, or a clock stood still or
//! leapt, or the manager was stopped. Rates over such a window would be wrong, so a new one begins.

use rondpoint_core::Nanos;
use rondpoint_linux::syscall::time::{monotonic_ns, since_boot_ns};

/// A suspension that is shorter changes rates by less than windows differ anyway (our choice).
const SHORT_SLEEP: Nanos = Nanos::from_millis(100);
/// A look on a busy machine may come some seconds late (our choice).
const LATE: Nanos = Nanos::from_secs(30);

/// Both clocks at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// Since boot, with the time of suspension.
    pub(super) boot: Nanos,
    /// Since boot, without it.
    pub(super) awake: Nanos,
}

impl Reading {
    fn now() -> Self {
        Self { awake: Nanos(monotonic_ns()), boot: Nanos(since_boot_ns()) }
    }

    fn asleep(self) -> Nanos {
        self.boot.since(self.awake)
    }
}

/// The clocks at the last look.
#[derive(Debug)]
pub(super) struct Clocks {
    last: Option<Reading>,
    pub(super) read: fn() -> Reading,
}

impl Default for Clocks {
    fn default() -> Self {
        Self { last: None, read: Reading::now }
    }
}

impl Clocks {
    /// Whether the window that ends now has no length that can be told; `period` is the one that
    /// was wanted.
    pub(super) fn are_torn(&mut self, period: Nanos) -> bool {
        self.tear((self.read)(), period)
    }

    fn tear(&mut self, now: Reading, period: Nanos) -> bool {
        let Some(last) = self.last.replace(now) else { return false };
        let stood_still = now.boot <= last.boot;
        let slept = now.asleep().since(last.asleep()) >= SHORT_SLEEP;
        let is_late = now.boot.since(last.boot).0 >= period.0.saturating_add(LATE.0);
        stood_still || slept || is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_if_both_clocks_went_on_by_about_its_length() {
        const AT: u64 = 1_000_000;
        let period = Nanos::from_secs(1);
        let torn = |boot_ms: u64, awake_ms: u64| {
            let last = Reading { boot: Nanos::from_millis(AT), awake: Nanos::from_millis(AT / 2) };
            let mut clocks = Clocks { last: Some(last), read: Reading::now };
            let now = Reading {
                boot: Nanos::from_millis(AT + boot_ms),
                awake: Nanos::from_millis(AT / 2 + awake_ms),
            };
            clocks.tear(now, period)
        };
        assert!(!torn(1_000, 1_000) && !torn(1, 1) && !torn(30_900, 30_900), "late");
        assert!(!torn(1_050, 1_000) && !torn(1_000, 1_050), "read one after the other");
        assert!(torn(3_600_000, 1_000) && torn(1_200, 1_000), "suspended");
        assert!(torn(0, 0), "it stands still");
        assert!(torn(3_601_000, 3_601_000), "it leaps");
    }

    #[test]
    fn a_clock_that_goes_back_tears_one_window() {
        let at =
            |second| Reading { boot: Nanos::from_secs(second), awake: Nanos::from_secs(second) };
        let mut clocks = Clocks::default();
        let torn = [5, 6, 4, 5].map(|second| clocks.tear(at(second), Nanos::from_secs(1)));
        assert_eq!(torn, [false, false, true, false]);
    }
}
