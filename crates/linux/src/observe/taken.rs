//! What the sampler has collected since the last look.

use std::time::Duration;

use rondpoint_core::observation::Samples;

use super::Observer;
use super::sampler::{Kind, TaskNews};

/// Samples and task records since the last look.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) samples: Option<(Kind, Samples)>,
    pub(super) news: TaskNews,
    /// Number of samples of other processes, which it dropped.
    pub(super) dropped: u64,
    /// CPU time that reading the samples took.
    pub(super) reading: Duration,
}

impl Observer {
    pub(super) fn take_samples(&mut self) -> Taken {
        let Some(sampler) = &mut self.sensors.sampler else { return Taken::default() };
        let reading = sampler.take_reading();
        let (samples, news) = sampler.take();
        let dropped = sampler.take_dropped();
        self.sensors.notes.extend(sampler.take_lost_counter());
        Taken { samples: Some((sampler.kind, samples)), news, dropped, reading }
    }
}
