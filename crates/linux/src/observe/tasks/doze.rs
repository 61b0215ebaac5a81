//! Processes that doze: they have hardly run for long, and nothing of them was changed.
//!
//! A look reads their CPU clocks and leaves them out of the observation. So the model, the policies
//! and the actuator spend nothing on thousands of idle processes. The look that finds a process
//! running has it in its observation. Between two looks a glance tells of it.

use std::time::{Duration, Instant};

use rondpoint_core::observation::ProcessObservation;
use rondpoint_core::{Nanos, Pid};

use super::still::hardly;
use super::{Process, Tasks};

/// Time without running after which a process dozes (our choice). The watch of a wait remembers the
/// use of CPUs for 16 s at most.
const AFTER: Duration = Duration::from_secs(20);

/// How long a process has hardly run.
#[derive(Debug)]
pub(super) struct Doze {
    /// CPU time when it had last run more than hardly.
    clock: Option<Nanos>,
    since: Instant,
    /// Whether its threads or memory were ever moved. The controller must then know of it.
    was_changed: bool,
}

impl Doze {
    /// Of a process that has just run.
    pub(super) fn new(clock: Option<Nanos>) -> Self {
        Self { clock, since: Instant::now(), was_changed: false }
    }

    /// Notes the CPU time of a process with so many threads.
    pub(super) fn look(&mut self, clock: Option<Nanos>, threads: usize) {
        if self.has_run(clock, threads) {
            (self.clock, self.since) = (clock, Instant::now());
        }
    }

    fn has_run(&self, clock: Option<Nanos>, threads: usize) -> bool {
        let times = clock.zip(self.clock);
        times.is_none_or(|(now, before)| now.0.wrapping_sub(before.0) > hardly(threads).0)
    }

    /// The process was changed: it never dozes.
    pub(super) fn change(&mut self) {
        self.was_changed = true;
    }

    /// Lets the time pass until it dozes.
    #[cfg(test)]
    pub(super) fn pass(&mut self) {
        self.since = Instant::now().checked_sub(AFTER).expect("the machine is up for so long");
    }
}

impl Process {
    /// `is_let`: the observer lets processes doze.
    fn dozes(&self, is_let: bool) -> bool {
        is_let && !self.doze.was_changed && self.doze.since.elapsed() >= AFTER
    }
}

impl Tasks {
    /// Whether a process dozes. One tree alone does not: its processes are few, and reports name
    /// each of them.
    pub(super) fn dozes(&self, process: &Process) -> bool {
        process.dozes(self.lets_rest && self.family.first().is_none())
    }

    /// What is known of a process that dozes.
    pub fn dozing(&self, pid: Pid) -> Option<&ProcessObservation> {
        let process = self.processes.get(&pid)?;
        self.dozes(process).then_some(&process.last)
    }

    /// Whether a process with this CPU time dozed and has begun to run.
    pub fn is_awakened(&self, pid: Pid, clock: Nanos) -> bool {
        self.processes.get(&pid).is_some_and(|process| {
            self.dozes(process) && process.doze.has_run(Some(clock), process.threads.len())
        })
    }
}
