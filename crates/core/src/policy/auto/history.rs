//! What was done to each process, as far as later decisions depend on it. Learnt from outcomes:
//! what the guard or the host refused was not done.

use super::veto::Veto;
use crate::limits::MAX_REMEMBERED_PAGES;
use crate::model::{App, Model};
use crate::plan::{Action, Mechanism, Outcome, PageMove, Plan, Proposal, Reason, StepResult};
use crate::policy::asymsched::AsymSchedReason;
use crate::units::{Nanos, Pid, Tid};
use alloc::collections::{BTreeMap, BTreeSet};

/// Epochs for which threads rest before pages are placed (K) [ALGORITHMS 5.3, inferred: Carrefour
/// assumes that thread placement is finished].
pub(super) const RESTING_EPOCHS: u64 = 2;
/// Epochs for which a process and its pages stay after Carrefour pulled the pages to where N-MASS
/// had put it [ALGORITHMS 5.4, inferred].
pub(super) const SETTLING_EPOCHS: u64 = 5;
/// Percent of the memory above which a process counts as interleaved [ALGORITHMS 5.4, inferred].
pub(super) const INTERLEAVED_ABOVE_PERCENT: f64 = 20.0;
/// An epoch: the period of all policies but SAM.
pub(super) const EPOCH: Nanos = Nanos::from_secs(1);

/// What was done to one process.
#[derive(Debug, Clone, Default)]
struct Process {
    started: Nanos,
    threads_moved: Option<Nanos>,
    /// N-MASS put it on a node without its data.
    is_left_remote: bool,
    settles_until: Nanos,
    /// Pages that were interleaved and not brought together since, with their sizes.
    interleaved: BTreeMap<u64, u8>,
    /// Time that moving its pages took.
    spent: Nanos,
}

/// Threads of a process that exchanged its nodes for others.
#[derive(Debug, Clone, Default)]
pub(super) struct Permuted {
    pub(super) tids: BTreeSet<Tid>,
    images: BTreeMap<usize, usize>,
}

impl Permuted {
    /// Where the occupants of a node went.
    pub(super) fn image(&self, node: usize) -> usize {
        self.images.get(&node).copied().unwrap_or(node)
    }
}

/// What was done to all processes.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    now: Nanos,
    processes: BTreeMap<Pid, Process>,
    permuted: BTreeMap<Pid, Permuted>,
}

impl History {
    /// Time passes; processes that ended are forgotten.
    pub(super) fn advance(&mut self, model: &Model) {
        self.now = model.at;
        self.processes.retain(|pid, history| {
            model.app(*pid).is_some_and(|app| app.started == history.started)
        });
        for app in &model.apps {
            let fresh = || Process { started: app.started, ..Process::default() };
            self.processes.entry(app.pid).or_insert_with(fresh);
        }
    }

    /// Takes in what became of a plan.
    pub(super) fn learn(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        for outcome in outcomes.iter().filter(|outcome| outcome.plan == plan.number) {
            let Some(step) = plan.steps.get(outcome.step) else { continue };
            let Some(history) = step.action.pid().and_then(|pid| self.processes.get_mut(&pid))
            else {
                continue;
            };
            match (&step.action, &outcome.result) {
                (Action::SetAffinity { pid, tid, .. }, StepResult::Done) => {
                    history.thread_moved(step, self.now);
                    if let Reason::AsymSched(AsymSchedReason::Placement(placement)) = &step.reason {
                        let permuted = self.permuted.entry(*pid).or_default();
                        permuted.tids.insert(*tid);
                        permuted.images.insert(placement.from, placement.to);
                    }
                }
                (Action::MovePages { mechanism, pages, .. }, StepResult::Pages(counts)) => {
                    history.spent += outcome.spent.max(outcome.frozen);
                    if counts.moved > 0 {
                        let undone = matches!(step.reason, Reason::Undo(_));
                        let mechanism = (!undone).then_some(*mechanism);
                        history.pages_moved(mechanism, pages, self.now);
                    }
                }
                (Action::MoveProcessMemory { .. }, StepResult::Pages(_)) => {
                    history.spent += outcome.spent.max(outcome.frozen);
                }
                _ => {}
            }
        }
    }

    /// The processes that changed nodes since the last call.
    pub(super) fn take_permuted(&mut self) -> BTreeMap<Pid, Permuted> {
        core::mem::take(&mut self.permuted)
    }

    /// Time that moving the pages and memory of a process took.
    pub(super) fn spent(&self, pid: Pid) -> Nanos {
        self.processes.get(&pid).map_or(Nanos(0), |history| history.spent)
    }

