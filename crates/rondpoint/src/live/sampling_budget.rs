//! The budget of samples in a managed run. Each sample costs the program an interrupt, and the
//! manager the time to read a record.

use std::time::Duration;

use rondpoint_linux::LinuxError;
use rondpoint_linux::observe::Observer;
use rondpoint_linux::observe::sampler::{LEVEL_STEP, Rate};

/// Share of one CPU that samples may cost the manager: half of what it may use while it acts.
const SHARE: f64 = 0.01;
/// Part of a sample's cost that is reading it from the ring; the rest is deciding by it. Reading
/// took 0.35 % of the profile of k-means for six seconds, deciding 0.53 % (emulated, perf in
/// `./x lab shell`).
const READING: f64 = 0.4;
/// The next rate takes this part of the samples.
const NEXT: f64 = 1.0 / LEVEL_STEP as f64;
/// How far above its budget a window may be before the rates are lowered: half of what the next
/// rate divides by.
const OVER: f64 = 2.0;

/// Rates of sampling in levels, of which each takes a part of the samples of the one above.
pub(crate) trait Levels {
    /// Lowers all rates by a level. Returns false if there is no lower one.
    fn lower(&mut self) -> bool;

    /// Raises all rates by a level. Returns false if they were not lowered.
    fn raise(&mut self) -> bool;

    /// Samples at a rate of the present level.
    ///
    /// # Errors
    /// The kernel refuses an event. Nothing is sampled then.
    fn set(&mut self, rate: Rate) -> Result<(), LinuxError>;
}

impl Levels for Observer {
    fn lower(&mut self) -> bool {
        self.lower_rate()
    }

    fn raise(&mut self) -> bool {
        self.raise_rate()
    }

    fn set(&mut self, rate: Rate) -> Result<(), LinuxError> {
        self.set_rate(rate).map(|_| ())
    }
}

/// The samples of one window.
pub(super) struct Window {
    /// Those that came and those that were lost.
    pub(super) samples: f64,
    /// CPU time in which they were read.
    pub(super) reading: Duration,
    /// How long it was.
    pub(super) elapsed: Duration,
}

/// What to do with all rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// A level down.
    Lower,
    /// A level up, if they were lowered before.
    Raise,
    /// Nothing.
    Keep,
}

impl Window {
    /// What a window says of the rates, for a budget of samples per second on the machine.
    pub(super) fn change(&self, samples_per_s: f64) -> Change {
        let elapsed = self.elapsed.as_secs_f64();
        let of_program = self.samples / samples_per_s;
        let of_manager = self.reading.as_secs_f64() / READING / SHARE;
        let used = of_program.max(of_manager);
        if used > OVER * elapsed {
            Change::Lower
        } else if used < NEXT * elapsed {
            Change::Raise
        } else {
            Change::Keep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_S: f64 = 16_000.0;

    fn change(samples: f64, reading_us: u64) -> Change {
        let (reading, elapsed) = (Duration::from_micros(reading_us), Duration::from_millis(250));
        Window { samples, reading, elapsed }.change(PER_S)
    }

    #[test]
    fn too_many_samples_lower_the_rates_and_so_do_dear_ones() {
        assert_eq!(change(4_000.0, 1_000), Change::Keep);
        assert_eq!(change(9_000.0, 1_000), Change::Lower, "the program pays too much");
        assert_eq!(change(4_000.0, 2_500), Change::Lower, "the manager pays too much");
    }

    #[test]
    fn the_rates_are_raised_only_where_the_higher_one_keeps_to_the_budget() {
        assert_eq!(change(900.0, 200), Change::Raise);
        assert_eq!(change(1_100.0, 200), Change::Keep);
        assert_eq!(change(900.0, 300), Change::Keep);
        for samples in [500.0, 1_000.0, 4_000.0, 8_000.0, 9_000.0, 30_000.0] {
            let reading_us = (samples / 4.0) as u64;
            let after = change(NEXT * samples, reading_us / 4);
            let lowered = change(samples, reading_us) == Change::Lower;
            assert!(!lowered || after != Change::Raise, "{samples} would go up and down for ever");
        }
    }
}
