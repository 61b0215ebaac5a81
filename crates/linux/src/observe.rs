//! Observes a running program and the machine: reads counters, samples and `/proc` into one
//! [`Observation`] after the other.
//!
//! It uses the best sensor of the machine. [`Observer::notes`] has a sentence for each missing one.
//! No rates are computed here: counts and samples go into the observation as they are read.

mod buffer;
mod copies;
pub mod counters;
mod cpu_ring;
mod glance;
mod inherited;
pub mod kernel;
pub mod machine;
mod maps;
mod metrics;
pub mod offers;
mod pause;
pub mod sampler;
pub mod sensors;
mod shared;
pub mod subject;
mod taken;
pub mod tasks;
pub mod threads;
pub mod translation;
mod uncore;
mod unseen;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rondpoint_core::counting_pause::Glance;
use rondpoint_core::observation::{Observation, ProcessObservation, Samples};
use rondpoint_core::{Nanos, Pid, Tid};

use crate::kept::Kept;
use crate::parse::fields;
use crate::perf::generation::Metric;
use crate::root::{self, Root};
use crate::syscall::time::since_boot_ns;
use crate::topology::Discovered;
use crate::{LinuxError, probe};
use counters::CpuReading;
use kernel::{FreeMemory, numa_statistics};
use sampler::{Kind, Rate, Sampler, TaskNews};
pub use sensors::{Rung, Settings, samples_accesses};
use sensors::{Scope, Sensors};
use subject::Start;
use taken::Taken;
use tasks::Births;

/// Most names of threads that one look reads from `/proc` (our choice).
const MOST_NAMES: usize = 256;
/// The next reading of a process's mappings waits this many times the duration of the last one.
/// Readings therefore take at most 0.2 % of the time (our choice).
const REST: u32 = 500;

/// Turns an error for a missing right into `None`.
fn unless_denied<T>(read: Result<T, LinuxError>) -> Result<Option<T>, LinuxError> {
    match read {
        Err(error) if error.is_denied() => Ok(None),
        other => other.map(Some),
    }
}

/// An observer of one program, or of several that come and go.
pub struct Observer {
    root: Root,
    machine: Discovered,
    sensors: Sensors,
    free_memory: FreeMemory,
    uptime: Kept,
    names: BTreeMap<Tid, String>,
    /// Whether records of births were lost before the last look.
    lost: bool,
    last: Vec<CpuReading>,
    /// Whether counting ran without a pause since the last look.
    rested: bool,
}

/// The result of [`Observer::observe`]: the observation, and data for display.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// Observation for the model.
    pub observation: Observation,
    /// The values of a glance, for a manager.
    pub glance: Glance,
    /// Counts of the whole tree by CPU since counting began.
    pub readings: Vec<CpuReading>,
    /// The kernel's counters about NUMA (`/proc/vmstat`); empty for a manager.
    pub vmstat: BTreeMap<String, u64>,
    /// Number of malformed records in the rings.
    pub bad_records: u64,
    /// CPU time spent on reading samples since the last look.
    pub reading_samples: Duration,
    /// Samples of processes that are not followed, kept in no list. Lost ones are in it by their
    /// share.
    pub samples_of_others: u64,
}

impl Observer {
    /// Opens all available sensors for `first` and its descendants. `start`: whether the program is
    /// about to call `execve` or already runs.
    ///
    /// # Errors
    /// The process does not exist, or `/proc` cannot be read. Missing sensors are no error.
    pub fn open(
        root: Root,
        machine: Discovered,
        first: Pid,
        start: Start,
        settings: &Settings,
    ) -> Result<Self, LinuxError> {
        Self::of(root, machine, Scope::Tree(first, start), settings)
    }

    /// Opens all available sensors of the whole machine, for trees of processes that come and go.
    /// [`Observer::follow`] sets the trees.
    ///
    /// # Errors
    /// `/proc` cannot be read. Missing sensors are no error.
    pub fn open_for_many(
        root: Root,
        machine: Discovered,
        settings: &Settings,
    ) -> Result<Self, LinuxError> {
        Self::of(root, machine, Scope::Many, settings)
    }

