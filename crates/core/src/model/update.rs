//! From two observations to a model: differences, rates, page records. The same for live, simulated and replayed hosts.

use super::{
    App, Model, PageId, Pages, Rung, Sensing, Thread, ThreadRates, Touch, Traffic, TrafficSource,
};
use crate::limits::{MAX_TRACKED_PAGES, MIN_RUNNING_SHARE};
use crate::matrix::Matrix;
use crate::observation::{
    AddressSample, Counter, Event, Observation, ProcessObservation, Samples, Source,
    ThreadObservation, UNKNOWN_NODE,
};
use crate::topology::Topology;
use crate::units::{LINE_BYTES, Nanos, Pid, Tid};
use alloc::vec;
use alloc::vec::Vec;

/// How to read samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateSettings {
    /// Page records at most.
    pub tracked_pages: usize,
}

impl Default for UpdateSettings {
    fn default() -> Self {
        Self { tracked_pages: MAX_TRACKED_PAGES }
    }
}

impl Model {
    /// The interval between two observations of one host. A process or thread that is not in both has no rates yet.
    #[must_use]
    pub fn update(
        topology: &Topology,
        previous: &Observation,
        current: &Observation,
        settings: &UpdateSettings,
    ) -> Self {
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
        let samples = current.samples.as_ref().filter(|samples| !samples.list.is_empty());
        let faults = current.hint_faults.as_ref().filter(|samples| !samples.list.is_empty());
        let mut sampled = SampleSums::new(model.apps.len(), topology.node_count());
        for source in [samples, faults].into_iter().flatten() {
            add_samples(&mut model, topology, source, &mut sampled);
        }
        finish_traffic(&mut model, current, previous, &sampled, elapsed);
        model.link_use = link_use(topology, previous, current, &model);
        model.sensing = quality.sensing(&model, current);
        model
    }
}

/// What multiplexing left of the counters.
struct Quality {
    running_share: f64,
    counted: bool,
}

impl Default for Quality {
    fn default() -> Self {
        Self { running_share: 1.0, counted: false }
    }
}

impl Quality {
    /// Events of a counter in the interval, if it ran long enough to be believed.
    fn events(&mut self, earlier: Option<Counter>, later: Option<Counter>) -> Option<f64> {
        let delta = later?.since(earlier?)?;
        if delta.running_share < MIN_RUNNING_SHARE {
            return None;
        }
        self.counted = true;
        self.running_share = self.running_share.min(delta.running_share);
        Some(delta.events)
    }

    /// Confidence: what the rung can tell, less what was lost or not counted. The rungs' values order them and put kernel
    /// statistics below the guard's limit; they are our choice, not measured.
    fn sensing(&self, model: &Model, current: &Observation) -> Sensing {
        let samples = current.samples.as_ref().filter(|samples| !samples.list.is_empty());
        let hint_faults =
            current.hint_faults.as_ref().is_some_and(|samples| !samples.list.is_empty());
        let rung = match samples {
            Some(_) => Rung::Samples,
            None if self.counted || model.traffic.is_some() => Rung::Counters,
            None if hint_faults => Rung::HintFaults,
            None => Rung::Statistics,
        };
        let lost_share = samples.map_or(0.0, |samples| {
            let kept = samples.list.len() as f64;
            samples.lost as f64 / (samples.lost as f64 + kept).max(1.0)
        });
        let throttled = samples.is_some_and(|samples| samples.throttled);
        let base = match rung {
            Rung::Samples => 1.0,
            Rung::Counters => 0.9,
            Rung::HintFaults => 0.7,
            Rung::Statistics => 0.3,
        };
        let kept = (1.0 - lost_share) * if throttled { 0.8 } else { 1.0 };
        let counted = 0.5 + 0.5 * self.running_share;
        Sensing {
            rung,
            confidence: base * kept * counted,
            lost_share,
            running_share: self.running_share,
        }
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

/// Requests per microsecond; a cell that did not count makes the whole matrix unknown.
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
        let cpu_time = Nanos(before.map_or(0, |before| later.cpu_time.since(before.cpu_time).0));
        thread.cpu_share = (cpu_time.seconds() / elapsed.seconds()).min(1.0);
        cpu_share += thread.cpu_share;
        if let Some(before) = before {
            let mut counts =
                Counts { before, later, cpu_time, clock_hz: topology.clock_hz(), quality };
            thread.rates = counts.rates(elapsed);
            refills.add(counts.events(Event::RefillsModified), counts.events(Event::Refills));
            reads.add(counts.events(Event::DramReads), counts.events(Event::DramReadsAndWrites));
        }
        model.threads.push(thread);
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
    app.read_percent = reads.percent().or(refills.percent().map(|modified| 100.0 - modified));
    app.faults_per_s = per_second(
        process.faults.map(|f| f as f64),
        earlier.and_then(|e| e.faults).map(|f| f as f64),
    );
    app.cpu_percent = 100.0 * cpu_share;
    app.memory = process.memory.clone();
    app.allowed_nodes = process.allowed_nodes.clone();
    app.mappings = process.mappings.clone();
    app.exempt = process.exempt;
    app.progress_per_s = per_second(process.progress, earlier.and_then(|e| e.progress));
    app.pages_moved_by_others = process
        .pages_moved_by_others
        .zip(earlier.and_then(|e| e.pages_moved_by_others))
        .map(|(later, before)| later.saturating_sub(before));
    model.apps.push(app);
}

/// A share summed over threads; unknown until one thread knows both parts.
#[derive(Default)]
struct Ratio {
    part: f64,
    whole: f64,
}

impl Ratio {
    fn add(&mut self, part: Option<f64>, whole: Option<f64>) {
        if let (Some(part), Some(whole)) = (part, whole) {
            self.part += part;
            self.whole += whole;
        }
    }

