//! From two observations to a model: rates, multiplexing, homes, and what is left when a sensor is
//! missing.

use rondpoint_core::model::{Rung, Traffic, TrafficSource, UpdateSettings};
use rondpoint_core::observation::{
    AddressSample, Counter, Counters, Event, Observation, ProcessObservation, Samples,
    SharedMapping, SharedObject, Source, ThreadObservation, UNKNOWN_NODE,
};
use rondpoint_core::topology::{Description, Link, Route, synthetic};
use rondpoint_core::{CpuSet, Matrix, Model, Nanos, Pid, Tid, Topology};

fn machine() -> Topology {
    synthetic::parse("node:2 core:2 mhz:2200").expect("a machine")
}

fn thread(tid: u32, cpu_ms: u64, counts: &[(Event, Counter)]) -> ThreadObservation {
    ThreadObservation {
        tid: Tid(tid),
        cpu: 0,
        cpu_time: Nanos::from_millis(cpu_ms),
        allowed: CpuSet::first(4),
        counters: counts.iter().copied().collect::<Counters>(),
        ..ThreadObservation::default()
    }
}

fn observation(at_ms: u64, processes: Vec<ProcessObservation>) -> Observation {
    Observation { at: Nanos::from_millis(at_ms), processes, ..Observation::default() }
}

fn process(pid: u32, threads: Vec<ThreadObservation>) -> ProcessObservation {
    ProcessObservation { pid: Pid(pid), threads, ..ProcessObservation::default() }
}

fn update(topology: &Topology, before: &Observation, after: &Observation) -> Model {
    let model = Model::update(topology, before, after, &UpdateSettings::default());
    model.check(topology).expect("every model from observations is sound");
    model
}

/// Two intervals of one thread: half a second of CPU in one second, counters from zero.
fn rates(counts: &[(Event, u64)]) -> rondpoint_core::model::ThreadRates {
    let exact = |&(event, value): &(Event, u64)| (event, Counter::exact(value));
    let zero: Vec<(Event, Counter)> =
        counts.iter().map(|(event, _)| (*event, Counter::exact(0))).collect();
    let counts: Vec<(Event, Counter)> = counts.iter().map(exact).collect();
    let before = observation(1_000, vec![process(1, vec![thread(1, 0, &zero)])]);
    let after = observation(2_000, vec![process(1, vec![thread(1, 500, &counts)])]);
    update(&machine(), &before, &after).threads[0].rates
}

#[test]
fn sams_rates_are_events_over_reference_cycles_times_the_clock() {
    // 1.1e9 reference cycles at 2.2 GHz are half a second of CPU time in either round.
    let rates = rates(&[
        (Event::ReferenceCycles, 1_100_000_000),
        (Event::ReferenceCyclesRound2, 550_000_000),
        (Event::RemoteForward, 100_000),
        (Event::RemoteHitm, 50_000),
        (Event::PrivateMisses, 9_000_000),
        (Event::LlcHits, 5_000_000),
        (Event::LlcLoadMisses, 3_000_000),
        (Event::LlcMisses, 3_500_000),
        (Event::LlcPrefetchMisses, 500_000),
        (Event::RemoteDram, 1_000_000),
        (Event::LocalDram, 3_000_000),
    ]);
    assert_eq!(
        rates.coherence_remote_per_s,
        Some(600_000.0),
        "round 2 ran for a quarter of a second"
    );
    assert_eq!(
        rates.coherence_local_per_s,
        Some(2_000_000.0),
        "9 − 5 − 3 million in half a second"
    );
    assert_eq!(rates.memory_per_s, Some(8_000_000.0), "demand and prefetch misses");
    assert_eq!(rates.remote_dram_per_s, Some(2_000_000.0));
    assert_eq!(rates.local_dram_share, Some(0.75));
}

#[test]
fn without_reference_cycles_the_schedulers_cpu_time_counts() {
    let rates = rates(&[
        (Event::LlcMisses, 2_000_000),
        (Event::Instructions, 1_000_000_000),
        (Event::Cycles, 2_000_000_000),
    ]);
    assert_eq!(rates.memory_per_s, Some(4_000_000.0));
    assert_eq!(rates.mpki, Some(2.0));
    assert_eq!((rates.ipc, rates.cpi()), (Some(0.5), Some(2.0)));
    assert_eq!(rates.instructions_per_s, Some(1e9), "progress is per second of wall time");
    assert_eq!(rates.coherence_remote_per_s, None, "not counted is not zero");
}

