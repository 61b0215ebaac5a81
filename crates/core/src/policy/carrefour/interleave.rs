//! Draws the target of a shared page (ALGORITHMS 1.5). A page leaves its node with the probability
//! of the node's share of the traffic. The target is drawn with weights: the less traffic a node
//! has, the larger its weight.
//!
//! [`Draw::Excess`] replaces random numbers by the page's place in an even sequence ([`rank`]).
//! Programs read memory in order. With random targets, threads often wait at one controller while
//! another is idle. Ranks have two effects:
//!
//! - Each node gets its share of any run of neighbouring pages, within a page or two.
//! - Pages with the lowest ranks leave first. In a part of the memory that is spread already, only
//!   pages with high ranks are left on the busy node. So the next round takes most of its pages from
//!   the other parts.

use super::preset::{Draw, Preset};
use crate::index_set::NodeSet;
use crate::model::{Accessors, Page, Traffic, imbalance_percent};
use crate::random::Random;
use crate::topology::Topology;
use alloc::vec;
use alloc::vec::Vec;

/// Step of the even sequence, in units of 2⁻⁶⁴. It is the golden ratio, whose multiples are the
/// most evenly distributed (Knuth, The Art of Computer Programming 6.4, theorem S).
const EVEN_STEP: u64 = 0x9E37_79B9_7F4A_7C15;
/// Weight of even ranks, in accesses, while no page has been moved (our choice). By chance, n
/// sampled pages change the share that leaves by 0.5 √n / (n + 32): 5 % or less for any n. A page
/// with many accesses changes it more.
const EVEN_ACCESSES: u32 = 32;
/// Steps into which [`Ranks`] divides the ranks: 0.4 % each (our choice).
const RANK_STEPS: usize = 256;
/// Differences of load, in percent, that a few hundred samples do not show (our choice).
const SLACK_PERCENT: f64 = 10.0;

/// The place of a page in the even sequence, 0..1. `page` = its number: its address divided by its
/// size.
fn rank(page: u64) -> f64 {
    const BITS: u32 = 53; // of an f64's fraction
    (page.wrapping_mul(EVEN_STEP) >> (64 - BITS)) as f64 / (1_u64 << BITS) as f64
}

/// Sampled accesses to the pages that may leave each node, by the ranks of the pages.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranks {
    /// [`RANK_STEPS`] numbers for each node.
    accesses: Vec<u32>,
    /// The same of sampled pages.
    pages: Vec<u32>,
    /// Accesses with even ranks that count besides those of a node's sampled pages.
    even: u32,
}

impl Ranks {
    /// Without sampled pages. `are_even`: no page has left its node yet, so a node's pages have all
    /// ranks. Then a few samples only seem to show that ranks are missing.
    #[must_use]
    pub fn new(node_count: usize, are_even: bool) -> Self {
        let even = if are_even { EVEN_ACCESSES } else { 0 };
        let none = vec![0; node_count * RANK_STEPS];
        Self { accesses: none.clone(), pages: none, even }
    }

    /// Notes a sampled page on node `source`.
    pub fn note(&mut self, source: usize, page: u64, accesses: u32) {
        let place = source * RANK_STEPS + (rank(page) * RANK_STEPS as f64) as usize;
        self.accesses[place] = self.accesses[place].saturating_add(accesses);
        self.pages[place] += 1;
    }

    /// Share of a node's accesses below each rank step, and 1 at the end. Empty without accesses.
    fn accesses_below(&self, source: usize) -> Vec<f64> {
        self.below(source, &self.accesses)
    }

    /// The same of its pages.
    fn pages_below(&self, source: usize) -> Vec<f64> {
        self.below(source, &self.pages)
    }

    /// Share of what was counted below each rank step.
    ///
    /// `n` counts leave `n + 1` gaps between and beside them. In each gap the share rises evenly by
    /// 1/(n + 1). So a few counts do not send all pages between them to one node.
    fn below(&self, source: usize, counts: &[u32]) -> Vec<f64> {
        let steps = &counts[source * RANK_STEPS..][..RANK_STEPS];
        let all: u64 = steps.iter().copied().map(u64::from).sum();
        if all == 0 {
            return Vec::new();
        }
        let gap = 1.0 / (all + 1) as f64;
        let mut below = vec![0.0];
        let mut seen = 0;
        for accesses in steps.iter().map(|accesses| u64::from(*accesses)).chain([1]) {
            let step = below.len() - 1;
            if accesses == 0 {
                below.push(f64::NAN);
                continue;
            }
            rise(&mut below, step, (seen + 1) as f64 * gap);
            seen += accesses;
            below.push(seen as f64 * gap);
        }
        below.truncate(RANK_STEPS + 1);
        let even = f64::from(self.even) / (u64::from(self.even) + all) as f64;
        for (step, below) in below.iter_mut().enumerate() {
            *below += even * (step as f64 / RANK_STEPS as f64 - *below);
        }
        below
    }
}

