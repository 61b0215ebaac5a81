//! A stage for the guard: four nodes of four CPUs, three processes of two threads (pid p has
//! threads 10p and 10p + 1).

use rondpoint_core::accounts::Accounts;
use rondpoint_core::guard::{Guard, GuardSettings, Scene, Standing};
use rondpoint_core::ledger::Ledger;
use rondpoint_core::model::{App, Thread};
use rondpoint_core::observation::Exemption;
use rondpoint_core::plan::{Mechanism, NodeMove, PageCounts, PageMove, Sampling, StepResult};
use rondpoint_core::policy::asymsched::{AsymSchedReason, PlacementReason};
use rondpoint_core::policy::sam::{Destination, Phase, SamReason, Side};
use rondpoint_core::topology::synthetic;
use rondpoint_core::trial::Trials;
use rondpoint_core::{
    Action, Bytes, CpuSet, Model, Nanos, Outcome, Pid, Plan, Proposal, Reason, Tid, Topology,
};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Stage {
    pub(crate) guard: Guard,
    pub(crate) topology: Topology,
    pub(crate) model: Model,
    pub(crate) accounts: Accounts,
    pub(crate) trials: BTreeMap<Pid, &'static str>,
    pub(crate) unready: BTreeSet<Pid>,
    pub(crate) ledger: Ledger,
    plans: u64,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(GuardSettings::acting())
    }

    pub(crate) fn with(settings: GuardSettings) -> Self {
        let mut description = synthetic::describe("node:4 core:4 mhz:2300").expect("a machine");
        description.clock_hz = Some(2.3e9);
        let topology = Topology::new(description).expect("a machine");
        let mut model = Model::empty(4);
        model.at = Nanos::from_secs(100);
        model.sensing.confidence = 1.0;
        for pid in 1..=3_u32 {
            let first = model.threads.len();
            model.apps.push(App::new(Pid(pid), first..first + 2));
            for thread in 0..2 {
                model.threads.push(Thread::new(
                    Tid(10 * pid + thread),
                    pid as usize - 1,
                    first,
                    topology.all_cpus(),
                ));
            }
        }
        model.threads[5].exempt = Some(Exemption::RealTime);
        model.check(&topology).expect("a sound model");
        Self {
            guard: Guard::new(settings, 4),
            topology,
            model,
            accounts: Accounts::default(),
            trials: BTreeMap::new(),
            unready: BTreeSet::new(),
            ledger: Ledger::default(),
            plans: 0,
        }
    }

    pub(crate) fn isolate(&mut self, cpu: usize) {
        let mut description = self.topology.description().clone();
        description.cpus[cpu].isolated = true;
        self.topology = Topology::new(description).expect("a machine");
    }

    pub(crate) fn set_free(&mut self, bytes: &[u64]) {
        self.model.free_memory = Some(bytes.iter().map(|free| Bytes(*free)).collect());
    }

    /// Books time that movers spent on a process.
    pub(crate) fn spend(&mut self, pid: u32, spent: Nanos) {
        let steps = vec![move_pages(pid, &[(0x1000, 0, 1)])];
        let result = StepResult::Pages(PageCounts::default());
        let outcome = Outcome { plan: 7, step: 0, result, spent, frozen: Nanos(0) };
        self.accounts.enter(&Plan { number: 7, steps, ..Plan::default() }, &[outcome]);
    }

    /// The plan that the guard makes of proposals; it is entered in the ledger as if it were
    /// applied.
    pub(crate) fn plan(&mut self, proposals: Vec<Proposal>) -> Plan {
        let scene = Scene {
            model: &self.model,
            topology: &self.topology,
            accounts: &self.accounts,
            standing: Standing {
                now: self.model.at,
                running: &self.trials,
                unready: &self.unready,
                tried: &Trials::default(),
            },
            ledger: &self.ledger,
        };
        let (steps, refused) = self.guard.admit(proposals, &scene);
        self.plans += 1;
        let mut plan = Plan { number: self.plans, steps, refused, ..Plan::default() };
        plan.inverses = self.ledger.enter(&plan, &self.model);
        plan
    }

    pub(crate) fn admit(&mut self, proposals: Vec<Proposal>) -> String {
        let plan = self.plan(proposals);
        let admitted = plan.steps.iter().map(|proposal| format!("admit {}\n", proposal.action));
        let refused = plan
            .refused
            .iter()
            .map(|one| format!("refuse {}: {}\n", one.proposal.action, one.refusal));
        admitted.chain(refused).collect()
    }
}

