//! The ledger of all changes and their inverses. The inverse of a step is entered before the step
//! is carried out.
//!
//! Affinities are restored exactly: the first mask of each thread is kept until the thread ends.
//! Pages are restored as far as memory allows, and only until a trial has accepted the change.

use crate::index_set::CpuSet;
use crate::limits::MAX_LEDGER_ENTRIES;
use crate::model::{App, Model, Thread};
use crate::plan::{Action, Inverse, NodeMove, Outcome, PageMove, Plan, StepResult};
use crate::units::{Bytes, Pid, Tid};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

#[derive(Debug, Clone, PartialEq)]
struct Mask {
    pid: Pid,
    first: CpuSet,
    now: CpuSet,
}

/// The inverse of a step that no trial has accepted yet, and the policy of the step.
#[derive(Debug, Clone, PartialEq)]
struct Open {
    policy: &'static str,
    inverse: Inverse,
}

impl Open {
    fn pid(&self) -> Option<Pid> {
        self.inverse.action.as_ref().and_then(Action::pid)
    }
}

/// All changes that hold now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ledger {
    masks: BTreeMap<Tid, Mask>,
    open: VecDeque<Open>,
    /// Plans that moved memory of a process to a node with other memory of the same process. The
    /// two cannot be separated again.
    mixed: BTreeSet<(Pid, u64)>,
}

impl Ledger {
    /// Enters a plan before it is carried out. Returns the inverse of each step, which the host
    /// writes to its file first.
    pub fn enter(&mut self, plan: &Plan, model: &Model) -> Vec<Inverse> {
        let mut inverses = Vec::with_capacity(plan.steps.len());
        for (step, proposal) in plan.steps.iter().enumerate() {
            let (action, exact) = self.invert(&proposal.action, model);
            let inverse = Inverse { plan: plan.number, step, action, exact };
            if inverse.action.is_some() {
                self.open.push_back(Open { policy: proposal.policy, inverse: inverse.clone() });
            } else if let Some(pid) = moves_all_of(&proposal.action) {
                self.mixed.insert((pid, plan.number));
            }
            inverses.push(inverse);
        }
        while self.open.len() > MAX_LEDGER_ENTRIES {
            self.open.pop_front();
        }
        inverses
    }

    fn invert(&mut self, action: &Action, model: &Model) -> (Option<Action>, bool) {
        match action {
            Action::SetAffinity { pid, tid, cpus, .. } => {
                let thread = model.app(*pid).and_then(|app| find(model, app, *tid));
                let mask = self.masks.entry(*tid).or_insert_with(|| {
                    let first = thread.map(|thread| thread.allowed.clone()).unwrap_or_default();
                    Mask { pid: *pid, now: first.clone(), first }
                });
                let before = core::mem::replace(&mut mask.now, cpus.clone());
                // The old mask alone would leave the thread where the plan put it.
                let via = thread.map(|thread| thread.cpu).filter(|cpu| before.contains(*cpu));
                (Some(Action::SetAffinity { pid: *pid, tid: *tid, cpus: before, via }), true)
            }
            Action::MovePages { pid, mechanism, pages } => {
                let pages = pages.iter().map(turned).collect();
                (Some(Action::MovePages { pid: *pid, mechanism: *mechanism, pages }), false)
            }
            Action::Replicate { pid, pages } => {
                (Some(Action::Unreplicate { pid: *pid, pages: pages.clone() }), false)
            }
            Action::MoveProcessMemory { pid, nodes, freeze, memory } => {
                let back = || Action::MoveProcessMemory {
                    pid: *pid,
                    nodes: nodes
                        .iter()
                        .map(|one| NodeMove { from: one.to, to: one.from })
                        .collect(),
                    freeze: *freeze,
                    memory: *memory,
                };
                let mixes = model.app(*pid).is_some_and(|app| mixes(app, nodes));
                ((!mixes).then(back), false)
            }
            Action::Unreplicate { .. } => (None, false),
            Action::SetSampling { .. } => (None, true),
        }
    }

