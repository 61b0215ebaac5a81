//! The processes that belong to the trees at one look.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use rondpoint_core::{Pid, Tid};

use super::still::Still;
use super::turns::Turns;
use super::{BETWEEN_LISTS, Births, PARENTS_HOLD, Tasks, read, started};
use crate::LinuxError;
use crate::observe::REST;
use crate::parse::stat;
use crate::root;

/// Members of the trees at one look.
pub(super) struct Members {
    /// The threads of each process that may have run.
    pub(super) awake: BTreeMap<Pid, Vec<Tid>>,
    /// Known processes that have hardly run since their files were read.
    pub(super) still: BTreeSet<Pid>,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.awake.len() + self.still.len()
    }

    pub(super) fn contains(&self, pid: Pid) -> bool {
        self.awake.contains_key(&pid) || self.still.contains(&pid)
    }
}

impl Tasks {
    /// All present processes of the tree, each with its threads. They are the known ones, the new
    /// ones by records, and children of processes that may have some without a record.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn members(&mut self, births: Births<'_>) -> Result<BTreeMap<Pid, Vec<Tid>>, LinuxError> {
        Ok(self.members_but(births, &Still::default(), false)?.awake)
    }

    /// As [`Tasks::members`], with all lists of children where it is time for that. Reading them
    /// takes at most 0.2 % of the time. [`Tasks::tell_parents`] replaces the lists.
    pub(super) fn members_so_far(
        &mut self,
        births: Births<'_>,
        still: &Still,
    ) -> Result<Members, LinuxError> {
        let begun = Instant::now();
        if begun < self.listed_next {
            return self.members_but(births, still, false);
        }
        let found = self.members_but(Births { all: false, ..births }, still, true)?;
        self.listed_next = Instant::now() + BETWEEN_LISTS.max(REST * begun.elapsed());
        Ok(found)
    }

    /// As [`Tasks::members`]. Processes in `still` exist. They are taken to have no new children,
    /// unless they ran and records are missing, or `anew` asks for every list.
    fn members_but(
        &mut self,
        births: Births<'_>,
        still: &Still,
        anew: bool,
    ) -> Result<Members, LinuxError> {
        let mut found = Members { awake: BTreeMap::new(), still: BTreeSet::new() };
        // The parent of a process that was too young may have ended. Its root is still known.
        let known = self.processes.keys().chain(self.family.loose()).copied();
        let mut born = births.known.to_vec();
        born.extend(self.parents_of_loose()?);
        let family = self.family.begin(known, &born);
        // The caller finds children of resting processes that no record tells of. The next scan is
        // too late for those of a process that runs: it may end before, with heirs of its masks.
        let told_at = self.parents_told.filter(|_| !anew);
        let are_told = told_at.is_some_and(|at| at.elapsed() < PARENTS_HOLD);
        let mut turns = Turns::new(&family, |pid| self.processes.contains_key(&pid));
        let mut origins = BTreeMap::new();
        while let Some((pid, of)) = turns.next() {
            if found.contains(pid) || self.family.is_left(pid) || self.is_another(pid)? {
                continue;
            }
            let is_known = self.processes.contains_key(&pid);
            let rests = is_known && still.all.contains(&pid);
            let has_told = is_known && (births.all || are_told && rests);
            let is_silent = rests && !anew && (has_told || !still.ran.contains(&pid));
            let threads = if is_silent { Vec::new() } else { self.threads_of(pid)? };
            if threads.is_empty() && !is_silent {
                continue;
            }
            let is_still = is_silent || (rests && self.has_threads(pid, &threads));
            if found.len() >= self.most_processes {
                self.crowded.insert(of, Instant::now());
                turns.refuse();
                continue;
            }
            origins.insert(pid, of);
            let children = match has_told || is_silent {
                true => Vec::new(),
                false => self.children.of(&self.root, pid, &threads)?,
            };
            // Those of the family wait in their own trees.
            turns.admit(children.into_iter().filter(|child| !family.contains_key(child)));
            match is_still {
                true => drop(found.still.insert(pid)),
                false => drop(found.awake.insert(pid, threads)),
            }
        }
        self.family.settle(origins);
        Ok(found)
    }

    /// Tells of `(parent, child)` of processes, which may be long alive. The next look follows each
    /// that is missing in a tree, if its parent is still the same.
    pub fn tell_parents(&mut self, pairs: &[(Pid, Pid)]) {
        let known = self.processes.keys().chain(self.family.loose()).copied();
        let family = self.family.begin(known, pairs);
        let is_missing = |pid: &Pid| {
            !self.processes.contains_key(pid)
                && !self.family.is_root(*pid)
                && !self.family.is_left(*pid)
                && !self.family.loose().contains(pid)
                && !self.refused.contains_key(pid)
        };
        let missing: Vec<Pid> = family.into_keys().filter(is_missing).collect();
        missing.into_iter().for_each(|pid| self.family.loosen(pid));
        let now = Instant::now();
        (self.parents_told, self.listed_next) = (Some(now), now + BETWEEN_LISTS);
    }

    /// `(parent, child)` of each process that is not followed yet and may be of a tree.
    fn parents_of_loose(&self) -> Result<Vec<(Pid, Pid)>, LinuxError> {
        let mut pairs = Vec::new();
        for pid in self.family.loose() {
            if let Some(found) = read(&self.path(*pid, "stat"), stat::parse)? {
                pairs.push((Pid(found.parent), *pid));
            }
        }
        Ok(pairs)
    }

    /// Whether these are the threads of a process at the last look.
    fn has_threads(&self, pid: Pid, threads: &[Tid]) -> bool {
        self.processes.get(&pid).is_some_and(|process| {
            process.threads.len() == threads.len()
                && threads.iter().all(|tid| process.threads.contains_key(tid))
        })
    }

    /// Whether the number of a root that is not known yet belongs to another process now.
    fn is_another(&self, pid: Pid) -> Result<bool, LinuxError> {
        if self.processes.contains_key(&pid) || !self.family.names_start(pid) {
            return Ok(false);
        }
        let found = read(&self.path(pid, "stat"), stat::parse)?;
        Ok(found.is_none_or(|found| self.family.is_another(pid, started(&found))))
    }

    /// The threads of a process; none if it has ended.
    ///
    /// # Errors
    /// Any error of the kernel except absence.
    pub fn threads_of(&self, pid: Pid) -> Result<Vec<Tid>, LinuxError> {
        let names = root::list(&self.path(pid, "task"))?;
        Ok(names.iter().filter_map(|name| name.parse().ok().map(Tid)).collect())
    }
}
