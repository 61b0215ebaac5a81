//! Where threads run and memory lies, as far as it is priced: the present, or what steps of a plan
//! make of it.

use super::effect::Effect;
use super::facts::Facts;
use super::group::{Group, summed};
use super::seen::Seen;
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
    /// Threads behind another cache than now, by place in the model, with that cache.
    pub(super) moved: BTreeMap<usize, usize>,
}

impl Placement {
    /// Nothing is placed otherwise than now.
    #[must_use]
    pub fn unchanged() -> Self {
        Self::at(Vec::new())
    }

    /// These groups, and no thread of them behind another cache than now.
    pub(super) fn at(placed: Vec<(usize, Vec<Group>)>) -> Self {
        Self { placed, moved: BTreeMap::new() }
    }

    /// Processes that it places.
    pub fn pids<'a>(&'a self, facts: &'a Facts) -> impl Iterator<Item = Pid> + 'a {
        self.placed.iter().map(|(place, _)| facts.processes[*place].pid)
    }

    /// This placement after some steps.
    #[must_use]
    pub fn after(mut self, seen: Seen<'_>, effect: &Effect) -> Self {
        for (place, alteration) in &effect.alterations {
            let at = match self.placed.binary_search_by_key(place, |(place, _)| *place) {
                Ok(at) => at,
                Err(at) => {
                    let now = seen.facts.processes[*place].groups.clone();
                    self.placed.insert(at, (*place, now));
                    at
                }
            };
            if let Some(alteration) = alteration {
                alteration.apply(seen, &mut self.placed[at].1, &mut self.moved);
            }
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

    /// The process with this share of its accesses to each node on the thread's own node, as copies
    /// of what it reads have it.
    #[must_use]
    pub fn partly_local(
        mut self,
        facts: &Facts,
        pid: Pid,
        topology: &Topology,
        share: f64,
    ) -> Self {
        self.change(facts, pid, |group| {
            let own = (topology.nearest_memory(group.node), share);
            let rest = group.shares.iter().map(|(node, all)| (*node, all * (1.0 - share)));
            group.shares = summed(rest.chain([own]));
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