    /// Removes entries of steps that the host did not carry out: masks that were not set, and
    /// memory that did not move.
    pub fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        let failed =
            outcomes.iter().filter(|one| one.plan == plan.number && one.result != StepResult::Done);
        for outcome in failed {
            if let Some(pid) =
                plan.steps.get(outcome.step).and_then(|step| moves_all_of(&step.action))
                && !outcome.result.has_effect()
            {
                self.mixed.remove(&(pid, plan.number));
            }
            let inverse =
                plan.inverses.get(outcome.step).and_then(|inverse| inverse.action.as_ref());
            let Some(Action::SetAffinity { tid, cpus, .. }) = inverse else { continue };
            if let Some(mask) = self.masks.get_mut(tid) {
                mask.now = cpus.clone();
            }
            let failed = (plan.number, outcome.step);
            self.open.retain(|one| (one.inverse.plan, one.inverse.step) != failed);
        }
    }

    /// Takes the actions that undo these plans for a process out of the ledger, last change first,
    /// each with the policy of the undone step. It returns none if a plan merged the process's
    /// memory with other memory of the same process. Threads that went back alone would be far from
    /// their memory (emulated, asymsched-two: 0.5 times the speed of Linux).
    pub fn undo(&mut self, pid: Pid, plans: &[u64]) -> Vec<(&'static str, Action)> {
        if plans.iter().any(|plan| self.mixed.contains(&(pid, *plan))) {
            self.settle(pid, plans);
            return Vec::new();
        }
        let of = |one: &Open| plans.contains(&one.inverse.plan) && one.pid() == Some(pid);
        let taken = self.open.iter().filter(|one| of(one)).rev();
        let actions = taken.filter_map(|one| Some((one.policy, one.inverse.action.clone()?)));
        let actions = actions.collect();
        self.open.retain(|one| !of(one));
        actions
    }

    /// Forgets the inverses of pages after a trial accepted the change. Masks stay in the ledger.
    pub fn settle(&mut self, pid: Pid, plans: &[u64]) {
        self.mixed.retain(|(of, plan)| *of != pid || !plans.contains(plan));
        self.open.retain(|one| !plans.contains(&one.inverse.plan) || one.pid() != Some(pid));
    }

    /// The actions that restore the first mask of every thread, for the end of the manager.
    #[must_use]
    pub fn restore(&self) -> Vec<Action> {
        let changed = self.masks.iter().filter(|(_, mask)| mask.now != mask.first);
        changed
            .map(|(tid, mask)| Action::SetAffinity {
                pid: mask.pid,
                tid: *tid,
                cpus: mask.first.clone(),
                via: None,
            })
            .collect()
    }

    /// The mask that Rondpoint gave to a thread, if any.
    #[must_use]
    pub fn mask(&self, tid: Tid) -> Option<&CpuSet> {
        self.masks.get(&tid).map(|mask| &mask.now)
    }

    /// Marks the threads in a model whose masks Rondpoint narrowed.
    pub fn tell_masks(&self, model: &mut Model) {
        let narrows = |tid| self.masks.get(&tid).is_some_and(|mask| mask.now != mask.first);
        model.threads.iter_mut().for_each(|thread| thread.is_narrowed = narrows(thread.tid));
    }

    /// Forgets threads and processes that are gone.
    pub fn forget_gone(&mut self, model: &Model, is_there: impl Fn(Pid) -> bool) {
        self.open.retain(|one| one.pid().is_none_or(&is_there));
        self.mixed.retain(|(pid, _)| is_there(*pid));
        self.masks.retain(|tid, mask| {
            let app = model.app(mask.pid).filter(|app| is_there(app.pid));
            app.is_some_and(|app| find(model, app, *tid).is_some())
        });
    }
}

/// Whether memory comes to a node where other memory of the process stays, or from several nodes to
/// one. Then the two cannot be separated later. Moving all of it back would move more than came.
fn mixes(app: &App, nodes: &[NodeMove]) -> bool {
    let to_same =
        |(place, one): (usize, &NodeMove)| nodes[..place].iter().any(|other| other.to == one.to);
    if nodes.iter().enumerate().any(to_same) {
        return true;
    }
    let resident = |node: usize| app.memory.as_ref().and_then(|memory| memory.get(node)).copied();
    let stays = |node: usize| nodes.iter().all(|one| one.from != node);
    nodes.iter().any(|one| stays(one.to) && resident(one.to).is_some_and(|bytes| bytes > Bytes(0)))
}

