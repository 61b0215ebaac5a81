//! Carrefour: moves, spreads or copies pages so that no memory controller and no link is congested.
//!
//! Dashti et al., "Traffic Management", ASPLOS 2013, and the authors' code where the text is
//! silent; ALGORITHMS section 1. A round:
//!
//! 1. [`gates::Gates`] decide for each application whether its traffic is large enough, and which
//!    mechanisms apply by its imbalance, its locality and its share of reads.
//! 2. [`pages::Marks`] decide for each sampled page. A page that one node uses moves there. A page
//!    that several nodes only read gets a copy on each. A page that several nodes use and write
//!    leaves its controller, with the probability of the controller's share of the traffic.
//! 3. The marked pages become proposals. The sampling rate follows the number of changes of the
//!    last round.
//!
//! The published variants are data: [`preset::Preset`]s. Traffic limits are shares of machine A's
//! capacity.

mod again;
pub mod between;
mod copies;
pub mod gates;
pub mod interleave;
mod marking;
mod offloaded;
pub mod pages;
pub mod preset;
mod reason;
mod state;
mod tenure;
#[cfg(test)]
mod tests;

pub use reason::{CarrefourReason, SamplingCause};
pub use state::{AppState, Verdict};
pub use tenure::{InVain, Tenure};

use self::again::lost_cpus;
use self::gates::{Gates, MIN_CPU_PERCENT, Mechanisms};
use self::pages::Marks;
use self::preset::{FINAL, PRESETS, Preset};
use self::state::Round;
use super::{Pace, Policy, Registered};
use crate::model::{App, Model, TrafficSource};
use crate::plan::{
    Action, Mechanism, Outcome, PageMove, Plan, Proposal, Reason, Sampling, StepResult,
};
use crate::random::Random;
use crate::topology::Topology;
use crate::units::{Nanos, PAGE_SHIFT, Pid};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

const NAME: &str = "carrefour";

/// Its line in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: NAME,
    about: "pages: co-location, interleaving and replication against congested controllers and links",
    presets: preset::NAMES,
    make: |preset| match preset {
        None => Some(Box::new(Carrefour::new(FINAL))),
        Some(name) => {
            let preset = PRESETS.iter().find(|preset| preset.name == name)?;
            Some(Box::new(Carrefour::new((*preset).clone())))
        }
    },
    in_auto: None,
};

/// Carrefour's state.
#[derive(Debug, Clone)]
pub struct Carrefour {
    preset: Preset,
    replication_offered: bool,
    apps: BTreeMap<Pid, AppState>,
    /// Time until the next round is needed. Set if the mechanisms of all watched applications did
    /// not help.
    wait: Option<Nanos>,
    /// Rounds in a row in which no application needed anything.
    quiet_rounds: u32,
    /// Whether an application has to be judged as soon as possible.
    has_noticed: bool,
}

impl Carrefour {
    /// With a preset.
    #[must_use]
    pub fn new(preset: Preset) -> Self {
        Self {
            preset,
            replication_offered: true,
            apps: BTreeMap::new(),
            wait: None,
            quiet_rounds: 0,
            has_noticed: false,
        }
    }

    /// State kept for a process.
    #[must_use]
    pub fn app(&self, pid: Pid) -> Option<&AppState> {
        self.apps.get(&pid)
    }

    /// Forgets processes that ended and gives new ones a state.
    fn follow_processes(&mut self, model: &Model) {
        self.apps
            .retain(|pid, state| model.app(*pid).is_some_and(|app| app.started == state.started));
        for app in &model.apps {
            self.apps.entry(app.pid).or_insert_with(|| AppState::new(app.started));
        }
    }

    /// The preset with the present limit of imbalance for this application.
    fn preset_for(&self, app: &App) -> Preset {
        let mut preset = self.preset.clone();
        let last = self.apps.get(&app.pid).and_then(|state| state.last);
        let Some(last) = last else { return preset };
        if let Some(until) = preset.interleave_until_imbalance.filter(|_| last.used.interleaving) {
            preset.interleave_above_imbalance = until.limit(app.traffic_source);
        }
        if let Some(until) = preset.colocate_until_local.filter(|_| last.used.colocation) {
            preset.colocate_below_local = until;
        }
        preset
    }

