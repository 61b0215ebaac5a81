//! Computes a model from two observations: differences, rates and page records. Live, simulated and
//! replayed hosts use the same code.

mod cores;
mod far;
mod ingest;
mod rates;
mod reads;
mod samples;

use self::ingest::Ingest;
use self::rates::{Counts, Ratio};
use self::samples::{SampleSums, finish_traffic};
use super::{App, Model, Pages, Rung, Sensing, SharedMemory, Thread, Traffic};
use crate::limits::{MAX_TRACKED_PAGES, MIN_RUNNING_SHARE};
use crate::matrix::Matrix;
use crate::observation::{
    Counter, Event, Observation, ProcessObservation, Samples, Source, ThreadObservation,
};
use crate::topology::Topology;
use crate::units::{LINE_BYTES, Nanos, Tid};
use alloc::vec;
use alloc::vec::Vec;

/// Settings for reading samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateSettings {
    /// Most page records.
    pub tracked_pages: usize,
    /// Whether to record which thread touched which page, for policies that look at sharing.
    pub touches: bool,
}

impl Default for UpdateSettings {
    fn default() -> Self {
        Self { tracked_pages: MAX_TRACKED_PAGES, touches: true }
    }
}

impl Model {
    /// The model of the interval between two observations of one host. A process or thread that is
    /// not in both observations has no rates yet.
    #[must_use]
    pub fn update(
        topology: &Topology,
        previous: &Observation,
        current: &Observation,
        settings: &UpdateSettings,
    ) -> Self {
        Self::between(topology, previous, current, &[], settings)
    }

    /// The same with observations in between, whose samples and hint faults are included.
    #[must_use]
    pub fn between(
        topology: &Topology,
        previous: &Observation,
        current: &Observation,
        earlier: &[&Samples],
        settings: &UpdateSettings,
    ) -> Self {
        let own = [current.samples.as_ref(), current.hint_faults.as_ref()].into_iter().flatten();
        let sources: Vec<&Samples> =
            earlier.iter().copied().chain(own).filter(|source| !source.list.is_empty()).collect();
        let elapsed = Nanos(current.at.since(previous.at).0.max(1));
        let mut model = Self {
            at: current.at,
            elapsed,
            pages: Pages::new(topology.node_count(), settings.tracked_pages),
            free_memory: current.free_memory.clone(),
            ..Self::empty(topology.node_count())
        };
        let mut quality = Quality::default();
        let machine = (previous.node_traffic.as_ref(), current.node_traffic.as_ref());
        model.traffic = traffic(machine, elapsed, &mut quality);
        for process in &current.processes {
            let earlier = find_process(previous, process);
            add_process(&mut model, topology, earlier, process, elapsed, &mut quality);
        }
        cores::share(&mut model.threads, topology);
        model.shared = SharedMemory::of(&model.apps, &current.processes);
        let mut sampled = SampleSums::new(model.apps.len(), topology.node_count());
        let count = sources.iter().map(|source| source.list.len()).sum();
        let mut ingest = Ingest::new(&mut model, topology, count, settings.touches);
        sources.iter().for_each(|source| ingest.add(&mut model, source, &mut sampled));
        ingest.finish(&mut model);
        reads::from_samples(&mut model, &sources);
        let lines = (previous.controller_lines.as_ref(), current.controller_lines.as_ref());
        let lines = controller_lines(lines, elapsed, &mut quality);
        finish_traffic(&mut model, (previous, current), &sampled, lines.as_deref());
        model.link_use = link_use(topology, previous, current, &model);
        model.sensing = quality.sensing(&model, &sources);
        model
    }
}

/// Quality of the counters under multiplexing.
#[derive(Default)]
struct Quality {
    /// Nanoseconds in which counters were enabled and in which they counted, each counter's added.
    enabled: f64,
    running: f64,
    counted: bool,
}

impl Quality {
    /// Events of a counter in the interval, if it was running for long enough.
    fn events(&mut self, earlier: Option<Counter>, later: Option<Counter>) -> Option<f64> {
        let delta = later?.since(earlier?)?;
        if delta.running_share < MIN_RUNNING_SHARE {
            return None;
        }
        self.counted = true;
        self.enabled += delta.enabled.0 as f64;
        self.running += delta.enabled.0 as f64 * delta.running_share;
        Some(delta.events)
    }

    /// Share of the time in which a counter really counted, over all counters. The worst of them
    /// tells nothing of the others: with many threads one has always just begun to run.
    fn running_share(&self) -> f64 {
        if self.enabled > 0.0 { self.running / self.enabled } else { 1.0 }
    }

