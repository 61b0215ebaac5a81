//! A thread that goes from one cache to another, and what it exchanges with its partners then.

use super::group::{Group, node_of, summed};
use super::lines::own_lines;
use super::seen::Seen;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A thread that goes from one cache to another, beside threads that went before it.
pub(super) struct Step<'a> {
    pub(super) seen: Seen<'a>,
    /// Threads that went before, by place in the model, with the cache that they are behind now.
    pub(super) moved: &'a BTreeMap<usize, usize>,
    /// The thread, by place in the model.
    pub(super) place: usize,
    /// The share of its time that it spent there.
    pub(super) share: f64,
    pub(super) caches: (usize, usize),
    /// The nodes of these.
    pub(super) nodes: (usize, usize),
}

impl Step<'_> {
    /// Partners of the thread; none where samples named none.
    pub(super) fn partners(&self) -> &[(usize, f64)] {
        self.seen.facts.named.get(&self.place).map_or(&[], Vec::as_slice)
    }

    fn domain_of(&self, place: usize) -> usize {
        let at_first = || self.seen.topology.domain_of_cpu(self.seen.model.threads[place].cpu);
        self.moved.get(&place).copied().unwrap_or_else(at_first)
    }

    /// Share of the thread's lines that come from other caches, by node, while it is behind this
    /// one.
    pub(super) fn far_from(&self, domain: usize) -> Vec<(usize, f64)> {
        let node = |partner: usize| node_of(self.seen.topology, self.domain_of(partner));
        let apart = self.partners().iter().filter(|(one, _)| self.domain_of(*one) != domain);
        summed(apart.map(|(partner, share)| (node(*partner), *share)))
    }

    /// What the thread's partners fetch from it comes from its new place.
    pub(super) fn tell_partners(&self, groups: &mut [Group]) {
        let (from, to) = (self.caches.0, self.caches.1);
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
            let less = (domain != from).then_some((self.nodes.0, -share));
            let more = (domain != to).then_some((self.nodes.1, share));
            let all = summed(group.far.iter().copied().chain(less).chain(more));
            group.far = all.into_iter().filter(|(_, share)| *share > 1e-12).collect();
        }
    }

    /// Lines that a partner fetches from the thread in a µs.
    fn fetched_by(&self, partner: usize) -> f64 {
        let with = self.seen.facts.named.get(&partner).into_iter().flatten();
        let share: f64 = with.filter(|(one, _)| *one == self.place).map(|(_, share)| share).sum();
        let thread = &self.seen.model.threads[partner];
        share * thread.cpu_share * own_lines(thread).unwrap_or(0.0)
    }
}
