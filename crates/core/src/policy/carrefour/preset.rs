//! Carrefour's published variants, and one of ours, as data (ALGORITHMS 0.3). Percentages are
//! 0..=100; rates are those of machine A and are scaled.

use super::between::Between;
use super::tenure::Tenure;
use crate::model::{Deviation, TrafficSource};
use crate::plan::Sampling;
use crate::units::Nanos;

/// One variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Time between decisions.
    pub period: Nanos,
    /// Time until a mechanism that did not help an application is tried again.
    pub idle_period: Nanos,
    /// The same after two rounds in a row without anything to do.
    pub quiet_period: Nanos,
    /// Traffic below which an application is left alone.
    pub traffic: TrafficGate,
    /// Act only if some thread of the application has fewer instructions per cycle.
    pub ipc_below: Option<f64>,
    /// Replication, if it has any.
    pub replication: Option<Replication>,
    /// How long samples are used again after their first decision.
    pub sample_memory: Nanos,
    /// Interleave above this imbalance of the controllers …
    pub interleave_above_imbalance: f64,
    /// … and, once that has begun, until it is no more than this.
    pub interleave_until_imbalance: Option<EvenEnough>,
    /// … and only below this local access ratio.
    pub interleave_below_local: Option<f64>,
    /// Co-locate below this local access ratio.
    pub colocate_below_local: f64,
    /// Limit of the local access ratio in its place once co-location has begun.
    pub colocate_until_local: Option<f64>,
    /// The kind of standard deviation of the imbalance.
    pub deviation: Deviation,
    /// How pages are chosen.
    pub pages: PageRules,
    /// How often addresses are sampled.
    pub sampling: SamplingRates,
    /// Rules for dropping a mechanism that does not help.
    pub feedback: Option<Feedback>,
    /// Rules for giving up an application whose accesses keep going to other pages.
    pub stabiliser: Stabiliser,
}

/// The traffic gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrafficGate {
    /// DRAM requests per microsecond on machine A.
    pub per_us: f64,
    /// The scope of a gate.
    pub scope: TrafficScope,
    /// Whether exactly this much is enough.
    pub inclusive: bool,
}

/// The scope of the traffic gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficScope {
    /// Traffic of the application, compared with the share of the whole machine's capacity.
    Application,
    /// The same, but if the machine is above its limit, the limit is scaled to the CPUs of the
    /// application (ours). Two programs that share a machine each have half of the traffic, so
    /// neither alone is above the limit when both jam it.
    ApplicationOfSeveral,
    /// As [`Self::ApplicationOfSeveral`]. An application with less traffic also passes if it likely
    /// loses more than [`WORTH_MOVING`] of its time to memory latency (ours). Where the machine's
    /// latencies were measured, one that likely loses less never passes.
    ///
    /// [`WORTH_MOVING`]: crate::cost::WORTH_MOVING
    Priced,
    /// Traffic of the machine.
    Machine,
    /// Traffic of the machine per node.
    MachinePerNode,
}

/// Rules of replication.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replication {
    /// Least share of reads among the DRAM accesses, in percent.
    pub read_percent: f64,
    /// Whether exactly this much is enough.
    pub inclusive: bool,
    /// If set, each thread that uses at least this share of a CPU must have this share of reads.
    /// Otherwise the application as a whole must have it.
    pub each_thread_above_cpu_share: Option<f64>,
    /// Free memory.
    pub free_memory: FreeMemory,
    /// Page faults per second at most.
    pub max_faults_per_s: Option<f64>,
    /// Least number of marked pages for the first replication of an application, which has to pay
    /// for the page tables.
    pub first_batch: usize,
    /// Least number of marked pages for later replications.
    pub later_batch: usize,
    /// A page that collapsed more often is never replicated again.
    pub max_collapses: u32,
    /// Whether the pages of a batch that is too small are interleaved (ours). By the published
    /// texts they stay.
    pub interleaves_small_batch: bool,
    /// Whether copying waits after most copies were gone by the next round (ours).
    pub waits_where_copies_fail: bool,
}

impl Replication {
    /// Least number of marked pages. `activated` = the application has had copies before.
    pub(super) fn batch(&self, activated: bool) -> usize {
        if activated { self.later_batch } else { self.first_batch }.max(1)
    }
}

/// How much memory must be free for replication.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FreeMemory {
    /// 1 − 1/N of the machine: a copy for each node fits.
    CopyPerNode,
    /// At most this share in use.
    UsedAtMost(f64),
}

