//! Every constant of AsymSched with where it comes from, and the published variants as data.

use crate::model::{RUNNING_SHARE, Thread};
use crate::units::Nanos;

/// The weight of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Weight {
    /// `ln C_rbw` [third-party code: demo; recalled from the paper].
    Log,
    /// 1, whatever its traffic [third-party code: CHARM].
    One,
}

/// The target of a page that is accessed after its threads moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Follow {
    /// The node that took the threads of the page's node, which keeps the layout (inferred).
    Image,
    /// The only node that accesses the page (Carrefour's rule); with several, as [`Self::Image`].
    OnlyAccessor,
}

/// The constants of one variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// Time between decisions [AsymSched-slides: 1 s].
    pub period: Nanos,
    /// Share of the best weighted bandwidth that is good enough, in thousandths [third-party code,
    /// both: 0.90].
    pub slack_permille: u64,
    /// Share of an application's run time that moving its memory may take [third-party code, both:
    /// 0.05].
    pub budget_share: f64,
    /// Seconds to migrate 10⁹ bytes: 0.3 with the authors' frozen migration, 5.1 with Linux's call
    /// [AsymSched-slides].
    pub seconds_per_gb: f64,
    /// Whether the cost of this host's own migrations replaces `seconds_per_gb`.
    pub measures_cost: bool,
    /// The rule for the weight of a cluster.
    pub weight: Weight,
    /// Share of an application's remote traffic below which a pair of nodes does not join a cluster
    /// (inferred).
    pub negligible_share: f64,
    /// Share of an application's requests that must be remote for it to form clusters. Nodes with
    /// little remote traffic gain nothing from wide links, and their move costs the same (our
    /// choice).
    pub least_remote_share: f64,
    /// Ratio of largest to smallest bandwidth between nodes up to which a machine counts as
    /// symmetric and no decision is made (inferred).
    pub symmetric_ratio: f64,
    /// Placements that use a link within this share above the slowest bandwidth are skipped, as
    /// long as others are left. On the paper's machine 5 % rejects links below 2.0 GB/s. The slides
    /// name the rule; which links is inferred. The rule speeds up an enumeration; this search is as
    /// fast without it.
    pub slowest_margin: Option<f64>,
    /// Share of a CPU below which a thread counts as sleeping. A sleeping thread makes its node no
    /// node of the process (our rule). Otherwise a main thread that waits for its workers takes one
    /// of two nodes with a wide link, and a worker stays behind.
    pub least_cpu_share: f64,
    /// Whether memory on a node without threads of its process is brought to them (our rule).
    pub gathers: bool,
    /// Time for which accessed pages follow before the full migration is judged [recalled: 2 s].
    pub following: Nanos,
    /// Percent of accesses still going to the old nodes above which all memory there is moved
    /// [third-party code: CHARM; recalled: 90 %].
    pub full_above_percent: f64,
    /// The target of accessed pages.
    pub follow: Follow,
    /// Whether the process is stopped during a full migration [AsymSched-slides: SIGSTOP].
    pub freeze: bool,
}

impl Preset {
    /// Whether a thread makes its node one of the process's nodes.
    #[must_use]
    pub fn is_awake(&self, thread: &Thread) -> bool {
        thread.cpu_share >= self.least_cpu_share
    }

    /// The slides, completed by the two re-implementations [third-party code] where they agree.
    pub const PUBLISHED: Self = Self {
        name: "published",
        period: Nanos::from_secs(1),
        slack_permille: 900,
        budget_share: 0.05,
        seconds_per_gb: 0.3,
        measures_cost: false,
        weight: Weight::Log,
        negligible_share: 0.01,
        least_remote_share: 0.0,
        symmetric_ratio: 1.1,
        slowest_margin: None,
        least_cpu_share: 0.0,
        gathers: false,
        following: Nanos::from_secs(2),
        full_above_percent: 90.0,
        follow: Follow::Image,
        freeze: true,
    };
    /// [`Self::PUBLISHED`] with the filter on the slowest links.
    pub const FILTERED: Self =
        Self { name: "filtered", slowest_margin: Some(0.05), ..Self::PUBLISHED };
    /// [`Self::PUBLISHED`] with the same weight for every cluster.
    pub const EQUAL_WEIGHTS: Self =
        Self { name: "equal-weights", weight: Weight::One, ..Self::PUBLISHED };
    /// The default, for a stock kernel. The cost of a migration is that of the kernel's own call
    /// until this host has measured one. Only applications with remote requests are placed.
    ///
    /// The full migration starts above 1 % of accesses to the old nodes. Samples find 445 of 512
    /// pages in two seconds, and one access in fifteen goes to the rest over the slow link
    /// (emulated). The budget is charged for all of the memory anyway.
    ///
    /// The kernel may have moved threads before the first decision, so memory that they left behind
    /// is brought to them. Sleeping threads do not count.
    pub const MEASURED: Self = Self {
        name: "measured",
        seconds_per_gb: 5.1,
        measures_cost: true,
        least_remote_share: 0.1,
        full_above_percent: 1.0,
        least_cpu_share: RUNNING_SHARE,
        gathers: true,
        ..Self::PUBLISHED
    };
    /// [`Self::PUBLISHED`] with pages of one accessor sent to it.
    pub const TO_ACCESSOR: Self =
        Self { name: "to-accessor", follow: Follow::OnlyAccessor, ..Self::PUBLISHED };
    /// All of them, the default first.
    pub const ALL: [Self; 5] =
        [Self::MEASURED, Self::PUBLISHED, Self::FILTERED, Self::EQUAL_WEIGHTS, Self::TO_ACCESSOR];
}
