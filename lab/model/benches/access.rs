//! Measures the host's time for one modelled access. The lab makes hundreds of millions of them.
//!
//! It does not include the translation to the physical address, which QEMU does only below the
//! filter.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rondpoint_lab_model::{Access, Hardware, Region};
use rondpoint_machine::Machine;

const SPAN: u64 = 256 << 20;
const QUANTUM_PS: u64 = 20_000_000;
/// Accesses per measured iteration.
const BATCH: u64 = 4096;

/// The model and the clocks of its vCPUs.
struct Bench {
    hardware: Hardware,
    now_ps: Vec<u64>,
    instructions: u64,
    until_ps: u64,
}

impl Bench {
    fn new() -> Bench {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/carrefour-a.toml");
        let machine = Machine::load(&root).expect("a machine file").for_lab().expect("for the lab");
        let region = |node| Region { start: node as u64 * SPAN, bytes: SPAN, node };
        let memory: Vec<Region> = (0..machine.nodes.len()).map(region).collect();
        let hardware = Hardware::new(&machine, &memory).expect("fits the model");
        let now_ps = vec![0; hardware.cpu_count()];
        Bench { hardware, now_ps, instructions: 0, until_ps: QUANTUM_PS }
    }

    #[inline(always)]
    fn touch(&mut self, cpu: usize, address: u64, store: bool) {
        if self.hardware.first_level_hit(cpu, address, store) {
            return;
        }
        self.instructions += 4;
        let now_ps = self.now_ps[cpu];
        let access = Access {
            vaddr: address,
            paddr: address,
            store,
            loaded: Some(address.wrapping_mul(77)),
            now_ps,
            instructions: self.instructions,
        };
        self.now_ps[cpu] += self.hardware.access(cpu, access).stall_ps;
        if self.now_ps[cpu] >= self.until_ps {
            self.hardware.end_quantum(QUANTUM_PS);
            self.until_ps += QUANTUM_PS;
        }
    }
}

/// Cheap numbers without pattern (a multiplicative generator modulo 2⁶⁴).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn accesses(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("access");
    group.throughput(Throughput::Elements(BATCH));

    let mut bench = Bench::new();
    group.bench_function("filter_hit", |bencher| {
        bencher.iter(|| {
            for index in 0..BATCH {
                bench.touch(0, black_box(index % 128 * 64), false);
            }
        });
    });

    let mut bench = Bench::new();
    let bytes = 96 << 10;
    group.bench_function("second_level_hit", |bencher| {
        let mut at = 0;
        let mut state = 1;
        bencher.iter(|| {
            for _ in 0..BATCH {
                // A walk that neither the first level nor the prefetcher follows.
                at = (at + 64 * (5 + next(&mut state) % 7)) % bytes;
                bench.touch(0, black_box(at), false);
            }
        });
    });

    for (name, store) in [("stream_load", false), ("stream_store", true)] {
        let mut bench = Bench::new();
        group.bench_function(name, |bencher| {
            let mut at = 0;
            bencher.iter(|| {
                for _ in 0..BATCH {
                    at = (at + 64) % (4 * SPAN);
                    bench.touch(0, black_box(at), store);
                }
            });
        });
    }

    let mut bench = Bench::new();
    group.bench_function("random_dram", |bencher| {
        let mut state = 1;
        bencher.iter(|| {
            for index in 0..BATCH {
                let address = next(&mut state) * 64 % (64 << 20) + index % 4 * SPAN;
                bench.touch((index % 8) as usize, black_box(address), index % 4 == 0);
            }
        });
    });

    let mut bench = Bench::new();
    group.bench_function("line_ping_pong", |bencher| {
        bencher.iter(|| {
            for index in 0..BATCH {
                bench.touch((index % 2 * 7) as usize, black_box(64), true);
            }
        });
    });

    let mut bench = Bench::new();
    group.bench_function("scan_of_8_byte_elements", |bencher| {
        let mut at = 0;
        bencher.iter(|| {
            for _ in 0..BATCH {
                at = (at + 8) % (4 * SPAN);
                bench.touch(0, black_box(at), false);
            }
        });
    });
    group.finish();
}

criterion_group!(benches, accesses);
criterion_main!(benches);