    fn percent(&self) -> Option<f64> {
        (self.whole > 0.0).then(|| (100.0 * self.part / self.whole).clamp(0.0, 100.0))
    }
}

/// The counters of one thread in one interval.
struct Counts<'a> {
    before: &'a ThreadObservation,
    later: &'a ThreadObservation,
    cpu_time: Nanos,
    clock_hz: Option<f64>,
    quality: &'a mut Quality,
}

impl Counts<'_> {
    fn events(&mut self, event: Event) -> Option<f64> {
        self.quality.events(self.before.counters.get(event), self.later.counters.get(event))
    }

    /// Seconds of CPU time: reference cycles over the nominal clock as SAM has it, else the scheduler's CPU time.
    fn cpu_seconds(&mut self, cycles: Event) -> Option<f64> {
        let by_cycles =
            self.events(cycles).zip(self.clock_hz).map(|(cycles, clock_hz)| cycles / clock_hz);
        by_cycles.or(Some(self.cpu_time.seconds())).filter(|seconds| *seconds > 0.0)
    }

    fn rates(&mut self, elapsed: Nanos) -> ThreadRates {
        let instructions = self.events(Event::Instructions);
        let cycles = self.events(Event::Cycles).filter(|cycles| *cycles > 0.0);
        let round1 = self.cpu_seconds(Event::ReferenceCycles);
        let round2 = match self.later.counters.get(Event::ReferenceCyclesRound2) {
            Some(_) => self.cpu_seconds(Event::ReferenceCyclesRound2),
            None => round1,
        };
        let remote = sum(self.events(Event::RemoteForward), self.events(Event::RemoteHitm));
        let misses = self.events(Event::LlcMisses);
        let all_misses =
            misses.map(|demand| demand + self.events(Event::LlcPrefetchMisses).unwrap_or(0.0));
        let remote_dram = self.events(Event::RemoteDram);
        let local_dram = self.events(Event::LocalDram);
        let stalls = self.events(Event::StallCycles);
        ThreadRates {
            instructions_per_s: instructions.map(|count| count / elapsed.seconds()),
            coherence_remote_per_s: remote.zip(round2).map(|(count, seconds)| count / seconds),
            coherence_local_per_s: self
                .neighbours()
                .zip(round1)
                .map(|(count, seconds)| count / seconds),
            memory_per_s: all_misses.zip(round1).map(|(count, seconds)| count / seconds),
            remote_dram_per_s: remote_dram.zip(round1).map(|(count, seconds)| count / seconds),
            mpki: all_misses
                .zip(instructions)
                .filter(|(_, n)| *n > 0.0)
                .map(|(m, n)| 1000.0 * m / n),
            ipc: instructions.zip(cycles).map(|(count, cycles)| count / cycles),
            stall_share: stalls.zip(cycles).map(|(stalls, cycles)| (stalls / cycles).min(1.0)),
            stalls_per_coherence: stalls
                .zip(remote.filter(|n| *n > 0.0))
                .map(|(stalls, count)| stalls / count),
            local_dram_share: local_dram
                .zip(remote_dram)
                .filter(|(l, r)| l + r > 0.0)
                .map(|(l, r)| l / (l + r)),
        }
    }

    /// SNP: counted directly where it can be, else private misses less what the last-level cache answered or missed, if positive.
    fn neighbours(&mut self) -> Option<f64> {
        let direct = self.events(Event::SnoopLocal);
        let misses = self.events(Event::LlcLoadMisses).or(self.events(Event::LlcMisses));
        let left = self.events(Event::PrivateMisses)? - self.events(Event::LlcHits)? - misses?;
        direct.or(Some(left.max(0.0)))
    }
}

fn sum(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (None, None) => None,
        _ => Some(one.unwrap_or(0.0) + other.unwrap_or(0.0)),
    }
}

/// What samples add up to for each application.
struct SampleSums {
    dram: Vec<Matrix<f64>>,
    latency: Vec<(f64, u64)>,
}

impl SampleSums {
    fn new(apps: usize, nodes: usize) -> Self {
        Self { dram: vec![Matrix::filled(nodes, 0.0); apps], latency: vec![(0.0, 0); apps] }
    }
}

