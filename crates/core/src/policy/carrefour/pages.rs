//! Step 2: decides about each sampled page of an enabled application (ALGORITHMS 1.5).

use super::between::{Gap, Owner, Witness};
use super::gates::Mechanisms;
use super::interleave::{Draws, Moved};
use super::preset::{PageRules, Preset, Targets};
use super::state::AppState;
use crate::limits::MAX_NODES;
use crate::model::{Accessors, App, Page};
use crate::observation::{Mapping, MappingKind, Replica};
use crate::plan::PageMove;
use crate::random::Random;
use crate::topology::Topology;
use crate::units::PAGE_SHIFT;
use alloc::vec::Vec;

/// First address beyond user space on x86-64 with four-level tables and on arm64 with 48 bits.
/// Five-level tables give programs higher addresses only on request.
const USER_END: u64 = 1 << 47;
/// Standard deviations by which a number of samples may exceed its expectation by chance.
const CHANCE: f64 = 2.0;

/// Marked pages of one application.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Marks {
    /// Sampled pages that were looked at.
    pub sampled: usize,
    /// Moves to their only accessing node.
    pub colocate: Vec<PageMove>,
    /// Moves to the node with most of their accesses.
    pub most_used: Vec<PageMove>,
    /// Moves of shared pages away from busy controllers.
    pub interleave: Vec<PageMove>,
    /// Moves away from busy controllers of pages that only their own node accesses.
    pub offload: Vec<PageMove>,
    /// Pages that get a copy on each node.
    pub replicate: Vec<PageMove>,
    /// Targets for the pages of `replicate` while they are too few for copies.
    pub(super) instead: Vec<PageMove>,
    /// Shared pages for which interleaving was considered.
    pub considered: usize,
    /// Shared pages that are only read and could be replicated.
    pub read_shared: usize,
    /// Pages of `colocate` that were not sampled often enough themselves.
    pub colocate_between: usize,
    /// Pages of `interleave` that were not sampled often enough themselves.
    pub interleave_between: usize,
    /// Sampled accesses of the pages that were looked at, and of those of each list.
    pub(super) accesses: Accesses,
}

/// Sampled accesses of marked pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Accesses {
    all: u32,
    colocate: u32,
    most_used: u32,
    interleave: u32,
    offload: u32,
}

impl Marks {
    /// Interleaves the pages that would get copies if they are too few, as the preset says.
    /// `activated` = the application has had copies before.
    pub(super) fn interleave_small_batch(&mut self, preset: &Preset, activated: bool) {
        let rule = preset.replication.filter(|rule| rule.interleaves_small_batch);
        if rule.is_some_and(|rule| self.replicate.len() < rule.batch(activated)) {
            self.replicate.clear();
            self.interleave.append(&mut self.instead);
        }
        self.instead.clear();
    }

    /// Removes the moves of a mechanism that has too few to be worth a trial.
    pub(super) fn leave_few(&mut self, rules: &PageRules) {
        let least = rules.least_share.unwrap_or(0.0);
        let (sampled, accesses) = (self.sampled as f64, self.accesses);
        // A few huge pages may have most of the accesses. One or two samples do not show that.
        let are_few = |pages: &[PageMove], of_them: u32| {
            let surely = f64::from(of_them) - CHANCE * libm::sqrt(of_them.into());
            (pages.len() as f64) < least * sampled && surely < least * f64::from(accesses.all)
        };
        if are_few(&self.colocate, accesses.colocate) {
            (self.colocate, self.colocate_between) = (Vec::new(), 0);
        }
        if are_few(&self.most_used, accesses.most_used) {
            self.most_used.clear();
        }
        if are_few(&self.interleave, accesses.interleave) {
            (self.interleave, self.interleave_between) = (Vec::new(), 0);
        }
        if are_few(&self.offload, accesses.offload) {
            self.offload.clear();
        }
    }

    /// Number of pages to move or copy. Offloaded pages are not counted, because more samples would
    /// not change the choice among them.
    #[must_use]
    pub fn moves(&self) -> usize {
        self.colocate.len() + self.most_used.len() + self.interleave.len() + self.replicate.len()
    }
}

/// Inputs of the decisions about the pages of one application.
pub(super) struct Marker<'a> {
    pub(super) preset: &'a Preset,
    pub(super) topology: &'a Topology,
    pub(super) app: &'a App,
    pub(super) state: &'a AppState,
    pub(super) mechanisms: Mechanisms,
    /// Of the nodes that the application may use.
    pub(super) draws: &'a Draws,
    /// Accesses that decide about a page …
    needed: u32,
    /// … and accesses of one node that make it the page's only accessor.
    pub(super) needed_private: u32,
}

