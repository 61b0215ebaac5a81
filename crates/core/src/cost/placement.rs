//! Where threads run and memory lies, as far as it is priced: the present, or what steps of a plan
//! make of it.

use super::facts::{Facts, Group};
use crate::matrix::Matrix;
use crate::model::{App, Model, Page};
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
    /// An interval that ends with it and has sampled pages; the window itself where none has.
    pub pages: &'a Model,
    /// The machine.
    pub topology: &'a Topology,
    /// What the window tells.
    pub facts: &'a Facts,
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
            for group in groups.iter_mut().filter(|group| nodes.contains(group.node)) {
                moved.copy_to(group);
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

/// A thread runs behind another cache, and asks for the same memory as before.
fn move_thread(
    seen: Seen<'_>,
    groups: &mut Vec<Group>,
    thread: &crate::model::Thread,
    (from, to): (usize, usize),
    node: usize,
) {
    let Some(at) = groups.iter().position(|group| group.domain == from) else { return };
    let alone = seen.facts.thread_alone(thread, &groups[at]);
    let left = groups[at].cpus - alone.cpus;
    if left <= 1e-9 {
        groups.remove(at);
    } else {
        let group = &mut groups[at];
        // What is left asks for what the thread does not.
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

/// What part of the accesses of each node goes to pages that move, by where from and where to.
struct Moved {
    /// By accessing node: parts of all its accesses.
    parts: Vec<BTreeMap<(usize, usize), f64>>,
    /// Nobody sampled these pages: parts of what lies on each node.
    bytes: Matrix<f64>,
    sampled: bool,
}

impl Moved {
    fn of(seen: Seen<'_>, app: &App, pages: &[PageMove]) -> Self {
        let nodes = seen.topology.node_count();
        let mut moved = Self {
            parts: vec![BTreeMap::new(); nodes],
            bytes: Matrix::filled(nodes, 0.0),
            sampled: false,
        };
        for page in pages {
            let size = libm::exp2(f64::from(page.shift));
            moved.bytes[(usize::from(page.from), usize::from(page.to))] += size;
        }
        for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
            let resident = app.memory.as_ref().map_or(0, |memory| memory[from].0).max(1);
            let cell = &mut moved.bytes[(from, to)];
            *cell = (*cell / resident as f64).min(1.0);
        }
        let index = seen.pages.apps.iter().position(|one| one.pid == app.pid);
        if let Some(index) = index {
            moved.sample(seen, index, pages);
        }
        moved
    }

    /// Counts samples of the pages. Pages that were never sampled have accesses too: as many in
    /// proportion as the sampled ones have single samples (Good and Turing's estimate).
    fn sample(&mut self, seen: Seen<'_>, index: usize, pages: &[PageMove]) {
        let nodes = self.parts.len();
        let (mut all, mut once) = (vec![0.0; nodes], 0.0);
        for page in seen.pages.pages.iter().filter(|page| page.app == index) {
            once += f64::from(u8::from(page.total() == 1));
            page.accesses().for_each(|(node, count)| all[node] += f64::from(count));
        }
        let total: f64 = all.iter().sum();
        if total <= 0.0 {
            return;
        }
        // Where each sample found a new page, the share of the memory that was seen tells.
        let covered = 1.0 - once / total;
        let of_page = |page: &PageMove| -> Option<(Page<'_>, (usize, usize))> {
            let seen = seen.pages.pages.find(index, page.address)?;
            Some((seen, (usize::from(page.from), usize::from(page.to))))
        };
        for (page, way) in pages.iter().filter_map(of_page) {
            for (node, count) in page.accesses() {
                *self.parts[node].entry(way).or_default() += covered * f64::from(count) / all[node];
            }
            self.sampled = true;
        }
    }

    fn apply(&self, mechanism: Mechanism, asked: &[f64], group: &mut Group) {
        let was: BTreeMap<usize, f64> = group.shares.iter().copied().collect();
        let mut changes: Vec<(usize, f64)> = Vec::new();
        for (from, to, part) in self.bytes.cells().filter(|(_, _, part)| *part > 0.0) {
            let Some(share) = was.get(&from) else { continue };
            let sampled = self.parts[group.node].get(&(from, to)).copied().unwrap_or(0.0);
            // What all use alike each node asks for; what one node uses, that node alone.
            let own = group.cpus * group.misses;
            let even = match mechanism {
                Mechanism::Interleaving => part * share,
                _ if group.node == to && !self.sampled && own > 0.0 => part * asked[from] / own,
                _ => 0.0,
            };
            let part = sampled.max(even).min(*share);
            changes.extend([(from, -part), (to, part)]);
        }
        let all = group.shares.iter().copied().chain(changes);
        let shares = summed(all).into_iter().filter(|(_, share)| *share > 1e-12);
        group.shares = shares.collect();
    }

    /// Each node reads its own copy.
    fn copy_to(&self, group: &mut Group) {
        let was: BTreeMap<usize, f64> = group.shares.iter().copied().collect();
        let mut changes: Vec<(usize, f64)> = Vec::new();
        let mut from_node: BTreeMap<usize, f64> = BTreeMap::new();
        for ((from, _), part) in &self.parts[group.node] {
            *from_node.entry(*from).or_default() += part;
        }
        for (from, part) in from_node.into_iter().filter(|(from, _)| *from != group.node) {
            let part = part.min(was.get(&from).copied().unwrap_or(0.0));
            changes.extend([(from, -part), (group.node, part)]);
        }
        let all = group.shares.iter().copied().chain(changes);
        group.shares = summed(all).into_iter().filter(|(_, share)| *share > 1e-12).collect();
    }
}
