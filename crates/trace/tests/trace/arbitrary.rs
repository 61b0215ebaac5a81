//! Any header, any observation that fits its machine, any outcome, any decision.

mod decision;

pub(crate) use decision::step;

use proptest::array::uniform8;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use rondpoint_core::controller::Input;
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::observation::{
    AddressRange, AddressSample, Counter, Counters, Exemption, Mapping, MappingKind,
    ProcessObservation, Replica, Samples, SharedMapping, SharedObject, Source, ThreadObservation,
    UNKNOWN_NODE,
};
use rondpoint_core::plan::{PageCounts, StepResult};
use rondpoint_core::topology::{
    Calibrated, Costs, Cpu, Description, Link, NodeDescription, PenaltyLine, Route,
};
use rondpoint_core::{Bytes, IndexSet, Matrix, Nanos, Observation, Outcome, Pid, Tid, Topology};
use rondpoint_trace::{Header, PolicyChoice};

use crate::golden::EVENTS;

const EXEMPTIONS: [Exemption; 7] = [
    Exemption::KernelThread,
    Exemption::RealTime,
    Exemption::OwnAffinity,
    Exemption::OwnMemoryPolicy,
    Exemption::OtherManager,
    Exemption::OptedOut,
    Exemption::GivenUp,
];

const MAPPINGS: [MappingKind; 5] = [
    MappingKind::PrivateAnonymous,
    MappingKind::PrivateHuge,
    MappingKind::PrivateOther,
    MappingKind::Shared,
    MappingKind::Special,
];

const SOURCES: [Source; 10] = [
    Source::FirstLevel,
    Source::Private,
    Source::InFlight,
    Source::LastLevel,
    Source::CacheSameNode,
    Source::CacheRemote,
    Source::CacheRemoteModified,
    Source::Dram,
    Source::HintFault,
    Source::Unknown,
];

/// Any float that is a number, infinities included: a NaN is not equal to itself and has a test of
/// its own.
fn float() -> impl Strategy<Value = f64> {
    proptest::num::f64::ANY.prop_filter("a number", |float| !float.is_nan())
}

fn rate() -> impl Strategy<Value = f64> {
    proptest::num::f64::POSITIVE | proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,12}|[\\x00-\\x20\"\\\\]{0,6}"
}

/// Memory of a node, up to the most that there can be.
fn bytes() -> impl Strategy<Value = u64> {
    0..=1_u64 << 52
}

fn set(count: usize) -> impl Strategy<Value = IndexSet> {
    btree_set(0..count, 0..=count.min(12)).prop_map(|indices| indices.into_iter().collect())
}

fn nanos() -> impl Strategy<Value = Nanos> {
    any::<u64>().prop_map(Nanos)
}

fn counter() -> impl Strategy<Value = Counter> {
    let timed = (any::<u64>(), nanos(), nanos());
    prop_oneof![
        any::<u64>().prop_map(Counter::exact),
        timed.prop_map(|(value, enabled, running)| Counter { value, enabled, running }),
    ]
}

fn counters() -> impl Strategy<Value = Counters> {
    btree_map(select(&EVENTS[..]), counter(), 0..5).prop_map(|all| all.into_iter().collect())
}

fn square<T: Copy + std::fmt::Debug>(
    size: usize,
    cell: impl Strategy<Value = T>,
) -> impl Strategy<Value = Matrix<T>> {
    let cells = vec(cell, size * size);
    cells.prop_map(move |cells| Matrix::from_fn(size, |row, column| cells[row * size + column]))
}

