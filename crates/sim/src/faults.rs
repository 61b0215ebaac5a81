//! Injected faults: refused calls, odd counters, lost samples, late looks, a clock that jumps. Each
//! kind is off in half of all cases.

use rondpoint_core::observation::{Counter, Counters, Observation};
use rondpoint_core::{Nanos, Random};

/// `EPERM`, `EBUSY`, `ENOMEM`, `EIO`.
const ERRNOS: [i32; 4] = [1, 16, 12, 5];

/// How often each fault strikes; 0 = never.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rates {
    /// Share of actions that are refused whole.
    pub(crate) refused: f64,
    /// Share of single pages that are busy.
    pub(crate) busy: f64,
    /// Share of single pages for which there is no memory.
    pub(crate) no_memory: f64,
    /// Share of looks in which the counters are those of the look before.
    pub(crate) stale: f64,
    /// Share of looks in which counters begin again at zero.
    pub(crate) wrapped: f64,
    /// Share of looks without counters, traffic or memory.
    pub(crate) missing: f64,
    /// Share of looks of which most samples are lost.
    pub(crate) lost: f64,
    /// Share of looks that come late, by up to three periods.
    pub(crate) late: f64,
    /// Share of looks before which the clock jumps ahead, by up to a minute.
    pub(crate) jump: f64,
    /// Processes that end too early, per second.
    pub(crate) exits: f64,
}

/// The faults of one world.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    rates: Rates,
    random: Random,
    /// Nothing goes wrong from here on.
    until: Nanos,
    jumped: Nanos,
    last: Option<Observation>,
}

/// What becomes of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageFault {
    Busy,
    NoMemory,
}

impl Faults {
    pub(crate) fn new(rates: Rates, until: Nanos, seed: u64) -> Self {
        Self { rates, random: Random::new(seed), until, jumped: Nanos(0), last: None }
    }

    fn strikes(&mut self, rate: f64, now: Nanos) -> bool {
        now < self.until && rate > 0.0 && self.random.unit() < rate
    }

    /// The error of a whole action.
    pub(crate) fn errno(&mut self, now: Nanos) -> Option<i32> {
        let struck = self.strikes(self.rates.refused, now);
        struck.then(|| ERRNOS[self.random.below(ERRNOS.len())])
    }

    pub(crate) fn page(&mut self, now: Nanos) -> Option<PageFault> {
        if self.strikes(self.rates.busy, now) {
            return Some(PageFault::Busy);
        }
        self.strikes(self.rates.no_memory, now).then_some(PageFault::NoMemory)
    }

    /// Whether a process ends in this epoch.
    pub(crate) fn exit(&mut self, now: Nanos, epoch: Nanos) -> bool {
        self.strikes(self.rates.exits * epoch.seconds(), now)
    }

    /// How much later than asked the next look comes.
    pub(crate) fn late(&mut self, now: Nanos, period: Nanos) -> Nanos {
        match self.strikes(self.rates.late, now) {
            true => Nanos((3.0 * period.0 as f64 * self.random.unit()) as u64),
            false => Nanos(0),
        }
    }

    /// What the manager sees instead of what is.
    pub(crate) fn disturb(&mut self, mut seen: Observation) -> Observation {
        let now = seen.at;
        if self.strikes(self.rates.jump, now) {
            let jump = Nanos((60e9 * self.random.unit()) as u64);
            self.jumped += jump;
        }
        seen.at += self.jumped;
        let original = seen.clone();
        if self.strikes(self.rates.stale, now)
            && let Some(last) = &self.last
        {
            make_stale(&mut seen, last);
        }
        if self.strikes(self.rates.wrapped, now) {
            let victim = self.random.below(seen.processes.len().max(1));
            wrap(&mut seen, victim);
        }
        if self.strikes(self.rates.missing, now) {
            seen.node_traffic = None;
            seen.controller_lines = None;
            seen.free_memory = None;
            for process in &mut seen.processes {
                process.memory = None;
                process.mappings = None;
                process.counters = Counters::default();
                process.threads.iter_mut().for_each(|one| one.counters = Counters::default());
            }
        }
        if self.strikes(self.rates.lost, now)
            && let Some(samples) = &mut seen.samples
        {
            let kept = samples.list.len() / 10;
            samples.lost += (samples.list.len() - kept) as u64;
            samples.list.truncate(kept);
            samples.throttled = true;
        }
        self.last = Some(original);
        seen
    }
}

/// Threads that were there before have the counters that they had.
fn make_stale(seen: &mut Observation, last: &Observation) {
    seen.node_traffic.clone_from(&last.node_traffic);
    seen.controller_lines.clone_from(&last.controller_lines);
    for process in &mut seen.processes {
        let Some(before) = last.processes.iter().find(|one| one.pid == process.pid) else {
            continue;
        };
        for thread in &mut process.threads {
            if let Some(before) = before.threads.iter().find(|one| one.tid == thread.tid) {
                thread.counters.clone_from(&before.counters);
            }
        }
    }
}

/// The counters of a process and those of the machine lose their high bits.
fn wrap(seen: &mut Observation, victim: usize) {
    let low = |counter: Counter| Counter { value: counter.value % (1 << 20), ..counter };
    if let Some(traffic) = &mut seen.node_traffic {
        *traffic = traffic.map(low);
    }
    for lines in seen.controller_lines.iter_mut().flatten() {
        *lines = low(*lines);
    }
    if let Some(process) = seen.processes.get_mut(victim) {
        for thread in &mut process.threads {
            thread.counters =
                thread.counters.iter().map(|(event, counter)| (event, low(counter))).collect();
        }
    }
}
