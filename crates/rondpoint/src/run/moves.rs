//! Moved threads of a managed run: old and new node, the outcome, and the final state.

use std::collections::BTreeMap;

use rondpoint_core::controller::Step;
use rondpoint_core::host::Witness;
use rondpoint_core::plan::{Action, Outcome, Proposal, Reason, StepResult};
use rondpoint_core::{IndexSet, Model, NodeSet, Pid, Tid, Topology};
use rondpoint_linux::act::threads::Restored;
use serde::Serialize;

use crate::story::words::many;

/// All of it, by outcome.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct ThreadMoves {
    /// Masks that were given to threads and that send them elsewhere.
    pub(super) moved: u64,
    /// Masks of threads that are to stay on the node where they ran.
    kept: u64,
    /// Masks that were taken back because a trial found them worse.
    pub(super) undone: u64,
    /// Threads that had ended when their turn came.
    gone: u64,
    /// Masks that the kernel refused, or that met a thread which had just chosen another.
    refused: u64,
    routes: Vec<Route>,
    /// Threads and processes that were born with a mask of ours and got back at once what their
    /// creator had.
    pub(super) heirs: u64,
    /// Threads that chose a mask of their own after we had changed the old one; they keep it.
    pub(super) left_alone: u64,
    /// What became of the masks at the end.
    pub(super) restored: Restored,
    #[serde(skip)]
    topology: Option<Topology>,
}

/// One way that threads took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Route {
    /// The kernel's number of the node on which they ran; `None` where that was not seen.
    from: Option<u32>,
    /// The kernel's numbers of the nodes on which they may run since.
    to: IndexSet,
    threads: u64,
}

impl ThreadMoves {
    pub(super) fn on(topology: Topology) -> Self {
        Self { topology: Some(topology), ..Self::default() }
    }

    /// `3 × node 0→1, 1 × 1→0`; empty where no thread was moved.
    pub(super) fn told(&self) -> String {
        let one = |route: &Route| {
            let from = route.from.map_or("?".to_string(), |node| node.to_string());
            format!("{} × node {from}→{}", route.threads, route.to)
        };
        self.routes.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// What is worth a line of its own, beside the moves.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut parts = Vec::new();
        for (count, what) in [
            (self.undone, "taken back after a trial"),
            (self.kept, "to stay where they were"),
            (self.refused, "refused"),
            (self.gone, "too late for threads that had ended"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        let mut lines = Vec::new();
        if self.moved > 0 || !parts.is_empty() {
            let more =
                if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", ")) };
            let masks = if self.moved == 1 { "mask" } else { "masks" };
            lines.push(format!("threads: {} {masks} given{more}", self.moved));
        }
        if self.heirs > 0 {
            lines.push(format!(
                "threads: {} were born with a changed mask and got that of their creator before it",
                self.heirs
            ));
        }
        if self.left_alone > 0 {
            lines.push(format!(
                "threads: {} chose masks of their own and keep them",
                self.left_alone
            ));
        }
        if self.restored != Restored::default() {
            lines.push(format!("at the end {}", crate::ledgers::masks_told(&self.restored)));
        }
        lines
    }

    /// What the user may have to see to.
    pub(super) fn troubles(&self) -> Option<String> {
        let refused = self.restored.refused;
        (refused > 0).then(|| {
            let threads = many(refused, "thread");
            format!(
                "{threads} could not get back the earlier CPUs; `rondpoint restore` tries again"
            )
        })
    }

    fn enter(&mut self, proposal: &Proposal, outcome: &Outcome, window: &Model) {
        let Action::SetAffinity { pid, tid, cpus, .. } = &proposal.action else { return };
        match (&outcome.result, &proposal.reason) {
            (StepResult::Done, Reason::Undo(_)) => self.undone += 1,
            (StepResult::Done, _) => {
                let Some(topology) = &self.topology else { return };
                let from = cpu_of(window, *pid, *tid).map(|cpu| topology.node_of_cpu(cpu));
                let to: NodeSet = cpus.iter().map(|cpu| topology.node_of_cpu(cpu)).collect();
                if from.is_some_and(|from| to == NodeSet::from_iter([from])) {
                    self.kept += 1;
                    return;
                }
                self.moved += 1;
                let from = from.map(|node| topology.kernel_node(node));
                let to = topology.kernel_nodes(&to);
                match self.routes.iter_mut().find(|route| route.from == from && route.to == to) {
                    Some(route) => route.threads += 1,
                    None => self.routes.push(Route { from, to, threads: 1 }),
                }
            }
            (StepResult::Gone, _) => self.gone += 1,
            _ => self.refused += 1,
        }
    }
}