/// A machine of a few nodes with everything that a description may have.
pub(crate) fn topology() -> impl Strategy<Value = Topology> {
    (1_usize..5, 1_usize..9).prop_flat_map(|(nodes, cpus)| {
        let node = (bytes(), option::of(rate()));
        let cpu = (0..nodes, 0..cpus, 0..cpus, 0..cpus, any::<bool>());
        let link = (0..nodes, 0..nodes, rate());
        (
            option::of(rate()),
            vec(node, nodes),
            vec(cpu, cpus),
            square(nodes, 11_u32..255),
            option::of(square(nodes, rate())),
            vec(link, 0..6),
        )
            .prop_map(|(clock_hz, nodes, cpus, distances, bandwidth, links)| {
                let links: Vec<Link> = links
                    .into_iter()
                    .filter(|(from, to, _)| from != to)
                    .map(|(from, to, bytes_per_s)| Link { from, to, bytes_per_s })
                    .collect();
                describe(clock_hz, &nodes, &cpus, &distances, bandwidth, links)
            })
    })
}

type AnyCpu = (usize, usize, usize, usize, bool);

fn describe(
    clock_hz: Option<f64>,
    nodes: &[(u64, Option<f64>)],
    cpus: &[AnyCpu],
    distances: &Matrix<u32>,
    bandwidth_bytes_per_s: Option<Matrix<f64>>,
    links: Vec<Link>,
) -> Topology {
    let node = |(place, (memory, rate)): (usize, &(u64, Option<f64>))| NodeDescription {
        kernel_id: 3 * place as u32,
        memory: Bytes((*memory).max(1)),
        controller_bytes_per_s: *rate,
    };
    let cpu = |(place, of): (usize, &AnyCpu)| Cpu {
        kernel_id: 2 * place as u32 + 1,
        node: of.0,
        cache_domain: of.1,
        core: of.2,
        package: of.3,
        isolated: of.4,
    };
    // A route is the direct link, where each pair has one.
    let direct = |accessing: usize, holding: usize| {
        if accessing == holding {
            return Some(Route::default());
        }
        let link = links.iter().position(|link| (link.from, link.to) == (holding, accessing))?;
        Some(Route { links: vec![link] })
    };
    let all = 0..nodes.len();
    let routes: Option<Vec<Vec<Route>>> = all
        .clone()
        .map(|accessing| all.clone().map(|holding| direct(accessing, holding)).collect())
        .collect();
    Topology::new(Description {
        clock_hz,
        nodes: nodes.iter().enumerate().map(node).collect(),
        cpus: cpus.iter().enumerate().map(cpu).collect(),
        distances: Matrix::from_fn(nodes.len(), |a, h| if a == h { 10 } else { distances[(a, h)] }),
        bandwidth_bytes_per_s,
        calibrated: Calibrated {
            requests_per_us: clock_hz.map(|hz| hz / 1024.0),
            coherence_per_s: clock_hz.map(|hz| hz / 4096.0),
            memory_per_s: clock_hz.map(|hz| hz / 64.0),
            remote_per_s: clock_hz.map(|hz| hz / 512.0),
            penalty: clock_hz.map(|hz| PenaltyLine {
                intercept: hz / 8.0,
                slope_per_mpki: hz / 16.0,
                most: hz.max(1.0),
            }),
        },
        costs: clock_hz.map_or_else(Costs::default, |hz| Costs {
            latency_ns: Some(Matrix::filled(nodes.len(), hz / 3.0)),
            burst_ns: Some(vec![hz / 5.0; nodes.len()]),
            same_domain_ns: Some(hz / 7.0),
            same_node_ns: Some(hz / 9.0),
            remote_cache_ns: Some(Matrix::filled(nodes.len(), hz / 11.0)),
            cache_hit_ns: Some(hz / 13.0),
            cache_bytes: Some(hz as u64),
            outstanding_misses: Some(hz / 17.0),
        }),
        routes,
        links,
    })
    .expect("made to fit")
}

fn guard() -> impl Strategy<Value = GuardSettings> {
    let floats = [float(), float(), float()];
    let counts = (any::<[u64; 6]>(), any::<[u32; 4]>(), any::<[bool; 2]>());
    (floats, counts, set(5_000)).prop_map(|(floats, (wide, narrow, flags), opted_out)| {
        GuardSettings {
            act: flags[0],
            min_confidence: floats[0],
            bytes_per_s_per_node: wide[0],
            calls_per_s: narrow[0],
            samples_per_s_per_cpu: narrow[1],
            page_residence: Nanos(wide[1]),
            thread_residence: Nanos(wide[2]),
            window: Nanos(wide[3]),
            max_moves_per_window: narrow[2],
            mover_share: floats[1],
            mover_allowance: Nanos(wide[4]),
            reserve_share: floats[2],
            freeze: flags[1],
            opted_out,
            back_off: Nanos(wide[5]),
            max_failures: narrow[3],
        }
    })
}

