//! Moves a thread from one cache to another in the model, and updates the lines that it exchanges
//! with the threads on both sides.

use super::facts::{Facts, LEAST_WORK};
use super::group::{Group, node_of, summed};
use super::seen::Seen;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The move of a thread from one cache to another, after moves of other threads.
pub(super) struct Step<'a> {
    pub(super) seen: Seen<'a>,
    /// Threads that moved before, by place in the model, with their new cache.
    pub(super) moved: &'a BTreeMap<usize, usize>,
    /// The thread, by place in the model.
    pub(super) place: usize,
    /// The share of its time that it spent behind the old cache.
    pub(super) share: f64,
    /// Old and new cache.
    pub(super) caches: (usize, usize),
}

impl Step<'_> {
    /// Partners of the thread; none where samples named none.
    fn partners(&self) -> &[(usize, f64)] {
        self.seen.facts.named.get(&self.place).map_or(&[], Vec::as_slice)
    }

    fn node_of(&self, domain: usize) -> usize {
        node_of(self.seen.topology, domain)
    }

    fn domain_of(&self, place: usize) -> usize {
        let at_first = || self.seen.topology.domain_of_cpu(self.seen.model.threads[place].cpu);
        self.moved.get(&place).copied().unwrap_or_else(at_first)
    }

    /// Share of the thread's lines that come from other caches, by node, if it runs behind this
    /// cache.
    fn far_from(&self, domain: usize) -> Vec<(usize, f64)> {
        let node = |partner: usize| self.node_of(self.domain_of(partner));
        let apart = self.partners().iter().filter(|(one, _)| self.domain_of(*one) != domain);
        summed(apart.map(|(partner, share)| (node(*partner), *share)))
    }

    /// The thread's partners now fetch its lines from its new node.
    fn tell_partners(&self, groups: &mut [Group]) {
        let (from, to) = self.caches;
        for (partner, _) in self.partners() {
            let domain = self.domain_of(*partner);
            let alone = groups.iter().position(|group| group.thread == Some(*partner));
            let among = || groups.iter().position(|g| g.thread.is_none() && g.domain == domain);
            let Some(group) = alone.or_else(among).map(|at| &mut groups[at]) else { continue };
            let lines = self.share * self.fetched_by(*partner);
            if lines <= 0.0 || group.lines <= 0.0 {
                continue;
            }
            let share = lines / (group.lines * group.cpus);
            let less = (domain != from).then_some((self.node_of(from), -share));
            let more = (domain != to).then_some((self.node_of(to), share));
            let all = summed(group.far.iter().copied().chain(less).chain(more));
            group.far = all.into_iter().filter(|(_, share)| *share > 1e-12).collect();
        }
    }

    /// Lines that a partner fetches from the thread in a µs.
    fn fetched_by(&self, partner: usize) -> f64 {
        let with = self.seen.facts.named.get(&partner).into_iter().flatten();
        let share: f64 = with.filter(|(one, _)| *one == self.place).map(|(_, share)| share).sum();
        let thread = &self.seen.model.threads[partner];
        share * thread.cpu_share * self.seen.facts.lines_of(partner, thread).unwrap_or(0.0)
    }
}

/// Updates the sources of a thread's lines: lines of the group that it joins become near, lines of
/// the group that it leaves become far. A thread without named partners is assumed to share with
/// other groups in proportion to their own far lines. Returns the share of its lines that become
/// near.
fn meet(alone: &mut Group, groups: &[Group], to: usize) -> f64 {
    let far: f64 = alone.far.iter().map(|(_, share)| share).sum();
    let exchanged = |group: &Group| {
        group.lines * group.cpus * group.far.iter().map(|(_, share)| share).sum::<f64>()
    };
    let elsewhere = groups.iter().filter(|group| group.domain != alone.domain);
    let all: f64 = elsewhere.map(exchanged).sum();
    let there: f64 = groups.iter().filter(|group| group.domain == to).map(exchanged).sum();
    let met = if all > 0.0 { far * there / all } else { 0.0 };
    let scale = if far > 0.0 { 1.0 - met / far } else { 0.0 };
    alone.far.iter_mut().for_each(|(_, share)| *share *= scale);
    let beside = (1.0 - far).max(0.0);
    alone.far.push((alone.node, beside));
    met
}

/// The groups that the thread joins fetch its lines from the near cache now.
fn welcome(groups: &mut [Group], alone: &Group, met: f64, to: usize) {
    let lines = alone.lines * alone.cpus * met;
    for group in groups.iter_mut().filter(|group| group.domain == to && group.lines > 0.0) {
        let less = lines / (group.lines * group.cpus);
        for (_, far) in group.far.iter_mut().filter(|(owner, _)| *owner == alone.node) {
            *far = (*far - less).max(0.0);
        }
    }
}

