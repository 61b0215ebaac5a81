//! Samples and hint faults that a lane has yet to decide on, or wants to see again.

use crate::limits::HINT_FAULT_MEMORY;
use crate::observation::{Observation, Samples};
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Samples and hint faults by the observation that they came with.
#[derive(Default)]
pub(super) struct PendingSamples {
    samples: Vec<(Nanos, Samples)>,
    hint_faults: Vec<(Nanos, Samples)>,
}

impl PendingSamples {
    /// Takes the samples and hint faults out of an observation. Hint faults stay for
    /// [`HINT_FAULT_MEMORY`]: the kernel makes one fault for a page in each pass over the memory.
    /// One fault alone says nothing about the threads that share the page.
    pub(super) fn take(&mut self, observation: &mut Observation) {
        let now = observation.at;
        self.samples.extend(observation.samples.take().map(|samples| (now, samples)));
        self.hint_faults.retain(|(at, _)| now.since(*at) < HINT_FAULT_MEMORY);
        self.hint_faults.extend(observation.hint_faults.take().map(|faults| (now, faults)));
    }

    /// Samples of a page that moved tell where it was: they go.
    pub(super) fn forget_moved(&mut self, moved: &BTreeSet<(Pid, u64)>) {
        if moved.is_empty() {
            return;
        }
        for (_, samples) in self.samples.iter_mut().chain(&mut self.hint_faults) {
            samples.list.retain(|sample| !moved.contains(&(sample.pid, sample.page_address())));
        }
    }

    /// Samples up to this time have served every lane.
    pub(super) fn forget_until(&mut self, served: Nanos) {
        self.samples.retain(|(at, _)| *at > served);
    }

    /// Samples and hint faults that came after these times.
    pub(super) fn after(&self, samples: Nanos, hint_faults: Nanos) -> Vec<&Samples> {
        let samples = self.samples.iter().filter(|(at, _)| *at > samples);
        let hint_faults = self.hint_faults.iter().filter(|(at, _)| *at > hint_faults);
        samples.chain(hint_faults).map(|(_, list)| list).collect()
    }
}
