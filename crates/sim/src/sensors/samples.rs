//! Address samples: few, late for prefetches, and only of accesses that the processor samples.

use rondpoint_core::Matrix;
use rondpoint_core::observation::{AddressSample, Source};

use super::{Pmu, Sensors, page_sample};
use crate::plant::{Epoch, Plant, Rate, Running};

/// Memory operations among all that are sampled.
const MEMORY_OPERATIONS: f64 = 0.35;
/// Pages that hold the lines which sharing threads hand to each other.
const MAILBOX: usize = 16;
/// Of the misses, lines that the prefetcher brings in time: their loads hit the first level.
const PREFETCHED: f64 = 0.3;

/// Place of lines from caches of the same domain among [`Drawn::kinds`].
const NEAR: usize = 2;
/// Place of lines from caches of other domains.
const FAR: usize = 3;

/// What the samples of one thread in one epoch are drawn from.
struct Drawn<'a> {
    of: &'a Running,
    /// Share of the sampled operations that are accesses to the program's data.
    kept: f64,
    /// Weights of DRAM, the last-level cache, caches near and far, and the first level.
    kinds: [f64; 5],
    /// Group and share of each region.
    groups: Vec<usize>,
    /// Groups with the lines that other threads of the process supply.
    handed: Vec<usize>,
    shares: Vec<f64>,
}

impl<'a> Drawn<'a> {
    fn new(plant: &Plant, of: &'a Running, rate: Rate, pmu: Pmu) -> Self {
        let thread = &plant.threads[of.thread];
        let process = &plant.processes[of.process];
        let rotate = process.phase(thread.done).rotate;
        let regions = 0..process.program.regions.len();
        let first_of_circle =
            process.circle_of(thread.number) * process.program.sharers.max(1) as usize;
        // Messages of other processes lie in the kernel's buffers.
        let hands = process.program.transfers_per_kilo > 0.0;
        let handed = regions.clone().filter(|_| hands);
        let demand = of.misses * (1.0 - PREFETCHED);
        let far: f64 = of.far.iter().map(|(_, lines)| lines).sum();
        let hits = (of.accesses - of.misses).max(0.0);
        let first = (MEMORY_OPERATIONS - demand - hits - of.near - far).max(0.0);
        let first = if pmu == Pmu::Pebs { 0.0 } else { first };
        Self {
            of,
            // A loop that waits reads one line, which it has.
            kept: MEMORY_OPERATIONS * rate.working(),
            kinds: [demand, hits, of.near, far, first],
            groups: regions
                .clone()
                .map(|region| process.group_of(region, thread.number, rotate))
                .collect(),
            handed: handed
                .map(|region| process.group_of(region, first_of_circle, rotate))
                .collect(),
            shares: regions.map(|region| process.program.share_of(region)).collect(),
        }
    }
}

impl Sensors {
    /// Samples one epoch and charges the programs for it.
    pub(super) fn sample(&mut self, plant: &mut Plant, epoch: &Epoch) {
        let Some(period) = self.period else { return };
        let latencies = plant.latencies();
        let cost = plant.machine.pmu.sample_cost_ns;
        for (of, rate) in epoch.running.iter().zip(&epoch.rates) {
            let cycles = of.busy_ns / plant.machine.cycle_ns();
            let taken = (cycles / period as f64 + self.random.unit()).floor();
            let source = Drawn::new(plant, of, *rate, self.pmu);
            let kept = (taken * source.kept + self.random.unit()).floor();
            for _ in 0..kept as u64 {
                let sample = self.one(plant, &source, &latencies);
                self.samples.extend(sample);
            }
            plant.threads[of.thread].debt_ns += taken * cost;
        }
    }

    /// One sampled access; `None` where the thread has no data.
    fn one(
        &mut self,
        plant: &Plant,
        source: &Drawn<'_>,
        latencies: &Matrix<f64>,
    ) -> Option<AddressSample> {
        let kind = self.random.weighted(&source.kinds)?;
        let region = self.random.weighted(&source.shares)?;
        let is_handed = matches!(kind, NEAR | FAR);
        let (group, pages) = match is_handed {
            true => (*source.handed.get(region)?, MAILBOX),
            false => (source.groups[region], usize::MAX),
        };
        let page = self.random.below(plant.groups[group].homes.len().min(pages));
        let offset = self.random.below(64) as u64 * 64;
        let mut sample = page_sample(plant, (source.of.thread, group, page), offset);
        sample.store = self.random.unit() < plant.groups[group].writes;
        sample.source = match kind {
            0 => Source::Dram,
            1 => Source::LastLevel,
            NEAR => Source::CacheSameNode,
            FAR => Source::CacheRemoteModified,
            _ => Source::FirstLevel,
        };
        if self.pmu == Pmu::Pebs && sample.store {
            // Stores are sampled when they retire, before their line is there.
            sample.source = Source::Unknown;
        } else if sample.source == Source::Dram {
            let holding = usize::from(sample.node);
            let mean = latencies[(source.of.node, holding)] / plant.machine.cycle_ns();
            sample.latency_cycles = (mean * (0.6 + 0.8 * self.random.unit())) as u32;
        }
        Some(sample)
    }
}
