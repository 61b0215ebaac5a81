//! The processes and threads of a program's tree, followed through `/proc`.
//!
//! A process enters by its number, by a fork record or as a child of one that is known; it leaves
//! when it has gone. Processes that vanish while they are read are normal.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use rondpoint_core::observation::{Exemption, ProcessObservation, ThreadObservation};
use rondpoint_core::{Bytes, CpuSet, Nanos, NodeSet, Pid, Tid, Topology};

use super::kept::Kept;
use super::maps::Maps;
use super::pause::Paused;
use super::threads::{ThreadCounters, ThreadPlan};
use crate::LinuxError;
use crate::parse::stat::TaskStat;
use crate::parse::{ParseError, fields, schedstat, stat, status};
use crate::root::{self, Root};
use crate::syscall::memory::page_bytes;
use crate::syscall::process::ticks_per_second;

/// Processes followed at most; what is beyond is still in the tree's counts.
pub const MAX_PROCESSES: usize = 1024;
/// Threads followed at most.
pub const MAX_THREADS: usize = 4096;
/// Descriptors for the counters of single threads at most; threads beyond are seen by `/proc` only.
const MAX_DESCRIPTORS: usize = 4096;
/// Threads whose files stay open at most: two descriptors each.
const MAX_KEPT_THREADS: usize = 512;

/// Processes that were started since the last look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Births<'a> {
    /// Parent and child.
    pub known: &'a [(Pid, Pid)],
    /// There were no others: nobody's children have to be asked for.
    pub all: bool,
}

/// The tree.
pub struct Tasks {
    root: Root,
    first: Pid,
    processes: BTreeMap<Pid, Process>,
    /// What is counted of each thread.
    plan: Option<ThreadPlan>,
    counted_threads: usize,
    /// There were more processes or threads than are followed.
    pub overflowed: bool,
    paused: Option<Paused>,
}

struct Process {
    started: Nanos,
    stat: Kept,
    maps: Maps,
    threads: BTreeMap<Tid, Thread>,
    allowed_nodes: Option<NodeSet>,
    last: ProcessObservation,
}

struct Thread {
    allowed: CpuSet,
    stat: Kept,
    schedstat: Kept,
    counters: Option<ThreadCounters>,
}

impl Tasks {
    /// Follows `first` and its descendants.
    #[must_use]
    pub fn new(root: Root, first: Pid, plan: Option<ThreadPlan>) -> Self {
        let processes = BTreeMap::new();
        Self { root, first, processes, plan, counted_threads: 0, overflowed: false, paused: None }
    }

    /// The process that the tree begins with.
    #[must_use]
    pub fn first(&self) -> Pid {
        self.first
    }

    fn path(&self, pid: Pid, file: &str) -> PathBuf {
        self.root.in_proc(format!("{pid}/{file}"))
    }

