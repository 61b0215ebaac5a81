//! Opens the sensors of a program: the best of the machine, or the kind that the user requested.
//! Makes a sentence for each missing sensor.

use std::time::Duration;

use rondpoint_core::Pid;

use super::counters::TreeCounters;
use super::inherited::Inherited;
use super::kernel::{first_touches_only, paranoid_level, physical_map, watchdog_counts};
use super::metrics::{chosen, note_of_watchdog, room};
use super::pause::{IdleFaults, Paused};
use super::sampler::{Kind, Plan, Sampler};
use super::subject::{Start, Subject};
use super::tasks::{Births, Tasks};
use super::threads::ThreadPlan;
use super::translation::Translation;
use super::uncore::{Missing, Uncore};
use crate::perf::attr::flag;
use crate::perf::event::advice;
use crate::perf::generation::{Available, Generation, Metric};
use crate::perf::pmu::{Event, Pmus};
use crate::probe::holds_perfmon;
use crate::root::Root;
use crate::topology::Discovered;
use crate::{LinuxError, probe};

/// A level of sensing that the user can force, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Counters and address samples.
    Samples,
    /// Counters only.
    Counters,
    /// Page faults only, as on a machine without a PMU.
    Faults,
    /// Only `/proc`.
    Statistics,
}

/// Settings of the sensors.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Events per address sample; `None`: the value of the processor's table.
    pub period: Option<u64>,
    /// Metrics to count; `None`: the default set.
    pub metrics: Option<Vec<Metric>>,
    /// Metrics to count for each thread, beside instructions and cycles.
    pub threads: Vec<Metric>,
    /// The only rung to use; `None`: the best available.
    pub rung: Option<Rung>,
    /// Longest time for which a look may hold the map lock of a process, to read its memory
    /// policies; `None`: 26 ms. Mappings that take longer stay unread.
    pub map_lock: Option<Duration>,
    /// Whether the sensors are for a manager: sampling can be slowed and stopped. Counts of the
    /// tree belong to its process only while there is no other.
    pub managing: bool,
}

impl Settings {
    pub(super) fn counts(&self) -> bool {
        matches!(self.rung, None | Some(Rung::Samples | Rung::Counters))
    }

    pub(super) fn samples(&self) -> bool {
        matches!(self.rung, None | Some(Rung::Samples | Rung::Faults))
    }
}

/// Number of levels for a manager: full, cheap and idle. A program with too many samples at the
/// full rate uses the last two.
const MANAGED_LEVELS: usize = 3;

/// The open sensors.
pub(super) struct Sensors {
    pub(super) tasks: Tasks,
    pub(super) counters: Option<TreeCounters>,
    pub(super) sampler: Option<Sampler>,
    pub(super) uncore: Uncore,
    pub(super) generation: String,
    pub(super) notes: Vec<String>,
    /// Whether events are those of all tasks on the machine, not only of the program.
    pub(super) all_tasks: bool,
    /// Cost of the events that new tasks inherit.
    pub(super) inherited: Inherited,
    /// As [`Settings::managing`].
    pub(super) managing: bool,
    /// Events to count for the whole tree; `room` is the number of counters for them.
    pub(super) events: Vec<(Metric, Event)>,
    pub(super) room: usize,
    /// Whether events are counted at all.
    pub(super) counts: bool,
    pub(super) paused: Option<Paused>,
    pub(super) idle_faults: IdleFaults,
}

struct Opening<'a> {
    root: &'a Root,
    machine: &'a Discovered,
    settings: &'a Settings,
    available: Available,
    events: Vec<(Metric, Event)>,
    /// Programmable counters that sampling and the kernel's watchdog leave free.
    room: usize,
}

/// Sensors opened on a subject.
struct Opened {
    subject: Subject,
    counters: Option<TreeCounters>,
    sampler: Option<Sampler>,
    notes: Vec<String>,
}

/// Most openings of the sensors on a tree that has a new thread each time (our choice). An opening
/// takes a few milliseconds, in which most programs start no process.
const MOST_OPENINGS: u32 = 5;

/// The processes for which sensors are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The tree of an existing process.
    Tree(Pid, Start),
    /// Trees that come and go, with events of all tasks on the machine.
    Many,
}