impl Witness for ThreadMoves {
    fn step(&mut self, step: &Step, outcomes: &[Outcome]) {
        let Some(window) = &step.window else { return };
        let by_step: BTreeMap<usize, &Outcome> =
            outcomes.iter().map(|outcome| (outcome.step, outcome)).collect();
        for (index, proposal) in step.plan.steps.iter().enumerate() {
            if let Some(outcome) = by_step.get(&index) {
                self.enter(proposal, outcome, window);
            }
        }
    }
}

fn cpu_of(window: &Model, pid: Pid, tid: Tid) -> Option<usize> {
    let app = window.app(pid)?;
    window.threads_of(app).iter().find(|thread| thread.tid == tid).map(|thread| thread.cpu)
}

#[cfg(test)]
mod tests {
    use rondpoint_core::model::{App, Thread};
    use rondpoint_core::plan::{Plan, Undo};
    use rondpoint_core::topology::synthetic;
    use rondpoint_core::{CpuSet, Nanos};

    use super::*;

    #[test]
    fn moves_are_told_by_their_ways_and_their_ends() {
        let topology = synthetic::parse("node:2 core:2").expect("a machine");
        let mut window = Model::empty(2);
        window.apps.push(App::new(Pid(1), 0..3));
        for (tid, cpu) in [(1, 0), (2, 1), (3, 2)] {
            window.threads.push(Thread::new(Tid(tid), 0, cpu, CpuSet::first(4)));
        }
        let step = |tid, cpus: &[usize], is_undo: bool| {
            let cpus = cpus.iter().copied().collect();
            let action = Action::SetAffinity { pid: Pid(1), tid: Tid(tid), cpus, via: None };
            let reason = match is_undo {
                true => Reason::Undo(Undo { plan: 1, change: -0.5, noise: 0.1 }),
                false => Reason::Other("a test".to_string()),
            };
            Proposal { policy: "test", action, reason }
        };
        let (steps, results): (Vec<_>, Vec<_>) = [
            (step(1, &[2, 3], false), StepResult::Done),
            (step(2, &[2, 3], false), StepResult::Done),
            (step(3, &[0, 1, 2, 3], false), StepResult::Done),
            (step(3, &[2, 3], false), StepResult::Done),
            (step(9, &[0], false), StepResult::Gone),
            (step(3, &[0], false), StepResult::Refused { errno: 1 }),
            (step(1, &[0, 1], true), StepResult::Done),
        ]
        .into_iter()
        .unzip();
        let outcome =
            |(step, result)| Outcome { plan: 1, step, result, spent: Nanos(0), frozen: Nanos(0) };
        let outcomes: Vec<Outcome> = results.into_iter().enumerate().map(outcome).collect();
        let plan = Plan { number: 1, steps, ..Plan::default() };
        let mut moves = ThreadMoves::on(topology);
        moves.step(&Step { plan, window: Some(window), ..Step::default() }, &outcomes);
        assert_eq!(moves.told(), "2 × node 0→1, 1 × node 1→0-1");
        assert_eq!(
            moves.lines(),
            [
                "threads: 3 masks given; 1 taken back after a trial, 1 to stay where they were, 1 refused, 1 too late for threads that had ended"
            ]
        );
    }
}