/// Lets the values up to `step` rise evenly to `to`, from the last known one on.
fn rise(below: &mut [f64], step: usize, to: f64) {
    let known = below[..step].iter().rposition(|value| !value.is_nan());
    let Some(first) = known else {
        below[step] = to;
        return;
    };
    let (from, length) = (below[first], (step - first) as f64);
    for (place, value) in (1..).zip(&mut below[first + 1..=step]) {
        *value = from + (to - from) * f64::from(place) / length;
    }
}

/// The pages that leave a node.
#[derive(Debug, Clone, PartialEq, Default)]
struct Leaving {
    /// Share of the accesses that leaves.
    excess: f64,
    /// By rank step, the share of accesses with lower ranks. It tells which pages leave.
    accesses: Vec<f64>,
    /// The same of pages, with which they are divided among targets. One page with most of the
    /// accesses would send all pages of lower ranks to one node.
    pages: Vec<f64>,
    /// Share of the pages that leaves.
    most: f64,
}

impl Leaving {
    /// All ranks are as frequent.
    fn even(excess: f64) -> Self {
        Self { excess, accesses: Vec::new(), pages: Vec::new(), most: excess }
    }

    /// By the ranks of sampled pages.
    fn choose_by(&mut self, accesses: Vec<f64>, pages: Vec<f64>) {
        let step = accesses.partition_point(|below| *below < self.excess);
        // Between two steps, as far as the accesses.
        self.most = match (step.checked_sub(1), accesses.get(step)) {
            (Some(last), Some(next)) => {
                let part = (self.excess - accesses[last]) / (next - accesses[last]);
                pages[last] + part * (pages[step] - pages[last])
            }
            (None, _) => 0.0,
            (_, None) => 1.0,
        };
        (self.accesses, self.pages) = (accesses, pages);
    }

    /// Whether a page leaves. Returns its place in 0..1 among the pages that leave.
    fn place(&self, page: u64) -> Option<f64> {
        let rank = rank(page);
        if below(&self.accesses, rank) >= self.excess {
            return None;
        }
        let place = below(&self.pages, rank) / self.most;
        Some(if place < 1.0 { place } else { 0.0 })
    }
}

/// The share below a rank; the rank itself where nothing was counted.
fn below(shares: &[f64], rank: f64) -> f64 {
    let step = (rank * RANK_STEPS as f64) as usize;
    let Some((low, high)) = shares.get(step).zip(shares.get(step + 1)) else { return rank };
    let part = rank * RANK_STEPS as f64 - step as f64;
    low + part * (high - low)
}

/// The probabilities for pages that leave busy controllers in one round, for applications that may
/// use the same nodes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draws {
    /// Probabilities by the present load of the controllers.
    pub(super) now: Interleaving,
    /// Probabilities by the load if every page were with its users. Pages that only their own node
    /// uses leave a controller only by these, so other pages leave it first.
    pub(super) settled: Interleaving,
    /// Whether interleaving would surely not begin if every page were with its users.
    settles_evenly: bool,
}

impl Draws {
    /// For applications that may use `nodes`.
    pub(super) fn new(
        nodes: &NodeSet,
        traffic: &Traffic,
        topology: &Topology,
        preset: &Preset,
    ) -> Self {
        let draw = preset.pages.draw;
        let mut settled = vec![0.0; topology.node_count()];
        for (accessing, row) in traffic.requests_per_us.rows().enumerate() {
            settled[topology.nearest_memory(accessing)] += row.iter().sum::<f64>();
        }
        let settled = Interleaving::of_load(&settled, nodes, topology, draw);
        let controllers = topology.controllers().intersection(nodes);
        let shares: Vec<f64> = controllers.iter().map(|node| settled.share[node]).collect();
        let most = preset.interleave_above_imbalance - SLACK_PERCENT;
        let imbalance = imbalance_percent(&shares, preset.deviation);
        Self {
            now: Interleaving::among(nodes, traffic, topology, draw),
            settled,
            settles_evenly: imbalance.is_none_or(|percent| percent <= most),
        }
    }

    /// Whether shared pages may go to `node`, which uses them most. Its controller must stay even
    /// with the others, or below its share, with every page at its users. Otherwise interleaving
    /// would begin by these moves and take the pages away again.
    pub(super) fn may_gather(&self, node: usize) -> bool {
        self.settles_evenly || self.settled.has_room(node)
    }
}

