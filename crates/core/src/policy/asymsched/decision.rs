//! One decision on plain numbers: clusters, placement, and whether it is worth what it costs
//! (ALGORITHMS 3.3 to 3.5).

use super::cluster::{Cluster, clusters_of};
use super::preset::Preset;
use super::problem::{Parts, Placement, Problem};
use super::search::Found;
use super::search_cache::SearchCache;
use super::subset::{Mask, first, nodes};
use crate::matrix::Matrix;
use crate::units::{Bytes, Nanos, Pid};
use alloc::vec::Vec;

/// One application, nodes counted as in its [`Situation`].
#[derive(Debug, Clone, PartialEq)]
pub struct AppView {
    /// Process of the application.
    pub pid: Pid,
    /// Nodes with its threads, as bits.
    pub nodes: u64,
    /// Requests per second to memory or caches by `[accessing][holding]`. `None`: not known, so the
    /// application forms no cluster.
    pub traffic_per_s: Option<Matrix<f64>>,
    /// Memory of the application by node (`A_mm`).
    pub memory: Vec<Bytes>,
    /// Time since the application started (`A_tt`).
    pub run_time: Nanos,
    /// Time spent so far on moving its memory (`A_tm`).
    pub migration_time: Nanos,
}

impl AppView {
    /// The cost without a further move: the time already spent.
    pub(super) fn cost(&self, app: usize, preset: &Preset) -> Cost {
        Cost {
            app,
            memory: Bytes(0),
            seconds: self.migration_time.seconds(),
            allowed_seconds: preset.budget_share * self.run_time.seconds(),
        }
    }
}

/// The input of a decision. Nodes are those with CPUs, at most 64.
#[derive(Debug, Clone, PartialEq)]
pub struct Situation {
    /// Bytes per second that node i can draw from node j (`B`), diagonal ignored.
    pub bandwidth: Matrix<f64>,
    /// By node, the nodes as bits with which it may exchange its threads, itself included. The
    /// relation is an equivalence.
    pub kinds: Vec<u64>,
    /// Applications with threads.
    pub apps: Vec<AppView>,
}

impl Situation {
    /// Nodes with threads, as bits.
    #[must_use]
    pub fn occupied(&self) -> u64 {
        self.apps.iter().fold(0, |all, app| all | app.nodes) & first(self.kinds.len())
    }
}

/// The cost of a move for one application, against its budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Index of the application in [`Situation::apps`].
    pub app: usize,
    /// Memory to move: on nodes that its threads leave, or on nodes without its threads.
    pub memory: Bytes,
    /// Time to move it plus time already spent on moving the application's memory, seconds.
    pub seconds: f64,
    /// The budget: a share of the application's run time, seconds.
    pub allowed_seconds: f64,
}

impl Cost {
    /// The cost with this much more memory to move.
    pub(super) fn plus(self, memory: Bytes, seconds_per_gb: f64) -> Self {
        let seconds = self.seconds + seconds_per_gb * memory.gigabytes();
        Self { memory: self.memory + memory, seconds, ..self }
    }

    /// Whether the cost exceeds the budget.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.seconds > self.allowed_seconds
    }
}

/// The result of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verdict {
    /// Bandwidth between nodes hardly differs, or is not known.
    #[default]
    Symmetric,
    /// No process uses several nodes together.
    NoCluster,
    /// The chosen placement moves no thread: the current one is within the slack of the best.
    Stay,
    /// A better placement is worth its cost.
    Move,
    /// Some application would exceed its budget, which blocks the whole placement.
    OverBudget,
}

/// A decision with the numbers that led to it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decision {
    /// Result of the decision.
    pub verdict: Verdict,
    /// Clusters of all applications.
    pub clusters: Vec<Cluster>,
    /// The placement of this decision's search, or the one refused a few decisions ago.
    pub found: Option<Found>,
    /// `P_wbw` of the current placement: weight × bytes per second.
    pub staying: f64,
    /// `P_wbw` of the best placement found; `None` if the last search still proves that staying is
    /// good enough.
    pub best: Option<f64>,
    /// `P_wbw` of the chosen placement.
    pub chosen: f64,
    /// Costs of the applications that would move, ascending by index.
    pub costs: Vec<Cost>,
}

impl Decision {
    /// `(from, to)` of the nodes whose threads move, ascending.
    pub fn moves(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let placement = self.found.iter().flat_map(|found| found.placement.iter().enumerate());
        placement.filter_map(|(from, to)| to.filter(|&to| to != from).map(|to| (from, to)))
    }
}

/// Decides whether threads move, and where. `seconds_per_gb`: seconds to migrate 10⁹ bytes.
/// `searches` holds results of earlier decisions, which save searches.
///
/// # Panics
/// If tables have different sizes or there are more than [`super::problem::MAX_SEARCH_NODES`]
/// nodes.
#[must_use]
pub fn decide(
    situation: &Situation,
    preset: &Preset,
    seconds_per_gb: f64,
    searches: &mut SearchCache,
) -> Decision {
    let mut decision = Decision::default();
    if is_symmetric(&situation.bandwidth, preset) {
        return decision;
    }
    decision.clusters = clusters(situation, preset);
    decision.verdict = Verdict::NoCluster;
    if decision.clusters.iter().all(|cluster| cluster.weight <= 0.0) {
        return decision;
    }
    let problem = problem(situation, &decision.clusters, preset);
    let staying = (0..situation.kinds.len()).map(Some).collect();
    decision.staying = decision.weighted_bandwidth(situation, &staying);
    if searches.proves_staying(situation, &decision.clusters, &problem) {
        decision.chosen = decision.staying;
        decision.verdict = Verdict::Stay;
        return decision;
    }
    if let Some(found) = searches.refused(situation, &decision.clusters) {
        decision.judge(situation, preset, seconds_per_gb, found);
        if decision.verdict == Verdict::OverBudget {
            return decision;
        }
    }
    let found = searches.search(situation, &decision.clusters, &problem);
    decision.judge(situation, preset, seconds_per_gb, found);
    if let (Verdict::OverBudget, Some(found)) = (decision.verdict, &decision.found) {
        searches.keep_refused(found);
    }
    decision
}

