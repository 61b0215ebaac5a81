//! Carries out the steps of a plan and returns an outcome for each. It takes no decision.
//!
//! A refusal of the kernel, an ended process and a page that cannot move are outcomes, not errors.

mod answers;
pub mod copies;
#[cfg(test)]
mod endings;
mod follow;
pub mod masks;
pub mod pages;
#[cfg(test)]
mod refusals;
mod returning;
mod sharers;
pub mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use rondpoint_core::plan::{Action, NodeMove, Outcome, PageMove, Plan, Proposal, StepResult};
use rondpoint_core::{CpuSet, Nanos, Observation, Pid, Tid, Topology};

use self::answers::Answers;
pub use self::follow::Followed;
use self::follow::{Home, Look};
use self::masks::{Change, Masks, Task};
use self::pages::{InRanges, Origin};
use self::sharers::Sharers;
use self::threads::Wanted;
use crate::LinuxError;
use crate::bulk;
use crate::cpuset::Cpusets;
use crate::ledger_file::{Entry, LedgerFile};
use crate::observe::tasks::started;
use crate::parse::stat;
use crate::probe;
use crate::root::{self, Root};
use crate::syscall::advice::Advice;
use crate::syscall::pages::Reach;

/// A process by number and start time. The number alone may be reused for another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Number of the process.
    pub pid: Pid,
    /// Start time of the process, since boot.
    pub started: Nanos,
}

impl Identity {
    /// The process that has this number now; `None` if there is none, or only a zombie. A process
    /// lives as long as one of its threads, even if its main thread has ended.
    ///
    /// # Errors
    /// `/proc` cannot be read. The process may then be alive, so the caller must keep its records
    /// of changes.
    pub fn find(root: &Root, pid: Pid) -> Result<Option<Self>, LinuxError> {
        let found = stat_in(root, format!("{pid}/stat"))?.filter(stat::TaskStat::is_alive);
        Ok(found.map(|found| Self { pid, started: started(&found) }))
    }

    /// As [`Self::find`]; `None` also on an error.
    #[must_use]
    pub fn of(root: &Root, pid: Pid) -> Option<Self> {
        Self::find(root, pid).ok().flatten()
    }

    /// Whether the same process certainly still lives; false on an error.
    #[must_use]
    pub fn is_there(&self, root: &Root) -> bool {
        Self::of(root, self.pid) == Some(*self)
    }

    /// Whether the same process still lives.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn lives(&self, root: &Root) -> Result<bool, LinuxError> {
        Ok(Self::find(root, self.pid)? == Some(*self))
    }
}

/// The content of a `stat` file beneath `/proc`; `None` if its task has ended.
pub(crate) fn stat_in(root: &Root, path: String) -> Result<Option<stat::TaskStat>, LinuxError> {
    let path = root.in_proc(path);
    // A task that ends while its file is read leaves an empty one behind.
    match root::read_optional(&path)? {
        Some(bytes) if !bytes.is_empty() => {
            let found = stat::parse(&bytes);
            found.map(Some).map_err(|source| LinuxError::Format { path, source })
        }
        _ => Ok(None),
    }
}

/// Whether a thread is a zombie.
pub(crate) fn has_ended(found: &stat::TaskStat) -> bool {
    matches!(found.state, 'Z' | 'X')
}

/// The content of `stat` of each living thread of a process.
pub(crate) fn living_threads(root: &Root, pid: Pid) -> Result<Vec<stat::TaskStat>, LinuxError> {
    let folder = format!("{pid}/task");
    let threads = root::list(&root.in_proc(&folder))?;
    let found = threads.iter().map(|thread| stat_in(root, format!("{folder}/{thread}/stat")));
    let is_living = |found: &stat::TaskStat| !has_ended(found);
    found.filter_map(|found| found.map(|found| found.filter(is_living)).transpose()).collect()
}

