//! Counts of a whole process: they say more than samples of its threads, and need no thread to have
//! lived long.

use rondpoint_core::model::ReadSource;
use rondpoint_core::observation::{
    AddressSample, Counter, Counters, Event, Observation, ProcessObservation, Samples, Source,
    ThreadObservation,
};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Model, Nanos, Pid, Tid, model::UpdateSettings};

fn observation(at: u64, counts: &[(Event, u64)]) -> Observation {
    let exact = |(event, value): &(Event, u64)| (*event, Counter::exact(*value));
    let counters: Counters = counts.iter().map(exact).collect();
    let process = ProcessObservation { pid: Pid(1), counters, ..ProcessObservation::default() };
    Observation { at: Nanos(at), processes: vec![process], ..Observation::default() }
}

fn check(before: &[(Event, u64)], after: &[(Event, u64)], expected: &str) {
    let machine = synthetic::parse("node:2 core:2").expect("a machine");
    let (before, after) = (observation(1_000, before), observation(2_000, after));
    let model = Model::update(&machine, &before, &after, &UpdateSettings::default());
    let shown = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.1}"));
    let app = &model.apps[0];
    let text = format!(
        "latency {} {} reads {}",
        shown(app.latency_cycles),
        shown(model.latency_cycles),
        shown(app.read_percent)
    );
    assert_eq!(text, expected);
}

#[test]
fn latency_is_the_cycles_of_all_requests_over_their_number() {
    use Event::{DramLatencyCycles, DramRequests};
    check(
        &[(DramLatencyCycles, 1_000), (DramRequests, 10)],
        &[(DramLatencyCycles, 7_000), (DramRequests, 30)],
        "latency 300.0 300.0 reads -",
    );
    check(&[(DramRequests, 10)], &[(DramRequests, 30)], "latency - - reads -");
    check(
        &[(DramLatencyCycles, 5), (DramRequests, 10)],
        &[(DramLatencyCycles, 5), (DramRequests, 10)],
        "latency - - reads -",
    );
}

/// A process with threads that loaded this many lines from memory. They stored this often to pages
/// of memory and to a stack that never leaves its cache.
fn sampled(loads: usize, stores: usize, stack: usize, of: &Samples) -> Option<(f64, ReadSource)> {
    let machine = synthetic::parse("node:2 core:2").expect("a machine");
    let thread = ThreadObservation { tid: Tid(1), ..ThreadObservation::default() };
    let process =
        ProcessObservation { pid: Pid(1), threads: vec![thread], ..ProcessObservation::default() };
    let seen = |at| Observation {
        at: Nanos(at),
        processes: vec![process.clone()],
        ..Observation::default()
    };
    let sample = |page: usize, source, store| AddressSample {
        pid: Pid(1),
        tid: Tid(1),
        cpu: 0,
        node: 0,
        address: (page << 12) as u64,
        latency_cycles: 0,
        page_shift: 12,
        source,
        store,
    };
    let table = |index: usize| 1 + index % 50;
    let loads = (0..loads).map(|index| sample(table(index), Source::Dram, false));
    let stores = (0..stores).map(|index| sample(table(index), Source::FirstLevel, true));
    let stack = (0..stack).map(|_| sample(0, Source::FirstLevel, true));
    let list = loads.chain(stores).chain(stack).collect();
    let mut after = seen(2_000);
    after.samples = Some(Samples { list, ..of.clone() });
    let model = Model::update(&machine, &seen(1_000), &after, &UpdateSettings::default());
    let app = &model.apps[0];
    app.read_percent.map(|percent| (percent, app.read_source))
}

#[test]
fn samples_of_loads_and_stores_tell_at_least_how_many_accesses_read() {
    let both = Samples { stores: true, ..Samples::default() };
    let (percent, source) = sampled(1_000, 0, 0, &both).expect("known");
    assert_eq!((format!("{percent:.1}"), source), ("99.6".into(), ReadSource::Samples));
    let shown = |loads, stores, stack| {
        let (percent, _) = sampled(loads, stores, stack, &both).expect("known");
        format!("{percent:.1}")
    };
    assert_eq!(shown(20, 0, 0), "83.9", "few samples say little");
    assert_eq!(shown(1_000, 100, 0), "89.1", "a store that a cache takes is written in the end");
    assert_eq!(shown(1_000, 0, 5_000), "99.6", "a stack is not");
    assert_eq!(sampled(0, 100, 0, &both), None);
}

#[test]
fn the_share_of_reads_stays_unknown_where_stores_are_not_sampled_or_samples_throttled() {
    assert_eq!(sampled(1_000, 0, 0, &Samples::default()), None);
    let throttled = Samples { stores: true, throttled: true, ..Samples::default() };
    assert_eq!(sampled(1_000, 0, 0, &throttled), None);
}

#[test]
fn the_read_ratio_is_taken_from_the_whole_process() {
    use Event::{DramReads, DramReadsAndWrites};
    check(
        &[(DramReads, 0), (DramReadsAndWrites, 0)],
        &[(DramReads, 90), (DramReadsAndWrites, 120)],
        "latency - - reads 75.0",
    );
}
