//! The constants of N-MASS as data: published, as printed, and with our extensions.

use crate::topology::Topology;
use crate::units::Nanos;

/// Pressure at which the link between the two processors of the paper's machine saturates [N-MASS
/// s3.3, found with STREAM + SPEC].
const PUBLISHED_THRESHOLD_MPKI: f64 = 60.0;
/// Bandwidth of one direction of that machine's link, in MB/s: QPI has 23.44 GB/s for both
/// directions together [N-MASS table 1].
const PUBLISHED_LINK_MB_S: f64 = 11_720.0;
/// Clock of that machine, a Xeon E5520 [N-MASS table 1; product data], in MHz.
const PUBLISHED_CLOCK_MHZ: f64 = 2_267.0;

/// The rule of refinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refinement {
    /// Moves from the most to the least loaded processor while the difference of their pressures
    /// shrinks (repaired).
    Difference,
    /// The printed choice by `mpki × penalty`. It is repaired only where it would not stop or would
    /// keep the pressures of refused moves.
    Printed,
    /// No refinement: maximum-local alone.
    None,
}

/// Settings of a run of N-MASS.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// Pressure that the target of a move must stay below, MPKI.
    pub threshold_mpki: f64,
    /// Least time between two runs [N-MASS s3.4: 1 s].
    pub epoch: Nanos,
    /// Relative change of a process's MPKI above which the algorithm runs again [N-MASS s3.4: 20
    /// %].
    pub trigger: f64,
    /// The rule of refinement.
    pub refinement: Refinement,
    /// Exchange two processes where no core is free. Inferred: the paper's 8-process workloads need
    /// it, but the printed algorithm does not have it.
    pub swap_when_full: bool,
    /// Use the highest MPKI of a process in its present phase instead of the last epoch's (our
    /// rule). A process alone in a cache that it fills misses nothing. Its last epoch would show
    /// room for another process.
    pub remembers_misses: bool,
}

impl Preset {
    /// The default: published constants, repaired refinement, remembered misses.
    pub const STEADY: Self = Self { name: "steady", remembers_misses: true, ..Self::PUBLISHED };
    /// Published constants, repaired refinement, misses of the last epoch.
    pub const PUBLISHED: Self = Self {
        name: "published",
        threshold_mpki: PUBLISHED_THRESHOLD_MPKI,
        epoch: Nanos::from_secs(1),
        trigger: 0.20,
        refinement: Refinement::Difference,
        swap_when_full: false,
        remembers_misses: false,
    };
    /// [`Self::PUBLISHED`] with refinement as printed, repaired so that it stops.
    pub const PRINTED: Self =
        Self { name: "printed", refinement: Refinement::Printed, ..Self::PUBLISHED };
    /// [`Self::PUBLISHED`] with exchanges where no core is free.
    pub const SWAP: Self = Self { name: "swap", swap_when_full: true, ..Self::PUBLISHED };
    /// Locality only: the paper's own point of comparison.
    pub const MAXIMUM_LOCAL: Self =
        Self { name: "maximum-local", refinement: Refinement::None, ..Self::PUBLISHED };
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::STEADY, Self::PUBLISHED, Self::PRINTED, Self::SWAP, Self::MAXIMUM_LOCAL];

    /// The preset with the threshold of another machine. `link_mb_s`: bandwidth between its weakest
    /// pair of nodes in one direction, MB/s.
    ///
    /// Misses per instruction times instructions per second must fit the link. The threshold
    /// therefore grows with the link and falls with the clock [inferred from the way in which the
    /// paper found its 60 MPKI].
    #[must_use]
    pub fn for_machine(self, link_mb_s: f64, clock_mhz: f64) -> Self {
        let scale = link_mb_s / PUBLISHED_LINK_MB_S * (PUBLISHED_CLOCK_MHZ / clock_mhz);
        Self { threshold_mpki: PUBLISHED_THRESHOLD_MPKI * scale, ..self }
    }

    /// The preset with the threshold of a topology. It is unchanged where link or clock is not
    /// known.
    #[must_use]
    pub fn for_topology(self, topology: &Topology) -> Self {
        match (weakest_link_bytes_per_s(topology), topology.clock_hz()) {
            (Some(link), Some(clock)) => self.for_machine(link / 1e6, clock / 1e6),
            _ => self,
        }
    }
}

/// Bandwidth of the weakest pair of nodes with CPUs and memory, bytes per second. It is measured,
/// else that of the slowest link on the route.
fn weakest_link_bytes_per_s(topology: &Topology) -> Option<f64> {
    let compute = topology.compute_nodes();
    let memory = topology.memory_nodes();
    let between = |accessing: usize, holding: usize| match topology.bandwidth() {
        Some(bandwidth) => Some(bandwidth[(accessing, holding)]),
        None => {
            let links = &topology.route(accessing, holding)?.links;
            links.iter().map(|&link| topology.links()[link].bytes_per_s).min_by(f64::total_cmp)
        }
    };
    let pairs =
        compute.iter().flat_map(|accessing| memory.iter().map(move |holding| (accessing, holding)));
    let homes =
        pairs.filter(|&(accessing, holding)| accessing != holding && compute.contains(holding));
    homes.filter_map(|(accessing, holding)| between(accessing, holding)).min_by(f64::total_cmp)
}
