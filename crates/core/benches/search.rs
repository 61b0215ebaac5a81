//! The placement search by nodes and cluster shape: promised below 1 ms at 8 nodes, 50 ms at 16, 1
//! s at 32.
//!
//! Rates are drawn at random (`random`, the hard case for bounds), or fall with the distance
//! (`layered`: pairs, packages, halves, as on real machines). Clusters start on shuffled nodes,
//! each node holds up to 40 GB. Before the times it prints how good the answers are.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rondpoint_core::policy::asymsched::cluster::Cluster;
use rondpoint_core::policy::asymsched::problem::{Parts, Problem};
use rondpoint_core::policy::asymsched::search::search;
use rondpoint_core::policy::asymsched::set_bandwidth::SetBandwidth;
use rondpoint_core::{Matrix, Random};
use std::hint::black_box;

/// Nodes and cluster sizes.
const SHAPES: &[(usize, &[usize])] = &[
    (8, &[4]),
    (8, &[4, 4]),
    (8, &[3, 3, 2]),
    (8, &[2, 2, 2, 2]),
    (16, &[8]),
    (16, &[8, 8]),
    (16, &[5, 5, 6]),
    (16, &[4, 4, 4]),
    (16, &[4, 4, 4, 4]),
    (16, &[2; 8]),
    (16, &[2, 3, 4, 5]),
    (32, &[8]),
    (32, &[16, 16]),
    (32, &[8, 8, 8, 8]),
    (32, &[4; 8]),
    (32, &[2; 16]),
];

fn rates(random: &mut Random, count: usize, layered: bool) -> Matrix<f64> {
    let mut rates = Matrix::filled(count, 0.0);
    for i in 0..count {
        for j in (0..count).filter(|&j| j != i) {
            let layer = [5600.0, 4300.0, 3000.0, 1900.0][(i ^ j).ilog2().min(3) as usize];
            rates[(i, j)] = if layered { layer } else { 1900.0 + random.below(3800) as f64 };
        }
    }
    rates
}

fn problem(seed: u64, count: usize, shape: &[usize], layered: bool) -> Problem {
    let mut random = Random::new(seed);
    let bandwidth = rates(&mut random, count, layered);
    let mut order: Vec<usize> = (0..count).collect();
    (1..count).for_each(|last| order.swap(last, random.below(last + 1)));
    let mut clusters = Vec::new();
    for (app, &size) in shape.iter().enumerate() {
        let nodes = order.drain(..size).map(|node| 1_u64 << node).sum();
        clusters.push(Cluster {
            app,
            nodes,
            traffic_per_s: 1e6,
            weight: 8.0 + 14.0 * random.unit(),
        });
    }
    let memory_bytes: Vec<u64> = (0..count).map(|_| random.below(40_000_000_000) as u64).collect();
    Problem::new(&Parts {
        bandwidth_mb_s: &bandwidth,
        clusters: &clusters,
        memory_bytes: &memory_bytes,
        occupied: clusters.iter().fold(0, |all, cluster| all | cluster.nodes),
        kinds: &vec![(1 << count) - 1; count],
        slack_permille: 900,
        slowest_link_mb_s: None,
    })
}

/// Every iteration takes the next of these, so that a time is a mean over machines.
const SEEDS: u64 = 8;

fn search_by_nodes(criterion: &mut Criterion) {
    for layered in [false, true] {
        let kind = if layered { "layered" } else { "random" };
        let mut group = criterion.benchmark_group(format!("search-{kind}"));
        group.sample_size(10);
        for &(count, shape) in SHAPES {
            let problems: Vec<Problem> =
                (1..=SEEDS).map(|seed| problem(seed, count, shape, layered)).collect();
            let mut cache = SetBandwidth::new();
            report(kind, count, shape, &problems);
            let mut next = 0;
            group.bench_function(
                BenchmarkId::new(count.to_string(), format!("{shape:?}")),
                |bencher| {
                    bencher.iter(|| {
                        next = (next + 1) % problems.len();
                        black_box(search(&problems[next], &mut cache))
                    });
                },
            );
        }
        group.finish();
    }
}

fn report(kind: &str, count: usize, shape: &[usize], problems: &[Problem]) {
    let found: Vec<_> =
        problems.iter().map(|problem| search(problem, &mut SetBandwidth::new())).collect();
    let exact = found.iter().filter(|found| found.is_exact()).count();
    let gap = found.iter().map(|found| 100.0 * found.gap()).fold(0.0, f64::max);
    println!(
        "{kind} {count} {shape:?}: {exact} of {} proven in both criteria, largest gap of the value {gap:.1} %",
        found.len()
    );
}

criterion_group!(benches, search_by_nodes);
criterion_main!(benches);
