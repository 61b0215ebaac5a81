//! The changes that steps make to a placement. They are computed once and apply to any placement.

use super::group::{Group, node_of, summed};
use super::joining::{Step, move_thread};
use super::seen::{Sampled, Seen};
use crate::index_set::CpuSet;
use crate::matrix::Matrix;
use crate::model::App;
use crate::plan::{Action, Mechanism, NodeMove, PageMove, Proposal};
use crate::topology::Topology;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// The changes of several steps, in their order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Effect {
    /// For each step: the place of its process among the facts, and the change, if any.
    pub(super) alterations: Vec<(usize, Option<Alteration>)>,
}

/// The change that one step makes to a process.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Alteration {
    /// Pages go to other nodes.
    Pages(Mechanism, Moved),
    /// Pages get a copy on each node.
    Copies(Moved),
    /// All memory of some nodes goes to others.
    Memory(Vec<NodeMove>),
    /// A thread, by its place in the model, goes to a cache from those where it ran, with the share
    /// of its time in each. `held` = where it stays, if it may run on no other node any more.
    Thread { place: usize, from: Vec<(usize, f64)>, to: usize, held: Vec<(usize, f64)> },
    /// A thread, by its place in the model, may run on other nodes again. The kernel moves it where
    /// a CPU is idle.
    Released { place: usize },
}

impl Effect {
    /// The changes of some steps. Sampling rates, and steps on processes without facts, are left
    /// out.
    #[must_use]
    pub fn of(seen: Seen<'_>, steps: &[&Proposal]) -> Self {
        let alteration = |step: &&Proposal| {
            let is_sampling = matches!(step.action, Action::SetSampling { .. });
            let pid = step.action.pid().filter(|_| !is_sampling)?;
            let (place, app) = (seen.facts.place(pid)?, seen.model.app(pid)?);
            Some((place, Alteration::of(seen, app, &step.action)))
        };
        Self { alterations: steps.iter().filter_map(alteration).collect() }
    }
}

impl Alteration {
    fn of(seen: Seen<'_>, app: &App, action: &Action) -> Option<Self> {
        Some(match action {
            Action::MovePages { mechanism, pages, .. } => {
                Self::Pages(*mechanism, Moved::of(seen, app, pages))
            }
            Action::Replicate { pages, .. } => Self::Copies(Moved::of(seen, app, pages)),
            Action::MoveProcessMemory { nodes, .. } => Self::Memory(nodes.clone()),
            Action::SetAffinity { tid, cpus, via, .. } => {
                let threads = seen.model.threads_of(app);
                let index = threads.binary_search_by_key(tid, |one| one.tid).ok()?;
                Self::thread(seen, app.threads.start + index, cpus, *via)?
            }
            Action::Unreplicate { .. } | Action::SetSampling { .. } => return None,
        })
    }

    /// A new mask moves a thread: from the caches that the mask excludes, or to the cache of the
    /// CPU `via`.
    fn thread(seen: Seen<'_>, place: usize, cpus: &CpuSet, via: Option<usize>) -> Option<Self> {
        let (thread, topology) = (&seen.model.threads[place], seen.topology);
        let last = Some(thread.cpu).filter(|cpu| cpus.contains(*cpu));
        let known = via.or(last).map(|cpu| topology.domain_of_cpu(cpu));
        let to = known.or_else(|| spread(topology, cpus, place))?;
        if thread.cpu_share <= 0.0 {
            return None;
        }
        let here = [(topology.domain_of_cpu(thread.cpu), 1.0)];
        let wanders = seen.facts.wandering.get(&place);
        let leaves =
            |domain| wanders.is_none() || !topology.cpus_of_domain(domain).intersects(cpus);
        let parts = wanders.map_or(&here[..], Vec::as_slice).iter().copied();
        let (from, mut held): (Vec<_>, Vec<_>) =
            parts.partition(|(domain, _)| *domain != to && leaves(*domain));
        let node = |domain| topology.cpus_of_node(node_of(topology, domain));
        if !seen.facts.unpinned_threads.contains(&place) || !cpus.is_subset(node(to)) {
            held.clear();
        }
        if !from.is_empty() || !held.is_empty() {
            return Some(Self::Thread { place, from, to, held });
        }
        let is_released = thread.is_narrowed && !cpus.is_subset(node(here[0].0));
        is_released.then_some(Self::Released { place })
    }

