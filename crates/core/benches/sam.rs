//! SAM's interval: consolidate and decide by number of CPUs. The published code takes 9.9 µs to
//! consolidate 40 CPUs.
//!
//! The machine is full and every problem is there: coherent, remote and memory-bound threads on
//! both sides. So every phase that an interval may run does run. Goal at 40 CPUs: under 10 µs. The
//! last line compares a median with it.
//!
//! `cargo bench -p rondpoint-core --bench sam`; with `-- goal` the comparison with the goal alone.

mod goal;

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rondpoint_core::policy::sam::{
    Consolidated, DataHome, Layout, Marks, Preset, Running, Situation, Thresholds, Use,
    consolidate, decide,
};
use rondpoint_core::{Pid, Tid};
use std::hint::black_box;

/// A thread with the problems of its number.
fn thread(cpu: usize, layout: &Layout) -> Use {
    let socket = layout.socket_of_cpu[cpu].unwrap_or(0);
    let thresholds = Thresholds::TWO_SOCKET;
    let above =
        |wanted: bool, threshold: f64| if wanted { 2.0 * threshold } else { 0.1 * threshold };
    Use::Thread(Running {
        tid: Tid(cpu as u32),
        pid: Some(Pid(cpu as u32 % 3)),
        coherence: above(cpu.is_multiple_of(5), thresholds.coherence),
        sharing: above(cpu.is_multiple_of(7), thresholds.coherence),
        memory: above(cpu.is_multiple_of(2), thresholds.memory_thread),
        remote: above(cpu % 11 == 3, thresholds.remote),
        home: DataHome::Socket((socket + 1) % layout.sockets.len()),
        ..Running::default()
    })
}

fn interval(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sam interval");
    for (sockets, cores) in [(2, 10), (4, 10), (8, 16), (8, 64)] {
        let layout = Layout::regular(sockets, cores, 2);
        let uses: Vec<Use> = (0..layout.cpu_count()).map(|cpu| thread(cpu, &layout)).collect();
        let thresholds = Thresholds::TWO_SOCKET;
        let preset = Preset::SLIDES;
        let (mut marks, mut state) = (Marks::default(), Consolidated::default());
        group.throughput(Throughput::Elements(layout.cpu_count() as u64));
        let name = |what: &str| BenchmarkId::new(what.to_string(), layout.cpu_count());
        group.bench_function(name("consolidate"), |bencher| {
            bencher.iter(|| {
                consolidate(
                    &layout,
                    black_box(&uses),
                    &thresholds,
                    &preset,
                    &mut marks,
                    &mut state,
                );
            });
        });
        group.bench_function(name("consolidate and decide"), |bencher| {
            bencher.iter(|| {
                consolidate(
                    &layout,
                    black_box(&uses),
                    &thresholds,
                    &preset,
                    &mut marks,
                    &mut state,
                );
                let (state, marks) = (&state, &marks);
                let uses = &uses;
                decide(Situation {
                    layout: &layout,
                    uses,
                    state,
                    marks,
                    thresholds: &thresholds,
                    preset: &preset,
                })
            });
        });
    }
    group.finish();
}

/// Consolidate and decide on a machine as large as that of the published code, beside the goal.
const INTERVAL: goal::Goal =
    goal::Goal { name: "an interval of SAM with 40 CPUs", most: Duration::from_micros(10) };
/// Batches that are timed, and intervals in each: one is too short for a clock.
const BATCHES: usize = 9;
const INTERVALS: u32 = 10_000;

fn compare_with_goal(_: &mut Criterion) {
    if !goal::are_wanted() {
        return;
    }
    let layout = Layout::regular(2, 10, 2);
    let uses: Vec<Use> = (0..layout.cpu_count()).map(|cpu| thread(cpu, &layout)).collect();
    let (thresholds, preset) = (&Thresholds::TWO_SOCKET, &Preset::SLIDES);
    let (mut marks, mut state) = (Marks::default(), Consolidated::default());
    let time = |_| {
        let begin = Instant::now();
        for _ in 0..INTERVALS {
            consolidate(&layout, black_box(&uses), thresholds, preset, &mut marks, &mut state);
            let (layout, uses, state, marks) = (&layout, &uses, &state, &marks);
            black_box(decide(Situation { layout, uses, state, marks, thresholds, preset }));
        }
        begin.elapsed() / INTERVALS
    };
    INTERVAL.tell((0..BATCHES).map(time).collect());
}

criterion_group!(benches, interval, compare_with_goal);
criterion_main!(benches);