/// How pages are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageRules {
    /// Sampled accesses needed to decide.
    pub min_samples: u32,
    /// Sampled accesses needed while interleaving is on.
    pub min_samples_interleaving: u32,
    /// Whether a page with one accessing node also moves there while only interleaving is on.
    pub colocate_while_interleaving: bool,
    /// Targets of interleaved pages.
    pub targets: Targets,
    /// Rule for random draws.
    pub draw: Draw,
    /// How often one page may be moved, 0 = any number.
    pub max_moves_per_page: u16,
    /// The same for huge pages.
    pub max_moves_per_huge_page: u16,
    /// Least share of the sampled pages, or of their accesses, that a mechanism must move. Each
    /// change needs a trial, which has a cost.
    pub least_share: Option<f64>,
    /// Rules for unsampled pages between sampled pages, if any.
    pub between: Option<Between>,
    /// Rules for pausing co-location if co-located pages are used from elsewhere, if any.
    pub tenure: Option<Tenure>,
    /// If set, a shared page goes to the node that surely makes most of its accesses. With every
    /// page at its users, that controller must be about even with the others, or below its share.
    /// The value is the least lead, in standard deviations of evenly split accesses.
    pub most_used_from: Option<f64>,
    /// Whether pages that only their own node accesses also leave a busy controller.
    pub offloads: bool,
    /// Whether pages move if page faults are the only sensor. The kernel's balancing makes these
    /// faults in one part of the memory after the other, and moves pages itself. The shares of
    /// faults show which part has its turn. And without counters no trial sees the cost of a wrong
    /// move.
    pub by_faults: bool,
}

impl PageRules {
    /// Accesses that decide about a page, with interleaving or without.
    pub(super) fn needed(&self, interleaving: bool) -> u32 {
        if interleaving { self.min_samples_interleaving } else { self.min_samples }
    }
}

/// Imbalance of the controllers in percent that ends interleaving.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvenEnough {
    /// By counts of their traffic.
    pub counted: f64,
    /// By address samples or page faults.
    pub sampled: f64,
}

impl EvenEnough {
    /// The limit for traffic from this source.
    #[must_use]
    pub fn limit(self, source: TrafficSource) -> f64 {
        match source {
            TrafficSource::Counters | TrafficSource::Machine => self.counted,
            TrafficSource::Samples | TrafficSource::HintFaults => self.sampled,
        }
    }
}

/// Targets of interleaved pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Targets {
    /// Any node.
    AllNodes,
    /// Nodes that accessed the page.
    AccessingNodes,
    /// Any node, with a larger chance for nodes with more of the page's accesses.
    MoreWhereUsed,
}

/// Rule for draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draw {
    /// With the exact shares of the paper.
    Exact,
    /// As the author code: integer percentages, a number of 0 to 100 inclusive, compared with ≤.
    IntegerPercent,
    /// Only the excess of nodes above the mean, and only to nodes below the mean. Neighbouring
    /// pages go to different nodes.
    Excess,
}

/// Rates of address sampling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingRates {
    /// Rate while there is something to do.
    pub accurate: Sampling,
    /// Rate otherwise.
    pub cheap: Sampling,
    /// Rate after two rounds at the cheap rate that changed little, if any.
    pub idle: Option<Sampling>,
    /// Least number of changes in a round that keeps the accurate rate.
    pub min_actions: u64,
    /// If set, replaces `min_actions`: the rate stays accurate if this round changes at least this
    /// share of the sampled pages.
    pub min_share: Option<f64>,
    /// Sampling rate of an application that is left alone.
    pub disabled: Sampling,
}

/// The feedback of Carrefour-LP, in relative percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Feedback {
    /// A mechanism helped if the local ratio rose by more.
    pub local_gain: f64,
    /// … or the imbalance fell by more.
    pub imbalance_gain: f64,
    /// It did harm if the local ratio fell by more.
    pub local_loss: f64,
}

/// Optional stabilisers of the author code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stabiliser {
    /// Skip the round when samples per page deviate by more (percent).
    pub max_sample_deviation: Option<f64>,
    /// Give an application up after more rounds than this in a row …
    pub max_untreated_rounds: Option<u32>,
    /// … in which fewer samples (percent) hit treated pages.
    pub treated_percent: f64,
}

const fn every(cycles: u64, tracked_pages: usize) -> Sampling {
    Sampling::Every { cycles, tracked_pages }
}

const PAPER_REPLICATION: Replication = Replication {
    read_percent: 95.0,
    inclusive: false,
    each_thread_above_cpu_share: None,
    free_memory: FreeMemory::CopyPerNode,
    max_faults_per_s: None,
    first_batch: 500,
    later_batch: 500,
    max_collapses: 5,
    interleaves_small_batch: false,
    waits_where_copies_fail: false,
};