impl<'a> Marker<'a> {
    /// A marker that needs the same number of accesses for private pages as for others.
    pub(super) fn new(
        preset: &'a Preset,
        topology: &'a Topology,
        app: &'a App,
        state: &'a AppState,
        mechanisms: Mechanisms,
        draws: &'a Draws,
    ) -> Self {
        let needed = preset.pages.needed(mechanisms.interleaving);
        Self { preset, topology, app, state, mechanisms, draws, needed, needed_private: needed }
    }
}

impl Marker<'_> {
    /// Decides about one page.
    pub(super) fn mark(&self, page: &Page<'_>, random: &mut Random, marks: &mut Marks) {
        marks.sampled += 1;
        let Some(accessors) = page.accessors() else { return };
        marks.accesses.all += accessors.total;
        if accessors.total < self.needed {
            return;
        }
        let Some(source) = page.home else { return };
        if accessors.is_shared {
            self.mark_shared(page, source, random, marks);
        } else if accessors.total >= self.needed_private {
            let target = self.topology.nearest_memory(accessors.first);
            if target == source {
                let leaves = self.offload(page, source, random);
                marks.accesses.offload += leaves.map_or(0, |_| accessors.total);
                marks.offload.extend(leaves);
            } else if self.colocates()
                && self.app.may_use_node(target)
                && self.may_move(page.address, page.shift)
                && !self.state.offloaded.stays_away(page.address, target, &self.draws.settled)
            {
                marks.accesses.colocate += accessors.total;
                marks.colocate.push(page_move(page, source, target));
            }
        }
    }

    /// Moves a page away from the only node that accesses it, if that node's controller is busy.
    fn offload(&self, page: &Page<'_>, source: usize, random: &mut Random) -> Option<PageMove> {
        let may_leave = self.mechanisms.offloading && self.may_move(page.address, page.shift);
        let draw = || self.draws.settled.target(source, page.number(), None, random);
        let target = may_leave.then(draw).flatten()?;
        Some(page_move(page, source, target))
    }

    /// Decides about the unsampled pages in the gaps between sampled pages, by the witnesses of
    /// this application.
    pub(super) fn mark_between(
        &self,
        witnesses: Vec<Witness>,
        random: &mut Random,
        marks: &mut Marks,
    ) {
        let Some(rule) = &self.preset.pages.between else { return };
        let (mut left, mut left_to_offload) = (rule.most, rule.most);
        for gap in rule.gaps(witnesses, self.needed) {
            let marked = match gap.owner {
                Owner::Node(node) => {
                    let comes = self.colocate_gap(&gap, node, left);
                    let leaves = self.offload_gap(&gap, node, left_to_offload, random);
                    left_to_offload -= leaves.len();
                    marks.colocate_between += comes.len();
                    marks.colocate.extend(&comes);
                    marks.offload.extend(leaves);
                    comes.len()
                }
                Owner::Readers if self.mechanisms.replication => {
                    let pages = self.replicate_gap(&gap, left);
                    let number = pages.len();
                    marks.replicate.extend(pages);
                    if self.interleaves_small_batch() {
                        marks.instead.extend(self.interleave_gap(&gap, left, random));
                    }
                    number
                }
                Owner::Several | Owner::Readers if self.mechanisms.interleaving => {
                    let moves = self.interleave_gap(&gap, left, random);
                    marks.interleave_between += moves.len();
                    marks.interleave.extend(&moves);
                    moves.len()
                }
                Owner::Several | Owner::Readers => 0,
            };
            left -= marked;
        }
    }

    fn colocate_gap(&self, gap: &Gap, node: usize, most: usize) -> Vec<PageMove> {
        let to = self.topology.nearest_memory(node);
        let elsewhere = gap.homes.iter().filter(|(home, _)| *home != to);
        let guess = first_max(elsewhere, |(_, count)| *count as f64);
        let may_come = self.colocates() && self.app.may_use_node(to) && !self.is_leaving(gap, to);
        let Some((guess, _)) = guess.filter(|_| may_come) else { return Vec::new() };
        let moves = self.fresh(gap).map(|address| (address, gap.home_of(address, *guess)));
        let (offloaded, settled) = (&self.state.offloaded, &self.draws.settled);
        let comes = |address| !offloaded.stays_away(address, to, settled);
        let moves = moves.filter(|(address, from)| *from != to && comes(*address));
        moves.map(|(address, from)| base_page_move(address, from, to)).take(most).collect()
    }

    /// Whether pages of a gap leave the busy controller of `node`, their only user. Pages without
    /// samples may then be on any node.
    fn is_leaving(&self, gap: &Gap, node: usize) -> bool {
        let are_there = gap.homes.iter().any(|(home, _)| *home == node);
        let has_left = || self.state.offloaded.has_any_of(&gap.addresses, node);
        self.draws.settled.is_overloaded(node) && (are_there || has_left())
    }

    fn interleave_gap(&self, gap: &Gap, most: usize, random: &mut Random) -> Vec<PageMove> {
        let busiest = first_max(gap.homes.iter(), |(home, _)| self.draws.now.share[*home]);
        let Some(&(guess, _)) = busiest else { return Vec::new() };
        let draw = |address| {
            let from = gap.home_of(address, guess);
            let to = self.draws.now.target(from, address >> PAGE_SHIFT, None, random)?;
            Some(base_page_move(address, from, to))
        };
        self.fresh(gap).filter_map(draw).take(most).collect()
    }

    /// Offloads pages of a gap that are on the only node that accesses them.
    fn offload_gap(
        &self,
        gap: &Gap,
        node: usize,
        most: usize,
        random: &mut Random,
    ) -> Vec<PageMove> {
        let own = self.topology.nearest_memory(node);
        if !self.mechanisms.offloading || gap.homes.iter().all(|(home, _)| *home != own) {
            return Vec::new();
        }
        let pages = self.fresh(gap).filter(|&address| gap.home_of(address, own) == own);
        let draw = |address| {
            let to = self.draws.settled.target(own, address >> PAGE_SHIFT, None, random)?;
            Some(base_page_move(address, own, to))
        };
        pages.filter_map(draw).take(most).collect()
    }

    /// Pages of a gap that may have copies. Earlier moves do not matter, because a copy does not
    /// move the page.
    fn replicate_gap(&self, gap: &Gap, most: usize) -> Vec<PageMove> {
        let guess = gap.homes.first().map_or(0, |(home, _)| *home);
        let pages = gap.addresses.clone().step_by(1 << PAGE_SHIFT);
        let eligible = pages.filter(|&address| self.eligible(address, PAGE_SHIFT));
        let home = |address| gap.home_of(address, guess);
        eligible.map(|page| base_page_move(page, home(page), home(page))).take(most).collect()
    }

    /// Whether pages are interleaved until there are enough for copies.
    fn interleaves_small_batch(&self) -> bool {
        let rule = self.preset.replication.as_ref();
        self.mechanisms.interleaving && rule.is_some_and(|rule| rule.interleaves_small_batch)
    }

    /// Base pages of a gap that were not moved or copied before. No sample shows their node.
    fn fresh<'a>(&'a self, gap: &Gap) -> impl Iterator<Item = u64> + 'a {
        let pages = gap.addresses.clone().step_by(1 << PAGE_SHIFT);
        // Both ascend, so one pass over both replaces a look-up for each page.
        let mut moved = self.state.moved_within(&gap.addresses).peekable();
        pages.filter(move |&address| {
            while moved.next_if(|&before| before < address).is_some() {}
            moved.peek() != Some(&address) && !self.has_copies(address)
        })
    }

    fn colocates(&self) -> bool {
        let with_interleaving = self.preset.pages.colocate_while_interleaving;
        let is_on =
            self.mechanisms.colocation || (with_interleaving && self.mechanisms.interleaving);
        is_on && !self.state.colocated.is_paused()
    }

    fn mark_shared(&self, page: &Page<'_>, source: usize, random: &mut Random, marks: &mut Marks) {
        let read_only = page.stores == 0 && self.eligible(page.address, page.shift);
        let gets_copies = self.mechanisms.replication && read_only;
        if gets_copies {
            marks.replicate.push(page_move(page, source, source));
        }
        if gets_copies && !self.interleaves_small_batch() {
            return;
        }
        let most_used_from = self.most_used_from(page).filter(|_| self.colocates() && !gets_copies);
        if let Some(target) = most_used_from.map(|node| self.topology.nearest_memory(node))
            && target != source
            && (self.draws.now.has_room(target) || !self.mechanisms.interleaving)
            && self.draws.may_gather(target)
            && self.app.may_use_node(target)
        {
            if self.may_move(page.address, page.shift) {
                marks.accesses.most_used += page.total();
                marks.most_used.push(page_move(page, source, target));
            }
        } else if self.mechanisms.interleaving {
            marks.considered += 1;
            marks.read_shared += usize::from(read_only);
            let target = self.draw_shared(page, source, random);
            if let Some(target) = target.filter(|_| self.may_move(page.address, page.shift)) {
                let list = if gets_copies { &mut marks.instead } else { &mut marks.interleave };
                list.push(page_move(page, source, target));
                marks.accesses.interleave += page.total();
            }
        }
    }

    /// Draws a target for a shared page that leaves a busy controller.
    fn draw_shared(&self, page: &Page<'_>, source: usize, random: &mut Random) -> Option<usize> {
        let (now, number) = (&self.draws.now, page.number());
        let used = |node: usize| page.accesses().any(|(accessing, _)| accessing == node);
        match self.preset.pages.targets {
            Targets::AllNodes => now.target(source, number, None, random),
            Targets::AccessingNodes => {
                let preference = |node: usize| f64::from(used(node));
                now.target(source, number, Some(&preference), random)
            }
            // A node without samples may still use the page.
            Targets::MoreWhereUsed => {
                now.target_where_used(source, number, || page.accesses(), random)
            }
        }
    }

    /// The node that surely makes more than half of the accesses of a page.
    fn most_used_from(&self, page: &Page<'_>) -> Option<usize> {
        let deviations = self.preset.pages.most_used_from?;
        let (node, most) = first_max(page.accesses(), |(_, count)| f64::from(*count))?;
        let (total, most) = (f64::from(page.total()), f64::from(most));
        let lead = 2.0 * most - total;
        // The variance of the lead if accesses come from two nodes with equal chance.
        (lead > 0.0 && lead * lead >= deviations * deviations * total).then_some(node)
    }

    /// Whether a page may have copies. It is a base page of private anonymous memory of a user
    /// address, not flagged by collapses and not replicated already. The host checks that its table
    /// entry is present and writable.
    fn eligible(&self, address: u64, shift: u8) -> bool {
        let private = self.app.mappings.as_deref().is_some_and(|mappings| {
            mapping_of(mappings, address)
                .is_some_and(|mapping| mapping.kind == MappingKind::PrivateAnonymous)
        });
        private
            && shift == PAGE_SHIFT
            && address < USER_END
            && !self.has_copies(address)
            && !self.state.never_replicate(address)
    }

    /// Whether a page has copies. One that collapsed too often has none, or gets rid of them in
    /// this round.
    fn has_copies(&self, address: u64) -> bool {
        let replicas = self.app.replicas.as_deref();
        replicas.is_some_and(|replicas| is_replicated(replicas, address))
            && !self.state.never_replicate(address)
    }

    fn may_move(&self, address: u64, shift: u8) -> bool {
        let rules = &self.preset.pages;
        let most = match shift > PAGE_SHIFT {
            true => rules.max_moves_per_huge_page,
            false => rules.max_moves_per_page,
        };
        !self.has_copies(address) && (most == 0 || self.state.moves(address) < most)
    }
}

