//! Where threads run and memory lies, as far as it is priced: the present, or what steps of a plan
//! make of it.

use super::facts::{Facts, Group};
use crate::model::{App, Model, Thread};
use crate::plan::{Action, Mechanism, PageMove, Proposal};
use crate::topology::Topology;
use crate::units::Pid;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Where some processes are; all others are where they are now.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Groups of a process, by its place among the facts, ascending.
    pub(super) placed: Vec<(usize, Vec<Group>)>,
}

/// A window and what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The window.
    pub model: &'a Model,
    /// Sampled pages of it, or of an interval that ends with it and has more.
    pub pages: &'a Sampled<'a>,
    /// The machine.
    pub topology: &'a Topology,
    /// What the window tells.
    pub facts: &'a Facts,
}

/// Sampled pages, with sums over those of each process.
#[derive(Debug, Clone)]
pub struct Sampled<'a> {
    model: &'a Model,
    /// By process.
    of: Vec<SampledApp>,
}

/// Samples of one process.
#[derive(Debug, Clone, Default)]
struct SampledApp {
    all: f64,
    /// Of pages that were sampled once.
    once: f64,
    /// By the node that holds the page.
    of_node: Vec<f64>,
}

impl<'a> Sampled<'a> {
    /// Sums up the pages of a model, in one pass.
    #[must_use]
    pub fn of(model: &'a Model, topology: &Topology) -> Self {
        let mut sampled = Self { model, of: vec![SampledApp::default(); model.apps.len()] };
        for page in model.pages.iter() {
            let Some(of_app) = sampled.of.get_mut(page.app) else { continue };
            let total = page.total();
            of_app.all += f64::from(total);
            of_app.once += f64::from(u8::from(total == 1));
            let Some(home) = page.home else { continue };
            of_app.of_node.resize(topology.node_count(), 0.0);
            of_app.of_node[home] += f64::from(total);
        }
        for of_app in &mut sampled.of {
            of_app.of_node.resize(topology.node_count(), 0.0);
        }
        sampled
    }
}

impl Placement {
    /// Nothing is placed otherwise than now.
    #[must_use]
    pub fn unchanged() -> Self {
        Self { placed: Vec::new() }
    }

    /// Processes that it places.
    pub fn pids<'a>(&'a self, facts: &'a Facts) -> impl Iterator<Item = Pid> + 'a {
        self.placed.iter().map(|(place, _)| facts.processes[*place].pid)
    }

    /// This placement after some steps, in their order. Steps on processes of which nothing is
    /// known are left out.
    #[must_use]
    pub fn after(mut self, seen: Seen<'_>, steps: &[&Proposal]) -> Self {
        for step in steps {
            let Some(pid) = step.action.pid().filter(|_| !is_sampling(step)) else { continue };
            let (Some(place), Some(app)) = (seen.facts.place(pid), seen.model.app(pid)) else {
                continue;
            };
            let at = match self.placed.binary_search_by_key(&place, |(place, _)| *place) {
                Ok(at) => at,
                Err(at) => {
                    let now = seen.facts.processes[place].groups.clone();
                    self.placed.insert(at, (place, now));
                    at
                }
            };
            apply(seen, app, &mut self.placed[at].1, &step.action);
        }
        self
    }

    /// This placement with the processes of another where they are now, as far as it has not placed
    /// them: to compare both.
    #[must_use]
    pub(super) fn completed(mut self, facts: &Facts, other: &Self) -> Self {
        for (place, _) in &other.placed {
            if let Err(at) = self.placed.binary_search_by_key(place, |(place, _)| *place) {
                self.placed.insert(at, (*place, facts.processes[*place].groups.clone()));
            }
        }
        self
    }

    /// The process with its memory spread evenly over these nodes.
    #[must_use]
    pub fn interleaved(mut self, facts: &Facts, pid: Pid, nodes: &[usize]) -> Self {
        let shares: Vec<(usize, f64)> =
            nodes.iter().map(|node| (*node, 1.0 / nodes.len().max(1) as f64)).collect();
        self.change(facts, pid, |group| {
            group.shares.clone_from(&shares);
        });
        self
    }

    /// The process with all memory that a thread asks for on the thread's own node.
    #[must_use]
    pub fn local(mut self, facts: &Facts, pid: Pid, topology: &Topology) -> Self {
        self.change(facts, pid, |group| {
            group.shares = vec![(topology.nearest_memory(group.node), 1.0)];
        });
        self
    }

