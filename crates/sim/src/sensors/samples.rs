//! Address samples: few, late for prefetches, and blind to what the processor does not sample.

use rondpoint_core::Matrix;
use rondpoint_core::observation::{AddressSample, Source};

use super::{Pmu, Sensors, page_sample};
use crate::plant::{Epoch, Plant, Rate, Running};

/// Memory operations among all that are sampled.
const MEMORY_OPERATIONS: f64 = 0.35;
/// Of the misses, lines that the prefetcher brings in time: their loads hit the first level.
const PREFETCHED: f64 = 0.3;

impl Sensors {
    /// Samples one epoch and charges the programs for it.
    pub(super) fn sample(&mut self, plant: &mut Plant, epoch: &Epoch) {
        let Some(period) = self.period else { return };
        let latencies = plant.latencies();
        let cost = plant.machine.pmu.sample_cost_ns;
        for (of, rate) in epoch.running.iter().zip(&epoch.rates) {
            let cycles = of.busy_ns / plant.machine.cycle_ns();
            let taken = (cycles / period as f64 + self.random.unit()).floor();
            for _ in 0..taken as u64 {
                if let Some(sample) = self.one(plant, of, *rate, &latencies) {
                    self.samples.push(sample);
                }
            }
            plant.threads[of.thread].debt_ns += taken * cost;
        }
    }

    /// One sampled operation; `None` where it is no access to memory, or not one of the program's
    /// data.
    fn one(
        &mut self,
        plant: &Plant,
        of: &Running,
        rate: Rate,
        latencies: &Matrix<f64>,
    ) -> Option<AddressSample> {
        // What waits in a loop reads one line that it has.
        if self.random.unit() > MEMORY_OPERATIONS * rate.working() {
            return None;
        }
        let demand = of.misses * (1.0 - PREFETCHED);
        let far: f64 = of.far.iter().map(|(_, lines)| lines).sum();
        let hits = (of.accesses - of.misses).max(0.0);
        let first = (MEMORY_OPERATIONS - demand - hits - of.near - far).max(0.0);
        let first = if self.pmu == Pmu::Pebs { 0.0 } else { first };
        let kinds = [demand, hits, of.near, far, first];
        let kind = self.random.weighted(&kinds)?;
        let thread = &plant.threads[of.thread];
        let process = &plant.processes[of.process];
        let shares: Vec<f64> = process.program.regions.iter().map(|region| region.share).collect();
        let region = self.random.weighted(&shares)?;
        let rotate = process.phase(thread.done).rotate;
        let group = process.group_of(region, thread.number, rotate);
        let page = self.random.below(plant.groups[group].homes.len());
        let offset = self.random.below(64) as u64 * 64;
        let mut sample = page_sample(plant, (of.thread, group, page), offset);
        sample.store = self.random.unit() < plant.groups[group].writes;
        sample.source = match kind {
            0 => Source::Dram,
            1 => Source::LastLevel,
            2 => Source::CacheSameNode,
            3 => Source::CacheRemoteModified,
            _ => Source::FirstLevel,
        };
        if self.pmu == Pmu::Pebs && sample.store {
            // Stores are sampled when they retire, before their line is there.
            sample.source = Source::Unknown;
        } else if sample.source == Source::Dram {
            let mean = latencies[(of.node, usize::from(sample.node))] / plant.machine.cycle_ns();
            sample.latency_cycles = (mean * (0.6 + 0.8 * self.random.unit())) as u32;
        }
        Some(sample)
    }
}