#[test]
fn threads_on_one_core_at_the_same_time_share_it() {
    let topology = synthetic::parse("node:2 core:2 pu:2 mhz:2200").expect("a machine");
    let on = |tid: u32, cpu: usize, cpu_ms: u64| ThreadObservation {
        cpu,
        allowed: CpuSet::first(8),
        ..thread(tid, cpu_ms, &[])
    };
    let now = |cpu_ms: u64| vec![process(1, vec![on(1, 0, cpu_ms), on(2, 1, cpu_ms / 2)])];
    let model = update(&topology, &observation(1_000, now(0)), &observation(2_000, now(1_000)));
    let shared: Vec<f64> = model.threads.iter().map(|thread| thread.core_shared).collect();
    assert_eq!(shared, [0.5, 1.0]);
}

#[test]
fn a_negative_snp_is_zero_and_a_direct_count_goes_first() {
    let negative = rates(&[(Event::PrivateMisses, 10), (Event::LlcHits, 8), (Event::LlcMisses, 5)]);
    assert_eq!(negative.coherence_local_per_s, Some(0.0));
    let direct = [
        (Event::PrivateMisses, 10),
        (Event::LlcHits, 0),
        (Event::LlcMisses, 0),
        (Event::SnoopLocal, 3),
    ];
    assert_eq!(rates(&direct).coherence_local_per_s, Some(6.0));
    assert_eq!(rates(&direct[3..]).coherence_local_per_s, Some(6.0), "needs nothing beside it");
}

#[test]
fn stalls_per_coherence_event_and_stall_share() {
    let rates =
        rates(&[(Event::StallCycles, 600), (Event::Cycles, 1_000), (Event::RemoteHitm, 20)]);
    assert_eq!((rates.stall_share, rates.stalls_per_coherence), (Some(0.6), Some(30.0)));
}

#[test]
fn a_counter_that_ran_too_little_is_not_believed_and_lowers_confidence() {
    let counter =
        |value, running| Counter { value, enabled: Nanos(1_000), running: Nanos(running) };
    let interval = |running| {
        let before = observation(
            0,
            vec![process(1, vec![thread(1, 0, &[(Event::LlcMisses, Counter::default())])])],
        );
        let after = observation(
            1_000,
            vec![process(1, vec![thread(1, 1_000, &[(Event::LlcMisses, counter(100, running))])])],
        );
        update(&machine(), &before, &after)
    };
    let half = interval(500);
    assert_eq!(half.threads[0].rates.memory_per_s, Some(200.0));
    assert_eq!(half.sensing.running_share, 0.5);
    assert!(half.sensing.confidence < interval(1_000).sensing.confidence);
    assert_eq!(interval(149).threads[0].rates.memory_per_s, None);
}

/// With many threads one has always just begun to run, and its counters have had no turn.
#[test]
fn confidence_falls_with_the_time_that_was_not_counted_and_not_with_the_worst_counter() {
    let misses =
        |enabled, running| Counter { value: 0, enabled: Nanos(enabled), running: Nanos(running) };
    let look = |at, whole: Counter, brief: Counter| {
        let threads = vec![
            thread(1, at, &[(Event::LlcMisses, whole)]),
            thread(2, at, &[(Event::LlcMisses, brief)]),
        ];
        observation(at, vec![process(1, threads)])
    };
    let before = look(0, misses(0, 0), misses(0, 0));
    let after = look(1_000, misses(900, 900), misses(100, 20));
    let sensing = update(&machine(), &before, &after).sensing;
    assert!((sensing.running_share - 0.92).abs() < 1e-9, "{}", sensing.running_share);
}

#[test]
fn a_thread_that_began_in_the_interval_counted_from_zero_and_one_from_elsewhere_is_unknown() {
    let counts = [(Event::LlcMisses, Counter::exact(100))];
    let mut before = observation(0, vec![process(1, vec![thread(1, 0, &counts)])]);
    let after = observation(
        1_000,
        vec![process(1, vec![thread(1, 900, &counts), thread(2, 900, &counts)])],
    );
    let model = update(&machine(), &before, &after);
    assert_eq!(model.threads[0].rates.memory_per_s, Some(0.0));
    let born = &model.threads[1];
    assert_eq!((born.cpu_share, born.rates.memory_per_s), (0.9, Some(100.0 / 0.9)));
    let older = observation(1_000, vec![process(1, vec![thread(2, 1_001, &counts)])]);
    let model = update(&machine(), &before, &older);
    let older = &model.threads[0];
    assert_eq!((older.cpu_share, older.rates.memory_per_s), (0.0, None), "it ran before");
    before.processes[0].started = Nanos(7);
    let reused = update(&machine(), &before, &after).threads[0].rates.memory_per_s;
    assert_eq!(reused, Some(100.0 / 0.9), "another process: its counts are not compared");
}

