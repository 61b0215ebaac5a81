//! Reads the clock without pause on every thread and says the longest time between two readings.
//!
//! A machine whose clock only ever runs shows a timer interrupt there, or a page fault; one whose
//! clock jumps shows the jump. Between two readings a thread writes one line of its own part, and at
//! the end of a round all threads wait for each other, as busy programs do; that wait counts too.

use std::time::{Duration, Instant};

use clap::Args;

use crate::flags::{Memory, Pace, Placement, Threads};
use crate::report::{Failure, Report};
use crate::system::Pages;
use crate::team::{Member, Team, parts_mut};

/// A line of numbers.
type Line = [f64; 8];

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    pace: Pace,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let team = Team::new(&flags.threads, Placement::default(), &flags.pace)?;
    let mut lines = Pages::<Line>::map(flags.memory.size, flags.memory.no_huge_pages)?;
    let work = |member: &mut Member<'_>, own: &mut [Line]| {
        member.start();
        let mut watch = Watch::new(Instant::now());
        loop {
            for line in own.iter_mut() {
                line[0] += 1.0;
                watch.look(Instant::now());
            }
            if !member.next_round() {
                return watch;
            }
        }
    };
    let watches = team.run(parts_mut(&mut lines, team.size()), work)?;
    let longest = watches.iter().max_by_key(|watch| watch.longest).expect("a thread at least");
    let rounds = team.rounds();
    Ok(Report::new("clock")
        .pair("threads", team.size())
        .pair("iterations", rounds)
        .pair("seconds", format!("{:.6}", team.seconds()))
        .pair("readings", watches.iter().map(|watch| watch.readings).sum::<u64>())
        .pair("longest_ns", longest.longest.as_nanos())
        .pair("longest_at_s", format!("{:.6}", longest.at.as_secs_f64()))
        .check("forwards", watches.iter().all(|watch| watch.backwards == 0))
        .check("written", lines.iter().all(|line| line[0] == rounds as f64)))
}

/// What one thread saw of the clock.
struct Watch {
    begun: Instant,
    last: Instant,
    readings: u64,
    backwards: u64,
    longest: Duration,
    /// When the longest time ended, since the thread began.
    at: Duration,
}

impl Watch {
    fn new(now: Instant) -> Self {
        let none = Duration::ZERO;
        Self { begun: now, last: now, readings: 0, backwards: 0, longest: none, at: none }
    }

    fn look(&mut self, now: Instant) {
        self.readings += 1;
        match now.checked_duration_since(self.last) {
            Some(gap) if gap > self.longest => (self.longest, self.at) = (gap, now - self.begun),
            Some(_) => {}
            None => self.backwards += 1,
        }
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_and_steps_back_are_seen() {
        let begun = Instant::now();
        let mut watch = Watch::new(begun);
        for ns in [10, 30, 1030, 1020, 1500, 1500] {
            watch.look(begun + Duration::from_nanos(ns));
        }
        assert_eq!((watch.longest.as_nanos(), watch.at.as_nanos()), (1000, 1030));
        assert_eq!((watch.readings, watch.backwards), (6, 1));
    }
}