/// The final text: the default.
pub const FINAL: Preset = Preset {
    name: "final",
    period: Nanos::from_secs(1),
    idle_period: Nanos::from_secs(1),
    quiet_period: Nanos::from_secs(1),
    traffic: TrafficGate { per_us: 50.0, scope: TrafficScope::Application, inclusive: false },
    ipc_below: None,
    replication: Some(PAPER_REPLICATION),
    sample_memory: Nanos(0),
    interleave_above_imbalance: 35.0,
    interleave_until_imbalance: None,
    interleave_below_local: None,
    colocate_below_local: 80.0,
    colocate_until_local: None,
    deviation: Deviation::Population,
    pages: PageRules {
        min_samples: 2,
        min_samples_interleaving: 2,
        colocate_while_interleaving: false,
        targets: Targets::AllNodes,
        draw: Draw::Exact,
        max_moves_per_page: 0,
        max_moves_per_huge_page: 0,
        least_share: None,
        between: None,
        tenure: None,
        most_used_from: None,
        offloads: false,
        by_faults: true,
    },
    sampling: SamplingRates {
        accurate: every(65_000, 30_000),
        cheap: every(260_000, 30_000),
        idle: None,
        min_actions: 10,
        min_share: None,
        disabled: Sampling::Off,
    },
    feedback: None,
    stabiliser: Stabiliser {
        max_sample_deviation: None,
        max_untreated_rounds: None,
        treated_percent: 75.0,
    },
};

/// The earlier draft.
pub const DRAFT: Preset = Preset {
    name: "draft",
    ipc_below: Some(0.7),
    replication: Some(Replication {
        inclusive: true, // "off if below 95 %"
        max_faults_per_s: Some(500.0),
        first_batch: 1, // no batch is stated
        later_batch: 1,
        ..PAPER_REPLICATION
    }),
    interleave_below_local: Some(40.0),
    colocate_below_local: 70.0,
    deviation: Deviation::Sample,
    ..FINAL
};

/// The author code, branch master.
pub const CODE: Preset = Preset {
    name: "code",
    traffic: TrafficGate { per_us: 50.0, scope: TrafficScope::Machine, inclusive: true },
    replication: Some(Replication {
        inclusive: true,
        free_memory: FreeMemory::UsedAtMost(0.25),
        later_batch: 1,
        ..PAPER_REPLICATION
    }),
    interleave_below_local: Some(100.0),
    deviation: Deviation::Sample,
    pages: PageRules {
        min_samples_interleaving: 1,
        colocate_while_interleaving: true,
        draw: Draw::IntegerPercent,
        ..FINAL.pages
    },
    sampling: SamplingRates {
        accurate: every(0xFFF8, 30_000),
        cheap: every(0x3_FFE0, 10_000),
        idle: None,
        min_actions: 10,
        min_share: None,
        disabled: every(0x3_FFE0, 10_000),
    },
    ..FINAL
};

/// The author code with its other estimate of the read ratio (memory controller reads over reads
/// and writes).
pub const CODE_MRR: Preset = Preset {
    name: "code-mrr",
    replication: Some(Replication {
        read_percent: 90.0,
        inclusive: true,
        free_memory: FreeMemory::UsedAtMost(0.25),
        later_batch: 1,
        ..PAPER_REPLICATION
    }),
    ..CODE
};

/// The author code, branch carrefour-per-pid.
pub const PER_PID: Preset = Preset {
    name: "per-pid",
    replication: Some(Replication {
        inclusive: true,
        each_thread_above_cpu_share: Some(0.1),
        free_memory: FreeMemory::UsedAtMost(0.25),
        later_batch: 1,
        ..PAPER_REPLICATION
    }),
    pages: PageRules { targets: Targets::AccessingNodes, ..CODE.pages },
    ..CODE
};

/// Carrefour-LP, the author code's branch usenix.
pub const LP: Preset = Preset {
    name: "lp",
    idle_period: Nanos::from_secs(5),
    traffic: TrafficGate { per_us: 15.0, scope: TrafficScope::MachinePerNode, inclusive: true },
    replication: None,
    pages: PageRules { max_moves_per_huge_page: 1, ..CODE.pages },
    sampling: SamplingRates {
        accurate: every(0xF_FFE0, 30_000),
        cheap: every(0xF_FFF0, 10_000),
        idle: None,
        min_actions: 10,
        min_share: None,
        disabled: every(0xF_FFF0, 10_000),
    },
    feedback: Some(Feedback { local_gain: 10.0, imbalance_gain: 10.0, local_loss: 5.0 }),
    ..CODE
};