    /// Confidence: a value for the kind of sensor, reduced by lost samples and multiplexed
    /// counters. The values are our choice, not measured. They order the sensors and put kernel
    /// statistics below the guard's limit.
    fn sensing(&self, model: &Model, sources: &[&Samples]) -> Sensing {
        let is_fault =
            |samples: &Samples| samples.list.first().is_some_and(|s| s.source == Source::HintFault);
        let samples = sources.iter().filter(|source| !is_fault(source));
        let rung = match samples.clone().next() {
            Some(_) => Rung::Samples,
            None if self.counted && model.traffic.is_some() => Rung::Counters,
            None if !sources.is_empty() => Rung::HintFaults,
            None if self.counted => Rung::Counters,
            None => Rung::Statistics,
        };
        let kept: usize = samples.clone().map(|samples| samples.list.len()).sum();
        let lost: u64 = samples.clone().map(|samples| samples.lost).sum();
        let lost_share = lost as f64 / (lost as f64 + kept as f64).max(1.0);
        let throttled = samples.clone().any(|samples| samples.throttled);
        let base = match rung {
            Rung::Samples => 1.0,
            Rung::Counters => 0.9,
            Rung::HintFaults => 0.7,
            Rung::Statistics => 0.3,
        };
        let kept = (1.0 - lost_share) * if throttled { 0.8 } else { 1.0 };
        let running_share = self.running_share();
        let counted = 0.5 + 0.5 * running_share;
        Sensing { rung, confidence: base * kept * counted, lost_share, running_share }
    }
}

fn find_process<'a>(
    previous: &'a Observation,
    process: &ProcessObservation,
) -> Option<&'a ProcessObservation> {
    let place =
        previous.processes.binary_search_by_key(&process.pid, |earlier| earlier.pid).ok()?;
    Some(&previous.processes[place]).filter(|earlier| earlier.started == process.started)
}

fn find_thread(process: Option<&ProcessObservation>, tid: Tid) -> Option<&ThreadObservation> {
    let threads = &process?.threads;
    let place = threads.binary_search_by_key(&tid, |thread| thread.tid).ok()?;
    Some(&threads[place])
}

/// Requests per microsecond. `None` if a counter of one cell did not count.
fn traffic(
    (earlier, later): (Option<&Matrix<Counter>>, Option<&Matrix<Counter>>),
    elapsed: Nanos,
    quality: &mut Quality,
) -> Option<Traffic> {
    let (earlier, later) = (earlier?, later?);
    let mut counts = Matrix::filled(later.size(), 0.0);
    for (accessing, holding, counter) in later.cells() {
        let before = earlier[(accessing, holding)];
        counts[(accessing, holding)] = quality.events(Some(before), Some(counter))?;
    }
    Traffic::from_counts(&counts, elapsed)
}

/// Lines per microsecond of each node's controllers.
fn controller_lines(
    (earlier, later): (Option<&Vec<Counter>>, Option<&Vec<Counter>>),
    elapsed: Nanos,
    quality: &mut Quality,
) -> Option<Vec<f64>> {
    let mut events =
        |(earlier, later): (&Counter, &Counter)| quality.events(Some(*earlier), Some(*later));
    let counted = earlier?.iter().zip(later?).map(&mut events);
    counted.map(|lines| Some(lines? / elapsed.micros())).collect()
}

/// Growth of a thread's time in the interval. A thread without an earlier observation was born in
/// the interval, unless it has run for longer. Then it was not watched before, and the growth is
/// unknown.
fn since(
    before: Option<&ThreadObservation>,
    now: &ThreadObservation,
    elapsed: Nanos,
    time: impl Fn(&ThreadObservation) -> Option<Nanos>,
) -> Option<Nanos> {
    match before {
        Some(before) => Some(time(now)?.since(time(before)?)),
        None => time(now).filter(|_| began_within(now, elapsed)),
    }
}

/// Whether a thread that was not seen before may have begun in the interval: its CPU time fits into
/// it.
fn began_within(thread: &ThreadObservation, elapsed: Nanos) -> bool {
    thread.cpu_time <= elapsed
}

/// A counter of a thread at the beginning of the interval; zero if the thread began in it.
fn at_beginning(before: Option<&ThreadObservation>, event: Event) -> Option<Counter> {
    before.map_or(Some(Counter::default()), |before| before.counters.get(event))
}

