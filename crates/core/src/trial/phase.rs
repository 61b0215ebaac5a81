//! A phase of a program, which ends when several windows in a row measure something else.

use super::Measure;
use crate::limits::MIN_TRIAL_WINDOWS;
use crate::units::Nanos;

/// A phase, by the measures of one of its windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Phase {
    /// When it began.
    pub(crate) began: Nanos,
    /// What the program did then.
    pub(crate) measure: Measure,
    /// Windows in a row that belong to another phase, and when the first of them began.
    others: usize,
    other_began: Nanos,
}

impl Phase {
    /// A phase that began then.
    pub(crate) fn new(began: Nanos, measure: Measure) -> Self {
        Self { began, measure, others: 0, other_began: began }
    }

    /// Checks whether a window, which began then, belongs to another phase. A single window may be
    /// noise. As many as a verdict needs are another phase.
    pub(crate) fn take_in(&mut self, window: &Measure, began: Nanos) {
        if window.is_phase_of(&self.measure) {
            self.others = 0;
            return;
        }
        if self.others == 0 {
            self.other_began = began;
        }
        self.others += 1;
    }

    /// Whether another phase ended it.
    pub(crate) fn is_over(&self) -> bool {
        self.others >= MIN_TRIAL_WINDOWS
    }

    /// The phase that ended it, if one did, by one of its windows.
    pub(crate) fn next(&self, window: Measure) -> Option<Self> {
        self.is_over().then(|| Self::new(self.other_began, window))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the phase began that each window is of. A window lasts a second; it has as many threads
    /// as the digit says.
    fn began(windows: &str) -> alloc::vec::Vec<u64> {
        let mut phase: Option<Phase> = None;
        let seen = |(second, digit): (usize, char)| {
            let threads = f64::from(digit.to_digit(10).expect("a digit"));
            let (window, at) =
                (Measure { threads, ..Measure::default() }, Nanos::from_secs(second as u64));
            let known = phase.get_or_insert(Phase::new(at, window));
            known.take_in(&window, at);
            *known = known.next(window).unwrap_or(*known);
            known.began.0 / Nanos::from_secs(1).0
        };
        windows.chars().enumerate().map(seen).collect()
    }

    #[test]
    fn a_phase_outlasts_odd_windows_and_begins_with_its_first() {
        assert_eq!(began("22122112"), [0; 8]);
        assert_eq!(began("2211111"), [0, 0, 0, 0, 2, 2, 2]);
        assert_eq!(began("22121112"), [0, 0, 0, 0, 0, 0, 4, 4]);
    }
}