/// Applies the steps of plans to the running machine.
#[derive(Debug)]
pub struct Actor {
    root: Root,
    topology: Topology,
    masks: Masks,
    home: Home,
    cpusets: Cpusets,
    answers: Answers,
    /// Users of shared memory. `None` if this program may not move pages of several processes.
    sharers: Option<Sharers>,
    /// Prepared changes of masks, by plan and step.
    prepared: BTreeMap<(u64, usize), Result<Change, StepResult>>,
    /// Time of the last observation. `started` has the start time of each of its processes.
    seen: Nanos,
    started: BTreeMap<Pid, Nanos>,
    /// Threads that the program itself has bound, with their masks.
    bound: Vec<(Identity, Tid, CpuSet)>,
}

impl Actor {
    /// An actor for the tree of processes beneath `first`.
    #[must_use]
    pub fn new(root: Root, topology: Topology, first: Pid) -> Self {
        let mut cpusets = Cpusets::default();
        let may_share = probe::may_move_shared();
        Self {
            sharers: may_share.then(Sharers::default),
            home: Home::of(&root, first, &mut cpusets),
            cpusets,
            answers: Answers::default(),
            root,
            topology,
            masks: Masks::default(),
            prepared: BTreeMap::new(),
            seen: Nanos(0),
            started: BTreeMap::new(),
            bound: Vec::new(),
        }
    }

    /// Completes an observation of the tree, before other parts use it. Sets each thread's allowed
    /// CPUs, and marks processes and threads as exempt for their mask or cpuset. A thread that
    /// inherited one of our masks gets its creator's original mask. Processes in `still` have
    /// hardly run since their files were read, so the kernel is seldom asked about them.
    pub fn follow(&mut self, observation: &mut Observation, still: &BTreeSet<Pid>) -> Followed {
        self.seen = observation.at;
        self.started =
            observation.processes.iter().map(|process| (process.pid, process.started)).collect();
        let Self { root, topology, masks, home, cpusets, answers, started, .. } = self;
        cpusets.retain(|pid| started.contains_key(&pid));
        answers.begin(observation, still);
        if !answers.are_all_known() {
            home.look_up(root, cpusets);
        }
        let found = Followed::default();
        let look = Look { root, topology, masks, home, cpusets, answers, found };
        let mut found = look.over(observation);
        self.bound = std::mem::take(&mut found.bound);
        self.sharers.iter_mut().for_each(|sharers| sharers.follow(observation));
        found
    }

    /// The process that has this number in the last observation.
    #[must_use]
    pub fn identity(&self, pid: Pid) -> Option<Identity> {
        self.started.get(&pid).map(|started| Identity { pid, started: *started })
    }

    /// Reads the masks that a plan changes. The returned entries must be in the ledger before the
    /// plan's first step.
    pub fn prepare(&mut self, plan: &Plan) -> Vec<Entry> {
        self.prepared.clear();
        for (step, proposal) in plan.steps.iter().enumerate() {
            let Action::SetAffinity { pid, tid, cpus, via } = &proposal.action else { continue };
            let kernel = |cpu: usize| self.topology.kernel_cpu(cpu) as usize;
            // The process belongs to another tree, or has ended.
            let Some(process) = self.identity(*pid) else { continue };
            let cpus: CpuSet = cpus.iter().map(kernel).collect();
            let (number, via, seen) = (plan.number, via.map(kernel), self.seen);
            let wanted = Wanted { plan: number, process, tid: *tid, cpus, via, seen };
            let change = threads::prepare(&self.root, &self.masks, &wanted);
            self.prepared.insert((plan.number, step), change);
        }
        let changes = || self.prepared.values().filter_map(|change| change.as_ref().ok());
        // A thread that chose a mask would look like an heir after other threads are given the same
        // mask.
        let is_given = |mask: &CpuSet| changes().any(|change| change.gives(mask));
        let bystanders = self.bound.iter().filter(|(_, _, mask)| is_given(mask));
        let bystanders = bystanders
            .filter_map(|(process, tid, _)| threads::find(&self.root, *process, *tid).transpose());
        let Ok(bystanders) = bystanders.collect::<Result<Vec<Task>, LinuxError>>() else {
            // Without the threads that chose these masks no mask may be changed.
            self.prepared.clear();
            return Vec::new();
        };
        let entries = bystanders.iter().map(Task::entry).chain(changes().map(Change::entry));
        let entries = entries.collect();
        bystanders.into_iter().for_each(|task| self.masks.let_choose(task));
        entries
    }