    /// The mechanisms of an application in this round, or why it is left alone.
    fn judge(
        &mut self,
        model: &Model,
        topology: &Topology,
        index: usize,
    ) -> Result<Gates, SamplingCause> {
        let app = &model.apps[index];
        if let Some(state) = self.apps.get_mut(&app.pid) {
            state.lost_cpus = lost_cpus(model, topology, app).map(|lost| lost.likely);
        }
        let preset = self.preset_for(app);
        let mut gates = Gates::judge(&preset, model, topology, app)?;
        let Some(state) = self.apps.get_mut(&app.pid) else { return Ok(gates) };
        if state.given_up {
            let rounds = self.preset.stabiliser.max_untreated_rounds.unwrap_or(0);
            return Err(SamplingCause::GivenUp { rounds });
        }
        // A host that replicates pages always lists the pages with copies, even if there are none.
        gates.mechanisms.replication &=
            self.replication_offered && state.copies_hold(&self.preset, app, model.at);
        if let Some(feedback) = &self.preset.feedback {
            let verdict = state.verdict(feedback, &gates, model.at);
            if matches!(verdict, Some(Verdict::Ineffective | Verdict::Harmful)) {
                let used = state.tried();
                gates.mechanisms = gates.mechanisms.without(used);
                state.wait_in_vain(model.at, self.preset.idle_period);
            } else if state.wait(model.at).is_some()
                && let Some(last) = state.last
            {
                gates.mechanisms = gates.mechanisms.among(last.used);
            }
        }
        let tenure = self.preset.pages.tenure.as_ref();
        let in_vain = tenure.and_then(|rule| state.colocated.look(rule, model, topology, index));
        gates.mechanisms.colocation &= in_vain.is_none();
        let (local_percent, imbalance_percent) = (gates.local_percent, gates.imbalance_percent);
        state.note(Round::begin(model.at, &gates));
        match in_vain {
            _ if gates.mechanisms.any() => Ok(gates),
            Some(in_vain) => Err(SamplingCause::UsersChange(in_vain)),
            None => Err(SamplingCause::NoMechanism { local_percent, imbalance_percent }),
        }
    }

    /// The sampling rate that an application should have now, and the reason. `changes` counts the
    /// placements changed after the last round or wanted in this one (see
    /// [`preset::SamplingRates::min_share`]); `needed` changes keep the accurate rate.
    fn sampling(
        &self,
        app: &App,
        verdict: &Result<Gates, SamplingCause>,
        changes: Option<u64>,
        needed: u64,
    ) -> (Sampling, SamplingCause) {
        let rates = &self.preset.sampling;
        match (verdict, changes) {
            // Without counters of traffic, samples or hint faults must stay on: they are the only
            // sensor.
            (Err(cause), _) => {
                let by_samples = matches!(
                    app.traffic_source,
                    TrafficSource::Samples | TrafficSource::HintFaults
                );
                let is_uncounted = by_samples || *cause == SamplingCause::TrafficUnknown;
                let rate = match rates.disabled {
                    Sampling::Off if is_uncounted => rates.cheap,
                    disabled => disabled,
                };
                (rate, *cause)
            }
            (Ok(_), Some(actions)) => {
                let idles = self.apps.get(&app.pid).is_some_and(|state| state.idle_rounds >= 2);
                let rate = match (actions < needed, rates.idle) {
                    (false, _) => rates.accurate,
                    (true, Some(idle)) if idles => idle,
                    (true, _) => rates.cheap,
                };
                (rate, SamplingCause::Actions { actions, needed })
            }
            (Ok(_), None) if app.traffic_source == TrafficSource::HintFaults => {
                let cpu_percent = app.cpu_percent;
                (rates.accurate, SamplingCause::Busy { cpu_percent, above: MIN_CPU_PERCENT })
            }
            (Ok(gates), None) => (rates.accurate, gates.cause()),
        }
    }

    /// Proposes a change of the sampling rate, if one is needed. `marks` are those of this round.
    fn propose_sampling(
        &mut self,
        app: &App,
        verdict: &Result<Gates, SamplingCause>,
        marks: &Marks,
    ) -> Option<Proposal> {
        let rates = &self.preset.sampling;
        let state = self.apps.get_mut(&app.pid)?;
        let (changes, needed) = match rates.min_share {
            Some(share) => {
                let needed = libm::ceil(share * marks.sampled as f64) as u64;
                (state.actions.map(|_| marks.moves() as u64), needed.max(1))
            }
            None => (state.actions, rates.min_actions),
        };
        let few = changes.is_some_and(|changes| changes < needed);
        state.actions = verdict.is_ok().then_some(0);
        let (sampling, cause) = self.sampling(app, verdict, changes, needed);
        let state = self.apps.get_mut(&app.pid)?;
        state.idle_rounds = if few { state.idle_rounds.saturating_add(1) } else { 0 };
        let before = state.sampling.replace(sampling);
        if before == Some(sampling) {
            return None;
        }
        // This round had no samples to decide by.
        self.has_noticed |= before == Some(Sampling::Off) && sampling == rates.accurate;
        let action = Action::SetSampling { pid: Some(app.pid), sampling };
        Some(proposal(action, CarrefourReason::Sampling(cause)))
    }

