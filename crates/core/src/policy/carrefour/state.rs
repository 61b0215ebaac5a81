//! Carrefour's memory of an application from round to round.

use super::copies::Copies;
use super::gates::{Gates, Mechanisms};
use super::offloaded::Offloaded;
use super::preset::{Feedback, Preset, Stabiliser};
use super::tenure::Colocated;
use crate::limits::MAX_REMEMBERED_PAGES;
use crate::model::{App, Deviation, Page, imbalance_percent};
use crate::observation::Replica;
use crate::plan::{Action, Outcome, PageMove, Plan, Sampling, StepResult};
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// A host may wake too early by this: a tenth of the shortest period.
const EARLY: Nanos = Nanos::from_millis(100);

/// Memory of one application.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AppState {
    /// When the process started: another start is another process.
    pub(super) started: Nanos,
    /// The sampling rate that was asked for last.
    pub(super) sampling: Option<Sampling>,
    /// It has replicated once, so the page tables per node exist.
    pub(super) activated: bool,
    /// Placements changed after the last round began; `None` before the first.
    pub(super) actions: Option<u64>,
    /// Rounds in a row that changed too few for the accurate rate.
    pub(super) idle_rounds: u32,
    /// Mechanisms of the last round, and the measurements at its beginning.
    pub(super) last: Option<Round>,
    /// Until this time only other mechanisms go on: one was of no use.
    pub(super) waits_until: Nanos,
    /// CPU time that it lost to the latency of memory when it was judged, in seconds a second.
    pub(super) lost_cpus: Option<f64>,
    /// What becomes of its copies.
    pub(super) copies: Copies,
    /// Given up by the stabiliser.
    pub(super) given_up: bool,
    /// Pages brought to the nodes that use them.
    pub(super) colocated: Colocated,
    /// Pages that left the busy nodes which use them.
    pub(super) offloaded: Offloaded,
    untreated_rounds: u32,
    never_replicate: BTreeSet<u64>,
    /// Pages for which the last plan asked for copies; the next look shows those that have them.
    offered: BTreeSet<u64>,
    /// How often a page's copies were refused or gone by the next look.
    lost: BTreeMap<u64, u32>,
    moves: BTreeMap<u64, u16>,
}

/// A round, for the feedback.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Round {
    pub(super) at: Nanos,
    pub(super) used: Mechanisms,
    /// Pages were to be moved, and the guard let them.
    pub(super) has_acted: bool,
    pub(super) local_percent: Option<f64>,
    pub(super) imbalance_percent: Option<f64>,
}

/// The result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The local ratio rose, the imbalance fell, or the latency fell by enough.
    Effective,
    /// None of these.
    Ineffective,
    /// The local ratio fell by too much, or the latency rose by too much.
    Harmful,
}

/// A round lasts so long, give or take a tenth: the shortest period of the presets.
const WHOLE: Nanos = Nanos::from_millis(900);

impl Round {
    /// Whether it is too young to be judged: a tenth of a second of samples names a part of the
    /// pages.
    fn goes_on(&self, now: Nanos) -> bool {
        now.since(self.at) < WHOLE && now > self.at
    }
}

impl AppState {
    /// Nothing known yet.
    pub(super) fn new(started: Nanos) -> Self {
        Self { started, ..Self::default() }
    }

    /// The application does something else now: earlier rounds say nothing of it. Pages that were
    /// moved may have other users, so those between sampled pages may move again.
    pub(super) fn begin_anew(&mut self) {
        (self.last, self.actions, self.idle_rounds) = (None, None, 0);
        self.moves.clear();
        self.waits_until = Nanos(0);
    }

    /// The last round was of no use: it waits for a `period`.
    pub(super) fn wait_in_vain(&mut self, now: Nanos, period: Nanos) {
        self.waits_until = now + period;
    }

    /// For how long it waits until what was of no use is tried again. A round that comes a little
    /// early is the one waited for.
    pub(super) fn wait(&self, now: Nanos) -> Option<Nanos> {
        let wait = self.waits_until.since(now);
        (wait > EARLY).then_some(wait)
    }