/// Opens all available sensors.
///
/// # Errors
/// The process does not exist, or `/proc` cannot be read. Missing sensors are no error.
pub(super) fn open(
    root: &Root,
    machine: &Discovered,
    scope: Scope,
    settings: &Settings,
) -> Result<Sensors, LinuxError> {
    let available = available(root, machine)?;
    let topology = &machine.topology;
    let watchdog = watchdog_counts(root, &machine.identity);
    let room = room(&available, settings, watchdog);
    let mut notes = Vec::new();
    // This comes before the search for processes. The kernel's first event of a task takes tens of
    // milliseconds to open (`account_event`, kernel/events/core.c).
    let plan = settings.counts().then(|| thread_plan(root, &available, settings, room, &mut notes));
    let tasks = match scope {
        Scope::Tree(first, _) => Tasks::new(root.clone(), first, plan),
        Scope::Many => Tasks::without_processes(root.clone(), plan),
    };
    let mut tasks = tasks.with_map_lock(settings.map_lock);
    tasks.lets_rest = settings.managing;
    let events = chosen(&available, settings);
    // Two more events: the clock, and the owner of the ring.
    let sampled = available.sample.len() + usize::from(available.buffer.is_some());
    let each_cpu = events.len() + sampled + 2;
    let inherited = Inherited::of(each_cpu * topology.cpu_count());
    let opening = Opening { root, machine, settings, available, events, room };
    let opened = match scope {
        Scope::Tree(first, start) => {
            opening.settle(start, each_cpu, || threads(&mut tasks, first))?
        }
        Scope::Many => opening.open_on(Subject::all_tasks())?,
    };
    notes.extend(opened.notes);
    if topology.node_count() == 1 {
        notes.push(
            "this machine has one memory node: every access is local, there is no traffic between \
             nodes to see"
                .to_string(),
        );
    }
    let is_counted = opened.counters.as_ref().is_some_and(|all| all.metrics().next().is_some());
    if watchdog && is_counted {
        notes.extend(note_of_watchdog(&opening.available, settings, room));
    }
    let uncore = match settings.counts() {
        true => opening.uncore(&mut notes),
        false => Uncore::default(),
    };
    let Opening { available, events, .. } = opening;
    Ok(Sensors {
        tasks,
        counters: opened.counters,
        sampler: opened.sampler,
        uncore,
        generation: available.generation,
        notes,
        all_tasks: opened.subject.is_all_tasks(),
        inherited,
        managing: settings.managing,
        events,
        room,
        counts: settings.counts(),
        paused: None,
        idle_faults: IdleFaults::default(),
    })
}

fn available(root: &Root, machine: &Discovered) -> Result<Available, LinuxError> {
    let (pmus, _) = Pmus::discover(root)?;
    let topology = &machine.topology;
    let nodes: Vec<u32> =
        topology.memory_nodes().iter().map(|node| topology.kernel_node(node)).collect();
    Ok(Generation::choose(&pmus, &machine.identity).resolve(&pmus, &nodes))
}

/// Whether accesses of all tasks can be sampled on this machine, not only page faults.
#[must_use]
pub fn samples_accesses(root: &Root, machine: &Discovered) -> bool {
    available(root, machine).is_ok_and(|available| {
        let sampled = |event| probe::sampling_of_cpu(event, available.period).is_ok();
        available.sample.iter().chain(&available.buffer).any(sampled)
    })
}

/// All threads of the tree.
fn threads(tasks: &mut Tasks, first: Pid) -> Result<Vec<u32>, LinuxError> {
    let mut threads = Vec::new();
    for tids in tasks.members(Births::default())?.values() {
        threads.extend(tids.iter().map(|tid| tid.0));
    }
    if threads.is_empty() {
        let what = format!("process {first}");
        return Err(LinuxError::Input { what, problem: "there is no such process".to_string() });
    }
    Ok(threads)
}

