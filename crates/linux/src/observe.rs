//! Looking at a running program: what the kernel and the hardware tell of it and of the machine,
//! as one [`Observation`] after the other.
//!
//! The best sensor that the machine has is used, and [`Observer::notes`] says in sentences what is
//! missing. Nothing is derived here: counts, samples and `/proc` go into the observation as read.

pub mod counters;
mod inherited;
pub mod kernel;
pub mod machine;
mod maps;
mod pause;
pub mod sampler;
pub mod sensors;
mod shared;
pub mod subject;
pub mod tasks;
pub mod threads;
pub mod translation;
mod uncore;
mod unseen;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use rondpoint_core::observation::{Counter, Observation, ProcessObservation, Samples};
use rondpoint_core::rest::Glance;
use rondpoint_core::{Matrix, Nanos, Pid, Tid};

use crate::parse::fields;
use crate::perf::generation::Metric;
use crate::root::{self, Root};
use crate::syscall::time::since_boot_ns;
use crate::topology::Discovered;
use crate::{LinuxError, probe};
use counters::CpuReading;
use kernel::{FreeMemory, numa_statistics};
use sampler::{Kind, Rate, Sampler, TaskNews};
use sensors::Sensors;
pub use sensors::{Rung, Settings};
use subject::Start;
use tasks::Births;

/// Names of threads that are read from `/proc` at one look.
const MOST_NAMES: usize = 256;

/// Watches one program.
pub struct Observer {
    root: Root,
    machine: Discovered,
    sensors: Sensors,
    free_memory: FreeMemory,
    names: BTreeMap<Tid, String>,
    last: Vec<CpuReading>,
    /// Counting has gone on since the last look.
    rested: bool,
}

