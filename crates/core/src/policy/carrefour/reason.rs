//! Reasons of Carrefour's proposals, with the numbers that led to them.

use super::tenure::InVain;
use crate::cost::Price;
use crate::model::{Deviation, ReadSource};
use alloc::vec::Vec;
use core::fmt;

/// Reason of a proposal of Carrefour. Percentages are 0..=100.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "because", rename_all = "kebab-case")
)]
pub enum CarrefourReason {
    /// Pages that one node accesses are on another node.
    CoLocation {
        /// Local access ratio; `None` if the mechanism is on only because interleaving is (author
        /// code).
        local_percent: Option<f64>,
        /// Limit of the preset.
        below: f64,
        /// Sampled pages of the application.
        sampled_pages: usize,
        /// Moved pages with few samples of their own, between such pages.
        between: usize,
    },
    /// Shared pages are not on the node with most of their accesses.
    MostUsed {
        /// Local access ratio; `None` if co-location is on only because interleaving is.
        local_percent: Option<f64>,
        /// Limit of the preset.
        below: f64,
        /// Sampled pages of the application.
        sampled_pages: usize,
    },
    /// Controllers are unevenly loaded and several nodes share these pages.
    Interleaving {
        /// Imbalance of the controllers.
        imbalance_percent: f64,
        /// Which deviation that is.
        deviation: Deviation,
        /// Limit of the preset.
        above: f64,
        /// Share of the traffic at each controller, 0..=1.
        load_share: Vec<f64>,
        /// Shared pages that were considered.
        considered: usize,
        /// How many of them are read only and would be replicated if that were possible.
        read_shared: usize,
        /// Whether the application's share of reads is known, without which nothing is replicated.
        reads_known: bool,
        /// Moved pages with few samples of their own, between shared pages.
        between: usize,
    },
    /// A controller is busy with pages that only its own node accesses.
    Offloading {
        /// Imbalance of the controllers.
        imbalance_percent: f64,
        /// Limit of the preset.
        above: f64,
        /// Share of the traffic at each controller, 0..=1.
        load_share: Vec<f64>,
    },
    /// Several nodes read these pages and none writes.
    Replication {
        /// Reads among DRAM accesses.
        read_percent: f64,
        /// Where that was learnt.
        read_source: ReadSource,
        /// Limit of the preset.
        above: f64,
        /// Free memory.
        free_percent: f64,
        /// Limit of the preset.
        needed_free_percent: f64,
        /// Least number of marked pages.
        batch: usize,
    },
    /// Pages were written too often while they had copies.
    Collapsed {
        /// Limit of the preset.
        more_than: u32,
    },
    /// The sampling rate changes.
    Sampling(SamplingCause),
}

/// Reason for a change of the sampling rate.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "cause", rename_all = "kebab-case")
)]
pub enum SamplingCause {
    /// The application was just enabled.
    Enabled {
        /// Its DRAM requests per microsecond.
        per_us: f64,
        /// Limit on this machine.
        above: f64,
    },
    /// Too little traffic to matter.
    LittleTraffic {
        /// DRAM requests per microsecond.
        per_us: f64,
        /// Limit on this machine.
        above: f64,
    },
    /// Only proportions of its traffic are known (hint faults), and it uses enough CPU time.
    Busy {
        /// CPU time in percent.
        cpu_percent: f64,
        /// Limit.
        above: f64,
    },
    /// Only proportions of its traffic are known, and it uses little CPU time.
    Idle {
        /// CPU time in percent.
        cpu_percent: f64,
        /// Limit.
        above: f64,
    },
    /// It loses much of its time to memory latency.
    Loses {
        /// Share of its CPU time.
        price: Price,
        /// Least loss for which pages move.
        above: f64,
    },
    /// It loses too little of its time to memory latency for pages to move.
    LittleLost {
        /// Share of its CPU time.
        price: Price,
        /// Least loss for which pages move.
        above: f64,
    },
    /// Its CPU use or its traffic changed suddenly.
    Changed,
    /// Traffic is not known.
    TrafficUnknown,
    /// Page faults are the only sensor for its memory.
    LeftToBalancing,
    /// It runs fast enough.
    HighIpc {
        /// Lowest of its threads.
        ipc: f64,
        /// Limit of the preset.
        below: f64,
    },
    /// No mechanism applies.
    NoMechanism {
        /// Local access ratio.
        local_percent: Option<f64>,
        /// Imbalance of the controllers.
        imbalance_percent: Option<f64>,
    },
    /// The last round changed this many placements.
    Actions {
        /// Pages moved or replicated.
        actions: u64,
        /// Needed for the accurate rate.
        needed: u64,
    },
    /// Pages that were moved to their users have other users now.
    UsersChange(InVain),
    /// In several rounds in a row, accesses went to other pages than the moved ones.
    GivenUp {
        /// Rounds.
        rounds: u32,
    },
}

/// A number or that it is unknown.
struct OrUnknown(Option<f64>);

impl fmt::Display for OrUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => write!(f, "{number:.1} %"),
            None => write!(f, "unknown"),
        }
    }
}

/// Local access ratio, if that is why pages go to their users, and its limit.
struct WhyColocate(Option<f64>, f64);

