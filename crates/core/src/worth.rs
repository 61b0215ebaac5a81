//! Worth of a candidate: its gain over the expected length of the phase, less its cost.

use core::fmt;

/// The numbers from which the worth of a candidate is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Worth {
    /// Expected gain, CPU seconds per second.
    pub won: f64,
    /// Lower bound of the gain.
    pub least: f64,
    /// Gain that is required because its trial makes other candidates wait, CPU seconds per second.
    pub needed: f64,
    /// Share of the gain that past trials make credible.
    pub belief: f64,
    /// Expected length of the phase in seconds.
    pub horizon_s: f64,
    /// Cost of moving, CPU seconds.
    pub cost_s: f64,
}

impl Worth {
    /// The worth in CPU seconds; 0 or less means that the candidate is refused.
    #[must_use]
    pub fn value(&self) -> f64 {
        // Belief never reduces a predicted loss.
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
