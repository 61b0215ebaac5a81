//! The cost of sharing for two threads: the time in which a line goes from one CPU to another.
//! Also the rate from which on two threads are better off on one cache domain than on two.
//!
//! The second is SAM's own experiment (ALGORITHMS 4.3): two tasks force data from one to the other.
//! The ratio of private to shared accesses varies the rate. The paper does not describe the private
//! accesses. Here they need more cache than one domain has. That is the best case for two domains,
//! so the rate is an upper bound.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::stream::pin;

const WORDS_PER_LINE: usize = 8;
/// Words between the shared line and anything else: some prefetchers fetch lines in pairs.
const APART: usize = 2 * WORDS_PER_LINE;
/// Handoffs between two looks at the clock.
const CHUNK: u64 = 16;
/// Private accesses of a round, the most that are tried; each try has twice as many as the one
/// before.
const MOST_PRIVATE: u64 = 1 << 14;

/// Two threads and their memory.
pub(super) struct Pair<'a> {
    /// CPUs, as the kernel numbers them.
    pub(super) cpus: [usize; 2],
    /// Memory of each thread, on its own node. It is larger than a cache domain's share for two
    /// threads and smaller than its share for one. Empty where only the line is to be measured.
    pub(super) private: [&'a [AtomicU64]; 2],
}

/// Lines that the two hand to each other, and their neighbours.
type Lines = [AtomicU64];

/// The number that ends a game: no count gets there.
const OVER: u64 = u64::MAX;

impl Pair<'_> {
    /// Seconds in which a line goes from one to the other: each waits for its turn and does nothing
    /// else.
    pub(super) fn handoff_s(&self, time: Duration) -> Result<f64> {
        self.play(|lines, side, _| hand_on(&lines[APART], side as u64, time))
    }

    /// Seconds of a round in which both make `private` accesses at the same time and then wait for
    /// a line that the other has written.
    fn round_s(&self, private: u64, time: Duration) -> Result<f64> {
        self.play(|lines, side, own| exchange(lines, side, own, private, time))
    }

    /// Lets both play a game; the mean of what they say.
    fn play(&self, game: impl Fn(&Lines, usize, &[AtomicU64]) -> f64 + Sync) -> Result<f64> {
        let lines: Vec<AtomicU64> = (0..4 * APART).map(|_| AtomicU64::new(0)).collect();
        let barrier = Barrier::new(2);
        let said: Vec<Result<f64>> = std::thread::scope(|scope| {
            let start = |side: usize| {
                let (cpu, own) = (self.cpus[side], self.private[side]);
                let (barrier, lines, game) = (&barrier, &lines, &game);
                scope.spawn(move || {
                    let pinned = pin(cpu);
                    barrier.wait();
                    let seconds = game(lines, side, own);
                    pinned.map(|()| seconds)
                })
            };
            let threads = [start(0), start(1)];
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        });
        Ok(said.into_iter().sum::<Result<f64>>()? / 2.0)
    }
}

/// One side's turns: it answers even or odd numbers. Side 0 looks at the clock and ends the game.
/// Seconds for a handoff.
fn hand_on(line: &AtomicU64, side: u64, time: Duration) -> f64 {
    let mut next = side;
    let begin = Instant::now();
    let mut turns = 0u64;
    loop {
        loop {
            match line.load(Ordering::Acquire) {
                OVER => return begin.elapsed().as_secs_f64() / (2 * turns).max(1) as f64,
                now if now == next => break,
                _ => {}
            }
        }
        turns += 1;
        next += 2;
        if side == 0 && turns.is_multiple_of(CHUNK) && begin.elapsed() >= time {
            line.store(OVER, Ordering::Release);
            return begin.elapsed().as_secs_f64() / (2 * turns) as f64;
        }
        line.store(next - 1, Ordering::Release);
    }
}

/// One side's rounds: it works, writes its own line and waits for the other's. Side 0 looks at the
/// clock and ends the game. Seconds for a round.
fn exchange(lines: &Lines, side: usize, own: &[AtomicU64], private: u64, time: Duration) -> f64 {
    let (mine, other) = (&lines[APART * (1 + side)], &lines[APART * (2 - side)]);
    let mut at = 0;
    let mut rounds = 0u64;
    let begin = Instant::now();
    loop {
        work(own, &mut at, private);
        rounds += 1;
        let elapsed = begin.elapsed();
        if side == 0 && elapsed >= time {
            mine.store(OVER, Ordering::Release);
            return elapsed.as_secs_f64() / rounds as f64;
        }
        mine.store(rounds, Ordering::Release);
        loop {
            match other.load(Ordering::Acquire) {
                OVER => return begin.elapsed().as_secs_f64() / rounds as f64,
                now if now >= rounds => break,
                _ => {}
            }
        }
    }
}

