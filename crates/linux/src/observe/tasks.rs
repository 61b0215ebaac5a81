//! The processes and threads of a program's tree, followed through `/proc`.
//!
//! A process enters by its number, by a fork record or as a child of a known process. It leaves
//! when it has gone. Processes that vanish while they are read are normal.

mod allotment;
mod children;
mod doze;
mod family;
mod members;
mod memory;
mod newborn;
mod pausing;
mod place;
mod shares;
mod still;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rondpoint_core::observation::{ProcessObservation, ThreadObservation};
use rondpoint_core::{Bytes, CpuSet, Nanos, NodeSet, Pid, Tid, Topology};

use self::allotment::Places;
use self::children::Children;
use self::doze::Doze;
use self::family::Family;
use self::newborn::Newborn;
use super::copies::Copies;
use super::maps::{self, Maps};
use super::pause::Paused;
use super::shared::Shared;
use super::threads::{ThreadCounters, ThreadPlan};
use crate::LinuxError;
use crate::act::copies::is_offered;
use crate::kept::Kept;
use crate::parse::stat::TaskStat;
use crate::parse::{ParseError, schedstat, stat, status};
use crate::root::{self, Root};
use crate::syscall::memory::page_bytes;
use crate::syscall::process::ticks_per_second;

/// Most processes that are followed (our choice), shared by all trees. Further processes are still
/// in the tree's counts.
pub const MAX_PROCESSES: usize = 1024;
/// Most threads that are followed (our choice), shared by all trees.
pub const MAX_THREADS: usize = 4096;
/// Most descriptors for the counters of single threads (our choice), shared by all trees. Further
/// threads are observed by `/proc` only.
const MAX_DESCRIPTORS: usize = 4096;
/// How long the state of a thread that has not run holds (our choice), such as its scheduling
/// policy. The kernel's answers about masks hold as long.
const STATE_HOLDS: Duration = Duration::from_secs(10);
/// How long the lists of children are not read after the parents of processes were told (our
/// choice): two of the daemon's usual scans.
const PARENTS_HOLD: Duration = Duration::from_secs(10);
/// Most threads whose files are kept open, with two descriptors each (our choice), shared by all
/// trees.
const MAX_KEPT_THREADS: usize = 512;

/// Least time between two readings of all lists of children (our choice). Records are missing of
/// processes that forked while their events were opened, or on a CPU that was off.
const BETWEEN_LISTS: Duration = Duration::from_secs(60);

/// New processes since the last look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Births<'a> {
    /// `(parent, child)` of each known one.
    pub known: &'a [(Pid, Pid)],
    /// Whether these are all, so that no list of children must be read.
    pub all: bool,
}

/// The processes and threads of one tree, or of several that come and go.
pub struct Tasks {
    root: Root,
    family: Family,
    processes: BTreeMap<Pid, Process>,
    /// When the last look read the CPU clocks.
    clocks_at: Nanos,
    /// Events to count for each thread.
    plan: Option<ThreadPlan>,
    /// Places for further threads of each tree in this look, by root.
    places: BTreeMap<Pid, Places>,
    /// Whether there are counters for the threads of all trees.
    may_count_all: bool,
    /// When all lists of children are read next, whatever records say.
    listed_next: Instant,
    /// Most processes that are followed.
    most_processes: usize,
    /// Most threads that are followed.
    most_threads: usize,
    /// When a process of a tree was last left out, because there were too many; by root.
    crowded: BTreeMap<Pid, Instant>,
    /// Processes of trees that come and go that may not be read, with the kernel's errors.
    pub refused: BTreeMap<Pid, String>,
    paused: Option<Paused>,
    newborn: Newborn,
    children: Children,
    /// Whether a process that hardly ran is taken for still, as a manager does.
    pub(super) lets_rest: bool,
    /// Most entries of page tables that the kernel walks in one look at a process's policies.
    policy_entries: u64,
    /// Whether the kernel has NUMA replication.
    replicates: bool,
    /// Processes that had hardly run at the last look.
    still: BTreeSet<Pid>,
    /// As [`Tasks::used_cpus`].
    used: Option<(f64, f64)>,
    /// When the parents of processes were told last.
    parents_told: Option<Instant>,
}

struct Process {
    started: Nanos,
    /// CPU time at the last look.
    clock: Option<Nanos>,
    /// The last reading of its files; `None` if they must be read again although it did not run.
    read: Option<Reading>,
    stat: Kept,
    resident: Bytes,
    is_kernel_thread: bool,
    maps: Maps,
    shared: Shared,
    copies: Copies,
    doze: Doze,
    threads: BTreeMap<Tid, Thread>,
    /// Whether it had more threads at its last reading than are followed.
    is_in_part: bool,
    allowed_nodes: Option<NodeSet>,
    last: ProcessObservation,
}

