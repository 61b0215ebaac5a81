//! A token bucket that holds at most one second's worth: a cap on any rate.

use crate::units::Nanos;

/// Tokens that come back with time. It may go into debt for one large purchase and then sells
/// nothing until that is paid.
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

    /// Lets time pass.
    pub(super) fn refill(&mut self, now: Nanos) {
        self.tokens = (self.tokens + self.per_s * now.since(self.at).seconds()).min(self.per_s);
        self.at = now;
    }

    /// What is left; negative in debt.
    pub(super) fn left(&self) -> f64 {
        self.tokens
    }

    /// Takes tokens; the caller looked at [`Budget::left`] first.
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
