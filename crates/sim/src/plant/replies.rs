//! Times from requests to replies: their distribution over a run.
//!
//! Within an epoch, the time at an answering thread is exponential, as in a queue with random
//! arrivals. The time for messages and for a backlog is added to it. A run is the mixture of all
//! its epochs.

use std::collections::BTreeMap;

/// Classes in a factor of two of time. A class is 2 % wide.
const CLASSES: f64 = 32.0;
/// Shortest time that is told apart, ns.
const SHORTEST_NS: f64 = 1.0;
/// Halvings of the interval in which a percentile lies.
const HALVINGS: usize = 60;

/// Replies by the class of their mean time in the queue and of their fixed delay.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replies {
    counts: BTreeMap<(i32, i32), f64>,
    sum_ns: f64,
    all: f64,
}

/// Times of replies, µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ReplyTimes {
    pub(crate) mean_us: f64,
    pub(crate) median_us: f64,
    /// 99 of 100 replies come sooner.
    pub(crate) p99_us: f64,
}

fn class(ns: f64) -> i32 {
    ((ns.max(SHORTEST_NS) / SHORTEST_NS).log2() * CLASSES).round() as i32
}

fn of_class(class: i32) -> f64 {
    SHORTEST_NS * (f64::from(class) / CLASSES).exp2()
}

impl Replies {
    /// Adds so many replies after an exponential time with a mean, and a fixed delay.
    pub(super) fn add(&mut self, count: f64, mean_ns: f64, delay_ns: f64) {
        if count > 0.0 {
            *self.counts.entry((class(mean_ns), class(delay_ns))).or_insert(0.0) += count;
            self.sum_ns += count * (mean_ns + delay_ns);
            self.all += count;
        }
    }

    /// Share of the replies that take longer.
    fn longer(&self, ns: f64) -> f64 {
        let tail = |(&(mean, delay), count): (&(i32, i32), &f64)| {
            count * (-(ns - of_class(delay)).max(0.0) / of_class(mean)).exp()
        };
        self.counts.iter().map(tail).sum::<f64>() / self.all
    }

    /// The time than which so large a share of the replies takes longer, ns.
    fn quantile(&self, above: f64) -> f64 {
        let longest = |(mean, delay): &(i32, i32)| of_class(*delay) + 50.0 * of_class(*mean);
        let (mut low, mut high) = (0.0, self.counts.keys().map(longest).fold(0.0, f64::max));
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if self.longer(middle) > above { low = middle } else { high = middle }
        }
        high
    }

    /// `None` without a reply.
    pub(crate) fn times(&self) -> Option<ReplyTimes> {
        (self.all > 0.0).then(|| ReplyTimes {
            mean_us: self.sum_ns / self.all / 1000.0,
            median_us: self.quantile(0.5) / 1000.0,
            p99_us: self.quantile(0.01) / 1000.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_exponential_times_that_were_added() {
        let mut replies = Replies::default();
        assert_eq!(replies.times(), None);
        replies.add(10.0, 50_000.0, 10_000.0);
        let near = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 0.03, "{found}, expected {expected}");
        };
        let times = replies.times().unwrap();
        near(times.mean_us, 60.0);
        near(times.median_us, 10.0 + 50.0 * 2.0_f64.ln());
        near(times.p99_us, 10.0 + 50.0 * 100.0_f64.ln());
        // Two of a hundred replies come from a jam: they alone make the slowest percent.
        replies.add(10.0 * 2.0 / 98.0, 50_000.0, 10_000_000.0);
        let jammed = replies.times().unwrap();
        near(jammed.median_us, times.median_us);
        assert!(jammed.p99_us > 10_000.0, "{jammed:?}");
    }
}