    fn change(&mut self, facts: &Facts, pid: Pid, mut change: impl FnMut(&mut Group)) {
        let Some(place) = facts.place(pid) else { return };
        if let Err(at) = self.placed.binary_search_by_key(&place, |(place, _)| *place) {
            self.placed.insert(at, (place, facts.processes[place].groups.clone()));
        }
        let of = self.placed.iter_mut().filter(|(other, _)| *other == place);
        of.flat_map(|(_, groups)| groups)
            .filter(|group| !group.shares.is_empty())
            .for_each(&mut change);
    }
}

fn is_sampling(step: &Proposal) -> bool {
    matches!(step.action, Action::SetSampling { .. })
}

fn apply(seen: Seen<'_>, app: &App, groups: &mut Vec<Group>, action: &Action) {
    match action {
        Action::MovePages { mechanism, pages, .. } => {
            let moved = Moved::of(seen, app, pages);
            let asked = asked(groups, seen.topology.node_count());
            groups.iter_mut().for_each(|group| moved.apply(*mechanism, &asked, group));
        }
        Action::Replicate { pages, .. } => {
            let moved = Moved::of(seen, app, pages);
            let nodes = seen.topology.controllers();
            let asked = asked(groups, seen.topology.node_count());
            for group in groups.iter_mut().filter(|group| nodes.contains(group.node)) {
                moved.copy_to(&asked, group);
            }
        }
        Action::MoveProcessMemory { nodes, .. } => {
            let image = |from: usize| nodes.iter().find(|step| step.from == from).map(|to| to.to);
            for group in groups {
                let shares =
                    group.shares.iter().map(|(h, share)| (image(*h).unwrap_or(*h), *share));
                group.shares = summed(shares);
            }
        }
        Action::SetAffinity { tid, cpus, via, .. } => {
            let threads = seen.model.threads_of(app);
            let Some(thread) = threads.iter().find(|one| one.tid == *tid) else { return };
            let stays = via.is_none() && cpus.contains(thread.cpu);
            let target = via.or_else(|| cpus.iter().next()).filter(|_| !stays);
            let Some(target) = target.filter(|_| thread.cpu_share > 0.0) else { return };
            let (from, to) =
                (seen.topology.domain_of_cpu(thread.cpu), seen.topology.domain_of_cpu(target));
            if from != to {
                move_thread(seen, groups, thread, (from, to), seen.topology.node_of_cpu(target));
            }
        }
        Action::Unreplicate { .. } | Action::SetSampling { .. } => {}
    }
}

/// Misses in a µs that each node's memory answers.
fn asked(groups: &[Group], nodes: usize) -> Vec<f64> {
    let mut asked = vec![0.0; nodes];
    for group in groups {
        for (holding, share) in &group.shares {
            asked[*holding] += group.cpus * group.misses * share;
        }
    }
    asked
}

fn summed(shares: impl Iterator<Item = (usize, f64)>) -> Vec<(usize, f64)> {
    let mut sums: BTreeMap<usize, f64> = BTreeMap::new();
    shares.for_each(|(node, share)| *sums.entry(node).or_default() += share);
    sums.into_iter().collect()
}

/// A thread exchanges lines with the threads that it joins, and leaves those beside it. Its
/// partners are not known: assumed are threads elsewhere, in proportion to what these exchange with
/// others. Gives the share of its lines that are near now and were not.
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

/// A thread runs behind another cache, and asks for the same memory as before.
fn move_thread(
    seen: Seen<'_>,
    groups: &mut Vec<Group>,
    thread: &Thread,
    (from, to): (usize, usize),
    node: usize,
) {
    let Some(at) = groups.iter().position(|group| group.domain == from) else { return };
    let alone = seen.facts.thread_alone(thread, &groups[at]);
    let mut alone = alone;
    let (own_node, share) = (groups[at].node, meet(&mut alone, groups, to));
    if share > 0.0 {
        // The lines of the thread are near for the groups that it joins.
        let lines = alone.lines * alone.cpus * share;
        for group in groups.iter_mut().filter(|group| group.domain == to && group.lines > 0.0) {
            let less = lines / (group.lines * group.cpus);
            for (_, far) in group.far.iter_mut().filter(|(owner, _)| *owner == own_node) {
                *far = (*far - less).max(0.0);
            }
        }
    }
    let left = groups[at].cpus - alone.cpus;
    if left <= 1e-9 {
        groups.remove(at);
    } else {
        let group = &mut groups[at];
        // The rest of the group asks for the group's accesses without the thread's.
        let both = group.shares.iter().map(|(node, share)| (*node, share * group.cpus));
        let less = alone.shares.iter().map(|(node, share)| (*node, -share * alone.cpus));
        let rest = summed(both.chain(less)).into_iter().map(|(node, sum)| (node, sum.max(0.0)));
        let rest: Vec<(usize, f64)> = rest.filter(|(_, sum)| *sum > 0.0).collect();
        let all: f64 = rest.iter().map(|(_, sum)| sum).sum();
        if all > 0.0 {
            group.shares = rest.into_iter().map(|(node, sum)| (node, sum / all)).collect();
        }
        group.cpus = left;
        group.wanted = (group.wanted - alone.wanted).max(left);
        group.threads = (group.threads - 1.0).max(1.0);
    }
    groups.push(Group { node, domain: to, ..alone });
}