/// Whether a sampled page is among those that may leave its node, and whether it was moved before.
pub(super) fn may_leave(
    rules: &PageRules,
    app: &App,
    state: &AppState,
    mechanisms: Mechanisms,
    page: &Page<'_>,
    seen: &Accessors,
) -> Option<Moved> {
    let replicas = app.replicas.as_deref();
    let has_copies = replicas.is_some_and(|replicas| is_replicated(replicas, page.address));
    let counts = seen.total >= rules.needed(mechanisms.interleaving) && !has_copies;
    counts.then(|| if state.moves(page.address) > 0 { Moved::Before } else { Moved::Never })
}

/// The first item with the largest value. The result does not depend on the numbers of nodes.
fn first_max<T>(all: impl Iterator<Item = T>, of: impl Fn(&T) -> f64) -> Option<T> {
    all.reduce(|best, one| if of(&one) > of(&best) { one } else { best })
}

fn mapping_of(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    mappings[..after].last().filter(|mapping| address < mapping.end)
}

fn is_replicated(replicas: &[Replica], address: u64) -> bool {
    replicas.binary_search_by_key(&address, |replica| replica.address).is_ok()
}

fn page_move(page: &Page<'_>, from: usize, to: usize) -> PageMove {
    PageMove { shift: page.shift, ..base_page_move(page.address, from, to) }
}

fn base_page_move(address: u64, from: usize, to: usize) -> PageMove {
    assert!(from < MAX_NODES && to < MAX_NODES, "nodes {from} and {to} are in 16 bits");
    PageMove { address, shift: PAGE_SHIFT, from: from as u16, to: to as u16 }
}

#[cfg(test)]
mod tests {
    use super::super::preset::STEADY;
    use super::*;
    use alloc::vec;

    #[test]
    fn few_pages_stay_unless_they_surely_have_many_of_the_accesses() {
        let moved = |pages: usize, of_them: u32| {
            let mut marks = Marks {
                sampled: 400,
                colocate: vec![base_page_move(0, 0, 1); pages],
                accesses: Accesses { all: 1000, colocate: of_them, ..Accesses::default() },
                ..Marks::default()
            };
            marks.leave_few(&STEADY.pages);
            marks.colocate.len()
        };
        assert_eq!([moved(3, 3), moved(3, 24)], [0, 0], "as many as chance may bring");
        assert_eq!([moved(3, 300), moved(40, 40)], [3, 40]);
    }
}
