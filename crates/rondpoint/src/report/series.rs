//! Figures over time, thinned to what a chart can show.

use crate::story::{Known, Story};

/// Slices of a chart at most: more are finer than its pixels.
const MOST_SLICES: usize = 320;

/// A value that holds for a while.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slice<T> {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) value: T,
}

/// What can be averaged.
pub(super) trait Mean: Clone {
    /// Adds `other` with a weight.
    fn add(&mut self, other: &Self, weight: f64);
    /// The same times a factor.
    fn times(&self, factor: f64) -> Self;
}

impl Mean for f64 {
    fn add(&mut self, other: &Self, weight: f64) {
        *self += other * weight;
    }
    fn times(&self, factor: f64) -> Self {
        self * factor
    }
}

impl<T: Mean> Mean for Vec<T> {
    fn add(&mut self, other: &Self, weight: f64) {
        for (sum, other) in self.iter_mut().zip(other) {
            sum.add(other, weight);
        }
    }
    fn times(&self, factor: f64) -> Self {
        self.iter().map(|one| one.times(factor)).collect()
    }
}

/// What was known of something in each window, where it was. Windows that are closer than a chart
/// can show are one: their mean by time.
pub(super) fn over_time<T: Mean>(
    story: &Story,
    value: impl Fn(&Known) -> Option<T>,
) -> Vec<Slice<T>> {
    let windows = story.moments.iter().filter_map(|moment| {
        let known = moment.known.as_ref()?;
        let from_s = (moment.at_s - known.seconds).max(0.0);
        Some(Slice { from_s, to_s: moment.at_s, value: value(known)? })
    });
    let shortest = story.seconds() / MOST_SLICES as f64;
    let mut slices: Vec<Slice<T>> = Vec::new();
    for window in windows.filter(|window| window.to_s > window.from_s) {
        match slices.last_mut() {
            Some(last)
                if window.to_s - last.from_s <= shortest
                    && window.from_s <= last.to_s + shortest =>
            {
                let (before, more) = (last.to_s - last.from_s, window.to_s - window.from_s);
                let mut value = last.value.times(before / (before + more));
                value.add(&window.value, more / (before + more));
                (last.value, last.to_s) = (value, window.to_s);
            }
            _ => slices.push(window),
        }
    }
    slices
}

/// The mean by time of slices within a span, each as far as it lies in it; `None` without any.
pub(super) fn mean_between<T: Mean>(slices: &[Slice<T>], from_s: f64, to_s: f64) -> Option<T> {
    let inside = |slice: &Slice<T>| slice.to_s.min(to_s) - slice.from_s.max(from_s);
    let all: f64 = slices.iter().map(|slice| inside(slice).max(0.0)).sum();
    let mut parts = slices.iter().filter(|slice| inside(slice) > 0.0);
    let first = parts.next()?;
    let mut mean = first.value.times(inside(first) / all);
    for slice in parts {
        mean.add(&slice.value, inside(slice) / all);
    }
    Some(mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_weighs_by_the_time_that_lies_inside() {
        let slice = |from_s, to_s, value| Slice { from_s, to_s, value };
        let slices = [slice(0.0, 2.0, vec![10.0]), slice(2.0, 3.0, vec![40.0])];
        assert_eq!(mean_between(&slices, 0.0, 3.0), Some(vec![20.0]));
        assert_eq!(mean_between(&slices, 1.0, 3.0), Some(vec![25.0]));
        assert_eq!(mean_between(&slices, 2.0, 9.0), Some(vec![40.0]));
        assert_eq!(mean_between(&slices, 3.0, 9.0), None);
    }
}