    /// Remembers a round. Rounds that come soon after another are one with it.
    pub(super) fn note(&mut self, round: Round) {
        let begun = self.last.filter(|last| last.has_acted && last.goes_on(round.at));
        self.last = Some(match begun {
            Some(last) => Round { used: last.used.or(round.used), ..last },
            None => round,
        });
    }

    /// What came of the last round. The local ratio that fell by too much is harm even if the
    /// imbalance fell as well [author code of Carrefour-LP].
    pub(super) fn verdict(&self, feedback: &Feedback, now: &Gates, at: Nanos) -> Option<Verdict> {
        let last = self.last.filter(|last| last.used.any())?;
        if last.goes_on(at) {
            return None;
        }
        let rise = relative_percent(last.local_percent, now.local_percent).unwrap_or(0.0);
        let fall = -relative_percent(last.imbalance_percent, now.imbalance_percent).unwrap_or(0.0);
        let helps = rise > feedback.local_gain || fall > feedback.imbalance_gain;
        Some(match () {
            () if rise < -feedback.local_loss => Verdict::Harmful,
            () if helps => Verdict::Effective,
            () => Verdict::Ineffective,
        })
    }

    /// Mechanisms of the last round that were tried. Copies that were never made were not.
    pub(super) fn tried(&self) -> Mechanisms {
        let used = self.last.map(|last| last.used).unwrap_or_default();
        Mechanisms { replication: used.replication && self.activated, ..used }
    }

    /// Remembers collapses and lost offers; answers the pages that just passed the limit and are
    /// still replicated.
    pub(super) fn note_collapses(&mut self, replicas: &[Replica], max_collapses: u32) -> Vec<u64> {
        self.settle_offers(replicas, max_collapses);
        let over = replicas
            .iter()
            .filter(|replica| replica.collapses > max_collapses)
            .map(|replica| replica.address);
        let over: Vec<u64> = over.collect();
        self.never_replicate.extend(&over);
        over
    }

    /// Looks at what became of the pages that were offered copies. The kernel counts no page that
    /// it refuses, so these are counted here, with those that a write took back at once.
    fn settle_offers(&mut self, replicas: &[Replica], max_collapses: u32) {
        if self.lost.len() + self.offered.len() > MAX_REMEMBERED_PAGES {
            self.lost.clear();
        }
        let held: BTreeSet<u64> = replicas.iter().map(|replica| replica.address).collect();
        for address in core::mem::take(&mut self.offered) {
            if held.contains(&address) {
                self.lost.remove(&address);
                continue;
            }
            let lost = self.lost.entry(address).or_insert(0);
            *lost += 1;
            if *lost > max_collapses {
                self.lost.remove(&address);
                self.never_replicate.insert(address);
            }
        }
    }

    /// Whether its pages may get copies now, as far as its earlier copies tell. They may not where
    /// the host does not tell which pages have copies.
    pub(super) fn copies_hold(&mut self, preset: &Preset, app: &App, now: Nanos) -> bool {
        let Some(replicas) = &app.replicas else { return false };
        let Some(rule) = &preset.replication else { return true };
        // Pages that were written too often are listed, and have no copies.
        let copied = replicas.iter().filter(|replica| replica.collapses <= rule.max_collapses);
        !rule.waits_where_copies_fail || self.copies.hold(copied.count() as u64, now, preset.period)
    }

    pub(super) fn never_replicate(&self, address: u64) -> bool {
        self.never_replicate.contains(&address)
    }

    pub(super) fn moves(&self, address: u64) -> u16 {
        self.moves.get(&address).copied().unwrap_or(0)
    }

