//! Counters by the names of their events.

use std::collections::BTreeMap;

use rondpoint_core::observation;
use serde::de::IntoDeserializer;
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::names;
use super::table::Counter;

/// The counters of a thread or process: `{"instructions": …, "cycles": …}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counters(pub(crate) observation::Counters);

impl Counters {
    /// Whether there is no counter.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().next().is_none()
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = |(event, counter)| (Event::from(event), Counter(counter));
        serializer.collect_map(self.0.iter().map(named))
    }
}

impl<'de> Deserialize<'de> for Counters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Names are read as text first, so that an error names the wrong counter.
        let named = BTreeMap::<String, Counter>::deserialize(deserializer)?;
        let counter = |(name, counter): (String, Counter)| {
            let name: StrDeserializer<'_, D::Error> = name.as_str().into_deserializer();
            Ok((Event::deserialize(name)?.into(), counter.0))
        };
        named.into_iter().map(counter).collect::<Result<_, _>>().map(Self)
    }
}

names! {
    Event for observation::Event {
        Instructions = "instructions",
        Cycles = "cycles",
        ReferenceCycles = "reference-cycles",
        ReferenceCyclesRound2 = "reference-cycles-round-2",
        LlcReferences = "llc-references",
        LlcHits = "llc-hits",
        LlcMisses = "llc-misses",
        LlcPrefetchMisses = "llc-prefetch-misses",
        LlcLoadMisses = "llc-load-misses",
        PrivateMisses = "private-misses",
        RemoteForward = "remote-forward",
        RemoteHitm = "remote-hitm",
        SnoopLocal = "snoop-local",
        LocalDram = "local-dram",
        RemoteDram = "remote-dram",
        StallCycles = "stall-cycles",
        Refills = "refills",
        RefillsModified = "refills-modified",
        DramReads = "dram-reads",
        DramReadsAndWrites = "dram-reads-and-writes",
        DramLatencyCycles = "dram-latency-cycles",
        DramRequests = "dram-requests",
    }
}
