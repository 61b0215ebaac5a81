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
    /// Gain that it must exceed.
    pub needed: Needed,
    /// Share of the gain that past trials make credible.
    pub belief: f64,
    /// Expected length of the phase in seconds.
    pub horizon_s: f64,
    /// Cost of moving, CPU seconds.
    pub cost_s: f64,
}

/// Gain that a candidate must exceed because its trial makes others wait, CPU seconds per second.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Needed {
    /// It makes nothing wait.
    Nothing,
    /// Samples will soon name the partners of threads, whose moves would wait.
    UntilPartnersKnown(f64),
    /// Other candidates wait for the trial already.
    DelaysOthers(f64),
}

impl Needed {
    /// The larger of both.
    #[must_use]
    pub fn of(until_partners_known: f64, delays_others: f64) -> Self {
        match until_partners_known.max(delays_others) > 0.0 {
            false => Self::Nothing,
            true if until_partners_known > delays_others => {
                Self::UntilPartnersKnown(until_partners_known)
            }
            true => Self::DelaysOthers(delays_others),
        }
    }

    /// The gain, CPU seconds per second.
    #[must_use]
    pub fn gain(self) -> f64 {
        match self {
            Self::Nothing => 0.0,
            Self::UntilPartnersKnown(gain) | Self::DelaysOthers(gain) => gain,
        }
    }
}

impl Worth {
    /// The worth in CPU seconds; 0 or less means that the candidate is refused.
    #[must_use]
    pub fn value(&self) -> f64 {
        // Belief never reduces a predicted loss, nor what others lose meanwhile.
        let believed = if self.least > 0.0 { self.belief * self.least } else { self.least };
        (believed - self.needed.gain()) * self.horizon_s - self.cost_s
    }
}

impl fmt::Display for Worth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (won, least) = (100.0 * self.won, 100.0 * self.least);
        match (won > 0.0, least > 0.0) {
            (true, true) => write!(
                f,
                "would win {won:.1} % of a CPU, at least {least:.1} %, of which {:.0} % is believed",
                100.0 * self.belief
            ),
            (true, false) => {
                write!(f, "would win {won:.1} % of a CPU, or lose {:.1} %", least.abs())
            }
            (false, _) => {
                write!(f, "would lose {:.1} % of a CPU, up to {:.1} %", won.abs(), least.abs())
            }
        }?;
        write!(f, ", for {:.0} s; moving costs {:.3} s", self.horizon_s, self.cost_s)?;
        let needed = 100.0 * self.needed.gain();
        match self.needed {
            Needed::Nothing => Ok(()),
            Needed::UntilPartnersKnown(_) => {
                write!(
                    f,
                    "; it has to win {needed:.1} % until samples show which threads share data"
                )
            }
            Needed::DelaysOthers(_) => {
                write!(f, "; it has to win {needed:.1} %, for its trial makes others wait")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_loss_is_called_a_loss() {
        let told = |won, least| {
            let needed = Needed::of(0.0, 0.0);
            Worth { won, least, needed, belief: 0.5, horizon_s: 2.0, cost_s: 0.1 }.to_string()
        };
        assert_eq!(
            told(0.5, 0.4),
            "would win 50.0 % of a CPU, at least 40.0 %, of which 50 % is believed, for 2 s; \
             moving costs 0.100 s"
        );
        assert_eq!(
            told(0.02, -0.047),
            "would win 2.0 % of a CPU, or lose 4.7 %, for 2 s; moving costs 0.100 s"
        );
        assert_eq!(
            told(-0.13, -0.2),
            "would lose 13.0 % of a CPU, up to 20.0 %, for 2 s; moving costs 0.100 s"
        );
        assert_eq!(
            told(-0.0, 0.0),
            "would lose 0.0 % of a CPU, up to 0.0 %, for 2 s; moving costs 0.100 s"
        );
    }

    #[test]
    fn a_gain_has_to_exceed_the_larger_requirement_which_is_named() {
        let worth = |until_partners_known, delays_others| Worth {
            won: 0.5,
            least: 0.4,
            needed: Needed::of(until_partners_known, delays_others),
            belief: 0.5,
            horizon_s: 2.0,
            cost_s: 0.1,
        };
        let told = |worth: Worth| {
            let text = worth.to_string();
            (text.contains("samples show"), text.contains("makes others wait"))
        };
        let value = |worth: Worth| (1000.0 * worth.value()).round();
        assert_eq!((value(worth(0.0, 0.0)), told(worth(0.0, 0.0))), (300.0, (false, false)));
        assert_eq!((value(worth(0.2, 0.1)), told(worth(0.2, 0.1))), (-100.0, (true, false)));
        assert_eq!((value(worth(0.1, 0.3)), told(worth(0.1, 0.3))), (-300.0, (false, true)));
    }
}
