//! The whole loop over real threads: what a policy wants is done to them, judged, and undone where
//! it harms.
//!
//! The masks are real. The counters are made up from them, since this machine may have none.

use std::convert::Infallible;

use rondpoint_core::controller::{Controller, Settings, Step};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::host::{Host, Witness, run};
use rondpoint_core::observation::{Counter, Counters, Event};
use rondpoint_core::plan::{Action, Outcome, Proposal, Reason, Refusal, StepResult};
use rondpoint_core::policy::Policy;
use rondpoint_core::trial::Verdict;
use rondpoint_core::{CpuSet, Matrix, Model, Nanos, Observation, Random, Topology};

use crate::harness::Test;
use crate::stepping::Parts;
use crate::target::{Target, mask};

pub(crate) const TESTS: &[Test] = &[
    ("judged::a_mask_that_makes_a_program_slower_is_taken_back", harmful),
    ("judged::who_has_bound_itself_is_never_moved", bound),
];

/// Wants every thread of a process on one CPU.
struct Crowding(usize);

impl Policy for Crowding {
    fn propose(&mut self, model: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        let wish = |thread: &rondpoint_core::model::Thread| Proposal {
            policy: "crowding",
            action: Action::SetAffinity {
                pid: model.apps[thread.app].pid,
                tid: thread.tid,
                cpus: [self.0].into_iter().collect(),
                via: None,
            },
            reason: Reason::Other("a test".to_string()),
        };
        model.threads.iter().map(wish).collect()
    }
}

/// A program on a machine where a second is over at once.
struct Stage<'a> {
    target: &'a Target,
    parts: Parts,
    own: CpuSet,
    begin: Nanos,
    seconds: u64,
    until: u64,
    /// Billions of instructions of each thread so far.
    work: f64,
}

impl Stage<'_> {
    fn counters(&self) -> Counters {
        let exact = |value: f64| Counter::exact((value * 1e9) as u64);
        let cycles = self.seconds as f64 * 2.0;
        [(Event::Instructions, exact(self.work)), (Event::Cycles, exact(cycles))]
            .into_iter()
            .collect()
    }
}

impl Host for Stage<'_> {
    type Error = Infallible;

    fn observe(&mut self, _: Nanos) -> Result<Option<Observation>, Infallible> {
        let (mut observation, _) = self.parts.look();
        self.begin = self.begin.max(observation.at);
        self.seconds += 1;
        // Half as fast on half the CPUs, give or take a little: windows have a variance.
        let is_whole = mask(self.target.pid()) == self.own;
        let ripple = 1.0 + 0.002 * (self.seconds % 3) as f64;
        self.work += ripple * if is_whole { 1.0 } else { 0.5 };
        observation.at = self.begin + Nanos::from_secs(self.seconds);
        let nodes = self.parts.topology.node_count();
        let traffic = Matrix::filled(nodes, Counter::exact(self.seconds * 1_000_000));
        for process in &mut observation.processes {
            process.node_traffic = Some(traffic.clone());
            for thread in &mut process.threads {
                thread.counters = self.counters();
                thread.cpu_time = Nanos::from_secs(self.seconds);
            }
        }
        Ok((self.seconds <= self.until).then_some(observation))
    }

    fn apply(&mut self, step: &Step) -> Result<Vec<Outcome>, Infallible> {
        self.parts.actor.prepare(&step.plan);
        Ok((0..step.plan.steps.len()).map(|one| self.parts.step(&step.plan, one)).collect())
    }
}

/// Keeps what was done.
#[derive(Default)]
struct Diary {
    verdicts: Vec<Verdict>,
    given: Vec<u32>,
    undone: Vec<u32>,
    exempt: Vec<u32>,
}

impl Witness for Diary {
    fn step(&mut self, step: &Step, outcomes: &[Outcome]) {
        self.verdicts.extend(step.judged.iter().map(|judged| judged.verdict));
        let tid = |proposal: &Proposal| match &proposal.action {
            Action::SetAffinity { tid, .. } => tid.0,
            other => panic!("{other}"),
        };
        for outcome in outcomes {
            let done = &step.plan.steps[outcome.step];
            assert_eq!(outcome.result, StepResult::Done, "{}", done.action);
            let list = match done.reason {
                Reason::Undo(_) => &mut self.undone,
                _ => &mut self.given,
            };
            list.push(tid(done));
        }
        let exempt = step.plan.refused.iter();
        let exempt = exempt.filter(|one| matches!(one.refusal, Refusal::Exempt { .. }));
        self.exempt.extend(exempt.map(|one| tid(&one.proposal)));
    }
}

fn crowd(target: &Target, own: &CpuSet, until: u64) -> Diary {
    let parts = Parts::of(target.pid());
    let topology = parts.topology.clone();
    let first = topology.cpu_of_kernel_id(own.iter().next().expect("a CPU") as u32);
    let policy = Crowding(first.expect("it is there"));
    let settings = Settings { seed: 1, guard: GuardSettings::acting() };
    let mut controller = Controller::new(topology, vec![Box::new(policy)], settings);
    let (own, begin) = (own.clone(), Nanos(0));
    let mut stage = Stage { target, parts, own, begin, seconds: 0, until, work: 0.0 };
    let mut diary = Diary::default();
    match run(&mut stage, &mut controller, &mut diary) {
        Ok(()) => diary,
    }
}

fn harmful(own: &CpuSet) {
    let mut target = Target::start();
    let worker = target.order("thread");
    let before = target.masks();
    let diary = crowd(&target, own, 10);
    assert_eq!(diary.verdicts, [Verdict::Worse]);
    assert_eq!(diary.given, [target.pid(), worker]);
    assert_eq!(diary.undone.len(), 2, "{:?}", diary.undone);
    assert_eq!(target.masks(), before);
}

fn bound(own: &CpuSet) {
    let mut target = Target::start();
    let bound = target.order("thread");
    let other: CpuSet = own.iter().skip(1).take(1).collect();
    rondpoint_linux::syscall::affinity::set(bound as i32, &other).expect("a CPU of ours");
    let diary = crowd(&target, own, 6);
    assert_eq!(diary.given, [target.pid()]);
    assert!(diary.exempt.contains(&bound), "{:?}", diary.exempt);
    assert_eq!(mask(bound), other);
    assert_ne!(mask(target.pid()), *own, "the others were moved");
}
