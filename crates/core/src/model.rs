//! What two observations mean: rates, ratios and page records of one interval. Nothing downstream
//! of it sees a counter.
//!
//! A metric that could not be sensed is `None`, never a guess; [`Sensing`] says which rung fed the
//! model and how far to trust it. The fields are public and plain so that tests and `decide` can
//! write a model by hand. [`Model::check`] refuses a model that contradicts itself or its topology.

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
    /// Which rung of the sensing ladder fed it, and how far to trust it.
    pub sensing: Sensing,
    /// DRAM traffic of the whole machine; of all managed applications together where the machine
    /// cannot be counted.
    pub traffic: Option<Traffic>,
    /// Mean latency of a DRAM access over the machine, in cycles.
    pub latency_cycles: Option<f64>,
    /// Use of each directed link (0..=1) in the topology's order.
    pub link_use: Option<Vec<f64>>,
    /// Free memory by node.
    pub free_memory: Option<Vec<Bytes>>,
    /// Managed processes, ascending by pid.
    pub apps: Vec<App>,
    /// Their threads: ascending by app, then tid. [`App::threads`] is a range of it.
    pub threads: Vec<Thread>,
    /// What the processes have mapped together.
    pub shared: SharedMemory,
    /// Sampled pages; those of shared memory are their owner's.
    pub pages: Pages,
    /// Which thread touched which sampled page, in sample order: the input of sharing signatures.
    pub touches: Vec<Touch>,
}

/// Rungs of the sensing ladder, best first.
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

/// Where the model comes from and how far to trust it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sensing {
    /// The best rung that gave something.
    pub rung: Rung,
    /// 0 (know nothing) ..= 1 (every source read, nothing lost, nothing multiplexed away).
    pub confidence: f64,
    /// Share of the samples that was lost.
    pub lost_share: f64,
    /// Smallest share of the interval for which a used counter really counted.
    pub running_share: f64,
}

/// Where an application's node traffic was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum TrafficSource {
    /// Counters of its own threads.
    Counters,
    /// Its address samples, scaled to the DRAM requests of the machine or, where those are not
    /// counted, of its threads.
    Samples,
    /// It is the only managed application: the machine's.
    Machine,
    /// Its NUMA hint faults: the proportions are right, the rate is that of the faults and not of
    /// DRAM requests.
    HintFaults,
}

/// Where an application's share of reads was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum ReadSource {
    /// Counters of its own: exact.
    Counters,
    /// Its sampled loads and stores: the share is at least this.
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
    /// Where that was learnt.
    pub traffic_source: TrafficSource,
    /// Lines fetched from other nodes' caches, by `[accessing][owning]`.
    pub cache_traffic: Option<Traffic>,
    /// Reads among its DRAM accesses, in percent (MRR).
    pub read_percent: Option<f64>,
    /// Where that was learnt.
    pub read_source: ReadSource,
    /// Mean latency of its DRAM accesses in cycles, from samples.
    pub latency_cycles: Option<f64>,
    /// Accesses that this latency is the mean of.
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
    /// Parts whose memory policy was read and is a usual one, ascending by address; `None` = all of
    /// its memory.
    pub policy_read: Option<Vec<AddressRange>>,
    /// Why it is not to be touched, if so.
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
    /// An interval in which nothing was seen: the start for a model written by hand.
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

    /// Mean use of the links in percent, and 100 · sd / mean over them; `None` where links are not
    /// known.
    #[must_use]
    pub fn link_use_and_imbalance_percent(&self) -> Option<(f64, f64)> {
        let uses = self.link_use.as_deref().filter(|uses| !uses.is_empty())?;
        let mean = uses.iter().sum::<f64>() / uses.len() as f64;
        Some((100.0 * mean, imbalance_percent(uses, Deviation::Population).unwrap_or(0.0)))
    }
}

impl App {
    /// An application of which nothing is known but its threads' place in the model.
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
