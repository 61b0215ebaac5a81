//! Processes whose threads were moved in one plan: they gave each other room, so they are judged together.
//!
//! N-MASS lets one process use memory from afar so that another, which uses more of it, need not. By itself the first is worse off, and
//! undoing its half would bring back neither placement: two processes would share what one had. So an exchange stays when its processes
//! gain in the mean, and is undone as a whole when they do not and one of them is worse off.

use super::measure::{Change, Verdict, mean};
use super::{Judged, Trial};
use crate::limits::{MAX_TRIAL_WINDOWS, MIN_TRIAL_WINDOWS};
use crate::plan::{Kind, Plan};
use crate::units::Pid;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Whether a plan moves threads of more than one process for the same policy, by policy.
pub(super) fn exchanging(plan: &Plan) -> BTreeSet<&'static str> {
    let mut first: BTreeMap<&'static str, Pid> = BTreeMap::new();
    let mut several = BTreeSet::new();
    for step in plan.steps.iter().filter(|step| step.action.kind() == Kind::Affinity) {
        let Some(pid) = step.action.pid() else { continue };
        if *first.entry(step.policy).or_insert(pid) != pid {
            several.insert(step.policy);
        }
    }
    several
}

impl Trial {
    /// Enough windows have passed since its last action.
    fn is_settled(&self) -> bool {
        self.quiet > MIN_TRIAL_WINDOWS || self.is_overdue()
    }

    /// It has been acted upon for so long that it is judged by the last windows.
    fn is_overdue(&self) -> bool {
        self.after.len() >= MAX_TRIAL_WINDOWS
    }
}

/// Trials that are to be judged now, in groups that are judged together. A settled one waits for those that it was exchanged with,
/// until one of them is overdue.
pub(super) fn due(trials: &BTreeMap<Pid, &Trial>) -> Vec<Vec<Pid>> {
    let mut groups = Vec::new();
    let mut left: BTreeSet<Pid> = trials.keys().copied().collect();
    while let Some(first) = left.pop_first() {
        let group = with_partners(first, &mut left, trials);
        let settled: Vec<Pid> =
            group.iter().copied().filter(|pid| trials[pid].is_settled()).collect();
        let is_due =
            settled.len() == group.len() || group.iter().any(|pid| trials[pid].is_overdue());
        if is_due && !settled.is_empty() {
            groups.push(settled);
        }
    }
    groups
}

/// A process and all that it was exchanged with, directly or by way of others; they are taken from `left`.
fn with_partners(first: Pid, left: &mut BTreeSet<Pid>, trials: &BTreeMap<Pid, &Trial>) -> Vec<Pid> {
    let mut group = Vec::from([first]);
    let mut next = 0;
    while let Some(pid) = group.get(next) {
        let one = trials[pid];
        let are_partners = |other: &&Pid| !one.exchanges.is_disjoint(&trials[*other].exchanges);
        let partners: Vec<Pid> = left.iter().filter(are_partners).copied().collect();
        partners.iter().for_each(|partner| {
            left.remove(partner);
        });
        group.extend(partners);
        next += 1;
    }
    group
}

/// Gives each process of an exchange the verdict that the whole deserves. One by itself keeps its own.
pub(super) fn settle(group: &mut [Judged]) {
    let is_worse = |judged: &Judged| judged.verdict == Verdict::Worse;
    if group.len() < 2 || !group.iter().any(is_worse) {
        return;
    }
    let compared = group.iter().filter(|judged| judged.verdict != Verdict::PhaseChange);
    let changes: Vec<Change> = compared.filter_map(|judged| judged.comparison.combined).collect();
    let gains = mean(&changes).is_some_and(|whole| whole.change > whole.noise)
        && group.iter().any(|judged| judged.verdict == Verdict::Better);
    for judged in group {
        judged.verdict = match (gains, judged.verdict) {
            (true, Verdict::Worse) => Verdict::Traded,
            (true, verdict) => verdict,
            (false, Verdict::Worse) => Verdict::Worse,
            (false, _) => Verdict::Returned,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::Trials;
    use super::*;
    use crate::index_set::CpuSet;
    use crate::model::{App, Model};
    use crate::plan::{Action, Proposal, Reason};
    use crate::units::Tid;
    use alloc::format;
    use alloc::string::{String, ToString as _};

    /// A window in which each process, by number, makes so much progress.
    fn window(progress: &[f64]) -> Model {
        let mut model = Model::empty(2);
        let app = |(number, progress): (usize, &f64)| App {
            progress_per_s: Some(*progress),
            cpu_percent: 100.0,
            ..App::new(Pid(number as u32 + 1), 0..0)
        };
        model.apps = progress.iter().enumerate().map(app).collect();
        model
    }

    fn plan(number: u64, pids: &[u32]) -> Plan {
        let step = |pid: &u32| Proposal {
            policy: "test",
            action: Action::SetAffinity {
                pid: Pid(*pid),
                tid: Tid(*pid),
                cpus: CpuSet::first(1),
                via: None,
            },
            reason: Reason::Other("a test".to_string()),
        };
        Plan { number, steps: pids.iter().map(step).collect(), ..Plan::default() }
    }

    /// Processes make this progress, are moved by these plans one window after the other, and make that progress; what came of it.
    fn check(before: &[f64], plans: &[&[u32]], after: &[f64], expected: &str) {
        let mut trials = Trials::default();
        (0..4).for_each(|_| assert_eq!(trials.observe(&window(before)), []));
        for (number, pids) in (1..).zip(plans) {
            trials.begin(&plan(number, pids));
            assert_eq!(trials.observe(&window(before)), []);
        }
        let mut told: Vec<String> = Vec::new();
        for late in 1..=6 {
            let judged = trials.observe(&window(after));
            told.extend(judged.iter().map(|one| format!("{late}:{} {:?}", one.pid, one.verdict)));
        }
        assert_eq!(told.join(", "), expected);
        assert_eq!(trials.running(), BTreeMap::new());
    }

    #[test]
    fn who_is_worse_off_stays_where_the_others_gained_more() {
        check(&[10.0, 10.0], &[&[1, 2]], &[16.0, 8.0], "3:1 Better, 3:2 Traded");
        check(&[10.0, 10.0], &[&[1, 2]], &[12.0, 7.0], "3:1 Returned, 3:2 Worse");
        check(&[10.0, 10.0], &[&[1, 2]], &[12.0, 12.0], "3:1 Better, 3:2 Better");
    }

    #[test]
    fn who_was_moved_alone_is_judged_alone() {
        check(&[10.0, 10.0], &[&[1], &[2]], &[10.0, 8.0], "2:1 Unclear, 3:2 Worse");
    }

    #[test]
    fn partners_wait_for_each_other_and_for_partners_of_partners() {
        check(
            &[10.0, 10.0, 10.0],
            &[&[1, 2], &[2, 3]],
            &[10.0, 8.0, 15.0],
            "3:1 Unclear, 3:2 Traded, 3:3 Better",
        );
    }

    #[test]
    fn pages_of_two_processes_are_no_exchange() {
        let mut both = plan(1, &[1, 2]);
        assert_eq!(exchanging(&both).len(), 1);
        both.steps[1].policy = "other";
        assert_eq!(exchanging(&both).len(), 0);
        both = plan(1, &[1, 2]);
        both.steps[1].action = Action::Replicate { pid: Pid(2), pages: Vec::new() };
        assert_eq!(exchanging(&both).len(), 0);
    }
}
