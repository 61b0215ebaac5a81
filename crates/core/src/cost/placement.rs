//! A placement: the nodes of threads and memory, at present or after steps of a plan.

use super::effect::Effect;
use super::facts::Facts;
use super::group::{Group, summed};
use super::seen::Seen;
use crate::topology::Topology;
use crate::units::Pid;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// The placement of some processes. All others are at their present places.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Groups of each placed process, ascending by the place of the process among the facts.
    pub(super) placed: Vec<(usize, Vec<Group>)>,
    /// Threads that moved behind another cache, by place in the model, with that cache.
    pub(super) moved: BTreeMap<usize, usize>,
}

impl Placement {
    /// The present placement.
    #[must_use]
    pub fn unchanged() -> Self {
        Self::at(Vec::new())
    }

    /// A placement with these groups, in which no thread moved.
    pub(super) fn at(placed: Vec<(usize, Vec<Group>)>) -> Self {
        Self { placed, moved: BTreeMap::new() }
    }

    /// The processes of this placement.
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

    /// This placement, with the missing processes of `other` added at their present places. Used to
    /// compare both.
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

    /// The process with the memory of each thread on the thread's own node.
    #[must_use]
    pub fn local(mut self, facts: &Facts, pid: Pid, topology: &Topology) -> Self {
        self.change(facts, pid, |group| {
            group.shares = vec![(topology.nearest_memory(group.node), 1.0)];
        });
        self
    }

    /// The process with this share of its accesses made local, as by copies of the data that it
    /// reads.
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