    fn of(
        root: Root,
        machine: Discovered,
        scope: Scope,
        settings: &Settings,
    ) -> Result<Self, LinuxError> {
        let sensors = sensors::open(&root, &machine, scope, settings)?;
        let free_memory = FreeMemory::with_page_cache(&root, &machine.topology);
        let uptime = Kept::new(root.in_proc("uptime"), true);
        Ok(Self {
            root,
            machine,
            sensors,
            free_memory,
            uptime,
            names: BTreeMap::new(),
            lost: false,
            last: Vec::new(),
            rested: false,
        })
    }

    /// Sentences about missing sensors, with the causes.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.sensors.notes
    }

    /// Sets the trees to observe, by their roots with start times. Processes in `left` and their
    /// descendants are left out.
    pub fn follow(&mut self, roots: BTreeMap<Pid, Nanos>, left: BTreeSet<Pid>) {
        if let Some(sampler) = &mut self.sensors.sampler {
            sampler.follow_too(roots.keys().copied());
        }
        let followed: BTreeSet<Pid> = self.sensors.tasks.followed().collect();
        if !roots.keys().all(|root| followed.contains(root)) {
            self.sensors.idle_faults.wake();
        }
        self.sensors.tasks.follow(roots, left);
    }

    /// Tells of `(parent, child)` of processes as just read, for trees that come and go. A caller
    /// that reads the parent of every process now and then spares the observer all lists of
    /// children. The next look asks again for the parent of each process that is missing.
    pub fn tell_parents(&mut self, pairs: &[(Pid, Pid)]) {
        self.sensors.sampler.iter_mut().for_each(|sampler| sampler.tell_parents(pairs));
        self.sensors.tasks.tell_parents(pairs);
    }

    /// The root of each process at the last look.
    #[must_use]
    pub fn origins(&self) -> &BTreeMap<Pid, Pid> {
        self.sensors.tasks.origins()
    }

    /// Processes that have hardly run since their files were read, by the last look.
    #[must_use]
    pub fn still(&self) -> &BTreeSet<Pid> {
        self.sensors.tasks.still_ones()
    }

    /// CPU time of a process at the last look; `None` if it was not observed.
    #[must_use]
    pub fn cpu_time(&self, pid: Pid) -> Option<Nanos> {
        self.sensors.tasks.cpu_time_of_look(pid)
    }

    /// What is known of a process that the last look left out of the observation, because it has
    /// hardly run for long.
    #[must_use]
    pub fn dozing(&self, pid: Pid) -> Option<&ProcessObservation> {
        self.sensors.tasks.dozing(pid)
    }

    /// Reads a process in the next look even if it does not run, because it was changed.
    pub fn look_again_at(&mut self, pid: Pid) {
        self.sensors.tasks.look_again_at(pid);
    }

    /// Reads every process in the next look.
    pub fn look_again_at_all(&mut self) {
        self.sensors.tasks.look_again_at_all();
    }

    /// Takes the list of processes that may not be read, with the kernel's errors.
    pub fn take_refused(&mut self) -> BTreeMap<Pid, String> {
        std::mem::take(&mut self.sensors.tasks.refused)
    }

    /// Roots of the trees that have more processes or threads than their share of what this
    /// observer follows.
    #[must_use]
    pub fn seen_in_part(&self) -> BTreeSet<Pid> {
        self.sensors.tasks.seen_in_part()
    }

    /// The discovered machine.
    #[must_use]
    pub fn machine(&self) -> &Discovered {
        &self.machine
    }

    /// Name of the event table in use.
    #[must_use]
    pub fn generation(&self) -> &str {
        &self.sensors.generation
    }

    /// Kind of the samples; `None` without a sampler.
    #[must_use]
    pub fn sampled(&self) -> Option<Kind> {
        self.sensors.sampler.as_ref().map(|sampler| sampler.kind)
    }

    /// Whether counts and samples are those of all tasks on the machine, because the program is too
    /// large to be counted by itself.
    #[must_use]
    pub fn watches_all_tasks(&self) -> bool {
        self.sensors.all_tasks
    }

    /// The counted metrics.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        self.sensors
            .counters
            .as_ref()
            .map(|counters| counters.metrics().collect())
            .unwrap_or_default()
    }

    /// Number of sampled faults on pages without an earlier sample; 0 for a manager.
    #[must_use]
    pub fn first_touches(&self) -> u64 {
        self.sensors.sampler.as_ref().map_or(0, |sampler| sampler.first_touches)
    }

    /// The last known name of a thread.
    #[must_use]
    pub fn name(&self, tid: Tid) -> Option<&str> {
        self.names.get(&tid).map(String::as_str)
    }

    /// Descriptors that become readable when [`Observer::drain`] should be called.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sensors.sampler.iter().flat_map(Sampler::descriptors)
    }

    /// Sets the sampling rate. Returns whether there is a sampler with an adjustable rate.
    ///
    /// # Errors
    /// The kernel refuses an event. Nothing is sampled then.
    pub fn set_rate(&mut self, rate: Rate) -> Result<bool, LinuxError> {
        self.sensors.set_rate(rate, &self.machine.topology)
    }

    /// Lowers all sampling rates by a level. Returns false if there is no lower one.
    pub fn lower_rate(&mut self) -> bool {
        self.sensors.sampler.as_mut().is_some_and(Sampler::lower)
    }

    /// Raises all sampling rates by a level from the next [`Observer::set_rate`] on. Returns false
    /// if they were not lowered.
    pub fn raise_rate(&mut self) -> bool {
        self.sensors.sampler.as_mut().is_some_and(Sampler::raise)
    }

    /// Whether a pause would lower the cost for the program.
    #[must_use]
    pub fn can_pause(&self) -> bool {
        self.sensors.can_pause()
    }

    /// Stops counting and sampling. Until [`Observer::resume`] a look reads only `/proc` and
    /// counters that are not the program's.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn pause(&mut self) -> Result<(), LinuxError> {
        self.sensors.pause()
    }

    /// Resumes counting and sampling. The next look begins a new window.
    ///
    /// # Errors
    /// The kernel refuses an event that it did not refuse before.
    pub fn resume(&mut self) -> Result<(), LinuxError> {
        self.rested = true;
        self.last.clear();
        self.sensors.resume(&self.machine.topology)
    }

    /// Closes all events and rings for good. Processes and threads are still observed.
    pub fn let_go(&mut self) {
        self.sensors.let_go();
    }

    /// Whether the events that new tasks inherit cost the program too much, and counts of all tasks
    /// on the machine could replace them.
    #[must_use]
    pub fn inheriting_costs_much(&self) -> bool {
        let Sensors { managing, all_tasks, inherited, .. } = &self.sensors;
        let names_tasks = !self.sensors.sampler.as_ref().is_some_and(Sampler::needs_tasks);
        *managing && !*all_tasks && names_tasks && inherited.cost_much()
    }

    /// Counts and samples all tasks on the machine from now on, so that no task inherits events.
    /// The next look begins a new window.
    ///
    /// # Errors
    /// That is not allowed, and nothing changes. Or the kernel refuses an event that it did not
    /// refuse before.
    pub fn watch_all_tasks(&mut self) -> Result<(), LinuxError> {
        self.sensors.inherited.forget();
        probe::whole_cpu()?;
        self.rested = true;
        self.last.clear();
        self.sensors.watch_all_tasks(&self.machine.topology)
    }

    /// Empties the rings, and reads nothing else.
    pub fn drain(&mut self) {
        self.sensors.sampler.iter_mut().for_each(Sampler::drain);
    }

    /// The kernel's counters about NUMA (`/proc/vmstat`).
    ///
    /// # Errors
    /// The file is malformed.
    pub fn kernel_statistics(&self) -> Result<BTreeMap<String, u64>, LinuxError> {
        numa_statistics(&self.root)
    }

    /// The births that records tell of. `lost`: whether some of them were lost.
    fn births<'a>(&mut self, news: &'a TaskNews, lost: bool) -> Births<'a> {
        // The kernel may tell of lost records only with a later one.
        let may_miss = lost | std::mem::replace(&mut self.lost, lost) | (news.bad_records > 0);
        Births { known: &news.born, all: !may_miss }
    }

    /// Reads all sensors and `/proc` once.
    ///
    /// # Errors
    /// `/proc` or an open counter cannot be read.
    pub fn observe(&mut self) -> Result<Look, LinuxError> {
        self.drain();
        let Taken { mut samples, news, dropped, reading: reading_samples } = self.take_samples();
        let lost = samples.as_ref().is_none_or(|(_, samples)| samples.lost > 0);
        let births = self.births(&news, lost);
        let topology = &self.machine.topology;
        // With samples of all tasks, a new task belongs to no program until its parent is known.
        let of_program = self.sensors.sampler.is_some() && !self.sensors.all_tasks;
        let born = of_program.then_some(news.births);
        self.sensors.inherited.add(Nanos(since_boot_ns()), born.unwrap_or(0));
        // Glances compare requests and CPU clocks over the same time, so both are read at once.
        let mut machine_traffic = self.sensors.uncore.traffic(topology)?;
        let controller_lines = self.sensors.uncore.controller_lines()?;
        let mut processes = self.sensors.tasks.observe(topology, births)?;
        let all = self.sensors.all_tasks || self.sensors.tasks.first().is_none();
        let samples_of_others = match samples.as_mut().filter(|_| all) {
            Some((_, samples)) => self.sensors.keep_ours(samples, dropped),
            None => 0,
        };
        self.sensors.rest_while_idle(topology);
        // A manager shows no names, and the names of all programs that ever ran have no limit.
        if !self.sensors.managing {
            self.names.extend(news.names);
            let is_told = self.sensors.sampler.is_some();
            read_names(&self.root, &processes, is_told, &mut self.names);
        }
        if let Some(counters) = &mut self.sensors.counters {
            self.last = counters.read()?;
            // The ring of a CPU that was off is lost too.
            let samplers = self.sensors.sampler.iter_mut();
            samplers.for_each(|sampler| sampler.rings_are_lost(counters.reopened()));
        }
        let glance = match self.sensors.managing {
            true => self.glance_of_look(machine_traffic.as_ref(), controller_lines.as_deref()),
            false => Glance::default(),
        };
        let counted = counters::node_traffic(&self.last, topology);
        // Counts of a tree with several processes belong to none of them alone. Samples name the
        // process.
        let shared = self.sensors.managing && processes.len() > 1;
        if self.sensors.all_tasks || shared {
            machine_traffic = machine_traffic.or(counted);
        } else if let Some(first) = self.sensors.tasks.first()
            && let Some(process) = processes.iter_mut().find(|process| process.pid == first)
        {
            process.node_traffic = counted;
            process.counters = counters::of_process(&self.last);
        }
        // Samples of all tasks do not show which threads are the program's. Its forks do.
        if let Some((_, samples)) = samples.as_ref().filter(|_| !self.sensors.all_tasks) {
            unseen::add_unseen(&mut processes, &samples.list, topology);
        }
        let (samples, hint_faults) = split(samples);
        let observation = Observation {
            at: Nanos(since_boot_ns()),
            after_pause: std::mem::take(&mut self.rested),
            node_traffic: machine_traffic,
            controller_lines,
            link_bytes: self.sensors.uncore.link_bytes()?,
            free_memory: self.free_memory.read(topology)?,
            births: born,
            processes,
            samples,
            hint_faults,
        };
        Ok(Look {
            observation,
            glance,
            readings: self.last.clone(),
            // The file is long and for display only, and a manager looks often.
            vmstat: match self.sensors.managing {
                true => BTreeMap::new(),
                false => self.kernel_statistics()?,
            },
            bad_records: news.bad_records,
            reading_samples,
            samples_of_others,
        })
    }
}

/// Reads the names of threads without a name record, as on machines without a sampler. Without
/// records it reads all names in each look, because threads may change them.
fn read_names(
    root: &Root,
    processes: &[ProcessObservation],
    is_told: bool,
    names: &mut BTreeMap<Tid, String>,
) {
    let threads = processes
        .iter()
        .flat_map(|process| process.threads.iter().map(|thread| (process.pid, thread.tid)));
    for (pid, tid) in threads.take(MOST_NAMES) {
        if is_told && names.contains_key(&tid) {
            continue;
        }
        let path = root.in_proc(format!("{pid}/task/{tid}/comm"));
        if let Ok(Some(name)) = root::read_optional(&path) {
            let name = String::from_utf8_lossy(fields::trim(&name)).into_owned();
            names.insert(tid, name);
        }
    }
}

fn split(samples: Option<(Kind, Samples)>) -> (Option<Samples>, Option<Samples>) {
    match samples {
        Some((Kind::Accesses, samples)) => (Some(samples), None),
        Some((Kind::Faults, samples)) => (None, Some(samples)),
        None => (None, None),
    }
}

#[cfg(test)]
mod tests;
