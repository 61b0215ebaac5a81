//! The report as data: `--json` prints one object on each line, and the table is made from the same
//! data.
//!
//! These are wire types: a name, once published, keeps its meaning within a schema number. A value
//! without a sensor is `null`.

use std::collections::BTreeMap;

use rondpoint_core::model::{Rung, Traffic, TrafficSource};
use rondpoint_core::observation::{AddressSample, Source};
use rondpoint_core::{Matrix, Model, Pid, Topology};
use rondpoint_linux::observe::counters::{self, CpuReading};
use rondpoint_linux::observe::{Look, Observer};
use rondpoint_linux::perf::generation::Metric;
use serde::Serialize;

/// Version of all objects here.
pub(crate) const SCHEMA: u32 = 2;

/// One line of the report.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Line {
    /// What is observed, on what, with which sensors.
    Start(Start),
    /// One interval.
    Interval(Box<Interval>),
    /// The whole run.
    Summary(Box<Summary>),
}

/// Where it begins.
#[derive(Debug, Serialize)]
pub(crate) struct Start {
    pub(crate) schema: u32,
    pub(crate) version: &'static str,
    pub(crate) pid: u32,
    pub(crate) command: Vec<String>,
    pub(crate) nodes: Vec<NodeLine>,
    pub(crate) processor: String,
    pub(crate) event_table: String,
    pub(crate) counted: Vec<String>,
    pub(crate) sampled: Option<&'static str>,
    pub(crate) notes: Vec<String>,
}

/// One node.
#[derive(Debug, Serialize)]
pub(crate) struct NodeLine {
    pub(crate) node: u32,
    pub(crate) cpus: String,
    pub(crate) memory_bytes: u64,
}

/// What one interval, or the whole run, was like.
#[derive(Debug, Serialize)]
pub(crate) struct Interval {
    /// Seconds from the first look to the end of the interval.
    pub(crate) at_s: f64,
    /// Its length.
    pub(crate) elapsed_s: f64,
    pub(crate) sensing: Sensing,
    /// CPU seconds of the program and all its descendants in the interval.
    pub(crate) cpu_s: Option<f64>,
    pub(crate) processes: usize,
    pub(crate) thread_count: usize,
    /// The program and its descendants.
    pub(crate) program: TrafficLine,
    /// Where the program's traffic was learnt.
    pub(crate) program_source: Option<TrafficSource>,
    /// The whole machine, where it can be counted.
    pub(crate) machine: Option<TrafficLine>,
    /// Use of each directed link, 0 to 1.
    pub(crate) link_use: Option<Vec<f64>>,
    /// Imbalance of the links, percent.
    pub(crate) link_imbalance_percent: Option<f64>,
    pub(crate) free_memory_bytes: Option<Vec<u64>>,
    /// Resident memory of the program's processes by node.
    pub(crate) memory_bytes: Option<Vec<u64>>,
    pub(crate) faults_per_s: Option<f64>,
    /// Counts of the program and its descendants since the beginning.
    pub(crate) counters: BTreeMap<String, CounterLine>,
    pub(crate) samples: Option<SamplesLine>,
    /// The kernel's own NUMA counters, since the beginning of the run.
    pub(crate) kernel: BTreeMap<String, u64>,
    /// Busiest first.
    pub(crate) threads: Vec<ThreadLine>,
}

/// How far to trust it.
#[derive(Debug, Serialize)]
pub(crate) struct Sensing {
    pub(crate) rung: Rung,
    pub(crate) confidence: f64,
    pub(crate) lost_share: f64,
    pub(crate) running_share: f64,
}

/// DRAM traffic and what follows from it.
#[derive(Debug, Serialize, Default)]
pub(crate) struct TrafficLine {
    /// Accesses per microsecond, `[accessing][holding]`.
    pub(crate) accesses_per_us: Option<Vec<Vec<f64>>>,
    /// Page faults per second instead, where those are the source. They come at the rate of the
    /// kernel's scanner, and say where memory is used, not how often.
    pub(crate) hint_faults_per_s: Option<Vec<Vec<f64>>>,
    pub(crate) maptu: Option<f64>,
    pub(crate) lar_percent: Option<f64>,
    pub(crate) imbalance_percent: Option<f64>,
    pub(crate) mrr_percent: Option<f64>,
    /// Mean latency of DRAM accesses, cycles.
    pub(crate) latency_cycles: Option<f64>,
}

/// A count as read.
#[derive(Debug, Serialize)]
pub(crate) struct CounterLine {
    pub(crate) value: u64,
    pub(crate) enabled_ns: u64,
    pub(crate) running_ns: u64,
}

