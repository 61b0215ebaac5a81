//! The price of steps: what they win, how sure that is, and what they cost once.

use super::effect::Effect;
use super::facts::{Evidence, Facts};
use super::lost::{Cause, CostModel, Lost, ProcessLoss};
use super::placement::Placement;
use super::seen::Seen;
use crate::plan::{Action, PageMove, Proposal};
use crate::topology::Topology;
use crate::units::{LINE_BYTES, PAGE_BYTES, Pid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// Part of a predicted change that is uncertain where stalls and traffic were counted. Our choice:
/// about what trials in the simulator show.
const ERROR: f64 = 0.3;
/// The same where something had to be assumed.
const ERROR_OF_ASSUMED: f64 = 0.5;
/// Below this part of a process's time nothing is won for sure by changing all of it: a trial tells
/// no less from noise. Steps that change a part are one of several and need that part of it.
const LEAST: f64 = 0.01;
/// ns to move a base page until the first moves have told. Our choice.
const PAGE_NS: f64 = 2_000.0;
/// Part of that for each page of a bulk move: 0.7 with four workers (emulated,
/// docs/results/move-memory.md), and the rest of such a move.
const BULK_SHARE: f64 = 0.8;
/// ns for which each thread of a process stands still for a page that moves: the flush of
/// translations, in batches.
const FLUSH_NS: f64 = 30.0;
/// Bytes of cache that a thread fills again elsewhere, where the cache is not known: its second
/// level and a part of the last.
const WARM_BYTES: f64 = 2_097_152.0;

/// A value that lies between two others.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Interval {
    /// Lower end.
    pub least: f64,
    /// Expected.
    pub likely: f64,
    /// Upper end.
    pub most: f64,
}

impl Interval {
    fn around(likely: f64, error: f64) -> Self {
        Self { least: likely - error, likely, most: likely + error }
    }

    pub(super) fn times(self, factor: f64) -> Self {
        Self { least: factor * self.least, likely: factor * self.likely, most: factor * self.most }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            least: self.least + other.least,
            likely: self.likely + other.likely,
            most: self.most + other.most,
        }
    }
}

/// What steps bring one process.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Change {
    /// Process.
    pub pid: Pid,
    /// Relative change of speed: 0.1 = 10 % faster.
    pub speed: Interval,
    /// What it loses most by now, and how much, in ns of a second.
    pub cause: Cause,
    /// ns lost by that cause in a second, now and then.
    pub lost_ns_per_s: (f64, f64),
}

/// The price of steps.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Quote {
    /// By process, ascending.
    pub changes: Vec<Change>,
    /// CPU seconds that all processes together win in a second.
    pub won: Interval,
    /// CPU seconds that moving takes, once.
    pub cost_s: f64,
    /// Highest use of a memory controller, now and then.
    pub controller: (f64, f64),
}

/// What moving takes, in ns, as it was measured so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MoveCosts {
    /// The mover's time for one base page.
    pub page_ns: f64,
    /// A thread's time to fill its caches again.
    pub thread_ns: f64,
}

impl MoveCosts {
    /// Before anything was moved on a machine.
    #[must_use]
    pub fn of(topology: &Topology) -> Self {
        let costs = topology.costs();
        let domains = topology.domain_count().max(1);
        let share = |bytes: u64| bytes as f64 * domains as f64 / topology.cpu_count().max(1) as f64;
        let lines = costs.cache_bytes.map_or(WARM_BYTES, share) / LINE_BYTES as f64;
        let local_ns = super::idle_local_cycles(topology)
            / (topology.clock_hz().unwrap_or(super::CLOCK_HZ) / 1e9);
        let under_way = costs.outstanding_misses.unwrap_or(1.0).max(1.0);
        Self { page_ns: PAGE_NS, thread_ns: lines * local_ns / under_way }
    }

