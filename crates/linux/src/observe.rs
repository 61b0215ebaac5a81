//! Looking at a running program: what the kernel and the hardware tell of it and of the machine,
//! as one [`Observation`] after the other.
//!
//! The best sensor that the machine has is used, and [`Observer::notes`] says in sentences what is
//! missing. Nothing is derived here: counts, samples and `/proc` go into the observation as read.

pub mod counters;
pub mod kernel;
pub mod sampler;
pub mod tasks;
mod uncore;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use rondpoint_core::observation::{Observation, Samples};
use rondpoint_core::{Nanos, Pid, Tid};

use crate::LinuxError;
use crate::perf::event::advice;
use crate::perf::generation::{Available, Generation, Metric};
use crate::perf::pmu::{Event, Pmus};
use crate::root::Root;
use crate::syscall::time::since_boot_ns;
use crate::topology::Discovered;
use counters::{CpuReading, Start, TreeCounters};
use kernel::{free_memory, numa_statistics, paranoid_level, physical_map};
use sampler::{Kind, Plan, Sampler, TaskNews, Translation};
use tasks::Tasks;
use uncore::Uncore;

/// What is to be sensed.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Events per address sample; `None` = what the processor's table says.
    pub period: Option<u64>,
    /// Count these instead of the default set.
    pub metrics: Option<Vec<Metric>>,
}

/// Watches one program.
pub struct Observer {
    root: Root,
    machine: Discovered,
    tasks: Tasks,
    counters: Option<TreeCounters>,
    sampler: Option<Sampler>,
    uncore: Uncore,
    generation: String,
    names: BTreeMap<Tid, String>,
    notes: Vec<String>,
    last: Vec<CpuReading>,
}

/// What [`Observer::observe`] brings beside the observation itself: for display only.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// For the model.
    pub observation: Observation,
    /// Counts of the whole tree by CPU since counting began.
    pub readings: Vec<CpuReading>,
    /// The kernel's counters (`/proc/vmstat`) that concern NUMA.
    pub vmstat: BTreeMap<String, u64>,
    /// Records of the ring that could not be understood.
    pub bad_records: u64,
}

/// What is counted unless asked otherwise: the traffic matrix, what makes it cost, and coherence.
/// The rest would only thin it out, because counters are few.
const DEFAULT_METRICS: [Metric; 8] = [
    Metric::Instructions,
    Metric::Cycles,
    Metric::RemoteHitm,
    Metric::RemoteForward,
    Metric::LlcMisses,
    Metric::DramLatencyCycles,
    Metric::DramRequests,
    Metric::Writebacks,
];

impl Observer {
    /// Opens everything that can be opened for `first` and what descends from it. `start` says
    /// whether the program is about to call `execve` or runs already.
    ///
    /// # Errors
    /// The process is not there, or `/proc` cannot be read. Missing sensors are no error.
    pub fn open(
        root: Root,
        machine: Discovered,
        first: Pid,
        start: Start,
        settings: &Settings,
    ) -> Result<Self, LinuxError> {
        let (pmus, _) = Pmus::discover(&root)?;
        let generation = Generation::choose(&pmus, &machine.identity);
        let nodes: Vec<u32> = machine
            .topology
            .memory_nodes()
            .iter()
            .map(|node| machine.topology.kernel_node(node))
            .collect();
        let available = generation.resolve(&pmus, &nodes);
        let mut observer = Self {
            tasks: Tasks::new(root.clone(), first, true),
            root,
            machine,
            counters: None,
            sampler: None,
            uncore: Uncore::default(),
            generation: available.generation.clone(),
            names: BTreeMap::new(),
            notes: Vec::new(),
            last: Vec::new(),
        };
        let members = observer.tasks.members(&[])?;
        let mut tasks = Vec::new();
        for pid in members {
            tasks.extend(observer.tasks.threads_of(pid)?.iter().map(|tid| tid.0));
        }
        if tasks.is_empty() {
            let what = format!("process {first}");
            return Err(LinuxError::Input {
                what,
                problem: "there is no such process".to_string(),
            });
        }
        observer.open_counters(&tasks, &available, start, settings);
        observer.open_sampler(&tasks, &available, start, settings)?;
        observer.uncore = Uncore::open(&available, &observer.machine.topology);
        if observer.machine.topology.node_count() == 1 {
            observer.notes.push(
                "this machine has one memory node: every access is local, there is no traffic \
                 between nodes to see"
                    .to_string(),
            );
        }
        Ok(observer)
    }

    fn open_counters(
        &mut self,
        tasks: &[u32],
        available: &Available,
        start: Start,
        settings: &Settings,
    ) {
        let chosen = |metric: &Metric| match &settings.metrics {
            Some(metrics) => metrics.iter().any(|wanted| wanted.same_kind(*metric)),
            None => is_default(*metric, available),
        };
        let events: Vec<(Metric, Event)> =
            available.core.iter().filter(|(metric, _)| chosen(metric)).cloned().collect();
        match TreeCounters::open(tasks, &self.machine.topology, &events, start) {
            Ok((counters, problems)) => {
                if counters.metrics().next().is_none() {
                    let errno = problems.first().and_then(LinuxError::errno);
                    self.notes.push(self.sentence(errno.or(Some(libc::ENOENT))));
                } else if counters.user_only {
                    self.notes.push(
                        "counting user code only; ".to_string()
                            + &self.sentence(Some(libc::EACCES)),
                    );
                }
                self.counters = Some(counters);
            }
            Err(problem) => self.notes.push(self.sentence(problem.errno())),
        }
    }

    fn sentence(&self, errno: Option<i32>) -> String {
        advice(errno, paranoid_level(&self.root))
    }