/// What [`Observer::observe`] brings beside the observation itself: for display only.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// For the model.
    pub observation: Observation,
    /// Counts of the whole tree by CPU since counting began.
    pub readings: Vec<CpuReading>,
    /// The kernel's counters (`/proc/vmstat`) that concern NUMA; empty for somebody who acts.
    pub vmstat: BTreeMap<String, u64>,
    /// Records of the ring that could not be understood.
    pub bad_records: u64,
}

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
        let sensors = sensors::open(&root, &machine, first, start, settings)?;
        let free_memory = FreeMemory::of(&root, &machine.topology);
        let (names, last) = (BTreeMap::new(), Vec::new());
        Ok(Self { root, machine, sensors, free_memory, names, last, rested: false })
    }

    /// Sentences on what cannot be seen here, and why.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.sensors.notes
    }

    /// The process that is watched with what descends from it.
    #[must_use]
    pub fn first(&self) -> Pid {
        self.sensors.tasks.first()
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Discovered {
        &self.machine
    }

    /// Name of the event table in use.
    #[must_use]
    pub fn generation(&self) -> &str {
        &self.sensors.generation
    }

    /// What is sampled, if anything.
    #[must_use]
    pub fn sampled(&self) -> Option<Kind> {
        self.sensors.sampler.as_ref().map(|sampler| sampler.kind)
    }

    /// Whether counts and samples are those of whatever runs, because the program is too large to
    /// be counted by itself.
    #[must_use]
    pub fn watches_everybody(&self) -> bool {
        self.sensors.everybody
    }

    /// Which metrics are counted.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        self.sensors
            .counters
            .as_ref()
            .map(|counters| counters.metrics().collect())
            .unwrap_or_default()
    }

    /// Faults on pages not seen before, where faults are sampled.
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

    /// Samples at this rate from now on; whether there is a sampler whose rate can be set.
    ///
    /// # Errors
    /// An event is refused: nothing is sampled then.
    pub fn set_rate(&mut self, rate: Rate) -> Result<bool, LinuxError> {
        self.sensors.set_rate(rate, &self.machine.topology)
    }

    /// Lowers all sampling rates by a level; whether there was one left.
    pub fn lower_rate(&mut self) -> bool {
        self.sensors.sampler.as_mut().is_some_and(Sampler::lower)
    }

    /// Whether there is something that a rest would spare the program.
    #[must_use]
    pub fn can_pause(&self) -> bool {
        self.sensors.can_pause()
    }

    /// Stops counting and sampling. Until [`Observer::resume`] a look is at `/proc`, and at
    /// counters that are not the program's.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn pause(&mut self) -> Result<(), LinuxError> {
        self.sensors.pause()
    }

    /// Counts and samples on: the next look begins a window.
    ///
    /// # Errors
    /// An event is refused that was not before.
    pub fn resume(&mut self) -> Result<(), LinuxError> {
        self.rested = true;
        self.last.clear();
        self.sensors.resume(&self.machine.topology)
    }

    /// Counts and samples nothing any more, and closes what that needed. Processes and threads are
    /// still seen.
    pub fn let_go(&mut self) {
        self.sensors.let_go();
    }

    /// Whether the program pays too much for what those inherit that it starts, and somebody
    /// manages it who could do with counts of whatever runs.
    #[must_use]
    pub fn births_are_dear(&self) -> bool {
        let Sensors { managing, everybody, inherited, .. } = &self.sensors;
        *managing && !*everybody && inherited.are_dear()
    }

    /// Watches whatever runs from now on, so that nothing is inherited: the next look begins a
    /// window. Where that is not allowed all stays as it was.
    ///
    /// # Errors
    /// It is not allowed, or an event is refused that was not before.
    pub fn watch_everybody(&mut self) -> Result<(), LinuxError> {
        self.sensors.inherited.forget();
        probe::whole_cpu()?;
        self.rested = true;
        self.last.clear();
        self.sensors.watch_everybody(&self.machine.topology)
    }

    /// Empties the rings without looking at anything else.
    pub fn drain(&mut self) {
        if let Some(sampler) = &mut self.sensors.sampler {
            sampler.drain();
        }
    }

    /// Looks at what costs next to nothing: one line of `/proc` for each process, and counters that
    /// are not the program's. The rings are not emptied.
    ///
    /// # Errors
    /// `/proc` or an open counter cannot be read.
    pub fn glance(&mut self) -> Result<Glance, LinuxError> {
        let traffic = self.sensors.uncore.traffic(&self.machine.topology)?;
        let sum = |traffic: Matrix<Counter>| {
            traffic.rows().flatten().copied().fold(Counter::default(), counters::added)
        };
        Ok(Glance {
            at: Nanos(since_boot_ns()),
            cpu_time: self.sensors.tasks.glance()?,
            requests: traffic.map(sum),
        })
    }

    /// The kernel's counters (`/proc/vmstat`) that concern NUMA.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn kernel_statistics(&self) -> Result<BTreeMap<String, u64>, LinuxError> {
        numa_statistics(&self.root)
    }

    /// Looks at everything once.
    ///
    /// # Errors
    /// `/proc` or an open counter cannot be read.
    pub fn observe(&mut self) -> Result<Look, LinuxError> {
        self.drain();
        let (samples, news) = match &mut self.sensors.sampler {
            Some(sampler) => {
                let (samples, news) = sampler.take();
                (Some((sampler.kind, samples)), news)
            }
            None => (None, TaskNews::default()),
        };
        self.names.extend(news.names);
        let topology = &self.machine.topology;
        let lost = samples.as_ref().is_none_or(|(_, samples)| samples.lost > 0);
        let births = Births { known: &news.born, all: !lost && news.bad_records == 0 };
        // Of everybody's births nobody knows whose they are before their parents are known.
        let of_program = self.sensors.sampler.is_some() && !self.sensors.everybody;
        let born = of_program.then_some(news.births);
        self.sensors.inherited.add(Nanos(since_boot_ns()), born.unwrap_or(0));
        let mut processes = self.sensors.tasks.observe(topology, births)?;
        if !self.sensors.managing {
            let is_told = self.sensors.sampler.is_some();
            read_names(&self.root, &processes, is_told, &mut self.names);
        }
        if let Some(counters) = &mut self.sensors.counters {
            self.last = counters.read()?;
        }
        let mut machine_traffic = self.sensors.uncore.traffic(topology)?;
        let counted = counters::node_traffic(&self.last, topology);
        let first = self.first();
        // What a tree of several processes did together is nobody's own; samples tell them apart.
        let shared = self.sensors.managing && processes.len() > 1;
        if self.sensors.everybody || shared {
            machine_traffic = machine_traffic.or(counted);
        } else if let Some(process) = processes.iter_mut().find(|process| process.pid == first) {
            process.node_traffic = counted;
            process.counters = counters::of_process(&self.last);
        }
        // Everybody's samples are not the program's: its own threads are known from its forks.
        if let Some((_, samples)) = samples.as_ref().filter(|_| !self.sensors.everybody) {
            unseen::add_unseen(&mut processes, &samples.list, topology);
        }
        let (samples, hint_faults) = split(samples);
        let observation = Observation {
            at: Nanos(since_boot_ns()),
            after_rest: std::mem::take(&mut self.rested),
            node_traffic: machine_traffic,
            link_bytes: self.sensors.uncore.link_bytes()?,
            free_memory: self.free_memory.read(topology)?,
            births: born,
            processes,
            samples,
            hint_faults,
        };
        Ok(Look {
            observation,
            readings: self.last.clone(),
            // Long, and for display only: somebody who acts looks more often than he tells.
            vmstat: match self.sensors.managing {
                true => BTreeMap::new(),
                false => self.kernel_statistics()?,
            },
            bad_records: news.bad_records,
        })
    }
}

