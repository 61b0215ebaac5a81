//! Policies with several lanes: each lane is shown what the host counted since that lane last
//! decided, however many windows that was.

use proptest::prelude::*;
use rondpoint_core::controller::{Controller, Input, Settings};
use rondpoint_core::observation::{
    AddressSample, Counter, Counters, Event, ProcessObservation, Samples, Source, ThreadObservation,
};
use rondpoint_core::policy::views::Views;
use rondpoint_core::policy::{Pace, Policy};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{
    CpuSet, Matrix, Model, Nanos, Observation, Pid, Proposal, Random, Tid, Topology,
};
use std::cell::RefCell;
use std::rc::Rc;

/// A lane that was due, and what it was shown.
type Shown = Rc<RefCell<Vec<(usize, Model)>>>;

/// Writes down what its lanes, which decide every 100 ms and every second, are shown.
struct Recorder(Shown);

impl Policy for Recorder {
    fn propose(&mut self, _: &Model, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        unreachable!("the controller asks lanes")
    }

    fn lanes(&self) -> usize {
        2
    }

    fn pace(&self, lane: usize) -> Pace {
        Pace::every([Nanos::from_millis(100), Nanos::from_secs(1)][lane])
    }

    fn propose_due(&mut self, views: &Views<'_>, _: &Topology, _: &mut Random) -> Vec<Proposal> {
        let due = (0..2).filter_map(|lane| Some((lane, views.due(lane)?.clone())));
        self.0.borrow_mut().extend(due);
        Vec::new()
    }
}

/// What one thread did in a window.
#[derive(Debug, Clone, Copy)]
struct Window {
    millis: u64,
    /// Share of the window that the thread ran, in percent.
    busy: u64,
    instructions: u64,
    misses: u64,
    local: u64,
    remote: u64,
    /// DRAM requests from node 0 to node 1.
    requests: u64,
    samples: usize,
}

fn window() -> impl Strategy<Value = Window> {
    let counts = (1_000_u64..1 << 40, 0_u64..1 << 32, 0_u64..1 << 30, 0_u64..1 << 30);
    (50_u64..500, 1_u64..=100, counts, 0_u64..1 << 30, 0_usize..4).prop_map(
        |(millis, busy, (instructions, misses, local, remote), requests, samples)| Window {
            millis,
            busy,
            instructions,
            misses,
            local,
            remote,
            requests,
            samples,
        },
    )
}

/// The sums of some windows.
fn sum(windows: &[Window], of: fn(&Window) -> u64) -> u64 {
    windows.iter().map(of).sum()
}

/// What a host shows after these windows.
fn observation(windows: &[Window]) -> Observation {
    let total = |of: fn(&Window) -> u64| Counter::exact(sum(windows, of));
    let ran = |window: &Window| window.millis * window.busy * 10_000;
    let counters: Counters = [
        (Event::Instructions, total(|window| window.instructions)),
        (Event::LlcMisses, total(|window| window.misses)),
        (Event::LocalDram, total(|window| window.local)),
        (Event::RemoteDram, total(|window| window.remote)),
    ]
    .into_iter()
    .collect();
    let thread = ThreadObservation {
        tid: Tid(1),
        cpu_time: Nanos(sum(windows, |window| window.millis * window.busy * 10_000)),
        allowed: CpuSet::first(2),
        counters,
        ..ThreadObservation::default()
    };
    let sample = AddressSample {
        pid: Pid(1),
        tid: Tid(1),
        cpu: 0,
        node: 1,
        address: 0x1000,
        latency_cycles: 0,
        page_shift: 12,
        source: Source::Dram,
        store: false,
    };
    let count = windows.last().map_or(0, |window| window.samples);
    debug_assert!(windows.iter().all(|window| ran(window) <= window.millis * 1_000_000));
    let requests = total(|window| window.requests);
    let from_0_to_1 = |n, m| if (n, m) == (0, 1) { requests } else { Counter::exact(0) };
    Observation {
        at: Nanos::from_millis(10_000 + sum(windows, |window| window.millis)),
        processes: vec![ProcessObservation {
            pid: Pid(1),
            threads: vec![thread],
            node_traffic: Some(Matrix::from_fn(2, from_0_to_1)),
            ..ProcessObservation::default()
        }],
        samples: Some(Samples { list: vec![sample; count], ..Samples::default() }),
        ..Observation::default()
    }
}

