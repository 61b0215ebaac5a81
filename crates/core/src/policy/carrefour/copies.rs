//! Whether an application's copies last (ours). A write takes the copies of its page back, and the
//! kernel counts the pages that are left: no sample is needed to know it.
//!
//! Samples may miss writes: a sampler with a latency threshold sees no store to a line that was
//! just read. Where most copies are gone by the next round, they were made in vain: copying waits
//! one round, then two, then four. The per-page limit on collapses ends it for each page.

use crate::units::Nanos;

/// Rounds to wait double up to this many: a minute at Carrefour's period.
const MOST_ROUNDS: u64 = 64;

/// Copies of one application from round to round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Copies {
    /// Pages that should have copies still.
    expected: u64,
    in_vain: u32,
    waits_until: Nanos,
}

impl Copies {
    /// Pages got copies, or lost them on purpose.
    pub(super) fn note(&mut self, made: u64, dropped: u64) {
        self.expected = (self.expected + made).saturating_sub(dropped);
    }

    /// Looks at how many pages have copies now. Whether more may be made.
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
