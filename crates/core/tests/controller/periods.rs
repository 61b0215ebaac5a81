//! Policies with different periods in one controller: each sees the whole interval since it last
//! decided, samples included.

use rondpoint_core::controller::{Controller, Input, Settings};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::observation::{
    AddressSample, ProcessObservation, Samples, Source, ThreadObservation,
};
use rondpoint_core::policy::{Pace, Policy};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{CpuSet, Model, Nanos, Observation, Pid, Proposal, Random, Tid, Topology};
use std::cell::RefCell;
use std::rc::Rc;

type Diary = Rc<RefCell<Vec<String>>>;

/// Writes down what it is shown.
struct Diarist {
    name: &'static str,
    period: Nanos,
    memory: Nanos,
    diary: Diary,
}

impl Policy for Diarist {
    fn propose(&mut self, model: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        let samples: u32 = model.pages.iter().map(|page| page.total()).sum();
        let entry = format!("{} at {}: {}, {samples} samples", self.name, model.at, model.elapsed);
        self.diary.borrow_mut().push(entry);
        Vec::new()
    }

    fn period(&self) -> Nanos {
        self.period
    }

    fn pace(&self, _: usize) -> Pace {
        Pace { remembers: self.memory, ..Pace::every(self.period) }
    }
}

fn observation(at: Nanos) -> Observation {
    let thread = ThreadObservation {
        tid: Tid(1),
        allowed: CpuSet::first(2),
        ..ThreadObservation::default()
    };
    let sample = AddressSample {
        pid: Pid(1),
        tid: Tid(1),
        cpu: 0,
        node: 0,
        address: 0x1000,
        latency_cycles: 0,
        page_shift: 12,
        source: Source::Dram,
        store: false,
    };
    Observation {
        at,
        processes: vec![ProcessObservation {
            pid: Pid(1),
            threads: vec![thread],
            ..ProcessObservation::default()
        }],
        samples: Some(Samples { list: vec![sample], ..Samples::default() }),
        ..Observation::default()
    }
}

fn diary(policies: &[(&'static str, u64)], step_ms: u64, steps: u64) -> Vec<String> {
    let diary: Diary = Rc::default();
    let policy = |&(name, millis): &(&'static str, u64)| -> Box<dyn Policy> {
        Box::new(Diarist {
            name,
            period: Nanos::from_millis(millis),
            memory: Nanos(0),
            diary: Rc::clone(&diary),
        })
    };
    let topology = synthetic::parse("node:1 core:2").expect("a machine");
    let settings = Settings { seed: 1, guard: GuardSettings::acting() };
    let mut controller = Controller::new(topology, policies.iter().map(policy).collect(), settings);
    for step in 0..=steps {
        let observation = observation(Nanos::from_millis(10_000 + step * step_ms));
        controller.step(Input { observation, outcomes: Vec::new() });
    }
    drop(controller);
    Rc::try_unwrap(diary).expect("the controller is gone").into_inner()
}

#[test]
fn each_policy_sees_its_own_interval() {
    let found = diary(&[("fast", 100), ("slow", 300)], 100, 3);
    let expected = [
        "fast at 10.1 s: 100.0 ms, 1 samples",
        "fast at 10.2 s: 100.0 ms, 1 samples",
        "fast at 10.3 s: 100.0 ms, 1 samples",
        "slow at 10.3 s: 300.0 ms, 3 samples",
    ];
    assert_eq!(found, expected);
}

/// One hint fault on a page in each second, from the two nodes in turn; no samples.
#[test]
fn hint_faults_are_kept_for_ten_seconds() {
    let diary: Diary = Rc::default();
    let policy = Diarist {
        name: "one",
        period: Nanos::from_secs(1),
        memory: Nanos(0),
        diary: Rc::clone(&diary),
    };
    let topology = synthetic::parse("node:1 core:2").expect("a machine");
    let settings = Settings { seed: 1, guard: GuardSettings::acting() };
    let mut controller = Controller::new(topology, vec![Box::new(policy)], settings);
    for second in 0..14 {
        let mut observation = observation(Nanos::from_secs(second));
        let faults = observation.samples.take().map(|mut samples| {
            samples.list[0].source = Source::HintFault;
            samples
        });
        observation.hint_faults = faults;
        controller.step(Input { observation, outcomes: Vec::new() });
    }
    drop(controller);
    let count = |entry: &String| entry.split(' ').rev().nth(1).map(str::to_string);
    let counts: Vec<String> = diary.borrow().iter().filter_map(count).collect();
    assert_eq!(
        counts.join(" "),
        "1 2 3 4 5 6 7 8 9 10 11 11 11",
        "those of the last ten seconds and the newest"
    );
}

#[test]
fn a_host_that_wakes_early_does_not_halve_the_rate() {
    assert_eq!(diary(&[("one", 1_000)], 950, 4).len(), 4);
    assert_eq!(diary(&[("one", 1_000)], 500, 4).len(), 2);
}

/// A trial compares three windows after an action, the action's own left out: within a second,
/// however quiet a policy is.
#[test]
fn a_second_holds_four_windows_and_none_is_too_short_to_say_anything() {
    let window = |millis| {
        let period = Nanos::from_millis(millis);
        let policy = Diarist { name: "one", period, memory: Nanos(0), diary: Rc::default() };
        let topology = synthetic::parse("node:1 core:2").expect("a machine");
        Controller::new(topology, vec![Box::new(policy)], Settings::default()).period()
    };
    assert_eq!(window(4_000), Nanos::from_millis(250));
    assert_eq!(window(1_000), Nanos::from_millis(250));
    assert_eq!(window(300), Nanos::from_millis(250));
    assert_eq!(window(100), Nanos::from_millis(100));
}

#[test]
fn samples_are_seen_again_for_as_long_as_a_policy_remembers() {
    let seen = |memory: u64| {
        let diary: Diary = Rc::default();
        let period = Nanos::from_secs(1);
        let memory = Nanos::from_secs(memory);
        let policy = Diarist { name: "one", period, memory, diary: Rc::clone(&diary) };
        let topology = synthetic::parse("node:1 core:2").expect("a machine");
        let mut controller = Controller::new(topology, vec![Box::new(policy)], Settings::default());
        for second in 0..6 {
            let observation = observation(Nanos::from_secs(second));
            controller.step(Input { observation, outcomes: Vec::new() });
        }
        let count = |entry: &String| entry.split(' ').rev().nth(1).map(str::to_string);
        let counts: Vec<String> = diary.borrow().iter().filter_map(count).collect();
        counts.join(" ")
    };
    assert_eq!(seen(0), "1 1 1 1 1");
    assert_eq!(seen(1), "1 2 2 2 2");
    assert_eq!(seen(2), "1 2 3 3 3");
}
