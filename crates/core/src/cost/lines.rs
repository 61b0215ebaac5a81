//! Lines that threads fetch from caches: how many of them come from threads behind other caches, and
//! what becomes of that when one thread goes elsewhere.

use super::facts::{Group, Sums, node_of};
use super::joining::summed;
use super::seen::Seen;
use crate::model::{App, Model, Thread};
use crate::topology::Topology;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// By thread, by place in the model: its partners, with the share of its lines.
pub(super) type Named = BTreeMap<usize, Vec<(usize, f64)>>;

/// Lines that a thread fetches from other caches in a µs of its CPU time; `None` = not counted.
pub(super) fn own_lines(thread: &Thread) -> Option<f64> {
    let rates = [thread.rates.coherence_remote_per_s, thread.rates.coherence_local_per_s];
    let known = rates.iter().any(Option::is_some);
    known.then(|| rates.into_iter().flatten().sum::<f64>() / 1e6)
}

/// Fills in where the lines of each group come from: from partners that samples named, else from
/// the threads of the process alike, wherever these run.
pub(super) fn spread_lines(
    groups: &mut [Group],
    (model, topology): (&Model, &Topology),
    app: &App,
    named: &Named,
) {
    let of_named = named_lines(model, topology, app, named);
    let threads: Vec<(usize, usize, f64)> =
        groups.iter().map(|group| (group.node, group.domain, group.threads)).collect();
    let all: f64 = threads.iter().map(|(_, _, count)| count).sum();
    for group in groups.iter_mut().filter(|group| group.lines > 0.0) {
        let others = (all - 1.0).max(1.0);
        let elsewhere = threads.iter().filter(|(_, domain, _)| *domain != group.domain);
        let alike = summed(elsewhere.map(|(node, _, count)| (*node, count / others)));
        let sum: f64 = alike.iter().map(|(_, share)| share).sum();
        let lines = group.lines * group.cpus;
        let (counted, far) = of_named.get(&group.domain).cloned().unwrap_or_default();
        let unnamed = (1.0 - counted / lines).max(0.0) / sum.max(1.0);
        let alike = alike.into_iter().map(|(node, share)| (node, unnamed * share));
        let by_name = far.into_iter().map(|(node, far)| (node, far / lines.max(counted)));
        group.far = summed(alike.chain(by_name));
    }
}

/// Lines in a µs of the threads with named partners behind each cache: all of them, and those that
/// come from other caches, by the node of these.
fn named_lines(
    model: &Model,
    topology: &Topology,
    app: &App,
    named: &Named,
) -> BTreeMap<usize, (f64, Vec<(usize, f64)>)> {
    let mut of_domain: BTreeMap<usize, (f64, Vec<(usize, f64)>)> = BTreeMap::new();
    for (place, partners) in named.range(app.threads.clone()) {
        let thread = &model.threads[*place];
        let lines = thread.cpu_share * own_lines(thread).unwrap_or(0.0);
        let here = topology.domain_of_cpu(thread.cpu);
        let (sum, far) = of_domain.entry(here).or_default();
        *sum += lines;
        for (partner, share) in partners {
            let cpu = model.threads[*partner].cpu;
            if topology.domain_of_cpu(cpu) != here {
                far.push((topology.node_of_cpu(cpu), lines * share));
            }
        }
    }
    of_domain
}

/// Scales the lines from other nodes to their count, where there is one: threads need not share
/// with those beside which they run.
pub(super) fn count_far(group: &mut Group, sums: &Sums) {
    let spread: f64 = group.far.iter().map(|(_, share)| share).sum();
    let Some(far) = sums.far.filter(|_| sums.lines > 0.0 && spread > 0.0) else { return };
    let scale = far / sums.lines / spread;
    group.far.iter_mut().for_each(|(_, share)| *share *= scale);
}

/// A thread that goes from one cache to another, beside threads that went before it.
pub(super) struct Step<'a> {
    pub(super) seen: Seen<'a>,
    /// Threads that went before, by place in the model, with the cache that they are behind now.
    pub(super) moved: &'a BTreeMap<usize, usize>,
    /// The thread, by place in the model.
    pub(super) place: usize,
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
            let lines = self.fetched_by(*partner);
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
