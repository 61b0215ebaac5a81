//! Readings of hardware counters: a raw value, the time for which the counter was enabled, and the
//! time for which it was running.

use crate::units::Nanos;
use alloc::vec::Vec;

/// A cumulative count with the times that multiplexing needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counter {
    /// Raw value.
    pub value: u64,
    /// Time for which the counter was enabled.
    pub enabled: Nanos,
    /// Time for which it was running on the hardware.
    pub running: Nanos,
}

impl Counter {
    /// A counter that is never multiplexed and has no times of its own (an uncore or software
    /// count).
    #[must_use]
    pub const fn exact(value: u64) -> Self {
        Self { value, enabled: Nanos(0), running: Nanos(0) }
    }

    /// Events since `earlier`, scaled to the time it was enabled, and the share of that time in
    /// which it really counted.
    ///
    /// `None` if it never ran in between or went backwards (reset, reused).
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Delta> {
        let events = self.value.checked_sub(earlier.value)? as f64;
        let enabled = self.enabled.0.checked_sub(earlier.enabled.0)?;
        let running = self.running.0.checked_sub(earlier.running.0)?;
        match (enabled, running) {
            (0, _) => Some(Delta { events, running_share: 1.0, enabled: Nanos(0) }),
            (_, 0) => None,
            _ => {
                let running_share = (running as f64 / enabled as f64).min(1.0);
                Some(Delta {
                    events: events / running_share,
                    running_share,
                    enabled: Nanos(enabled),
                })
            }
        }
    }
}

/// Count between two observations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delta {
    /// Events, scaled for multiplexing.
    pub events: f64,
    /// Share of the enabled time in which it counted.
    pub running_share: f64,
    /// Enabled time; for a per-thread counter this is the thread's CPU time. Zero if the counter
    /// has no times.
    pub enabled: Nanos,
}

/// The event of a per-thread counter. The reader maps it to the processor's own event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Retired instructions.
    Instructions,
    /// Core cycles.
    Cycles,
    /// Cycles at nominal frequency while not halted, counted together with round 1 of SAM's events.
    ReferenceCycles,
    /// Reference cycles counted together with round 2.
    ReferenceCyclesRound2,
    /// Last-level cache references.
    LlcReferences,
    /// Loads that hit the last-level cache.
    LlcHits,
    /// Last-level cache misses. They include prefetches of the last private cache if the event
    /// does.
    LlcMisses,
    /// Last-level cache misses of prefetches, if counted separately from demand misses.
    LlcPrefetchMisses,
    /// Retired loads that missed the last-level cache (the term of SAM's SNP formula).
    LlcLoadMisses,
    /// Misses of the last private cache level.
    PrivateMisses,
    /// Served by a cache of another node that forwarded a clean line.
    RemoteForward,
    /// Served by a cache of another node that held the line modified.
    RemoteHitm,
    /// Served by another private cache behind the same last-level cache, where counted directly
    /// (SNP of SAM-MPH).
    SnoopLocal,
    /// DRAM requests to the own node.
    LocalDram,
    /// DRAM requests to other nodes.
    RemoteDram,
    /// Cycles in which the thread waited for memory.
    StallCycles,
    /// Refills of the first-level cache from beyond the private caches, or from DRAM only if that
    /// can be counted.
    Refills,
    /// The `Refills` with a line that came in Modified state.
    RefillsModified,
    /// DRAM reads, if countable per thread.
    DramReads,
    /// DRAM reads and writes, if countable per thread.
    DramReadsAndWrites,
    /// Latencies of all demand DRAM requests added up, in cycles.
    DramLatencyCycles,
    /// Number of the requests of `DramLatencyCycles`.
    DramRequests,
}

/// The counters of one thread, by event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Ascending by event, each at most once.
    list: Vec<(Event, Counter)>,
}

impl Counters {
    /// Sets the counter of an event.
    pub fn set(&mut self, event: Event, counter: Counter) {
        match self.list.binary_search_by_key(&event, |(event, _)| *event) {
            Ok(place) => self.list[place].1 = counter,
            Err(place) => self.list.insert(place, (event, counter)),
        }
    }

    /// The counter of an event, if it is read here.
    #[must_use]
    pub fn get(&self, event: Event) -> Option<Counter> {
        let place = self.list.binary_search_by_key(&event, |(event, _)| *event).ok()?;
        Some(self.list[place].1)
    }

    /// What an event counted since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self, event: Event) -> Option<Delta> {
        self.get(event)?.since(earlier.get(event)?)
    }

    /// All counters, ascending by event.
    pub fn iter(&self) -> impl Iterator<Item = (Event, Counter)> + '_ {
        self.list.iter().copied()
    }
}

impl FromIterator<(Event, Counter)> for Counters {
    fn from_iter<I: IntoIterator<Item = (Event, Counter)>>(counters: I) -> Self {
        let mut all = Self::default();
        counters.into_iter().for_each(|(event, counter)| all.set(event, counter));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(value: u64, enabled: u64, running: u64) -> Counter {
        Counter { value, enabled: Nanos(enabled), running: Nanos(running) }
    }

    #[test]
    fn a_multiplexed_counter_is_scaled_by_the_time_it_ran() {
        let delta = counter(150, 2_000, 1_000).since(counter(100, 1_000, 500)).expect("it ran");
        assert_eq!((delta.events, delta.running_share), (100.0, 0.5));
    }

    #[test]
    fn a_counter_that_never_ran_or_went_backwards_says_nothing() {
        assert_eq!(counter(5, 2_000, 500).since(counter(5, 1_000, 500)), None);
        assert_eq!(counter(4, 2_000, 900).since(counter(5, 1_000, 500)), None);
        assert_eq!(counter(9, 500, 400).since(counter(5, 1_000, 300)), None);
    }

    #[test]
    fn an_exact_counter_is_its_difference() {
        let delta = Counter::exact(9).since(Counter::exact(4)).expect("exact");
        assert_eq!((delta.events, delta.running_share), (5.0, 1.0));
    }
}
