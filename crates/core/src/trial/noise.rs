//! The difference of two groups of windows in one value, with its noise.

use crate::limits::MIN_TRIAL_WINDOWS;

/// Student's t for 95 %, two-sided, from one degree of freedom on.
const T_95: [f64; 12] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];
/// For three windows on each side. With more windows it is too careful.
const DEGREES: usize = 2 * MIN_TRIAL_WINDOWS - 2;
/// Least noise: a smaller change counts as none, however little the windows vary.
pub(crate) const LEAST_NOISE: f64 = 0.01;

/// A relative change and the noise that it has to exceed; 0.1 = 10 % better.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Change {
    /// Relative, positive = better.
    pub change: f64,
    /// Half width of the 95 % interval of the difference, relative.
    pub noise: f64,
}

impl Change {
    /// The mean of two measurements of one change, each weighted by its precision.
    pub(crate) fn with(self, other: Self) -> Self {
        let (own, its) = (self.noise * self.noise, other.noise * other.noise);
        let sum = own + its;
        if sum <= 0.0 {
            return Self { change: 0.5 * (self.change + other.change), noise: 0.0 };
        }
        let change = (self.change * its + other.change * own) / sum;
        Self { change, noise: libm::sqrt(own * its / sum) }
    }
}

/// Windows in which a value is known.
struct Group {
    count: usize,
    mean: f64,
    /// Sum of the squares of what each differs from the mean by.
    squares: f64,
}

impl Group {
    /// `None` with too few windows: fewer than three, or not all of a shorter group.
    fn of(windows: &[Option<f64>]) -> Option<Self> {
        let known = || windows.iter().copied().flatten();
        let count = known().count();
        if count == 0 || count < windows.len().min(MIN_TRIAL_WINDOWS) {
            return None;
        }
        let mean = known().sum::<f64>() / count as f64;
        let squares = known().map(|value| (value - mean) * (value - mean)).sum();
        Some(Self { count, mean, squares })
    }

    /// Square of the mean's standard error.
    fn error(&self) -> f64 {
        self.squares / (self.count as f64 - 1.0) / self.count as f64
    }
}

/// Change of a value, one for each window, that is known in enough windows of both groups.
///
/// A program in a new phase has only one or two windows before the action. They do not show their
/// own noise, so the noise comes from both groups together.
pub(super) fn change(before: &[Option<f64>], after: &[Option<f64>]) -> Option<Change> {
    let (before, after) = (Group::of(before)?, Group::of(after)?);
    if before.mean <= 0.0 || after.count < MIN_TRIAL_WINDOWS {
        return None;
    }
    let noise = match before.count < MIN_TRIAL_WINDOWS {
        true => pooled(&before, &after),
        false => T_95[DEGREES - 1] * libm::sqrt(before.error() + after.error()),
    };
    let change = (after.mean - before.mean) / before.mean;
    Some(Change { change, noise: (noise / before.mean).max(LEAST_NOISE) })
}

/// Half width of the interval of the difference, if both groups vary alike.
fn pooled(before: &Group, after: &Group) -> f64 {
    let degrees = before.count + after.count - 2;
    let variance = (before.squares + after.squares) / degrees as f64;
    let t = T_95[degrees.min(T_95.len()) - 1];
    t * libm::sqrt(variance * (1.0 / before.count as f64 + 1.0 / after.count as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use alloc::vec::Vec;

    #[test]
    fn of_two_measurements_the_one_with_less_noise_counts_more() {
        let of = |change, noise| Change { change, noise };
        let both = of(0.10, 0.10).with(of(0.00, 0.01));
        assert!(both.change < 0.002 && both.noise < 0.01, "{both:?}");
        let alike = of(0.10, 0.02).with(of(0.00, 0.02));
        assert!((alike.change - 0.05).abs() < 1e-9 && alike.noise < 0.02, "{alike:?}");
        assert_eq!(of(0.10, 0.0).with(of(0.20, 0.0)).noise, 0.0);
    }

    /// Windows around a mean, each off by nearly a normal deviate of this share.
    fn windows(random: &mut Random, count: usize, mean: f64, share: f64) -> Vec<Option<f64>> {
        let mut window = || {
            let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
            Some(mean * (1.0 + share * normal))
        };
        (0..count).map(|_| window()).collect()
    }

    /// The share of trials in which the change of the mean is called worse.
    fn called_worse(windows_before: usize, windows_after: usize, mean_after: f64) -> f64 {
        const TRIALS: usize = 4_000;
        let mut random = Random::new(5);
        let mut is_worse = || {
            let before = windows(&mut random, windows_before, 100.0, 0.05);
            let after = windows(&mut random, windows_after, mean_after, 0.05);
            let found = change(&before, &after);
            found.is_some_and(|found| found.change < -found.noise)
        };
        (0..TRIALS).filter(|_| is_worse()).count() as f64 / TRIALS as f64
    }

    #[test]
    fn what_did_not_change_is_seldom_called_worse_however_few_windows_there_are() {
        for before in 1..=6 {
            for after in [3, 4, 8] {
                let share = called_worse(before, after, 100.0);
                // 2.5 % on one side of the interval, and the error of a share of 4,000 trials.
                assert!(share < 0.035, "{before} and {after} windows: {share}");
            }
        }
    }

    #[test]
    fn a_loss_of_half_shows_beside_a_single_window_and_sooner_beside_more() {
        let shares: Vec<f64> = (1..=3).map(|before| called_worse(before, 3, 50.0)).collect();
        assert!(shares[0] > 0.7, "{shares:?}");
        assert!(shares.is_sorted(), "{shares:?}");
        assert!(shares[2] > 0.99, "{shares:?}");
    }

    #[test]
    fn what_a_window_alone_does_not_tell_is_not_compared() {
        let after = [Some(1.0); 3];
        assert_eq!(change(&[None], &after), None);
        assert_eq!(change(&[Some(1.0), None], &after), None);
        assert_eq!(change(&[Some(1.0)], &after[..2]), None, "two windows after");
        assert_eq!(change(&[], &after), None);
        assert!(change(&[Some(1.0)], &after).is_some());
    }
}
