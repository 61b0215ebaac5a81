//! State of an application from round to round.

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
use core::ops::Range;

/// Tolerance for a host that wakes early: a tenth of the shortest period.
const EARLY: Nanos = Nanos::from_millis(100);

/// State of one application.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AppState {
    /// Start time of the process. With another start time it is another process.
    pub(super) started: Nanos,
    /// The last requested sampling rate.
    pub(super) sampling: Option<Sampling>,
    /// Whether it has had copies, so that page tables for each node exist.
    pub(super) activated: bool,
    /// Placements changed after the last round began; `None` before the first.
    pub(super) actions: Option<u64>,
    /// Whether any of its pages has been moved.
    pub(super) has_moved: bool,
    /// Rounds in a row with too few changes for the accurate rate.
    pub(super) idle_rounds: u32,
    /// Mechanisms of the last round, and the measurements at its beginning.
    pub(super) last: Option<Round>,
    /// Until this time the mechanisms of the last round are not tried again, because they did not
    /// help.
    pub(super) waits_until: Nanos,
    /// CPU time that it lost to memory latency at its last judgement, in seconds per second.
    pub(super) lost_cpus: Option<f64>,
    /// State of its copies.
    pub(super) copies: Copies,
    /// Given up by the stabiliser.
    pub(super) given_up: bool,
    /// Pages brought to the nodes that use them.
    pub(super) colocated: Colocated,
    /// Pages that left the busy controllers of their users.
    pub(super) offloaded: Offloaded,
    untreated_rounds: u32,
    never_replicate: BTreeSet<u64>,
    /// Pages for which the last plan requested copies. The next observation shows which pages have
    /// them.
    offered: BTreeSet<u64>,
    /// How often a page's copies were refused or gone by the next observation.
    lost: BTreeMap<u64, u32>,
    moves: BTreeMap<u64, u16>,
}

/// A round, for the feedback.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Round {
    pub(super) at: Nanos,
    pub(super) used: Mechanisms,
    /// Whether a policy moved threads since. The measurements then tell nothing of its pages.
    pub(super) is_disturbed: bool,
    /// Whether steps of the round were carried out or tried.
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

/// Least length of a whole round: nine tenths of the shortest period of the presets.
const WHOLE: Nanos = Nanos::from_millis(900);

impl Round {
    /// A round that begins with these gates.
    pub(super) fn begin(at: Nanos, gates: &Gates) -> Self {
        let Gates { mechanisms: used, local_percent, imbalance_percent, .. } = *gates;
        Self { at, used, is_disturbed: false, has_acted: false, local_percent, imbalance_percent }
    }

    /// Whether the round is too short for a verdict. A tenth of a second of samples shows only a
    /// part of the pages.
    fn goes_on(&self, now: Nanos) -> bool {
        now.since(self.at) < WHOLE && now > self.at
    }
}

impl AppState {
    /// Nothing known yet.
    pub(super) fn new(started: Nanos) -> Self {
        Self { started, ..Self::default() }
    }

    /// Discards the state after a change of phase. Moved pages may have other users now, so pages
    /// between sampled pages may move again.
    pub(super) fn begin_anew(&mut self) {
        (self.last, self.actions, self.idle_rounds) = (None, None, 0);
        self.moves.clear();
        self.waits_until = Nanos(0);
    }

    /// Begins a wait of `period` after a round that did not help.
    pub(super) fn wait_in_vain(&mut self, now: Nanos, period: Nanos) {
        self.waits_until = now + period;
    }

    /// Remaining wait until the failed mechanisms are tried again. Ends slightly early, for a host
    /// that wakes early.
    pub(super) fn wait(&self, now: Nanos) -> Option<Nanos> {
        let wait = self.waits_until.since(now);
        (wait > EARLY).then_some(wait)
    }

    /// Notes a round. A round that comes soon after another is merged with it.
    pub(super) fn note(&mut self, round: Round) {
        let begun = self.last.filter(|last| last.has_acted && last.goes_on(round.at));
        self.last = Some(match begun {
            Some(last) => Round { used: last.used.or(round.used), ..last },
            None => round,
        });
    }

