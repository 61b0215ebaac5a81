//! Reads the clock in a loop on every thread and reports the longest time between two readings.
//!
//! On a machine with a steady clock, this is a timer interrupt; with a clock that jumps, it is the
//! jump. Times in which a thread left its CPU depend on the scheduler and are reported separately.
//! Between two readings a thread writes one line of its own part. At the end of a round all threads
//! wait for each other, as busy programs do.

use std::time::{Duration, Instant};

use clap::Args;

use crate::flags::{Memory, Pace, Placement, Threads};
use crate::pages::Pages;
use crate::report::{Failure, Report};
use crate::system::switches;
use crate::team::{Member, Team, parts_mut};

/// A line of numbers.
type Line = [f64; 8];

/// Times from this on are looked into: a thread that is switched is away for longer in slow motion.
const NOTABLE: Duration = Duration::from_micros(100);

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
        // Page faults of all threads at once wait for each other for two milliseconds, which the
        // kernel causes. So the watch begins when every page is there.
        own.fill([0.0; 8]);
        member.start();
        let mut watch = Watch::new(Instant::now(), switches());
        loop {
            for line in own.iter_mut() {
                line[0] += 1.0;
                watch.look(Instant::now(), switches);
            }
            if !member.next_round() {
                return watch;
            }
        }
    };
    let watches = team.run(parts_mut(&mut lines, team.size()), work)?;
    let longest = |of: fn(&Watch) -> Longest| {
        watches.iter().map(of).max_by_key(|longest| longest.time).expect("a thread at least")
    };
    let (running, switched) = (longest(|watch| watch.running), longest(|watch| watch.switched));
    let rounds = team.rounds();
    Ok(Report::new("clock")
        .pair("threads", team.size())
        .pair("iterations", rounds)
        .pair("seconds", format!("{:.6}", team.seconds()))
        .pair("readings", watches.iter().map(|watch| watch.readings).sum::<u64>())
        .pair("longest_ns", running.time.as_nanos())
        .pair("longest_at_s", format!("{:.6}", running.at.as_secs_f64()))
        .pair("longest_switched_ns", switched.time.as_nanos())
        .pair("longest_switched_at_s", format!("{:.6}", switched.at.as_secs_f64()))
        .check("forwards", watches.iter().all(|watch| watch.backwards == 0))
        .check("written", lines.iter().all(|line| line[0] == rounds as f64)))
}

/// What one thread saw of the clock.
struct Watch {
    begun: Instant,
    last: Instant,
    readings: u64,
    backwards: u64,
    /// How often it had been switched when it last looked.
    switches: u64,
    /// Without a switch in between.
    running: Longest,
    /// With one.
    switched: Longest,
}

/// The longest time between two readings.
#[derive(Debug, Clone, Copy, Default)]
struct Longest {
    time: Duration,
    /// When it ended, since the thread began.
    at: Duration,
}

impl Watch {
    fn new(now: Instant, switches: u64) -> Self {
        let [running, switched] = [Longest::default(); 2];
        Self { begun: now, last: now, readings: 0, backwards: 0, switches, running, switched }
    }

    /// `switches` is asked only where a time is notable.
    fn look(&mut self, now: Instant, switches: impl Fn() -> u64) {
        self.readings += 1;
        match now.checked_duration_since(self.last) {
            Some(time) => {
                let before = self.switches;
                if time >= NOTABLE {
                    self.switches = switches();
                }
                let longest = match self.switches == before {
                    true => &mut self.running,
                    false => &mut self.switched,
                };
                if time > longest.time {
                    *longest = Longest { time, at: now - self.begun };
                }
            }
            None => self.backwards += 1,
        }
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of the clock in microseconds, each with the number of switches until then.
    fn watch(readings: &[(u64, u64)]) -> Watch {
        let begun = Instant::now();
        let mut watch = Watch::new(begun, 3);
        for &(us, switches) in readings {
            watch.look(begun + Duration::from_micros(us), || switches);
        }
        watch
    }

    fn us(longest: Longest) -> (u128, u128) {
        (longest.time.as_micros(), longest.at.as_micros())
    }

    #[test]
    fn the_longest_gap_and_steps_back_are_seen() {
        let watch = watch(&[(10, 3), (30, 3), (1030, 3), (1020, 3), (1500, 3), (1500, 3)]);
        assert_eq!((us(watch.running), us(watch.switched)), ((1000, 1030), (0, 0)));
        assert_eq!((watch.readings, watch.backwards), (6, 1));
    }

    #[test]
    fn a_time_away_from_the_cpu_is_told_apart() {
        let watch = watch(&[(10, 3), (5010, 4), (5600, 4), (9600, 6), (9700, 6)]);
        assert_eq!((us(watch.running), us(watch.switched)), ((590, 5600), (5000, 5010)));
    }
}