/// Ranks of the sampled pages that may leave by the same [`Draws`].
pub(super) struct Ranking {
    now: [Ranks; 2],
    settled: [Ranks; 2],
}

impl Ranking {
    /// `are_even`: see [`Ranks::new`].
    pub(super) fn new(nodes: usize, are_even: bool) -> Self {
        let none = || Ranks::new(nodes, are_even);
        Self { now: [none(), none()], settled: [none(), none()] }
    }

    /// Takes in a page that may leave. A page that stays although it was moved would keep the
    /// lowest rank for ever, so such pages count only where there is no other.
    pub(super) fn note(
        &mut self,
        page: &Page<'_>,
        (seen, home): (&Accessors, usize),
        moved: Moved,
        topology: &Topology,
    ) {
        let ranks = match seen.is_shared {
            true => &mut self.now,
            false if topology.nearest_memory(seen.first) == home => &mut self.settled,
            false => return,
        };
        ranks[moved as usize].note(home, page.number(), seen.total);
    }

    /// Lets the pages with the lowest ranks leave busy nodes.
    pub(super) fn choose(&self, draws: &mut Draws) {
        draws.now.choose_by(&self.now);
        draws.settled.choose_by(&self.settled);
    }
}

/// The probabilities of one round.
#[derive(Debug, Clone, PartialEq)]
pub struct Interleaving {
    /// P: share of the traffic at each controller, 0..=1.
    pub share: Vec<f64>,
    /// Weight of each node as a target.
    weight: Vec<f64>,
    /// Their running sums.
    sums: Vec<f64>,
    /// The share of each controller at equal load.
    fair: f64,
    /// Nodes that the pages may be on.
    nodes: NodeSet,
    draw: Draw,
    /// By node. Only [`Draw::Excess`] uses it.
    leaving: Vec<Leaving>,
}

/// Whether a page was moved before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    Never,
    Before,
}

impl Interleaving {
    /// Probabilities from the load of the controllers. If bandwidths are known, load is relative to
    /// bandwidth: a controller with half the bandwidth counts twice and is drawn half as often.
    /// With equal controllers this is the paper's rule.
    #[must_use]
    pub fn new(traffic: &Traffic, topology: &Topology, draw: Draw) -> Self {
        Self::among(&NodeSet::first(topology.node_count()), traffic, topology, draw)
    }

    /// The same for applications that may use `nodes` only. Load elsewhere does not count, and no
    /// page goes there.
    #[must_use]
    pub fn among(nodes: &NodeSet, traffic: &Traffic, topology: &Topology, draw: Draw) -> Self {
        Self::of_load(&traffic.load_per_us(), nodes, topology, draw)
    }

    /// The same from requests per microsecond by controller.
    fn of_load(load: &[f64], nodes: &NodeSet, topology: &Topology, draw: Draw) -> Self {
        let controllers = topology.controllers().intersection(nodes);
        let capacity = Traffic::relative_capacity(topology);
        let counts = |node: usize| if nodes.contains(node) { load[node] } else { 0.0 };
        let mut use_of: Vec<f64> =
            (0..load.len()).map(|node| counts(node) / capacity[node]).collect();
        let total: f64 = use_of.iter().sum();
        if total > 0.0 {
            use_of.iter_mut().for_each(|load| *load /= total);
        } else if draw == Draw::IntegerPercent {
            use_of.fill(1.0); // author code: 100 for every node when no traffic was measured
        }
        let fair = 1.0 / controllers.len().max(1) as f64;
        let weight_of = |node: usize| match draw {
            _ if !controllers.contains(node) => 0.0,
            Draw::Exact => (1.0 - use_of[node]) * capacity[node],
            Draw::IntegerPercent => 100.0 - percent(use_of[node]),
            Draw::Excess => (fair - use_of[node]).max(0.0) * capacity[node],
        };
        let mut weight: Vec<f64> = (0..load.len()).map(weight_of).collect();
        if draw == Draw::Excess && weight.iter().all(|weight| *weight <= 0.0) {
            // All are even. Only pages that lie elsewhere leave.
            controllers.iter().for_each(|node| weight[node] = capacity[node]);
        }
        let sums = running_sums(weight.iter().copied());
        let excess = |share: &f64| (1.0 - fair / share).max(0.0);
        let leaving = |share| Leaving::even(excess(share));
        let leaving = use_of.iter().map(leaving).collect();
        Self { weight, sums, share: use_of, fair, nodes: nodes.clone(), draw, leaving }
    }

