//! Times from requests to replies: their distribution over a run.
//!
//! Within an epoch, the time at an answering thread is exponential. Where requests come at a fixed
//! rate, a share of them first waits in the queue, for another exponential time. The time for
//! messages and for a backlog is added. A run is the mixture of all its epochs.

use std::collections::BTreeMap;

/// Classes in a factor of two of time. A class is 2 % wide.
const CLASSES: f64 = 32.0;
/// Shortest time that is told apart, ns.
const SHORTEST_NS: f64 = 1.0;
/// Halvings of the interval in which a percentile lies.
const HALVINGS: usize = 60;

/// Classes of the times of a reply: at the thread, fixed delay, and in the queue if it waits there.
type Classes = (i32, i32, Option<i32>);

/// Replies by the classes of their times.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replies {
    counts: BTreeMap<Classes, f64>,
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

/// The wait of requests for a thread, in a queue that all answering threads serve.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Queue {
    /// Share of the requests that find no thread idle.
    pub(super) waiting: f64,
    /// Their mean wait, ns.
    pub(super) wait_ns: f64,
}

impl Queue {
    /// The queue of threads that answer `most` requests in a ns, all together, and of which a share
    /// `used` below 1 is used. It is Erlang's delay formula (Erlang C).
    pub(super) fn of(threads: usize, most: f64, used: f64) -> Self {
        let load = used * threads as f64;
        // Erlang B, the share that is lost where nothing waits, by its recursion.
        let lost =
            (1..=threads).fold(1.0, |lost, count| load * lost / (count as f64 + load * lost));
        Self {
            waiting: lost / (1.0 - used * (1.0 - lost)),
            wait_ns: 1.0 / (most * (1.0 - used)).max(1e-30),
        }
    }
}

/// Share of the sums of two exponential times, given by their classes, that are longer than `ns`.
fn sum_is_longer(ns: f64, first: i32, second: i32) -> f64 {
    let [one, other] = [first, second].map(of_class);
    let tail = |mean: f64| (-ns / mean).exp();
    match first == second {
        true => (1.0 + ns / one) * tail(one),
        false => (one * tail(one) - other * tail(other)) / (one - other),
    }
}

impl Replies {
    /// Adds so many replies after an exponential time with a mean, a fixed delay, and the wait of a
    /// queue.
    pub(super) fn add(&mut self, count: f64, mean_ns: f64, delay_ns: f64, queue: Queue) {
        let ways = [(1.0 - queue.waiting, None), (queue.waiting, Some(queue.wait_ns))];
        for (share, wait_ns) in ways {
            let count = count * share;
            if count > 0.0 {
                let classes = (class(mean_ns), class(delay_ns), wait_ns.map(class));
                *self.counts.entry(classes).or_insert(0.0) += count;
                self.sum_ns += count * (mean_ns + delay_ns + wait_ns.unwrap_or(0.0));
                self.all += count;
            }
        }
    }

    /// Share of the replies that take longer.
    fn longer(&self, ns: f64) -> f64 {
        let tail = |(&(mean, delay, wait), count): (&Classes, &f64)| {
            let left_ns = (ns - of_class(delay)).max(0.0);
            match wait {
                None => count * (-left_ns / of_class(mean)).exp(),
                Some(wait) => count * sum_is_longer(left_ns, mean, wait),
            }
        };
        self.counts.iter().map(tail).sum::<f64>() / self.all
    }

    /// The time than which so large a share of the replies takes longer, ns.
    fn quantile(&self, above: f64) -> f64 {
        let longest = |(mean, delay, wait): &Classes| {
            of_class(*delay) + 50.0 * (of_class(*mean) + wait.map_or(0.0, of_class))
        };
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
        replies.add(10.0, 50_000.0, 10_000.0, Queue::default());
        let near = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 0.03, "{found}, expected {expected}");
        };
        let times = replies.times().unwrap();
        near(times.mean_us, 60.0);
        near(times.median_us, 10.0 + 50.0 * 2.0_f64.ln());
        near(times.p99_us, 10.0 + 50.0 * 100.0_f64.ln());
        // Two of a hundred replies come from a jam: they alone make the slowest percent.
        replies.add(10.0 * 2.0 / 98.0, 50_000.0, 10_000_000.0, Queue::default());
        let jammed = replies.times().unwrap();
        near(jammed.median_us, times.median_us);
        assert!(jammed.p99_us > 10_000.0, "{jammed:?}");
    }

    /// Mean time and the time that 99 of 100 replies keep, where a request takes a thread 1 µs.
    fn times(threads: usize, used: f64) -> (f64, f64) {
        let mut replies = Replies::default();
        replies.add(1.0, 1000.0, 0.0, Queue::of(threads, threads as f64 / 1000.0, used));
        let times = replies.times().unwrap();
        (times.mean_us, times.p99_us)
    }

    #[test]
    fn threads_that_share_a_queue_keep_requests_waiting_as_erlang_s_formula_says() {
        // Of one thread, the time in the queue and at the thread is exponential.
        for used in [0.1, 0.5, 0.9] {
            let (mean, p99) = times(1, used);
            assert!((mean * (1.0 - used) - 1.0).abs() < 1e-9, "{used}: {mean}");
            assert!((p99 / (mean * 100.0_f64.ln()) - 1.0).abs() < 0.02, "{used}: {p99}");
        }
        // Eight threads at 0.9: 70.2 of 100 requests wait, 1.25 µs in the mean.
        let (mean, p99) = times(8, 0.9);
        assert!((mean - 1.877).abs() < 1e-3, "{mean}");
        assert!((p99 - 7.09).abs() < 0.15, "{p99}");
        let (mean, _) = times(8, 0.1);
        assert!((mean - 1.0).abs() < 1e-3, "a thread is idle for almost all requests: {mean}");
    }
}