/// Finds the indices of a sample's process and thread; samples of one thread tend to come together, so the last one is kept.
struct Finder {
    last: Option<(Pid, Tid, usize, usize)>,
}

impl Finder {
    fn find(&mut self, model: &Model, sample: &AddressSample) -> Option<(usize, usize)> {
        if let Some((pid, tid, app, thread)) = self.last
            && (pid, tid) == (sample.pid, sample.tid)
        {
            return Some((app, thread));
        }
        let app = model.apps.binary_search_by_key(&sample.pid, |app| app.pid).ok()?;
        let threads = model.apps[app].threads.clone();
        let place = model.threads[threads.clone()]
            .binary_search_by_key(&sample.tid, |thread| thread.tid)
            .ok()?;
        self.last = Some((sample.pid, sample.tid, app, threads.start + place));
        Some((app, threads.start + place))
    }
}

fn add_samples(model: &mut Model, topology: &Topology, samples: &Samples, sums: &mut SampleSums) {
    let mut finder = Finder { last: None };
    for sample in &samples.list {
        let Some((app, thread)) = finder.find(model, sample) else { continue };
        if usize::from(sample.cpu) >= topology.cpu_count() {
            continue;
        }
        let node = topology.node_of_cpu(usize::from(sample.cpu));
        let holder = usize::from(sample.node);
        let known = sample.node != UNKNOWN_NODE && holder < topology.node_count();
        let home = if known { sample.node } else { UNKNOWN_NODE };
        let address = sample.page_address();
        let page = model.pages.record(
            app as u32,
            address,
            sample.page_shift,
            home,
            node as u16,
            sample.store,
        );
        let from_memory = matches!(sample.source, Source::Dram | Source::HintFault);
        if from_memory && known {
            sums.dram[app][(node, holder)] += f64::from(u8::from(sample.source == Source::Dram));
            let accesses = &mut model.threads[thread].accesses_by_node;
            accesses.get_or_insert_with(|| vec![0; topology.node_count()])[holder] += 1;
        }
        if sample.source == Source::Dram && sample.latency_cycles > 0 {
            sums.latency[app].0 += f64::from(sample.latency_cycles);
            sums.latency[app].1 += 1;
        }
        if let Some(page) = page {
            model.touches.push(touch(page, thread, sample, from_memory && known && holder != node));
        }
    }
}

fn touch(page: PageId, thread: usize, sample: &AddressSample, remote_memory: bool) -> Touch {
    let remote_cache = matches!(sample.source, Source::CacheRemote | Source::CacheRemoteModified);
    Touch { page, thread: thread as u32, remote: remote_memory || remote_cache }
}

/// Gives each application without counters of its own its traffic: the machine's if it is alone, else its samples scaled to the
/// requests that its threads counted, else to its share of the machine's.
fn finish_traffic(
    model: &mut Model,
    current: &Observation,
    previous: &Observation,
    sums: &SampleSums,
    elapsed: Nanos,
) {
    let all_samples: f64 = sums.dram.iter().map(total).sum();
    let mut latency = (0.0, 0);
    for (index, app) in model.apps.iter_mut().enumerate() {
        let (cycles, count) = sums.latency[index];
        app.latency_cycles = (count > 0).then(|| cycles / count as f64);
        latency = (latency.0 + cycles, latency.1 + count);
        if app.traffic.is_some() {
            continue;
        }
        let sampled = total(&sums.dram[index]);
        let counted =
            counted_requests(current, previous, app.pid).map(|count| count / elapsed.micros());
        let share = model
            .traffic
            .as_ref()
            .map(|machine| machine.total_per_us() * sampled / all_samples.max(1.0));
        if let Some(per_us) = counted.or(share).filter(|_| sampled > 0.0) {
            app.traffic =
                Some(Traffic::new(sums.dram[index].map(|count| per_us * count / sampled)));
            app.traffic_source = TrafficSource::Samples;
        }
    }
    model.latency_cycles = (latency.1 > 0).then(|| latency.0 / latency.1 as f64);
    if let ([app], Some(machine)) = (&mut model.apps[..], &model.traffic)
        && app.traffic.is_none()
    {
        app.traffic = Some(machine.clone());
        app.traffic_source = TrafficSource::Machine;
    }
}

fn total(matrix: &Matrix<f64>) -> f64 {
    matrix.rows().flatten().sum()
}

/// DRAM requests that the threads of a process counted, local and remote.
fn counted_requests(current: &Observation, previous: &Observation, pid: Pid) -> Option<f64> {
    let place = current.processes.binary_search_by_key(&pid, |process| process.pid).ok()?;
    let process = &current.processes[place];
    let earlier = find_process(previous, process);
    let mut requests = None;
    for thread in &process.threads {
        let Some(before) = find_thread(earlier, thread.tid) else { continue };
        let events =
            |event| thread.counters.since(&before.counters, event).map(|delta| delta.events);
        requests = sum(requests, sum(events(Event::LocalDram), events(Event::RemoteDram)));
    }
    requests
}

/// Use of the links: counted where it can be, else the machine's traffic laid over the declared routes.
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
