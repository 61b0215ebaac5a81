//! The places of `[manage] most`. If all are taken, the tree that was idle longest gives its
//! place to a busy process.
//!
//! A place does not go back and forth. A process takes one only if it is at least twice as busy as
//! an idle tree. A tree gives one only after many looks at which it was idle.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use anyhow::{Result, bail};
use rondpoint_core::Pid;
use rondpoint_linux::act::Identity;

use super::super::census::Known;
use super::{Left, Station};
use crate::live::trees::Trees;

/// CPUs that a process at least uses to be busy, where `[manage] min_cpus` is below (our choice):
/// twice what the census calls idle.
const BUSY: f64 = 0.1;
/// Looks for processes in a row at which a tree was idle before it gives its place: a minute at the
/// usual rate (our choice).
const IDLE_LOOKS: u32 = 12;

impl Station {
    /// CPUs from which a process may take the place of an idle tree.
    fn busy(&self) -> f64 {
        self.parts.rules.min_cpus.max(BUSY)
    }

    /// Whether a tree that wants so many CPUs is idle.
    fn is_idle(&self, cpus: f64) -> bool {
        cpus < self.busy() / 2.0
    }

    /// Notes at how many looks in a row each tree was idle. Once for each look.
    pub(super) fn count_idle_looks(&mut self) {
        let mut used: BTreeMap<Pid, f64> = BTreeMap::new();
        for (pid, root) in self.members() {
            *used.entry(root).or_default() += self.wanted_cpus(pid);
        }
        let idle: Vec<Pid> = used
            .into_iter()
            .filter(|(_, cpus)| self.is_idle(*cpus))
            .map(|(root, _)| root)
            .collect();
        for (pid, one) in &mut self.roots {
            let is_idle = idle.binary_search(pid).is_ok();
            one.idle_looks = if is_idle { one.idle_looks.saturating_add(1) } else { 0 };
        }
    }

    /// Each process of a tree, with the root.
    fn members(&self) -> BTreeMap<Pid, Pid> {
        let origins = self.parts.observer.origins().iter().map(|(pid, root)| (*pid, *root));
        let all = origins.chain(self.roots.keys().map(|root| (*root, *root)));
        all.filter(|(_, root)| self.roots.contains_key(root)).collect()
    }

    /// CPUs that a process uses or waits for, as the rules have it, with those of the children that
    /// ended meanwhile. A process that is not measured yet counts as busy.
    fn wanted_cpus(&self, pid: Pid) -> f64 {
        let known = self.census.get(pid);
        let own = |known: &Known| known.facts.wanted_cpus.unwrap_or(f64::INFINITY);
        known.map_or(0.0, |known| own(known) + known.reaped_cpus)
    }

    /// The tree that gives its place to a process that wants so many CPUs; `None` where a place is
    /// free. `asker`: the user without privilege that asked for the process, who takes no place
    /// from others.
    ///
    /// # Errors
    /// All places are taken, and the process is not busy or no tree was idle for long.
    pub(super) fn giver(&mut self, cpus: f64, asker: Option<u32>) -> Result<Option<Pid>> {
        let most = self.parts.config.most_trees();
        if self.roots.len() < most {
            return Ok(None);
        }
        if asker.is_none() && cpus >= self.busy() {
            let members = self.members();
            for root in self.idle_for_long(&members) {
                let of_root = members.iter().filter(|(_, of)| **of == root).map(|(pid, _)| *pid);
                if self.is_idle_now(of_root) {
                    return Ok(Some(root));
                }
                self.roots.get_mut(&root).into_iter().for_each(|one| one.idle_looks = 0);
            }
        }
        bail!("{most} processes are managed already ([manage] most)");
    }

    /// Trees that may give their place, the one that has been idle longest first. None that was
    /// asked for, and none in a trial.
    fn idle_for_long(&self, members: &BTreeMap<Pid, Pid>) -> Vec<Pid> {
        let board = self.parts.board.borrow();
        let is_held = |pid: &Pid| self.requests.get(*pid).is_some() || board.is_on_trial(*pid);
        let held = members.iter().filter(|(pid, _)| is_held(pid)).map(|(_, root)| *root);
        let held: Vec<Pid> = held.collect();
        let idle = self.roots.iter().filter(|(_, one)| one.idle_looks >= IDLE_LOOKS);
        let mut idle: Vec<(Reverse<u32>, Pid)> = idle
            .filter(|(pid, _)| !held.contains(pid))
            .map(|(pid, one)| (Reverse(one.idle_looks), *pid))
            .collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, pid)| pid).collect()
    }

    /// The census reads idle processes seldom: they are read again.
    fn is_idle_now(&mut self, pids: impl Iterator<Item = Pid>) -> bool {
        let mut cpus = 0.0;
        for pid in pids {
            let _ = self.census.ask(&self.from, pid, self.pace());
            cpus += self.wanted_cpus(pid);
        }
        self.is_idle(cpus)
    }

    /// Ends a tree, whose place `taker` has from now on. Returns what becomes of its root.
    pub(super) fn give_place(
        &mut self,
        trees: &mut Trees,
        root: Pid,
        taker: Identity,
    ) -> Option<Left> {
        let process = self.roots.get(&root)?.process;
        let taker = taker.pid;
        let why = format!("it was idle and gave its place to process {taker} ([manage] most)");
        self.drop_tree(trees, root, &why);
        Some(Left { process, why, is_of_tree: false })
    }

    /// The processes that gave their places while others have these, with the reasons.
    pub(super) fn those_without_place(&self) -> BTreeMap<Identity, String> {
        let gave = self.roots.values().filter_map(|one| one.had_place.as_ref());
        gave.map(|one| (one.process, one.why.clone())).collect()
    }

    /// The processes that gave their places are shown as left, unless another tree has them.
    pub(super) fn leave_those_without_place(&mut self) {
        let gave: Vec<Left> = self.roots.values().filter_map(|one| one.had_place.clone()).collect();
        for one in gave {
            let pid = one.process.pid;
            let is_known = self.census.get(pid).is_some_and(|known| known.identity == one.process);
            if is_known && !self.is_in_tree(pid) {
                self.left.entry(pid).or_insert(one);
            }
        }
    }
}
