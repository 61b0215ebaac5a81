//! The single table of events: their numbers, names, units and meanings.
//!
//! The plugin exports counters in this order, the driver's layout repeats the numbers, and the
//! documentation is printed from it. A number never changes its meaning. "Demand" means loads and
//! stores of the program, not prefetches.

/// What one step of a counter means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things that happened.
    Count,
    /// Picoseconds of guest time; the PMU shows them as core cycles.
    Picoseconds,
}

macro_rules! events {
    ($($variant:ident = $number:literal, $name:literal, $unit:ident, $meaning:literal;)*) => {
        /// One event that a vCPU counts; the discriminant is its number everywhere.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Event {
            $(#[doc = $meaning] $variant = $number,)*
        }

        impl Event {
            /// All events in the order of their numbers; some numbers are not in use.
            pub const ALL: &'static [Event] = &[$(Event::$variant,)*];

            /// The name that perf and the reports use.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Event::$variant => $name,)* }
            }

            /// What is counted, one sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Event::$variant => $meaning,)* }
            }

            /// What one step means.
            #[must_use]
            pub const fn unit(self) -> Unit {
                match self { $(Event::$variant => Unit::$unit,)* }
            }
        }
    };
}

events! {
    Instructions = 0, "instructions", Count, "Instructions executed; counted by the owner of the clock.";
    Cycles = 1, "cycles", Picoseconds, "Time not halted; counted by the owner of the clock.";
    RefCycles = 2, "ref_cycles", Picoseconds, "The same as cycles: the modelled clock does not vary.";
    Loads = 3, "loads", Count, "Loads retired, first-level hits included.";
    Stores = 4, "stores", Count, "Stores retired, first-level hits included.";
    MemAny = 5, "mem_any", Count, "Loads and stores.";
    L1Miss = 6, "l1_miss", Count, "Demand accesses that missed the first level.";
    L2Miss = 7, "l2_miss", Count, "Demand accesses that missed the second level.";
    LlcHit = 8, "llc_hit", Count, "Demand accesses that the own last-level cache answered.";
    LlcMiss = 9, "llc_miss", Count, "Demand accesses that DRAM or another cache answered.";
    LocalDram = 10, "local_dram", Count, "Demand accesses that DRAM of the own node answered.";
    RemoteDram = 11, "remote_dram", Count, "Demand accesses that DRAM of another node answered.";
    LocalFwd = 12, "local_fwd", Count, "Demand accesses that another cache of the own node answered, clean.";
    LocalHitm = 13, "local_hitm", Count, "Demand accesses that another cache of the own node answered, modified.";
    RemoteFwd = 14, "remote_fwd", Count, "Demand accesses that a cache of another node answered, clean.";
    RemoteHitm = 15, "remote_hitm", Count, "Demand accesses that a cache of another node answered, modified.";
    PrefetchDram = 16, "prefetch_dram", Count, "Lines that this vCPU's prefetcher read from DRAM.";
    Writebacks = 17, "writebacks", Count, "Modified lines that this vCPU's misses pushed out to DRAM.";
    Stall = 18, "stall_cycles", Picoseconds, "Time waited for memory.";
    DramLatency = 19, "dram_latency_cycles", Picoseconds, "Sum of the latencies of dram_requests.";
    DramRequests = 20, "dram_requests", Count, "Demand accesses that DRAM answered.";
    DramReads = 21, "dram_reads", Count, "Lines read from DRAM, demand and prefetch.";
    DramStores = 22, "dram_stores", Count, "Stores among dram_requests (reads for ownership).";
    Upgrades = 23, "upgrades", Count, "Stores to a line held clean that other caches held too.";
    Invalidations = 24, "invalidations", Count, "Lines that another vCPU's store took out of this one's caches.";
    PrefetchUsed = 25, "prefetch_used", Count, "Prefetched lines that a demand access then found.";
    PrefetchLate = 26, "prefetch_late", Count, "Those of prefetch_used that were still on their way.";
    InFlight = 27, "in_flight", Count, "Accesses to a line that an earlier demand miss was still fetching.";
    PrefetchLatency = 28, "prefetch_latency_cycles", Picoseconds, "Sum of the latencies of prefetch_dram.";
    Outside = 29, "outside", Count, "Accesses to physical addresses of no node (devices); not modelled.";
    DramNode0 = 32, "dram_node0", Count, "Lines read from DRAM of node 0, demand and prefetch.";
    DramNode1 = 33, "dram_node1", Count, "Lines read from DRAM of node 1, demand and prefetch.";
    DramNode2 = 34, "dram_node2", Count, "Lines read from DRAM of node 2, demand and prefetch.";
    DramNode3 = 35, "dram_node3", Count, "Lines read from DRAM of node 3, demand and prefetch.";
    DramNode4 = 36, "dram_node4", Count, "Lines read from DRAM of node 4, demand and prefetch.";
    DramNode5 = 37, "dram_node5", Count, "Lines read from DRAM of node 5, demand and prefetch.";
    DramNode6 = 38, "dram_node6", Count, "Lines read from DRAM of node 6, demand and prefetch.";
    DramNode7 = 39, "dram_node7", Count, "Lines read from DRAM of node 7, demand and prefetch.";
    DramNode8 = 40, "dram_node8", Count, "Lines read from DRAM of node 8, demand and prefetch.";
    DramNode9 = 41, "dram_node9", Count, "Lines read from DRAM of node 9, demand and prefetch.";
    DramNode10 = 42, "dram_node10", Count, "Lines read from DRAM of node 10, demand and prefetch.";
    DramNode11 = 43, "dram_node11", Count, "Lines read from DRAM of node 11, demand and prefetch.";
    DramNode12 = 44, "dram_node12", Count, "Lines read from DRAM of node 12, demand and prefetch.";
    DramNode13 = 45, "dram_node13", Count, "Lines read from DRAM of node 13, demand and prefetch.";
    DramNode14 = 46, "dram_node14", Count, "Lines read from DRAM of node 14, demand and prefetch.";
    DramNode15 = 47, "dram_node15", Count, "Lines read from DRAM of node 15, demand and prefetch.";
}

impl Event {
    /// Numbers lie below this.
    pub const COUNT: usize = Event::DramNode15 as usize + 1;

    /// The event's number.
    #[must_use]
    pub const fn number(self) -> usize {
        self as usize
    }

    /// The event with this number; `None` for a number not in use.
    #[must_use]
    pub fn from_number(number: usize) -> Option<Event> {
        Event::ALL.iter().copied().find(|event| event.number() == number)
    }

    /// Lines read from DRAM of `node`; `None` from node 16 on.
    #[must_use]
    pub fn dram_node(node: usize) -> Option<Event> {
        if node > 15 { None } else { Event::from_number(Event::DramNode0.number() + node) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_names_are_unique() {
        for pair in Event::ALL.windows(2) {
            assert!(pair[0].number() < pair[1].number(), "{pair:?}");
        }
        let mut names: Vec<_> = Event::ALL.iter().map(|event| event.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Event::ALL.len());
    }

    #[test]
    fn a_number_in_no_use_is_no_event() {
        assert_eq!(Event::from_number(10), Some(Event::LocalDram));
        assert_eq!(Event::from_number(31), None);
        assert_eq!(Event::from_number(64), None);
        assert_eq!(Event::dram_node(15), Some(Event::DramNode15));
        assert_eq!(Event::dram_node(16), None);
    }
}
