//! Step 1: selects the mechanisms for an application (ALGORITHMS 1.4). Every test is one function
//! of the model.

use super::preset::{FreeMemory, Preset, Replication, TrafficScope};
use super::reason::{CarrefourReason, SamplingCause};
use crate::cost::{Price, WORTH_MOVING, lost_to_latency};
use crate::index_set::NodeSet;
use crate::model::{App, Model, ReadSource, Traffic, TrafficSource};
use crate::reference::CARREFOUR_A;
use crate::topology::Topology;
use crate::units::Bytes;

/// CPU use below which the paper drops a program [Carrefour table 2].
pub(super) const MIN_CPU_PERCENT: f64 = 33.0;
/// Traffic to nodes that an application may not use, in percent of its traffic, above which its
/// memory goes to its nodes (our choice). The kernel's own pages and files make a little of it.
const STRAY_PERCENT: f64 = 10.0;

/// Mechanisms that are on for an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mechanisms {
    /// Copies of read-shared pages.
    pub replication: bool,
    /// Moves of shared pages away from busy controllers.
    pub interleaving: bool,
    /// Moves of pages to their only accessing node.
    pub colocation: bool,
    /// Moves of pages away from a busy controller, though only its own node accesses them.
    pub offloading: bool,
}

impl Mechanisms {
    /// Whether any is on.
    #[must_use]
    pub fn any(self) -> bool {
        self.replication || self.interleaving || self.colocation || self.offloading
    }

    /// Mechanisms of either set.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            replication: self.replication || other.replication,
            interleaving: self.interleaving || other.interleaving,
            colocation: self.colocation || other.colocation,
            offloading: self.offloading || other.offloading,
        }
    }

    /// Mechanisms of both sets.
    #[must_use]
    pub fn among(self, other: Self) -> Self {
        self.without(self.without(other))
    }

    /// Mechanisms of `self` that are not in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            replication: self.replication && !other.replication,
            interleaving: self.interleaving && !other.interleaving,
            colocation: self.colocation && !other.colocation,
            offloading: self.offloading && !other.offloading,
        }
    }
}

/// Measurements of the gates for one application, and their verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gates {
    /// DRAM requests per microsecond that were compared.
    pub per_us: f64,
    /// The limit on this machine.
    pub per_us_limit: f64,
    /// Loss of the application to memory latency, if the preset asks for it.
    pub lost: Option<Price>,
    /// Local access ratio of the application.
    pub local_percent: Option<f64>,
    /// Imbalance of the machine's controllers, of those that the application may use.
    pub imbalance_percent: Option<f64>,
    /// Imbalance above which it is interleaved.
    pub imbalance_limit: f64,
    /// Pages of one node go there if the local access ratio is below this.
    pub local_limit: f64,
    /// Reads among its DRAM accesses.
    pub read_percent: Option<f64>,
    /// Free memory of the nodes that get copies.
    pub free_percent: Option<f64>,
    /// The mechanisms that are on.
    pub mechanisms: Mechanisms,
}

