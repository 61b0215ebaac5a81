//! Injected faults: refused calls, odd counters, lost samples, late looks, a clock that jumps. Each
//! kind is off in half of all cases. Rare kinds are off in all but the harsh ones.

use rondpoint_core::observation::{Counter, Counters, Observation};
use rondpoint_core::{Nanos, Random};

/// `EPERM`: the manager may not set masks.
const EPERM: i32 = 1;
/// `ENOSPC`: the ledger cannot be written.
const ENOSPC: i32 = 28;
/// How far a clock jumps back at most; not to before its beginning.
const LONGEST_BACK: Nanos = Nanos::from_secs(60);
/// How long masks are refused at a stretch.
const FORBIDDEN: Nanos = Nanos::from_secs(5);
/// Sets the draws of rare faults apart from those of the others.
const RARELY: u64 = 0x7a7e;
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
    /// CPUs that are unplugged, per second.
    #[serde(default, skip_serializing_if = "is_never")]
    pub(crate) cpu_unplugged: f64,
    /// Memory nodes that are unplugged, per second.
    #[serde(default, skip_serializing_if = "is_never")]
    pub(crate) memory_unplugged: f64,
    /// Share of the steps whose inverses cannot be written to the ledger: nothing may be done.
    #[serde(default, skip_serializing_if = "is_never")]
    pub(crate) ledger: f64,
    /// Share of looks before which the clock jumps back, by up to a minute.
    #[serde(default, skip_serializing_if = "is_never")]
    pub(crate) back: f64,
    /// Share of masks after which all further ones are refused for five seconds.
    #[serde(default, skip_serializing_if = "is_never")]
    pub(crate) masks: f64,
    /// Share of the frozen processes that end while their memory moves.
    #[serde(default, skip_serializing_if = "is_never")]
    pub(crate) frozen_exits: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_never(rate: &f64) -> bool {
    *rate == 0.0
}

/// Greatest rates of the kinds that only harsh cases have.
pub(crate) const RARE: Rates = Rates {
    refused: 0.0,
    busy: 0.0,
    no_memory: 0.0,
    stale: 0.0,
    wrapped: 0.0,
    missing: 0.0,
    lost: 0.0,
    late: 0.0,
    jump: 0.0,
    exits: 0.0,
    cpu_unplugged: 0.2,
    memory_unplugged: 0.1,
    ledger: 0.5,
    back: 0.05,
    masks: 0.3,
    frozen_exits: 0.5,
};

/// The faults of one world.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    rates: Rates,
    random: Random,
    /// Of the rare kinds: the others strike as they would without them.
    rare: Random,
    /// Nothing goes wrong from here on.
    until: Nanos,
    jumped: Nanos,
    jumped_back: Nanos,
    /// All masks are refused until then.
    forbidden_until: Nanos,
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
        Self {
            rates,
            random: Random::new(seed),
            rare: Random::new(seed ^ RARELY),
            until,
            jumped: Nanos(0),
            jumped_back: Nanos(0),
            forbidden_until: Nanos(0),
            last: None,
        }
    }

    fn strikes(&mut self, rate: f64, now: Nanos) -> bool {
        now < self.until && rate > 0.0 && self.random.unit() < rate
    }

    fn strikes_rarely(&mut self, rate: f64, now: Nanos) -> bool {
        now < self.until && rate > 0.0 && self.rare.unit() < rate
    }

    /// The error of a whole action.
    pub(crate) fn errno(&mut self, now: Nanos) -> Option<i32> {
        let struck = self.strikes(self.rates.refused, now);
        struck.then(|| ERRNOS[self.random.below(ERRNOS.len())])
    }

    /// The error of a whole plan whose inverses cannot be written.
    pub(crate) fn ledger(&mut self, now: Nanos) -> Option<i32> {
        self.strikes_rarely(self.rates.ledger, now).then_some(ENOSPC)
    }

    /// The error of a mask. Masks before it in the same plan were given.
    pub(crate) fn mask(&mut self, now: Nanos) -> Option<i32> {
        if self.strikes_rarely(self.rates.masks, now) {
            self.forbidden_until = (now + FORBIDDEN).min(self.until);
        }
        (now < self.forbidden_until).then_some(EPERM)
    }

    /// The CPU that is unplugged in this epoch, as a draw from 0 to 1.
    pub(crate) fn unplugs_cpu(&mut self, now: Nanos, epoch: Nanos) -> Option<f64> {
        let strikes = self.strikes_rarely(self.rates.cpu_unplugged * epoch.seconds(), now);
        strikes.then(|| self.rare.unit())
    }

    /// The node whose memory is unplugged in this epoch, as a draw from 0 to 1.
    pub(crate) fn unplugs_memory(&mut self, now: Nanos, epoch: Nanos) -> Option<f64> {
        let strikes = self.strikes_rarely(self.rates.memory_unplugged * epoch.seconds(), now);
        strikes.then(|| self.rare.unit())
    }

    /// Whether a process ends while it is frozen.
    pub(crate) fn ends_frozen(&mut self, now: Nanos) -> bool {
        self.strikes_rarely(self.rates.frozen_exits, now)
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
        if self.strikes_rarely(self.rates.back, now) {
            let most = LONGEST_BACK.min(seen.at.since(self.jumped_back));
            self.jumped_back += Nanos((most.0 as f64 * self.rare.unit()) as u64);
        }
        seen.at = seen.at.since(self.jumped_back);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumps_ahead_stays_ahead() {
        let mut faults = Faults::new(Rates { jump: 1.0, ..Rates::default() }, Nanos(1), 3);
        let mut see = |at| faults.disturb(Observation { at, ..Observation::default() }).at;
        let jump = see(Nanos(0));
        assert!(jump > Nanos(0));
        assert_eq!(see(Nanos::from_secs(5)), jump + Nanos::from_secs(5));
    }

    #[test]
    fn faults_strike_at_the_same_calls_with_rare_ones_beside_them() {
        let usual = Rates { refused: 0.3, busy: 0.2, exits: 2.0, jump: 0.2, ..Rates::default() };
        let struck = |rates: Rates| {
            let mut faults = Faults::new(rates, Nanos::from_secs(100), 3);
            let epoch = Nanos::from_millis(50);
            let mut all = Vec::new();
            for second in 0..50 {
                let now = Nanos::from_secs(second);
                faults.unplugs_cpu(now, epoch);
                faults.unplugs_memory(now, epoch);
                let _ = (faults.ledger(now), faults.mask(now), faults.ends_frozen(now));
                faults.disturb(Observation { at: now, ..Observation::default() });
                all.push((faults.errno(now), faults.page(now), faults.exit(now, epoch)));
            }
            (all, faults.jumped)
        };
        let harsh = Rates { refused: 0.3, busy: 0.2, exits: 2.0, jump: 0.2, ..RARE };
        assert_eq!(struck(harsh), struck(usual));
    }

    #[test]
    fn a_clock_that_jumps_back_never_reads_less_than_nothing() {
        let rates = Rates { back: 0.5, ..Rates::default() };
        let mut faults = Faults::new(rates, Nanos::from_secs(20), 3);
        let mut see = |second| {
            let at = Nanos::from_secs(second);
            faults.disturb(Observation { at, ..Observation::default() }).at
        };
        let clock: Vec<Nanos> = (0..40).map(&mut see).collect();
        assert!(clock.windows(2).any(|pair| pair[1] < pair[0]), "{clock:?}");
        assert!(clock.iter().zip(0..).all(|(at, second)| *at <= Nanos::from_secs(second)));
    }
}
