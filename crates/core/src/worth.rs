//! What a candidate is worth, with the numbers that this is made of.

use core::fmt;

/// Why a candidate was taken or not.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Worth {
    /// CPU seconds won in a second: likely, and at least.
    pub won: f64,
    /// Lower bound of that.
    pub least: f64,
    /// CPU seconds in a second that it has to win before it is worth anything, because its trial
    /// makes others wait.
    pub needed: f64,
    /// What part of it is believed.
    pub belief: f64,
    /// Seconds for which it is expected to last.
    pub horizon_s: f64,
    /// CPU seconds that moving takes.
    pub cost_s: f64,
}

impl Worth {
    /// CPU seconds that it is worth.
    #[must_use]
    pub fn value(&self) -> f64 {
        // What harms is believed whole.
        let least = self.least - self.needed;
        let believed = if least > 0.0 { self.belief * least } else { least };
        believed * self.horizon_s - self.cost_s
    }
}

impl fmt::Display for Worth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "would win {:.1} % of a CPU, at least {:.1} %, of which {:.0} % is believed, for {:.0} s; \
             moving costs {:.3} s",
            100.0 * self.won,
            100.0 * self.least,
            100.0 * self.belief,
            self.horizon_s,
            self.cost_s
        )?;
        match self.needed > 0.0 {
            true => write!(
                f,
                "; it has to win {:.1} %, for its trial makes others wait",
                100.0 * self.needed
            ),
            false => Ok(()),
        }
    }
}