    /// Applies one step. The caller has written its inverse into the ledger. The ledger also gets
    /// the process that is stopped for the step.
    pub fn step(&mut self, plan: &Plan, step: usize, ledger: &mut LedgerFile) -> Outcome {
        self.step_until(plan, step, ledger, &mut || false)
    }

    /// As [`Self::step`]. While memory moves, `is_called` is asked about twenty times a second
    /// whether to end that.
    pub fn step_until(
        &mut self,
        plan: &Plan,
        step: usize,
        ledger: &mut LedgerFile,
        is_called: &mut dyn FnMut() -> bool,
    ) -> Outcome {
        let begin = Instant::now();
        let mut frozen = Nanos(0);
        let result = match plan.steps.get(step) {
            Some(Proposal { action: Action::SetAffinity { pid, .. }, .. }) => {
                match self.prepared.remove(&(plan.number, step)) {
                    Some(Ok(change)) => self.give(change, ledger),
                    Some(Err(result)) => result,
                    None if self.identity(*pid).is_none() => StepResult::Gone,
                    None => StepResult::Refused { errno: libc::EINVAL },
                }
            }
            Some(Proposal {
                action: Action::MoveProcessMemory { pid, nodes, freeze, .. }, ..
            }) => {
                let ledger = freeze.then_some(ledger);
                let (result, stood) = self.move_memory(*pid, nodes, ledger, is_called);
                frozen = stood;
                result
            }
            Some(one) => self.act(one),
            None => StepResult::Gone,
        };
        let spent = Nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        Outcome { plan: plan.number, step, result, spent, frozen }
    }

    /// After a refusal the ledger says what the thread has. Otherwise, once later plans are written
    /// down, the refused mask counts as given.
    fn give(&mut self, change: Change, ledger: &mut LedgerFile) -> StepResult {
        // Earlier steps may have taken long, and the number may belong to another thread by now.
        let now = threads::find(&self.root, change.task.process, change.task.tid);
        if now.is_ok_and(|found| found != Some(change.task)) {
            return StepResult::Gone;
        }
        let had = self.masks.now(&change.task).unwrap_or(&change.original.cpus).clone();
        let result = threads::give(&mut self.masks, &change);
        if matches!(result, StepResult::Refused { .. }) {
            // A ledger that cannot be written stops all later plans.
            let _ = ledger.write(&[Change { cpus: had, via: None, ..change }.entry()]);
        }
        result
    }

    fn move_memory(
        &self,
        pid: Pid,
        nodes: &[NodeMove],
        freeze: Option<&mut LedgerFile>,
        is_called: &mut dyn FnMut() -> bool,
    ) -> (StepResult, Nanos) {
        let Some(process) = self.identity(pid) else { return (StepResult::Gone, Nanos(0)) };
        let kernel = |node: usize| self.topology.kernel_node(node);
        let ways = nodes.iter().map(|way| (kernel(way.from), kernel(way.to))).collect();
        bulk::step(&self.root, process, ways, freeze, is_called)
    }

    fn move_pages(&mut self, pid: Pid, pages: &[PageMove]) -> StepResult {
        let ranges = self.sharers.as_mut().map(|sharers| sharers.ranges(&self.root, pid, pages));
        let kernel = InRanges {
            own: &pages::Live(Reach::Own),
            shared: &pages::Live(Reach::Shared),
            ranges: &ranges.unwrap_or_default(),
        };
        pages::relocate(&kernel, pid, pages, Origin::Planned, &self.topology)
    }

    fn advise(&self, pid: Pid, pages: &[PageMove], advice: Advice) -> StepResult {
        let Some(process) = self.identity(pid) else { return StepResult::Gone };
        copies::step(&self.root, process, pages, advice)
    }

