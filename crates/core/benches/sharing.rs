//! Common samples of threads by number of samples: groups of four threads, each group with pages of
//! its own.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rondpoint_core::policy::sharing::{clusters, pairs};
use std::hint::black_box;

const THREADS: u32 = 1024;
/// Pages that one group of four threads touches.
const PAGES_OF_GROUP: u32 = 64;

/// Samples in an order that jumps between groups as real ones do.
fn touches(samples: u32) -> Vec<(u32, u32)> {
    let touch = |sample: u32| {
        let mixed = sample.wrapping_mul(2_654_435_761);
        let group = (mixed >> 8) % (THREADS / 4);
        (group * PAGES_OF_GROUP + (mixed >> 20) % PAGES_OF_GROUP, 4 * group + (mixed >> 18) % 4)
    };
    (0..samples).map(touch).collect()
}

fn common_samples(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sharing");
    for samples in [10_000, 100_000, 1_000_000] {
        let touches = touches(samples);
        let pages = (THREADS / 4 * PAGES_OF_GROUP) as usize;
        group.throughput(Throughput::Elements(u64::from(samples)));
        group.bench_function(BenchmarkId::new("pairs and clusters", samples), |bencher| {
            bencher.iter(|| clusters(&pairs(black_box(&touches), pages, 5), THREADS as usize));
        });
    }
    group.finish();
}

criterion_group!(benches, common_samples);
criterion_main!(benches);
