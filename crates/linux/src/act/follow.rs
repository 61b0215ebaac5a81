//! Checks the masks of all threads between two steps, and widens masks that new threads inherited
//! from Rondpoint's changes.
//!
//! A new thread or process inherits its creator's mask. If Rondpoint gave the creator that mask,
//! the new thread gets the mask that it would have had without Rondpoint. A policy may place it
//! later. A thread that has chosen a mask of its own is exempt. A whole process that was started
//! under a mask (`taskset`, `numactl`) may be moved inside that mask. A single thread whose mask
//! differs from the rest of its process is exempt.

use std::collections::BTreeMap;

use rondpoint_core::observation::{Exemption, Observation, ProcessObservation, ThreadObservation};
use rondpoint_core::{CpuSet, Nanos, Pid, Tid, Topology};

use super::Identity;
use super::answers::Answers;
use super::masks::{Masks, Standing};
use super::threads::{disinherit, find, is_gone, standing};
use crate::cpuset::{self, Cpusets};
use crate::ledger_file::Entry;
use crate::root::Root;
use crate::syscall::affinity;
use crate::syscall::time::since_boot_ns;

/// Results of a look at masks that are not part of the observation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Followed {
    /// Entries for the ledger.
    pub entries: Vec<Entry>,
    /// Threads that the program itself has bound, with their masks.
    pub(super) bound: Vec<(Identity, Tid, CpuSet)>,
    /// Number of threads that had inherited a mask of ours and got their creator's original one.
    pub heirs: u64,
    /// Number of threads whose masks other processes changed after us.
    pub left_alone: u64,
}

/// The present or last cpuset of the tree's first process. Another manager has put a process into
/// any other cpuset. The path is read in each look, because it changes when the controller is
/// switched on for a group further down.
#[derive(Debug, Clone)]
pub(super) struct Home {
    pub(super) first: Pid,
    path: Option<String>,
}

/// One look at the masks of all observed threads.
pub(super) struct Look<'a> {
    pub(super) root: &'a Root,
    pub(super) topology: &'a Topology,
    pub(super) masks: &'a mut Masks,
    pub(super) home: &'a Home,
    pub(super) cpusets: &'a mut Cpusets,
    pub(super) answers: &'a mut Answers,
    pub(super) found: Followed,
}

impl Home {
    pub(super) fn of(root: &Root, first: Pid, cpusets: &mut Cpusets) -> Self {
        let mut home = Self { first, path: None };
        home.look_up(root, cpusets);
        home
    }

    pub(super) fn look_up(&mut self, root: &Root, cpusets: &mut Cpusets) {
        let now = cpusets.path_of(root, self.first).ok().flatten();
        self.path = now.or(self.path.take());
    }
}

