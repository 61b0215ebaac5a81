//! Pauses of counting: stops and resumes each sensor.
//!
//! Switches of a task with events are slower than those of a task without, even while all events
//! are stopped. The kernel searches a tree for the events that belong on the CPU, and the cache has
//! lost the tree (inferred from its source). Measured (*emulated*, `asymsched-8`) with two threads
//! that sleep at 7,500 barriers a second. They keep 0.82 of their speed while events count, 0.85
//! while events are stopped, and all of it while they are closed. So a pause closes the events and
//! opens them again later. Counters stay open if that would be too many openings, or if they are
//! events of CPUs instead of tasks.

use rondpoint_core::Topology;

use super::counters::TreeCounters;
use super::sampler::{Kind, Rate, Sampler};
use super::sensors::Sensors;
use super::subject::{Start, Subject};
use super::tasks::Births;
use super::uncore::Uncore;
use crate::LinuxError;

/// The way in which counting is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paused {
    /// The events are closed.
    Closed,
    /// The events are stopped.
    Stopped,
}

/// Number of descriptors above which counters are stopped and not closed, because opening each
/// again takes a call (our choice; the cost is not measured).
const MAX_REOPENED: usize = 2048;

impl Paused {
    /// The way for this number of descriptors.
    pub(super) fn of(descriptors: usize) -> Self {
        if descriptors > MAX_REOPENED { Self::Stopped } else { Self::Closed }
    }
}

impl Sensors {
    /// Whether a pause would lower the cost for the program. Fault samples are so few that a pause
    /// gains nothing, and a fault missed in it does not come again soon.
    pub(super) fn can_pause(&self) -> bool {
        let sampled = self.sampler.as_ref().map(|sampler| sampler.kind);
        sampled != Some(Kind::Faults) && (self.counters.is_some() || sampled.is_some())
    }

    /// Stops counting and sampling of the program until [`Sensors::resume`].
    ///
    /// # Errors
    /// As ioctl(2).
    pub(super) fn pause(&mut self) -> Result<(), LinuxError> {
        let counters = self.counters.as_ref().map_or(0, TreeCounters::descriptors);
        let way = if self.all_tasks { Paused::Stopped } else { Paused::of(counters) };
        self.tasks.pause().map_err(|source| failed(true, source))?;
        // Set only now: on an error above no event is to be opened again.
        self.paused = Some(way);
        self.sampler.iter_mut().for_each(Sampler::close);
        match way {
            Paused::Stopped => self.stop(true),
            Paused::Closed => {
                self.counters = None;
                Ok(())
            }
        }
    }

    /// Closes all sensors for good.
    pub(super) fn let_go(&mut self) {
        self.tasks.let_go();
        self.counters = None;
        self.sampler = None;
        self.uncore = Uncore::default();
        self.events.clear();
    }

    /// Resumes counting and sampling. Closed events count from zero.
    ///
    /// # Errors
    /// The kernel refuses an event that it did not refuse before.
    pub(super) fn resume(&mut self, topology: &Topology) -> Result<(), LinuxError> {
        self.tasks.resume().map_err(|source| failed(false, source))?;
        let Some(way) = self.paused.take() else { return Ok(()) };
        let subject = self.subject()?;
        match way {
            Paused::Stopped => self.stop(false)?,
            Paused::Closed if self.counts => {
                let opened = TreeCounters::open(&subject, topology, &self.events, self.room);
                self.counters = Some(opened?.0);
            }
            Paused::Closed => {}
        }
        self.sampler.iter_mut().try_for_each(|sampler| sampler.reopen(&subject, topology))
    }

    /// As [`Observer::watch_all_tasks`](super::Observer::watch_all_tasks). In a pause, counters are
    /// opened at its end.
    pub(super) fn watch_all_tasks(&mut self, topology: &Topology) -> Result<(), LinuxError> {
        if let Some(sampler) = &mut self.sampler {
            sampler.move_rings(&Subject::all_tasks(), topology)?;
        }
        let is_paused = self.paused.is_some();
        if !is_paused {
            self.pause()?;
        }
        self.counters = None;
        (self.all_tasks, self.paused) = (true, Some(Paused::Closed));
        if is_paused { Ok(()) } else { self.resume(topology) }
    }

    fn stop(&mut self, stop: bool) -> Result<(), LinuxError> {
        let stopped = self.counters.iter().try_for_each(|counters| counters.stop(stop));
        stopped.map_err(|source| failed(stop, source))
    }

    /// As [`Observer::set_rate`](super::Observer::set_rate).
    pub(super) fn set_rate(&mut self, rate: Rate, topology: &Topology) -> Result<bool, LinuxError> {
        let sampler = self.sampler.as_ref().filter(|sampler| sampler.kind == Kind::Accesses);
        let Some(sampler) = sampler else { return Ok(false) };
        if !sampler.is_at(rate) {
            let subject = self.subject()?;
            self.sampler
                .iter_mut()
                .try_for_each(|sampler| sampler.set_rate(rate, &subject, topology))?;
        }
        Ok(true)
    }

    /// The present tasks to open events on. A thread that one of them starts before the opening is
    /// missed until events are opened again.
    fn subject(&mut self) -> Result<Subject, LinuxError> {
        if self.all_tasks {
            return Ok(Subject::all_tasks());
        }
        let members = self.tasks.members(Births::default())?;
        let threads: Vec<u32> = members.values().flatten().map(|tid| tid.0).collect();
        Ok(Subject::tasks(&threads, Start::Now))
    }
}

fn failed(stop: bool, source: std::io::Error) -> LinuxError {
    let call = match stop {
        true => "ioctl(PERF_EVENT_IOC_DISABLE)",
        false => "ioctl(PERF_EVENT_IOC_ENABLE)",
    };
    LinuxError::Call { call, attempted: "all counters".to_string(), source }
}