    /// Applies the change to the groups of its process. `moved` = threads that moved to other
    /// caches so far, this one included.
    pub(super) fn apply(
        &self,
        seen: Seen<'_>,
        groups: &mut Vec<Group>,
        moved: &mut BTreeMap<usize, usize>,
    ) {
        match self {
            Self::Pages(mechanism, moved) => {
                let asked = Asked::by(groups, seen.topology.node_count());
                groups.iter_mut().for_each(|group| moved.apply(*mechanism, &asked, group));
            }
            Self::Copies(moved) => {
                let nodes = seen.topology.controllers();
                let asked = Asked::by(groups, seen.topology.node_count());
                for group in groups.iter_mut().filter(|group| nodes.contains(group.node)) {
                    moved.copy_to(&asked, group);
                }
            }
            Self::Memory(nodes) => {
                let image = |from: usize| {
                    nodes.iter().find(|step| step.from == from).map_or(from, |step| step.to)
                };
                for group in groups {
                    group.shares =
                        summed(group.shares.iter().map(|(held, share)| (image(*held), *share)));
                }
            }
            Self::Thread { place, from, to, held } => {
                held.iter().for_each(|at| hold(seen, *place, *at, groups));
                for (from, share) in from {
                    let (place, share, caches) = (*place, *share, (*from, *to));
                    move_thread(&Step { seen, moved, place, share, caches }, groups);
                }
                if !from.is_empty() {
                    moved.insert(*place, *to);
                }
            }
            Self::Released { place } => release(seen, *place, groups),
        }
    }
}

/// The cache to which a thread goes that may run behind several: the kernel spreads threads evenly.
fn spread(topology: &Topology, cpus: &CpuSet, place: usize) -> Option<usize> {
    let caches: BTreeSet<usize> = cpus.iter().map(|cpu| topology.domain_of_cpu(cpu)).collect();
    caches.iter().nth(place.checked_rem(caches.len())?).copied()
}

/// A thread that was held to a node now runs where a CPU is idle.
fn release(seen: Seen<'_>, place: usize, groups: &mut [Group]) {
    let domain = seen.topology.domain_of_cpu(seen.model.threads[place].cpu);
    if let Some((group, wanted)) = share_of(seen, place, (domain, 1.0), groups) {
        group.unpinned = (group.unpinned + wanted).min(group.wanted);
    }
}

/// A thread that ran where a CPU was idle waits for the CPUs of a node, if it is pinned there. The
/// share is that of its time behind this cache.
fn hold(seen: Seen<'_>, place: usize, at: (usize, f64), groups: &mut [Group]) {
    if let Some((group, wanted)) = share_of(seen, place, at, groups) {
        group.unpinned = (group.unpinned - wanted).max(0.0);
    }
}

/// The group behind a cache, and the demand that a thread has in it for this share of its time.
fn share_of<'a>(
    seen: Seen<'_>,
    place: usize,
    (domain, share): (usize, f64),
    groups: &'a mut [Group],
) -> Option<(&'a mut Group, f64)> {
    let group = groups.iter_mut().find(|group| group.thread.is_none() && group.domain == domain)?;
    let thread = &seen.model.threads[place];
    let wanted = seen.facts.thread_alone((place, thread), group, share).wanted;
    Some((group, wanted))
}

/// Misses per µs of a process's threads, by the node of the threads and the node of the memory.
struct Asked(Matrix<f64>);

impl Asked {
    fn by(groups: &[Group], nodes: usize) -> Self {
        let mut asked = Matrix::filled(nodes, 0.0);
        for group in groups {
            for (holding, share) in &group.shares {
                asked[(group.node, *holding)] += group.cpus * group.misses * share;
            }
        }
        Self(asked)
    }

    /// All misses that a node's memory serves.
    fn of(&self, holding: usize) -> f64 {
        self.0.column(holding).sum()
    }
}

/// Pages that move, by source and target node. For each pair: their part of the accesses to the
/// source node, and the nodes of the accessing threads.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Moved {
    ways: BTreeMap<(usize, usize), Way>,
}

/// Pages with the same source and target node.
#[derive(Debug, Clone, PartialEq, Default)]
struct Way {
    /// Share of the memory on the source node.
    bytes: f64,
    /// Samples of these pages, and the accesses of each node by these samples.
    samples: f64,
    by_node: BTreeMap<usize, f64>,
    /// Weight of the prior in these accesses.
    expected: f64,
    /// Share of the accesses to the source node that go to these pages, by samples.
    sampled: f64,
}

impl Moved {
    fn of(seen: Seen<'_>, app: &App, pages: &[PageMove]) -> Self {
        let way = |bytes| Way { bytes, ..Way::default() };
        let ways = shares_of_memory(app, pages).into_iter().map(|(at, bytes)| (at, way(bytes)));
        let mut moved = Self { ways: ways.collect() };
        let apps = &seen.pages.model.apps;
        if let Ok(index) = apps.binary_search_by_key(&app.pid, |one| one.pid) {
            moved.sample(seen.pages, index, pages);
        }
        moved
    }