    fn act(&mut self, proposal: &Proposal) -> StepResult {
        let there = |pid| self.identity(pid).is_some_and(|identity| identity.is_there(&self.root));
        match &proposal.action {
            Action::MovePages { pid, .. } if !there(*pid) => StepResult::Gone,
            Action::MovePages { pid, pages, .. } => self.move_pages(*pid, pages),
            Action::Replicate { pid, pages } => self.advise(*pid, pages, Advice::Replicate),
            Action::Unreplicate { pid, pages } => self.advise(*pid, pages, Advice::Unreplicate),
            // `step` handles masks and whole processes, and the sensors handle the sampling rate.
            Action::SetAffinity { .. }
            | Action::MoveProcessMemory { .. }
            | Action::SetSampling { .. } => StepResult::Unsupported,
        }
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::plan::{Mechanism, PageMove, Reason};
    use rondpoint_core::topology::synthetic;

    use super::*;
    use crate::parse::stat;
    use crate::syscall::memory::{Anonymous, page_bytes};
    use crate::syscall::process::ticks_per_second;
    use crate::syscall::time::since_boot_ns;

    fn plan(pid: Pid, address: u64) -> Plan {
        let pages = vec![PageMove { address, shift: 12, from: 0, to: 0 }];
        let action = Action::MovePages { pid, mechanism: Mechanism::CoLocation, pages };
        let reason = Reason::Other("a test".to_string());
        let steps = vec![Proposal { policy: "test", action, reason }];
        Plan { number: 7, steps, ..Plan::default() }
    }

    #[test]
    fn a_process_lives_while_any_of_its_threads_does() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        std::fs::create_dir_all(root.in_proc("7")).unwrap();
        for (threads, lives) in [("2", true), ("1", false)] {
            std::fs::write(root.in_proc("7/stat"), stat::sample("Z", threads)).unwrap();
            assert_eq!(Identity::of(&root, Pid(7)).is_some(), lives, "{threads} threads");
        }
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_taken_for_gone() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        // A process with a file that cannot be read.
        std::fs::create_dir_all(root.in_proc("7/stat")).unwrap();
        assert!(Identity::find(&root, Pid(7)).is_err());
        assert_eq!(Identity::find(&root, Pid(8)).unwrap(), None);
        let entry = crate::ledger_file::MaskEntry {
            plan: 1,
            pid: 7,
            started: 10,
            session: 7,
            tid: 7,
            born: 10,
            at: 20,
            before: "0-1".to_string(),
            whole: true,
            via: None,
            given: "1".to_string(),
        };
        let masks = |pid| {
            let entry = crate::ledger_file::MaskEntry { pid, tid: pid, ..entry.clone() };
            Masks::of_ledger(&[Entry::Mask(entry)])
        };
        assert!(threads::restore(&root, &masks(7)).refused > 0, "its ledger has to stay");
        let gone = threads::Restored { gone: 1, refused: 1, ..threads::Restored::default() };
        assert_eq!(threads::restore(&root, &masks(8)), gone, "an heir may be behind that file");
        let process = Identity { pid: Pid(std::process::id()), started: Nanos(10) };
        std::fs::create_dir_all(root.in_proc(format!("{}/stat", process.pid))).unwrap();
        let frozen = vec![(process, crate::freeze::Means::Signal)];
        let left = crate::ledger_file::Left { frozen, ..crate::ledger_file::Left::default() };
        let restored = crate::freeze::restore(&root, &left);
        assert_eq!((restored.gone, restored.refused), (0, 1));
    }

