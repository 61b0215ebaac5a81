//! The last sixteen intervals of a flag, one bit each [SAM-MPH author code].

/// Set bits above which a flag is steady [SAM-MPH author code: more than 3 of the last 16].
pub const STEADY_ABOVE: u32 = 3;

/// A flag over the last 16 intervals; the newest is the lowest bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History(u16);

impl History {
    /// Shifts in the newest interval.
    pub fn push(&mut self, set: bool) {
        self.0 = self.0 << 1 | u16::from(set);
    }

    /// Number of the last 16 intervals in which the flag was set.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the flag was set in more than [`STEADY_ABOVE`] of the last 16 intervals.
    #[must_use]
    pub fn is_steady(self) -> bool {
        self.count() > STEADY_ABOVE
    }

    /// The history of "either flag was set".
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_of_the_last_sixteen_are_steady_until_one_falls_out() {
        let mut history = History::default();
        (0..3).for_each(|_| history.push(true));
        assert!(!history.is_steady());
        history.push(true);
        assert!(history.is_steady());
        (0..12).for_each(|_| history.push(false));
        assert!(history.is_steady());
        history.push(false);
        assert!(!history.is_steady());
    }

    #[test]
    fn two_flags_are_steady_together() {
        let (mut one, mut other) = (History::default(), History::default());
        for interval in 0..4 {
            one.push(interval % 2 == 0);
            other.push(interval % 2 == 1);
        }
        assert!(!one.is_steady() && !other.is_steady());
        assert!(one.or(other).is_steady());
    }
}
