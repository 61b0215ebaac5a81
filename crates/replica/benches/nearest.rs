//! The cost of finding the nearest copy beside that of asking for the CPU alone. The cost of making
//! copies beside plain copies of the same data. Ratios within one run count, not the times.

mod shared;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rondpoint_replica::{Options, Replica, Versions};

use self::shared::{during_updates, options};

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
    during_updates(&versions, || {
        group.bench_function("pin during updates", |bencher| {
            bencher.iter(|| versions.pin().as_ptr());
        });
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