/// Reads the names of threads that no record of the ring has told, as on machines without a
/// sampler. A thread may give itself another name later, so without records all are read anew.
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
    fn a_rung_that_is_asked_for_is_the_only_one() {
        let look = |rung| {
            let root = Root::live();
            let machine = topology::discover(&root).unwrap();
            let settings = Settings { rung: Some(rung), ..Settings::default() };
            let mut observer =
                Observer::open(root, machine, own_process(), Start::Now, &settings).unwrap();
            let look = observer.observe().unwrap();
            (observer.sampled(), observer.metrics().len(), look.readings.len())
        };
        assert_eq!(look(Rung::Statistics), (None, 0, 0));
        assert_eq!(look(Rung::Faults), (Some(Kind::Faults), 0, 0));
        let (sampled, _, cpus) = look(Rung::Counters);
        assert!(sampled.is_none() && cpus > 0);
    }

    /// Far more than the other tests of this process run between two calls.
    const BUSY_NS: u64 = 500_000_000;

    fn cpu_time_of_this_thread() -> u64 {
        let stat = std::fs::read("/proc/thread-self/schedstat").unwrap();
        crate::parse::schedstat::parse(&stat).unwrap().running_ns
    }

    /// Software clocks are counted on every machine.
    #[test]
    fn nothing_is_counted_during_a_pause_and_it_goes_on_from_there() {
        let machine = topology::discover(&Root::live()).unwrap();
        let settings = Settings { rung: Some(Rung::Counters), ..Settings::default() };
        let mut observer =
            Observer::open(Root::live(), machine, own_process(), Start::Now, &settings).unwrap();
        assert!(observer.can_pause());
        let clock = |look: &Look| look.readings.iter().map(|cpu| cpu.cpu_time.0).sum::<u64>();
        let before = clock(&observer.observe().unwrap());
        assert!(before > 0);
        observer.pause().unwrap();
        let ran = cpu_time_of_this_thread();
        while cpu_time_of_this_thread() < ran + BUSY_NS {}
        let paused = observer.observe().unwrap();
        assert!(!paused.observation.after_rest && !paused.observation.processes.is_empty());
        observer.resume().unwrap();
        let first = observer.observe().unwrap();
        assert!(first.observation.after_rest);
        assert!(clock(&first) < before + BUSY_NS, "{before} {}", clock(&first));
        let begin = std::time::Instant::now();
        while begin.elapsed().as_millis() < 5 {}
        let second = observer.observe().unwrap();
        assert!(!second.observation.after_rest);
        assert!(clock(&second) > clock(&first), "{} {}", clock(&first), clock(&second));
    }

    /// From a look or from a rest; where it is not allowed nothing changes.
    #[test]
    fn the_whole_machine_is_watched_instead_of_the_tasks() {
        for rests in [false, true] {
            let machine = topology::discover(&Root::live()).unwrap();
            let settings = Settings { managing: true, ..Settings::default() };
            let mut observer =
                Observer::open(Root::live(), machine, own_process(), Start::Now, &settings)
                    .unwrap();
            let of_tasks = observer.observe().unwrap();
            assert!(!observer.births_are_dear() && !of_tasks.observation.processes.is_empty());
            if rests {
                observer.pause().unwrap();
            }
            if let Err(error) = observer.watch_everybody() {
                assert_eq!(error.errno(), crate::probe::whole_cpu().unwrap_err().errno());
                assert!(!observer.watches_everybody());
                continue;
            }
            if rests {
                let resting = observer.observe().unwrap();
                assert!(resting.readings.is_empty() && resting.observation.births.is_none());
                observer.resume().unwrap();
            }
            let first = observer.observe().unwrap();
            assert!(observer.watches_everybody() && first.observation.after_rest);
            assert!(first.observation.births.is_none());
            let is_known = |look: &Look| {
                look.observation.processes.iter().any(|process| process.pid == own_process())
            };
            assert!(is_known(&first));
            let second = observer.observe().unwrap();
            assert!(is_known(&second) && !second.observation.after_rest);
            let clocks = second.readings.iter().map(|cpu| cpu.cpu_time.0).sum::<u64>();
            assert_eq!(clocks > 0, observer.sensors.counters.is_some());
        }
    }

    #[test]
    fn where_faults_are_all_that_is_sampled_nothing_is_paused() {
        let machine = topology::discover(&Root::live()).unwrap();
        let settings = Settings { rung: Some(Rung::Faults), ..Settings::default() };
        let observer =
            Observer::open(Root::live(), machine, own_process(), Start::Now, &settings).unwrap();
        assert!(!observer.can_pause());
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
