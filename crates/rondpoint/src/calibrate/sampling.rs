//! Finds the highest sampling rate with an acceptable slowdown, as Carrefour does (ALGORITHMS
//! 1.10). The measured program is a memory-bound loop, which causes more samples than any real
//! program.

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rondpoint_core::Pid;
use rondpoint_linux::Root;
use rondpoint_linux::observe::sampler::Kind;
use rondpoint_linux::observe::subject::Start;
use rondpoint_linux::observe::{Observer, Rung, Settings};
use rondpoint_linux::syscall::signal::wait_readable;
use rondpoint_linux::topology::Discovered;
use serde::Serialize;

use super::file::Sampling;
use super::loads::{Loads, Order, Window};
use super::stream::pin;

/// What sampling may cost a memory-bound program [Carrefour s3.3.1: 5 % is acceptable].
pub(super) const BUDGET: f64 = 0.05;
/// The table's period times and over powers of two: this many up …
const LONGER: u32 = 4;
/// … and down.
const SHORTER: u32 = 4;
/// How often each is run; odd.
const RUNS: usize = 3;
/// How long the rings are left alone where none of them is half full.
const WAIT_MS: i32 = 5;
const MEMORY_BOUND: Loads = Loads { order: Order::Independent, rounds: 0 };

/// One period, tried.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Try {
    /// Events per sample.
    pub(super) period: u64,
    pub(super) samples_per_s: f64,
    /// Time that the loop took more than without sampling, as a part of that.
    pub(super) slowdown: f64,
    /// The kernel took fewer samples than it was asked for.
    pub(super) throttled: bool,
}

/// The thread that samples and the thread that is sampled.
pub(super) struct Subject<'a> {
    pub(super) machine: &'a Discovered,
    /// CPU of the loop, as the kernel numbers it.
    pub(super) cpu: usize,
    pub(super) words: &'a [AtomicU64],
    pub(super) time: Duration,
    /// Events per sample by the processor's table.
    pub(super) period: u64,
}

/// Periods to try, the longest first. An odd period stays odd, lest it falls into step with a loop.
fn periods(table: u64) -> Vec<u64> {
    let longer = (1..=LONGER).rev().map(|power| table << power);
    let shorter = (0..=SHORTER).map(|power| table >> power);
    let odd = |period: u64| period | (table & 1);
    longer.chain(shorter).map(odd).filter(|period| *period > 0).collect()
}

impl Subject<'_> {
    /// Tries periods until they cost too much or the kernel refuses to sample more. Emptying the
    /// rings is the manager's work, not the program's: it is done by the calling thread, which runs
    /// on another CPU.
    ///
    /// # Errors
    /// There are no samples here, and why.
    pub(super) fn sweep(&self) -> Result<Vec<Try>> {
        let before = self.middle(None)?.0;
        let mut found = Vec::new();
        for period in periods(self.period) {
            let (loads_per_s, samples_per_s, throttled) = self.middle(Some(period))?;
            found.push((period, loads_per_s, samples_per_s, throttled));
            if throttled || before / loads_per_s - 1.0 > BUDGET {
                break;
            }
        }
        let alone = (before + self.middle(None)?.0) / 2.0;
        let judged = |(period, loads_per_s, samples_per_s, throttled)| Try {
            period,
            samples_per_s,
            slowdown: alone / loads_per_s - 1.0,
            throttled,
        };
        Ok(found.into_iter().map(judged).collect())
    }

    /// The middle of several runs by their speed: a tick or another task in one of them is not what
    /// samples cost.
    fn middle(&self, period: Option<u64>) -> Result<(f64, f64, bool)> {
        let mut runs = (0..RUNS).map(|_| self.run(period)).collect::<Result<Vec<_>>>()?;
        runs.sort_by(|one, other| one.0.total_cmp(&other.0));
        Ok(runs[RUNS / 2])
    }

    /// Loads per second, samples per second, and whether they were throttled.
    fn run(&self, period: Option<u64>) -> Result<(f64, f64, bool)> {
        let observer = period.map(|period| self.observer(period)).transpose()?;
        std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                pin(self.cpu).map(|()| MEMORY_BOUND.per_s(self.words, Window::now(self.time)))
            });
            let mut observer = observer;
            while let Some(observer) = observer.as_mut().filter(|_| !work.is_finished()) {
                let descriptors: Vec<BorrowedFd<'_>> = observer.descriptors().collect();
                wait_readable(&descriptors, WAIT_MS)?;
                observer.drain();
            }
            let loads_per_s = work.join().expect("no thread panics")?;
            let Some(mut observer) = observer else { return Ok((loads_per_s, 0.0, false)) };
            let samples = observer.observe()?.observation.samples.context("no samples")?;
            let taken = samples.list.len() as f64 + samples.lost as f64;
            Ok((loads_per_s, taken / self.time.as_secs_f64(), samples.throttled))
        })
    }

    fn observer(&self, period: u64) -> Result<Observer> {
        let settings = Settings {
            period: Some(period),
            metrics: Some(Vec::new()),
            rung: Some(Rung::Samples),
            ..Settings::default()
        };
        let own = Pid(std::process::id());
        let observer =
            Observer::open(Root::live(), self.machine.clone(), own, Start::Now, &settings)?;
        match observer.sampled() {
            Some(Kind::Accesses) => Ok(observer),
            _ => anyhow::bail!("{}", observer.notes().join("; ")),
        }
    }
}

