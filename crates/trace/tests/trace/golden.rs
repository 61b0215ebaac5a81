//! A small file with every field that version 1 of the format has, checked in. It stays readable
//! for ever, whatever happens to the core's types. While version 1 is written, it is written so.

use std::path::Path;

use expect_test::expect_file;
use rondpoint_core::controller::{Input, Step};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::observation::{
    AddressSample, Counter, Event, Exemption, Mapping, MappingKind, ProcessObservation, Replica,
    Samples, Source, ThreadObservation, UNKNOWN_NODE,
};
use rondpoint_core::plan::{
    Inverse, Kind, Mechanism, NodeMove, PageCounts, PageMove, Refusal, Refused, Sampling,
    StepResult, Undo,
};
use rondpoint_core::topology::{Calibrated, Costs, Cpu, Description, Link, NodeDescription, Route};
use rondpoint_core::trial::{Change, Comparison, Judged, Verdict};
use rondpoint_core::{
    Action, Bytes, Matrix, Nanos, Observation, Outcome, Pid, Plan, Proposal, Reason, Tid, Topology,
};
use rondpoint_trace::{Decision, Header, PolicyChoice, Reader, VERSION, Writer};

const FILE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/every-field.v1.trace");

#[test]
fn version_1_stays_readable() {
    let mut reader = Reader::open(Path::new(FILE)).expect("version 1");
    assert_eq!(*reader.header(), header());
    for (expected, step) in inputs().into_iter().zip(steps()) {
        let record = reader.next().expect("as many steps").expect("version 1");
        assert_eq!(record.input, expected);
        let decision = record.decision.expect("each step was decided");
        assert_eq!(decision.difference(&Decision::from(&step)), None);
    }
    assert!(reader.next().is_none());
    assert_eq!(reader.truncated(), None);
}

#[test]
fn version_1_is_written_as_it_always_was() {
    assert_eq!(VERSION, 1, "write the next version's file beside this one and keep the test above");
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "memory", &header()).expect("written");
    for (input, step) in inputs().iter().zip(steps()) {
        writer.step(input, &step).expect("written");
    }
    expect_file![FILE].assert_eq(&String::from_utf8(file).expect("JSON is UTF-8"));
}

fn header() -> Header {
    Header {
        written_by: "rondpoint 0.1.0".to_string(),
        unix_s: Some(1_795_269_600),
        host: Some("crossroads".to_string()),
        command: vec!["./app".to_string(), "--with \"quotes\"".to_string()],
        policies: vec![
            PolicyChoice::parse("carrefour:author-code"),
            PolicyChoice { name: "sam".to_string(), preset: None },
        ],
        seed: u64::MAX,
        guard: guard(),
        topology: topology(),
        notes: vec!["no address samples: this machine has no PMU".to_string()],
    }
}

fn guard() -> GuardSettings {
    GuardSettings {
        act: true,
        min_confidence: 0.1,
        bytes_per_s_per_node: 1,
        calls_per_s: 2,
        samples_per_s_per_cpu: 3,
        page_residence: Nanos(4),
        thread_residence: Nanos(5),
        window: Nanos(6),
        max_moves_per_window: 7,
        mover_share: 0.3,
        mover_allowance: Nanos(8),
        reserve_share: f64::INFINITY,
        freeze: true,
        opted_out: [1, 2, 3, 99].into_iter().collect(),
        back_off: Nanos(9),
        max_failures: 10,
    }
}

/// Two nodes with a CPU each and one with memory only; numbers with holes.
fn topology() -> Topology {
    let node = |kernel_id, memory, controller_bytes_per_s| NodeDescription {
        kernel_id,
        memory: Bytes(memory),
        controller_bytes_per_s,
    };
    let cpu = |place: usize, isolated| Cpu {
        kernel_id: 4 * place as u32,
        node: place,
        cache_domain: place,
        core: place,
        package: 0,
        isolated,
    };
    let link = |from, to| Link { from, to, bytes_per_s: 12.5e9 };
    let route = |links: &[usize]| Route { links: links.to_vec() };
    Topology::new(Description {
        clock_hz: Some(2.3e9),
        nodes: vec![node(0, 1 << 34, Some(0.1e9)), node(1, 1 << 33, None), node(7, 1 << 30, None)],
        cpus: vec![cpu(0, false), cpu(1, true)],
        distances: Matrix::from_fn(3, |a, h| if a == h { 10 } else { 21 + a as u32 }),
        bandwidth_bytes_per_s: Some(Matrix::from_fn(3, |a, h| 1e9 / (1 + a + 3 * h) as f64)),
        calibrated: Calibrated::default(),
        costs: Costs::default(), // came later than this version of the format
        links: vec![link(0, 1), link(1, 0), link(2, 0), link(0, 2)],
        routes: Some(vec![
            vec![route(&[]), route(&[1]), route(&[2])],
            vec![route(&[0]), route(&[]), route(&[2, 0])],
            vec![route(&[3]), route(&[1, 3]), route(&[])],
        ]),
    })
    .expect("a machine")
}

