//! The model: rates, ratios and page records of one interval, computed from two observations.
//! Policies see the model, never a counter.
//!
//! A metric without a sensor is `None`, never a guess. [`Sensing`] names the sensors behind the
//! model and its confidence. The fields are public, so that tests and `decide` can build a model by
//! hand. [`Model::check`] refuses a model that contradicts itself or its topology.

mod check;
mod pages;
mod shared;
mod thread;
mod traffic;
mod update;

pub use check::ModelError;
pub use pages::{Accesses, Accessors, Page, PageId, Pages};
pub use shared::SharedMemory;
pub(crate) use thread::RUNNING_SHARE;
pub use thread::{MIN_HOME_SHARE, SampledHome, Thread, ThreadRates};
pub use traffic::{Deviation, Traffic, imbalance_percent};
pub use update::UpdateSettings;

use crate::index_set::NodeSet;
use crate::observation::{AddressRange, Exemption, Mapping, Replica};
use crate::units::{Bytes, Nanos, Pid, Tid};
use alloc::vec::Vec;
use core::ops::Range;

/// The state of the machine over one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// End of the interval on the host's clock.
    pub at: Nanos,
    /// Its length.
    pub elapsed: Nanos,
    /// The sensors behind the model, and its confidence.
    pub sensing: Sensing,
    /// DRAM traffic of the whole machine. If the machine cannot be counted, that of all managed
    /// applications.
    pub traffic: Option<Traffic>,
    /// Mean latency of a DRAM access over the machine, in cycles.
    pub latency_cycles: Option<f64>,
    /// Use of each directed link (0..=1) in the topology's order.
    pub link_use: Option<Vec<f64>>,
    /// Memory that pages can take, by node: free memory and the page cache.
    pub free_memory: Option<Vec<Bytes>>,
    /// Managed processes, ascending by pid.
    pub apps: Vec<App>,
    /// Their threads, ascending by app, then tid. [`App::threads`] is a range of this list.
    pub threads: Vec<Thread>,
    /// Memory that several processes have mapped.
    pub shared: SharedMemory,
    /// Sampled pages. A page of shared memory belongs to its owner.
    pub pages: Pages,
    /// Which thread touched which sampled page, in sample order: the input of sharing signatures.
    pub touches: Vec<Touch>,
}

/// Kinds of sensors, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Rung {
    /// Address samples.
    Samples,
    /// Counters only.
    Counters,
    /// NUMA hint faults.
    HintFaults,
    /// Kernel statistics only.
    Statistics,
}

/// The sensors behind a model, and its confidence.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensing {
    /// The best kind of sensor that gave data.
    pub rung: Rung,
    /// 0 (nothing known) ..= 1 (every sensor read, no sample lost, no counter multiplexed).
    pub confidence: f64,
    /// Share of lost samples.
    pub lost_share: f64,
    /// Share of the time for which enabled counters were running on the hardware, over all.
    pub running_share: f64,
}

/// Source of an application's traffic from node to node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum TrafficSource {
    /// Counters of its own threads.
    Counters,
    /// Its address samples, scaled to the DRAM requests of the machine or, without such counts, of
    /// its threads.
    Samples,
    /// The traffic of the machine, because it is the only managed application.
    Machine,
    /// Its NUMA hint faults. The proportions are right; the rate is that of faults, not of DRAM
    /// requests.
    HintFaults,
}

/// Source of an application's share of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum ReadSource {
    /// Counters of the application: exact.
    Counters,
    /// Its sampled loads and stores: a lower bound.
    Samples,
}