pub(crate) fn header() -> impl Strategy<Value = Header> {
    let policy = (text(), option::of(text()));
    let policy = policy.prop_map(|(name, preset)| PolicyChoice { name, preset });
    let origin = (text(), option::of(any::<u64>()), option::of(text()), vec(text(), 0..3));
    (origin, vec(policy, 0..3), any::<u64>(), guard(), topology(), vec(text(), 0..3)).prop_map(
        |((written_by, unix_s, host, command), policies, seed, guard, topology, notes)| Header {
            written_by,
            unix_s,
            host,
            command,
            policies,
            seed,
            guard,
            topology,
            notes,
        },
    )
}

fn sample() -> impl Strategy<Value = AddressSample> {
    let place =
        (any::<u32>(), any::<u32>(), any::<u16>(), prop_oneof![any::<u16>(), Just(UNKNOWN_NODE)]);
    let access = (any::<u64>(), any::<u32>(), any::<u8>(), select(&SOURCES[..]), any::<bool>());
    (place, access).prop_map(
        |((pid, tid, cpu, node), (address, latency_cycles, page_shift, source, store))| {
            AddressSample {
                pid: Pid(pid),
                tid: Tid(tid),
                cpu,
                node,
                address,
                latency_cycles,
                page_shift,
                source,
                store,
            }
        },
    )
}

/// Samples that differ in everything, or only in what one thread's do.
fn samples() -> impl Strategy<Value = Samples> {
    let alike = (sample(), vec(any::<u64>(), 0..20)).prop_map(|(sample, addresses)| {
        addresses.into_iter().map(|address| AddressSample { address, ..sample }).collect()
    });
    let list = prop_oneof![vec(sample(), 0..20), alike];
    let told = (any::<bool>(), any::<bool>());
    (list, 0..1_u64 << 48, told, option::of(any::<u64>())).prop_map(
        |(list, lost, (throttled, stores), period)| Samples {
            list,
            lost,
            throttled,
            period,
            stores,
        },
    )
}

fn thread(cpus: usize) -> impl Strategy<Value = ThreadObservation> {
    let time = (nanos(), option::of(nanos()), option::of(any::<u64>()));
    (0..cpus, time, set(cpus), option::of(select(&EXEMPTIONS[..])), counters()).prop_map(
        |(cpu, (cpu_time, queued, slices), allowed, exempt, counters)| ThreadObservation {
            tid: Tid(0),
            cpu,
            cpu_time,
            queued,
            slices,
            allowed,
            exempt,
            counters,
        },
    )
}

fn mappings() -> impl Strategy<Value = Vec<Mapping>> {
    let bounds = btree_map(any::<u64>(), select(&MAPPINGS[..]), 0..10);
    bounds.prop_map(|bounds| {
        let bounds: Vec<(u64, MappingKind)> = bounds.into_iter().collect();
        let range = |pair: &[(u64, MappingKind)]| Mapping {
            start: pair[0].0,
            end: pair[1].0,
            kind: pair[0].1,
        };
        bounds.chunks_exact(2).map(range).collect()
    })
}

fn shared() -> impl Strategy<Value = Vec<SharedMapping>> {
    let object =
        || (any::<u64>(), any::<u64>()).prop_map(|(device, inode)| SharedObject { device, inode });
    let of = move |Mapping { start, end, .. }: Mapping| {
        (object(), any::<u64>()).prop_map(move |(object, offset)| SharedMapping {
            start,
            end,
            object,
            offset,
        })
    };
    mappings().prop_flat_map(move |all| all.into_iter().map(of).collect::<Vec<_>>())
}