/// Witnesses that [`STEADY`] requires; all values are our choice. The reach is the size of a huge
/// page, about which two samples decide. Among 64 witnesses a few have two samples even if only one
/// page in ten has any. One round fills the guard's budget for one node and one second.
const ALIKE: Between = Between {
    reach: 512,
    first_asked: 2,
    witnesses: 32,
    private_accesses: 4,
    deciding: 2,
    most: 1 << 16,
};

/// The rule by which [`STEADY`] pauses co-location; all values are our choice. Samples of a private
/// page come from one node. If a third come from elsewhere, parts of the data change their users
/// about once a round, or many threads have moved. Eight accesses distinguish this from one stray
/// thread. A pause of two rounds outlasts the turn of a part that changes its user each second. The
/// sixth pause in a row is a minute.
const BROUGHT: Tenure =
    Tenure { least_accesses: 8, elsewhere_percent: 33.0, first_rounds: 2, most_rounds: 60 };

/// Our preset. The published draw also moves pages between nodes with equal load, and its limit
/// leaves one controller a third above the others. This preset moves only the excess, until the
/// controllers are even. A few hundred samples cannot show differences below 10 %; counts end it at
/// 3 %. Both limits are our choice. The last few pages are often a run of neighbours on one node.
/// At each barrier all other threads wait for the thread that reads them.
///
/// - Pages with one accessing node move too, as in the author code.
/// - Co-location, once begun, goes on until 98 % of the accesses are local (our choice). At the
///   published 80 %, a few threads have remote pages, and the others wait for them at barriers.
/// - Samples are used for two rounds: one sample in each round counts as two.
/// - A round that moves less than a tenth of its pages divides the sampling rate by four. After two
///   such rounds the rate is a sixteenth.
/// - Unsampled small pages move with the sampled pages around them. If pages are sampled less than
///   once a round, waiting for samples of each page would leave the jam in place for many rounds.
/// - Unsampled pages also get copies if all samples around them are reads.
/// - Pages that are too few for copies are interleaved.
/// - Copying waits, each time longer, if writes drop most copies within a round.
/// - Co-location pauses if other nodes use the co-located pages in the next round.
/// - A shared page goes to the node that surely makes most of its accesses, otherwise by preference
///   to a node that uses it. The published draw takes any node. A huge page at the border of two
///   threads' parts is then often on a node where neither runs, and fills the links.
/// - A page that only its own node accesses also leaves a busy controller. The published draw
///   leaves it there.
/// - Pages stay in place if they are few and have few of the accesses.
/// - A quiet machine is sampled every other second, because observing 64 CPUs takes most of the
///   budget for observation.
pub const STEADY: Preset = Preset {
    name: "steady",
    replication: Some(Replication {
        interleaves_small_batch: true,
        waits_where_copies_fail: true,
        ..PAPER_REPLICATION
    }),
    quiet_period: Nanos::from_secs(2),
    sample_memory: Nanos::from_secs(1),
    traffic: TrafficGate { scope: TrafficScope::Priced, ..FINAL.traffic },
    interleave_until_imbalance: Some(EvenEnough { counted: 3.0, sampled: 10.0 }),
    colocate_until_local: Some(98.0),
    pages: PageRules {
        draw: Draw::Excess,
        colocate_while_interleaving: true,
        least_share: Some(0.02),
        between: Some(ALIKE),
        tenure: Some(BROUGHT),
        targets: Targets::MoreWhereUsed,
        most_used_from: Some(2.0),
        offloads: true,
        by_faults: false,
        ..FINAL.pages
    },
    sampling: SamplingRates {
        idle: Some(every(1_040_000, 30_000)),
        min_share: Some(0.1),
        ..FINAL.sampling
    },
    ..FINAL
};

/// [`STEADY`] without copies, for comparisons on a kernel that replicates pages.
pub const STEADY_ALONE: Preset =
    Preset { name: "steady-without-copies", replication: None, ..STEADY };

/// The names of [`PRESETS`].
pub(super) const NAMES: &[&str] =
    &["final", "draft", "code", "code-mrr", "per-pid", "lp", "steady", "steady-without-copies"];

/// Every preset, the default first.
pub const PRESETS: &[&Preset] =
    &[&FINAL, &DRAFT, &CODE, &CODE_MRR, &PER_PID, &LP, &STEADY, &STEADY_ALONE];