/// The process of a bulk move.
fn moves_all_of(action: &Action) -> Option<Pid> {
    match action {
        Action::MoveProcessMemory { pid, .. } => Some(*pid),
        _ => None,
    }
}

fn find<'a>(model: &'a Model, app: &App, tid: Tid) -> Option<&'a Thread> {
    let threads = model.threads_of(app);
    threads.binary_search_by_key(&tid, |thread| thread.tid).ok().map(|place| &threads[place])
}

fn turned(page: &PageMove) -> PageMove {
    PageMove { from: page.to, to: page.from, ..*page }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Mechanism, PageCounts, Proposal, Reason};
    use crate::units::{Bytes, Nanos};
    use alloc::string::{String, ToString};
    use alloc::vec;

    fn plan(number: u64, actions: Vec<Action>) -> Plan {
        let reason = || Reason::Other(String::from("a test"));
        let step = |action| Proposal { policy: "test", action, reason: reason() };
        Plan { number, steps: actions.into_iter().map(step).collect(), ..Plan::default() }
    }

    fn moved(address: u64, from: u16, to: u16) -> Action {
        let pages = vec![PageMove { address, shift: 12, from, to }];
        Action::MovePages { pid: Pid(1), mechanism: Mechanism::Interleaving, pages }
    }

    fn text(actions: &[Action]) -> Vec<String> {
        actions.iter().map(ToString::to_string).collect()
    }

    /// The actions that undo these plans for process 1.
    fn undone(ledger: &mut Ledger, plans: &[u64]) -> Vec<Action> {
        ledger.undo(Pid(1), plans).into_iter().map(|(_, action)| action).collect()
    }

    #[test]
    fn every_step_has_its_inverse_and_sampling_needs_none() {
        let bulk = |nodes: &[(usize, usize)]| Action::MoveProcessMemory {
            pid: Pid(1),
            nodes: nodes.iter().map(|&(from, to)| NodeMove { from, to }).collect(),
            freeze: false,
            memory: Bytes(4096),
        };
        let pages = vec![PageMove { address: 0x5000, shift: 12, from: 2, to: 2 }];
        let sampling = crate::plan::Sampling::Off;
        let actions = vec![
            moved(0x1000, 0, 3),
            bulk(&[(0, 1), (1, 0), (2, 5)]),
            Action::Replicate { pid: Pid(1), pages },
            Action::SetSampling { pid: None, sampling },
        ];
        let inverses = Ledger::default().enter(&plan(1, actions), &Model::empty(8));
        let actions: Vec<Action> =
            inverses.iter().filter_map(|inverse| inverse.action.clone()).collect();
        let expected = [
            "move 1 page of 1 (interleaving): 1 × 3→0",
            "move 4.0 KiB of 1: 1→0 0→1 5→2",
            "unreplicate 1 page of 1",
        ];
        assert_eq!(text(&actions), expected);
        assert_eq!(inverses.len(), 4);
        assert_eq!(inverses[3].action, None);
    }

    #[test]
    fn a_model_is_told_which_masks_were_narrowed_until_they_are_put_back() {
        let mut model = Model::empty(2);
        let all = CpuSet::first(4);
        model.threads = [1, 2].map(|tid| Thread::new(Tid(tid), 0, 0, all.clone())).into();
        model.apps = vec![App::new(Pid(1), 0..2)];
        let mut ledger = Ledger::default();
        let mut narrowed = |cpus: CpuSet| {
            let action = Action::SetAffinity { pid: Pid(1), tid: Tid(1), cpus, via: None };
            let plan = plan(1, vec![action]);
            ledger.enter(&plan, &model);
            let (spent, frozen) = (Nanos(1), Nanos(0));
            let done = Outcome { plan: 1, step: 0, result: StepResult::Done, spent, frozen };
            ledger.learn(&plan, &[done]);
            let mut told = model.clone();
            ledger.tell_masks(&mut told);
            told.threads.iter().map(|thread| thread.is_narrowed).collect::<Vec<bool>>()
        };
        assert_eq!(narrowed(CpuSet::first(2)), [true, false]);
        assert_eq!(narrowed(all.clone()), [false, false]);
    }

    #[test]
    fn memory_that_comes_to_other_memory_of_the_process_is_not_sent_back_with_it() {
        // Checks the moves that undo `nodes`, for a process with `resident` KiB on each node. Some
        // moves have no way back.
        let check = |resident: &[u64], nodes: &[(usize, usize)], expected: &[&str]| {
            let mut model = Model::empty(resident.len());
            let mut app = App::new(Pid(1), 0..0);
            app.memory = Some(resident.iter().map(|kib| Bytes(kib << 10)).collect());
            model.apps.push(app);
            let action = Action::MoveProcessMemory {
                pid: Pid(1),
                nodes: nodes.iter().map(|&(from, to)| NodeMove { from, to }).collect(),
                freeze: false,
                memory: Bytes(4096),
            };
            let mut ledger = Ledger::default();
            ledger.enter(&plan(1, vec![action]), &model);
            assert_eq!(text(&undone(&mut ledger, &[1])), expected, "{resident:?} {nodes:?}");
        };
        check(&[4, 0, 8], &[(0, 1)], &["move 4.0 KiB of 1: 1→0"]);
        check(&[4, 8, 0], &[(0, 1)], &[]);
        check(&[4, 8, 0], &[(0, 1), (1, 0)], &["move 4.0 KiB of 1: 1→0 0→1"]);
        check(&[4, 8, 0], &[(0, 1), (1, 2)], &["move 4.0 KiB of 1: 1→0 2→1"]);
        check(&[4, 8, 4], &[(0, 1), (1, 2)], &[]);
        check(&[4, 8, 0], &[(0, 2), (1, 2)], &[]);
    }

    #[test]
    fn threads_are_not_sent_back_without_the_memory_that_followed_them() {
        // Checks how many steps are undone, for a process with `resident` KiB on each node.
        let check = |resident: [u64; 2], result: StepResult, expected: usize| {
            let mut model = Model::empty(2);
            let mut app = App::new(Pid(1), 0..1);
            app.memory = Some(resident.iter().map(|kib| Bytes(kib << 10)).collect());
            model.apps.push(app);
            model.threads.push(Thread::new(Tid(1), 0, 0, CpuSet::first(4)));
            let cpus = CpuSet::first(2);
            let thread = Action::SetAffinity { pid: Pid(1), tid: Tid(1), cpus, via: None };
            let memory = Action::MoveProcessMemory {
                pid: Pid(1),
                nodes: vec![NodeMove { from: 0, to: 1 }],
                freeze: false,
                memory: Bytes(4096),
            };
            let mut ledger = Ledger::default();
            ledger.enter(&plan(1, vec![thread, moved(0x1000, 0, 1)]), &model);
            let mut bulk = plan(2, vec![memory]);
            bulk.inverses = ledger.enter(&bulk, &model);
            let (spent, frozen) = (Nanos(0), Nanos(0));
            ledger.learn(&bulk, &[Outcome { plan: 2, step: 0, result, spent, frozen }]);
            ledger.settle(Pid(2), &[1, 2]);
            ledger.settle(Pid(1), &[3]);
            assert_eq!(ledger.undo(Pid(1), &[1, 2]).len(), expected, "{resident:?}");
            assert!(ledger.undo(Pid(1), &[1, 2]).is_empty(), "it is settled");
        };
        let pages = |moved| StepResult::Pages(PageCounts { moved, ..PageCounts::default() });
        check([8, 0], pages(2), 3);
        check([8, 4], pages(2), 0);
        check([8, 4], pages(0), 2);
        check([8, 4], StepResult::Refused { errno: 1 }, 2);
    }

    #[test]
    fn what_is_gone_is_forgotten_and_the_rest_is_not() {
        let mut model = Model::empty(4);
        for number in [1, 2] {
            let place = model.threads.len();
            model.apps.push(App::new(Pid(number), place..place + 1));
            let thread = Thread::new(Tid(number), place, 0, CpuSet::first(4));
            model.threads.push(thread);
        }
        let mut ledger = Ledger::default();
        let cpus = CpuSet::first(2);
        let mask = |number| {
            let (pid, tid) = (Pid(number), Tid(number));
            Action::SetAffinity { pid, tid, cpus: cpus.clone(), via: None }
        };
        ledger.enter(&plan(1, vec![moved(0x1000, 0, 1), mask(1), mask(2)]), &model);
        let whole = ledger.clone();
        ledger.forget_gone(&model, |_| true);
        assert_eq!(ledger, whole, "all are there");
        ledger.forget_gone(&model, |pid| pid == Pid(2));
        assert_eq!((ledger.mask(Tid(1)), ledger.mask(Tid(2))), (None, Some(&cpus)));
        assert!(ledger.undo(Pid(1), &[1]).is_empty());
        model.threads.pop();
        model.apps[1].threads = 1..1;
        ledger.forget_gone(&model, |pid| pid == Pid(2));
        assert_eq!(ledger.mask(Tid(2)), None, "the thread has ended");
        assert_eq!(ledger.undo(Pid(2), &[1]).len(), 1);
    }

    #[test]
    fn the_oldest_pages_are_settled_first_and_only_beyond_the_bound() {
        let mut ledger = Ledger::default();
        let model = Model::empty(4);
        for number in 0..=MAX_LEDGER_ENTRIES as u64 {
            ledger.enter(&plan(number, vec![moved(number << 12, 0, 1)]), &model);
        }
        assert_eq!(ledger.undo(Pid(1), &[0]).len(), 0, "one more than there is room for");
        assert_eq!(ledger.undo(Pid(1), &[1]).len(), 1);
        assert_eq!(ledger.undo(Pid(1), &[MAX_LEDGER_ENTRIES as u64]).len(), 1);
    }

    #[test]
    fn a_mask_that_the_host_refused_is_not_ours() {
        let mut model = Model::empty(1);
        model.apps.push(crate::model::App::new(Pid(1), 0..1));
        model.threads.push(crate::model::Thread::new(Tid(1), 0, 0, CpuSet::first(4)));
        let mut ledger = Ledger::default();
        let set = |ledger: &mut Ledger, number: u64, cpus: usize, result: StepResult| {
            let action = Action::SetAffinity {
                pid: Pid(1),
                tid: Tid(1),
                cpus: CpuSet::first(cpus),
                via: None,
            };
            let mut plan = plan(number, vec![action]);
            plan.inverses = ledger.enter(&plan, &model);
            let outcome =
                Outcome { plan: number, step: 0, result, spent: Nanos(0), frozen: Nanos(0) };
            ledger.learn(&plan, &[outcome]);
            ledger.mask(Tid(1)).map(CpuSet::len)
        };
        assert_eq!(set(&mut ledger, 1, 2, StepResult::Refused { errno: 1 }), Some(4));
        assert!(ledger.restore().is_empty());
        assert_eq!(set(&mut ledger, 2, 2, StepResult::Done), Some(2));
        assert_eq!(set(&mut ledger, 3, 1, StepResult::Gone), Some(2));
        assert_eq!(text(&ledger.restore()), ["thread 1 of 1 to CPUs 0-3"]);
        assert!(ledger.undo(Pid(1), &[1, 3]).is_empty());
    }

    #[test]
    fn an_undone_thread_goes_back_to_the_cpu_that_it_was_on() {
        let mut model = Model::empty(1);
        model.apps.push(App::new(Pid(1), 0..1));
        model.threads.push(Thread::new(Tid(1), 0, 3, CpuSet::first(4)));
        let mut ledger = Ledger::default();
        let cpus = CpuSet::first(2);
        let action = Action::SetAffinity { pid: Pid(1), tid: Tid(1), cpus, via: None };
        ledger.enter(&plan(1, vec![action]), &model);
        let undo = undone(&mut ledger, &[1]);
        let to =
            Action::SetAffinity { pid: Pid(1), tid: Tid(1), cpus: CpuSet::first(4), via: Some(3) };
        assert_eq!(undo, [to]);
    }

    #[test]
    fn plans_are_undone_last_change_first_and_once() {
        let mut ledger = Ledger::default();
        let model = Model::empty(4);
        for (number, (from, to)) in [(0, 1), (1, 2), (2, 3)].into_iter().enumerate() {
            ledger.enter(&plan(number as u64 + 1, vec![moved(0x1000, from, to)]), &model);
        }
        ledger.settle(Pid(1), &[1]);
        let undo = undone(&mut ledger, &[1, 2, 3]);
        let expected = [
            "move 1 page of 1 (interleaving): 1 × 3→2",
            "move 1 page of 1 (interleaving): 1 × 2→1",
        ];
        assert_eq!(text(&undo), expected);
        assert!(ledger.undo(Pid(1), &[2, 3]).is_empty());
    }
}