fn inputs() -> [Input; 2] {
    let empty = Observation { at: Nanos(1_000_000_000), ..Observation::default() };
    let results = [
        StepResult::Done,
        StepResult::Pages(PageCounts {
            moved: 1,
            in_place: 2,
            absent: 3,
            busy: 4,
            no_memory: 5,
            failed: 6,
            collapsed: 7,
            elsewhere: 0, // came later than this version of the format
        }),
        StepResult::Gone,
        StepResult::Unsupported,
        StepResult::Refused { errno: 16 },
    ];
    let outcome =
        |(step, result)| Outcome { plan: 1, step, result, spent: Nanos(1_500), frozen: Nanos(250) };
    [
        Input { observation: empty, outcomes: Vec::new() },
        Input {
            observation: observation(),
            outcomes: results.into_iter().enumerate().map(outcome).collect(),
        },
    ]
}

fn observation() -> Observation {
    let counter = |value: u64| Counter { value, enabled: Nanos(2 * value), running: Nanos(value) };
    let traffic = Matrix::from_fn(3, |a, h| counter((10 * a + h) as u64));
    Observation {
        at: Nanos(2_000_000_001),
        after_pause: false, // came later than this version of the format
        node_traffic: Some(traffic.clone()),
        controller_lines: None, // came later than this version of the format
        link_bytes: Some((0..4).map(Counter::exact).collect()),
        free_memory: Some(vec![Bytes(1 << 33), Bytes(0), Bytes(4096)]),
        births: None, // came later than this version of the format
        processes: vec![process(traffic)],
        samples: Some(Samples {
            list: samples(),
            lost: 3,
            throttled: true,
            period: Some(65_000),
            stores: false, // came later than this version of the format
        }),
        hint_faults: Some(Samples {
            list: vec![AddressSample { source: Source::HintFault, ..samples()[0] }; 2],
            ..Samples::default()
        }),
    }
}

fn process(traffic: Matrix<Counter>) -> ProcessObservation {
    let exemptions = [
        Exemption::KernelThread,
        Exemption::RealTime,
        Exemption::OwnAffinity,
        Exemption::OwnMemoryPolicy,
        Exemption::OtherManager,
        Exemption::OptedOut,
    ];
    let thread = |place: usize, exempt, counters: &[Event]| ThreadObservation {
        tid: Tid(100 + place as u32),
        cpu: place % 2,
        cpu_time: Nanos(123_456_789),
        queued: None, // came later than this version of the format
        slices: None, // came later than this version of the format
        allowed: (0..=place % 2).collect(),
        exempt,
        counters: counters.iter().map(|event| (*event, Counter::exact(7))).collect(),
    };
    let mut threads = vec![thread(0, None, &EVENTS)];
    threads.extend(
        exemptions.iter().enumerate().map(|(place, one)| thread(1 + place, Some(*one), &[])),
    );
    let kinds = [
        MappingKind::PrivateAnonymous,
        MappingKind::PrivateHuge,
        MappingKind::PrivateOther,
        MappingKind::Shared,
        MappingKind::Special,
    ];
    let mapping = |(place, kind): (usize, &MappingKind)| Mapping {
        start: 0x7f00_0000_0000 + ((place as u64) << 21),
        end: 0x7f00_0000_0000 + ((place as u64 + 1) << 21),
        kind: *kind,
    };
    ProcessObservation {
        pid: Pid(100),
        started: Nanos(500_000_000),
        threads,
        node_traffic: Some(traffic.clone()),
        counters: [(Event::Instructions, Counter::exact(u64::MAX))].into_iter().collect(),
        cache_traffic: Some(traffic),
        memory: Some(vec![Bytes(1 << 20), Bytes(0), Bytes(0)]),
        faults: Some(42),
        mappings: Some(kinds.iter().enumerate().map(mapping).collect()),
        shared: Vec::new(),
        replicas: Some(vec![Replica { address: 0x7f00_0000_0000, collapses: 2 }]),
        policy_read: None, // came later than this version of the format
        progress: Some(1.0 / 3.0),
        allowed_nodes: Some([0, 2].into_iter().collect()),
        exempt: Some(Exemption::GivenUp),
        pages_moved_by_others: Some(9),
    }
}

/// Every event.
pub(crate) const EVENTS: [Event; 22] = [
    Event::Instructions,
    Event::Cycles,
    Event::ReferenceCycles,
    Event::ReferenceCyclesRound2,
    Event::LlcReferences,
    Event::LlcHits,
    Event::LlcMisses,
    Event::LlcPrefetchMisses,
    Event::LlcLoadMisses,
    Event::PrivateMisses,
    Event::RemoteForward,
    Event::RemoteHitm,
    Event::SnoopLocal,
    Event::LocalDram,
    Event::RemoteDram,
    Event::StallCycles,
    Event::Refills,
    Event::RefillsModified,
    Event::DramReads,
    Event::DramReadsAndWrites,
    Event::DramLatencyCycles,
    Event::DramRequests,
];

