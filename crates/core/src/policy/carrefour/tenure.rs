//! Checks that co-located pages stay with their users. This rule is ours; no paper has it.
//!
//! Carrefour brings a page to the node that used it in the last round. Where threads exchange their
//! parts, or the kernel moves them back and forth, another node uses the page in the next round.
//! The move then costs time and helps no thread. No trial finds that worse: the program was
//! as far from its pages before.
//!
//! The samples show it: a page that was brought to one node is used from another. Co-location then
//! pauses, twice as long each time that it is in vain. During the pause the samples of these pages
//! tell whether each keeps its user, so no page has to move to find out. Parts that changed hands
//! once wait for one pause only.

use crate::limits::MAX_FOLLOWED_PAGES;
use crate::model::Model;
use crate::plan::PageMove;
use crate::topology::Topology;
use alloc::vec::Vec;

/// Limits for the check that co-location is useful.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tenure {
    /// Least number of sampled accesses to co-located pages that a round needs for a verdict.
    pub least_accesses: u32,
    /// Percentage of accesses from other nodes than in the round before, above which co-location is
    /// useless.
    pub elsewhere_percent: f64,
    /// Rounds without co-location, the first time.
    pub first_rounds: u32,
    /// The same at most.
    pub most_rounds: u32,
}

/// Reason for which an application's pages are not co-located in this round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct InVain {
    /// Sampled accesses of pages that had been brought to their users …
    pub accesses: u32,
    /// … and those of them that came from elsewhere than in the round before.
    pub elsewhere: u32,
    /// Rounds without co-location that begin with this one.
    pub rounds: u32,
}

/// Pages of one application that were co-located lately.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Colocated {
    /// Address of each page, and the node with the memory nearest to its user. That is first the
    /// target of the move, then the node of most samples. The latest page is last, each page once.
    pages: Vec<(u64, u16)>,
    /// Useless rounds less useful rounds.
    times: u32,
    /// The present pause of co-location, with its length and reason.
    pause: Option<InVain>,
    /// A policy moved threads since the last round.
    is_disturbed: bool,
    /// The last round had no verdict for that reason.
    has_skipped: bool,
}

impl Colocated {
    /// Remembers pages that were brought to their users.
    pub(super) fn note(&mut self, pages: &[PageMove]) {
        if !self.pages.is_empty() {
            let mut brought: Vec<u64> = pages.iter().map(|page| page.address).collect();
            brought.sort_unstable();
            self.pages.retain(|(address, _)| brought.binary_search(address).is_err());
        }
        self.pages.extend(pages.iter().map(|page| (page.address, page.to)));
        let over = self.pages.len().saturating_sub(MAX_FOLLOWED_PAGES);
        self.pages.drain(..over);
    }

    /// Notes that a policy moved threads of the application. That other nodes use its pages then
    /// tells nothing of the program, in one round. Threads that move in every round are a cause.
    pub(super) fn disturb(&mut self) {
        self.is_disturbed = true;
    }

    /// Begins a round: whether nothing of this application shall be co-located in it.
    pub(super) fn look(
        &mut self,
        rule: &Tenure,
        model: &Model,
        topology: &Topology,
        app: usize,
    ) -> Option<InVain> {
        let used = self.used(model, topology, app);
        let is_told = !core::mem::take(&mut self.is_disturbed) || self.has_skipped;
        self.has_skipped = !is_told;
        self.pause = match self.pause {
            Some(pause) if pause.rounds > 1 => Some(InVain { rounds: pause.rounds - 1, ..pause }),
            _ if is_told => self.judge(rule, used),
            _ => None,
        };
        self.pause
    }

    /// Whether nothing is co-located in this round.
    pub(super) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Sampled accesses of these pages, and the share of them from other nodes than before. Each
    /// page then belongs to the node with more than half of its accesses.
    fn used(&mut self, model: &Model, topology: &Topology, app: usize) -> (u32, u32) {
        let mut used = (0, 0);
        for (address, user) in &mut self.pages {
            let Some(page) = model.pages.find(app, *address) else { continue };
            let before = *user;
            for (node, count) in page.accesses() {
                let memory = topology.nearest_memory(node) as u16;
                used.0 += count;
                used.1 += if memory == before { 0 } else { count };
                *user = if 2 * count > page.total() { memory } else { *user };
            }
        }
        used
    }

    fn judge(&mut self, rule: &Tenure, (accesses, elsewhere): (u32, u32)) -> Option<InVain> {
        if accesses < rule.least_accesses {
            return None;
        }
        if 100.0 * f64::from(elsewhere) <= rule.elsewhere_percent * f64::from(accesses) {
            self.times = self.times.saturating_sub(1);
            return None;
        }
        let longer = rule.first_rounds.checked_shl(self.times).unwrap_or(rule.most_rounds);
        self.times = self.times.saturating_add(1);
        Some(InVain { accesses, elsewhere, rounds: longer.min(rule.most_rounds) })
    }
}