    /// CPU seconds that some steps take, once: the mover's, and what the program's threads stand
    /// still for.
    #[must_use]
    pub fn seconds(&self, seen: Seen<'_>, steps: &[&Proposal]) -> f64 {
        let ns = |step: &&Proposal| {
            let threads = step.action.pid().and_then(|pid| seen.model.app(pid));
            let flush = FLUSH_NS * threads.map_or(1, |app| app.threads.len()) as f64;
            let pages = |count: f64, each: f64| count * (each + flush);
            match &step.action {
                Action::MovePages { pages: list, .. } | Action::Replicate { pages: list, .. } => {
                    pages(bytes_of(list) / PAGE_BYTES as f64, self.page_ns)
                }
                Action::MoveProcessMemory { memory, .. } => {
                    pages(memory.0 as f64 / PAGE_BYTES as f64, BULK_SHARE * self.page_ns)
                }
                Action::SetAffinity { .. } => self.thread_ns,
                Action::Unreplicate { .. } | Action::SetSampling { .. } => 0.0,
            }
        };
        steps.iter().map(ns).sum::<f64>() / 1e9
    }
}

/// Steps with all of their price that is the same on top of any placement.
#[derive(Debug, Clone, PartialEq)]
pub struct Bill {
    effect: Effect,
    /// CPU seconds that moving takes, once.
    cost_s: f64,
    /// Part of each process that is changed, 1 = all of it; the others are not in it.
    parts: BTreeMap<Pid, f64>,
}

impl Bill {
    /// The bill of some steps.
    #[must_use]
    pub fn of(seen: Seen<'_>, steps: &[&Proposal], moving: &MoveCosts) -> Self {
        let pids = steps.iter().filter_map(|step| step.action.pid());
        let parts = pids.map(|pid| (pid, part_of(seen, pid, steps))).collect();
        Self { effect: Effect::of(seen, steps), cost_s: moving.seconds(seen, steps), parts }
    }

    /// A placement after its steps.
    #[must_use]
    pub fn after(&self, seen: Seen<'_>, before: Placement) -> Placement {
        before.after(seen, &self.effect)
    }
}

impl Quote {
    /// The price of steps on top of a placement.
    #[must_use]
    pub fn of(seen: Seen<'_>, before: &Placement, bill: &Bill) -> Self {
        let after = bill.after(seen, before.clone());
        let part = |pid| bill.parts.get(&pid).copied().unwrap_or(0.0);
        Self { cost_s: bill.cost_s, ..Self::of_placements(seen.facts, before, &after, part) }
    }

    /// What one placement wins over another; free of cost.
    #[must_use]
    pub fn between(facts: &Facts, before: &Placement, after: &Placement) -> Self {
        Self::of_placements(facts, before, after, |_| 1.0)
    }

    /// The same where a `part` of each process is changed, 1 = all of it.
    fn of_placements(
        facts: &Facts,
        before: &Placement,
        after: &Placement,
        part: impl Fn(Pid) -> f64,
    ) -> Self {
        let before = before.clone().completed(facts, after);
        let now = CostModel.lost(facts, &before);
        let then = CostModel.lost(facts, after);
        let others = (now.others_ns_per_s - then.others_ns_per_s) / 1e9;
        let others = Interval::around(others, ERROR * others.abs());
        Self::compared(facts, &now, &then, others, part)
    }

    /// What another machine with the same nodes and CPUs wins, everything placed as it is.
    #[must_use]
    pub fn on_machine(facts: &Facts, machine: &Topology) -> Self {
        let there = facts.on_machine(machine);
        let now = CostModel.lost(facts, &facts.everything());
        let then = CostModel.lost(&there, &there.everything());
        Self::compared(facts, &now, &then, Interval::default(), |_| 1.0)
    }

    /// What each process and all together win, beside what `others` win; free of cost.
    fn compared(
        facts: &Facts,
        now: &Lost,
        then: &Lost,
        others: Interval,
        part: impl Fn(Pid) -> f64,
    ) -> Self {
        let mut won = others;
        let mut changes = Vec::with_capacity(then.processes.len());
        for (now, then) in now.processes.iter().zip(&then.processes) {
            let change = changed(facts, now, then, part(now.pid));
            won = won.plus(change.speed.times(now.cpus));
            changes.push(change);
        }
        let controller = (now.busiest_controller, then.busiest_controller);
        Self { changes, won, cost_s: 0.0, controller }
    }
}

