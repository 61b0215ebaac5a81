//! A whole step of each thread policy, from the model to its proposals, by size of the machine:
//! nodes, CPUs and threads grow together.
//!
//! The goal is one step of all policies in 100 ms at 64 nodes, 1024 CPUs and 20,000 threads, and
//! time linear in the threads.

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use rondpoint_core::model::{App, Model, PageId, Thread, Touch};
use rondpoint_core::policy::by_name;
use rondpoint_core::topology::{Topology, synthetic};
use rondpoint_core::{Bytes, Pid, Random, Tid};

/// Threads of one process; every eighth process has only one.
const THREADS_OF_APP: usize = 8;
/// Sampled touches of one thread.
const TOUCHES: usize = 10;

fn thread(index: usize, app: usize, topology: &Topology, random: &mut Random) -> Thread {
    let cpu = random.below(topology.cpu_count());
    let mut thread = Thread::new(Tid(index as u32), app, cpu, topology.all_cpus());
    thread.cpu_share = if index.is_multiple_of(20) { 1.0 } else { 0.05 };
    thread.rates.mpki = Some(random.below(30) as f64);
    thread.rates.memory_per_s = Some(random.below(8_000_000) as f64);
    thread.rates.coherence_remote_per_s = Some(random.below(1_000_000) as f64);
    thread.rates.coherence_local_per_s = Some(random.below(700_000) as f64);
    thread.rates.remote_dram_per_s = Some(random.below(3_000_000) as f64);
    thread
}

fn model(topology: &Topology, threads: usize) -> Model {
    let mut random = Random::new(7);
    let mut model = Model::empty(topology.node_count());
    while model.threads.len() < threads {
        let (first, app) = (model.threads.len(), model.apps.len());
        let count = if app.is_multiple_of(8) { 1 } else { THREADS_OF_APP };
        for index in first..first + count {
            model.threads.push(thread(index, app, topology, &mut random));
        }
        let mut view = App::new(Pid(app as u32), first..first + count);
        let home = random.below(topology.node_count());
        let bytes = |node| Bytes::from_gib(u64::from(node == home));
        view.memory = Some((0..topology.node_count()).map(bytes).collect());
        model.apps.push(view);
    }
    for index in 0..model.threads.len() * TOUCHES {
        let thread = index % model.threads.len();
        let page = (model.threads[thread].app * 16 + random.below(16)) as u64;
        let app = model.threads[thread].app as u32;
        if let Some(PageId(page)) = model.pages.record(app, page << 12, 12, 0, 0, false) {
            model.touches.push(Touch { page: PageId(page), thread: thread as u32, remote: true });
        }
    }
    model.check(topology).expect("a model without contradictions");
    model
}

fn step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("thread policies");
    for (nodes, cores, threads) in [(2, 10, 1_000), (8, 16, 5_000), (64, 8, 20_000)] {
        let machine = format!("node:{nodes} core:{cores} pu:2 mhz:2200");
        let topology = synthetic::parse(&machine).expect("a machine");
        let model = model(&topology, threads);
        for (name, preset) in [
            ("nmass", None),
            ("sam", None),
            ("sam", Some("mph")),
            ("sharing", None),
            ("home", None),
        ] {
            let registered = by_name(name).expect("it is built in");
            let label = format!("{name} {}", preset.unwrap_or("default"));
            group.bench_function(BenchmarkId::new(label, threads), |bencher| {
                let make = || ((registered.make)(preset).expect("a preset"), Random::new(1));
                bencher.iter_batched(
                    make,
                    |(mut policy, mut random)| policy.propose(&model, &topology, &mut random),
                    BatchSize::SmallInput,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, step);
criterion_main!(benches);