fn add_process(
    model: &mut Model,
    topology: &Topology,
    earlier: Option<&ProcessObservation>,
    process: &ProcessObservation,
    elapsed: Nanos,
    quality: &mut Quality,
) {
    let first = model.threads.len();
    let index = model.apps.len();
    let (mut refills, mut reads) = (Ratio::default(), Ratio::default());
    let mut cpu_share = 0.0;
    for later in &process.threads {
        let before = find_thread(earlier, later.tid);
        let mut thread = Thread::new(later.tid, index, later.cpu, later.allowed.clone());
        thread.exempt = later.exempt;
        thread.cpu_before = before.map(|before| before.cpu);
        let cpu_time = since(before, later, elapsed, |one| Some(one.cpu_time)).unwrap_or(Nanos(0));
        thread.cpu_share = (cpu_time.seconds() / elapsed.seconds()).min(1.0);
        cpu_share += thread.cpu_share;
        let queued = since(before, later, elapsed, |one| one.queued);
        thread.queued_share = queued.map(|queued| (queued.seconds() / elapsed.seconds()).min(1.0));
        if before.is_some() || began_within(later, elapsed) {
            let mut counts =
                Counts { before, later, cpu_time, clock_hz: topology.clock_hz(), quality };
            thread.rates = counts.rates(elapsed);
            let (mut own_refills, mut own_reads) = (Ratio::default(), Ratio::default());
            own_refills.add(counts.events(Event::RefillsModified), counts.events(Event::Refills));
            own_reads
                .add(counts.events(Event::DramReads), counts.events(Event::DramReadsAndWrites));
            thread.rates.read_percent = read_percent(&own_reads, &own_refills);
            refills.merge(&own_refills);
            reads.merge(&own_reads);
        }
        model.threads.push(thread);
    }
    if let Some(earlier) = earlier {
        let mut of_process =
            |event| quality.events(earlier.counters.get(event), process.counters.get(event));
        refills.add(of_process(Event::RefillsModified), of_process(Event::Refills));
        reads.add(of_process(Event::DramReads), of_process(Event::DramReadsAndWrites));
    }
    let mut app = App::new(process.pid, first..model.threads.len());
    let per_second = |later: Option<f64>, before: Option<f64>| {
        Some((later? - before?).max(0.0) / elapsed.seconds())
    };
    app.started = process.started;
    app.traffic = traffic(
        (earlier.and_then(|e| e.node_traffic.as_ref()), process.node_traffic.as_ref()),
        elapsed,
        quality,
    );
    app.cache_traffic = traffic(
        (earlier.and_then(|e| e.cache_traffic.as_ref()), process.cache_traffic.as_ref()),
        elapsed,
        quality,
    );
    app.read_percent = read_percent(&reads, &refills);
    app.faults_per_s = per_second(
        process.faults.map(|f| f as f64),
        earlier.and_then(|e| e.faults).map(|f| f as f64),
    );
    app.cpu_percent = 100.0 * cpu_share;
    app.cpu_time = process.threads.iter().fold(Nanos(0), |sum, thread| sum + thread.cpu_time);
    app.memory = process.memory.clone();
    app.allowed_nodes = process.allowed_nodes.clone();
    app.mappings = process.mappings.clone();
    app.replicas = process.replicas.clone();
    app.policy_read = process.policy_read.clone();
    app.exempt = process.exempt;
    app.progress_per_s = per_second(process.progress, earlier.and_then(|e| e.progress));
    app.pages_moved_by_others = process
        .pages_moved_by_others
        .zip(earlier.and_then(|e| e.pages_moved_by_others))
        .map(|(later, before)| later.saturating_sub(before));
    model.apps.push(app);
}

/// MRR in percent: reads among DRAM accesses if they are counted. Otherwise 100 less the percentage
/// of refills in Modified state [Carrefour, footnote 4].
fn read_percent(reads: &Ratio, refills: &Ratio) -> Option<f64> {
    reads.percent().or(refills.percent().map(|modified| 100.0 - modified))
}

/// Use of the links: counted, or else computed from the machine's traffic and the declared routes.
fn link_use(
    topology: &Topology,
    previous: &Observation,
    current: &Observation,
    model: &Model,
) -> Option<Vec<f64>> {
    let links = topology.links();
    if let (Some(earlier), Some(later)) = (&previous.link_bytes, &current.link_bytes) {
        let seconds = model.elapsed.seconds();
        let counted =
            links.iter().zip(earlier.iter().zip(later)).map(|(link, (earlier, later))| {
                Some((later.since(*earlier)?.events / seconds / link.bytes_per_s).min(1.0))
            });
        return counted.collect();
    }
    let traffic = model.traffic.as_ref()?;
    let mut bytes = vec![0.0; links.len()];
    for (accessing, holding, per_us) in traffic.requests_per_us.cells() {
        for &link in &topology.route(accessing, holding)?.links {
            bytes[link] += per_us * 1e6 * LINE_BYTES as f64;
        }
    }
    (!links.is_empty()).then(|| {
        links.iter().zip(bytes).map(|(link, bytes)| (bytes / link.bytes_per_s).min(1.0)).collect()
    })
}