    /// Pages wait for the threads.
    pub(super) fn threads_moved(&self, pid: Pid) -> Option<Veto> {
        let moved = self.processes.get(&pid)?.threads_moved?;
        // An epoch may end a little early.
        let epochs = (self.now.since(moved).0 + EPOCH.0 / 10) / EPOCH.0;
        (epochs < RESTING_EPOCHS).then_some(Veto::ThreadsMoved { epochs, needed: RESTING_EPOCHS })
    }

    /// N-MASS has weighed the distance to its data against the company there. It does so for
    /// processes with one thread.
    pub(super) fn left_remote(&self, app: &App) -> Option<Veto> {
        let is_left = self.processes.get(&app.pid)?.is_left_remote && app.threads.len() == 1;
        is_left.then_some(Veto::LeftRemote)
    }

    /// A process stays after its pages came to it, and so do the pages.
    pub(super) fn settling(&self, pid: Pid) -> Option<Veto> {
        let left = self.processes.get(&pid)?.settles_until.since(self.now);
        (left > Nanos(0)).then_some(Veto::Settling { left })
    }

    /// Whether enough of a process is interleaved on purpose to make its remote accesses
    /// meaningless.
    pub(super) fn interleaved(&self, app: &App) -> Option<Veto> {
        let percent = self.interleaved_percent(app)?;
        let above = INTERLEAVED_ABOVE_PERCENT;
        (percent > above).then_some(Veto::Interleaved { percent, above })
    }

    /// Percent of its memory; `None` if the memory is not known.
    fn interleaved_percent(&self, app: &App) -> Option<f64> {
        let total: u64 = app.memory.as_ref()?.iter().map(|bytes| bytes.0).sum();
        let history = self.processes.get(&app.pid)?;
        let spread: u64 = history.interleaved.values().map(|shift| 1_u64 << shift).sum();
        (total > 0).then(|| 100.0 * (spread as f64 / total as f64).min(1.0))
    }

    /// Processes that are interleaved.
    pub(super) fn all_interleaved(&self, model: &Model) -> BTreeSet<Pid> {
        let is_interleaved = |app: &&App| self.interleaved(app).is_some();
        model.apps.iter().filter(is_interleaved).map(|app| app.pid).collect()
    }
}

impl Process {
    fn thread_moved(&mut self, step: &Proposal, now: Nanos) {
        self.threads_moved = Some(now);
        match &step.reason {
            Reason::NMass(reason) => self.is_left_remote = reason.to != reason.home,
            _ => self.is_left_remote = false,
        }
    }

