//! Threads that go through rounds independently, as servers do: no thread waits for another at the
//! end of a round.

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

    /// Rounds of one thread until the time is over, one at least: when each ended, and whether all
    /// were right.
    pub(crate) fn rounds(
        &self,
        mut round: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<Rounds, Failure> {
        let mut rounds = Rounds::default();
        loop {
            rounds.end(self, round()?);
            if self.is_over() {
                return Ok(rounds);
            }
        }
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
        let report = Report::new(workload)
            .pair("threads", threads)
            .pair("iterations", ends.len())
            .pair("seconds", format!("{:.6}", self.elapsed()))
            .check("read", is_right);
        Ok(with_ends(report, &ends))
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
        self.check(is_right);
        self.ends.push(clock.elapsed());
    }

    /// Takes in whether a part of a round was right.
    pub(crate) fn check(&mut self, is_right: bool) {
        self.is_wrong |= !is_right;
    }
}

/// Tells these ends, in steps of several where there are too many.
fn with_ends(report: Report, ends: &[f64]) -> Report {
    let each = ends.len().div_ceil(MOST_ENDS).max(1);
    report.round_ends(ends.iter().skip(each - 1).step_by(each).copied().collect()).rounds_each(each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ends_are_told_in_steps_of_several() {
        let told = |rounds: u32| {
            with_ends(Report::new("test"), &(1..=rounds).map(f64::from).collect::<Vec<_>>())
                .to_string()
        };
        assert_eq!(told(0), "workload=test result=ok");
        let few = told(1024);
        assert!(!few.contains("rounds_each") && few.contains(",1024.000000\n"), "{few}");
        let many = told(3000);
        assert!(many.starts_with("round_ends_s=3.000000,6.000000,"), "{many}");
        assert!(many.ends_with(",3000.000000\nrounds_each=3\nworkload=test result=ok"), "{many}");
    }

    #[test]
    fn a_wrong_round_of_any_thread_is_told() {
        // The time is over before the last thread has begun.
        let flags = Apart { threads: 3, seconds: 0.0 };
        let report = |wrong: usize| {
            let clock = Clock::start(&flags);
            clock.run("test", 3, |index| clock.rounds(|| Ok(index != wrong))).unwrap()
        };
        assert!(report(3).right());
        assert!(!report(2).right());
    }
}