/// Samples of the interval.
#[derive(Debug, Serialize)]
pub(crate) struct SamplesLine {
    /// `accesses` or `faults`.
    pub(crate) of: &'static str,
    pub(crate) taken: usize,
    /// How many were served by what.
    pub(crate) by_source: BTreeMap<&'static str, usize>,
    pub(crate) lost: u64,
    pub(crate) throttled: bool,
    pub(crate) pages: usize,
    pub(crate) bad_records: u64,
}

/// One thread.
#[derive(Debug, Serialize)]
pub(crate) struct ThreadLine {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) name: Option<String>,
    pub(crate) cpu: u32,
    pub(crate) node: u32,
    /// CPU time per wall time.
    pub(crate) busy: f64,
    pub(crate) ipc: Option<f64>,
    pub(crate) mpki: Option<f64>,
    pub(crate) stall_share: Option<f64>,
    /// Sampled DRAM accesses, or faults, by the node that holds the data.
    pub(crate) accesses_by_node: Option<Vec<u32>>,
    /// The node that holds most of what it accesses.
    pub(crate) home: Option<u32>,
}

/// The whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) schema: u32,
    pub(crate) command: Vec<String>,
    /// The program's exit status, `null` where a signal ended it or it runs on.
    pub(crate) exit_status: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// CPU seconds that observing took.
    pub(crate) own_cpu_s: f64,
    pub(crate) first_touches: Option<u64>,
    pub(crate) notes: Vec<String>,
    #[serde(flatten)]
    pub(crate) whole: Interval,
}

/// Everything that one interval is made from.
pub(crate) struct Sources<'a> {
    pub(crate) observer: &'a Observer,
    pub(crate) first: &'a Look,
    pub(crate) previous: &'a Look,
    pub(crate) look: &'a Look,
    pub(crate) model: &'a Model,
    pub(crate) pid: Pid,
}

impl Interval {
    /// Puts a model into the words of the report.
    pub(crate) fn new(sources: &Sources<'_>) -> Self {
        let Sources { observer, first, previous, look, model, pid } = *sources;
        let topology = &observer.machine().topology;
        let app = model.app(pid);
        let mut program = traffic_line(app.and_then(|app| app.traffic.as_ref()), topology);
        program.mrr_percent = app.and_then(|app| app.read_percent);
        program.latency_cycles = model.latency_cycles;
        if app.is_some_and(|app| app.traffic_source == TrafficSource::HintFaults) {
            program.count_faults();
        }
        // If the machine is not counted, the model's traffic is the program's again.
        let machine = model.traffic.as_ref().filter(|_| look.observation.node_traffic.is_some());
        let cpu_s = cpu_seconds(&look.readings).zip(cpu_seconds(&previous.readings));
        let cpu_s = cpu_s.map(|(now, before)| now - before);
        let links = model.link_use_and_imbalance_percent();
        Self {
            at_s: look.observation.at.since(first.observation.at).seconds(),
            elapsed_s: model.elapsed.seconds(),
            sensing: Sensing {
                rung: model.sensing.rung,
                confidence: model.sensing.confidence,
                lost_share: model.sensing.lost_share,
                running_share: model.sensing.running_share,
            },
            cpu_s: cpu_s.filter(|_| !observer.watches_all_tasks()),
            processes: model.apps.len(),
            thread_count: model.threads.len(),
            program,
            program_source: app.filter(|app| app.traffic.is_some()).map(|app| app.traffic_source),
            machine: machine.map(|traffic| traffic_line(Some(traffic), topology)),
            link_use: model.link_use.clone(),
            link_imbalance_percent: links.map(|(_, imbalance)| imbalance),
            free_memory_bytes: bytes(model.free_memory.as_deref()),
            memory_bytes: memory(model),
            faults_per_s: app.and_then(|app| app.faults_per_s),
            counters: counter_lines(&look.readings),
            samples: samples_line(look, model),
            kernel: kernel(first, look),
            threads: thread_lines(observer, model),
        }
    }
}

fn cpu_seconds(readings: &[CpuReading]) -> Option<f64> {
    (!readings.is_empty()).then(|| readings.iter().map(|reading| reading.cpu_time.seconds()).sum())
}

impl TrafficLine {
    /// What was counted were page faults.
    fn count_faults(&mut self) {
        self.maptu = None;
        let per_second = |row: Vec<f64>| row.into_iter().map(|rate| 1e6 * rate).collect();
        let rates = self.accesses_per_us.take();
        self.hint_faults_per_s = rates.map(|rows| rows.into_iter().map(per_second).collect());
    }
}