/// Private accesses: independent loads, line after line of the thread's own memory.
fn work(own: &[AtomicU64], at: &mut usize, accesses: u64) {
    if own.is_empty() {
        return;
    }
    let mut sum = 0u64;
    for _ in 0..accesses {
        sum = sum.wrapping_add(own[*at].load(Ordering::Relaxed));
        *at += WORDS_PER_LINE;
        if *at >= own.len() {
            *at = 0;
        }
    }
    std::hint::black_box(sum);
}

/// One ratio of private to shared accesses.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Point {
    pub(super) private: u64,
    /// Seconds of a round where both are on one domain, and where they are on two.
    pub(super) together_s: f64,
    pub(super) apart_s: f64,
}

/// Tries the ratios from the fewest private accesses up, until two domains are better.
pub(super) fn sweep(together: &Pair<'_>, apart: &Pair<'_>, time: Duration) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    let mut private = 1;
    while private <= MOST_PRIVATE {
        let together_s = together.round_s(private, time)?;
        let apart_s = apart.round_s(private, time)?;
        points.push(Point { private, together_s, apart_s });
        if apart_s < together_s {
            break;
        }
        private *= 2;
    }
    Ok(points)
}

/// Lines that one thread receives in a second, apart, where both ways are equally good. It lies
/// between the last ratio at which one domain was better and the first at which two were. `None`
/// where there is no such change.
pub(super) fn crossover_per_s(points: &[Point]) -> Option<f64> {
    let [.., before, after] = points else { return None };
    let gain = |point: &Point| point.together_s - point.apart_s;
    if gain(before) > 0.0 || gain(after) <= 0.0 {
        return None;
    }
    let part = -gain(before) / (gain(after) - gain(before));
    let seconds = before.apart_s + part * (after.apart_s - before.apart_s);
    // A thread receives a line in each round.
    Some(1.0 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(private: u64, together: f64, apart: f64) -> Point {
        Point { private, together_s: together, apart_s: apart }
    }

    #[test]
    fn the_crossover_lies_where_both_are_equally_good() {
        // Together 1 + 3 p, apart 2 + 2 p: equal at p = 1, four seconds for a round.
        let points = [point(0, 1.0, 2.0), point(2, 7.0, 6.0)];
        assert_eq!(crossover_per_s(&points), Some(1.0 / 4.0));
        assert_eq!(crossover_per_s(&points[..1]), None);
        assert_eq!(crossover_per_s(&[]), None);
        let never = [point(1, 1.0, 2.0), point(2, 2.0, 4.0)];
        assert_eq!(crossover_per_s(&never), None, "one domain is always better");
        let always = [point(1, 2.0, 1.0), point(2, 4.0, 3.0)];
        assert_eq!(crossover_per_s(&always), None, "two domains are always better");
    }

    #[test]
    fn private_accesses_go_round() {
        let own: Vec<AtomicU64> = (0..24).map(AtomicU64::new).collect();
        let mut at = 0;
        work(&own, &mut at, 4);
        assert_eq!(at, 8);
        work(&[], &mut at, 4);
        assert_eq!(at, 8);
    }

    #[test]
    fn two_threads_hand_a_line_to_each_other() {
        let cpus: Vec<usize> =
            rondpoint_linux::syscall::affinity::get(0).expect("allowed").iter().collect();
        // On one CPU the other side runs only after a time slice: nothing to measure.
        let &[first, second, ..] = cpus.as_slice() else {
            println!("not tried: this machine has one CPU");
            return;
        };
        let pair = Pair { cpus: [first, second], private: [&[], &[]] };
        let time = Duration::from_millis(20);
        // The host decides how long it takes, and may have other work. One hand-off of many takes
        // no longer than all.
        let begin = Instant::now();
        let seconds = pair.handoff_s(time).expect("measured");
        assert!((1e-9..begin.elapsed().as_secs_f64()).contains(&seconds), "{seconds}");
        let own: Vec<AtomicU64> = (0..80_000).map(AtomicU64::new).collect();
        let pair = Pair { private: [&own, &own], ..pair };
        let begin = Instant::now();
        let seconds = pair.round_s(10, time).expect("measured");
        assert!((1e-9..begin.elapsed().as_secs_f64()).contains(&seconds), "{seconds}");
    }
}