    /// Adds the samples of these pages. Pages without samples have accesses too. Their share of all
    /// accesses is the share of samples that are the only one of their page (Good and Turing's
    /// estimate).
    fn sample(&mut self, sampled: &Sampled<'_>, index: usize, pages: &[PageMove]) {
        let Some(of_app) = sampled.of.get(index).filter(|of_app| of_app.all > 0.0) else { return };
        let covered = 1.0 - of_app.once / of_app.all;
        let prior = &of_app.prior;
        for page in pages {
            let Some(found) = sampled.model.pages.find(index, page.address) else { continue };
            let from = usize::from(page.from);
            let Some(way) = self.ways.get_mut(&(from, page.to.into())) else { continue };
            let total = found.total();
            let per_sample = prior.per_sample(total);
            for (node, count) in found.accesses() {
                *way.by_node.entry(node).or_default() += per_sample * f64::from(count);
            }
            way.expected += per_sample;
            way.samples += f64::from(total);
            way.sampled += covered * f64::from(total) / of_app.of_node[from].max(1.0);
        }
        for way in self.ways.values_mut().filter(|way| way.expected > 0.0) {
            for (node, expected) in prior.by_node.iter().enumerate().filter(|(_, n)| **n > 0.0) {
                *way.by_node.entry(node).or_default() += way.expected * expected;
            }
        }
    }

    /// Shares of a group's accesses that move from one node to another: `(from, to, share)`. They
    /// are no more than the group's accesses to a node.
    fn parts(
        &self,
        mechanism: Mechanism,
        asked: &Asked,
        group: &Group,
    ) -> Vec<(usize, usize, f64)> {
        let own = group.cpus * group.misses;
        let nodes = asked.0.size();
        let mut shares = vec![0.0; nodes];
        group.shares.iter().for_each(|(node, share)| shares[*node] = *share);
        let part = |((from, to), way): (&(usize, usize), &Way)| {
            let share = shares[*from];
            let samples = way.samples;
            let all = asked.of(*from);
            // The group's share of the accesses to these pages. What is known of a node is of all
            // its groups together.
            let of_node = |users: f64| {
                users * share * own / asked.0[(group.node, *from)].max(f64::MIN_POSITIVE)
            };
            let users = match (samples > 0.0, mechanism) {
                // Pages that follow were sampled before their threads moved.
                (_, Mechanism::Following) | (false, Mechanism::Interleaving) => {
                    share * own / all.max(1e-12)
                }
                (true, _) => {
                    of_node(way.by_node.get(&group.node).copied().unwrap_or(0.0) / samples)
                }
                (false, Mechanism::Offloading) => of_node(f64::from(u8::from(group.node == *from))),
                (false, _) => of_node(f64::from(u8::from(group.node == *to))),
            };
            let moved = way.bytes.max(way.sampled.min(1.0)) * all * users;
            let part = if own > 0.0 { (moved / own).min(share) } else { 0.0 };
            (part > 0.0).then_some((*from, *to, part))
        };
        let mut parts: Vec<_> = self.ways.iter().filter_map(part).collect();
        let mut leave = vec![0.0; nodes];
        parts.iter().for_each(|(from, _, part)| leave[*from] += part);
        for (from, _, part) in &mut parts {
            *part *= (shares[*from] / leave[*from]).min(1.0);
        }
        parts
    }

    fn apply(&self, mechanism: Mechanism, asked: &Asked, group: &mut Group) {
        let mut changes = Vec::new();
        for (from, to, part) in self.parts(mechanism, asked, group) {
            changes.extend([(from, -part), (to, part)]);
        }
        group.shares = changed(&group.shares, changes);
    }

    /// Each node reads its own copy.
    fn copy_to(&self, asked: &Asked, group: &mut Group) {
        let mut changes = Vec::new();
        for (from, _, part) in self.parts(Mechanism::Interleaving, asked, group) {
            changes.extend([(from, -part), (group.node, part)]);
        }
        group.shares = changed(&group.shares, changes);
    }
}

/// Share of the memory of its source node that moves by each way. Memory by node is read seldom, so
/// a node holds the pages that leave it, at least.
fn shares_of_memory(app: &App, pages: &[PageMove]) -> BTreeMap<(usize, usize), f64> {
    let (mut ways, mut leave) = (BTreeMap::new(), BTreeMap::new());
    for page in pages {
        let (from, bytes) = (usize::from(page.from), page.bytes().0 as f64);
        *ways.entry((from, page.to.into())).or_insert(0.0) += bytes;
        *leave.entry(from).or_insert(0.0) += bytes;
    }
    for ((from, _), share) in &mut ways {
        let known = app.memory.as_ref().map_or(0, |memory| memory[*from].0) as f64;
        *share /= known.max(leave[from]).max(1.0);
    }
    ways
}