/// Moves a thread behind another cache. It uses the same memory as before.
pub(super) fn move_thread(step: &Step<'_>, groups: &mut Vec<Group>) {
    let (from, to) = step.caches;
    let is_from = |group: &Group| group.domain == from && group.thread.is_none();
    let Some(at) = groups.iter().position(is_from) else { return };
    let thread = &step.seen.model.threads[step.place];
    let placed = (step.place, thread);
    let facts = step.seen.facts;
    let mut alone = facts.thread_alone(placed, &groups[at], step.share);
    if step.partners().is_empty() {
        leave_unseen(&mut alone);
        let before = alone.far.clone();
        let met = meet(&mut alone, groups, to);
        welcome(groups, &alone, met, to);
        leave(facts, groups, at, &alone, &before);
    } else {
        alone.lines = step.seen.facts.lines_of(step.place, thread).unwrap_or(alone.lines);
        alone.unseen = step.seen.facts.unseen_of(step.place);
        alone.far = step.far_from(to);
        leave(facts, groups, at, &alone, &step.far_from(from));
        step.tell_partners(groups);
    }
    let (node, thread) = (step.node_of(to), Some(step.place));
    groups.push(Group { node, domain: to, thread, unpinned: 0.0, ..alone });
}

/// A thread without named partners has no part in the lines that partners exchange unseen.
fn leave_unseen(alone: &mut Group) {
    let counted = alone.lines - alone.unseen;
    if alone.unseen > 0.0 && counted > 0.0 {
        let scale = alone.lines / counted;
        alone.far.iter_mut().for_each(|(_, share)| *share = (*share * scale).min(1.0));
    }
    (alone.lines, alone.unseen) = (counted.max(0.0), 0.0);
}

/// Removes a thread from its group: its work, its accesses and the lines that it fetched are
/// subtracted. `far` = shares of these lines that came from other caches, by node.
fn leave(facts: &Facts, groups: &mut Vec<Group>, at: usize, alone: &Group, far: &[(usize, f64)]) {
    let left = groups[at].cpus - alone.cpus;
    if left <= 1e-9 {
        groups.remove(at);
        return;
    }
    let group = &mut groups[at];
    let charges = &facts.charges;
    let wait = |of: &Group| of.misses * charges.latency(of.node, &of.shares, &facts.waits);
    let stalled = |of: &Group| of.cpus * wait(of) / of.overlap;
    let stalled = (stalled(group) - stalled(alone)) / left;
    let work = (group.work * group.cpus - alone.work * alone.cpus) / left;
    group.work = work.max(LEAST_WORK * charges.cycles_per_us);
    let per_us = |of: &Group, share: f64| share * of.misses * of.cpus;
    let both = group.shares.iter().map(|(node, share)| (*node, per_us(group, *share)));
    let less = alone.shares.iter().map(|(node, share)| (*node, -per_us(alone, *share)));
    let (rest, all) = above_zero(both.chain(less));
    group.misses = ((group.misses * group.cpus - alone.misses * alone.cpus) / left).max(0.0);
    if all > 0.0 {
        group.shares = rest.into_iter().map(|(node, sum)| (node, sum / all)).collect();
    }
    if stalled > 0.0 {
        group.overlap = (wait(group) / stalled).max(1.0);
    }
    let (lines, own) = (group.lines * group.cpus, alone.lines * alone.cpus);
    let both = group.far.iter().map(|(node, share)| (*node, share * lines));
    let less = far.iter().map(|(node, share)| (*node, -share * own));
    let (rest, _) = above_zero(both.chain(less));
    let lines = (lines - own).max(0.0);
    group.far = rest.into_iter().map(|(node, sum)| (node, (sum / lines).min(1.0))).collect();
    group.lines = lines / left;
    let unseen = group.unseen * group.cpus - alone.unseen * alone.cpus;
    group.unseen = (unseen / left).clamp(0.0, group.lines);
    group.cpus = left;
    group.wanted = (group.wanted - alone.wanted).max(left);
    group.unpinned = (group.unpinned - alone.unpinned).clamp(0.0, group.wanted);
    group.threads = (group.threads - alone.threads).max(1.0);
}

/// Positive sums by node, and their total.
fn above_zero(values: impl Iterator<Item = (usize, f64)>) -> (Vec<(usize, f64)>, f64) {
    let mut sums = summed(values);
    sums.retain(|(_, sum)| *sum > 0.0);
    let all = sums.iter().map(|(_, sum)| sum).sum();
    (sums, all)
}