/// Models that each lane decided on.
fn shown(windows: &[Window]) -> Vec<(usize, Model)> {
    let shown = Shown::default();
    let topology = synthetic::parse("node:2 core:1").expect("a machine");
    let policies: Vec<Box<dyn Policy>> = vec![Box::new(Recorder(Rc::clone(&shown)))];
    let mut controller = Controller::new(topology, policies, Settings::default());
    for end in 0..=windows.len() {
        let observation = observation(&windows[..end]);
        controller.step(Input { observation, outcomes: Vec::new() });
    }
    drop(controller);
    Rc::try_unwrap(shown).expect("the controller is gone").into_inner()
}

/// Asserts that a model is the difference over these windows.
fn is_difference(model: &Model, windows: &[Window]) {
    let total = |of: fn(&Window) -> u64| sum(windows, of) as f64;
    let close = |found: Option<f64>, expected: f64| {
        let found = found.expect("counted");
        assert!((found - expected).abs() <= 1e-6 * expected.abs().max(1e-12), "{found} {expected}");
    };
    let (thread, app) = (&model.threads[0], &model.apps[0]);
    let ran_s = total(|window| window.millis * window.busy * 10_000) / 1e9;
    assert_eq!(model.elapsed, Nanos::from_millis(sum(windows, |window| window.millis)));
    let misses = total(|window| window.misses);
    close(thread.rates.mpki, 1000.0 * misses / total(|window| window.instructions));
    close(thread.rates.memory_per_s, misses / ran_s);
    let (local, remote) = (total(|window| window.local), total(|window| window.remote));
    if local + remote > 0.0 {
        close(thread.rates.local_dram_share, local / (local + remote));
    }
    let traffic = app.traffic.as_ref().map(|traffic| traffic.requests_per_us[(0, 1)]);
    close(traffic, total(|window| window.requests) / (1e3 * total(|window| window.millis)));
    let samples: u32 = model.pages.iter().map(|page| page.total()).sum();
    assert_eq!(samples as usize, windows.iter().map(|window| window.samples).sum::<usize>());
}

proptest! {
    #[test]
    fn two_windows_joined_equal_the_difference_over_both(
        windows in prop::collection::vec(window(), 2..24)
    ) {
        let mut begins = [0; 2];
        let ends = |at: Nanos| {
            let passed = at.0 / 1_000_000 - 10_000;
            let is_end = |end: &usize| sum(&windows[..*end], |window| window.millis) == passed;
            (1..=windows.len()).find(is_end).expect("an end of a window")
        };
        for (lane, model) in shown(&windows) {
            let end = ends(model.at);
            is_difference(&model, &windows[begins[lane]..end]);
            begins[lane] = end;
        }
    }
}

/// A window of little work that misses often, and a window of much work that does not. A mean of
/// their ratios says 30.5 misses per 1000 instructions, half of them local.
#[test]
fn little_work_does_not_count_as_much_as_much_work() {
    let little = Window {
        millis: 500,
        busy: 100,
        instructions: 1_000_000,
        misses: 60_000,
        local: 57_000,
        remote: 3_000,
        requests: 0,
        samples: 0,
    };
    let much =
        Window { instructions: 30_000_000, misses: 30_000, local: 0, remote: 1_127_500, ..little };
    let shown = shown(&[little, much]);
    let (_, both) = shown.iter().rfind(|(lane, _)| *lane == 1).expect("a second is over");
    let rates = &both.threads[0].rates;
    assert_eq!(rates.mpki.map(|mpki| (100.0 * mpki).round()), Some(290.0));
    assert_eq!(rates.local_dram_share.map(|share| (1000.0 * share).round()), Some(48.0));
}
