//! Levels of sampling: the rate that a policy asks for, lowered by what the budget allows.

use rondpoint_core::Topology;

use super::Sampler;
use crate::LinuxError;
use crate::observe::subject::Subject;

/// Rate of address sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rate {
    /// No samples.
    Off,
    /// A sixteenth of the full rate.
    Idle,
    /// A fourth of the full rate.
    Cheap,
    /// One sample per period.
    Full,
}

/// Ratio of the periods of two neighbouring levels, as of Carrefour's two rates: one sample per
/// 65,000 and per 260,000 cycles.
pub const LEVEL_STEP: u64 = 4;

impl Sampler {
    /// Samples `subject` at this rate from now on.
    ///
    /// # Errors
    /// The kernel's error about the first refused event. Nothing is sampled then.
    pub fn set_rate(
        &mut self,
        rate: Rate,
        subject: &Subject,
        topology: &Topology,
    ) -> Result<(), LinuxError> {
        self.level = self.level_of(rate);
        match self.paused {
            true => Ok(()),
            false => self.reopen(subject, topology),
        }
    }

    /// Whether this is the present rate, or the one after a pause.
    #[must_use]
    pub fn is_at(&self, rate: Rate) -> bool {
        self.level == self.level_of(rate)
    }

    fn level_of(&self, rate: Rate) -> Option<usize> {
        let level = match rate {
            Rate::Off => return None,
            Rate::Full => 0,
            Rate::Cheap => 1,
            Rate::Idle => 2,
        };
        Some((self.lowered + level).min(self.levels - 1))
    }

    /// Lowers all rates by a level from the next [`Sampler::set_rate`] on. Returns false if there
    /// is no lower one.
    pub fn lower(&mut self) -> bool {
        let may = self.lowered + 1 < self.levels;
        self.lowered += usize::from(may);
        may
    }

    /// Raises all rates by a level from the next [`Sampler::set_rate`] on. Returns false if they
    /// were not lowered.
    pub fn raise(&mut self) -> bool {
        let may = self.lowered > 0;
        self.lowered -= usize::from(may);
        may
    }
}