struct Reading {
    clock: Option<Nanos>,
    at: Instant,
}

struct Thread {
    allowed: CpuSet,
    stat: Kept,
    /// When `stat` was read last.
    stat_at: Instant,
    schedstat: Kept,
    counters: Option<ThreadCounters>,
    /// Its counters were closed for another tree.
    gave_counters: bool,
}

impl Tasks {
    /// Follows `first` and its descendants.
    #[must_use]
    pub fn new(root: Root, first: Pid, plan: Option<ThreadPlan>) -> Self {
        Self::with(root, Family::of(first), plan)
    }

    /// Follows no process until [`Tasks::follow`] is called.
    #[must_use]
    pub fn without_processes(root: Root, plan: Option<ThreadPlan>) -> Self {
        Self::with(root, Family::default(), plan)
    }

    fn with(root: Root, family: Family, plan: Option<ThreadPlan>) -> Self {
        Self {
            replicates: is_offered(&root),
            root,
            family,
            processes: BTreeMap::new(),
            clocks_at: Nanos(0),
            plan,
            places: BTreeMap::new(),
            may_count_all: true,
            listed_next: Instant::now() + BETWEEN_LISTS,
            most_processes: MAX_PROCESSES,
            most_threads: MAX_THREADS,
            crowded: BTreeMap::new(),
            refused: BTreeMap::new(),
            paused: None,
            newborn: Newborn::default(),
            children: Children::default(),
            lets_rest: false,
            policy_entries: maps::entries_within(None),
            still: BTreeSet::new(),
            used: None,
            parents_told: None,
        }
    }

    /// Lets a look at a process's memory policies hold its map lock for this long; `None`: for the
    /// usual time.
    #[must_use]
    pub fn with_map_lock(self, longest: Option<Duration>) -> Self {
        Self { policy_entries: maps::entries_within(longest), ..self }
    }

    /// Follows any number of processes.
    #[must_use]
    pub fn without_limit(self) -> Self {
        Self { most_processes: usize::MAX, ..self }
    }

    /// The first process of the tree; `None` for trees that come and go.
    #[must_use]
    pub fn first(&self) -> Option<Pid> {
        self.family.first()
    }

    /// Sets the trees to follow, by their roots with start times. Processes in `left` and their
    /// descendants are left out.
    pub fn follow(&mut self, roots: BTreeMap<Pid, Nanos>, left: BTreeSet<Pid>) {
        self.family.follow(roots, left);
        let Self { family, processes, crowded, newborn, .. } = self;
        crowded.retain(|root, _| family.is_root(*root));
        newborn.keep(|root| family.is_root(root));
        processes.retain(|pid, _| family.root_of(*pid).is_some() && !family.is_left(*pid));
    }

    /// Known processes that had hardly run at the last look since their files were read.
    #[must_use]
    pub fn still_ones(&self) -> &BTreeSet<Pid> {
        &self.still
    }

    /// The root of each process at the last look.
    #[must_use]
    pub fn origins(&self) -> &BTreeMap<Pid, Pid> {
        self.family.origins()
    }

    /// Roots of the trees that have more processes or threads than are followed.
    #[must_use]
    pub fn seen_in_part(&self) -> BTreeSet<Pid> {
        let in_part = self.processes.iter().filter(|(_, process)| process.is_in_part);
        let roots = in_part.filter_map(|(pid, _)| self.family.root_of(*pid));
        let is_recent = |(_, at): &(&Pid, &Instant)| at.elapsed() < 2 * BETWEEN_LISTS;
        let crowded = self.crowded.iter().filter(is_recent).map(|(root, _)| *root);
        roots.chain(crowded).collect()
    }

    fn path(&self, pid: Pid, file: &str) -> PathBuf {
        self.root.in_proc(format!("{pid}/{file}"))
    }