/// Pages that move, by source and target node. For each pair: their part of the accesses to the
/// source node, and the nodes of the accessing threads.
struct Moved {
    ways: BTreeMap<(usize, usize), Way>,
}

/// Pages that go one way.
#[derive(Default)]
struct Way {
    /// Part of what lies on the first node.
    bytes: f64,
    /// Samples of these pages by accessing node.
    by_node: BTreeMap<usize, f64>,
    /// Part of the accesses to the first node that go to these pages, as far as samples tell.
    sampled: f64,
}

impl Moved {
    fn of(seen: Seen<'_>, app: &App, pages: &[PageMove]) -> Self {
        let mut moved = Self { ways: BTreeMap::new() };
        for page in pages {
            let way = moved.ways.entry((page.from.into(), page.to.into())).or_default();
            way.bytes += libm::exp2(f64::from(page.shift));
        }
        for ((from, _), way) in &mut moved.ways {
            let resident = app.memory.as_ref().map_or(0, |memory| memory[*from].0).max(1);
            way.bytes = (way.bytes / resident as f64).min(1.0);
        }
        let apps = &seen.pages.model.apps;
        if let Ok(index) = apps.binary_search_by_key(&app.pid, |one| one.pid) {
            moved.sample(seen.pages, index, pages);
        }
        moved
    }

    /// Counts samples of the pages. Pages that were never sampled have accesses too: as many, in
    /// proportion, as sampled ones have single samples (Good and Turing's estimate).
    fn sample(&mut self, sampled: &Sampled<'_>, index: usize, pages: &[PageMove]) {
        let Some(of_app) = sampled.of.get(index).filter(|of_app| of_app.all > 0.0) else { return };
        let covered = 1.0 - of_app.once / of_app.all;
        for page in pages {
            let Some(found) = sampled.model.pages.find(index, page.address) else { continue };
            let from = usize::from(page.from);
            let Some(way) = self.ways.get_mut(&(from, page.to.into())) else { continue };
            for (node, count) in found.accesses() {
                *way.by_node.entry(node).or_default() += f64::from(count);
                way.sampled += covered * f64::from(count) / of_app.of_node[from].max(1.0);
            }
        }
    }

    /// Parts of all accesses of a group that go another way: `(from, to, part)`.
    fn parts(
        &self,
        mechanism: Mechanism,
        asked: &[f64],
        group: &Group,
    ) -> Vec<(usize, usize, f64)> {
        let own = group.cpus * group.misses;
        let part = |((from, to), way): (&(usize, usize), &Way)| {
            let share = group.shares.iter().find(|(node, _)| node == from)?.1;
            let samples: f64 = way.by_node.values().sum();
            // The group's part of the accesses to these pages.
            let users = match (samples > 0.0, mechanism) {
                (true, _) => way.by_node.get(&group.node).copied().unwrap_or(0.0) / samples,
                (false, Mechanism::Interleaving) => share * own / asked[*from].max(1e-12),
                (false, _) => f64::from(u8::from(group.node == *to)),
            };
            let moved = way.bytes.max(way.sampled.min(1.0)) * asked[*from] * users;
            let part = if own > 0.0 { (moved / own).min(share) } else { 0.0 };
            (part > 0.0).then_some((*from, *to, part))
        };
        self.ways.iter().filter_map(part).collect()
    }

    fn apply(&self, mechanism: Mechanism, asked: &[f64], group: &mut Group) {
        let mut changes = Vec::new();
        for (from, to, part) in self.parts(mechanism, asked, group) {
            changes.extend([(from, -part), (to, part)]);
        }
        group.shares = changed(&group.shares, changes);
    }

    /// Each node reads its own copy.
    fn copy_to(&self, asked: &[f64], group: &mut Group) {
        let mut changes = Vec::new();
        for (from, _, part) in self.parts(Mechanism::Interleaving, asked, group) {
            changes.extend([(from, -part), (group.node, part)]);
        }
        group.shares = changed(&group.shares, changes);
    }
}

/// Shares after some changes, none below zero.
fn changed(shares: &[(usize, f64)], changes: Vec<(usize, f64)>) -> Vec<(usize, f64)> {
    let all = summed(shares.iter().copied().chain(changes));
    all.into_iter().filter(|(_, share)| *share > 1e-12).collect()
}
