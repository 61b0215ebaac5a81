//! What our actions cost and brought, by process: pages, refusals of the host, time spent and time frozen.

use crate::model::Model;
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
    /// Pages moved in bulk.
    pub bulk: PageCounts,
    /// Threads restricted.
    pub threads: u64,
    /// Steps that the host refused or does not offer.
    pub refused: u64,
    /// Steps whose subject was gone.
    pub gone: u64,
    /// Time that the host worked.
    pub spent: Nanos,
    /// Time that the process stood still.
    pub frozen: Nanos,
}

/// The accounts of all processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accounts {
    apps: BTreeMap<Pid, Account>,
}

impl Accounts {
    /// Enters what became of a plan.
    pub fn enter(&mut self, plan: &Plan, outcomes: &[Outcome]) {
        for outcome in outcomes.iter().filter(|outcome| outcome.plan == plan.number) {
            let Some(step) = plan.steps.get(outcome.step) else { continue };
            let Some(pid) = step.action.pid() else { continue };
            let account = self.apps.entry(pid).or_default();
            account.spent += outcome.spent;
            account.frozen += outcome.frozen;
            match (&outcome.result, &step.action) {
                (StepResult::Pages(counts), action) => account.pages_of(action).add(counts),
                (StepResult::Done, Action::SetAffinity { .. }) => account.threads += 1,
                (StepResult::Done, _) => {}
                (StepResult::Gone, _) => account.gone += 1,
                (StepResult::Unsupported | StepResult::Refused { .. }, _) => account.refused += 1,
            }
        }
    }

    /// Sums of one process.
    #[must_use]
    pub fn of(&self, pid: Pid) -> Account {
        self.apps.get(&pid).copied().unwrap_or_default()
    }

    /// Time that movers spent on a process, frozen time included.
    #[must_use]
    pub fn spent(&self, pid: Pid) -> Nanos {
        let account = self.of(pid);
        account.spent + account.frozen
    }

    /// All accounts by pid.
    pub fn iter(&self) -> impl Iterator<Item = (Pid, &Account)> {
        self.apps.iter().map(|(pid, account)| (*pid, account))
    }

    /// Closes the accounts of processes that are gone.
    pub fn forget_gone(&mut self, model: &Model) {
        self.apps.retain(|pid, _| model.app(*pid).is_some());
    }
}

impl Account {
    fn pages_of(&mut self, action: &Action) -> &mut PageCounts {
        match action {
            Action::MovePages { mechanism: Mechanism::CoLocation, .. } => &mut self.colocated,
            Action::MovePages { mechanism: Mechanism::Interleaving, .. } => &mut self.interleaved,
            Action::MovePages { mechanism: Mechanism::Following, .. } => &mut self.followed,
            Action::Replicate { .. } | Action::Unreplicate { .. } => &mut self.replicated,
            _ => &mut self.bulk,
        }
    }

    /// All pages that were moved or replicated, in base pages.
    #[must_use]
    pub fn moved(&self) -> u64 {
        let of = [&self.colocated, &self.interleaved, &self.followed, &self.replicated, &self.bulk];
        of.iter().map(|counts| counts.moved).sum()
    }
}
