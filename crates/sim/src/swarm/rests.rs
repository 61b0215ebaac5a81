//! The rule of convergence: how long each process is left alone after faults stopped.
//!
//! Under `auto`, any change disturbs a process. A single policy may go on placing pages: the
//! published ones have no rule of rest, and each round treats only pages that samples show. So the
//! first move of a page disturbs nothing there. A page that moves again, a mask, a copy and a bulk
//! move do.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::plan::{Action, Kind, Plan};
use rondpoint_core::{Nanos, Pid};

use super::case::JUDGED;
use super::{Broken, Case};

/// After faults stop, each process of a steady world must be left alone for this long at a stretch.
const QUIET: Nanos = Nanos::from_secs(10);

/// How long each process was left alone after faults stopped.
pub(super) struct Rests {
    steady: bool,
    /// When faults had stopped and all programs had begun.
    begin: Nanos,
    /// By process, the last change, and the longest time without one.
    of: BTreeMap<Pid, (Nanos, Nanos)>,
    /// Process and address of the pages that moved since then. `None` where each move counts.
    placed: Option<BTreeSet<(Pid, u64)>>,
}

impl Rests {
    pub(super) fn new(case: &Case) -> Self {
        let faults = if case.faults.is_some() { case.faults_until_s } else { 0.0 };
        let starts = case.programs.iter().map(|program| program.start_s).fold(0.0, f64::max);
        let begin = Nanos((faults.max(starts) * 1e9) as u64);
        let placed = (case.policy != JUDGED).then(BTreeSet::new);
        Self { steady: case.is_steady(), begin, of: BTreeMap::new(), placed }
    }

    pub(super) fn learn(&mut self, at: Nanos, plan: &Plan) {
        let steps = plan.steps.iter().map(|step| &step.action);
        for action in steps.filter(|action| action.kind() != Kind::Sampling) {
            let goes_on = self.places_pages(at, action);
            if let Some(pid) = action.pid().filter(|_| !goes_on) {
                self.rest(pid, at);
            }
        }
    }

    /// Whether an action moves only pages that have not moved since the beginning.
    fn places_pages(&mut self, at: Nanos, action: &Action) -> bool {
        let Action::MovePages { pid, pages, .. } = action else { return false };
        let Some(placed) = self.placed.as_mut().filter(|_| at >= self.begin) else { return false };
        let first = pages.iter().filter(|page| placed.insert((*pid, page.address))).count();
        first == pages.len()
    }

    /// Ends the rest of a process. Returns the longest one.
    fn rest(&mut self, pid: Pid, at: Nanos) -> Nanos {
        let (last, longest) = self.of.entry(pid).or_insert((self.begin, Nanos(0)));
        *longest = (*longest).max(at.since(*last));
        *last = at.max(*last);
        *longest
    }

    pub(super) fn check(mut self, end: Nanos) -> Result<(), Broken> {
        let pids: Vec<Pid> = self.of.keys().copied().filter(|_| self.steady).collect();
        let but = if self.placed.is_some() { " but for first moves of pages" } else { "" };
        for pid in pids {
            let longest = self.rest(pid, end);
            if longest < QUIET {
                let what = format!(
                    "process {pid}: never left alone{but} for {QUIET} after faults stopped, only \
                     for {longest}"
                );
                return Err(Broken::new("convergence", what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Mode, Ranges, end};
    use super::*;
    use rondpoint_core::plan::{Mechanism, PageMove};
    use rondpoint_core::units::PAGE_SHIFT;
    use rondpoint_core::{CpuSet, Proposal, Reason, Tid};

    /// Whether each process is left alone at some time of 60 s, by the actions of each second.
    fn rests(policy: &str, actions: impl Fn(u64) -> Vec<Action>) -> bool {
        let drawn = Mode::Calm.case(0, &Ranges::frozen());
        let mut case = Case { policy: policy.to_string(), seconds: 60.0, ..drawn };
        case.programs.iter_mut().for_each(|program| program.start_s = 0.0);
        let mut rests = Rests { steady: true, ..Rests::new(&case) };
        for second in 1..60 {
            let reason = || Reason::Other("a test".to_string());
            let step = |action| Proposal { policy: "test", action, reason: reason() };
            let steps = actions(second).into_iter().map(step).collect();
            rests.learn(Nanos::from_secs(second), &Plan { steps, ..Plan::default() });
        }
        rests.check(end(&case)).is_ok()
    }

    fn mask(pid: u32) -> Action {
        Action::SetAffinity { pid: Pid(pid), tid: Tid(pid), cpus: CpuSet::first(1), via: None }
    }

    fn page(number: u64) -> Action {
        let moved = PageMove { address: number << PAGE_SHIFT, shift: PAGE_SHIFT, from: 0, to: 1 };
        Action::MovePages { pid: Pid(1), mechanism: Mechanism::CoLocation, pages: vec![moved] }
    }

    #[test]
    fn each_process_must_be_left_alone_for_ten_seconds_though_not_all_at_once() {
        // By process, seconds between its changes.
        let by = |every: &[u64]| {
            rests("auto", |second| {
                let due = (1..).zip(every).filter(|(_, every)| second % **every == 0);
                due.map(|(pid, _)| mask(pid)).collect()
            })
        };
        assert!(by(&[]) && by(&[11, 12, 13]));
        assert!(!by(&[3]) && !by(&[12, 8]));
    }

    #[test]
    fn a_single_policy_may_place_pages_that_have_not_moved_and_auto_may_not() {
        let each_once = |second| vec![page(second)];
        assert!(rests("carrefour", each_once) && !rests("auto", each_once));
        assert!(!rests("carrefour", |second| vec![page(second % 2)]), "pages move again");
        assert!(!rests("carrefour", |second| vec![page(second), mask(1)]), "masks change");
    }
}
