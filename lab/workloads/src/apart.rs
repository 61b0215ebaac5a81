//! Threads that go through rounds each by itself, as servers do: nobody waits for anybody at the end of a round.

use std::time::Instant;

use crate::flags::Apart;
use crate::report::{Failure, Report};

/// Most ends of rounds that are told: the list stays short.
const MOST_ENDS: usize = 1024;

/// What a thread's rounds have in common.
pub(crate) struct Clock {
    begin: Instant,
    seconds: f64,
}

impl Clock {
    /// Starts now.
    pub(crate) fn start(flags: &Apart) -> Self {
        Self { begin: Instant::now(), seconds: flags.seconds }
    }

    /// Seconds since the start.
    pub(crate) fn elapsed(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Whether the time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.elapsed() >= self.seconds
    }

    /// Rounds of one thread until the time is over: when each ended, and whether all were right.
    pub(crate) fn rounds(
        &self,
        mut round: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<Rounds, Failure> {
        let mut rounds = Rounds::default();
        while !self.is_over() {
            rounds.end(self, round()?);
        }
        Ok(rounds)
    }

    /// Runs a thread for each number, and says when the rounds of all of them ended.
    pub(crate) fn run(
        &self,
        workload: &str,
        threads: u32,
        thread: impl Fn(usize) -> Result<Rounds, Failure> + Sync,
    ) -> Result<Report, Failure> {
        let of_threads: Result<Vec<Rounds>, Failure> = std::thread::scope(|scope| {
            let thread = &thread;
            let start = |index| scope.spawn(move || thread(index));
            let threads: Vec<_> = (0..threads as usize).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        });
        let of_threads = of_threads?;
        let is_right = !of_threads.iter().any(|rounds| rounds.is_wrong);
        let mut ends: Vec<f64> = of_threads.into_iter().flat_map(|rounds| rounds.ends).collect();
        ends.sort_by(f64::total_cmp);
        Ok(Report::new(workload)
            .pair("threads", threads)
            .pair("iterations", ends.len())
            .pair("seconds", format!("{:.6}", self.elapsed()))
            .round_ends(thinned(&ends))
            .check("read", is_right))
    }
}

/// What one thread did.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    ends: Vec<f64>,
    is_wrong: bool,
}

impl Rounds {
    /// One more ends now.
    pub(crate) fn end(&mut self, clock: &Clock, is_right: bool) {
        self.is_wrong |= !is_right;
        self.ends.push(clock.elapsed());
    }
}

/// Each of so many ends, where there are too many.
fn thinned(ends: &[f64]) -> Vec<f64> {
    let every = ends.len().div_ceil(MOST_ENDS).max(1);
    ends.iter().skip(every - 1).step_by(every).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ends_are_told_in_steps_of_several() {
        let ends: Vec<f64> = (1..=3000).map(f64::from).collect();
        assert_eq!(thinned(&ends[..1024]).len(), 1024);
        let told = thinned(&ends);
        assert_eq!((told.len(), &told[..2]), (1000, &[3.0, 6.0][..]));
        assert!(thinned(&[]).is_empty());
    }

    #[test]
    fn a_wrong_round_of_any_thread_is_told() {
        let flags = Apart { threads: 3, seconds: 0.01 };
        let report = |wrong: usize| {
            let clock = Clock::start(&flags);
            clock.run("test", 3, |index| clock.rounds(|| Ok(index != wrong))).unwrap()
        };
        assert!(report(3).right());
        assert!(!report(2).right());
    }
}