    /// Drops the copies of pages that were written too often while they had copies.
    fn propose_unreplicate(&mut self, app: &App) -> Option<Proposal> {
        let max_collapses = self.preset.replication.as_ref()?.max_collapses;
        let over =
            self.apps.get_mut(&app.pid)?.note_collapses(app.replicas.as_deref()?, max_collapses);
        let reason = CarrefourReason::Collapsed { more_than: max_collapses };
        (!over.is_empty()).then(|| proposal(dropped(app, over.into_iter()), reason))
    }

    fn propose_pages(
        &self,
        app: &App,
        gates: &Gates,
        topology: &Topology,
        share: &[f64],
        marks: Marks,
    ) -> Vec<Proposal> {
        let pid = app.pid;
        let moves = |mechanism, pages: Vec<PageMove>, reason| {
            let is_wanted = !pages.is_empty();
            is_wanted.then(|| proposal(Action::MovePages { pid, mechanism, pages }, reason))
        };
        let local_percent = gates.local_percent.filter(|_| gates.mechanisms.colocation);
        let (below, sampled_pages) = (gates.local_limit, marks.sampled);
        let between = marks.colocate_between;
        let of_one_node =
            CarrefourReason::CoLocation { local_percent, below, sampled_pages, between };
        let most_used = CarrefourReason::MostUsed { local_percent, below, sampled_pages };
        let spread = CarrefourReason::Interleaving {
            imbalance_percent: gates.imbalance_percent.unwrap_or(0.0),
            deviation: self.preset.deviation,
            above: gates.imbalance_limit,
            load_share: share.to_vec(),
            considered: marks.considered,
            read_shared: marks.read_shared,
            reads_known: app.read_percent.is_some(),
            between: marks.interleave_between,
        };
        let unload = CarrefourReason::Offloading {
            imbalance_percent: gates.imbalance_percent.unwrap_or(0.0),
            above: gates.imbalance_limit,
            load_share: share.to_vec(),
        };
        let batches = [
            moves(Mechanism::CoLocation, marks.colocate, of_one_node),
            moves(Mechanism::CoLocation, marks.most_used, most_used),
            moves(Mechanism::Interleaving, marks.interleave, spread),
            moves(Mechanism::Offloading, marks.offload, unload),
        ];
        let mut proposals: Vec<Proposal> = batches.into_iter().flatten().collect();
        if let Some(rule) = &self.preset.replication {
            let batch = rule.batch(self.apps.get(&pid).is_some_and(|state| state.activated));
            if marks.replicate.len() >= batch {
                let reason = gates.why_replicate(rule, app.read_source, topology, batch);
                proposals.push(proposal(Action::Replicate { pid, pages: marks.replicate }, reason));
            }
        }
        proposals
    }

    /// The gates of an application if its pages may move in this round.
    fn may_act(
        &mut self,
        verdict: &Result<Gates, SamplingCause>,
        model: &Model,
        index: usize,
        app: &App,
    ) -> Option<Gates> {
        let gates = verdict.as_ref().ok()?;
        let own_pages = model.pages.iter().filter(|page| page.app == index);
        let rule = self.preset.stabiliser;
        let replicas = app.replicas.as_deref().unwrap_or_default();
        let state = self.apps.get_mut(&app.pid);
        let unstable = state.is_some_and(|state| state.unstable(&rule, replicas, own_pages));
        (!unstable && app.exempt.is_none()).then_some(*gates)
    }
}