impl Look<'_> {
    /// Sets each thread's allowed CPUs, and marks processes and threads as exempt for their mask or
    /// cpuset.
    pub(super) fn over(mut self, observation: &mut Observation) -> Followed {
        let mut indices = Indices::new(self.topology);
        for process in &mut observation.processes {
            let identity = Identity { pid: process.pid, started: process.started };
            if let Some(bound) = self.answers.repeat(process) {
                self.found.bound.extend(bound);
                continue;
            }
            if self.masks.see(identity) {
                let (pid, started) = (identity.pid.0, identity.started.0);
                self.found.entries.push(Entry::Member { pid, started });
            }
            let path = match process.pid == self.home.first {
                true => self.home.path.clone(),
                false => self.cpusets.path_of(self.root, process.pid).ok().flatten(),
            };
            let is_elsewhere = self.is_elsewhere(path.as_deref());
            if is_elsewhere {
                process.exempt = process.exempt.or(Some(Exemption::OtherManager));
            }
            let bound_before = self.found.bound.len();
            let cpuset = path
                .filter(|_| !self.masks.is_empty())
                .and_then(|path| cpuset::cpus(self.root, &path));
            self.over_process(process, identity, cpuset.as_ref(), &mut indices);
            let bound = &self.found.bound[bound_before..];
            self.answers.keep(process, observation.at, is_elsewhere, bound);
        }
        self.masks.forget_gone(observation.at, |task| is_gone(*task));
        // One that cannot be looked at may live.
        let lives = |process: &Identity| process.lives(self.root).unwrap_or(true);
        self.masks.drop_ended_members(lives);
        self.found
    }

    fn is_elsewhere(&self, path: Option<&str>) -> bool {
        path.zip(self.home.path.as_deref()).is_some_and(|(path, home)| path != home)
    }

    fn over_process(
        &mut self,
        process: &mut ProcessObservation,
        identity: Identity,
        cpuset: Option<&CpuSet>,
        indices: &mut Indices,
    ) {
        let mut own = Vec::with_capacity(process.threads.len());
        for one in &process.threads {
            own.push(self.without_us(one, identity, cpuset));
        }
        // The widest mask is that of the process's start.
        let base = own.iter().flatten().fold(CpuSet::new(), |all, mask| all.union(mask));
        for (one, mask) in process.threads.iter_mut().zip(own) {
            let Some(mask) = mask else { continue };
            if mask != base || self.masks.has_chosen(identity, one.tid) {
                one.exempt = one.exempt.or(Some(Exemption::OwnAffinity));
                self.found.bound.push((identity, one.tid, mask.clone()));
            }
            one.allowed = indices.of(&mask);
        }
    }

    /// The mask that a thread would have without our changes; `None` if it has ended.
    fn without_us(
        &mut self,
        one: &ThreadObservation,
        process: Identity,
        cpuset: Option<&CpuSet>,
    ) -> Option<CpuSet> {
        let now = affinity::get(i32::try_from(one.tid.0).ok()?).ok()?;
        let known = self.masks.task(process, one.tid).copied();
        if known.is_none() && !self.masks.was_given(&now, cpuset) {
            return Some(now);
        }
        let task = match known {
            Some(task) => task,
            None => find(self.root, process, one.tid).ok()??,
        };
        match standing(self.masks, &task, &now, cpuset) {
            Standing::Untouched => Some(now),
            Standing::Ours(original) => {
                self.masks.trust(&task);
                Some(original.within(cpuset))
            }
            // While the cpuset makes no difference between the two masks, there is nothing to do.
            Standing::Heir(original) if original.within(cpuset) == now => Some(now),
            Standing::Heir(original) if disinherit(task, &original) => {
                self.found.heirs += 1;
                // Masks that a thread had before execve(2) are none of the new program.
                self.masks.let_go(&task, Nanos(since_boot_ns()));
                Some(original.within(cpuset))
            }
            Standing::Heir(_) => Some(now),
            Standing::Changed(_) if !self.masks.is_confirmed(task) => Some(now),
            Standing::Changed(_) => {
                self.found.left_alone += 1;
                self.masks.let_go(&task, Nanos(since_boot_ns()));
                self.masks.let_choose(task);
                self.found.entries.push(task.entry());
                Some(now)
            }
        }
    }
}

/// Conversion of masks from the kernel's CPU numbers to the topology's, with a cache because most
/// threads have one of few masks.
struct Indices {
    by_kernel: BTreeMap<usize, usize>,
    known: BTreeMap<CpuSet, CpuSet>,
}

impl Indices {
    fn new(topology: &Topology) -> Self {
        let number = |cpu| (topology.kernel_cpu(cpu) as usize, cpu);
        let by_kernel = (0..topology.cpu_count()).map(number).collect();
        Self { by_kernel, known: BTreeMap::new() }
    }

    fn of(&mut self, mask: &CpuSet) -> CpuSet {
        if let Some(known) = self.known.get(mask) {
            return known.clone();
        }
        let indices: CpuSet =
            mask.iter().filter_map(|cpu| self.by_kernel.get(&cpu).copied()).collect();
        self.known.insert(mask.clone(), indices.clone());
        indices
    }
}