/// Shares after some changes, without those that rounding left.
fn changed(shares: &[(usize, f64)], changes: Vec<(usize, f64)>) -> Vec<(usize, f64)> {
    let all = summed(shares.iter().copied().chain(changes));
    all.into_iter().filter(|(_, share)| *share > 1e-12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::PAGE_SHIFT;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is known of memory and samples, an access goes to one node before and after.
        #[test]
        fn no_access_is_lost_or_doubled(
            ways in prop::collection::btree_map(
                (0..3_usize, 0..3_usize),
                (0.0..2.0f64, 0.0..9.0f64, 0.0..2.0f64, 0.0..9.0f64),
                1..6,
            ),
            shares in prop::array::uniform3(0.0..1.0f64),
            mechanism in prop::sample::select(vec![
                Mechanism::CoLocation, Mechanism::Interleaving, Mechanism::Offloading,
            ]),
        ) {
            let way = |(bytes, samples, sampled, own)| Way {
                bytes, samples, sampled, by_node: BTreeMap::from([(0, own)]), ..Way::default()
            };
            let moved = Moved { ways: ways.into_iter().map(|(at, one)| (at, way(one))).collect() };
            let mut group = Group { node: 0, cpus: 2.0, misses: 3.0, ..Group::default() };
            group.shares = shares.iter().copied().enumerate().collect();
            let before: f64 = shares.iter().sum();
            let asked = Asked::by(core::slice::from_ref(&group), 3);
            moved.apply(mechanism, &asked, &mut group);
            let after: f64 = group.shares.iter().map(|(_, share)| share).sum();
            prop_assert!((after - before).abs() < 1e-9, "{before} → {after}");
            prop_assert!(group.shares.iter().all(|(_, share)| *share > 0.0));
        }
    }

    #[test]
    fn threads_that_may_run_behind_several_caches_are_spread_over_them() {
        let machine = crate::topology::synthetic::parse("node:2 llc:2 core:2").unwrap();
        let cpus = machine.cpus_of_node(1);
        let caches: Vec<_> = (0..4).map(|place| spread(&machine, cpus, place)).collect();
        assert_eq!(caches, [Some(2), Some(3), Some(2), Some(3)]);
        assert_eq!(spread(&machine, &CpuSet::default(), 1), None);
    }

    /// A node's caches make no difference to the accesses that go with pages.
    #[test]
    fn the_groups_of_a_node_share_what_is_known_of_the_node() {
        let sampled = Way {
            bytes: 0.5,
            samples: 8.0,
            by_node: BTreeMap::from([(0, 4.0), (1, 4.0)]),
            ..Way::default()
        };
        let unsampled = Way { bytes: 0.5, ..Way::default() };
        let group = |domain, node, cpus| {
            let shares = vec![(0, 1.0)];
            Group { node, domain, cpus, misses: 5.0, shares, ..Group::default() }
        };
        for (mechanism, way) in [
            (Mechanism::Interleaving, &sampled),
            (Mechanism::CoLocation, &sampled),
            (Mechanism::CoLocation, &unsampled),
            (Mechanism::Offloading, &unsampled),
        ] {
            let moved = Moved { ways: BTreeMap::from([((0, 1), way.clone())]) };
            let goes = |groups: &[Group]| {
                let asked = Asked::by(groups, 2);
                let went = |group: &Group| {
                    let parts = moved.parts(mechanism, &asked, group);
                    let part: f64 = parts.iter().map(|(_, _, part)| part).sum();
                    part * group.cpus * group.misses
                };
                groups.iter().map(went).sum::<f64>()
            };
            let one = goes(&[group(0, 0, 4.0), group(2, 1, 4.0)]);
            let several = goes(&[group(0, 0, 1.0), group(1, 0, 3.0), group(2, 1, 4.0)]);
            assert!(one > 0.0 && (one - several).abs() < 1e-9, "{mechanism:?}: {one} {several}");
        }
    }

    /// The census of a process's memory is older than the pages that a policy wants to move.
    #[test]
    fn a_node_holds_the_pages_that_leave_it_whatever_the_last_census_says() {
        let page = |number: u64, to| PageMove {
            address: number << PAGE_SHIFT,
            shift: PAGE_SHIFT,
            from: 0,
            to,
        };
        let pages: Vec<PageMove> =
            (0..30).map(|number| page(number, 1 + (number % 3) as u16)).collect();
        let mut app = App::new(crate::units::Pid(1), 0..0);
        app.memory = Some(vec![crate::units::Bytes(4096), crate::units::Bytes(0)]);
        let ways = shares_of_memory(&app, &pages);
        assert!(ways.values().all(|share| (share - 1.0 / 3.0).abs() < 1e-12), "{ways:?}");
        app.memory = Some(vec![crate::units::Bytes(300 << PAGE_SHIFT), crate::units::Bytes(0)]);
        let ways = shares_of_memory(&app, &pages);
        assert!(ways.values().all(|share| (share - 1.0 / 30.0).abs() < 1e-12), "{ways:?}");
    }
}