/// Part of a process's threads and memory that steps change, at most 1; 1 where that is not known.
fn part_of(seen: Seen<'_>, pid: Pid, steps: &[&Proposal]) -> f64 {
    let Some(app) = seen.model.app(pid) else { return 1.0 };
    let own = steps.iter().filter(|step| step.action.pid() == Some(pid));
    let threads = seen.model.threads_of(app).iter().filter(|thread| thread.is_running()).count();
    let resident = app.memory.as_ref().map_or(0, |bytes| bytes.iter().map(|one| one.0).sum());
    let part = |of_action: f64, all: f64| if all > 0.0 { of_action / all } else { 1.0 };
    let of_step = |step: &&Proposal| match &step.action {
        Action::SetAffinity { .. } => part(1.0, threads as f64),
        Action::MoveProcessMemory { memory, .. } => part(memory.0 as f64, resident as f64),
        Action::MovePages { pages, .. }
        | Action::Replicate { pages, .. }
        | Action::Unreplicate { pages, .. } => part(bytes_of(pages), resident as f64),
        Action::SetSampling { .. } => 0.0,
    };
    own.map(of_step).sum::<f64>().min(1.0)
}

fn bytes_of(pages: &[PageMove]) -> f64 {
    pages.iter().map(|page| page.bytes().0 as f64).sum()
}

fn changed(facts: &Facts, now: &ProcessLoss, then: &ProcessLoss, part: f64) -> Change {
    let likely = if now.pace > 0.0 { then.pace / now.pace - 1.0 } else { 0.0 };
    let evidence = facts.evidence(now.pid);
    let error = evidence.map_or(1.0, error_of);
    let cause = now.worst();
    Change {
        pid: now.pid,
        speed: Interval::around(likely, likely.abs() * error.min(1.0) + LEAST * part),
        cause,
        lost_ns_per_s: (now.by(cause), then.by(cause)),
    }
}

/// Part of a predicted change that the evidence leaves open. Where no latency was measured the
/// machine's own stands for it: it is assumed, and no sample adds to its error.
fn error_of(evidence: Evidence) -> f64 {
    let Evidence { counts_stalls, latency_accesses, knows_traffic } = evidence;
    if latency_accesses <= 0.0 || !counts_stalls || !knows_traffic {
        return ERROR_OF_ASSUMED;
    }
    // Latencies of single accesses vary about as much as their mean is.
    ERROR + super::STANDARD_ERRORS / libm::sqrt(latency_accesses)
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interval { least, likely, most } = self.speed;
        write!(
            f,
            "{:+.0} % ({:+.0} to {:+.0}): {} takes {:.0} % of its time, then {:.0} %",
            100.0 * likely,
            100.0 * least,
            100.0 * most,
            self.cause,
            self.lost_ns_per_s.0 / 1e7,
            self.lost_ns_per_s.1 / 1e7
        )
    }
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let best = self
            .changes
            .iter()
            .max_by(|a, b| a.speed.likely.abs().total_cmp(&b.speed.likely.abs()));
        match best {
            Some(change) => change.fmt(f)?,
            None => write!(f, "no process that can be priced")?,
        }
        let (now, then) = self.controller;
        if (now - then).abs() > 0.05 {
            write!(f, "; busiest controller {:.0} %, then {:.0} %", 100.0 * now, 100.0 * then)?;
        }
        write!(f, "; {:.2} s to move", self.cost_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTED: Evidence =
        Evidence { counts_stalls: true, latency_accesses: 1e4, knows_traffic: true };

    /// Lower bound of a predicted change of this size.
    fn least(likely: f64, evidence: Evidence) -> f64 {
        Interval::around(likely, likely * error_of(evidence)).least
    }

    #[test]
    fn a_large_gain_is_sure_where_the_processor_measures_no_latency() {
        let unmeasured = Evidence { latency_accesses: 0.0, ..COUNTED };
        let nothing_counted = Evidence { counts_stalls: false, ..unmeasured };
        for evidence in [unmeasured, nothing_counted] {
            assert!(least(0.4, evidence) > 0.1, "{evidence:?}");
            assert!(least(0.4, evidence) < least(0.4, COUNTED), "{evidence:?}");
        }
    }

    #[test]
    fn few_measured_accesses_prove_less_than_many() {
        let of = |latency_accesses| least(0.4, Evidence { latency_accesses, ..COUNTED });
        assert!(of(2.0) < of(100.0) && of(100.0) < of(1e4));
    }
}