fn process(nodes: usize, cpus: usize) -> impl Strategy<Value = ProcessObservation> {
    let threads = btree_map(any::<u32>(), thread(cpus), 0..4);
    let traffic = || option::of(square(nodes, counter()));
    let memory = option::of(vec(bytes().prop_map(Bytes), nodes));
    let replicas = btree_map(any::<u64>(), any::<u32>(), 0..4);
    let rest = (
        option::of(any::<u64>()),
        (option::of(mappings()), shared()),
        (option::of(replicas), option::of(mappings())),
        option::of(float()),
        option::of(set(nodes)),
        option::of(select(&EXEMPTIONS[..])),
        option::of(any::<u64>()),
    );
    (nanos(), threads, traffic(), counters(), traffic(), memory, rest).prop_map(
        |(started, threads, node_traffic, counters, cache_traffic, memory, rest)| {
            let (faults, (mappings, shared), copies, progress, allowed_nodes, exempt, others) =
                rest;
            let (replicas, read) = copies;
            let range = |Mapping { start, end, .. }: Mapping| AddressRange { start, end };
            let threads = threads.into_iter();
            let replica = |(address, collapses)| Replica { address, collapses };
            ProcessObservation {
                pid: Pid(0),
                started,
                threads: threads
                    .map(|(tid, of)| ThreadObservation { tid: Tid(tid), ..of })
                    .collect(),
                node_traffic,
                counters,
                cache_traffic,
                memory,
                faults,
                mappings,
                shared,
                replicas: replicas.map(|all| all.into_iter().map(replica).collect()),
                policy_read: read.map(|all| all.into_iter().map(range).collect()),
                progress,
                allowed_nodes,
                exempt,
                pages_moved_by_others: others,
            }
        },
    )
}

/// Any observation of a machine.
pub(crate) fn observation(topology: &Topology) -> impl Strategy<Value = Observation> + use<> {
    let (nodes, cpus, links) =
        (topology.node_count(), topology.cpu_count(), topology.links().len());
    let processes = btree_map(any::<u32>(), process(nodes, cpus), 0..3);
    (
        ((0..=1_u64 << 60).prop_map(Nanos), any::<bool>(), option::of(any::<u64>())),
        option::of(square(nodes, counter())),
        option::of(vec(counter(), nodes)),
        option::of(vec(counter(), links)),
        option::of(vec(bytes().prop_map(Bytes), nodes)),
        processes,
        option::of(samples()),
        option::of(samples()),
    )
        .prop_map(
            |(
                (at, after_pause, births),
                node_traffic,
                controller_lines,
                link_bytes,
                free_memory,
                processes,
                samples,
                hint_faults,
            )| {
                let processes = processes.into_iter();
                Observation {
                    at,
                    after_pause,
                    node_traffic,
                    controller_lines,
                    link_bytes,
                    free_memory,
                    births,
                    processes: processes
                        .map(|(pid, of)| ProcessObservation { pid: Pid(pid), ..of })
                        .collect(),
                    samples,
                    hint_faults,
                }
            },
        )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let counts = uniform8(0..=1_u64 << 40).prop_map(|counts| PageCounts {
        moved: counts[0],
        in_place: counts[1],
        absent: counts[2],
        busy: counts[3],
        no_memory: counts[4],
        failed: counts[5],
        collapsed: counts[6],
        elsewhere: counts[7],
    });
    let result = prop_oneof![
        Just(StepResult::Done),
        counts.prop_map(StepResult::Pages),
        Just(StepResult::Gone),
        Just(StepResult::Unsupported),
        any::<i32>().prop_map(|errno| StepResult::Refused { errno }),
    ];
    (any::<u64>(), any::<usize>(), result, nanos(), nanos()).prop_map(
        |(plan, step, result, spent, frozen)| Outcome { plan, step, result, spent, frozen },
    )
}

pub(crate) fn input(topology: &Topology) -> impl Strategy<Value = Input> + use<> {
    (vec(outcome(), 0..4), observation(topology))
        .prop_map(|(outcomes, observation)| Input { observation, outcomes })
}