    /// Reads all processes and threads once. An ended first process is reported with its last
    /// values. Processes that doze are left out.
    ///
    /// # Errors
    /// A file of `/proc` cannot be read or is malformed.
    pub fn observe(
        &mut self,
        topology: &Topology,
        births: Births<'_>,
    ) -> Result<Vec<ProcessObservation>, LinuxError> {
        let still = self.find_still()?;
        let mut members = self.members_so_far(births, &still)?;
        let is_known = |pid, tid| {
            self.processes.get(&pid).is_some_and(|process| process.threads.contains_key(&tid))
        };
        let root_of = |pid| self.family.root_of(pid).unwrap_or(pid);
        let held = self.newborn.hold_back(&mut members.awake, &members.still, is_known, root_of);
        self.family.set_loose(held);
        let cut = self.allot(&mut members);
        // A single process shares memory with no other one of the tree.
        let may_share = members.len() > 1 && topology.node_count() > 1;
        for (pid, threads) in &members.awake {
            match self.look_at_one(topology, *pid, threads, may_share) {
                // One process that may not be read must not hide the others.
                Err(error) if self.family.first().is_none() => {
                    self.processes.remove(pid);
                    self.refused.insert(*pid, error.to_string());
                }
                looked => looked?,
            }
            if let Some(process) = self.processes.get_mut(pid) {
                process.is_in_part = cut.contains(pid);
            }
        }
        for pid in &members.still {
            if self.dozing(*pid).is_none() {
                self.look_at_memory(topology, *pid, true)?;
            }
        }
        let first = self.first();
        for (pid, process) in &mut self.processes {
            if !members.contains(*pid) {
                process.threads.values_mut().for_each(|thread| drop(thread.counters.take()));
            }
        }
        self.processes.retain(|pid, _| members.contains(*pid) || Some(*pid) == first);
        self.still = members.still;
        let seen = self.processes.values().filter(|process| !self.dozes(process));
        Ok(seen.map(|process| process.last.clone()).collect())
    }

    fn look_at_one(
        &mut self,
        topology: &Topology,
        pid: Pid,
        threads: &[Tid],
        may_share: bool,
    ) -> Result<(), LinuxError> {
        self.look_at(topology, pid, threads)?;
        self.look_at_memory(topology, pid, false)?;
        if self.replicates && topology.node_count() > 1 {
            self.look_at_copies(pid)?;
        }
        if may_share {
            self.look_at_shared(pid)?;
        }
        Ok(())
    }

    fn stop(&mut self, stop: bool) -> io::Result<()> {
        self.threads()
            .filter_map(|thread| thread.counters.as_ref())
            .try_for_each(|on| on.stop(stop))
    }

    fn threads(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.processes.values_mut().flat_map(|process| process.threads.values_mut())
    }

    fn look_at(&mut self, topology: &Topology, pid: Pid, alive: &[Tid]) -> Result<(), LinuxError> {
        // If the number now belongs to another process, the open file gives ESRCH.
        let known = self.processes.get_mut(&pid).map(|process| process.stat.read(stat::parse));
        let (found, opened) = match known.transpose()?.flatten() {
            Some(found) => (Some(found), None),
            None => {
                let mut file = Kept::new(self.path(pid, "stat"), false);
                (file.read(stat::parse)?, Some(file))
            }
        };
        let Some(found) = found else { return Ok(()) };
        let started = started(&found);
        if self.family.is_another(pid, started) {
            self.processes.remove(&pid);
            return Ok(());
        }
        let known = self.processes.get(&pid);
        if known.is_some_and(|process| process.started != started) && !self.family.is_root(pid) {
            self.processes.remove(&pid);
            self.family.loosen(pid);
            return Ok(());
        }
        if known.is_none_or(|process| process.started != started) {
            // The clock comes before the files of threads, so that none is older than it.
            let clock = still::clock(&self.root, pid)?;
            let state = read(&self.path(pid, "status"), status::parse)?.unwrap_or_default();
            let allowed_nodes = state.nodes_allowed.map(|nodes| {
                nodes.iter().filter_map(|&node| topology.node_of_kernel_id(node)).collect()
            });
            let last = ProcessObservation { pid, started, ..ProcessObservation::default() };
            let stat = opened.unwrap_or_else(|| Kept::new(self.path(pid, "stat"), false));
            let process = Process {
                started,
                clock,
                read: None,
                stat,
                resident: Bytes(0),
                is_kernel_thread: found.is_kernel_thread,
                maps: Maps::within(self.policy_entries),
                shared: Shared::default(),
                copies: Copies::default(),
                doze: Doze::new(clock),
                threads: BTreeMap::new(),
                is_in_part: false,
                allowed_nodes,
                last,
            };
            self.processes.insert(pid, process);
        }
        // For a process with one thread, its own file has the same values as the thread's.
        let only = (alive == [Tid(pid.0)]).then_some(&found);
        let mut threads = Vec::new();
        for &tid in alive {
            threads.extend(self.look_at_thread(topology, pid, tid, only)?);
        }
        threads.sort_by_key(|thread| thread.tid);
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let is_there = |tid: &Tid| threads.binary_search_by_key(tid, |thread| thread.tid).is_ok();
        process.threads.retain(|tid, _| is_there(tid));
        // While the last thread ends, a process keeps its last threads. One without a share of
        // threads has none.
        if !threads.is_empty() || alive.is_empty() {
            process.last.threads = threads;
        }
        process.read = Some(Reading { clock: process.clock, at: Instant::now() });
        process.last.faults = Some(found.faults);
        process.last.allowed_nodes = process.allowed_nodes.clone();
        process.resident = Bytes(found.resident_pages.saturating_mul(page_bytes() as u64));
        Ok(())
    }