    /// Lets the pages with the lowest ranks leave, until their share of a node's noted accesses is
    /// the node's excess. Of several `ranks`, those count that have accesses of the node first.
    pub fn choose_by(&mut self, ranks: &[Ranks]) {
        let leaving = self.leaving.iter_mut().enumerate();
        for (source, leaving) in leaving.filter(|(_, leaving)| leaving.excess > 0.0) {
            let mut below = ranks.iter().map(|ranks| (ranks, ranks.accesses_below(source)));
            if let Some((ranks, accesses)) = below.find(|(_, accesses)| !accesses.is_empty()) {
                leaving.choose_by(accesses, ranks.pages_below(source));
            }
        }
    }

    /// Whether a node serves less than its share.
    #[must_use]
    pub fn has_room(&self, node: usize) -> bool {
        self.share[node] < self.fair
    }

    /// Whether a node surely serves more than its share.
    pub(super) fn is_overloaded(&self, node: usize) -> bool {
        self.share[node] > self.fair * (1.0 + SLACK_PERCENT / 100.0)
    }

    /// Draws whether a page leaves `source`, and its target. `page` = its number: its address
    /// divided by its size. `preference` = factor on the weight of each node; 0 = never, `None` =
    /// all equal.
    pub fn target(
        &self,
        source: usize,
        page: u64,
        preference: Option<&dyn Fn(usize) -> f64>,
        random: &mut Random,
    ) -> Option<usize> {
        let unit = self.leaves(source, page, random)?;
        let target = match preference {
            None => draw(&self.sums, self.draw, unit, random),
            Some(preference) => {
                let weights = self.weight.iter().enumerate();
                let weights = weights.map(|(node, weight)| weight * preference(node));
                draw(&running_sums(weights), self.draw, unit, random)
            }
        };
        target.filter(|target| *target != source)
    }

    /// The same with preference for nodes that `used` the page: the weight of a node counts once,
    /// and once more for each of its accesses.
    pub(super) fn target_where_used<A: Iterator<Item = (usize, u32)>>(
        &self,
        source: usize,
        page: u64,
        used: impl Fn() -> A,
        random: &mut Random,
    ) -> Option<usize> {
        let unit = self.leaves(source, page, random)?;
        let once = self.sums.last().copied().unwrap_or(0.0);
        let more = |(node, count): (usize, u32)| self.weight[node] * f64::from(count);
        let drawn = unit * (once + used().map(more).sum::<f64>());
        if drawn < once {
            return draw_at(&self.sums, drawn).filter(|target| *target != source);
        }
        let mut left = drawn - once;
        let passes = |one: &(usize, u32)| {
            left -= more(*one);
            left < 0.0
        };
        used().find(passes).map(|(node, _)| node).filter(|target| *target != source)
    }

    /// Draws whether a page leaves `source`. Returns a number in 0..1 that draws its target; the
    /// author code draws the target by another number. A page where it may not be always leaves. It
    /// lies there if the cpuset has changed.
    fn leaves(&self, source: usize, page: u64, random: &mut Random) -> Option<f64> {
        match self.draw {
            _ if !self.nodes.contains(source) => Some(random.unit()),
            Draw::Exact => (random.unit() < self.share[source]).then(|| random.unit()),
            Draw::IntegerPercent => {
                (random.below(101) as f64 <= percent(self.share[source])).then_some(0.0)
            }
            Draw::Excess => self.leaving[source].place(page),
        }
    }
}

/// The node at which the running sum passes a number.
fn draw_at(sums: &[f64], drawn: f64) -> Option<usize> {
    let place = sums.partition_point(|sum| *sum <= drawn);
    (!sums.is_empty()).then(|| place.min(sums.len() - 1))
}

fn running_sums(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let add = |weight| {
        sum += weight;
        sum
    };
    weights.map(add).collect()
}

/// The node at which the running sum passes `unit` of the total. The author code draws a whole
/// number up to the total inclusive. A node without weight is never drawn.
fn draw(sums: &[f64], draw: Draw, unit: f64, random: &mut Random) -> Option<usize> {
    let total = *sums.last().filter(|total| **total > 0.0)?;
    match draw {
        Draw::Exact | Draw::Excess => draw_at(sums, unit * total),
        Draw::IntegerPercent => {
            let drawn = random.below(total as usize + 1) as f64;
            let place = sums.partition_point(|sum| *sum < drawn || *sum <= 0.0);
            Some(place.min(sums.len() - 1))
        }
    }
}

/// A whole percentage, cut off as integer division does.
fn percent(share: f64) -> f64 {
    libm::floor(100.0 * share)
}
