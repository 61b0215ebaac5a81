//! The cost of finding the nearest copy beside that of asking for the CPU alone. The cost of making
//! copies beside plain copies of the same data. Ratios within one run count, not the times.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rondpoint_replica::{NodeMap, Options, Place, Replica, Versions};

/// Two places on the memory of node 0, so that there are copies on any machine.
fn options() -> Options {
    let places = [0, 1].map(|cpu| Place { node: 0, cpus: vec![cpu] });
    let node_map = NodeMap::by_hand(places.to_vec()).expect("a valid map");
    Options { node_map: Some(node_map), ..Options::default() }
}

fn lookup(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lookup");
    group.bench_function("getcpu", |bencher| bencher.iter(rustix::thread::sched_getcpu));
    let replica = Replica::new(vec![1; 4096], &options());
    assert!(replica.refusal().is_none());
    group.bench_function("nearest", |bencher| bencher.iter(|| replica.nearest().as_ptr()));
    let plain = vec![1u8; 4096];
    let original = Options { budget_bytes: Some(0), ..options() };
    let original = Replica::new(plain.as_slice(), &original);
    group.bench_function("nearest, no copies", |bencher| {
        bencher.iter(|| original.nearest().as_ptr());
    });
    let versions = Versions::new(vec![1; 4096], options());
    group.bench_function("pin", |bencher| bencher.iter(|| versions.pin().as_ptr()));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Refused while this thread outruns the readers.
                let _ = black_box(versions.publish(vec![2; 4096]));
            }
        });
        group.bench_function("pin during updates", |bencher| {
            bencher.iter(|| versions.pin().as_ptr());
        });
        done.store(true, Ordering::Relaxed);
    });
    group.finish();
}

fn build(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("build");
    group.sample_size(10);
    for mib in [1usize, 64] {
        let data = vec![1u8; mib << 20];
        group.throughput(Throughput::Bytes(2 * data.len() as u64));
        group.bench_with_input(
            BenchmarkId::new("two plain copies, MiB", mib),
            &data,
            |bencher, data| {
                bencher.iter(|| [data.clone(), data.clone()]);
            },
        );
        group.bench_with_input(
            BenchmarkId::new("two replicas, MiB", mib),
            &data,
            |bencher, data| {
                bencher.iter(|| Replica::new(data.as_slice(), &options()));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, lookup, build);
criterion_main!(benches);