    /// A thread with a mask of its own looks like an heir once others are given that mask.
    #[test]
    fn no_mask_is_given_while_a_thread_that_has_it_already_cannot_be_looked_at() {
        let sleeper = crate::sleeper::Sleeper::start();
        let process = sleeper.identity();
        let mask = || crate::syscall::affinity::get(process.pid.0 as i32).unwrap();
        let before = mask();
        let cpu = before.iter().next().unwrap();
        let cpus = CpuSet::from_iter([cpu]);
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        std::fs::create_dir_all(&root.proc).unwrap();
        let own = process.pid.to_string();
        std::os::unix::fs::symlink(format!("/proc/{own}"), root.in_proc(&own)).unwrap();
        let machine = crate::topology::discover(&Root::live()).unwrap().topology;
        let cpu = machine.cpu_of_kernel_id(cpu as u32).unwrap();
        let action = Action::SetAffinity {
            pid: process.pid,
            tid: Tid(process.pid.0),
            cpus: CpuSet::from_iter([cpu]),
            via: None,
        };
        let reason = Reason::Other("a test".to_string());
        let steps = vec![Proposal { policy: "test", action, reason }];
        let plan = Plan { number: 1, steps, ..Plan::default() };
        let mut actor = Actor::new(root.clone(), machine, process.pid);
        (actor.seen, actor.started) =
            (Nanos(u64::MAX), BTreeMap::from([(process.pid, process.started)]));
        let bystander = Identity { pid: Pid(5_000_000), started: process.started };
        actor.bound = vec![(bystander, Tid(bystander.pid.0), cpus.clone())];
        // A directory cannot be read as a file.
        let task = format!("{0}/task/{0}/stat", bystander.pid);
        std::fs::create_dir_all(root.in_proc(task)).unwrap();
        let ledgers = directory.path().join("ledgers");
        let mut ledger = LedgerFile::create(&ledgers, &Root::live()).unwrap();
        assert!(actor.prepare(&plan).is_empty(), "nothing is to be written down");
        let refused = StepResult::Refused { errno: libc::EINVAL };
        assert_eq!(actor.step(&plan, 0, &mut ledger).result, refused);
        assert_eq!(mask(), before);
        // Once it has ended the mask is free.
        actor.bound.clear();
        let mut entries = actor.prepare(&plan);
        assert_eq!(entries.len(), 1);
        assert_eq!(actor.step(&plan, 0, &mut ledger).result, StepResult::Done);
        assert_eq!(mask(), cpus);
        // Left alone, it hands down no mask of ours.
        let (restored, told) = actor.release(process);
        assert_eq!(restored.put_back, 1);
        assert_eq!(mask(), before);
        entries.extend(told);
        let after_a_kill = Masks::of_ledger(&entries);
        let task = threads::find(&root, process, Tid(process.pid.0)).unwrap().unwrap();
        for mask in [&before, &cpus] {
            assert_eq!(after_a_kill.standing(&task, mask, None), masks::Standing::Untouched);
        }
        let (released, ticks) = (since_boot_ns(), 2_000_000_000 / ticks_per_second());
        while since_boot_ns() < released + ticks {
            std::thread::yield_now();
        }
        let child = crate::sleeper::Sleeper::start();
        let late = child.identity();
        std::os::unix::fs::symlink(
            format!("/proc/{}", late.pid),
            root.in_proc(late.pid.to_string()),
        )
        .unwrap();
        crate::syscall::affinity::set(late.pid.0 as i32, &cpus).unwrap();
        actor.masks.see(late);
        assert_eq!(actor.restore_masks().heirs, 0);
        assert_eq!(crate::syscall::affinity::get(late.pid.0 as i32).unwrap(), cpus);
    }

    #[test]
    fn a_number_that_belongs_to_another_process_by_now_is_gone() {
        let own = Identity::of(&Root::live(), Pid(std::process::id())).unwrap();
        let machine = synthetic::parse("node:1 core:1").unwrap();
        let mut actor = Actor::new(Root::live(), machine, own.pid);
        let memory = Anonymous::new(page_bytes()).unwrap();
        memory.touch_every(page_bytes());
        let plan = plan(own.pid, memory.address());
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = LedgerFile::create(&folder.path().join("ledgers"), &Root::live()).unwrap();
        let mut seen = |started: Option<Nanos>| {
            let process = started.map(|started| rondpoint_core::observation::ProcessObservation {
                pid: own.pid,
                started,
                ..rondpoint_core::observation::ProcessObservation::default()
            });
            let processes = process.into_iter().collect();
            let mut observation = Observation { processes, ..Observation::default() };
            actor.follow(&mut observation, &BTreeSet::new());
            actor.step(&plan, 0, &mut ledger).result
        };
        let now = seen(Some(own.started));
        assert!(matches!(now, StepResult::Pages(counts) if counts.in_place == 1), "{now:?}");
        assert_eq!(seen(Some(Nanos(own.started.0 - 1))), StepResult::Gone);
        assert_eq!(seen(None), StepResult::Gone);
    }
}
