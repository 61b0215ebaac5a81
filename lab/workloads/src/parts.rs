//! Threads that each read a part of an array, which they filled themselves. They read all the time,
//! or in bursts between which they sleep. They read the same part, or after a while that of another
//! thread. More of them than CPUs take turns.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;

use crate::apart::Clock;
use crate::flags::{self, Apart, Memory};
use crate::pages::Pages;
use crate::report::{Failure, Report};
use crate::team::part;

const WORDS_PER_LINE: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    apart: Apart,
    /// Go on to the part of the thread half way round after so many seconds, and back
    #[arg(long, value_name = "SECONDS", value_parser = flags::seconds)]
    swap: Option<f64>,
    /// Read for so many seconds, then sleep
    #[arg(long, value_name = "SECONDS", value_parser = flags::seconds, requires = "sleep")]
    burst: Option<f64>,
    /// … for so many
    #[arg(long, value_name = "SECONDS", value_parser = flags::seconds, requires = "burst")]
    sleep: Option<f64>,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let words = Pages::<AtomicU64>::map(flags.memory.size, flags.memory.no_huge_pages)?;
    let count = flags.apart.threads as usize;
    let part = |index: usize| &words[part(words.len(), index % count, count)];
    let all_filled = Barrier::new(count);
    let clock = Clock::start(&flags.apart);
    clock.run("parts", flags.apart.threads, |index| {
        fill(part(index));
        all_filled.wait();
        let mut awake_since = clock.elapsed();
        clock.rounds(|| {
            let now = clock.elapsed();
            if let Some((burst, sleep)) = flags.burst.zip(flags.sleep)
                && now - awake_since >= burst
            {
                std::thread::sleep(Duration::from_secs_f64(sleep));
                awake_since = clock.elapsed();
            }
            let swapped = flags.swap.is_some_and(|every| (now / every) as u64 % 2 == 1);
            Ok(is_filled(part(index + if swapped { count / 2 } else { 0 })))
        })
    })
}

/// A one in each line.
fn fill(words: &[AtomicU64]) {
    lines(words).for_each(|word| word.store(1, Ordering::Relaxed));
}

/// Reads each line once.
fn is_filled(words: &[AtomicU64]) -> bool {
    let sum: u64 = lines(words).map(|word| word.load(Ordering::Relaxed)).sum();
    sum == lines(words).len() as u64
}

fn lines(words: &[AtomicU64]) -> impl ExactSizeIterator<Item = &AtomicU64> {
    words.iter().step_by(WORDS_PER_LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_nobody_filled_is_noticed() {
        let words: Vec<AtomicU64> = (0..1024).map(|_| AtomicU64::new(0)).collect();
        fill(&words);
        assert!(is_filled(&words));
        words[8].store(0, Ordering::Relaxed);
        assert!(!is_filled(&words));
    }
}