fn traffic(rows: &[[u64; 2]; 2]) -> Option<Matrix<Counter>> {
    Some(Matrix::from_fn(2, |n, m| Counter::exact(rows[n][m])))
}

#[test]
fn counted_traffic_is_requests_per_microsecond() {
    let mut before = observation(0, vec![process(1, Vec::new())]);
    let mut after = observation(1_000, vec![process(1, Vec::new())]);
    before.node_traffic = traffic(&[[0, 0], [0, 0]]);
    after.node_traffic = traffic(&[[30_000_000, 10_000_000], [60_000_000, 0]]);
    let model = update(&machine(), &before, &after);
    let machine_traffic = model.traffic.as_ref().expect("counted");
    assert_eq!(machine_traffic.total_per_us(), 100.0);
    assert_eq!(machine_traffic.local_percent(), Some(30.0));
    let app = &model.apps[0];
    assert_eq!(app.traffic, model.traffic, "the only application has the machine's");
    assert_eq!(app.traffic_source, TrafficSource::Machine);
    assert_eq!(model.sensing.rung, Rung::Counters);
}

fn sample(pid: u32, cpu: u16, node: u16, page: u64, source: Source) -> AddressSample {
    AddressSample {
        pid: Pid(pid),
        tid: Tid(pid),
        cpu,
        node,
        address: (page << 12) + 8,
        latency_cycles: 300,
        page_shift: 12,
        source,
        store: false,
    }
}

#[test]
fn sampled_traffic_has_the_samples_proportions_and_the_counted_rate() {
    let counts = |local, remote| {
        [(Event::LocalDram, Counter::exact(local)), (Event::RemoteDram, Counter::exact(remote))]
    };
    let two = |cpu_ms, counts: &[(Event, Counter)]| {
        vec![process(1, vec![thread(1, cpu_ms, counts)]), process(2, vec![thread(2, cpu_ms, &[])])]
    };
    let before = observation(0, two(0, &counts(0, 0)));
    let mut after = observation(1_000, two(1_000, &counts(10_000_000, 30_000_000)));
    let dram = |cpu, node, page| sample(1, cpu, node, page, Source::Dram);
    after.samples = Some(Samples {
        list: vec![
            dram(0, 0, 1),
            dram(0, 1, 2),
            dram(0, 1, 3),
            dram(3, 1, 2),
            sample(1, 0, UNKNOWN_NODE, 9, Source::FirstLevel),
        ],
        ..Samples::default()
    });
    let model = update(&machine(), &before, &after);
    let app = &model.apps[0];
    assert_eq!(app.traffic_source, TrafficSource::Samples);
    let found = app.traffic.as_ref().expect("sampled");
    assert_eq!(found.requests_per_us.rows().collect::<Vec<_>>(), [[10.0, 20.0], [0.0, 10.0]]);
    assert_eq!(app.latency_cycles, Some(300.0));
    assert_eq!(model.apps[1].traffic, None);
    assert_eq!(model.threads[0].accesses_by_node, Some(vec![1, 3]));
    assert_eq!(model.threads[0].home(), Some(1));
    let pages: Vec<(u64, Option<usize>, u32)> =
        model.pages.iter().map(|page| (page.address >> 12, page.home, page.total())).collect();
    assert_eq!(pages, [(1, Some(0), 1), (2, Some(1), 2), (3, Some(1), 1), (9, None, 1)]);
    assert_eq!(model.touches.iter().filter(|touch| touch.remote).count(), 2);
    assert_eq!((model.sensing.rung, model.sensing.confidence), (Rung::Samples, 1.0));
}

