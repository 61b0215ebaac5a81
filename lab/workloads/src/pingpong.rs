//! Two threads hand one cache line to each other; the time of a handoff is the machine's
//! cache-to-cache transfer latency. More threads make more pairs, each with a line of its own.
//!
//! The waiting thread only loads: a pause instruction in the loop would add its own length.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;

use crate::flags::Pace;
use crate::pages::Pages;
use crate::report::{Failure, Report};
use crate::system;
use crate::team::{Member, Team};

/// Words between two pairs' lines: two lines, because some prefetchers fetch lines in pairs.
const WORDS_PER_PAIR: usize = 16;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// CPUs of the threads, two for each pair, like 0,4; default: the first and the last allowed
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Handoffs of each pair in a round
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(4..))]
    handoffs: u64,
    /// Pause while waiting, as careful programs do
    #[arg(long)]
    pause: bool,
    #[command(flatten)]
    pace: Pace,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let cpus = cpus(&flags.cpus, &system::allowed_cpus()?)?;
    let places = cpus.iter().map(|&cpu| Some(vec![cpu])).collect();
    let team = Team::placed(places, &flags.pace)?;
    let lines = Pages::<AtomicU64>::map(cpus.len() / 2 * WORDS_PER_PAIR * 8, false)?;
    let handoffs = flags.handoffs / 2 * 2;
    let wait = match (flags.pause, cpus.chunks(2).any(|pair| pair[0] == pair[1])) {
        // On one CPU the other side only ever runs when this one gives way.
        (_, true) => Wait::Yield,
        (true, false) => Wait::Pause,
        (false, false) => Wait::Load,
    };
    let work = |member: &mut Member<'_>, ()| {
        let line = &lines[member.index / 2 * WORDS_PER_PAIR];
        play(member, line, handoffs, wait)
    };
    let seconds = team.run(vec![(); team.size()], work)?;
    let expected = handoffs * team.rounds();
    let right = lines
        .iter()
        .step_by(WORDS_PER_PAIR)
        .take(cpus.len() / 2)
        .all(|line| line.load(Ordering::Relaxed) == expected);
    // A thread's first turn of a round and its last are two handoffs less than the round apart.
    let timed = (handoffs - 2) * team.rounds();
    let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
    let list: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    Ok(Report::new("pingpong")
        .pair("cpus", list.join(","))
        .pair("handoffs", expected)
        .pair("seconds", format!("{mean:.6}"))
        .pair("ns_per_handoff", format!("{:.2}", mean * 1e9 / timed as f64))
        .check("handed_over", right))
}

/// The CPUs as asked, or the two that are furthest apart in number.
fn cpus(asked: &[usize], allowed: &[usize]) -> Result<Vec<usize>, Failure> {
    if asked.is_empty() {
        return Ok(vec![allowed[0], allowed[allowed.len() - 1]]);
    }
    if !asked.len().is_multiple_of(2) {
        return Err(Failure(format!("--cpus: expected two for each pair, got {}", asked.len())));
    }
    match asked.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => Err(Failure(format!("--cpus: this process may not use CPU {cpu}"))),
        None => Ok(asked.to_vec()),
    }
}

#[derive(Clone, Copy)]
enum Wait {
    Load,
    Pause,
    Yield,
}

/// One thread's rounds: the even thread answers even numbers. Seconds from its first turn of each
/// round to its last, so that waking up from the barrier is not counted.
fn play(member: &mut Member<'_>, line: &AtomicU64, handoffs: u64, wait: Wait) -> f64 {
    let mut next = member.index as u64 % 2;
    let mut seconds = 0.0;
    member.start();
    loop {
        await_turn(line, next, wait);
        let started = Instant::now();
        for _ in 1..handoffs / 2 {
            line.store(next + 1, Ordering::Release);
            next += 2;
            await_turn(line, next, wait);
        }
        seconds += started.elapsed().as_secs_f64();
        line.store(next + 1, Ordering::Release);
        next += 2;
        if !member.next_round() {
            return seconds;
        }
    }
}

fn await_turn(line: &AtomicU64, turn: u64, wait: Wait) {
    while line.load(Ordering::Acquire) != turn {
        match wait {
            Wait::Load => {}
            Wait::Pause => std::hint::spin_loop(),
            Wait::Yield => std::thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_come_in_pairs_and_must_be_allowed() {
        assert_eq!(cpus(&[], &[2, 3, 7]).unwrap(), [2, 7]);
        assert_eq!(cpus(&[3, 2], &[2, 3]).unwrap(), [3, 2]);
        assert!(cpus(&[1], &[1]).unwrap_err().0.contains("two for each pair"));
        assert!(cpus(&[0, 9], &[0, 1]).unwrap_err().0.contains("CPU 9"));
    }
}