impl Gates {
    /// Judges one application. The error is the reason for leaving it alone.
    ///
    /// # Errors
    /// The first test that it did not pass.
    pub fn judge(
        preset: &Preset,
        model: &Model,
        topology: &Topology,
        app: &App,
    ) -> Result<Self, SamplingCause> {
        let own =
            app.traffic.as_ref().or(model.traffic.as_ref()).ok_or(SamplingCause::TrafficUnknown)?;
        let machine = model.traffic.as_ref().unwrap_or(own);
        let limit = scaled_limit(preset, topology);
        let total = machine.total_per_us();
        let (per_us, above) = match preset.traffic.scope {
            TrafficScope::Application => (own.total_per_us(), limit),
            TrafficScope::ApplicationOfSeveral | TrafficScope::Priced => {
                let is_busy = total > limit && app.cpu_percent >= MIN_CPU_PERCENT;
                let share = if is_busy { share_of_cpus(app, topology) } else { 1.0 };
                (own.total_per_us(), limit * share)
            }
            TrafficScope::Machine => (total, limit),
            TrafficScope::MachinePerNode => (total / topology.controllers().len() as f64, limit),
        };
        let is_priced = preset.traffic.scope == TrafficScope::Priced;
        let lost = lost_to_latency(model, topology, app).filter(|_| is_priced);
        if app.traffic_source == TrafficSource::HintFaults {
            if !preset.pages.by_faults {
                return Err(SamplingCause::LeftToBalancing);
            }
            // Faults show proportions only, so CPU use replaces the rate. The paper's evaluation
            // leaves out programs below 33 %, and so does this gate.
            if app.cpu_percent < MIN_CPU_PERCENT {
                let cpu_percent = app.cpu_percent;
                return Err(SamplingCause::Idle { cpu_percent, above: MIN_CPU_PERCENT });
            }
        } else if let Some(price) = lost.filter(|lost| loses_little(*lost, topology)) {
            return Err(SamplingCause::LittleLost { price, above: WORTH_MOVING });
        } else if !exceeds(per_us, above, preset.traffic.inclusive) {
            let price = lost.ok_or(SamplingCause::LittleTraffic { per_us, above })?;
            if price.likely <= WORTH_MOVING {
                return Err(SamplingCause::LittleLost { price, above: WORTH_MOVING });
            }
        }
        if let (Some(below), Some(ipc)) = (preset.ipc_below, lowest_ipc(model, app))
            && ipc >= below
        {
            return Err(SamplingCause::HighIpc { ipc, below });
        }
        let local_percent = own.local_percent();
        let imbalance_percent = imbalance_of(machine, preset, topology, app);
        let own_imbalance = imbalance_of(own, preset, topology, app);
        let free_percent = free_percent(model, topology);
        let too_uneven =
            |percent: Option<f64>| percent.is_some_and(|p| p > preset.interleave_above_imbalance);
        let remote_enough = preset
            .interleave_below_local
            .is_none_or(|limit| local_percent.is_some_and(|lar| lar < limit));
        // The imbalance is that of the machine. An application with even traffic did not cause it
        // and is left alone.
        let is_uneven = too_uneven(imbalance_percent) && too_uneven(own_imbalance)
            || stray_percent(own, app) > STRAY_PERCENT;
        let read_percent = app.read_percent;
        let mechanisms = Mechanisms {
            replication: preset
                .replication
                .is_some_and(|rule| may_replicate(&rule, model, topology, app, free_percent)),
            interleaving: is_uneven && remote_enough,
            offloading: is_uneven && preset.pages.offloads,
            colocation: local_percent.is_some_and(|lar| lar < preset.colocate_below_local),
        };
        Ok(Self {
            per_us,
            per_us_limit: above,
            lost,
            local_percent,
            imbalance_percent,
            imbalance_limit: preset.interleave_above_imbalance,
            local_limit: preset.colocate_below_local,
            read_percent,
            free_percent,
            mechanisms,
        })
    }
}

/// Whether an application loses too little for pages to move.
///
/// Without measured latencies of the machine, that is not known.
fn loses_little(lost: Price, topology: &Topology) -> bool {
    topology.costs().latency_ns.is_some() && lost.likely <= WORTH_MOVING
}

impl Gates {
    /// Why pages get copies.
    pub(super) fn why_replicate(
        &self,
        rule: &Replication,
        read_source: ReadSource,
        topology: &Topology,
        batch: usize,
    ) -> CarrefourReason {
        CarrefourReason::Replication {
            read_percent: self.read_percent.unwrap_or(0.0),
            read_source,
            above: rule.read_percent,
            free_percent: self.free_percent.unwrap_or(0.0),
            needed_free_percent: needed_free_percent(rule, topology),
            batch,
        }
    }

    /// Reason for which the application is sampled accurately.
    pub(super) fn cause(&self) -> SamplingCause {
        let (per_us, above) = (self.per_us, self.per_us_limit);
        match self.lost {
            Some(price) if per_us <= above => SamplingCause::Loses { price, above: WORTH_MOVING },
            _ => SamplingCause::Enabled { per_us, above },
        }
    }
}

/// The traffic limit on this machine, from calibration with programs. Without it, the published
/// limit as a share of machine A's capacity, applied to this machine.
#[must_use]
pub fn scaled_limit(preset: &Preset, topology: &Topology) -> f64 {
    let nodes = topology.controllers().len() as f64;
    match (preset.traffic.scope, topology.calibrated().requests_per_us) {
        (TrafficScope::MachinePerNode, Some(found)) => found / nodes,
        (_, Some(found)) => found,
        (TrafficScope::MachinePerNode, None) => {
            CARREFOUR_A.scale_requests_per_us_and_node(preset.traffic.per_us, topology)
        }
        (_, None) => CARREFOUR_A.scale_requests_per_us(preset.traffic.per_us, topology),
    }
}

