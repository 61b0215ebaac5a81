//! Opening the sensors of a program: the best that the machine has, or the rung that was asked for,
//! and a sentence on each that is missing.

use rondpoint_core::Pid;

use super::counters::TreeCounters;
use super::inherited::Inherited;
use super::kernel::{numa_balancing, paranoid_level, physical_map};
use super::pause::Paused;
use super::sampler::{Kind, Plan, Sampler};
use super::subject::{Start, Subject};
use super::tasks::{Births, Tasks};
use super::threads::ThreadPlan;
use super::translation::Translation;
use super::uncore::Uncore;
use crate::perf::attr::flag;
use crate::perf::event::advice;
use crate::perf::generation::{Available, Generation, Metric};
use crate::perf::pmu::{Event, Pmus};
use crate::root::Root;
use crate::topology::Discovered;
use crate::{LinuxError, probe};

/// A rung of the sensing ladder, to be forced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// Counters and address samples.
    Samples,
    /// Counters only.
    Counters,
    /// Page faults only, as on a machine without a PMU.
    Faults,
    /// Only what `/proc` says.
    Statistics,
}

/// What is to be sensed.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Events per address sample; `None` = what the processor's table says.
    pub period: Option<u64>,
    /// Count these instead of the default set.
    pub metrics: Option<Vec<Metric>>,
    /// Count these of every single thread, beside instructions and cycles.
    pub threads: Vec<Metric>,
    /// Use this rung and no other; `None` = the best there is.
    pub rung: Option<Rung>,
    /// For somebody who acts: sampling can be slowed and stopped, and what is counted of the whole
    /// tree is a single process's only while there is no other.
    pub managing: bool,
}

impl Settings {
    fn counts(&self) -> bool {
        matches!(self.rung, None | Some(Rung::Samples | Rung::Counters))
    }

    fn samples(&self) -> bool {
        matches!(self.rung, None | Some(Rung::Samples | Rung::Faults))
    }
}

/// What is counted unless asked otherwise, beside the traffic matrix: what makes it cost, and
/// writes. Counters are few: each further event makes all others be counted for a smaller share of
/// the time.
const DEFAULT_METRICS: [Metric; 5] = [
    Metric::DramLatencyCycles,
    Metric::DramRequests,
    Metric::Writebacks,
    Metric::Refills,
    Metric::RefillsModified,
];

/// Full, cheap and idle; a program whose full rate is too much does with the last two.
const MANAGED_LEVELS: usize = 3;

/// The open sensors.
pub(super) struct Sensors {
    pub(super) tasks: Tasks,
    pub(super) counters: Option<TreeCounters>,
    pub(super) sampler: Option<Sampler>,
    pub(super) uncore: Uncore,
    pub(super) generation: String,
    pub(super) notes: Vec<String>,
    /// Events watch whatever runs, not only the program.
    pub(super) everybody: bool,
    /// What the program pays for those that it starts.
    pub(super) inherited: Inherited,
    /// As [`Settings::managing`].
    pub(super) managing: bool,
    /// What is counted of the whole tree, and how much of it at a time.
    pub(super) events: Vec<(Metric, Event)>,
    pub(super) room: usize,
    /// Whether it is counted at all.
    pub(super) counts: bool,
    pub(super) paused: Option<Paused>,
}

struct Opening<'a> {
    root: &'a Root,
    machine: &'a Discovered,
    settings: &'a Settings,
    available: Available,
    events: Vec<(Metric, Event)>,
    subject: Subject,
    /// Programmable counters that sampling leaves free.
    room: usize,
    notes: Vec<String>,
}

/// Whose sensors are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom {
    /// The tree of a process that is there.
    Tree(Pid, Start),
    /// Trees that come and go: events are those of the whole machine.
    Many,
}

