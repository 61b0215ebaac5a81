//! Loops with a known need for memory: one load of a line, then a fixed amount of computing, and so
//! on. The loads are either independent of each other, as in a program that is bound by bandwidth,
//! or each waits for the one before.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WORDS_PER_LINE: usize = 8;
/// Loads between two looks at the clock.
const CHUNK: u64 = 256;
/// Lines from one independent load to the next. It is more than a page, so that no prefetcher
/// follows, and odd, so that a power of two of lines is visited whole. Making the next address
/// takes next to nothing, so as many loads are under way as the core can have.
const STRIDE_LINES: usize = 67;

/// Which line is loaded next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// One on another page: nothing waits for anything.
    Independent,
    /// The one that the line before names: the memory is laid as in [`super::chase`].
    Chain,
}

/// A loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loads {
    pub(super) order: Order,
    /// Rounds of computing, about ten instructions each, before each load.
    pub(super) rounds: u32,
}

/// When loads count. A thread beside others goes on until all have counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    from: Instant,
    to: Instant,
    until: Instant,
}

impl Window {
    /// For one alone.
    pub(super) fn now(time: Duration) -> Self {
        let now = Instant::now();
        Self { from: now, to: now + time, until: now + time }
    }

    /// For several that are about to start: a quarter of the time before and behind is for those
    /// that start late.
    pub(super) fn soon(time: Duration) -> Self {
        let from = Instant::now() + time / 4;
        Self { from, to: from + time, until: from + time + time / 4 }
    }
}

impl Loads {
    /// Runs on the calling thread; loads per second.
    pub(super) fn per_s(self, words: &[AtomicU64], window: Window) -> f64 {
        match self.order {
            Order::Independent => self.independent(words, window),
            Order::Chain => self.chain(words, window),
        }
    }

    fn independent(self, words: &[AtomicU64], window: Window) -> f64 {
        // The largest power of two that fits.
        let lines = 1usize << (words.len() / WORDS_PER_LINE).ilog2();
        let (mut line, mut random, mut sum) = (0, 1, 0u64);
        repeat(window, || {
            random = self.compute(random);
            line = (line + STRIDE_LINES) & (lines - 1);
            sum = sum.wrapping_add(words[line * WORDS_PER_LINE].load(Ordering::Relaxed));
            random ^ sum
        })
    }

    fn chain(self, words: &[AtomicU64], window: Window) -> f64 {
        let base = words.as_ptr() as u64;
        let (mut at, mut random) = (base, 1);
        repeat(window, || {
            random = self.compute(random);
            at = words[((at - base) / 8) as usize].load(Ordering::Relaxed);
            random ^ at
        })
    }

    #[inline(always)]
    fn compute(self, random: u64) -> u64 {
        (0..self.rounds).fold(random, |random, _| scrambled(random))
    }
}

/// Does something over and over. Returns how often in a second of the window.
#[inline(always)]
fn repeat(window: Window, mut load: impl FnMut() -> u64) -> f64 {
    let mut loads = 0u64;
    let (mut begin, mut end) = (None, None);
    loop {
        let now = Instant::now();
        if begin.is_none() && now >= window.from {
            begin = Some((now, loads));
        }
        if end.is_none() && now >= window.to {
            end = Some((now, loads));
        }
        if now >= window.until {
            break;
        }
        let mut last = 0;
        for _ in 0..CHUNK {
            last = load();
        }
        std::hint::black_box(last);
        loads += CHUNK;
    }
    let ((from, before), (to, after)) = begin.zip(end).expect("it ends behind the window");
    match (to - from).as_secs_f64() {
        // It came to run only behind the window.
        0.0 => 0.0,
        seconds => (after - before) as f64 / seconds,
    }
}

/// Marsaglia's xorshift64 (13, 7, 17).
fn scrambled(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::chase;

    #[test]
    fn both_orders_stay_inside_and_more_computing_makes_fewer_loads() {
        let words: Vec<AtomicU64> = (0..8 * 4096).map(|_| AtomicU64::new(0)).collect();
        chase::lay(&words, 3);
        for order in [Order::Independent, Order::Chain] {
            let once = |rounds| {
                Loads { order, rounds }.per_s(&words, Window::now(Duration::from_millis(20)))
            };
            // The best of some and a thousandth: the machine that runs the tests may do something
            // else meanwhile.
            let per_s = |rounds| (0..5).map(|_| once(rounds)).fold(0.0, f64::max);
            assert!(per_s(20_000) < per_s(1), "{order:?}");
        }
    }

    #[test]
    fn strides_visit_all_lines_and_leave_the_page_each_time() {
        let mut seen = [false; 1024];
        (0..1024).for_each(|load| seen[(load * STRIDE_LINES) & 1023] = true);
        assert!(seen.iter().all(|&seen| seen));
        const { assert!(STRIDE_LINES * WORDS_PER_LINE * 8 > 4096) };
    }
}
