//! Measures the latency of a load: a walk over a random cycle of lines, in which each load gives
//! the address of the next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WORDS_PER_LINE: usize = 8;
/// Loads between two looks at the clock.
const CHUNK: usize = 64;

/// Lays one cycle through all lines (Sattolo's algorithm). The first word of a line is the address
/// of the next line's first word, as in a linked list.
pub(crate) fn lay(words: &[AtomicU64], seed: u64) {
    let lines = words.len() / WORDS_PER_LINE;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut state = seed | 1;
    for last in (1..lines).rev() {
        // Marsaglia's xorshift64 (13, 7, 17): any order without a pattern does.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(last, (state % last as u64) as usize);
    }
    let base = words.as_ptr() as u64;
    for (line, &next) in order.iter().enumerate() {
        let address = base + u64::from(next) * (WORDS_PER_LINE as u64 * 8);
        words[line * WORDS_PER_LINE].store(address, Ordering::Relaxed);
    }
}

/// Nanoseconds a load, by the calling thread, over a cycle that was laid.
pub(crate) fn latency_ns(words: &[AtomicU64], time: Duration) -> f64 {
    let base = words.as_ptr() as u64;
    let mut at = base;
    let mut loads = 0;
    let begin = Instant::now();
    loop {
        for _ in 0..CHUNK {
            at = words[((at - base) / 8) as usize].load(Ordering::Relaxed);
        }
        loads += CHUNK;
        let elapsed = begin.elapsed();
        if elapsed >= time {
            std::hint::black_box(at);
            return elapsed.as_secs_f64() * 1e9 / loads as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_visits_every_line_once() {
        for lines in [1, 2, 64, 1000] {
            let words: Vec<AtomicU64> =
                (0..lines * WORDS_PER_LINE).map(|_| AtomicU64::new(0)).collect();
            lay(&words, 7);
            let base = words.as_ptr() as u64;
            let mut seen = vec![false; lines];
            let mut at = base;
            for _ in 0..lines {
                let word = ((at - base) / 8) as usize;
                assert!(!std::mem::replace(&mut seen[word / WORDS_PER_LINE], true));
                at = words[word].load(Ordering::Relaxed);
            }
            assert_eq!(at, base);
        }
    }

    #[test]
    fn a_load_takes_time() {
        let words: Vec<AtomicU64> = (0..80_000).map(|_| AtomicU64::new(0)).collect();
        lay(&words, 1);
        let ns = latency_ns(&words, Duration::from_millis(5));
        assert!((0.1..1e6).contains(&ns), "{ns}");
    }
}