/// The events to count on every thread that the processor has and the kernel opens. Adds notes
/// about the others, with causes that a user can remove.
fn thread_plan(
    root: &Root,
    available: &Available,
    settings: &Settings,
    room: usize,
    notes: &mut Vec<String>,
) -> ThreadPlan {
    let mut events = Vec::new();
    let mut missing: Vec<(Metric, Option<i32>)> = Vec::new();
    for &wanted in &settings.threads {
        let found = available.core.iter().find(|(metric, _)| metric.same_kind(wanted));
        match found.map(|(metric, event)| (metric, event, probe::event(event))) {
            Some((metric, event, Ok(()))) => events.push((*metric, event.clone())),
            Some((_, _, Err(error))) => missing.push((wanted, error.errno())),
            None => missing.push((wanted, None)),
        }
    }
    // Without any counter, another note covers all of them.
    if !missing.is_empty() && !events.is_empty() {
        let names: Vec<String> = missing.iter().map(|(metric, _)| metric.name()).collect();
        let refused = missing.iter().find_map(|(_, errno)| *errno);
        let why = match refused {
            Some(errno) => advice(Some(errno), paranoid_level(root), holds_perfmon(root)),
            None => "this machine has no such events".to_string(),
        };
        notes.push(format!("not counted for single threads: {} ({why})", names.join(", ")));
    }
    ThreadPlan::new(&events, room)
}

/// The tasks to open events on: the program's, or all tasks if the program would have too many
/// events and all tasks may be counted.
fn subject(
    threads: &[u32],
    start: Start,
    machine: &Discovered,
    events: usize,
    notes: &mut Vec<String>,
) -> Subject {
    // Each thread has events for instructions and cycles.
    const OWN_EVENTS: usize = 2;
    let tasks = Subject::tasks(threads, start);
    let cpus = machine.topology.cpu_count();
    if !tasks.is_too_much(events + OWN_EVENTS, cpus) || probe::whole_cpu().is_err() {
        return tasks;
    }
    notes.push(format!(
        "{} threads on {cpus} CPUs are too many to count each: counts are those of the whole machine",
        threads.len()
    ));
    Subject::all_tasks()
}

/// The note where [`Opening::samples_whole_cpus_alone`].
const ONLY_WHOLE_CPUS: &str = "this kernel samples AMD's IBS on whole CPUs only (single programs \
    from Linux 6.2 on): counts are those of the whole machine";

/// Whether the kernel takes an event on a CPU, and not on a task for a reason other than rights.
fn only_of_cpus(
    of_task: Result<(), LinuxError>,
    of_cpu: impl FnOnce() -> Result<(), LinuxError>,
) -> bool {
    of_task.is_err_and(|error| error.errno() == Some(libc::EINVAL)) && of_cpu().is_ok()
}

