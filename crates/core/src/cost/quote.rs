//! The price of steps: their gain, its uncertainty, and the cost of moving.

use super::effect::Effect;
use super::facts::{Evidence, Facts};
use super::lost::{CAUSES, Cause, CostModel, Lost, ProcessLoss};
use super::placement::Placement;
use super::seen::Seen;
use crate::model::Thread;
use crate::plan::{Action, PageMove, Proposal};
use crate::topology::Topology;
use crate::units::{LINE_BYTES, PAGE_BYTES, Pid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// Relative error of a predicted change if stalls and traffic were counted. Our choice, close to
/// the errors of trials in the simulator.
const ERROR: f64 = 0.3;
/// The same if one of them had to be assumed.
const ERROR_OF_ASSUMED: f64 = 0.5;
/// Least gain, as a share of the process's time, for a change of the whole process. A trial cannot
/// tell less from noise. A change of a part needs the same share of that part.
const LEAST: f64 = 0.01;
/// ns to move a base page, until it was measured. Our choice.
pub(crate) const PAGE_NS: f64 = 2_000.0;
/// Time for each page of a bulk move, relative to single pages. It was 0.7 with four workers
/// (emulated, docs/results/move-memory.md); other costs of the move are added.
const BULK_SHARE: f64 = 0.8;
/// ns for which each running thread of a process stops for a moved page: the TLB flush, in batches.
const FLUSH_NS: f64 = 30.0;
/// Bytes of cache that a moved thread fills again, if the caches are not known: the second level
/// and a part of the last.
const WARM_BYTES: f64 = 2_097_152.0;

/// An expected value with bounds.
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

/// Predicted change of one process.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Change {
    /// Process.
    pub pid: Pid,
    /// Relative change of speed: 0.1 = 10 % faster.
    pub speed: Interval,
    /// Cause of its largest loss at present.
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

/// Measured costs of moving, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MoveCosts {
    /// The mover's time for one base page.
    pub page_ns: f64,
    /// A thread's time to fill its caches again.
    pub thread_ns: f64,
}

impl MoveCosts {
    /// Costs before any move was measured.
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

    /// CPU seconds that some steps take: time of the mover, and time for which the program's
    /// threads stop.
    #[must_use]
    pub fn seconds(&self, seen: Seen<'_>, steps: &[&Proposal]) -> f64 {
        let ns = |step: &&Proposal| {
            let app = step.action.pid().and_then(|pid| seen.model.app(pid));
            // Only CPUs that run the process are interrupted.
            let running = |app| seen.model.threads_of(app).iter().map(|one| one.cpu_share).sum();
            let flush = || FLUSH_NS * app.map_or(1.0, running);
            let pages = |count: f64, each: f64| count * (each + flush());
            match &step.action {
                Action::MovePages { pages: list, .. } | Action::Replicate { pages: list, .. } => {
                    pages(bytes_of(list) / PAGE_BYTES as f64, self.page_ns)
                }
                Action::MoveProcessMemory { memory, .. } => {
                    pages(memory.0 as f64 / PAGE_BYTES as f64, BULK_SHARE * self.page_ns)
                }
                Action::SetAffinity { tid, cpus, via, .. } => {
                    // A thread that is pinned where it runs keeps its caches.
                    let runs_there = |of: &Thread| of.tid == *tid && cpus.contains(of.cpu);
                    let any = |app| seen.model.threads_of(app).iter().any(runs_there);
                    let stays = via.is_none() && app.is_some_and(any);
                    if stays { 0.0 } else { self.thread_ns }
                }
                Action::Unreplicate { .. } | Action::SetSampling { .. } => 0.0,
            }
        };
        steps.iter().map(ns).sum::<f64>() / 1e9
    }
}

/// The part of the price of steps that is the same for each placement.
#[derive(Debug, Clone, PartialEq)]
pub struct Bill {
    effect: Effect,
    /// CPU seconds that moving takes, once.
    cost_s: f64,
    /// Share of each process that the steps change, 1 = all of it.
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

    /// Gain of one placement over another, without the cost of moving.
    #[must_use]
    pub fn between(facts: &Facts, before: &Placement, after: &Placement) -> Self {
        Self::of_placements(facts, before, after, |_| 1.0)
    }

    /// The same if only a `part` of each process is changed, 1 = all of it.
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

    /// Gain of another machine with the same nodes and CPUs, under the present placement.
    #[must_use]
    pub fn on_machine(facts: &Facts, machine: &Topology) -> Self {
        let there = facts.on_machine(machine);
        let now = CostModel.lost(facts, &facts.everything());
        let then = CostModel.lost(&there, &there.everything());
        Self::compared(facts, &now, &then, Interval::default(), |_| 1.0)
    }

    /// Gain of each process and of all together, including the gain `others`, without the cost of
    /// moving.
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
            won = won.plus(change.speed.times(now.served()));
            changes.push(change);
        }
        let controller = (now.busiest_controller, then.busiest_controller);
        Self { changes, won, cost_s: 0.0, controller }
    }
}

/// Share of a process's threads and memory that steps change, at most 1; 1 if unknown.
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
    let error = facts.evidence(now.pid).map_or(1.0, |evidence| error_between(evidence, now, then));
    let cause = now.worst();
    Change {
        pid: now.pid,
        speed: Interval::around(likely, likely.abs() * error.min(1.0) + LEAST * part),
        cause,
        lost_ns_per_s: (now.by(cause), then.by(cause)),
    }
}

