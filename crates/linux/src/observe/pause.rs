//! Pauses of counting: stops and resumes each sensor.
//!
//! Switches of a task with events are slower than those of a task without, even while all events
//! are stopped. The kernel searches a tree for the events that belong on the CPU, and the cache has
//! lost the tree (inferred from its source). Measured (*emulated*, `asymsched-8`) with two threads
//! that sleep at 7,500 barriers a second. They keep 0.82 of their speed while events count, 0.85
//! while events are stopped, and all of it while they are closed. So a pause closes the events and
//! opens them again later. Counters stay open if that would be too many openings, or if they are
//! events of CPUs instead of tasks.

use std::time::{Duration, Instant};

use rondpoint_core::Topology;
use rondpoint_core::counting_pause::IDLE_CPUS;
use rondpoint_core::observation::Samples;

use super::counters::TreeCounters;
use super::sampler::{Kind, Rate, Sampler};
use super::sensors::Sensors;
use super::subject::{Start, Subject};
use super::tasks::Births;
use super::uncore::Uncore;
use crate::LinuxError;

/// CPUs of all followed processes together below which they are idle (our choice): what the daemon
/// asks of one process before it manages it, `[manage] min_cpus`.
const IDLE_CPUS_OF_ALL: f64 = 0.5;
/// How long all are idle before no more faults are sampled (our choice): as long as a process is
/// idle before it dozes.
const IDLE_FOR: Duration = Duration::from_secs(20);

/// Whether faults of all tasks are worth their cost.
#[derive(Debug, Default)]
pub(super) struct IdleFaults {
    /// Since when all followed processes are idle.
    since: Option<Instant>,
    /// Whether no faults are sampled for that reason.
    rests: bool,
}

impl IdleFaults {
    /// Notes the use in CPUs by a look: the most of one process, and of all. `None`: unknown, as
    /// with a new process. Returns whether no faults are to be sampled.
    fn note(&mut self, used: Option<(f64, f64)>, now: Instant) -> bool {
        let is_idle = used.is_some_and(|(most, all)| most < IDLE_CPUS && all < IDLE_CPUS_OF_ALL);
        self.since = is_idle.then(|| self.since.unwrap_or(now));
        self.since.is_some_and(|since| now.duration_since(since) >= IDLE_FOR)
    }

    /// Begins the time of idleness anew, as for a new tree.
    pub(super) fn wake(&mut self) {
        self.since = None;
    }

    /// Lets the time of idleness pass.
    #[cfg(test)]
    pub(super) fn pass(&mut self) {
        self.since = Instant::now().checked_sub(IDLE_FOR);
    }
}

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
    /// Whether a pause would lower the cost for the program. Fault samples of a program are so few
    /// that a pause gains nothing, and a fault missed in it does not come again soon. For those of
    /// all tasks see [`Sensors::rest_while_idle`].
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

    /// Samples no faults of all tasks while all followed processes are idle. Each fault of any
    /// program is a record to read, which on a busy host is most of a daemon's cost. Samples of
    /// accesses are left to pauses of counting, which the controller asks for.
    pub(super) fn rest_while_idle(&mut self, topology: &Topology) {
        let Some(sampler) = &mut self.sampler else { return };
        let is_alone = self.tasks.first().is_some();
        if sampler.kind != Kind::Faults || !self.all_tasks || is_alone || self.paused.is_some() {
            return;
        }
        let rests = self.idle_faults.note(self.tasks.used_cpus(), Instant::now());
        if rests == std::mem::replace(&mut self.idle_faults.rests, rests) {
            return;
        }
        if rests {
            sampler.close();
        } else if let Err(error) = sampler.reopen_again(&Subject::all_tasks(), topology) {
            // The next look tries again.
            self.idle_faults.rests = true;
            let note = format!("no page faults are sampled: {error}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// Drops the samples of processes that are not followed, and their share of the lost ones.
    /// `dropped`: the number of those that the sampler dropped before. Returns the number of all.
    pub(super) fn keep_ours(&mut self, samples: &mut Samples, dropped: u64) -> u64 {
        let origins = self.tasks.origins();
        let came = samples.list.len() as u64 + dropped;
        // One stays where none is ours: an empty list would tell of a sensor that senses nothing.
        let dropped_one = self.sampler.as_mut().and_then(Sampler::take_stranger);
        let stranger = dropped_one.or_else(|| samples.list.first().copied());
        samples.list.retain(|sample| origins.contains_key(&sample.pid));
        if samples.list.is_empty() {
            samples.list.extend(stranger);
        }
        let ours = samples.list.len() as u64;
        let lost = match came {
            0 => samples.lost,
            _ => (u128::from(samples.lost) * u128::from(ours)).div_ceil(u128::from(came)) as u64,
        };
        let others = came - ours + samples.lost - lost;
        samples.lost = lost;
        if let Some(sampler) = &mut self.sampler {
            sampler.follow(self.tasks.followed());
        }
        others
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
        self.idle_faults = IdleFaults::default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_not_sampled_after_a_time_of_idleness_until_a_process_runs() {
        let mut idle = IdleFaults::default();
        let now = Instant::now();
        let at = |s| now + Duration::from_secs(s);
        let little = Some((0.05, 0.3));
        assert!(!idle.note(little, at(0)) && !idle.note(little, at(19)));
        assert!(idle.note(little, at(20)) && idle.note(little, at(60)));
        for runs in [Some((0.1, 0.1)), Some((0.05, 0.5)), None] {
            let mut idle = IdleFaults { since: Some(at(0)), rests: true };
            assert!(!idle.note(runs, at(60)), "{runs:?}");
            assert!(!idle.note(little, at(61)) && idle.note(little, at(81)));
        }
    }
}