fn traffic_line(traffic: Option<&Traffic>, topology: &Topology) -> TrafficLine {
    use rondpoint_core::model::Deviation;
    let Some(traffic) = traffic else { return TrafficLine::default() };
    TrafficLine {
        accesses_per_us: Some(rows(&traffic.requests_per_us)),
        hint_faults_per_s: None,
        maptu: Some(traffic.total_per_us()),
        lar_percent: traffic.local_percent(),
        imbalance_percent: traffic.imbalance_percent(Deviation::Population, topology),
        mrr_percent: None,
        latency_cycles: None,
    }
}

fn rows(matrix: &Matrix<f64>) -> Vec<Vec<f64>> {
    matrix.rows().map(<[f64]>::to_vec).collect()
}

fn bytes(by_node: Option<&[rondpoint_core::Bytes]>) -> Option<Vec<u64>> {
    by_node.map(|nodes| nodes.iter().map(|bytes| bytes.0).collect())
}

/// Of all processes with known memory.
fn memory(model: &Model) -> Option<Vec<u64>> {
    let known = model.apps.iter().filter_map(|app| bytes(app.memory.as_deref()));
    known.reduce(|one, other| one.iter().zip(other).map(|(a, b)| a + b).collect())
}

fn counter_lines(readings: &[CpuReading]) -> BTreeMap<String, CounterLine> {
    let metrics: Vec<Metric> = readings
        .first()
        .map(|first| first.counts.iter().map(|(metric, _)| *metric).collect())
        .unwrap_or_default();
    let line = |metric| {
        counters::total(readings, metric).map(|counter| CounterLine {
            value: counter.value,
            enabled_ns: counter.enabled.0,
            running_ns: counter.running.0,
        })
    };
    metrics.into_iter().filter_map(|metric| Some((metric.name(), line(metric)?))).collect()
}

fn samples_line(look: &Look, model: &Model) -> Option<SamplesLine> {
    let observation = &look.observation;
    let accesses = observation.samples.as_ref().map(|samples| ("accesses", samples));
    let faults = observation.hint_faults.as_ref().map(|samples| ("faults", samples));
    let (of, samples) = accesses.or(faults)?;
    Some(SamplesLine {
        of,
        taken: samples.list.len(),
        by_source: by_source(&samples.list),
        lost: samples.lost,
        throttled: samples.throttled,
        pages: model.pages.len(),
        bad_records: look.bad_records,
    })
}

fn by_source(samples: &[AddressSample]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for sample in samples {
        let name = match sample.source {
            Source::FirstLevel => "first_level",
            Source::Private => "private",
            Source::InFlight => "in_flight",
            Source::LastLevel => "last_level",
            Source::CacheSameNode => "cache_same_node",
            Source::CacheRemote => "cache_remote",
            Source::CacheRemoteModified => "cache_remote_modified",
            Source::Dram => "dram",
            Source::HintFault => "fault",
            Source::Unknown => "unknown",
        };
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}

fn kernel(first: &Look, look: &Look) -> BTreeMap<String, u64> {
    let since = |(name, value): (&String, &u64)| {
        let before = first.vmstat.get(name).copied().unwrap_or(0);
        (name.clone(), value.saturating_sub(before))
    };
    look.vmstat.iter().map(since).filter(|(_, value)| *value > 0).collect()
}

fn thread_lines(observer: &Observer, model: &Model) -> Vec<ThreadLine> {
    let topology = &observer.machine().topology;
    let mut threads: Vec<ThreadLine> = model
        .threads
        .iter()
        .map(|thread| ThreadLine {
            pid: model.apps[thread.app].pid.0,
            tid: thread.tid.0,
            name: observer.name(thread.tid).map(str::to_string),
            cpu: topology.kernel_cpu(thread.cpu),
            node: topology.kernel_node(topology.node_of_cpu(thread.cpu)),
            busy: thread.cpu_share,
            ipc: thread.rates.ipc,
            mpki: thread.rates.mpki,
            stall_share: thread.rates.stall_share,
            accesses_by_node: thread.accesses_by_node.clone(),
            home: thread.home().map(|node| topology.kernel_node(node)),
        })
        .collect();
    threads.sort_by(|a, b| b.busy.total_cmp(&a.busy).then(a.tid.cmp(&b.tid)));
    threads
}

/// The nodes, for the start of the report.
pub(crate) fn node_lines(topology: &Topology) -> Vec<NodeLine> {
    let cpus = |node: usize| {
        let cpus = topology.cpus_of_node(node).iter().map(|cpu| topology.kernel_cpu(cpu));
        rondpoint_linux::parse::cpulist::format(&cpus.collect::<Vec<u32>>())
    };
    (0..topology.node_count())
        .map(|node| NodeLine {
            node: topology.kernel_node(node),
            cpus: cpus(node),
            memory_bytes: topology.memory(node).0,
        })
        .collect()
}
