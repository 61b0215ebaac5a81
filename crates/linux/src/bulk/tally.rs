//! Counts of the outcomes of pages, and the time of a bulk move.

use std::collections::BTreeMap;
use std::time::Duration;

use rondpoint_core::plan::PageCounts;
use rondpoint_core::{Bytes, Nanos};

/// The end of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum End {
    /// All pages were visited.
    #[default]
    Complete,
    /// The process has ended.
    Gone,
    /// The caller stopped it through the control.
    Cancelled,
    /// The kernel refused a call.
    Refused {
        /// Error number of the call.
        errno: i32,
    },
}

/// Counts of one pass over the process. Pages are base pages of 4 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Results for the pages on the source nodes. Pages on target nodes count as in place.
    pub counts: PageCounts,
    /// Pages on nodes that are neither source nor target.
    pub elsewhere: u64,
    /// Failed pages that other processes have mapped too.
    pub shared: u64,
    /// Pages to move that were not tried, because the work ended early.
    pub untried: u64,
    /// Moved huge pages.
    pub huge: u64,
    /// Memory found on each node.
    pub seen: BTreeMap<u32, Bytes>,
    /// Number of calls that moved pages.
    pub calls: u64,
    /// Time in these calls, of all workers together.
    pub in_calls: Nanos,
    /// Duration of the longest call: an upper bound on a thread's wait for a page.
    pub longest_call: Nanos,
    /// The end of the pass.
    pub end: End,
}

impl Tally {
    /// Adds the counts of another worker.
    pub(super) fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.elsewhere += other.elsewhere;
        self.shared += other.shared;
        self.untried += other.untried;
        self.huge += other.huge;
        for (&node, bytes) in &other.seen {
            self.seen.entry(node).or_default().0 += bytes.0;
        }
        self.calls += other.calls;
        self.in_calls += other.in_calls;
        self.longest_call = self.longest_call.max(other.longest_call);
        if self.end == End::Complete {
            self.end = other.end;
        }
    }
}

/// Counts of all passes over the process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moved {
    /// Counts. Moved pages are the sum of all passes. Pages that did not move are those of the last
    /// pass, so no page counts twice.
    pub tally: Tally,
    /// Number of passes.
    pub passes: u32,
    /// Time of all passes.
    pub elapsed: Nanos,
    /// The end of the last pass.
    pub end: End,
}

impl Moved {
    /// Adds the result of a later order with the same ways.
    pub fn follow(&mut self, later: Self) {
        self.passes += later.passes;
        self.elapsed += later.elapsed;
        let end = later.end;
        if later.passes > 0 {
            self.take_in(later.tally);
        }
        self.end = end;
    }

    pub(super) fn take_in(&mut self, tally: Tally) {
        let before = std::mem::replace(&mut self.tally, tally);
        let now = &mut self.tally;
        if self.passes > 1 {
            // Pages moved by earlier passes are in place now, and already counted as moved.
            now.counts.in_place = before.counts.in_place;
            now.seen = before.seen;
        }
        now.counts.moved += before.counts.moved;
        now.huge += before.huge;
        now.calls += before.calls;
        now.in_calls += before.in_calls;
        now.longest_call = now.longest_call.max(before.longest_call);
        self.end = now.end;
    }
}

pub(super) fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_move_counts_once() {
        let counts =
            |moved, in_place, busy| PageCounts { moved, in_place, busy, ..PageCounts::default() };
        let tally = |counts| Tally { counts, calls: 2, ..Tally::default() };
        let mut moved = Moved { passes: 1, ..Moved::default() };
        moved.take_in(tally(counts(90, 5, 10)));
        moved.passes = 2;
        moved.take_in(tally(counts(7, 98, 3)));
        assert_eq!(moved.tally.counts, counts(97, 5, 3));
        assert_eq!((moved.tally.calls, moved.end), (4, End::Complete));
        let later =
            Moved { tally: tally(counts(1, 99, 2)), passes: 1, end: End::Gone, ..Moved::default() };
        moved.follow(later);
        assert_eq!((moved.tally.counts, moved.passes, moved.end), (counts(98, 5, 2), 3, End::Gone));
    }
}