/// One managed process over the interval.
#[derive(Debug, Clone, PartialEq)]
pub struct App {
    /// Its number.
    pub pid: Pid,
    /// When it started; with the pid, its identity.
    pub started: Nanos,
    /// Its threads, as indices of [`Model::threads`].
    pub threads: Range<usize>,
    /// Its DRAM traffic.
    pub traffic: Option<Traffic>,
    /// Source of the value above.
    pub traffic_source: TrafficSource,
    /// Lines fetched from other nodes' caches, by `[accessing][owning]`.
    pub cache_traffic: Option<Traffic>,
    /// Reads among its DRAM accesses, in percent (MRR).
    pub read_percent: Option<f64>,
    /// Source of the value above.
    pub read_source: ReadSource,
    /// Mean latency of its DRAM accesses in cycles, from samples.
    pub latency_cycles: Option<f64>,
    /// Number of accesses behind this mean.
    pub latency_accesses: f64,
    /// Page faults per second.
    pub faults_per_s: Option<f64>,
    /// CPU time per wall time in percent; 400 = four CPUs busy.
    pub cpu_percent: f64,
    /// CPU time of the threads that it has now, since they started.
    pub cpu_time: Nanos,
    /// Resident memory by node.
    pub memory: Option<Vec<Bytes>>,
    /// Nodes from which it may have memory; `None` = all.
    pub allowed_nodes: Option<NodeSet>,
    /// Mappings, ascending by address.
    pub mappings: Option<Vec<Mapping>>,
    /// Pages with copies on several nodes, ascending by address.
    pub replicas: Option<Vec<Replica>>,
    /// Ranges whose memory policy was read and is `default` or `local`, ascending by address;
    /// `None` = all of its memory.
    pub policy_read: Option<Vec<AddressRange>>,
    /// Reason for which it must not be changed, if any.
    pub exempt: Option<Exemption>,
    /// Its own count of work done, per second.
    pub progress_per_s: Option<f64>,
    /// Pages that the kernel's balancing or another program moved in the interval.
    pub pages_moved_by_others: Option<u64>,
}

/// One sampled access of a thread to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// Index of the page in [`Model::pages`].
    pub page: PageId,
    /// Index of the thread in [`Model::threads`].
    pub thread: u32,
    /// Served by a cache or memory of another node.
    pub remote: bool,
}

impl Model {
    /// An empty model, to be filled in by hand.
    #[must_use]
    pub fn empty(node_count: usize) -> Self {
        Self {
            at: Nanos(0),
            elapsed: Nanos::from_secs(1),
            sensing: Sensing {
                rung: Rung::Statistics,
                confidence: 0.0,
                lost_share: 0.0,
                running_share: 1.0,
            },
            traffic: None,
            latency_cycles: None,
            link_use: None,
            free_memory: None,
            apps: Vec::new(),
            threads: Vec::new(),
            shared: SharedMemory::default(),
            pages: Pages::new(node_count, crate::limits::MAX_TRACKED_PAGES),
            touches: Vec::new(),
        }
    }

    /// The application with this pid.
    #[must_use]
    pub fn app(&self, pid: Pid) -> Option<&App> {
        let place = self.apps.binary_search_by_key(&pid, |app| app.pid).ok()?;
        Some(&self.apps[place])
    }

    /// The threads of an application.
    #[must_use]
    pub fn threads_of(&self, app: &App) -> &[Thread] {
        &self.threads[app.threads.clone()]
    }

    /// The thread with this tid. A scan: for tests and reports.
    #[must_use]
    pub fn thread(&self, tid: Tid) -> Option<&Thread> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }

    /// Mean use of the links in percent, and their imbalance (100 · sd / mean). `None` if the use
    /// of links is not known.
    #[must_use]
    pub fn link_use_and_imbalance_percent(&self) -> Option<(f64, f64)> {
        let uses = self.link_use.as_deref().filter(|uses| !uses.is_empty())?;
        let mean = uses.iter().sum::<f64>() / uses.len() as f64;
        Some((100.0 * mean, imbalance_percent(uses, Deviation::Population).unwrap_or(0.0)))
    }
}

impl App {
    /// An application of which only the places of its threads are known.
    #[must_use]
    pub fn new(pid: Pid, threads: Range<usize>) -> Self {
        Self {
            pid,
            started: Nanos(0),
            threads,
            traffic: None,
            traffic_source: TrafficSource::Counters,
            cache_traffic: None,
            read_percent: None,
            read_source: ReadSource::Counters,
            latency_cycles: None,
            latency_accesses: 0.0,
            faults_per_s: None,
            cpu_percent: 0.0,
            cpu_time: Nanos(0),
            memory: None,
            allowed_nodes: None,
            mappings: None,
            replicas: None,
            policy_read: None,
            exempt: None,
            progress_per_s: None,
            pages_moved_by_others: None,
        }
    }

    /// The time for which it has run at the end of the interval.
    #[must_use]
    pub fn run_time(&self, model: &Model) -> Nanos {
        model.at.since(self.started)
    }

    /// The node that holds most of its memory; the lower one on a tie.
    #[must_use]
    pub fn home(&self) -> Option<usize> {
        let memory = self.memory.as_ref()?;
        let largest = *memory.iter().max().filter(|bytes| **bytes > Bytes(0))?;
        memory.iter().position(|bytes| *bytes == largest)
    }

    /// Whether it may have memory on a node.
    #[must_use]
    pub fn may_use_node(&self, node: usize) -> bool {
        self.allowed_nodes.as_ref().is_none_or(|nodes| nodes.contains(node))
    }
}
