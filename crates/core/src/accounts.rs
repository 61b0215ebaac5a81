//! Accounts of the actions on each process: pages moved, refusals of the host, time spent and time
//! frozen.

use crate::plan::{Action, Mechanism, Outcome, PageCounts, Plan, StepResult};
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;

/// Sums for one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Account {
    /// Pages moved to their only accessing node.
    pub colocated: PageCounts,
    /// Pages moved away from busy controllers.
    pub interleaved: PageCounts,
    /// Pages that followed their threads.
    pub followed: PageCounts,
    /// Pages replicated.
    pub replicated: PageCounts,
    /// Pages whose copies were dropped; `moved` counts those that lost them.
    pub dropped: PageCounts,
    /// Pages moved in bulk.
    pub bulk: PageCounts,
    /// Threads restricted.
    pub threads: u64,
    /// Steps that the host refused or does not offer; sampling rates do not count.
    pub refused: u64,
    /// Steps whose process, thread or page had ended.
    pub gone: u64,
    /// Time that the host worked.
    pub spent: Nanos,
    /// Time for which the process was stopped.
    pub frozen: Nanos,
    /// Part of the time, spent and frozen, for changes that a trial found better.
    pub proven: Nanos,
}

/// The accounts of all processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accounts {
    apps: BTreeMap<Pid, Account>,
}

impl Accounts {
    /// Enters the outcomes of a plan.
    pub fn enter(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        for (step, outcome) in plan.results(outcomes) {
            let Some(pid) = step.action.pid() else { continue };
            let account = self.apps.entry(pid).or_default();
            account.spent += outcome.spent;
            account.frozen += outcome.frozen;
            match (&outcome.result, &step.action) {
                (StepResult::Pages(counts), action) => account.pages_of(action).add(counts),
                (StepResult::Done, Action::SetAffinity { .. }) => account.threads += 1,
                (StepResult::Done, _) => {}
                (StepResult::Gone, _) => account.gone += 1,
                // A machine without samples refuses a sampling rate. This is no refused change of
                // the process.
                (_, Action::SetSampling { .. }) => {}
                (StepResult::Unsupported | StepResult::Refused { .. }, _) => account.refused += 1,
            }
        }
    }

    /// Sums of one process.
    #[must_use]
    pub fn of(&self, pid: Pid) -> Account {
        self.apps.get(&pid).copied().unwrap_or_default()
    }

    /// Time that movers spent on a process, with frozen time, for changes that no trial has found
    /// better yet.
    #[must_use]
    pub fn unproven(&self, pid: Pid) -> Nanos {
        let account = self.of(pid);
        (account.spent + account.frozen).since(account.proven)
    }

    /// A trial found the changes of a process better.
    pub fn prove(&mut self, pid: Pid) {
        if let Some(account) = self.apps.get_mut(&pid) {
            account.proven = account.spent + account.frozen;
        }
    }

    /// All accounts by pid.
    pub fn iter(&self) -> impl Iterator<Item = (Pid, &Account)> {
        self.apps.iter().map(|(pid, account)| (*pid, account))
    }

    /// Closes the accounts of processes that are gone.
    pub fn forget_gone(&mut self, is_there: impl Fn(Pid) -> bool) {
        self.apps.retain(|pid, _| is_there(*pid));
    }
}

impl Account {
    fn pages_of(&mut self, action: &Action) -> &mut PageCounts {
        match action {
            Action::MovePages { mechanism: Mechanism::CoLocation, .. } => &mut self.colocated,
            Action::MovePages {
                mechanism: Mechanism::Interleaving | Mechanism::Offloading,
                ..
            } => &mut self.interleaved,
            Action::MovePages { mechanism: Mechanism::Following, .. } => &mut self.followed,
            Action::Replicate { .. } => &mut self.replicated,
            Action::Unreplicate { .. } => &mut self.dropped,
            _ => &mut self.bulk,
        }
    }

    /// All pages that were moved or replicated, in base pages. Dropping copies moves no page.
    #[must_use]
    pub fn moved(&self) -> u64 {
        let of = [&self.colocated, &self.interleaved, &self.followed, &self.replicated, &self.bulk];
        of.iter().map(|counts| counts.moved).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PageMove, Proposal, Reason};
    use alloc::string::String;
    use alloc::vec;

    /// A plan that moves a page of process 1, and its outcome after 42 ns.
    fn moved() -> (Plan, Outcome) {
        let mechanism = Mechanism::Interleaving;
        carried_out(Action::MovePages { pid: Pid(1), mechanism, pages: vec![PAGE] })
    }

    const PAGE: PageMove = PageMove { address: 0x1000, shift: 12, from: 0, to: 1 };

    /// A plan of one action on a page, and its outcome after 42 ns.
    fn carried_out(action: Action) -> (Plan, Outcome) {
        let reason = Reason::Other(String::from("a test"));
        let steps = vec![Proposal { policy: "test", action, reason }];
        let plan = Plan { number: 1, steps, ..Plan::default() };
        let counts = PageCounts { moved: 1, ..PageCounts::default() };
        let outcome = Outcome {
            plan: 1,
            step: 0,
            result: StepResult::Pages(counts),
            spent: Nanos(30),
            frozen: Nanos(12),
        };
        (plan, outcome)
    }

    #[test]
    fn time_that_went_into_what_was_found_better_is_not_held_against_a_process() {
        let (plan, outcome) = moved();
        let mut accounts = Accounts::default();
        accounts.enter(&plan, core::slice::from_ref(&outcome));
        assert_eq!(accounts.unproven(Pid(1)), Nanos(42));
        accounts.prove(Pid(1));
        accounts.prove(Pid(2));
        assert_eq!(accounts.unproven(Pid(1)), Nanos(0));
        accounts.enter(&plan, &[outcome]);
        assert_eq!(accounts.unproven(Pid(1)), Nanos(42));
    }

    #[test]
    fn a_dropped_copy_is_neither_a_copy_nor_a_moved_page() {
        let (pid, pages) = (Pid(1), vec![PAGE]);
        let mut accounts = Accounts::default();
        for action in
            [Action::Replicate { pid, pages: pages.clone() }, Action::Unreplicate { pid, pages }]
        {
            let (plan, outcome) = carried_out(action);
            accounts.enter(&plan, &[outcome]);
        }
        let account = accounts.of(pid);
        assert_eq!((account.replicated.moved, account.dropped.moved), (1, 1));
        assert_eq!(account.moved(), 1);
    }

    #[test]
    fn the_account_of_a_process_that_is_gone_is_closed() {
        let (plan, outcome) = moved();
        let mut accounts = Accounts::default();
        accounts.enter(&plan, &[outcome]);
        accounts.forget_gone(|_| true);
        assert_eq!(accounts.unproven(Pid(1)), Nanos(42));
        accounts.forget_gone(|pid| pid != Pid(1));
        assert_eq!(accounts.unproven(Pid(1)), Nanos(0));
    }
}