    /// Remembers moved pages where a rule of the preset asks for them. A full memory forgets all
    /// of them. The rules then start anew, as the author code does at each start.
    ///
    /// Copies are not remembered here: the host tells which pages have them, and a page that lost
    /// them may move.
    pub(super) fn note_treated(&mut self, preset: &Preset, pages: &[PageMove]) {
        let rules = &preset.pages;
        let asked = rules.max_moves_per_page > 0
            || rules.max_moves_per_huge_page > 0
            || rules.between.is_some();
        if !asked && preset.stabiliser.max_untreated_rounds.is_none() {
            return;
        }
        if self.moves.len() + pages.len() > MAX_REMEMBERED_PAGES {
            self.moves.clear();
        }
        for page in pages {
            let moves = self.moves.entry(page.address).or_insert(0);
            *moves = moves.saturating_add(1);
        }
    }

    /// The stabilisers. A round is skipped if a few pages have most samples. The application is
    /// given up if its accesses go to other pages than the treated ones.
    pub(super) fn unstable<'a>(
        &mut self,
        rule: &Stabiliser,
        replicas: &[Replica],
        pages: impl Iterator<Item = Page<'a>>,
    ) -> bool {
        if rule.max_sample_deviation.is_none() && rule.max_untreated_rounds.is_none() {
            return false;
        }
        let is_treated = |address: u64| {
            let has_copies = replicas.binary_search_by_key(&address, |one| one.address).is_ok();
            has_copies || self.moves.contains_key(&address)
        };
        let totals: Vec<(f64, bool)> =
            pages.map(|page| (f64::from(page.total()), is_treated(page.address))).collect();
        let samples: Vec<f64> = totals.iter().map(|(samples, _)| *samples).collect();
        if let Some(most) = rule.max_untreated_rounds {
            let all: f64 = samples.iter().sum();
            let treated: f64 =
                totals.iter().filter(|(_, treated)| *treated).map(|(samples, _)| samples).sum();
            let has_begun = !self.moves.is_empty() || !replicas.is_empty();
            let untreated = has_begun && 100.0 * treated < rule.treated_percent * all;
            self.untreated_rounds = if untreated { self.untreated_rounds + 1 } else { 0 };
            self.given_up |= self.untreated_rounds > most;
        }
        let deviation = imbalance_percent(&samples, Deviation::Sample).unwrap_or(0.0);
        rule.max_sample_deviation.is_some_and(|most| deviation > most)
    }
}

/// Takes in what all steps did to copies, whichever policy or trial proposed them.
pub(super) fn learn_of_copies(
    apps: &mut BTreeMap<Pid, AppState>,
    plan: &Plan,
    outcomes: &[Outcome],
) {
    for outcome in outcomes {
        let Some(step) = plan.steps.get(outcome.step) else { continue };
        let StepResult::Pages(counts) = &outcome.result else { continue };
        match &step.action {
            Action::Replicate { pid, pages } => {
                let Some(state) = apps.get_mut(pid) else { continue };
                state.copies.note(counts.moved, 0);
                // Want of memory tells nothing about a page.
                if counts.no_memory == 0 {
                    state.offered.extend(pages.iter().map(|page| page.address));
                }
            }
            Action::Unreplicate { pid, pages } => {
                let Some(state) = apps.get_mut(pid) else { continue };
                state.copies.note(0, counts.moved);
                for page in pages {
                    state.offered.remove(&page.address);
                }
            }
            _ => {}
        }
    }
}

/// Change from `before` to `after` in percent of `before`.
fn relative_percent(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    let (before, after) = (before?, after?);
    (before > 0.0).then(|| 100.0 * (after - before) / before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_phase_ends_the_wait_of_what_was_of_no_use_and_lets_pages_move_again() {
        let mut state = AppState::default();
        let (now, period) = (Nanos::from_secs(100), Nanos::from_secs(5));
        state.wait_in_vain(now, period);
        assert_eq!(state.wait(now), Some(period));
        state.wait_in_vain(now, period);
        assert_eq!(state.wait(now), Some(period), "as long again, as in the author code");
        let page = PageMove { address: 4096, shift: 12, from: 0, to: 1 };
        state.note_treated(&super::super::preset::STEADY, &[page]);
        assert_eq!(state.moves(page.address), 1);
        state.begin_anew();
        assert_eq!(state.moves(page.address), 0, "it may have another user now");
        assert_eq!(state.wait(now), None);
    }
}
