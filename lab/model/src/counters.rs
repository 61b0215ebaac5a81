//! The counters of one vCPU: a value per event, some of them sums of others.

use crate::event::Event;

/// What one vCPU has counted since power-on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    values: [u64; Event::COUNT],
}

impl Default for Counters {
    fn default() -> Self {
        Self { values: [0; Event::COUNT] }
    }
}

impl Counters {
    /// The value of `event` in its own unit; sums of other events are made here.
    #[inline]
    #[must_use]
    pub fn get(&self, event: Event) -> u64 {
        let value = |event: Event| self.values[event.number()];
        match event {
            Event::RefCycles => value(Event::Cycles),
            Event::MemAny => value(Event::Loads) + value(Event::Stores),
            Event::DramRequests => value(Event::LocalDram) + value(Event::RemoteDram),
            Event::DramReads => {
                value(Event::LocalDram) + value(Event::RemoteDram) + value(Event::PrefetchDram)
            }
            event => value(event),
        }
    }

    /// All values by event number; numbers not in use are zero.
    #[must_use]
    pub fn all(&self) -> [u64; Event::COUNT] {
        let mut values = [0; Event::COUNT];
        for &event in Event::ALL {
            values[event.number()] = self.get(event);
        }
        values
    }

    #[inline]
    pub(crate) fn add(&mut self, event: Event, amount: u64) {
        self.values[event.number()] += amount;
    }

    /// Counts a retired load or store.
    #[inline(always)]
    pub(crate) fn retire(&mut self, store: bool) {
        // The two events are neighbours, so the hot path needs no branch.
        const { assert!(Event::Stores.number() == Event::Loads.number() + 1) };
        self.values[Event::Loads.number() + usize::from(store)] += 1;
    }

    /// Counts lines read from DRAM of `node`.
    #[inline]
    pub(crate) fn read_node(&mut self, node: usize) {
        self.values[Event::DramNode0.number() + node] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_follow_their_parts() {
        let mut counters = Counters::default();
        counters.retire(false);
        counters.retire(true);
        counters.retire(true);
        counters.add(Event::LocalDram, 3);
        counters.add(Event::RemoteDram, 4);
        counters.add(Event::PrefetchDram, 5);
        assert_eq!(counters.get(Event::MemAny), 3);
        assert_eq!(counters.get(Event::DramRequests), 7);
        assert_eq!(counters.all()[Event::DramReads.number()], 12);
    }
}
