//! Checks that an application's copies last (ours). A write drops the copies of its page. The
//! kernel's list of pages with copies shows this without samples.
//!
//! Samples may miss writes: a sampler with a latency threshold sees no store to a line that was
//! just read. If most copies are gone by the next round, copying waits one round, then two, then
//! four. A page that lost its copies too often gets no more.

use crate::units::Nanos;

/// Longest wait in rounds: a minute at Carrefour's period.
const MOST_ROUNDS: u64 = 64;

/// Copies of one application from round to round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Copies {
    /// Number of pages that should still have copies.
    expected: u64,
    in_vain: u32,
    waits_until: Nanos,
}

impl Copies {
    /// Notes pages that got copies, and pages whose copies a plan dropped.
    pub(super) fn note(&mut self, made: u64, dropped: u64) {
        self.expected = (self.expected + made).saturating_sub(dropped);
    }

    /// Compares the number of pages with copies with the expected number. Returns whether more
    /// copies may be made.
    pub(super) fn hold(&mut self, replicated: u64, now: Nanos, period: Nanos) -> bool {
        if replicated < self.expected.div_ceil(2) {
            let rounds = (1 << self.in_vain.min(63)).min(MOST_ROUNDS);
            self.in_vain = self.in_vain.saturating_add(1);
            self.waits_until = now + Nanos(period.0.saturating_mul(rounds));
        } else if self.expected > 0 {
            self.in_vain = 0;
        }
        self.expected = replicated;
        now >= self.waits_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn copies_that_do_not_last_a_round_are_tried_ever_more_seldom() {
        let mut copies = Copies::default();
        let mut tried = Vec::new();
        for second in 1..40 {
            if copies.hold(0, Nanos::from_secs(second), Nanos::from_secs(1)) {
                tried.push(second);
                copies.note(600, 0);
            }
        }
        assert_eq!(tried, [1, 3, 6, 11, 20, 37]);
    }

    #[test]
    fn copies_that_last_are_added_to_and_dropping_them_on_purpose_is_no_loss() {
        let mut copies = Copies::default();
        let holds = |copies: &mut Copies, left, second| {
            copies.hold(left, Nanos::from_secs(second), Nanos::from_secs(1))
        };
        copies.note(600, 0);
        assert!(holds(&mut copies, 590, 1), "a few were written");
        copies.note(600, 0);
        assert!(holds(&mut copies, 1_190, 2));
        copies.note(0, 1_190);
        assert!(holds(&mut copies, 0, 3));
        copies.note(600, 0);
        assert!(!holds(&mut copies, 299, 4), "most were written");
    }
}