/// Relative error of a predicted change. Latency is evidence of waits for memory. A change of lines
/// from other caches, or of waits for CPUs, has the error of counts, however few accesses to memory
/// were measured.
fn error_between(evidence: Evidence, now: &ProcessLoss, then: &ProcessLoss) -> f64 {
    let change = |cause: Cause| (now.by(cause) - then.by(cause)).abs();
    let all: f64 = CAUSES.into_iter().map(change).sum();
    let counted = change(Cause::Coherence) + change(Cause::WaitingForCpu);
    let of_memory = if all > 0.0 { 1.0 - counted / all } else { 1.0 };
    ERROR + (error_of(evidence) - ERROR) * of_memory
}

/// Relative error of a predicted change of waits for memory, by the evidence. Without a measured
/// latency the machine's latency is assumed, and the number of samples adds no error.
fn error_of(evidence: Evidence) -> f64 {
    let Evidence { counts_stalls, latency_accesses, knows_traffic } = evidence;
    if latency_accesses <= 0.0 || !counts_stalls || !knows_traffic {
        return ERROR_OF_ASSUMED;
    }
    // The standard deviation of latencies is about as large as their mean.
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

    /// The lower bound of the gain, where the likely gain is `likely`.
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

    /// Programs with pools of threads have many that sleep.
    #[test]
    fn moving_pages_stops_only_threads_that_run() {
        use crate::index_set::CpuSet;
        use crate::model::{App, Model};
        use crate::plan::{Mechanism, Reason};
        use crate::units::{PAGE_SHIFT, Tid};
        use alloc::string::ToString as _;
        let topology = crate::topology::synthetic::parse("node:2 core:2").unwrap();
        let seconds = |sleeping: u32| {
            let mut model = Model::empty(2);
            for tid in 0..1 + sleeping {
                let mut thread = Thread::new(Tid(1 + tid), 0, 0, CpuSet::first(4));
                thread.cpu_share = if tid == 0 { 1.0 } else { 0.0 };
                model.threads.push(thread);
            }
            model.apps.push(App::new(Pid(1), 0..model.threads.len()));
            let page = PageMove { address: 0, shift: PAGE_SHIFT, from: 0, to: 1 };
            let mechanism = Mechanism::CoLocation;
            let action = Action::MovePages { pid: Pid(1), mechanism, pages: alloc::vec![page] };
            let step = Proposal { policy: "test", action, reason: Reason::Other("x".to_string()) };
            let pages = super::super::seen::Sampled::of(&model, &topology);
            let facts = Facts::of(&model, &topology);
            let seen = Seen { model: &model, pages: &pages, topology: &topology, facts: &facts };
            MoveCosts::of(&topology).seconds(seen, &[&step])
        };
        assert!(seconds(0) > 0.0);
        assert!((seconds(500) - seconds(0)).abs() < 1e-12);
    }

    #[test]
    fn a_thread_that_is_pinned_where_it_runs_has_no_cache_to_fill() {
        use crate::index_set::CpuSet;
        use crate::model::{App, Model};
        use crate::plan::Reason;
        use crate::units::Tid;
        let topology = crate::topology::synthetic::parse("node:2 core:2").unwrap();
        let mut model = Model::empty(2);
        model.threads.push(Thread::new(Tid(1), 0, 0, CpuSet::first(4)));
        model.apps.push(App::new(Pid(1), 0..1));
        let seconds = |cpus: &[usize], via| {
            let cpus = cpus.iter().copied().collect();
            let action = Action::SetAffinity { pid: Pid(1), tid: Tid(1), cpus, via };
            let step = Proposal { policy: "test", action, reason: Reason::Other("x".into()) };
            let pages = super::super::seen::Sampled::of(&model, &topology);
            let facts = Facts::of(&model, &topology);
            let seen = Seen { model: &model, pages: &pages, topology: &topology, facts: &facts };
            MoveCosts::of(&topology).seconds(seen, &[&step])
        };
        assert_eq!(seconds(&[0, 1], None), 0.0, "it runs on CPU 0");
        assert!(seconds(&[2, 3], None) > 0.0 && seconds(&[0, 1], Some(1)) > 0.0);
    }

    /// Threads that exchange lines miss the caches seldom, so few of their accesses are measured.
    #[test]
    fn few_measured_accesses_to_memory_make_no_count_of_lines_unsure() {
        let few = Evidence { latency_accesses: 2.0, ..COUNTED };
        let lost = |cause: Cause| {
            let mut loss =
                ProcessLoss { pid: Pid(1), cpus: 4.0, ns_per_s: [0.0; CAUSES.len()], pace: 1.0 };
            loss.ns_per_s[cause as usize] = 5e8;
            loss
        };
        let nothing = ProcessLoss { ns_per_s: [0.0; CAUSES.len()], ..lost(Cause::Coherence) };
        let error = |cause| error_between(few, &lost(cause), &nothing);
        assert_eq!(error(Cause::Coherence), ERROR);
        assert_eq!(error(Cause::RemoteDram), error_of(few));
        assert!(error_of(few) > 1.0, "nothing is sure of memory");
    }

    #[test]
    fn few_measured_accesses_prove_less_than_many() {
        let of = |latency_accesses| least(0.4, Evidence { latency_accesses, ..COUNTED });
        assert!(of(2.0) < of(100.0) && of(100.0) < of(1e4));
    }
}