fn samples() -> Vec<AddressSample> {
    let sources = [
        Source::FirstLevel,
        Source::Private,
        Source::LastLevel,
        Source::CacheSameNode,
        Source::CacheRemote,
        Source::CacheRemoteModified,
        Source::Dram,
        Source::HintFault,
        Source::Unknown,
        Source::InFlight,
    ];
    let sample = |(place, source): (usize, &Source)| AddressSample {
        pid: Pid(100),
        tid: Tid(100 + place as u32 % 2),
        cpu: place as u16 % 2,
        node: if place == 0 { UNKNOWN_NODE } else { place as u16 % 3 },
        address: 0x7f00_0000_0000 + 4_099 * place as u64,
        latency_cycles: 100 * place as u32,
        page_shift: if place == 8 { 21 } else { 12 },
        source: *source,
        store: place % 3 == 0,
    };
    sources.iter().enumerate().map(sample).collect()
}

fn steps() -> [Step; 2] {
    let pages = vec![
        PageMove { address: 0x7f00_0000_0000, shift: 12, from: 0, to: 1 },
        PageMove { address: 0x7f00_0020_0000, shift: 21, from: 0, to: 2 },
    ];
    let pid = Pid(100);
    let cpus = [0, 1].into_iter().collect();
    let actions = vec![
        Action::MovePages { pid, mechanism: Mechanism::CoLocation, pages: pages.clone() },
        Action::MovePages { pid, mechanism: Mechanism::Interleaving, pages: pages.clone() },
        Action::MovePages { pid, mechanism: Mechanism::Following, pages: Vec::new() },
        Action::Replicate { pid, pages: pages.clone() },
        Action::Unreplicate { pid, pages },
        Action::SetAffinity { pid, tid: Tid(101), cpus, via: Some(1) },
        Action::SetAffinity { pid, tid: Tid(101), cpus: [1].into_iter().collect(), via: None },
        Action::MoveProcessMemory {
            pid,
            nodes: vec![NodeMove { from: 0, to: 1 }, NodeMove { from: 1, to: 0 }],
            freeze: true,
            memory: Bytes(1 << 20),
        },
        Action::SetSampling {
            pid: Some(pid),
            sampling: Sampling::Every { cycles: 65_000, tracked_pages: 30_000 },
        },
        Action::SetSampling { pid: None, sampling: Sampling::Off },
    ];
    let proposal = |action: &Action| Proposal {
        policy: "carrefour",
        action: action.clone(),
        reason: Reason::Other("controllers 0.35 apart".to_string()),
    };
    let undo = Reason::Undo(Undo { plan: 1, change: -0.1, noise: 1.0 / 3.0 });
    let inverse = |(step, action): (usize, &Action)| Inverse {
        plan: 2,
        step,
        action: (step > 0).then(|| action.clone()),
        exact: step % 2 == 0,
    };
    let refused = Refused {
        proposal: Proposal { reason: undo, ..proposal(&actions[0]) },
        refusal: Refusal::LowConfidence { confidence: 0.3, needed: 0.5 },
    };
    let plan = Plan {
        number: 2,
        steps: actions.iter().map(proposal).collect(),
        inverses: actions.iter().enumerate().map(inverse).collect(),
        refused: vec![refused],
        ..Plan::default()
    };
    [Step::default(), Step { plan, judged: judged(), window: None }]
}

fn judged() -> Vec<Judged> {
    let change = |change| Some(Change { change, noise: 0.01 });
    let whole = Comparison {
        progress: change(0.1),
        instructions: change(0.2),
        slowest: change(f64::NAN),
        latency: change(f64::INFINITY),
        unstalled: change(f64::NEG_INFINITY),
        local: change(-0.0),
        by_latency: None, // not recorded
        combined: change(5e-324),
        phase: 0.125,
        misses: f64::MAX,
    };
    let nothing = Comparison {
        progress: None,
        instructions: None,
        slowest: None,
        latency: None,
        unstalled: None,
        local: None,
        by_latency: None,
        combined: None,
        phase: 0.0,
        misses: 0.0,
    };
    let one = |verdict, kinds: &[Kind], comparison| Judged {
        pid: Pid(100),
        policy: "sam",
        plans: vec![1, 2],
        kinds: kinds.to_vec(),
        verdict,
        comparison,
        predicted: None, // came later than this version of the format
    };
    let kinds = [Kind::Pages(Mechanism::Interleaving), Kind::Replication, Kind::Affinity];
    vec![
        one(Verdict::Better, &kinds, whole),
        one(Verdict::Worse, &[Kind::Bulk], nothing),
        one(Verdict::Unclear, &[Kind::Sampling], nothing),
        one(Verdict::PhaseChange, &[], nothing),
    ]
}