/// The shortest period at an acceptable cost, and what a sample costs; `None` where not even the
/// longest is.
pub(super) fn choose(tries: &[Try]) -> Option<Sampling> {
    let sound: Vec<&Try> = tries.iter().filter(|one| !one.throttled).collect();
    let good = sound.iter().filter(|one| one.slowdown <= BUDGET);
    let chosen = good.min_by_key(|one| one.period)?;
    let cost_ns = cost_ns(sound.first()?, sound.last()?);
    Some(Sampling { period: chosen.period, cost_ns, slowdown_percent: 100.0 * chosen.slowdown })
}

/// What each sample costs that is taken at the shorter of two periods and not at the longer. Fixed
/// costs of sampling, and anything else that slows both, cancel out.
fn cost_ns(sparse: &Try, dense: &Try) -> f64 {
    // Of each second that passes, this part was not the loop's own.
    let lost = |one: &Try| 1.0 - 1.0 / (1.0 + one.slowdown);
    let (lost, samples_per_s) = match dense.samples_per_s - sparse.samples_per_s {
        0.0 => (lost(dense), dense.samples_per_s),
        more => (lost(dense) - lost(sparse), more),
    };
    (lost * 1e9 / samples_per_s).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(period: u64, samples_per_s: f64, slowdown: f64) -> Try {
        Try { period, samples_per_s, slowdown, throttled: false }
    }

    #[test]
    fn periods_are_around_the_tables_and_odd_where_it_is() {
        assert_eq!(periods(997), [15_953, 7977, 3989, 1995, 997, 499, 249, 125, 63]);
        assert_eq!(periods(65_536).last(), Some(&4096), "a multiple of 16 as AMD's have to be");
        assert!(periods(1).iter().all(|period| *period > 0));
    }

    #[test]
    fn the_shortest_acceptable_period_is_chosen_and_a_sample_costs_what_more_of_them_cost() {
        let tries = [one(4000, 200.0, 1.0 / 99.0), one(2000, 500.0, 0.03), one(1000, 1200.0, 0.25)];
        let chosen = choose(&tries).expect("one is good");
        assert_eq!((chosen.period, chosen.slowdown_percent), (2000, 3.0));
        // 0.2 s of each second for 1200 samples, 0.01 s for 200.
        assert!((chosen.cost_ns - 190_000.0).abs() < 1e-6, "{}", chosen.cost_ns);
        let alone = choose(&[one(4000, 1000.0, 1.0 / 99.0)]).expect("good");
        assert!((alone.cost_ns - 10_000.0).abs() < 1e-6, "{}", alone.cost_ns);
        assert_eq!(choose(&tries[2..]), None);
        assert_eq!(choose(&[]), None);
        let throttled = Try { throttled: true, ..tries[1] };
        assert_eq!(choose(&[tries[0], throttled]).map(|chosen| chosen.period), Some(4000));
    }
}
