//! Records per second from the bytes of a ring to samples in the topology's numbers, on one core.
//!
//! The promise is ten million a second: 100 ns each.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rondpoint_core::topology::synthetic;
use rondpoint_linux::observe::sampler::Kind;
use rondpoint_linux::observe::translation::Translation;
use rondpoint_linux::parse::zoneinfo::{PhysicalMap, ZoneSpan};
use rondpoint_linux::perf::attr::sample_type;
use rondpoint_linux::perf::data_source::Vendor;
use rondpoint_linux::perf::record::{Record, Records};
use rondpoint_linux::perf::sample::Layout;

const RECORDS: u64 = 10_000;
const PERF_RECORD_SAMPLE: u32 = 9;
const USER: u16 = 2;
/// A load that hit local DRAM: `mem_op` and `mem_lvl`.
const LOAD_FROM_RAM: u64 = 2 | 0x82 << 5;

/// The fields that an observation asks for, in the kernel's order.
const FIELDS: u64 = sample_type::IDENTIFIER
    | sample_type::IP
    | sample_type::TID
    | sample_type::TIME
    | sample_type::ADDR
    | sample_type::CPU
    | sample_type::PERIOD
    | sample_type::WEIGHT_STRUCT
    | sample_type::DATA_SRC
    | sample_type::PHYS_ADDR;

fn stream() -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..RECORDS {
        let physical = (number * 4096) % (8 << 30);
        let words = [
            1,
            0x40_0000,
            7 << 32 | 7,
            number,
            0x7f00_0000_0000 + number * 64,
            number % 16,
            1000,
            300,
            LOAD_FROM_RAM,
            physical,
        ];
        let size = (8 + 8 * words.len()) as u16;
        bytes.extend(PERF_RECORD_SAMPLE.to_ne_bytes());
        bytes.extend(USER.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word: &u64| word.to_ne_bytes()));
    }
    bytes
}

fn translation() -> Translation {
    let machine = synthetic::parse("node:8 core:2").expect("a machine");
    let frames = (1 << 30) / 4096;
    let spans = (0..8)
        .map(|node| ZoneSpan { node, first_frame: u64::from(node) * frames, frames })
        .collect();
    Translation::new(&machine, PhysicalMap::new(spans, 4096), Vendor::Intel)
}

fn ingest(criterion: &mut Criterion) {
    let bytes = stream();
    let layout = Layout { sample_type: FIELDS, ..Layout::default() };
    let translation = translation();
    let mut group = criterion.benchmark_group("ingest");
    group.throughput(Throughput::Elements(RECORDS));
    group.bench_function("records to samples", |bencher| {
        let mut kept = Vec::with_capacity(RECORDS as usize);
        bencher.iter(|| {
            kept.clear();
            for record in Records::new(black_box(&bytes), &layout) {
                if let Ok(Record::Sample(sample, _)) = record {
                    kept.extend(translation.sample(&sample, Kind::Accesses));
                }
            }
            assert_eq!(kept.len() as u64, RECORDS);
        });
    });
    group.finish();
}

criterion_group!(benches, ingest);
criterion_main!(benches);