impl fmt::Display for WhyColocate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(local) => write!(f, "local access ratio {local:.1} % below {} %", self.1),
            None => write!(f, "interleaving is on"),
        }
    }
}

/// Shares of the controllers, each behind a space, and the unit.
struct Percent<'a>(&'a [f64]);

impl fmt::Display for Percent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|share| write!(f, " {:.0}", 100.0 * share))?;
        f.write_str(" %")
    }
}

/// Pages that go with their neighbours, if there are any.
struct AmongThem(usize);

impl fmt::Display for AmongThem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            pages => write!(f, "; {pages} of those that move lie between them"),
        }
    }
}

impl fmt::Display for CarrefourReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CoLocation { local_percent, below, sampled_pages, between } => {
                write!(f, "{}", WhyColocate(*local_percent, *below))?;
                write!(f, "; these of {sampled_pages} sampled pages have one accessing node")?;
                write!(f, "{}", AmongThem(*between))
            }
            Self::MostUsed { local_percent, below, sampled_pages } => {
                write!(f, "{}", WhyColocate(*local_percent, *below))?;
                write!(
                    f,
                    "; of these of {sampled_pages} sampled pages one of several nodes makes most accesses"
                )
            }
            Self::Interleaving {
                imbalance_percent,
                deviation,
                above,
                load_share,
                considered,
                read_shared,
                reads_known,
                between,
            } => {
                write!(
                    f,
                    "controller imbalance {imbalance_percent:.1} %{deviation} above {above} %, shares"
                )?;
                write!(f, "{}; {considered} shared pages considered", Percent(load_share))?;
                if *read_shared > 0 {
                    write!(f, ", {read_shared} of them only read: ")?;
                    f.write_str(match reads_known {
                        true => "replication would take them",
                        false => "none is replicated, as nothing tells this process's writes",
                    })?;
                }
                write!(f, "{}", AmongThem(*between))
            }
            Self::Offloading { imbalance_percent, above, load_share } => {
                write!(f, "controller imbalance {imbalance_percent:.1} % above {above} %, shares")?;
                write!(
                    f,
                    "{}; these pages are used by the node that holds them, and by no other",
                    Percent(load_share)
                )
            }
            Self::Replication {
                read_percent,
                read_source,
                above,
                free_percent,
                needed_free_percent,
                batch,
            } => {
                let at_least = match read_source {
                    ReadSource::Counters => "",
                    ReadSource::Samples => "by samples of loads and stores at least ",
                };
                write!(
                    f,
                    "{at_least}{read_percent:.1} % of DRAM accesses read (limit {above} %), {free_percent:.1} % of memory free \
                 ({needed_free_percent:.1} % needed), batch of at least {batch}"
                )
            }
            Self::Collapsed { more_than } => {
                write!(f, "written more than {more_than} times while replicated")
            }
            Self::Sampling(cause) => cause.fmt(f),
        }
    }
}

impl fmt::Display for SamplingCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enabled { per_us, above } => {
                write!(f, "{per_us:.1} DRAM requests/µs above {above:.1}")
            }
            Self::LittleTraffic { per_us, above } => {
                write!(f, "{per_us:.1} DRAM requests/µs, limit {above:.1}")
            }
            Self::Busy { cpu_percent, above } => {
                write!(
                    f,
                    "{cpu_percent:.0} % CPU above {above:.0} %; hint faults tell proportions only"
                )
            }
            Self::Idle { cpu_percent, above } => {
                write!(f, "{cpu_percent:.0} % CPU, limit {above:.0} %")
            }
            Self::Loses { price, above } => write!(
                f,
                "loses {:.1} % of its time to the latency of memory, at least {:.1} %; moving pages costs {:.1} %",
                100.0 * price.likely,
                100.0 * price.least,
                100.0 * above
            ),
            Self::LittleLost { price, above } => write!(
                f,
                "would win {:.1} % of its time, at least {:.1} %; moving pages costs {:.1} %",
                100.0 * price.likely,
                100.0 * price.least,
                100.0 * above
            ),
            Self::Changed => write!(f, "it does something else now"),
            Self::TrafficUnknown => write!(f, "traffic unknown"),
            Self::LeftToBalancing => {
                write!(
                    f,
                    "page faults alone tell of memory; the kernel's balancing moves pages by them"
                )
            }
            Self::HighIpc { ipc, below } => {
                write!(f, "{ipc:.2} instructions per cycle, limit {below:.2}")
            }
            Self::NoMechanism { local_percent, imbalance_percent } => write!(
                f,
                "no mechanism applies: local access ratio {}, controller imbalance {}",
                OrUnknown(*local_percent),
                OrUnknown(*imbalance_percent)
            ),
            Self::Actions { actions, needed } => {
                write!(f, "{actions} placements changed, {needed} keep the accurate rate")
            }
            Self::UsersChange(InVain { accesses, elsewhere, rounds }) => write!(
                f,
                "{elsewhere} of {accesses} accesses of co-located pages come from elsewhere; none is co-located, rounds: {rounds}"
            ),
            Self::GivenUp { rounds } => {
                write!(f, "{rounds} rounds treated other pages than those accessed")
            }
        }
    }
}