/// Seen in the lab: a stream's loads find their lines on the way, and the few that wait from the
/// beginning are for something else.
#[test]
fn a_prefetched_stream_draws_what_it_waits_for_and_an_unseen_process_draws_nothing() {
    let three = || [1, 2, 3].map(|pid| process(pid, vec![thread(pid, 0, &[])])).to_vec();
    let mut before = observation(0, three());
    let mut after = observation(1_000, three());
    before.node_traffic = traffic(&[[0, 0], [0, 0]]);
    after.node_traffic = traffic(&[[6_000_000, 0], [0, 2_000_000]]);
    let seen = |pid, cpu, node, source| sample(pid, cpu, node, u64::from(pid), source);
    let stream = [(0, 0), (2, 0), (0, 0)].map(|(cpu, node)| seen(1, cpu, node, Source::InFlight));
    let few = [seen(1, 0, 1, Source::Dram), seen(1, 0, 1, Source::FirstLevel)];
    let local = [0, 1, 0, 0].map(|cpu| seen(2, cpu, 0, Source::Dram));
    after.samples =
        Some(Samples { list: [&stream[..], &few, &local].concat(), ..Samples::default() });
    let model = update(&machine(), &before, &after);
    let found = |app: usize| {
        let traffic = model.apps[app].traffic.as_ref().expect("known");
        traffic.requests_per_us.rows().map(<[f64]>::to_vec).collect::<Vec<_>>()
    };
    assert_eq!(found(0), [[2.0, 1.0], [1.0, 0.0]]);
    assert_eq!(found(1), [[4.0, 0.0], [0.0, 0.0]]);
    assert_eq!(found(2), [[0.0, 0.0], [0.0, 0.0]], "a shell that waits");
    assert_eq!(model.apps[0].latency_cycles, Some(300.0), "of what memory answered itself");
}

/// A processor with no event that tells nodes apart, as AMD's first EPYC: what each controller
/// served is known, and samples tell who asked. Node 0 has CPUs 0 and 1.
#[test]
fn where_only_controllers_count_samples_tell_who_asked() {
    let processes =
        |cpu_ms| [1, 2].map(|pid| process(pid, vec![thread(pid, cpu_ms, &[])])).to_vec();
    let mut before = observation(0, processes(0));
    let mut after = observation(1_000, processes(1_000));
    let lines = |counts: [u64; 2]| Some(counts.map(Counter::exact).to_vec());
    before.controller_lines = lines([0, 0]);
    after.controller_lines = lines([40_000_000, 3_000_000]);
    let unsampled = update(&machine(), &before, &after);
    assert_eq!(unsampled.traffic, None, "nobody knows who asked");
    let dram = |pid, cpu| sample(pid, cpu, 0, 1, Source::Dram);
    after.samples = Some(Samples {
        list: vec![dram(1, 0), dram(1, 2), dram(1, 3), dram(2, 2)],
        ..Samples::default()
    });
    let model = update(&machine(), &before, &after);
    let rows = |traffic: &Option<Traffic>| {
        let traffic = traffic.as_ref().expect("known");
        traffic.requests_per_us.rows().map(<[f64]>::to_vec).collect::<Vec<_>>()
    };
    assert_eq!(rows(&model.traffic), [[10.0, 0.0], [30.0, 3.0]]);
    assert_eq!(rows(&model.apps[0].traffic), [[10.0, 0.0], [20.0, 0.0]]);
    assert_eq!(rows(&model.apps[1].traffic), [[0.0, 0.0], [10.0, 0.0]]);
    let load = model.traffic.expect("known").load_per_us();
    assert_eq!(load, [40.0, 3.0], "as counted, whoever asked");
}

#[test]
fn hint_faults_tell_proportions_and_say_so() {
    let before = observation(0, vec![process(1, vec![thread(1, 0, &[])])]);
    let mut after = observation(1_000, vec![process(1, vec![thread(1, 1_000, &[])])]);
    let fault = |cpu, page| AddressSample {
        latency_cycles: 0,
        ..sample(1, cpu, 0, page, Source::HintFault)
    };
    after.hint_faults = Some(Samples {
        list: vec![fault(0, 1), fault(2, 1), fault(2, 2), fault(3, 2)],
        ..Samples::default()
    });
    let model = update(&machine(), &before, &after);
    let app = &model.apps[0];
    assert_eq!(app.traffic_source, TrafficSource::HintFaults);
    assert_eq!(
        app.traffic.as_ref().and_then(rondpoint_core::model::Traffic::local_percent),
        Some(25.0)
    );
    assert_eq!(model.traffic, app.traffic, "the machine is what its applications show");
    assert_eq!((model.sensing.rung, model.sensing.confidence), (Rung::HintFaults, 0.7));
}

