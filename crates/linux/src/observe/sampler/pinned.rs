//! Pinned sampling events without a counter.
//!
//! Once a pinned event finds no counter because of other pinned events, the kernel puts it into its
//! error state (`merge_sched_in`, kernel/events/core.c, Linux 6.12). It samples nothing from then
//! on, although it was opened, and pages would count as read-only for lack of stores. Events of a
//! program's first thread are asked, in the first looks: later threads inherit them.

use rondpoint_core::observation::AddressSample;

use super::Sampler;
use crate::perf::attr::flag;
use crate::perf::event::OpenEvent;

/// What samples have shown of the pinned events. Such an event has a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shown {
    loads: bool,
    stores: bool,
    /// Whether an event without a counter was found.
    failed: bool,
    /// Times that the events were read.
    looks: u8,
}

/// Looks at events without samples (our choice). A program that uses no memory has none for long,
/// and each look reads every event.
const MOST_LOOKS: u8 = 16;

impl Shown {
    /// The same before the samples of events that are opened anew.
    pub(super) fn anew(self) -> Self {
        Self { failed: self.failed, ..Self::default() }
    }

    fn add(&mut self, samples: &[AddressSample]) {
        self.loads |= samples.iter().any(|sample| !sample.store);
        self.stores |= samples.iter().any(|sample| sample.store);
    }

    /// Whether no question is left: an event has failed, each has samples, or all were read often.
    fn is_settled(self, samples_stores: bool) -> bool {
        self.failed || self.looks >= MOST_LOOKS || (self.loads && (self.stores || !samples_stores))
    }
}

impl Sampler {
    /// Looks for a pinned event without a counter, until each event has shown samples. If there is
    /// one, stores are unknown for good. A look reads every pinned event once.
    pub(super) fn check_pinned(&mut self) {
        if !self.shown.is_settled(self.samples.stores) {
            self.shown.add(&self.samples.list);
        }
        if self.shown.is_settled(self.samples.stores) {
            return;
        }
        self.shown.looks += 1;
        let mut events = self.rings.iter().flat_map(|ring| &ring.events);
        let is_lost =
            |event: &&OpenEvent| event.attr.flags & flag::PINNED != 0 && event.has_failed();
        let Some(lost) = events.find(is_lost) else { return };
        let is_it = |config: u64| config == lost.attr.config;
        let name = self.sampled.iter().find(|event| is_it(event.attr.config));
        let name = name.map_or("an event", |event| event.name.as_str());
        self.lost_counter = Some(format!(
            "no samples of {name}: pinned events of another profiler hold its counters, so every \
             page counts as written; stop that profiler and start Rondpoint anew"
        ));
        (self.shown.failed, self.samples.stores) = (true, false);
        self.revive();
    }

    /// A sentence about a pinned event without a counter, or samples of no use, once.
    pub fn take_lost_counter(&mut self) -> Option<String> {
        self.lost_counter.take()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rondpoint_core::observation::Source;
    use rondpoint_core::{Pid, Tid, Topology};

    use super::super::{Kind, Plan};
    use super::*;
    use crate::observe::cpu_ring::faults;
    use crate::observe::subject::{Start, Subject};
    use crate::observe::translation::Translation;
    use crate::parse::zoneinfo::PhysicalMap;
    use crate::perf::data_source::Vendor;
    use crate::sleeper::own_thread;

    /// Samples a pinned event of this thread, which claims to sample stores.
    fn sampler(machine: &Topology) -> Sampler {
        let mut event = faults();
        event.attr.flags |= flag::PINNED;
        let plan = Plan {
            events: vec![event],
            buffer: None,
            stores: true,
            period: 1 << 40,
            levels: 1,
            counts_first_touches: false,
            online: std::path::PathBuf::new(),
        };
        let translation = Translation::new(machine, PhysicalMap::default(), Vendor::Intel);
        let subject = Subject::tasks(&[own_thread().0], Start::Now);
        Sampler::open(&subject, machine, translation, &plan).unwrap().0
    }

    /// An empty file stands for an event in the error state, because both give no bytes.
    fn lose_counters(sampler: &mut Sampler) {
        for event in sampler.rings.iter_mut().flat_map(|ring| &mut ring.events) {
            let attr = event.attr.clone();
            *event = OpenEvent::of_file(File::open("/dev/null").unwrap(), attr);
        }
    }

    #[test]
    fn an_event_that_lost_its_counter_takes_the_claim_of_stores_back() {
        let machine = crate::topology::discover(&crate::Root::live()).unwrap().topology;
        let mut sampler = sampler(&machine);
        assert_eq!(sampler.kind, Kind::Accesses);
        assert!(sampler.take().0.stores && sampler.take_lost_counter().is_none());
        lose_counters(&mut sampler);
        assert!(!sampler.take().0.stores, "the samples of this very interval may lack stores");
        let note = sampler.take_lost_counter().unwrap();
        assert!(note.starts_with("no samples of minor-faults: pinned events"), "{note}");
        assert!(!sampler.take().0.stores && sampler.take_lost_counter().is_none(), "told once");
    }

    #[test]
    fn samples_that_tell_no_access_are_told_of_and_dropped() {
        use crate::perf::data_source::DataSource;
        use crate::perf::record::Mode;
        use crate::perf::sample::Sample;
        const NO_ACCESS: u64 = 1;
        const LOAD: u64 = 2;
        let machine = crate::topology::discover(&crate::Root::live()).unwrap().topology;
        let mut sampler = sampler(&machine);
        let sample = |source| Sample { source: DataSource(source), ..Sample::default() };
        let row = |sampler: &mut Sampler, source, times| {
            (0..times).for_each(|_| sampler.keep(&sample(source), Mode::User));
            sampler.take_lost_counter()
        };
        assert_eq!(row(&mut sampler, NO_ACCESS, 60_000), None);
        assert_eq!(row(&mut sampler, LOAD, 1), None);
        assert_eq!(row(&mut sampler, NO_ACCESS, 60_000), None);
        let note = row(&mut sampler, NO_ACCESS, 6_000).unwrap();
        assert!(note.contains("IBS") && note.contains("6.1"), "{note}");
        assert!(sampler.take().0.list.is_empty());
    }

    #[test]
    fn an_event_is_not_asked_again_when_both_kinds_have_come() {
        let sample = |store| AddressSample {
            pid: Pid(7),
            tid: Tid(7),
            cpu: 0,
            node: 0,
            address: 0x1000,
            latency_cycles: 0,
            page_shift: 12,
            source: Source::Unknown,
            store,
        };
        let mut shown = Shown::default();
        shown.add(&[sample(false)]);
        assert!(shown.is_settled(false) && !shown.is_settled(true));
        shown.add(&[sample(true)]);
        assert!(shown.is_settled(true) && !shown.anew().is_settled(true), "new events are asked");
        assert!(Shown { failed: true, ..Shown::default() }.is_settled(true));
    }
}
