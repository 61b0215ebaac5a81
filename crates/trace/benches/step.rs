//! What recording costs the manager: one step with 10,000 address samples, written and read.

use std::hint::black_box;
use std::io::sink;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rondpoint_core::controller::{Input, Step};
use rondpoint_core::observation::{AddressSample, Samples, Source};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Nanos, Observation, Pid, Tid};
use rondpoint_trace::{Header, Reader, Writer};

const SAMPLES: u32 = 10_000;

fn header() -> Header {
    Header {
        written_by: "a benchmark".to_string(),
        unix_s: None,
        host: None,
        command: Vec::new(),
        policies: Vec::new(),
        seed: 1,
        guard: Default::default(),
        topology: synthetic::parse("node:4 core:16").expect("a machine"),
        notes: Vec::new(),
    }
}

/// Samples of 64 threads, spread by a generator over a gibibyte.
fn input() -> Input {
    let sample = |number: u32| {
        let spread = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        AddressSample {
            pid: Pid(12_345),
            tid: Tid(12_345 + number % 64),
            cpu: (number % 64) as u16,
            node: (spread >> 62) as u16,
            address: 0x7f12_3400_0000 + (spread >> 34),
            latency_cycles: (spread >> 54) as u32,
            page_shift: 12,
            source: Source::Dram,
            store: spread >> 63 == 1,
        }
    };
    let samples = Samples { list: (0..SAMPLES).map(sample).collect(), ..Samples::default() };
    let at = Nanos::from_secs(1);
    let observation = Observation { at, samples: Some(samples), ..Observation::default() };
    Input { observation, outcomes: Vec::new() }
}

fn step(criterion: &mut Criterion) {
    let (header, input, step) = (header(), input(), Step::default());
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "memory", &header).expect("a vector");
    writer.step(&input, &step).expect("a vector");
    let mut group = criterion.benchmark_group("step of 10,000 samples");
    group.throughput(Throughput::Bytes(file.len() as u64));
    let mut writer = Writer::new(sink(), "nowhere", &header).expect("nowhere");
    group.bench_function("write", |bench| bench.iter(|| writer.step(black_box(&input), &step)));
    group.bench_function("read", |bench| {
        bench.iter(|| Reader::new(black_box(&file[..]), "memory").expect("a trace").count());
    });
    group.finish();
}

criterion_group!(benches, step);
criterion_main!(benches);
