//! One decision step, from observations to an admitted plan: how it grows with nodes, CPUs, threads and sampled pages, up to 64 nodes,
//! 1024 CPUs, 20,000 threads and 10⁶ pages (goal: below 100 ms and linear); and how fast samples become page records (goal: 10⁷ a second).
//!
//! `cargo bench -p rondpoint-core --bench step`

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rondpoint_core::controller::{Controller, Input, Settings};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::model::UpdateSettings;
use rondpoint_core::observation::{
    AddressSample, Counter, Counters, Event, Observation, ProcessObservation, Samples, Source,
    ThreadObservation,
};
use rondpoint_core::policy::by_name;
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Bytes, Matrix, Model, Nanos, Pid, Random, Tid, Topology};

/// A size of everything.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    cpus_per_node: usize,
    threads: usize,
    pages: usize,
}

const LARGEST: Size = Size { nodes: 64, cpus_per_node: 16, threads: 20_000, pages: 1_000_000 };

fn machine(size: Size) -> Topology {
    synthetic::parse(&format!("node:{} core:{} gbs:20 mhz:2400", size.nodes, size.cpus_per_node))
        .expect("a machine")
}

/// Threads of eight processes; traffic mostly to node 0, so that there is something to decide.
fn observation(size: Size, second: u64, random: &mut Random) -> Observation {
    let processes = 8;
    let per_process = size.threads / processes;
    let rate = |n: usize, m: usize| if m == 0 { 40_000_000 } else { 1_000_000 + (n as u64) };
    let traffic = Matrix::from_fn(size.nodes, |n, m| Counter::exact(second * rate(n, m)));
    let process = |p: usize| ProcessObservation {
        pid: Pid(1 + p as u32),
        threads: (0..per_process)
            .map(|t| thread(size, (p * per_process + t) as u32, second))
            .collect(),
        node_traffic: Some(traffic.clone()),
        memory: Some(vec![Bytes(1 << 30); size.nodes]),
        ..ProcessObservation::default()
    };
    Observation {
        at: Nanos::from_secs(second),
        node_traffic: Some(traffic.map(|c| Counter::exact(8 * c.value))),
        free_memory: Some(vec![Bytes(8 << 30); size.nodes]),
        processes: (0..processes).map(process).collect(),
        samples: Some(samples(size, random)),
        ..Observation::default()
    }
}

fn thread(size: Size, number: u32, second: u64) -> ThreadObservation {
    let counter = |per_s: u64| Counter::exact(second * per_s);
    let counters: Counters = [
        (Event::Instructions, counter(1_000_000_000)),
        (Event::Cycles, counter(2_000_000_000)),
        (Event::LlcMisses, counter(5_000_000 + u64::from(number % 100))),
        (Event::RemoteHitm, counter(u64::from(number % 1000) * 1_000)),
        (Event::RemoteDram, counter(1_000_000)),
        (Event::LocalDram, counter(4_000_000)),
    ]
    .into_iter()
    .collect();
    let cpus = size.nodes * size.cpus_per_node;
    ThreadObservation {
        tid: Tid(1 + number),
        cpu: number as usize % cpus,
        cpu_time: Nanos::from_millis(second * 900),
        allowed: (0..cpus).collect(),
        exempt: None,
        counters,
    }
}

/// Two samples a page, half of the pages from two nodes, in random order.
fn samples(size: Size, random: &mut Random) -> Samples {
    let per_process = size.threads / 8;
    let sample = |number: usize, random: &mut Random| {
        let page = random.below(size.pages);
        let process = page % 8;
        let thread = if page.is_multiple_of(2) { page } else { number } % per_process;
        let number = process * per_process + thread;
        AddressSample {
            pid: Pid(1 + process as u32),
            tid: Tid(1 + number as u32),
            cpu: (number % (size.nodes * size.cpus_per_node)) as u16,
            node: 0,
            address: (page as u64) << 12,
            latency_cycles: 400,
            page_shift: 12,
            source: Source::Dram,
            store: page.is_multiple_of(3),
        }
    };
    Samples {
        list: (0..2 * size.pages).map(|number| sample(number, random)).collect(),
        ..Samples::default()
    }
}

/// Model, Carrefour, guard, ledger: everything that happens once a second.
fn step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("step");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(8))
        .warm_up_time(Duration::from_secs(1));
    let sizes = [
        ("pages", Size { pages: 125_000, ..LARGEST }),
        ("pages", Size { pages: 250_000, ..LARGEST }),
        ("pages", Size { pages: 500_000, ..LARGEST }),
        ("pages", LARGEST),
        ("threads", Size { threads: 5_000, pages: 100_000, ..LARGEST }),
        ("threads", Size { threads: 20_000, pages: 100_000, ..LARGEST }),
        ("nodes", Size { nodes: 8, threads: 2_000, pages: 100_000, ..LARGEST }),
        ("nodes", Size { nodes: 64, threads: 2_000, pages: 100_000, ..LARGEST }),
    ];
    for (what, size) in sizes {
        let mut random = Random::new(1);
        let topology = machine(size);
        let observations: Vec<Observation> =
            (1..6).map(|second| observation(size, second, &mut random)).collect();
        let prepare = || {
            let policy = (by_name("carrefour").expect("built in").make)(None).expect("the default");
            let settings = Settings { seed: 1, guard: GuardSettings::acting() };
            let mut controller = Controller::new(topology.clone(), vec![policy], settings);
            for earlier in &observations[..4] {
                // Without samples: the state before the step, not its cost.
                let observation = Observation { samples: None, ..earlier.clone() };
                controller.step(Input { observation, outcomes: Vec::new() });
            }
            (controller, Input { observation: observations[4].clone(), outcomes: Vec::new() })
        };
        let name = format!("{} nodes, {} threads, {} pages", size.nodes, size.threads, size.pages);
        group.bench_function(BenchmarkId::new(what, name), |bencher| {
            bencher.iter_batched(
                prepare,
                |(mut controller, input)| {
                    let step = controller.step(input);
                    (controller, step) // dropped outside of the measurement
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// Samples to page records, on a machine with dense records and on a large one; prints bytes a page.
fn ingest(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ingest");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    for size in [
        Size { nodes: 8, cpus_per_node: 16, threads: 128, pages: 30_000 },
        Size { nodes: 8, cpus_per_node: 16, threads: 128, pages: 1_000_000 },
        LARGEST,
    ] {
        let topology = machine(size);
        let mut random = Random::new(1);
        let mut before = observation(size, 1, &mut random);
        let after = observation(size, 2, &mut random);
        before.samples = None;
        let samples = after.samples.as_ref().map_or(0, |samples| samples.list.len());
        let model = Model::update(&topology, &before, &after, &UpdateSettings::default());
        let pages = &model.pages;
        eprintln!(
            "{} pages on {} nodes: {:.1} bytes each",
            pages.len(),
            size.nodes,
            pages.memory().0 as f64 / pages.len() as f64
        );
        group.throughput(Throughput::Elements(samples as u64));
        group.bench_function(
            BenchmarkId::new("samples", format!("{} nodes, {} pages", size.nodes, size.pages)),
            |bencher| {
                bencher.iter_with_large_drop(|| {
                    black_box(Model::update(&topology, &before, &after, &UpdateSettings::default()))
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, step, ingest);
criterion_main!(benches);