    /// All processes of the tree that are there now, each with its threads: those known, the newborn,
    /// and the children of whoever may have some that nobody told of.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn members(&mut self, births: Births<'_>) -> Result<BTreeMap<Pid, Vec<Tid>>, LinuxError> {
        let mut found = BTreeMap::new();
        let mut waiting: Vec<Pid> = self.family(births.known).into_iter().collect();
        while let Some(pid) = waiting.pop() {
            if found.contains_key(&pid) {
                continue;
            }
            let threads = self.threads_of(pid)?;
            if threads.is_empty() {
                continue;
            }
            if found.len() >= MAX_PROCESSES {
                self.overflowed = true;
                break;
            }
            if !(births.all && self.processes.contains_key(&pid)) {
                for tid in &threads {
                    waiting.extend(self.children_of(pid, *tid)?);
                }
            }
            found.insert(pid, threads);
        }
        Ok(found)
    }

    /// Those known, and of the newborn (parent, child) those whose parent is one of them. The
    /// records of different CPUs come in no order, so a child may be named before its parent.
    fn family(&self, born: &[(Pid, Pid)]) -> BTreeSet<Pid> {
        let mut family: BTreeSet<Pid> = self.processes.keys().copied().collect();
        family.insert(self.first);
        loop {
            let before = family.len();
            for (parent, child) in born {
                if family.contains(parent) {
                    family.insert(*child);
                }
            }
            if family.len() == before {
                return family;
            }
        }
    }

    /// The threads of a process; none where it is gone.
    ///
    /// # Errors
    /// Any refusal but absence.
    pub fn threads_of(&self, pid: Pid) -> Result<Vec<Tid>, LinuxError> {
        let names = root::list(&self.path(pid, "task"))?;
        Ok(names.iter().filter_map(|name| name.parse().ok().map(Tid)).collect())
    }

    /// Empty on kernels without `CONFIG_PROC_CHILDREN`: fork records tell there.
    fn children_of(&self, pid: Pid, tid: Tid) -> Result<Vec<Pid>, LinuxError> {
        let path = self.path(pid, &format!("task/{tid}/children"));
        let bytes = root::read_optional(&path)?.unwrap_or_default();
        let numbers = fields::words(&bytes).filter_map(fields::decimal);
        Ok(numbers.filter_map(|pid| u32::try_from(pid).ok().map(Pid)).collect())
    }

    /// Looks at everything once. The first process is reported even when it has ended: with what
    /// was last known of it.
    ///
    /// # Errors
    /// A file of `/proc` that is refused or malformed.
    pub fn observe(
        &mut self,
        topology: &Topology,
        births: Births<'_>,
    ) -> Result<Vec<ProcessObservation>, LinuxError> {
        let members = self.members(births)?;
        let mut budget = MAX_THREADS;
        for (pid, threads) in &members {
            self.look_at(topology, *pid, threads, &mut budget)?;
        }
        let first = self.first;
        for (pid, process) in &mut self.processes {
            if !members.contains_key(pid) {
                process.threads.values_mut().for_each(|thread| drop(thread.counters.take()));
            }
        }
        self.processes.retain(|pid, _| members.contains_key(pid) || *pid == first);
        let counted = |process: &Process| {
            process.threads.values().filter(|thread| thread.counters.is_some()).count()
        };
        self.counted_threads = self.processes.values().map(counted).sum();
        Ok(self.processes.values().map(|process| process.last.clone()).collect())
    }

    /// Ends the counting of single threads until [`Tasks::resume`], in the way that suits so many. One that is born meanwhile is
    /// counted.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn pause(&mut self) -> io::Result<()> {
        let events = self.plan.as_ref().map_or(0, ThreadPlan::events);
        let way = Paused::of(self.counted_threads * events);
        self.paused = Some(way);
        if way == Paused::Stopped {
            return self.stop(true);
        }
        self.threads().for_each(|thread| thread.counters = None);
        self.counted_threads = 0;
        Ok(())
    }

    /// Counts whoever is known again; from nothing where events were closed.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn resume(&mut self) -> io::Result<()> {
        match self.paused.take() {
            None => return Ok(()),
            Some(Paused::Stopped) => return self.stop(false),
            Some(Paused::Closed) => {}
        }
        let known: Vec<(Pid, Tid)> = self
            .processes
            .iter()
            .flat_map(|(pid, process)| process.threads.keys().map(|tid| (*pid, *tid)))
            .collect();
        for (pid, tid) in known {
            let counters = self.open_counters(tid);
            let process = self.processes.get_mut(&pid);
            if let Some(thread) = process.and_then(|process| process.threads.get_mut(&tid)) {
                thread.counters = counters;
            }
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

    fn look_at(
        &mut self,
        topology: &Topology,
        pid: Pid,
        alive: &[Tid],
        budget: &mut usize,
    ) -> Result<(), LinuxError> {
        // Of whoever had this number before, the open file says that he is gone.
        let known = self.processes.get_mut(&pid).map(|process| process.stat.read(stat::parse));
        let (found, opened) = match known.transpose()?.flatten() {
            Some(found) => (Some(found), None),
            None => {
                let mut file = Kept::new(self.path(pid, "stat"), self.may_keep());
                (file.read(stat::parse)?, Some(file))
            }
        };
        let Some(found) = found else { return Ok(()) };
        let started = started(&found);
        let is_new = self.processes.get(&pid).is_none_or(|process| process.started != started);
        if is_new {
            let state = read(&self.path(pid, "status"), status::parse)?.unwrap_or_default();
            let allowed_nodes = state.nodes_allowed.map(|nodes| {
                nodes.iter().filter_map(|&node| topology.node_of_kernel_id(node)).collect()
            });
            let last = ProcessObservation { pid, started, ..ProcessObservation::default() };
            let stat = opened.unwrap_or_else(|| Kept::new(self.path(pid, "stat"), self.may_keep()));
            let process = Process {
                started,
                stat,
                maps: Maps::default(),
                threads: BTreeMap::new(),
                allowed_nodes,
                last,
            };
            self.processes.insert(pid, process);
        }
        // Of a process with one thread its own file says what the thread's would.
        let only = (alive == [Tid(pid.0)]).then_some(&found);
        let mut threads = Vec::new();
        for &tid in alive {
            if *budget == 0 {
                self.overflowed = true;
                break;
            }
            if let Some(thread) = self.look_at_thread(topology, pid, tid, only)? {
                threads.push(thread);
                *budget -= 1;
            }
        }
        threads.sort_by_key(|thread| thread.tid);
        let maps = self.path(pid, "numa_maps");
        let scheds: Vec<PathBuf> =
            alive.iter().map(|tid| self.path(pid, &format!("task/{tid}/sched"))).collect();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let resident = Bytes(found.resident_pages.saturating_mul(page_bytes() as u64));
        let memory = process.maps.read(&maps, topology, resident, scheds.into_iter())?;
        process.threads.retain(|tid, _| threads.iter().any(|thread| thread.tid == *tid));
        // A process whose last thread is on its way out keeps what it had.
        if !threads.is_empty() {
            process.last.threads = threads;
        }
        process.last.faults = Some(found.faults);
        process.last.allowed_nodes = process.allowed_nodes.clone();
        process.last.memory = memory.or(process.last.memory.take());
        process.last.exempt = match (found.is_kernel_thread, process.maps.has_own_policy()) {
            (true, _) => Some(Exemption::KernelThread),
            (_, true) => Some(Exemption::OwnMemoryPolicy),
            _ => None,
        };
        Ok(())
    }

    fn look_at_thread(
        &mut self,
        topology: &Topology,
        pid: Pid,
        tid: Tid,
        only: Option<&TaskStat>,
    ) -> Result<Option<ThreadObservation>, LinuxError> {
        let file = |name: &str| self.path(pid, &format!("task/{tid}/{name}"));
        let known = self.processes.get(&pid).is_some_and(|known| known.threads.contains_key(&tid));
        if !known {
            let state = read(&file("status"), status::parse)?.unwrap_or_default();
            let allowed = state.cpus_allowed.unwrap_or_default();
            let allowed: CpuSet =
                allowed.iter().filter_map(|&cpu| topology.cpu_of_kernel_id(cpu)).collect();
            let allowed = if allowed.is_empty() { topology.all_cpus() } else { allowed };
            let keep = self.may_keep();
            let (stat, schedstat) =
                (Kept::new(file("stat"), keep), Kept::new(file("schedstat"), keep));
            let counters = self.open_counters(tid);
            if let Some(process) = self.processes.get_mut(&pid) {
                let thread = Thread { allowed, stat, schedstat, counters };
                process.threads.insert(tid, thread);
            }
        }
        let thread = self.processes.get_mut(&pid).and_then(|known| known.threads.get_mut(&tid));
        let Some(thread) = thread else { return Ok(None) };
        let time = thread.schedstat.read(schedstat::parse)?.map(|stat| stat.running_ns);
        // The ticks of a process are those of its ended threads too.
        let only = only.filter(|_| time.is_some());
        let own = if only.is_some() { None } else { thread.stat.read(stat::parse)? };
        let Some(found) = own.as_ref().or(only) else { return Ok(None) };
        let ticks = found.cpu_time_ticks.saturating_mul(1_000_000_000 / ticks_per_second());
        Ok(Some(ThreadObservation {
            tid,
            cpu: topology.cpu_of_kernel_id(found.cpu).unwrap_or(0),
            cpu_time: Nanos(time.unwrap_or(ticks)),
            allowed: thread.allowed.clone(),
            exempt: exemption(found),
            counters: thread.counters.as_mut().map(ThreadCounters::read).unwrap_or_default(),
        }))
    }

    fn open_counters(&mut self, tid: Tid) -> Option<ThreadCounters> {
        let plan = self.plan.as_ref()?;
        if (self.counted_threads + 1) * plan.events() > MAX_DESCRIPTORS {
            return None;
        }
        let counters = ThreadCounters::open(plan, tid)?;
        self.counted_threads += 1;
        Some(counters)
    }

    fn may_keep(&self) -> bool {
        let threads: usize = self.processes.values().map(|process| process.threads.len()).sum();
        threads < MAX_KEPT_THREADS
    }
}

