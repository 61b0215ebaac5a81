//! Counts of a whole process: they say more than samples of its threads, and need no thread to have
//! lived long.

use rondpoint_core::observation::{Counter, Counters, Event, Observation, ProcessObservation};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Model, Nanos, Pid, model::UpdateSettings};

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

#[test]
fn the_read_ratio_is_taken_from_the_whole_process() {
    use Event::{DramReads, DramReadsAndWrites};
    check(
        &[(DramReads, 0), (DramReadsAndWrites, 0)],
        &[(DramReads, 90), (DramReadsAndWrites, 120)],
        "latency - - reads 75.0",
    );
}
