//! Computes the rates that SAM and N-MASS use from a thread's counters.

use super::{Quality, at_beginning};
use crate::model::ThreadRates;
use crate::observation::{Event, ThreadObservation};
use crate::units::Nanos;

/// A share summed over threads; unknown until one thread has both counts.
#[derive(Default)]
pub(super) struct Ratio {
    part: f64,
    whole: f64,
}

impl Ratio {
    pub(super) fn add(&mut self, part: Option<f64>, whole: Option<f64>) {
        if let (Some(part), Some(whole)) = (part, whole) {
            self.part += part;
            self.whole += whole;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.part += other.part;
        self.whole += other.whole;
    }

    pub(super) fn percent(&self) -> Option<f64> {
        (self.whole > 0.0).then(|| (100.0 * self.part / self.whole).clamp(0.0, 100.0))
    }
}

/// The counters of one thread in one interval.
pub(super) struct Counts<'a> {
    /// `None` for a thread that began in the interval.
    pub(super) before: Option<&'a ThreadObservation>,
    pub(super) later: &'a ThreadObservation,
    pub(super) cpu_time: Nanos,
    pub(super) clock_hz: Option<f64>,
    pub(super) quality: &'a mut Quality,
}

impl Counts<'_> {
    pub(super) fn events(&mut self, event: Event) -> Option<f64> {
        let earlier = at_beginning(self.before, event);
        self.quality.events(earlier, self.later.counters.get(event))
    }

    /// Seconds of CPU time: reference cycles over the nominal clock as SAM has it, else the
    /// scheduler's CPU time.
    fn cpu_seconds(&mut self, cycles: Event) -> Option<f64> {
        let by_cycles =
            self.events(cycles).zip(self.clock_hz).map(|(cycles, clock_hz)| cycles / clock_hz);
        by_cycles.or(Some(self.cpu_time.seconds())).filter(|seconds| *seconds > 0.0)
    }

    pub(super) fn rates(&mut self, elapsed: Nanos) -> ThreadRates {
        let instructions = self.events(Event::Instructions);
        let cycles = self.events(Event::Cycles).filter(|cycles| *cycles > 0.0);
        let round1 = self.cpu_seconds(Event::ReferenceCycles);
        let round2 = match self.later.counters.get(Event::ReferenceCyclesRound2) {
            Some(_) => self.cpu_seconds(Event::ReferenceCyclesRound2),
            None => round1,
        };
        let remote = from_remote_caches(|event| self.events(event));
        let all_misses = llc_misses(|event| self.events(event));
        let remote_dram = self.events(Event::RemoteDram);
        let local_dram = self.events(Event::LocalDram);
        let stalls = self.events(Event::StallCycles);
        ThreadRates {
            instructions_per_s: instructions.map(|count| count / elapsed.seconds()),
            coherence_remote_per_s: remote.zip(round2).map(|(count, seconds)| count / seconds),
            coherence_local_per_s: self
                .neighbours()
                .zip(round1)
                .map(|(count, seconds)| count / seconds),
            memory_per_s: all_misses.zip(round1).map(|(count, seconds)| count / seconds),
            remote_dram_per_s: remote_dram.zip(round1).map(|(count, seconds)| count / seconds),
            mpki: all_misses
                .zip(instructions)
                .filter(|(_, n)| *n > 0.0)
                .map(|(m, n)| 1000.0 * m / n),
            ipc: instructions.zip(cycles).map(|(count, cycles)| count / cycles),
            stall_share: stalls.zip(cycles).map(|(stalls, cycles)| (stalls / cycles).min(1.0)),
            read_percent: None,
            stalls_per_coherence: stalls
                .zip(remote.filter(|n| *n > 0.0))
                .map(|(stalls, count)| stalls / count),
            local_dram_share: local_dram
                .zip(remote_dram)
                .filter(|(l, r)| l + r > 0.0)
                .map(|(l, r)| l / (l + r)),
        }
    }

    /// SNP: counted directly if possible. Otherwise private misses less hits and misses of the
    /// last-level cache, if positive.
    fn neighbours(&mut self) -> Option<f64> {
        let misses = self.events(Event::LlcLoadMisses).or(self.events(Event::LlcMisses));
        let (private, hits) = (self.events(Event::PrivateMisses), self.events(Event::LlcHits));
        let left = || Some((private? - hits? - misses?).max(0.0));
        self.events(Event::SnoopLocal).or_else(left)
    }
}

/// Lines that a cache of another node supplied.
pub(super) fn from_remote_caches(mut events: impl FnMut(Event) -> Option<f64>) -> Option<f64> {
    sum(events(Event::RemoteForward), events(Event::RemoteHitm))
}

/// Misses of the last-level cache, with prefetches if they are counted.
pub(super) fn llc_misses(mut events: impl FnMut(Event) -> Option<f64>) -> Option<f64> {
    let demand = events(Event::LlcMisses)?;
    Some(demand + events(Event::LlcPrefetchMisses).unwrap_or(0.0))
}

pub(super) fn sum(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (None, None) => None,
        _ => Some(one.unwrap_or(0.0) + other.unwrap_or(0.0)),
    }
}