    /// `mechanism` is `None` where it was undone.
    fn pages_moved(&mut self, mechanism: Option<Mechanism>, pages: &[PageMove], now: Nanos) {
        match mechanism {
            Some(Mechanism::Interleaving) => {
                let room = MAX_REMEMBERED_PAGES.saturating_sub(self.interleaved.len());
                let spread = pages.iter().take(room);
                self.interleaved.extend(spread.map(|page| (page.address, page.shift)));
            }
            Some(Mechanism::CoLocation | Mechanism::Following) | None => {
                for page in pages {
                    self.interleaved.remove(&page.address);
                }
            }
        }
        if mechanism == Some(Mechanism::CoLocation) && core::mem::take(&mut self.is_left_remote) {
            self.settles_until = now + Nanos(SETTLING_EPOCHS * EPOCH.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::plan::PageCounts;
    use crate::policy::nmass::{Cause, Due, NMassReason, Penalty, PenaltySource};
    use crate::units::Bytes;
    use alloc::string::String;
    use alloc::vec;

    const PID: Pid = Pid(7);

    fn model(second: u64) -> Model {
        let mut model = Model::empty(2);
        model.at = Nanos::from_secs(second);
        let mut app = App::new(PID, 0..0);
        app.memory = Some(vec![Bytes(4096 * 6), Bytes(4096 * 4)]);
        model.apps.push(app);
        model
    }

    /// One action with its result, at the time to which `history` was advanced.
    fn done(history: &mut History, action: Action, reason: Reason, moved: u64) {
        let result = match action {
            Action::SetAffinity { .. } => StepResult::Done,
            _ => StepResult::Pages(PageCounts { moved, ..PageCounts::default() }),
        };
        let steps = vec![Proposal { policy: "test", action, reason }];
        let plan = Plan { number: 1, steps, ..Plan::default() };
        let spent = Nanos::from_millis(10);
        history.learn(&plan, &[Outcome { plan: 1, step: 0, result, spent, frozen: Nanos(0) }]);
    }

    fn because() -> Reason {
        Reason::Other(String::from("a test"))
    }

    fn thread_moves(history: &mut History, reason: Reason) {
        let cpus = CpuSet::first(1);
        done(history, Action::SetAffinity { pid: PID, tid: Tid(7), cpus, via: None }, reason, 0);
    }

    fn pages_move(history: &mut History, mechanism: Mechanism, pages: u64, moved: u64) {
        let page = |number| PageMove { address: number << 12, shift: 12, from: 0, to: 1 };
        let pages = (1..=pages).map(page).collect();
        done(history, Action::MovePages { pid: PID, mechanism, pages }, because(), moved);
    }

    fn left_remote() -> Reason {
        Reason::NMass(NMassReason {
            mpki: 1.0,
            penalty: Penalty { value: 1.0, source: PenaltySource::Regression },
            home: 0,
            from: 0,
            to: 1,
            cause: Cause::HomeFull,
            threshold_mpki: 60.0,
            due: Due::Started(PID),
        })
    }

    fn history_at(second: u64) -> History {
        let mut history = History::default();
        history.advance(&model(second));
        history
    }

    #[test]
    fn pages_wait_two_epochs_after_a_thread_moved() {
        let mut history = history_at(10);
        assert_eq!(history.threads_moved(PID), None);
        thread_moves(&mut history, because());
        let mut veto = |second: u64| {
            history.advance(&model(second));
            history.threads_moved(PID)
        };
        assert_eq!(veto(10), Some(Veto::ThreadsMoved { epochs: 0, needed: 2 }));
        assert_eq!(veto(11), Some(Veto::ThreadsMoved { epochs: 1, needed: 2 }));
        assert_eq!(veto(12), None);
    }

    #[test]
    fn a_process_settles_where_its_pages_came_to_it() {
        let mut history = history_at(10);
        pages_move(&mut history, Mechanism::CoLocation, 1, 1);
        assert_eq!(history.settling(PID), None, "it was not left remote");
        thread_moves(&mut history, left_remote());
        pages_move(&mut history, Mechanism::CoLocation, 1, 0);
        assert_eq!(history.settling(PID), None, "the host moved nothing");
        pages_move(&mut history, Mechanism::CoLocation, 1, 1);
        assert_eq!(history.settling(PID), Some(Veto::Settling { left: Nanos::from_secs(5) }));
        history.advance(&model(14));
        assert_eq!(history.settling(PID), Some(Veto::Settling { left: Nanos::from_secs(1) }));
        history.advance(&model(15));
        assert_eq!(history.settling(PID), None);
    }

    #[test]
    fn a_process_that_came_home_meanwhile_does_not_settle() {
        let mut history = history_at(10);
        thread_moves(&mut history, left_remote());
        thread_moves(&mut history, because());
        pages_move(&mut history, Mechanism::CoLocation, 1, 1);
        assert_eq!(history.settling(PID), None);
    }

    #[test]
    fn a_process_is_interleaved_above_a_fifth_of_its_memory() {
        let veto = |history: &History| history.interleaved(&model(10).apps[0]);
        let mut history = history_at(10);
        pages_move(&mut history, Mechanism::Interleaving, 2, 2);
        assert_eq!(veto(&history), None, "two of ten pages");
        pages_move(&mut history, Mechanism::Interleaving, 3, 3);
        assert_eq!(veto(&history), Some(Veto::Interleaved { percent: 30.0, above: 20.0 }));
        assert_eq!(history.all_interleaved(&model(10)), [PID].into());
        pages_move(&mut history, Mechanism::CoLocation, 1, 1);
        assert_eq!(veto(&history), None, "a page that was brought together is not spread");
        assert_eq!(history.interleaved(&App { memory: None, ..App::new(PID, 0..0) }), None);
    }

    #[test]
    fn undone_interleaving_is_none() {
        let mut history = history_at(10);
        pages_move(&mut history, Mechanism::Interleaving, 9, 9);
        let page = |number: u64| PageMove { address: number << 12, shift: 12, from: 1, to: 0 };
        let pages = (1..=9).map(page).collect();
        let back = Action::MovePages { pid: PID, mechanism: Mechanism::Interleaving, pages };
        let undo = crate::plan::Undo { plan: 1, change: -0.1, noise: 0.01 };
        done(&mut history, back, Reason::Undo(undo), 9);
        assert_eq!(history.interleaved(&model(10).apps[0]), None);
    }

    #[test]
    fn another_process_of_the_same_number_has_no_past() {
        let mut history = history_at(10);
        thread_moves(&mut history, because());
        let mut other = model(10);
        other.apps[0].started = Nanos::from_secs(9);
        history.advance(&other);
        assert_eq!(history.threads_moved(PID), None);
    }
}