    fn open_sampler(
        &mut self,
        tasks: &[u32],
        available: &Available,
        start: Start,
        settings: &Settings,
    ) -> Result<(), LinuxError> {
        let physical = physical_map(&self.root)?;
        let topology = &self.machine.topology;
        let translation = Translation::new(topology, physical, available.vendor);
        let period = settings.period.unwrap_or(available.period);
        let plan = Plan { events: available.sample.clone(), period, start };
        match Sampler::open(tasks, topology, translation, &plan) {
            Ok((sampler, problems)) => {
                if sampler.kind == Kind::Faults && !plan.events.is_empty() {
                    let problem = problems.first().map(ToString::to_string).unwrap_or_default();
                    self.notes.push(format!("no address samples: {problem}"));
                }
                if !sampler.has_physical_addresses() {
                    let why = self.sentence(Some(libc::EACCES));
                    self.notes.push(format!("samples do not tell the node of their data: {why}"));
                }
                self.sampler = Some(sampler);
            }
            Err(problem) if self.counters.is_some() => {
                self.notes.push(format!("no samples: {problem}"));
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Sentences on what cannot be seen here, and why.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The process that is watched with what descends from it.
    #[must_use]
    pub fn first(&self) -> Pid {
        self.tasks.first()
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Discovered {
        &self.machine
    }

    /// Name of the event table in use.
    #[must_use]
    pub fn generation(&self) -> &str {
        &self.generation
    }

    /// What is sampled, if anything.
    #[must_use]
    pub fn sampled(&self) -> Option<Kind> {
        self.sampler.as_ref().map(|sampler| sampler.kind)
    }

    /// Which metrics are counted.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        self.counters.as_ref().map(|counters| counters.metrics().collect()).unwrap_or_default()
    }

    /// Faults on pages not seen before, where faults are sampled.
    #[must_use]
    pub fn first_touches(&self) -> u64 {
        self.sampler.as_ref().map_or(0, |sampler| sampler.first_touches)
    }

    /// The last known name of a thread.
    #[must_use]
    pub fn name(&self, tid: Tid) -> Option<&str> {
        self.names.get(&tid).map(String::as_str)
    }

    /// Descriptors that become readable when [`Observer::drain`] should be called.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sampler.iter().flat_map(Sampler::descriptors)
    }

    /// Empties the rings without looking at anything else.
    pub fn drain(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.drain();
        }
    }

    /// Looks at everything once.
    ///
    /// # Errors
    /// `/proc` or an open counter cannot be read.
    pub fn observe(&mut self) -> Result<Look, LinuxError> {
        self.drain();
        let (samples, news) = match &mut self.sampler {
            Some(sampler) => {
                let (samples, news) = sampler.take();
                (Some((sampler.kind, samples)), news)
            }
            None => (None, TaskNews::default()),
        };
        self.names.extend(news.names);
        let topology = &self.machine.topology;
        let mut processes = self.tasks.observe(topology, &news.born)?;
        if let Some(counters) = &self.counters {
            self.last = counters.read()?;
        }
        if let Some(process) =
            processes.iter_mut().find(|process| process.pid == self.tasks.first())
        {
            process.node_traffic = counters::node_traffic(&self.last, topology);
            process.counters = counters::of_process(&self.last);
        }
        let (samples, hint_faults) = split(samples);
        let observation = Observation {
            at: Nanos(since_boot_ns()),
            node_traffic: self.uncore.traffic(topology)?,
            link_bytes: self.uncore.link_bytes()?,
            free_memory: free_memory(&self.root, topology)?,
            processes,
            samples,
            hint_faults,
        };
        Ok(Look {
            observation,
            readings: self.last.clone(),
            vmstat: numa_statistics(&self.root)?,
            bad_records: news.bad_records,
        })
    }
}

fn is_default(metric: Metric, available: &Available) -> bool {
    let by_target = available.core.iter().any(|(other, _)| matches!(other, Metric::DramNode(_)));
    match metric {
        Metric::DramNode(_) => true,
        Metric::LocalDram | Metric::RemoteDram => !by_target,
        other => DEFAULT_METRICS.contains(&other),
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
mod tests {
    use super::*;
    use crate::syscall::memory::{Anonymous, page_bytes};
    use crate::topology;

    fn own_process() -> Pid {
        Pid(std::process::id())
    }

    /// On the machine that runs the tests, whatever it is: with a PMU or without, of one node or
    /// more. Only what every kernel gives is asserted.
    #[test]
    fn this_process_is_observed_with_whatever_there_is() {
        let root = Root::live();
        let machine = topology::discover(&root).unwrap();
        let settings = Settings::default();
        let mut observer =
            Observer::open(root, machine, own_process(), Start::Now, &settings).unwrap();
        let first = observer.observe().unwrap();
        Anonymous::new(64 * page_bytes()).unwrap().touch_every(page_bytes());
        let second = observer.observe().unwrap();
        let process = second.observation.processes.iter().find(|p| p.pid == own_process());
        let process = process.expect("this process is there");
        assert!(!process.threads.is_empty());
        assert!(process.faults > first.observation.processes[0].faults);
        assert!(second.observation.at > first.observation.at);
        if observer.sampled() == Some(Kind::Faults) {
            assert!(observer.first_touches() >= 64, "{}", observer.first_touches());
            let faults = second.observation.hint_faults.unwrap();
            assert!(faults.list.len() >= 64 && faults.lost == 0);
        }
        assert_eq!(second.bad_records, 0);
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let root = Root::live();
        let machine = topology::discover(&root).unwrap();
        let nobody = Pid(u32::MAX >> 1);
        let error = Observer::open(root, machine, nobody, Start::Now, &Settings::default());
        assert_eq!(
            error.err().map(|error| error.to_string()).as_deref(),
            Some("process 2147483647: there is no such process")
        );
    }
}