    /// Verdict on the last round. A fall of the local ratio by too much is harm, even if the
    /// imbalance fell too [author code of Carrefour-LP].
    pub(super) fn verdict(&self, feedback: &Feedback, now: &Gates, at: Nanos) -> Option<Verdict> {
        let last = self.last.filter(|last| last.used.any() && !last.is_disturbed)?;
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

    /// Mechanisms that the last round really tried, without copies that were never made.
    pub(super) fn tried(&self) -> Mechanisms {
        let used = self.last.map(|last| last.used).unwrap_or_default();
        Mechanisms { replication: used.replication && self.activated, ..used }
    }

    /// Counts collapses and refused copies. Returns the pages that have just passed the limit and
    /// still have copies. The host lists a page for as long as it counts its collapses, so each
    /// page is returned once.
    pub(super) fn note_collapses(&mut self, replicas: &[Replica], max_collapses: u32) -> Vec<u64> {
        self.settle_offers(replicas, max_collapses);
        let over = replicas
            .iter()
            .filter(|replica| replica.collapses > max_collapses)
            .map(|replica| replica.address);
        over.filter(|address| self.forbid_copies(*address)).collect()
    }

    /// Remembers a page that may have no copies. Returns whether it is a new one. A full memory
    /// forgets all others, and they may fail again.
    fn forbid_copies(&mut self, address: u64) -> bool {
        if self.never_replicate.contains(&address) {
            return false;
        }
        if self.never_replicate.len() >= MAX_REMEMBERED_PAGES {
            self.never_replicate.clear();
        }
        self.never_replicate.insert(address)
    }

    /// Counts the pages that did not get the requested copies, or lost them at once by a write. The
    /// kernel does not count these.
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
                self.forbid_copies(address);
            }
        }
    }

    /// Whether its pages may get copies now, by the fate of its earlier copies. `false` if the host
    /// does not list pages with copies.
    pub(super) fn copies_hold(&mut self, preset: &Preset, app: &App, now: Nanos) -> bool {
        let Some(replicas) = &app.replicas else { return false };
        let Some(rule) = &preset.replication else { return true };
        // The list includes pages that were written too often; they have no copies.
        let copied = replicas.iter().filter(|replica| replica.collapses <= rule.max_collapses);
        !rule.waits_where_copies_fail || self.copies.hold(copied.count() as u64, now, preset.period)
    }

    pub(super) fn never_replicate(&self, address: u64) -> bool {
        self.never_replicate.contains(&address)
    }

    pub(super) fn moves(&self, address: u64) -> u16 {
        self.moves.get(&address).copied().unwrap_or(0)
    }

    /// Addresses of the moved pages that begin in a range, ascending.
    pub(super) fn moved_within(&self, addresses: &Range<u64>) -> impl Iterator<Item = u64> + '_ {
        self.moves.range(addresses.clone()).map(|(address, _)| *address)
    }

    /// Notes moved pages if a rule of the preset needs them. A full list is cleared. The rules then
    /// start anew, as the author code does at each start.
    ///
    /// Copies are not noted here: the host lists pages with copies, and a page that lost its copies
    /// may move.
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

/// Learns from moves of threads by any policy. What a round brought about, and who uses the pages
/// that it moved, is then no longer told by the next one.
pub(super) fn learn_of_threads(
    apps: &mut BTreeMap<Pid, AppState>,
    plan: &Plan,
    outcomes: &[Outcome],
) {
    let results = plan.results(outcomes);
    for (step, _) in results.filter(|(_, outcome)| outcome.result.has_effect()) {
        let Action::SetAffinity { pid, .. } = &step.action else { continue };
        if let Some(state) = apps.get_mut(pid) {
            state.colocated.disturb();
            state.last.iter_mut().for_each(|round| round.is_disturbed = true);
        }
    }
}

/// Learns from all steps that made or dropped copies, of any policy and of undone trials.
pub(super) fn learn_of_copies(
    apps: &mut BTreeMap<Pid, AppState>,
    plan: &Plan,
    outcomes: &[Outcome],
) {
    for (step, outcome) in plan.results(outcomes) {
        let StepResult::Pages(counts) = &outcome.result else { continue };
        match &step.action {
            Action::Replicate { pid, pages } => {
                let Some(state) = apps.get_mut(pid) else { continue };
                state.copies.note(counts.moved, 0);
                // A lack of memory says nothing about the page.
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

    /// A page that the host lists with this number of collapses.
    fn listed(page: u64, collapses: u32) -> Replica {
        Replica { address: page << 12, collapses }
    }

    #[test]
    fn a_page_that_collapsed_too_often_loses_its_copies_once_though_it_stays_listed() {
        let mut state = AppState::default();
        assert_eq!(state.note_collapses(&[listed(1, 5), listed(2, 6)], 5), [2 << 12]);
        assert_eq!(state.note_collapses(&[listed(1, 6), listed(2, 6)], 5), [1 << 12]);
        assert!(state.note_collapses(&[listed(1, 6), listed(2, 7)], 5).is_empty());
        assert!(state.never_replicate(1 << 12) && state.never_replicate(2 << 12));
    }

    #[test]
    fn pages_without_copies_are_remembered_up_to_the_limit() {
        let full = 0..MAX_REMEMBERED_PAGES as u64;
        let mut state = AppState { never_replicate: full.collect(), ..AppState::default() };
        let latest = listed(MAX_REMEMBERED_PAGES as u64, 6);
        assert_eq!(state.note_collapses(&[latest], 5), [latest.address]);
        assert!(state.never_replicate.len() <= MAX_REMEMBERED_PAGES);
        assert!(state.never_replicate(latest.address));
    }

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