#[test]
fn lost_and_throttled_samples_lower_confidence_and_nothing_gives_nothing() {
    let before = observation(0, vec![process(1, vec![thread(1, 0, &[])])]);
    let mut after = observation(1_000, vec![process(1, vec![thread(1, 1_000, &[])])]);
    assert_eq!(update(&machine(), &before, &after).sensing.rung, Rung::Statistics);
    assert!(update(&machine(), &before, &after).sensing.confidence < 0.5);
    after.samples = Some(Samples {
        list: vec![sample(1, 0, 1, 1, Source::Dram)],
        lost: 3,
        throttled: true,
        ..Samples::default()
    });
    let sensing = update(&machine(), &before, &after).sensing;
    assert_eq!((sensing.lost_share, sensing.confidence), (0.75, 0.2));
}

#[test]
fn samples_of_strangers_and_impossible_cpus_are_dropped() {
    let before = observation(0, vec![process(1, vec![thread(1, 0, &[])])]);
    let mut after = observation(1_000, vec![process(1, vec![thread(1, 1_000, &[])])]);
    let list = vec![
        sample(9, 0, 0, 1, Source::Dram),
        sample(1, 99, 0, 1, Source::Dram),
        sample(1, 0, 77, 1, Source::Dram),
    ];
    after.samples = Some(Samples { list, ..Samples::default() });
    let model = update(&machine(), &before, &after);
    assert_eq!(model.pages.len(), 1, "a page on a node that is not there has no home");
    assert_eq!(model.pages.iter().next().and_then(|page| page.home), None);
}

#[test]
fn link_use_follows_the_declared_routes() {
    let mut description: Description = synthetic::describe("node:2 core:2").expect("a machine");
    description.links = vec![
        Link { from: 0, to: 1, bytes_per_s: 6.4e9 },
        Link { from: 1, to: 0, bytes_per_s: 3.2e9 },
    ];
    let route = |links: &[usize]| Route { links: links.to_vec() };
    description.routes = Some(vec![vec![route(&[]), route(&[1])], vec![route(&[0]), route(&[])]]);
    let topology = Topology::new(description).expect("a machine");
    let mut before = observation(0, Vec::new());
    let mut after = observation(1_000, Vec::new());
    before.node_traffic = traffic(&[[0, 0], [0, 0]]);
    // Node 0 reads 10 M lines of node 1: 640 MB/s over link 1 → 0.
    after.node_traffic = traffic(&[[50_000_000, 10_000_000], [0, 0]]);
    let model = update(&topology, &before, &after);
    assert_eq!(model.link_use, Some(vec![0.0, 0.2]));
    assert_eq!(model.link_use_and_imbalance_percent(), Some((10.0, 100.0)));
}

#[test]
fn a_page_that_several_processes_have_mapped_is_one_page_with_the_accesses_of_all() {
    let shared = |start| {
        let object = SharedObject { device: 1, inode: 7 };
        vec![SharedMapping { start, end: start + 0x10_000, object, offset: 0x2000 }]
    };
    let processes = |cpu_ms| {
        let of = |pid, start| ProcessObservation {
            shared: shared(start),
            ..process(pid, vec![thread(pid, cpu_ms, &[])])
        };
        vec![of(1, 0x10_0000), of(2, 0x50_0000)]
    };
    let seen = |pid, cpu, page| sample(pid, cpu, 0, page, Source::Dram);
    // Only the second process has the last page.
    let list = vec![seen(1, 0, 0x103), seen(2, 3, 0x503), seen(2, 3, 0x50f), seen(2, 3, 0x600)];
    let samples = Some(Samples { list, ..Samples::default() });
    let before = observation(1_000, processes(0));
    let after = Observation { samples, ..observation(2_000, processes(500)) };
    let model = update(&machine(), &before, &after);
    let pages: Vec<_> = model
        .pages
        .iter()
        .map(|page| (page.app, page.address, page.accesses().collect::<Vec<_>>()))
        .collect();
    let expected = [
        (0, 0x10_3000, vec![(0, 1), (1, 1)]),
        (0, 0x10_f000, vec![(1, 1)]),
        (1, 0x60_0000, vec![(1, 1)]),
    ];
    assert_eq!(pages, expected);
    let own = |thread: usize| model.threads[thread].accesses_by_node.clone();
    assert_eq!((own(0), own(1)), (Some(vec![1, 0]), Some(vec![3, 0])));
}
