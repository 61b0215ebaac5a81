//! Thresholds measured on this machine, which replace published ones.

use super::description::{TopologyError, positive, refuse};
use alloc::format;

/// Measured thresholds. Where one is `None`, the published one counts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Calibrated {
    /// Carrefour's MAPTU threshold, DRAM requests per microsecond: the least rate of a program with
    /// a run time that depended on placement.
    pub requests_per_us: Option<f64>,
    /// SAM's coherence threshold (COH), cache lines per second that a thread receives from another
    /// socket.
    pub coherence_per_s: Option<f64>,
    /// SAM's memory threshold (MEM), last-level cache misses per second of all threads of a socket.
    pub memory_per_s: Option<f64>,
    /// SAM's remote threshold (RDR), requests per second of one thread to remote memory.
    pub remote_per_s: Option<f64>,
    /// N-MASS's estimate of the NUMA penalty.
    pub penalty: Option<PenaltyLine>,
}

/// N-MASS's linear model: cycles per instruction remote over local, by last-level cache misses per
/// 1000 instructions [N-MASS s3.2].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PenaltyLine {
    /// Penalty of a program without misses.
    pub intercept: f64,
    /// Penalty that each miss per 1000 instructions adds.
    pub slope_per_mpki: f64,
    /// Upper limit of the estimate: the highest penalty among the programs of the fit.
    pub most: f64,
}

impl PenaltyLine {
    /// Least-squares fit of `(MPKI, penalty)` points; `None` if all have the same MPKI.
    #[must_use]
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mpki, penalty) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - mpki) * (point.0 - mpki)).sum();
        let together: f64 = points.iter().map(|point| (point.0 - mpki) * (point.1 - penalty)).sum();
        let slope_per_mpki = together / spread;
        let most = points.iter().map(|point| point.1).fold(1.0, f64::max);
        let line = Self { intercept: penalty - slope_per_mpki * mpki, slope_per_mpki, most };
        line.is_sound().then_some(line)
    }

    /// The penalty at `mpki` misses per 1000 instructions: 1 or more.
    #[must_use]
    pub fn at(&self, mpki: f64) -> f64 {
        (self.intercept + self.slope_per_mpki * mpki).clamp(1.0, self.most)
    }

    fn is_sound(&self) -> bool {
        let Self { intercept, slope_per_mpki, most } = *self;
        intercept.is_finite() && slope_per_mpki.is_finite() && most.is_finite() && most >= 1.0
    }
}

impl Calibrated {
    /// Checks that rates are positive and the penalty line is finite.
    pub(super) fn check(&self) -> Result<(), TopologyError> {
        let rates = [
            ("requests_per_us", self.requests_per_us),
            ("coherence_per_s", self.coherence_per_s),
            ("memory_per_s", self.memory_per_s),
            ("remote_per_s", self.remote_per_s),
        ];
        for (name, rate) in rates {
            if let Some(rate) = rate.filter(|rate| !positive(*rate)) {
                let path = format!("calibrated.{name}");
                return refuse(path, format!("{rate}, expected more than zero"));
            }
        }
        match self.penalty {
            Some(line) if !line.is_sound() => refuse(
                "calibrated.penalty",
                format!("{line:?}, expected numbers, and 1 or more for most"),
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_points_that_lie_on_it_and_between_those_that_do_not() {
        let line = PenaltyLine::fit(&[(0.0, 1.05), (10.0, 1.2), (20.0, 1.35)]).expect("a line");
        assert!(
            (line.intercept - 1.05).abs() < 1e-12 && (line.slope_per_mpki - 0.015).abs() < 1e-12
        );
        assert!((line.at(10.0) - 1.2).abs() < 1e-12);
        assert_eq!(
            [line.at(30.0), line.at(-9.0)],
            [1.35, 1.0],
            "no more than was seen, no less than none"
        );
        let line = PenaltyLine::fit(&[(0.0, 1.0), (0.0, 1.2), (10.0, 1.1), (10.0, 1.3)]);
        let line = line.expect("a line");
        assert!((line.intercept - 1.1).abs() < 1e-12 && (line.slope_per_mpki - 0.01).abs() < 1e-12);
    }

    #[test]
    fn one_mpki_makes_no_line() {
        assert_eq!(PenaltyLine::fit(&[]), None);
        assert_eq!(PenaltyLine::fit(&[(5.0, 1.1)]), None);
        assert_eq!(PenaltyLine::fit(&[(5.0, 1.1), (5.0, 1.3)]), None);
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        let refused = |calibrated: Calibrated| calibrated.check().map_err(|error| error.path);
        assert_eq!(refused(Calibrated::default()), Ok(()));
        let none = Calibrated { memory_per_s: Some(0.0), ..Calibrated::default() };
        assert_eq!(refused(none), Err("calibrated.memory_per_s".into()));
        let line = PenaltyLine { intercept: 1.0, slope_per_mpki: 0.0, most: 0.9 };
        let none = Calibrated { penalty: Some(line), ..Calibrated::default() };
        assert_eq!(refused(none), Err("calibrated.penalty".into()));
    }
}
