//! Trees of real processes that sleep, as the looks of an observer.

use std::process::{Child, Command};

use rondpoint_core::observation::ThreadObservation;
use rondpoint_core::plan::{Proposal, Reason};
use rondpoint_core::{CpuSet, Tid};
use rondpoint_linux::syscall::affinity;
use tempfile::TempDir;

use super::*;

/// A process that sleeps until the test ends.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }

    fn mask(&self) -> CpuSet {
        affinity::get(self.0.id() as i32).unwrap()
    }

    fn observed(&self) -> ProcessObservation {
        let Identity { pid, started } = Identity::of(&Root::live(), self.pid()).unwrap();
        let threads = vec![ThreadObservation { tid: Tid(pid.0), ..ThreadObservation::default() }];
        ProcessObservation { pid, started, threads, ..ProcessObservation::default() }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tree `first` with `child` in it, which has a mask of ours.
struct Bound {
    first: Sleeper,
    child: Sleeper,
    /// The mask that the child had.
    before: CpuSet,
    trees: Trees,
    folder: TempDir,
}

impl Bound {
    fn new() -> Self {
        let (first, child) = (Sleeper::start(), Sleeper::start());
        let machine = rondpoint_linux::topology::discover(&Root::live()).unwrap();
        let (before, folder) = (child.mask(), tempfile::tempdir().unwrap());
        let mut bound = Self { first, child, before, trees: Trees::new(machine.topology), folder };
        bound.add(bound.first.pid());
        bound.look(true, Some(bound.first.pid()));
        bound.bind();
        bound
    }

    fn add(&mut self, root: Pid) {
        let ledgers = self.folder.path().join("ledgers");
        self.trees.add(root, LedgerFile::create_for(&ledgers, &Root::live(), root).unwrap());
    }

    /// A look that has the child or not, and knows its root or none.
    fn look(&mut self, has_child: bool, root: Option<Pid>) {
        let mut origins = BTreeMap::from([(self.first.pid(), self.first.pid())]);
        origins.extend(root.map(|root| (self.child.pid(), root)));
        let mut processes = vec![self.first.observed()];
        processes.extend(has_child.then(|| self.child.observed()));
        let mut look = Observation { at: Nanos(u64::MAX), processes, ..Observation::default() };
        self.trees.follow(&mut look, &origins, &BTreeSet::new()).unwrap();
    }

    /// Binds the child to its first CPU.
    fn bind(&mut self) {
        let kernels = self.before.iter().next().unwrap();
        let cpu = self.trees.topology.cpu_of_kernel_id(kernels as u32).unwrap();
        let pid = self.child.pid();
        let cpus = CpuSet::from_iter([cpu]);
        let action = Action::SetAffinity { pid, tid: Tid(pid.0), cpus, via: None };
        let reason = Reason::Other("a test".to_string());
        let steps = vec![Proposal { policy: "test", action, reason }];
        let plan = Plan { number: 1, steps, ..Plan::default() };
        let step = Step { plan, ..Step::default() };
        self.trees.write_down(&step).unwrap();
        let outcome = self.trees.act(&step.plan, 0, &mut || false);
        assert_eq!(outcome.result, StepResult::Done);
        assert_eq!(self.child.mask().len(), 1);
    }

    /// What the ledger of a tree says.
    fn written(&self, root: Pid) -> String {
        std::fs::read_to_string(self.trees.trees[&root].ledger.path()).unwrap()
    }
}

/// So an exclusion, which finds no tree of it then, leaves no mask behind.
#[test]
fn a_process_that_loses_its_place_among_the_followed_gets_its_mask_back() {
    let mut bound = Bound::new();
    bound.look(false, None);
    assert_eq!(bound.child.mask(), bound.before);
    let written = bound.written(bound.first.pid());
    assert!(written.contains("\"returned\""), "a restore would not take it for ours: {written}");
    // A mask that it gets from somebody else stays.
    let cpus = CpuSet::from_iter(bound.before.iter().take(1));
    affinity::set(bound.child.pid().0 as i32, &cpus).unwrap();
    bound.look(false, None);
    assert_eq!(bound.trees.restore_masks().put_back, 0);
    assert_eq!(bound.child.mask(), cpus);
}

#[test]
fn a_process_that_becomes_a_tree_of_its_own_ends_with_the_mask_from_before_the_first() {
    for is_seen_between in [true, false] {
        let mut bound = Bound::new();
        let (first, child) = (bound.first.pid(), bound.child.pid());
        if is_seen_between {
            bound.look(false, None);
        }
        bound.add(child);
        bound.look(true, Some(child));
        bound.bind();
        let written = bound.written(child);
        let before = format!("\"before\":\"{}\"", bound.before);
        assert!(written.contains(&before), "{is_seen_between}: {written}");
        bound.trees.remove(first).unwrap();
        bound.trees.remove(child).unwrap();
        assert_eq!(bound.child.mask(), bound.before, "{is_seen_between}");
    }
}

/// Its tree had no place for it, so no look ever had it.
#[test]
fn a_child_that_was_never_observed_begins_its_tree_without_the_mask_that_it_inherited() {
    let mut bound = Bound::new();
    let heir = Sleeper::start();
    affinity::set(heir.pid().0 as i32, &bound.child.mask()).unwrap();
    let process = Identity::of(&Root::live(), heir.pid()).unwrap();
    let strangers = [Pid(1)].into_iter();
    assert_eq!(bound.trees.disinherit(|| vec![process], strangers), Restored::default());
    assert_eq!(heir.mask().len(), 1);
    let ancestors = [Pid(u32::MAX), bound.child.pid(), Pid(1)].into_iter();
    let restored = bound.trees.disinherit(|| vec![process], ancestors);
    assert_eq!(heir.mask(), bound.before, "{restored:?}");
    assert_eq!((restored.heirs, bound.trees.heirs), (1, 1));
    assert_eq!(bound.child.mask().len(), 1, "it keeps its own");
}

/// A look leaves out a process that dozes, or that it could not read.
#[test]
fn a_process_that_a_look_leaves_out_keeps_its_mask_until_it_is_left_alone() {
    let mut bound = Bound::new();
    bound.look(false, Some(bound.first.pid()));
    assert_eq!(bound.child.mask().len(), 1);
    let process = Identity::of(&Root::live(), bound.child.pid()).unwrap();
    let restored = bound.trees.release(process);
    assert_eq!(restored.put_back + restored.in_place, 1, "{restored:?}");
    assert_eq!(bound.child.mask(), bound.before);
}

#[test]
fn a_process_that_has_ended_is_not_written_down_as_put_back() {
    let mut bound = Bound::new();
    bound.child.0.kill().unwrap();
    bound.child.0.wait().unwrap();
    bound.look(false, None);
    let written = bound.written(bound.first.pid());
    assert!(!written.contains("\"returned\""), "{written}");
}
