//! Lines from caches of other nodes, on processors that count them together with remote memory.
//!
//! Arm's cores have one event for both (`REMOTE_ACCESS`, 0x31: accesses to another chip). Samples
//! tell them apart by where the page lies.

use crate::model::thread::MIN_SAMPLES;
use crate::model::{Model, ThreadRates};

/// Samples of one thread with data from other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Far {
    caches: u32,
    memory: u32,
}

impl Far {
    /// Adds a sample.
    pub(super) fn add(&mut self, from_cache: bool) {
        let count = if from_cache { &mut self.caches } else { &mut self.memory };
        *count += 1;
    }

    /// As many samples as a split needs.
    fn is_enough(self) -> bool {
        self.caches + self.memory >= MIN_SAMPLES
    }

    /// Splits the counted remote accesses as the samples are. Leaves rates as they are where lines
    /// from other caches have an event of their own, or samples are few.
    pub(super) fn split(self, rates: &mut ThreadRates) {
        if rates.coherence_remote_per_s.is_some() || !self.is_enough() {
            return;
        }
        let Some(counted) = rates.remote_dram_per_s else { return };
        let from_caches = f64::from(self.caches) / f64::from(self.caches + self.memory);
        rates.coherence_remote_per_s = Some(counted * from_caches);
        rates.remote_dram_per_s = Some(counted * (1.0 - from_caches));
    }
}

/// Splits the counted remote accesses of all threads. A thread with few samples is taken to be like
/// its application.
pub(super) fn split(model: &mut Model, of_threads: &[Far]) {
    for app in &model.apps {
        let Some(own) = of_threads.get(app.threads.clone()) else { continue };
        let sum = |count: fn(&Far) -> u32| own.iter().map(count).sum();
        let all = Far { caches: sum(|far| far.caches), memory: sum(|far| far.memory) };
        for (thread, far) in model.threads[app.threads.clone()].iter_mut().zip(own) {
            let far = if far.is_enough() { *far } else { all };
            far.split(&mut thread.rates);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(caches: u32, memory: u32, counted: Option<f64>) -> [Option<f64>; 2] {
        let far = Far { caches, memory };
        let mut rates = ThreadRates { remote_dram_per_s: counted, ..ThreadRates::default() };
        far.split(&mut rates);
        [rates.coherence_remote_per_s, rates.remote_dram_per_s]
    }

    #[test]
    fn counted_remote_accesses_are_split_as_their_samples_are() {
        assert_eq!(split(30, 10, Some(4e6)), [Some(3e6), Some(1e6)]);
        assert_eq!(split(0, 10, Some(4e6)), [Some(0.0), Some(4e6)]);
        assert_eq!(split(3, 1, Some(4e6)), [None, Some(4e6)], "four samples say little");
        assert_eq!(split(30, 10, None), [None, None], "samples alone are no rate");
    }

    #[test]
    fn lines_with_an_event_of_their_own_stay_as_counted() {
        let mut rates = ThreadRates {
            coherence_remote_per_s: Some(1.0),
            remote_dram_per_s: Some(2.0),
            ..ThreadRates::default()
        };
        let counted = rates;
        Far { caches: 30, memory: 10 }.split(&mut rates);
        assert_eq!(rates, counted);
    }
}
