//! A token bucket that limits a rate. It holds the tokens of one second at most.

use crate::units::Nanos;

/// Tokens that refill with time. One large purchase may put the bucket into debt; it then gives no
/// tokens until the debt is paid.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Budget {
    per_s: f64,
    tokens: f64,
    at: Nanos,
}

impl Budget {
    /// A full bucket.
    pub(super) fn new(per_s: f64, now: Nanos) -> Self {
        Self { per_s, tokens: per_s, at: now }
    }

    /// Refills for the time since the last call.
    pub(super) fn refill(&mut self, now: Nanos) {
        self.tokens = (self.tokens + self.per_s * now.since(self.at).seconds()).min(self.per_s);
        self.at = now;
    }

    /// Tokens that are left; negative in debt.
    pub(super) fn left(&self) -> f64 {
        self.tokens
    }

    /// Takes tokens. The caller has checked [`Budget::left`] before.
    pub(super) fn take(&mut self, tokens: f64) {
        self.tokens -= tokens;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_with_time_and_never_pile_up() {
        let mut budget = Budget::new(100.0, Nanos(0));
        budget.take(100.0);
        budget.refill(Nanos::from_millis(250));
        assert_eq!(budget.left(), 25.0);
        budget.refill(Nanos::from_secs(60));
        assert_eq!(budget.left(), 100.0);
    }

    #[test]
    fn a_debt_is_paid_first() {
        let mut budget = Budget::new(100.0, Nanos(0));
        budget.take(400.0);
        budget.refill(Nanos::from_secs(2));
        assert_eq!(budget.left(), -100.0);
    }
}