    fn look_at_thread(
        &mut self,
        topology: &Topology,
        pid: Pid,
        tid: Tid,
        only: Option<&TaskStat>,
    ) -> Result<Option<ThreadObservation>, LinuxError> {
        let known = self.processes.get(&pid).is_some_and(|known| known.threads.contains_key(&tid));
        if known {
            self.count_again(pid, tid);
        } else {
            let folder = self.path(pid, &format!("task/{tid}"));
            let file = |name: &str| folder.join(name);
            let state = read(&file("status"), status::parse)?.unwrap_or_default();
            let allowed = place::allowed(topology, state.cpus_allowed);
            let Some(allowed) = allowed else { return Ok(None) };
            let keep = self.may_keep(pid);
            let (stat, schedstat) =
                (Kept::new(file("stat"), keep), Kept::new(file("schedstat"), keep));
            let counters = self.open_counters(pid, tid);
            if let Some(process) = self.processes.get_mut(&pid) {
                let (stat_at, gave_counters) = (Instant::now(), false);
                let thread = Thread { allowed, stat, stat_at, schedstat, counters, gave_counters };
                process.threads.insert(tid, thread);
            }
        }
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(None) };
        let Some(thread) = process.threads.get_mut(&tid) else { return Ok(None) };
        let sched = thread.schedstat.read(schedstat::parse)?;
        // One that has not run is where it was. Of a single tree all is read.
        if self.family.first().is_none()
            && process.read.is_some()
            && thread.stat_at.elapsed() < STATE_HOLDS
            && let Some(last) = seen_before(&process.last.threads, tid)
            && last.slices > Some(0)
            && sched == Some(of_last(last))
        {
            let counters = thread.counters.as_mut().map(ThreadCounters::read).unwrap_or_default();
            return Ok(Some(ThreadObservation { counters, ..last.clone() }));
        }
        thread.stat_at = Instant::now();
        let time = sched.map(|sched| sched.running_ns);
        // The process's ticks include those of ended threads.
        let only = only.filter(|_| time.is_some());
        let own = if only.is_some() { None } else { thread.stat.read(stat::parse)? };
        let Some(found) = own.as_ref().or(only) else { return Ok(None) };
        let Some(cpu) = topology.cpu_of_kernel_id(found.cpu) else { return Ok(None) };
        Ok(Some(ThreadObservation {
            tid,
            cpu,
            cpu_time: time.map_or_else(|| ran(found), Nanos),
            queued: sched.map(|sched| Nanos(sched.waiting_ns)),
            slices: sched.map(|sched| sched.slices),
            allowed: thread.allowed.clone(),
            exempt: place::exemption(found),
            counters: thread.counters.as_mut().map(ThreadCounters::read).unwrap_or_default(),
        }))
    }

    fn open_counters(&mut self, pid: Pid, tid: Tid) -> Option<ThreadCounters> {
        if self.plan.is_none() || !self.may_count(pid) {
            return None;
        }
        ThreadCounters::open(self.plan.as_ref()?, tid)
    }
}

/// What the last look saw of a thread.
fn seen_before(threads: &[ThreadObservation], tid: Tid) -> Option<&ThreadObservation> {
    let place = threads.binary_search_by_key(&tid, |thread| thread.tid).ok()?;
    Some(&threads[place])
}

/// The times that the last look read of a thread.
fn of_last(last: &ThreadObservation) -> schedstat::SchedStat {
    schedstat::SchedStat {
        running_ns: last.cpu_time.0,
        waiting_ns: last.queued.unwrap_or_default().0,
        slices: last.slices.unwrap_or_default(),
    }
}

/// CPU time of a task, in whole ticks.
fn ran(found: &TaskStat) -> Nanos {
    Nanos(found.cpu_time_ticks.saturating_mul(1_000_000_000 / ticks_per_second()))
}

/// Start time of a task, since boot.
pub(crate) fn started(found: &TaskStat) -> Nanos {
    Nanos(found.start_ticks.saturating_mul(1_000_000_000 / ticks_per_second()))
}

pub(super) fn read<T>(
    path: &std::path::Path,
    parse: fn(&[u8]) -> Result<T, ParseError>,
) -> Result<Option<T>, LinuxError> {
    // The file of a process that ends while it is read is empty.
    let bytes = root::read_optional(path)?.filter(|bytes| !bytes.is_empty());
    let format = |source| LinuxError::Format { path: path.to_path_buf(), source };
    bytes.map(|bytes| parse(&bytes).map_err(format)).transpose()
}

#[cfg(test)]
mod tests;