fn exemption(found: &TaskStat) -> Option<Exemption> {
    const FIFO: u32 = 1;
    const ROUND_ROBIN: u32 = 2;
    const DEADLINE: u32 = 6;
    if found.is_kernel_thread {
        return Some(Exemption::KernelThread);
    }
    matches!(found.policy, FIFO | ROUND_ROBIN | DEADLINE).then_some(Exemption::RealTime)
}

/// When a task started, since boot.
pub(crate) fn started(found: &TaskStat) -> Nanos {
    Nanos(found.start_ticks.saturating_mul(1_000_000_000 / ticks_per_second()))
}

pub(super) fn read<T>(
    path: &std::path::Path,
    parse: fn(&[u8]) -> Result<T, ParseError>,
) -> Result<Option<T>, LinuxError> {
    // A process that ends while its file is read leaves an empty one behind.
    let bytes = root::read_optional(path)?.filter(|bytes| !bytes.is_empty());
    let format = |source| LinuxError::Format { path: path.to_path_buf(), source };
    bytes.map(|bytes| parse(&bytes).map_err(format)).transpose()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rondpoint_core::topology::synthetic;

    use super::*;

    struct Fixture {
        directory: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap() }
        }

        fn root(&self) -> Root {
            Root::captured(self.directory.path())
        }

        /// A process with threads that last ran on the given CPUs.
        fn process(&self, pid: u32, threads: &[(u32, u32)], children: &str) {
            for &(tid, cpu) in threads {
                let task = self.root().in_proc(format!("{pid}/task/{tid}"));
                fs::create_dir_all(&task).unwrap();
                fs::write(task.join("stat"), line(tid, cpu)).unwrap();
                fs::write(task.join("schedstat"), "5000 1 1\n").unwrap();
                fs::write(task.join("status"), "Cpus_allowed_list:\t0-2\n").unwrap();
                fs::write(task.join("children"), children).unwrap();
            }
            let own = self.root().in_proc(pid.to_string());
            let leader = threads.iter().find(|(tid, _)| *tid == pid);
            fs::write(own.join("stat"), line(pid, leader.map_or(0, |(_, cpu)| *cpu))).unwrap();
            fs::write(own.join("status"), "Mems_allowed_list:\t0\n").unwrap();
            fs::write(own.join("numa_maps"), "1000 default N0=2 N1=3 kernelpagesize_kB=4\n")
                .unwrap();
        }
    }

    fn line(id: u32, cpu: u32) -> String {
        format!(
            "{id} (x) S 1 1 1 0 -1 0 7 0 1 0 2 1 0 0 20 0 1 0 100 0 10 0 0 0 0 0 0 0 0 0 0 0 0 0 17 {cpu} 0 0\n"
        )
    }

    fn told(known: &[(Pid, Pid)]) -> Births<'_> {
        Births { known, all: true }
    }

    fn shown(processes: &[ProcessObservation]) -> String {
        let process = |process: &ProcessObservation| {
            let threads: Vec<String> =
                process.threads.iter().map(|t| format!("{}@{}", t.tid, t.cpu)).collect();
            format!("{}[{}]", process.pid, threads.join(" "))
        };
        processes.iter().map(process).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn children_and_their_threads_are_found_and_leave() {
        let fixture = Fixture::new();
        let machine = synthetic::parse("node:2 core:2").unwrap();
        fixture.process(10, &[(10, 0), (11, 3)], "20 ");
        fixture.process(20, &[(20, 1)], "");
        let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
        let found = tasks.observe(&machine, Births::default()).unwrap();
        assert_eq!(shown(&found), "10[10@0 11@3] 20[20@1]");
        assert_eq!(found[0].memory, Some(vec![Bytes(8192), Bytes(12288)]));
        assert_eq!(found[0].faults, Some(8));
        assert_eq!(found[0].threads[0].cpu_time, Nanos(5000));
        assert_eq!(found[0].threads[0].allowed.to_string(), "0-2");
        assert_eq!(found[0].allowed_nodes.as_ref().unwrap().to_string(), "0");
        fs::remove_dir_all(fixture.root().in_proc("20")).unwrap();
        assert_eq!(shown(&tasks.observe(&machine, Births::default()).unwrap()), "10[10@0 11@3]");
    }

    #[test]
    fn the_first_process_is_told_of_even_after_its_end_and_orphans_stay() {
        let fixture = Fixture::new();
        let machine = synthetic::parse("node:1 core:4").unwrap();
        fixture.process(10, &[(10, 2)], "");
        fixture.process(30, &[(30, 1)], "");
        fixture.process(40, &[(40, 1)], "");
        let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
        assert_eq!(
            shown(
                &tasks
                    .observe(
                        &machine,
                        told(&[(Pid(20), Pid(30)), (Pid(10), Pid(20)), (Pid(1), Pid(40))])
                    )
                    .unwrap()
            ),
            "10[10@2] 30[30@1]"
        );
        fs::remove_dir_all(fixture.root().in_proc("10")).unwrap();
        assert_eq!(
            shown(&tasks.observe(&machine, Births::default()).unwrap()),
            "10[10@2] 30[30@1]"
        );
    }

    #[test]
    fn a_number_that_was_never_there_gives_nothing() {
        let fixture = Fixture::new();
        let machine = synthetic::parse("node:1 core:4").unwrap();
        let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
        assert_eq!(shown(&tasks.observe(&machine, told(&[(Pid(10), Pid(77))])).unwrap()), "");
    }
}