/// Opens what can be opened.
///
/// # Errors
/// The process is not there, or `/proc` cannot be read. Missing sensors are no error.
pub(super) fn open(
    root: &Root,
    machine: &Discovered,
    whom: Whom,
    settings: &Settings,
) -> Result<Sensors, LinuxError> {
    let (pmus, _) = Pmus::discover(root)?;
    let topology = &machine.topology;
    let nodes: Vec<u32> =
        topology.memory_nodes().iter().map(|node| topology.kernel_node(node)).collect();
    let available = Generation::choose(&pmus, &machine.identity).resolve(&pmus, &nodes);
    let room = available.counters.saturating_sub(counters_of_sampling(&available, settings));
    let mut notes = Vec::new();
    let paranoid = paranoid_level(root);
    let plan =
        settings.counts().then(|| thread_plan(&available, settings, room, paranoid, &mut notes));
    let mut tasks = match whom {
        Whom::Tree(first, _) => Tasks::new(root.clone(), first, plan),
        Whom::Many => Tasks::of_nobody(root.clone(), plan),
    };
    let events = chosen(&available, settings);
    // The clock, and the owner of the ring.
    let each_cpu = events.len() + available.sample.len() + 2;
    let inherited = Inherited::of(each_cpu * topology.cpu_count());
    let subject = match whom {
        Whom::Tree(first, start) => {
            let threads = threads(&mut tasks, first)?;
            subject(&threads, start, machine, each_cpu, &mut notes)
        }
        Whom::Many => Subject::everybody(),
    };
    let mut opening = Opening { root, machine, settings, available, events, subject, room, notes };
    let counters = opening.counters();
    let sampler = opening.sampler(counters.is_some())?;
    let Opening { available, subject, events, mut notes, .. } = opening;
    if topology.node_count() == 1 {
        notes.push(
            "this machine has one memory node: every access is local, there is no traffic between \
             nodes to see"
                .to_string(),
        );
    }
    let uncore =
        if settings.counts() { Uncore::open(&available, topology) } else { Uncore::default() };
    let (generation, everybody) = (available.generation, subject.is_everybody());
    let managing = settings.managing;
    Ok(Sensors {
        tasks,
        counters,
        sampler,
        uncore,
        generation,
        notes,
        everybody,
        inherited,
        managing,
        events,
        room,
        counts: settings.counts(),
        paused: None,
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

fn chosen(available: &Available, settings: &Settings) -> Vec<(Metric, Event)> {
    let is_chosen = |metric: Metric| match &settings.metrics {
        _ if !settings.counts() => false,
        Some(metrics) => metrics.iter().any(|wanted| wanted.same_kind(metric)),
        None => is_default(metric, available),
    };
    available.core.iter().filter(|(metric, _)| is_chosen(*metric)).cloned().collect()
}

fn is_default(metric: Metric, available: &Available) -> bool {
    let by_target = available.core.iter().any(|(other, _)| matches!(other, Metric::DramNode(_)));
    match metric {
        Metric::DramNode(_) => true,
        Metric::LocalDram | Metric::RemoteDram => !by_target,
        other => DEFAULT_METRICS.contains(&other),
    }
}

/// How many of the counters sampling takes: none where it has a unit of its own, as AMD's and
/// Arm's.
fn counters_of_sampling(available: &Available, settings: &Settings) -> usize {
    if !settings.samples() || settings.rung == Some(Rung::Faults) {
        return 0;
    }
    available.sample.iter().filter(|event| available.is_of_core(event)).count()
}

/// What is asked for of every thread, as far as it is known here and the kernel opens it for us.
/// The rest is named with the causes that a user can do something about.
fn thread_plan(
    available: &Available,
    settings: &Settings,
    room: usize,
    paranoid: Option<i64>,
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
    // Without any counter the same is said of all of them.
    if !missing.is_empty() && !events.is_empty() {
        let names: Vec<String> = missing.iter().map(|(metric, _)| metric.name()).collect();
        let refused = missing.iter().find_map(|(_, errno)| *errno);
        let why = match refused {
            Some(errno) => advice(Some(errno), paranoid),
            None => "this machine has no such events".to_string(),
        };
        notes.push(format!("not counted for single threads: {} ({why})", names.join(", ")));
    }
    ThreadPlan::new(&events, room)
}

/// The program's own tasks, unless that were too many events for them and everybody may be watched.
fn subject(
    threads: &[u32],
    start: Start,
    machine: &Discovered,
    events: usize,
    notes: &mut Vec<String>,
) -> Subject {
    // Instructions and cycles of each thread.
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
    Subject::everybody()
}

impl Opening<'_> {
    fn sentence(&self, errno: Option<i32>) -> String {
        advice(errno, paranoid_level(self.root))
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    fn counters(&mut self) -> Option<TreeCounters> {
        if !self.settings.counts() {
            return None;
        }
        match TreeCounters::open(&self.subject, &self.machine.topology, &self.events, self.room) {
            Ok((counters, problems)) => {
                if counters.metrics().next().is_none() {
                    let errno = problems.first().and_then(LinuxError::errno);
                    self.note(self.sentence(errno.or(Some(libc::ENOENT))));
                } else if counters.user_only {
                    self.note(format!(
                        "counting user code only: {}",
                        self.sentence(Some(libc::EACCES))
                    ));
                }
                Some(counters)
            }
            Err(problem) => {
                self.note(self.sentence(problem.errno()));
                None
            }
        }
    }

    fn sampler(&mut self, has_counters: bool) -> Result<Option<Sampler>, LinuxError> {
        if !self.settings.samples() {
            return Ok(None);
        }
        let physical = physical_map(self.root)?;
        let topology = &self.machine.topology;
        let translation = Translation::new(topology, physical, self.available.vendor);
        let period = self.settings.period.unwrap_or(self.available.period);
        let faults_only = self.settings.rung == Some(Rung::Faults);
        let mut events = if faults_only { Vec::new() } else { self.available.sample.clone() };
        for event in &mut events {
            // In turns with the groups of counters it would sample now and then only.
            event.attr.flags |= if self.available.is_of_core(event) { flag::PINNED } else { 0 };
        }
        let levels = if self.settings.managing { MANAGED_LEVELS } else { 1 };
        let plan = Plan { events, period, levels };
        match Sampler::open(&self.subject, topology, translation, &plan) {
            Ok((sampler, problems)) => {
                let why = self.sentence(problems.first().and_then(LinuxError::errno));
                let is_said = self.notes.contains(&why);
                if sampler.kind == Kind::Faults && !plan.events.is_empty() && !is_said {
                    self.note(format!("no address samples: {why}"));
                }
                let scans = numa_balancing(self.root).is_some_and(|balancing| balancing.ordinary);
                if sampler.kind == Kind::Faults && !scans && topology.node_count() > 1 {
                    self.note(
                        "the kernel's NUMA balancing is off: page faults show only where pages are \
                         touched first; `sudo sysctl kernel.numa_balancing=1` shows later use too",
                    );
                }
                if !sampler.has_physical_addresses() {
                    let why = self.sentence(Some(libc::EACCES));
                    self.note(format!("samples do not tell the node of their data: {why}"));
                }
                Ok(Some(sampler))
            }
            // Without counters the same was said already.
            Err(problem) => {
                if has_counters || faults_only {
                    self.note(format!("no samples: {problem}"));
                }
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::{Attr, TYPE_RAW};

    fn available(metrics: &[Metric]) -> Available {
        let event = Event { name: "x".into(), attr: Attr::counting(TYPE_RAW, 0), cpus: None };
        let core = metrics.iter().map(|metric| (*metric, event.clone())).collect();
        Available { core, ..Available::default() }
    }

    fn check(metrics: &[Metric], settings: &Settings, expected: &[Metric]) {
        let events = chosen(&available(metrics), settings);
        let found: Vec<Metric> = events.iter().map(|(metric, _)| *metric).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn local_and_remote_are_counted_only_where_targets_are_not() {
        use Metric::{DramNode, DramRequests, Loads, LocalDram};
        let settings = Settings::default();
        check(&[LocalDram, DramRequests, Loads], &settings, &[LocalDram, DramRequests]);
        check(
            &[LocalDram, DramRequests, DramNode(0), DramNode(1)],
            &settings,
            &[DramRequests, DramNode(0), DramNode(1)],
        );
    }

    #[test]
    fn what_was_asked_for_is_counted_and_a_rung_below_counters_counts_nothing() {
        use Metric::{DramNode, LlcMisses, Loads};
        let all = [LlcMisses, Loads, DramNode(0), DramNode(1)];
        let asked = |rung| Settings {
            metrics: Some(vec![DramNode(0), Loads]),
            rung,
            ..Settings::default()
        };
        check(&all, &asked(None), &[Loads, DramNode(0), DramNode(1)]);
        check(&all, &asked(Some(Rung::Counters)), &[Loads, DramNode(0), DramNode(1)]);
        check(&all, &asked(Some(Rung::Faults)), &[]);
    }
}