impl Decision {
    /// Sets the verdict on a placement, with its costs.
    fn judge(&mut self, situation: &Situation, preset: &Preset, seconds_per_gb: f64, found: Found) {
        self.chosen = self.weighted_bandwidth(situation, &found.placement);
        self.best = Some(self.weighted_bandwidth(situation, &found.best_placement));
        self.found = Some(found);
        self.costs = costs(situation, preset, seconds_per_gb, self);
        let is_move = self.moves().next().is_some();
        self.verdict = match (is_move, self.costs.iter().any(Cost::is_over)) {
            (false, _) => Verdict::Stay,
            (true, true) => Verdict::OverBudget,
            (true, false) => Verdict::Move,
        };
    }

    fn weighted_bandwidth(&self, situation: &Situation, placement: &Placement) -> f64 {
        weighted_bandwidth(&situation.bandwidth, &self.clusters, placement)
    }
}

/// `P_wbw` of a placement: the sum over clusters of weight × bandwidth between all ordered pairs of
/// the nodes that the cluster goes to.
#[must_use]
pub fn weighted_bandwidth(
    bandwidth: &Matrix<f64>,
    clusters: &[Cluster],
    placement: &Placement,
) -> f64 {
    let inside = |cluster: &Cluster| {
        let targets: Vec<usize> = nodes(cluster.nodes).filter_map(|node| placement[node]).collect();
        let pairs = targets.iter().flat_map(|&i| targets.iter().map(move |&j| (i, j)));
        pairs.filter(|(i, j)| i != j).map(|pair| bandwidth[pair]).sum::<f64>()
    };
    clusters.iter().map(|cluster| cluster.weight * inside(cluster)).sum()
}

/// Whether bandwidth between nodes differs so little that no placement is better than another.
pub(super) fn is_symmetric(bandwidth: &Matrix<f64>, preset: &Preset) -> bool {
    asymmetry(bandwidth).is_none_or(|ratio| ratio <= preset.symmetric_ratio)
}

/// Largest over smallest bandwidth between two nodes; `None` with fewer than two nodes or if all
/// are zero.
fn asymmetry(bandwidth: &Matrix<f64>) -> Option<f64> {
    let between = || bandwidth.cells().filter(|(i, j, _)| i != j).map(|(.., rate)| rate);
    let largest = between().fold(0.0, f64::max);
    let smallest = between().fold(f64::INFINITY, f64::min);
    (largest > 0.0).then(|| largest / smallest)
}

fn clusters(situation: &Situation, preset: &Preset) -> Vec<Cluster> {
    let of = |(index, app): (usize, &AppView)| {
        let traffic = app.traffic_per_s.as_ref();
        traffic.map_or_else(Vec::new, |traffic| clusters_of(index, app.nodes, traffic, preset))
    };
    situation.apps.iter().enumerate().flat_map(of).collect()
}

fn problem(situation: &Situation, clusters: &[Cluster], preset: &Preset) -> Problem {
    let memory: Vec<u64> =
        (0..situation.kinds.len()).map(|node| bytes_of_occupants(situation, node)).collect();
    let bandwidth = situation.bandwidth.map(|bytes| bytes / 1e6);
    let slowest = bandwidth
        .cells()
        .filter(|(i, j, _)| i != j)
        .map(|(.., rate)| rate)
        .fold(f64::INFINITY, f64::min);
    Problem::new(&Parts {
        bandwidth_mb_s: &bandwidth,
        clusters,
        memory_bytes: &memory,
        occupied: situation.occupied(),
        kinds: &situation.kinds,
        slack_permille: preset.slack_permille,
        slowest_link_mb_s: preset.slowest_margin.map(|margin| slowest * (1.0 + margin)),
    })
}

/// Memory that the applications with threads on a node hold there. All threads of a node move
/// together, with this memory.
fn bytes_of_occupants(situation: &Situation, node: usize) -> u64 {
    let here = situation.apps.iter().filter(|app| app.nodes >> node & 1 == 1);
    here.map(|app| app.memory[node].0).sum()
}

/// The cost of the moves for each application that they touch, as the sum over its nodes
/// [third-party code, both]. Nodes are migrated in parallel, so the true cost is lower.
fn costs(
    situation: &Situation,
    preset: &Preset,
    seconds_per_gb: f64,
    decision: &Decision,
) -> Vec<Cost> {
    let left: Mask = decision.moves().map(|(from, _)| 1 << from).sum();
    let moving = situation.apps.iter().enumerate().filter(|(_, app)| app.nodes & left != 0);
    let cost = |(index, app): (usize, &AppView)| {
        let memory = Bytes(nodes(app.nodes & left).map(|node| app.memory[node].0).sum());
        app.cost(index, preset).plus(memory, seconds_per_gb)
    };
    moving.map(cost).collect()
}