impl Opening<'_> {
    /// Opens all sensors on the threads that `list` finds; their descendants inherit the events.
    ///
    /// A thread that starts between the listing of a running tree and the opening has no events,
    /// nor have its descendants. All sensors are then opened again.
    fn settle(
        &self,
        start: Start,
        each_cpu: usize,
        mut list: impl FnMut() -> Result<Vec<u32>, LinuxError>,
    ) -> Result<Opened, LinuxError> {
        let of_cpus = self.samples_whole_cpus_alone();
        let mut listed = list()?;
        let mut openings = 1;
        loop {
            let mut notes = Vec::new();
            let subject = if of_cpus {
                notes.push(ONLY_WHOLE_CPUS.to_string());
                Subject::all_tasks()
            } else {
                subject(&listed, start, self.machine, each_cpu, &mut notes)
            };
            let mut opened = self.open_on(subject)?;
            opened.notes.splice(0..0, notes);
            // A task starts no other before `execve`.
            let is_last = start == Start::OnExec || openings == MOST_OPENINGS;
            if is_last || opened.subject.is_all_tasks() {
                return Ok(opened);
            }
            let Ok(now) = list() else { return Ok(opened) };
            if now.iter().all(|thread| listed.contains(thread)) {
                return Ok(opened);
            }
            listed = now;
            openings += 1;
        }
    }

    /// Whether a manager gets samples of accesses of whole CPUs alone. Kernels before 6.2 sample
    /// AMD's IBS so (`task_ctx_nr` of `perf_ibs_op`, arch/x86/events/amd/ibs.c). Without a manager,
    /// counts of the program alone are worth more than samples.
    fn samples_whole_cpus_alone(&self) -> bool {
        let Settings { managing, rung, .. } = self.settings;
        let may_sample = *managing && matches!(rung, None | Some(Rung::Samples));
        let period = self.available.sampling_period(self.settings.period);
        let outside = |event: &&Event| !self.available.is_of_core(event);
        self.available.sample.iter().find(outside).filter(|_| may_sample).is_some_and(|event| {
            let of_cpu = || probe::sampling_of_cpu(event, period).map(drop);
            only_of_cpus(probe::sampling(event, period).map(drop), of_cpu)
        })
    }

    fn open_on(&self, subject: Subject) -> Result<Opened, LinuxError> {
        let mut opened = Opened { subject, counters: None, sampler: None, notes: Vec::new() };
        opened.counters = self.counters(&mut opened);
        opened.sampler = self.sampler(&mut opened)?;
        Ok(opened)
    }

    fn sentence(&self, errno: Option<i32>) -> String {
        advice(errno, paranoid_level(self.root), holds_perfmon(self.root))
    }

    fn counters(&self, Opened { subject, notes, .. }: &mut Opened) -> Option<TreeCounters> {
        if !self.settings.counts() {
            return None;
        }
        match TreeCounters::open(subject, &self.machine.topology, &self.events, self.room) {
            Ok((counters, problems)) => {
                if counters.metrics().next().is_none() {
                    let errno = problems.first().and_then(LinuxError::errno);
                    notes.push(self.sentence(errno.or(Some(libc::ENOENT))));
                } else if counters.user_only {
                    notes.push(format!(
                        "counting user code only: {}",
                        self.sentence(Some(libc::EACCES))
                    ));
                }
                Some(counters)
            }
            Err(problem) => {
                notes.push(self.sentence(problem.errno()));
                None
            }
        }
    }

    /// Opens the counts of units outside the cores, with notes about refused ones. A cause that
    /// another note has is not told again.
    fn uncore(&self, notes: &mut Vec<String>) -> Uncore {
        let (uncore, missing) = Uncore::open(&self.available, &self.machine.topology, self.room);
        for Missing { what, why } in missing {
            let why = if why.is_denied() { self.sentence(why.errno()) } else { why.to_string() };
            if !notes.iter().any(|note| note.contains(&why)) {
                notes.push(format!("{what}: {why}"));
            }
        }
        uncore
    }

    fn sampler(&self, opened: &mut Opened) -> Result<Option<Sampler>, LinuxError> {
        let Opened { subject, counters, notes, .. } = opened;
        if !self.settings.samples() {
            return Ok(None);
        }
        let physical = physical_map(self.root)?;
        let topology = &self.machine.topology;
        let translation = Translation::new(topology, physical, self.available.vendor)
            .with_loads_beyond_cache(self.available.loads_beyond_cache);
        let period = self.available.sampling_period(self.settings.period);
        let faults_only = self.settings.rung == Some(Rung::Faults);
        let mut events = if faults_only { Vec::new() } else { self.available.sample.clone() };
        for event in &mut events {
            // Without pinning, it would take turns with the groups of counters and sample rarely.
            event.attr.flags |= if self.available.is_of_core(event) { flag::PINNED } else { 0 };
        }
        let buffer = self.available.buffer.clone().filter(|_| !faults_only);
        let levels = if self.settings.managing { MANAGED_LEVELS } else { 1 };
        let stores = self.available.samples_stores;
        let counts_first_touches = !self.settings.managing;
        let online = self.root.in_sys("devices/system/cpu/online");
        let plan = Plan { events, buffer, stores, period, levels, counts_first_touches, online };
        match Sampler::open(subject, topology, translation, &plan) {
            Ok((mut sampler, problems)) => {
                notes.extend(sampler.take_lost_counter());
                let why = self.sentence(problems.first().and_then(LinuxError::errno));
                let is_said = notes.contains(&why);
                let wanted = !plan.events.is_empty() || plan.buffer.is_some();
                if sampler.kind == Kind::Faults && wanted && !is_said {
                    notes.push(format!("no address samples: {why}"));
                }
                if sampler.kind == Kind::Faults
                    && topology.node_count() > 1
                    && let Some((why, fix)) = first_touches_only(self.root)
                {
                    let fix = fix.map_or(String::new(), |fix| format!("; `{fix}` shows later use"));
                    notes.push(format!("the kernel's NUMA balancing is {why}{fix}"));
                }
                if !sampler.has_physical_addresses() {
                    let why = self.sentence(Some(libc::EACCES));
                    notes.push(format!("samples do not tell the node of their data: {why}"));
                }
                Ok(Some(sampler))
            }
            // Without counters, another note already has this cause.
            Err(problem) => {
                if counters.is_some() || faults_only {
                    notes.push(format!("no samples: {problem}"));
                }
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests;
