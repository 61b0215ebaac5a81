//! A thread after an undone move, from the verdict to the mask with which it goes back.

use rondpoint_core::controller::{Controller, Input, Settings};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::observation::{Counter, Event, ProcessObservation, ThreadObservation};
use rondpoint_core::plan::{Mechanism, PageMove, StepResult};
use rondpoint_core::policy::Policy;
use rondpoint_core::topology::synthetic;
use rondpoint_core::{
    Action, Bytes, CpuSet, Model, Nanos, Observation, Outcome, Pid, Plan, Proposal, Random, Reason,
    Tid, Topology,
};

const PID: Pid = Pid(1);

/// Sends its thread to node 1, once.
#[derive(Default)]
struct Mover {
    is_done: bool,
}

impl Policy for Mover {
    fn propose(&mut self, _: &Model, topology: &Topology, _: &mut Random) -> Vec<Proposal> {
        let cpus = topology.cpus_of_node(1).clone();
        let action = Action::SetAffinity { pid: PID, tid: Tid(1), cpus, via: None };
        let reason = Reason::Other("a test".to_string());
        let wish = (!self.is_done).then_some(Proposal { policy: "mover", action, reason });
        wish.into_iter().collect()
    }

    fn learn(&mut self, plan: &Plan, _: &[Outcome]) {
        self.is_done |= !plan.steps.is_empty();
    }
}

/// Sends a page to node 1 in the same plan.
#[derive(Default)]
struct Pager {
    is_done: bool,
}

impl Policy for Pager {
    fn propose(&mut self, _: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        let pages = vec![PageMove { address: 0x1000, shift: 12, from: 0, to: 1 }];
        let action = Action::MovePages { pid: PID, mechanism: Mechanism::CoLocation, pages };
        let reason = Reason::Other("a test".to_string());
        let wish = (!self.is_done).then_some(Proposal { policy: "pager", action, reason });
        wish.into_iter().collect()
    }

    fn learn(&mut self, plan: &Plan, _: &[Outcome]) {
        self.is_done |= !plan.steps.is_empty();
    }
}

/// A quarter of a second after the last: one thread, its memory on node 0, and what it has done so
/// far.
fn observation(window: u64, cpu: usize, progress: f64, data: usize) -> Observation {
    let cpu_time = Nanos::from_millis(250 * window);
    let counted = Counter { value: progress as u64, enabled: cpu_time, running: cpu_time };
    let thread = ThreadObservation {
        tid: Tid(1),
        cpu,
        cpu_time,
        allowed: CpuSet::first(4),
        counters: [(Event::Instructions, counted)].into_iter().collect(),
        ..ThreadObservation::default()
    };
    let memory = (0..2).map(|node| Bytes(if node == data { 1 << 20 } else { 0 })).collect();
    let process = ProcessObservation {
        pid: PID,
        threads: vec![thread],
        memory: Some(memory),
        progress: Some(progress),
        ..ProcessObservation::default()
    };
    Observation { at: cpu_time, processes: vec![process], ..Observation::default() }
}

/// What is done with a thread that is half as fast on node 1, where its data is on this node.
fn done(data: usize) -> Vec<String> {
    let steps = steps(vec![Box::new(Mover::default())], data);
    steps.iter().map(|step| step.action.to_string()).collect()
}

/// The steps of twelve windows under these policies, for the same thread.
fn steps(policies: Vec<Box<dyn Policy>>, data: usize) -> Vec<Proposal> {
    let topology = synthetic::parse("node:2 core:2").expect("a machine");
    let settings = Settings { seed: 1, guard: GuardSettings::acting() };
    let mut controller = Controller::new(topology, policies, settings);
    let (mut cpu, mut progress) = (0, 0.0);
    let (mut told, mut outcomes) = (Vec::new(), Vec::new());
    for window in 1..=12 {
        progress += if cpu < 2 { 10.0 } else { 5.0 };
        let observation = observation(window, cpu, progress, data);
        let input = Input { observation, outcomes: std::mem::take(&mut outcomes) };
        let plan = controller.step(input).plan;
        for (place, step) in plan.steps.iter().enumerate() {
            told.push(step.clone());
            outcomes.push(Outcome {
                plan: plan.number,
                step: place,
                result: StepResult::Done,
                spent: Nanos(0),
                frozen: Nanos(0),
            });
            if let Action::SetAffinity { cpus, via, .. } = &step.action {
                cpu = via.or(cpus.min()).expect("a CPU");
            }
        }
    }
    told
}

#[test]
fn a_thread_that_goes_back_is_kept_where_its_data_is_and_nowhere_else() {
    let away = "thread 1 of 1 to CPUs 2-3";
    assert_eq!(done(0), [away, "thread 1 of 1 to CPU 0, then CPUs 0-1"]);
    assert_eq!(done(1), [away, "thread 1 of 1 to CPU 0, then CPUs 0-3"]);
}

/// A policy that is told of an undone step of another one would take its own steps for undone.
#[test]
fn an_undone_step_has_the_name_of_its_own_policy() {
    let policies: Vec<Box<dyn Policy>> =
        vec![Box::new(Mover::default()), Box::new(Pager::default())];
    let steps = steps(policies, 0);
    let names: Vec<&str> = steps.iter().map(|step| step.policy).collect();
    assert_eq!(names, ["mover", "pager", "pager", "mover"]);
    assert!(steps[2..].iter().all(|step| matches!(step.reason, Reason::Undo(_))));
}

/// The number of a process that ended is taken by another one, which has a thread of that number.
#[test]
fn a_later_process_of_the_same_number_keeps_its_own_mask() {
    let masks = |started: Nanos| {
        let topology = synthetic::parse("node:2 core:2").expect("a machine");
        let settings = Settings { seed: 1, guard: GuardSettings::acting() };
        let mut controller = Controller::new(topology, vec![Box::new(Mover::default())], settings);
        let mut outcomes = Vec::new();
        for window in 1..=12 {
            let mut observation = observation(window, 0, 10.0 * window as f64, 0);
            observation.processes[0].started = if window > 10 { started } else { Nanos(0) };
            let input = Input { observation, outcomes: std::mem::take(&mut outcomes) };
            let plan = controller.step(input).plan;
            let done = |step| Outcome {
                plan: plan.number,
                step,
                result: StepResult::Done,
                spent: Nanos(0),
                frozen: Nanos(0),
            };
            outcomes = (0..plan.steps.len()).map(done).collect();
        }
        controller.ledger().restore().len()
    };
    assert_eq!(masks(Nanos(0)), 1, "the same process");
    assert_eq!(masks(Nanos::from_millis(2_600)), 0);
}