impl Policy for Carrefour {
    fn propose(
        &mut self,
        model: &Model,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        self.follow_processes(model);
        let verdicts: Vec<_> =
            (0..model.apps.len()).map(|app| self.judge(model, topology, app)).collect();
        self.wait = self.shortest_wait(model, &verdicts);
        let is_quiet = verdicts.iter().all(Result::is_err);
        self.quiet_rounds = if is_quiet { self.quiet_rounds.saturating_add(1) } else { 0 };
        let unreplicate: Vec<_> =
            model.apps.iter().map(|app| self.propose_unreplicate(app)).collect();
        let acting: Vec<Option<Gates>> = verdicts
            .iter()
            .zip(&model.apps)
            .enumerate()
            .map(|(index, (verdict, app))| self.may_act(verdict, model, index, app))
            .collect();
        let machine = model
            .traffic
            .as_ref()
            .or_else(|| model.apps.iter().find_map(|app| app.traffic.as_ref()));
        let enabled: Vec<Option<Mechanisms>> =
            acting.iter().map(|gates| gates.as_ref().map(|gates| gates.mechanisms)).collect();
        let draws = machine.map(|traffic| self.draws(traffic, topology, model, &enabled));
        let draws = draws.unwrap_or_default();
        let marks = self.mark(model, topology, &enabled, &draws, random);
        let mut proposals = Vec::new();
        for (((app, verdict), unreplicate), marks) in
            model.apps.iter().zip(&verdicts).zip(unreplicate).zip(&marks)
        {
            proposals.extend(self.propose_sampling(app, verdict, marks));
            proposals.extend(unreplicate);
        }
        for (index, (gates, marks)) in acting.iter().zip(marks).enumerate() {
            let Some((gates, draws)) = gates.as_ref().zip(draws.of(index)) else { continue };
            let (app, share) = (&model.apps[index], &draws.now.share);
            proposals.extend(self.propose_pages(app, gates, topology, share, marks));
        }
        proposals
    }

    fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        state::learn_of_copies(&mut self.apps, plan, outcomes);
        state::learn_of_threads(&mut self.apps, plan, outcomes);
        let is_own =
            |step: &Proposal| step.policy == NAME && !matches!(step.reason, Reason::Undo(_));
        for (step, outcome) in plan.results(outcomes).filter(|(step, _)| is_own(step)) {
            let Some(state) = step.action.pid().and_then(|pid| self.apps.get_mut(&pid)) else {
                continue;
            };
            let is_of_pages = !matches!(step.action, Action::SetSampling { .. });
            state.last.iter_mut().for_each(|last| last.has_acted |= is_of_pages);
            match (&step.action, &outcome.result) {
                (Action::Replicate { .. }, StepResult::Unsupported) => {
                    self.replication_offered = false;
                }
                (Action::Replicate { .. }, StepResult::Pages(counts)) => {
                    state.activated = true;
                    state.actions = Some(state.actions.unwrap_or(0) + counts.moved);
                }
                (Action::MovePages { pages, mechanism, .. }, StepResult::Pages(counts)) => {
                    state.actions = Some(state.actions.unwrap_or(0) + counts.moved);
                    state.has_moved |= counts.moved > 0;
                    if *mechanism == Mechanism::Offloading {
                        state.offloaded.note(pages);
                    }
                    state.note_treated(&self.preset, pages);
                    let of_one_node = matches!(
                        step.reason,
                        Reason::Carrefour(CarrefourReason::CoLocation { .. })
                    );
                    if of_one_node && counts.moved > 0 && self.preset.pages.tenure.is_some() {
                        state.colocated.note(pages);
                    }
                }
                _ => {}
            }
        }
    }

    fn pace(&self, _lane: usize) -> Pace {
        Pace { remembers: self.preset.sample_memory, ..Pace::every(self.period()) }
    }

    fn full_sampling(&self) -> Option<u64> {
        self.preset.sampling.accurate.cycles()
    }

    fn period(&self) -> Nanos {
        match (self.wait, self.quiet_rounds) {
            (Some(wait), _) => wait,
            (None, 0 | 1) => self.preset.period,
            (None, _) => self.preset.quiet_period,
        }
    }
}

/// Drops the copies of these pages of an application.
pub(super) fn dropped(app: &App, addresses: impl Iterator<Item = u64>) -> Action {
    let home = app.home().unwrap_or(0) as u16;
    let page = |address| PageMove { address, shift: PAGE_SHIFT, from: home, to: home };
    Action::Unreplicate { pid: app.pid, pages: addresses.map(page).collect() }
}

fn proposal(action: Action, reason: CarrefourReason) -> Proposal {
    Proposal { policy: NAME, action, reason: Reason::Carrefour(reason) }
}