fn proposal(action: Action) -> Proposal {
    Proposal { policy: "test", action, reason: Reason::Other("a test".to_string()) }
}

/// Moves of base pages: (address, from, to).
pub(crate) fn move_pages(pid: u32, pages: &[(u64, u16, u16)]) -> Proposal {
    let page = |&(address, from, to): &(u64, u16, u16)| PageMove { address, shift: 12, from, to };
    let pages = pages.iter().map(page).collect();
    proposal(Action::MovePages { pid: Pid(pid), mechanism: Mechanism::CoLocation, pages })
}

pub(crate) fn replicate(pid: u32, pages: &[(u64, u16)]) -> Proposal {
    let page =
        |&(address, home): &(u64, u16)| PageMove { address, shift: 12, from: home, to: home };
    proposal(Action::Replicate { pid: Pid(pid), pages: pages.iter().map(page).collect() })
}

/// A mask in the kernel's list format.
pub(crate) fn cpus(list: &str) -> CpuSet {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<usize>().expect("a CPU")..=last.parse().expect("a CPU")
    };
    list.split(',').flat_map(range).collect()
}

pub(crate) fn affinity(pid: u32, tid: u32, list: &str) -> Proposal {
    proposal(Action::SetAffinity { pid: Pid(pid), tid: Tid(tid), cpus: cpus(list), via: None })
}

pub(crate) fn bulk(pid: u32, nodes: &[(usize, usize)], freeze: bool) -> Proposal {
    let nodes = nodes.iter().map(|&(from, to)| NodeMove { from, to }).collect();
    proposal(Action::MoveProcessMemory { pid: Pid(pid), nodes, freeze, memory: Bytes(5 << 30) })
}

pub(crate) fn sampling(pid: u32, cycles: u64) -> Proposal {
    let sampling = Sampling::Every { cycles, tracked_pages: 30_000 };
    proposal(Action::SetSampling { pid: Some(Pid(pid)), sampling })
}

/// A move of SAM's; `of` = the thread that this one changes places with.
pub(crate) fn exchange(pid: u32, tid: u32, list: &str, phase: Phase, of: Option<u32>) -> Proposal {
    let side = of.map_or(Side::Mover, |of| Side::Partner { of: Tid(of) });
    let destination = Destination::Idle;
    let reason = SamReason::Move {
        phase,
        destination,
        side,
        rate_per_s: 2.0,
        threshold_per_s: 1.0,
        from: 0,
        to: 1,
    };
    Proposal { reason: Reason::Sam(reason), ..affinity(pid, tid, list) }
}

/// A part of an AsymSched placement.
pub(crate) fn placement(pid: u32, tid: u32, list: &str) -> Proposal {
    let reason = PlacementReason {
        from: 0,
        to: 1,
        clusters: 1,
        staying: 1.0,
        chosen: 2.0,
        best: 2.0,
        best_gap: 0.0,
        from_nodes_without_threads: Bytes(0),
        moved: Bytes(0),
        moved_at_least: Bytes(0),
        seconds: 0.0,
        allowed_seconds: 1.0,
    };
    Proposal {
        reason: Reason::AsymSched(AsymSchedReason::Placement(reason)),
        ..affinity(pid, tid, list)
    }
}

/// The pin of a thread that stays in an AsymSched placement.
pub(crate) fn staying(pid: u32, tid: u32, list: &str) -> Proposal {
    let reason = AsymSchedReason::Staying { node: 0 };
    Proposal { reason: Reason::AsymSched(reason), ..affinity(pid, tid, list) }
}
