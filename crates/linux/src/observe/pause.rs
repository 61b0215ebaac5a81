//! Pauses of counting: how each sensor stops, and how it goes on.
//!
//! A task that has events is switched more slowly than one that has none, also while all of them are stopped: the kernel looks for those
//! that belong on the CPU in a tree that has gone cold meanwhile (inferred from its source). Measured (*emulated*, `asymsched-8`, two threads that sleep at 7,500
//! barriers a second): 0.82 of the speed without us while events count, 0.85 while they are stopped, 1.00 while they are
//! closed. So they are closed and opened anew, unless that were too many openings, or they are not the tasks' but the CPUs'.

use rondpoint_core::Topology;

use super::counters::TreeCounters;
use super::sampler::{Kind, Sampler};
use super::sensors::Sensors;
use super::subject::{Start, Subject};
use super::tasks::Births;
use crate::LinuxError;

/// How counting was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paused {
    /// The events are closed.
    Closed,
    /// They are stopped.
    Stopped,
}

/// Above so many descriptors events are stopped and not closed: each takes a call of the manager to open again (our choice;
/// what that costs was not measured by itself).
const MAX_REOPENED: usize = 2048;

impl Paused {
    /// The way for so many descriptors.
    pub(super) fn of(descriptors: usize) -> Self {
        if descriptors > MAX_REOPENED { Self::Stopped } else { Self::Closed }
    }
}

impl Sensors {
    /// Whether there is something that a rest would spare the program. Faults are so few that it would gain nothing, and what is not
    /// sampled is not seen again for long.
    pub(super) fn can_pause(&self) -> bool {
        let sampled = self.sampler.as_ref().map(|sampler| sampler.kind);
        sampled != Some(Kind::Faults) && (self.counters.is_some() || sampled.is_some())
    }

    /// Ends all that is counted of the program, and sampled, until [`Sensors::resume`].
    ///
    /// # Errors
    /// As ioctl(2).
    pub(super) fn pause(&mut self) -> Result<(), LinuxError> {
        let counters = self.counters.as_ref().map_or(0, TreeCounters::descriptors);
        let samples = self.sampler.as_ref().map_or(0, Sampler::open_events);
        let way = if self.everybody { Paused::Stopped } else { Paused::of(counters + samples) };
        self.tasks.pause().map_err(|source| failed(true, source))?;
        // Not before: what was not closed is not to be opened again.
        self.paused = Some(way);
        if way == Paused::Stopped {
            return self.stop(true);
        }
        self.counters = None;
        self.sampler.iter_mut().for_each(Sampler::close);
        Ok(())
    }

    /// Lets it go on. What was closed counts from nothing.
    ///
    /// # Errors
    /// An event is refused that was not before.
    pub(super) fn resume(&mut self, topology: &Topology) -> Result<(), LinuxError> {
        self.tasks.resume().map_err(|source| failed(false, source))?;
        match self.paused.take() {
            None => Ok(()),
            Some(Paused::Stopped) => self.stop(false),
            Some(Paused::Closed) => self.reopen(topology),
        }
    }

    fn stop(&mut self, stop: bool) -> Result<(), LinuxError> {
        let call = |source| failed(stop, source);
        self.counters.iter().try_for_each(|counters| counters.stop(stop)).map_err(call)?;
        self.sampler.iter_mut().try_for_each(|sampler| sampler.stop(stop)).map_err(call)
    }

    fn reopen(&mut self, topology: &Topology) -> Result<(), LinuxError> {
        let members = self.tasks.members(Births::default())?;
        let threads: Vec<u32> = members.values().flatten().map(|tid| tid.0).collect();
        let subject = Subject::tasks(&threads, Start::Now);
        if self.counts {
            let opened = TreeCounters::open(&subject, topology, &self.events, self.room);
            self.counters = Some(opened?.0);
        }
        self.sampler.iter_mut().try_for_each(|sampler| sampler.reopen(&subject, topology))
    }
}

fn failed(stop: bool, source: std::io::Error) -> LinuxError {
    let call = match stop {
        true => "ioctl(PERF_EVENT_IOC_DISABLE)",
        false => "ioctl(PERF_EVENT_IOC_ENABLE)",
    };
    LinuxError::Call { call, attempted: "all events".to_string(), source }
}
