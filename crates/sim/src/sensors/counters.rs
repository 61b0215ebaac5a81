//! Counters: multiplexed if there are more events than registers, with a small error.

use rondpoint_core::observation::{Counter, Counters, Event};
use rondpoint_core::{Nanos, Random};

use super::{Pmu, Sensors};
use crate::plant::{Plant, ThreadCounts};

/// Error of a count that was never switched off, as a share of it.
const NOISE: f64 = 0.003;
/// What multiplexing adds to the error where an event counted none of the time.
const NOISE_OF_TURNS: f64 = 0.03;
/// Of the lines from other nodes, those that were modified there.
const MODIFIED: f64 = 0.8;

/// What the registers of one thread hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    last: ThreadCounts,
    /// Scaled counts so far, in the order of [`EVENTS`].
    values: [f64; EVENTS.len()],
    enabled_ns: f64,
    running_ns: f64,
}

/// An event, whether a register of its own always counts it, and its count.
type Row = (Event, bool, fn(&ThreadCounts) -> f64);

/// What `pmu` counts as an event.
fn counted(pmu: Pmu, (event, _, count): &Row, of: &ThreadCounts) -> f64 {
    // Arm's REMOTE_ACCESS does not tell caches from memory.
    let also = if pmu == Pmu::Spe && *event == Event::RemoteDram { of.far } else { 0.0 };
    count(of) + also
}

const EVENTS: [Row; 13] = [
    (Event::Instructions, true, |of| of.instructions),
    (Event::Cycles, true, |of| of.cycles),
    (Event::ReferenceCycles, true, |of| of.cycles),
    (Event::LlcMisses, false, |of| of.misses),
    (Event::LocalDram, false, |of| of.local),
    (Event::RemoteDram, false, |of| of.remote),
    (Event::RemoteHitm, false, |of| MODIFIED * of.far),
    (Event::RemoteForward, false, |of| (1.0 - MODIFIED) * of.far),
    (Event::SnoopLocal, false, |of| of.near),
    (Event::LlcReferences, false, |of| of.accesses),
    (Event::StallCycles, false, |of| of.stalls),
    (Event::Refills, false, |of| of.misses + of.near + of.far),
    (Event::RefillsModified, false, |of| of.writes + MODIFIED * of.far),
];

/// Whether the processor has the event.
fn has(pmu: Pmu, event: Event) -> bool {
    let of_zen1 = [Event::Instructions, Event::Cycles, Event::ReferenceCycles];
    match event {
        _ if pmu == Pmu::Zen1 => of_zen1.contains(&event),
        Event::RemoteForward => matches!(pmu, Pmu::Pebs | Pmu::Counters),
        // AMD's processors have no event that tells cycles that wait for memory.
        Event::StallCycles => pmu != Pmu::Ibs,
        Event::Refills | Event::RefillsModified => pmu == Pmu::Ibs,
        Event::RemoteHitm | Event::SnoopLocal | Event::LocalDram => pmu != Pmu::Spe,
        _ => true,
    }
}

impl Reading {
    fn add(&mut self, pmu: Pmu, now: &ThreadCounts, share: f64, random: &mut Random) {
        for (value, row) in self.values.iter_mut().zip(&EVENTS) {
            let share = if row.1 { 1.0 } else { share };
            // The sum of three has nearly the shape of a bell, with a deviation of a half.
            let bell = random.unit() + random.unit() + random.unit() - 1.5;
            let error = 2.0 * bell * (NOISE + NOISE_OF_TURNS * (1.0 - share));
            let since = counted(pmu, row, now) - counted(pmu, row, &self.last);
            let counted = since * (1.0 + error).max(0.0);
            *value += counted * share;
        }
        let ran = now.cpu_ns - self.last.cpu_ns;
        self.enabled_ns += ran;
        self.running_ns += ran * share;
        self.last = now.clone();
    }

    pub(super) fn counters(&self, pmu: Pmu) -> Counters {
        let enabled = Nanos(self.enabled_ns as u64);
        let rows = EVENTS.iter().zip(&self.values).filter(|((event, ..), _)| has(pmu, *event));
        rows.map(|((event, fixed, _), value)| {
            let running = if *fixed { enabled } else { Nanos(self.running_ns as u64) };
            (*event, Counter { value: *value as u64, enabled, running })
        })
        .collect()
    }
}

impl Sensors {
    /// Takes in what was counted since the last look.
    pub(super) fn count(&mut self, plant: &Plant) {
        let wanted = EVENTS.iter().filter(|(event, fixed, _)| !fixed && has(self.pmu, *event));
        let registers = f64::from(plant.machine.pmu.counters);
        let share = (registers / wanted.count().max(1) as f64).min(1.0);
        for (reading, thread) in self.readings.iter_mut().zip(&plant.threads) {
            if self.paused {
                reading.last = thread.counts.clone();
            } else {
                reading.add(self.pmu, &thread.counts, share, &mut self.random);
            }
        }
        for (seen, process) in self.traffic.iter_mut().zip(&plant.processes) {
            seen.clone_from(&process.counts.traffic);
        }
    }

    /// Latencies of the whole process, where the processor adds them up.
    pub(super) fn process_counters(&self, plant: &Plant, process: usize) -> Counters {
        let of = &plant.processes[process].counts;
        let requests: f64 = of.traffic.cells().map(|(_, _, count)| count).sum();
        let count = |value: f64| Counter::exact(value as u64);
        match self.pmu {
            Pmu::Pebs => [
                (Event::DramLatencyCycles, count(of.latency_cycles)),
                (Event::DramRequests, count(requests)),
            ]
            .into_iter()
            .collect(),
            _ => Counters::default(),
        }
    }
}
