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

/// Where a page goes that was seen accessed after its threads moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Follow {
    /// To the image of its node: keeps the layout (inferred).
    Image,
    /// To the node that accesses it, if only one does (Carrefour's rule); else to the image of its
    /// node.
    OnlyAccessor,
}

/// The constants of one variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// Time between decisions [AsymSched-slides].
    pub period: Nanos,
    /// Part of the best weighted bandwidth that is good enough, in thousandths [both
    /// re-implementations].
    pub slack_permille: u64,
    /// Share of an application's run time that moving its memory may take [both
    /// re-implementations].
    pub budget_share: f64,
    /// Seconds to migrate 10⁹ bytes: 0.3 with the authors' frozen migration, 5.1 with Linux's call
    /// [AsymSched-slides].
    pub seconds_per_gb: f64,
    /// Whether the rate that this host's own migrations showed replaces `seconds_per_gb`.
    pub measures_cost: bool,
    /// The weight of a cluster.
    pub weight: Weight,
    /// Share of an application's remote traffic below which a pair of nodes does not join them
    /// [inferred; nothing is published].
    pub negligible_share: f64,
    /// Share of an application's requests that must be remote for its nodes to belong together.
    /// Nodes with little remote traffic gain nothing from wide links, and their move costs the same
    /// (our choice; nothing is published).
    pub least_remote_share: f64,
    /// Largest over smallest bandwidth between nodes up to which a machine counts as symmetric and
    /// nothing is done (inferred).
    pub symmetric_ratio: f64,
    /// Placements with a pair of a cluster within this share above the slowest bandwidth are
    /// skipped, as long as others are left. On the paper's machine 5 % rejects links below 2.0 GB/s
    /// [AsymSched-slides name the rule, inferred which links]. The rule speeds up an enumeration;
    /// this search is as fast without it.
    pub slowest_margin: Option<f64>,
    /// Share of a CPU below which a thread sleeps. The node of a sleeping thread is none of its
    /// process's nodes and only goes along with others (ours). Otherwise a main thread that waits
    /// for its workers takes one of two seats at the wide links, and a worker stays behind.
    pub least_cpu_share: f64,
    /// Whether memory away from its threads, on a node where the process has none, is brought to
    /// them (ours).
    pub gathers: bool,
    /// How long pages follow as they are accessed before the rest is judged (recalled).
    pub following: Nanos,
    /// Percent of accesses still going to the old nodes above which everything is moved
    /// [third-party code: CHARM; recalled].
    pub full_above_percent: f64,
    /// Where following pages go.
    pub follow: Follow,
    /// Whether a process stands still while all its memory moves [AsymSched-slides: SIGSTOP].
    pub freeze: bool,
}

impl Preset {
    /// Whether a thread counts as running on its node.
    #[must_use]
    pub fn is_awake(&self, thread: &Thread) -> bool {
        thread.cpu_share >= self.least_cpu_share
    }

    /// The slides, completed by the two independent re-implementations where they agree.
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
    /// With the filter on the slowest links.
    pub const FILTERED: Self =
        Self { name: "filtered", slowest_margin: Some(0.05), ..Self::PUBLISHED };
    /// Every cluster weighs the same.
    pub const EQUAL_WEIGHTS: Self =
        Self { name: "equal-weights", weight: Weight::One, ..Self::PUBLISHED };
    /// The default, for a stock kernel. The cost of a migration is that of the kernel's own call
    /// until this host has measured one. Only applications that use other nodes' memory are placed.
    ///
    /// Pages that samples did not find in time follow too if they are used at all. Samples find 445
    /// of 512 pages in two seconds, and one access in fifteen goes to the rest, behind the slow
    /// link (emulated). The budget has paid for all of the memory.
    ///
    /// The kernel may have moved threads before the first decision; memory that they left behind is
    /// brought to them. A sleeping thread holds no node.
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
    /// Pages with one accessor go to it instead of keeping the layout.
    pub const TO_ACCESSOR: Self =
        Self { name: "to-accessor", follow: Follow::OnlyAccessor, ..Self::PUBLISHED };
    /// All of them, the default first.
    pub const ALL: [Self; 5] =
        [Self::MEASURED, Self::PUBLISHED, Self::FILTERED, Self::EQUAL_WEIGHTS, Self::TO_ACCESSOR];
}
