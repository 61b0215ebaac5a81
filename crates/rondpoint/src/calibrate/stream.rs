//! Measures the bandwidth from one node's memory. For a given time every thread reads one word of
//! each line of its own part, as fast as it can.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::affinity;

const WORDS_PER_LINE: usize = 8;
const LINE_BYTES: f64 = 64.0;
/// Lines between two looks at the clock.
const CHUNK_LINES: usize = 256;
/// Part of the time that passes before anything is counted: all are under way by then.
const WARM_UP: u32 = 4;

/// Bytes per second that threads on these CPUs (the kernel's numbers) draw together.
pub(crate) fn bandwidth(cpus: &[usize], words: &[AtomicU64], time: Duration) -> Result<f64> {
    let rates = together(cpus, words, |part| read(part, time) * LINE_BYTES)?;
    Ok(rates.into_iter().sum())
}

/// Lets threads on these CPUs read every line once, each its own part.
pub(super) fn pass(cpus: &[usize], words: &[AtomicU64]) -> Result<()> {
    together(cpus, words, |part| std::hint::black_box(sum(part))).map(drop)
}

/// Each of the CPUs does the same with its own part of the words, all at the same time.
pub(super) fn together<T: Send>(
    cpus: &[usize],
    words: &[AtomicU64],
    work: impl Fn(&[AtomicU64]) -> T + Sync,
) -> Result<Vec<T>> {
    let lines = words.len() / WORDS_PER_LINE;
    let first = |index: usize| lines * index / cpus.len() * WORDS_PER_LINE;
    let barrier = Barrier::new(cpus.len());
    std::thread::scope(|scope| {
        let start = |(index, &cpu): (usize, &usize)| {
            let part = &words[first(index)..first(index + 1)];
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                // All have to come to the barrier, also those that may not run where they should.
                let pinned = pin(cpu);
                barrier.wait();
                pinned.map(|()| work(part))
            })
        };
        let threads: Vec<_> = cpus.iter().enumerate().map(start).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
        joined.collect()
    })
}

/// Starts as many threads as a measurement needs, and ends them. A measurement cannot end half
/// begun, because its threads wait for each other.
///
/// # Errors
/// A limit of memory or of threads refuses one.
pub(super) fn has_threads(count: usize) -> Result<()> {
    let (keep, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    std::thread::scope(|scope| {
        let start = |_| {
            let waiting = || drop(wait.lock().map(|wait| wait.recv()));
            std::thread::Builder::new().spawn_scoped(scope, waiting).map(drop)
        };
        let started = (0..count).try_for_each(start);
        drop(keep);
        started.with_context(|| {
            format!("starting {count} threads (ulimit -v, ulimit -u, the pids of the cgroup)")
        })
    })
}

/// Keeps the calling thread on a CPU.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    affinity::set(0, &CpuSet::from_iter([cpu])).with_context(|| format!("running on CPU {cpu}"))
}

/// Lines per second of one thread.
fn read(part: &[AtomicU64], time: Duration) -> f64 {
    let begin = Instant::now();
    let mut counted: Option<(Instant, usize)> = None;
    let mut lines = 0;
    loop {
        for chunk in part.chunks(CHUNK_LINES * WORDS_PER_LINE) {
            std::hint::black_box(sum(chunk));
            lines += chunk.len() / WORDS_PER_LINE;
            let now = Instant::now();
            match counted {
                None if now - begin >= time / WARM_UP => counted = Some((now, lines)),
                Some((since, before)) if now - begin >= time => {
                    return (lines - before) as f64 / (now - since).as_secs_f64();
                }
                _ => {}
            }
        }
        if part.is_empty() {
            return 0.0;
        }
    }
}

/// First words of lines; four sums side by side, or each line would wait for the addition before
/// it.
fn sum(words: &[AtomicU64]) -> u64 {
    let mut sums = [0u64; 4];
    for (index, line) in words.chunks(WORDS_PER_LINE).enumerate() {
        let sum = &mut sums[index % 4];
        *sum = sum.wrapping_add(line[0].load(Ordering::Relaxed));
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_of_all_lines_are_read() {
        let words: Vec<AtomicU64> = (0..80).map(AtomicU64::new).collect();
        assert_eq!(sum(&words), (0..80).step_by(8).sum::<u64>());
        assert_eq!(sum(&words[..16]), 8);
    }

    #[test]
    fn two_threads_on_a_cpu_draw_something_and_a_cpu_that_is_not_there_is_refused() {
        let words: Vec<AtomicU64> = (0..65_536).map(AtomicU64::new).collect();
        let own = affinity::get(0).expect("allowed").iter().next().expect("a CPU");
        let rate = bandwidth(&[own, own], &words, Duration::from_millis(20)).expect("measured");
        assert!(rate > 1e6, "{rate}");
        let error = bandwidth(&[own, 100_000], &words, Duration::from_millis(1));
        assert!(error.expect_err("no such CPU").to_string().contains("running on CPU 100000"));
    }
}