/// Share of the machine's CPU time that an application used.
fn share_of_cpus(app: &App, topology: &Topology) -> f64 {
    (app.cpu_percent / 100.0 / topology.cpu_count().max(1) as f64).min(1.0)
}

fn exceeds(value: f64, limit: f64, inclusive: bool) -> bool {
    value > limit || (inclusive && value >= limit)
}

fn lowest_ipc(model: &Model, app: &App) -> Option<f64> {
    model.threads_of(app).iter().filter_map(|thread| thread.rates.ipc).min_by(f64::total_cmp)
}

/// Nodes whose memory an application may use.
pub(super) fn usable_nodes(app: &App, topology: &Topology) -> NodeSet {
    (0..topology.node_count()).filter(|&node| app.may_use_node(node)).collect()
}

/// Imbalance that this traffic brings to the controllers that an application may use.
fn imbalance_of(traffic: &Traffic, preset: &Preset, topology: &Topology, app: &App) -> Option<f64> {
    traffic.imbalance_percent_among(&usable_nodes(app, topology), preset.deviation, topology)
}

/// Traffic of an application to nodes that it may not use, in percent of all. Its memory lies there
/// if its cpuset changed.
fn stray_percent(own: &Traffic, app: &App) -> f64 {
    let load = own.load_per_us();
    let stray = load.iter().enumerate().filter(|(node, _)| !app.may_use_node(*node));
    let (stray, all): (f64, f64) = (stray.map(|(_, load)| load).sum(), load.iter().sum());
    if all > 0.0 { 100.0 * stray / all } else { 0.0 }
}

/// Free memory in percent, of the nodes that get copies. A memory-only node gets none.
fn free_percent(model: &Model, topology: &Topology) -> Option<f64> {
    let (of, controllers) = (model.free_memory.as_ref()?, topology.controllers());
    let free: u64 = controllers.iter().map(|node| of[node].0).sum();
    let total: u64 = controllers.iter().map(|node| topology.memory(node).0).sum();
    (total > 0).then(|| 100.0 * free as f64 / total as f64)
}

/// Free memory that replication needs, in percent.
#[must_use]
pub fn needed_free_percent(rule: &Replication, topology: &Topology) -> f64 {
    match rule.free_memory {
        FreeMemory::CopyPerNode => 100.0 * (1.0 - 1.0 / topology.controllers().len() as f64),
        FreeMemory::UsedAtMost(share) => 100.0 * (1.0 - share),
    }
}

fn may_replicate(
    rule: &Replication,
    model: &Model,
    topology: &Topology,
    app: &App,
    free: Option<f64>,
) -> bool {
    let reads_enough = |percent: f64| exceeds(percent, rule.read_percent, rule.inclusive);
    let reads = match rule.each_thread_above_cpu_share {
        None => app.read_percent.is_some_and(reads_enough),
        Some(share) => {
            let mut busy =
                model.threads_of(app).iter().filter(|thread| thread.cpu_share >= share).peekable();
            busy.peek().is_some()
                && busy.all(|thread| thread.rates.read_percent.is_some_and(reads_enough))
        }
    };
    let few_faults = rule
        .max_faults_per_s
        .is_none_or(|most| app.faults_per_s.is_some_and(|faults| faults <= most));
    let may_be_everywhere = topology.controllers().iter().all(|node| app.may_use_node(node));
    // Tolerance for rounding of the percentage.
    let memory = free.is_some_and(|free| free + 1e-9 >= needed_free_percent(rule, topology));
    reads
        && few_faults
        && may_be_everywhere
        && memory
        && app.memory.as_ref().is_none_or(|memory| fits(memory, topology))
}

/// One copy of the application's memory must fit on each node.
fn fits(memory: &[Bytes], topology: &Topology) -> bool {
    let total: u64 = memory.iter().map(|bytes| bytes.0).sum();
    topology.controllers().iter().all(|node| total <= topology.memory(node).0)
}
