//! A program that is never the same for long. Its memory is unmapped while a manager may be moving
//! it, and threads and children come and go. It is stopped and goes on, and in the end it executes
//! itself anew.
//!
//! Each round maps a region, fills it from the main thread, and lets new threads add it up several
//! times over. A policy would spread just this region, if it stayed.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;

use crate::flags::{Memory, Seed};
use crate::own;
use crate::pages::Pages;
use crate::random::mix;
use crate::report::{Failure, Report};
use crate::system;

/// How often each thread reads the region of a round.
const PASSES: usize = 6;
/// How long the program stands still when it is stopped.
const STOPPED: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    seed: Seed,
    /// Threads of a round
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Rounds, half of them before the program becomes itself anew
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    iterations: u64,
    /// One of the program's own children
    #[arg(long, hide = true)]
    child: bool,
    /// Seconds and sum of the processes before
    #[arg(long, hide = true, num_args = 2)]
    before: Vec<f64>,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let begin = Instant::now();
    let last = flags.child || !flags.before.is_empty() || flags.iterations == 1;
    let rounds = if last { flags.iterations } else { flags.iterations / 2 };
    let mut right = true;
    for round in 0..rounds {
        right &= sum_up(flags, round)?;
        if !flags.child && round % 3 == 2 {
            right &= child(flags)?;
        }
        if !flags.child && round % 4 == 3 {
            system::stop_for(STOPPED)?;
        }
    }
    let seconds = begin.elapsed().as_secs_f64() + flags.before.first().unwrap_or(&0.0);
    let wrong = f64::from(u8::from(!right)) + flags.before.get(1).unwrap_or(&0.0);
    if !last {
        return Err(become_anew(flags, flags.iterations - rounds, seconds, wrong));
    }
    Ok(Report::new("churn")
        .pair("threads", flags.threads)
        .pair("iterations", rounds)
        .pair("seconds", format!("{seconds:.6}"))
        .check("summed", wrong == 0.0))
}

/// Maps, fills, sums and unmaps one region. Returns whether every thread found the same right sum.
fn sum_up(flags: &Flags, round: u64) -> Result<bool, Failure> {
    let mut words = Pages::<u64>::map(flags.memory.size, flags.memory.no_huge_pages)?;
    let value = |index: usize| mix(flags.seed.seed ^ round << 40 ^ index as u64);
    words.iter_mut().enumerate().for_each(|(index, word)| *word = value(index));
    let sum = |values: &mut dyn Iterator<Item = u64>| values.fold(0u64, u64::wrapping_add);
    let expected = sum(&mut (0..words.len()).map(value)).wrapping_mul(PASSES as u64);
    let add = || (0..PASSES).fold(0u64, |all, _| all.wrapping_add(sum(&mut words.iter().copied())));
    let found: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..flags.threads).map(|_| scope.spawn(add)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    Ok(found.iter().all(|sum| *sum == expected))
}

fn add_flags(command: &mut Command, flags: &Flags, iterations: u64) {
    let pair = |name: &str, value: String| [format!("--{name}"), value];
    own::add_flags(command, &flags.memory, &flags.seed);
    command.args(pair("threads", flags.threads.to_string()));
    command.args(pair("iterations", iterations.to_string()));
}

/// Runs a child that does a round of its own. Returns whether it found its result right.
fn child(flags: &Flags) -> Result<bool, Failure> {
    let mut command = own::workload("churn")?;
    add_flags(&mut command, flags, 1);
    own::is_right(command.arg("--child"))
}

/// Becomes the program again for the rest of the rounds; returns only where that fails.
fn become_anew(flags: &Flags, iterations: u64, seconds: f64, wrong: f64) -> Failure {
    let mut command = match own::workload("churn") {
        Ok(command) => command,
        Err(failure) => return failure,
    };
    add_flags(&mut command, flags, iterations);
    command.arg("--before").args([seconds.to_string(), wrong.to_string()]);
    Failure(format!("cannot become this program anew: {}", command.exec()))
}
