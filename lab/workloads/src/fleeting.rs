//! Memory and children that are gone before anybody could do something for them.
//!
//! In each round a thread maps a region, fills it, reads it several times and unmaps it, itself or in a child of its own. All of it lies
//! where it is used: there is nothing to improve, and what a manager changes is what it costs.

use std::time::Instant;

use clap::Args;

use crate::flags::{self, Memory, Seed};
use crate::own;
use crate::random::mix;
use crate::report::{Failure, Report};
use crate::system::Pages;

/// How often a round reads its region.
const PASSES: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    seed: Seed,
    /// Threads, each with rounds of its own
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Seconds to run, to the end of each thread's round
    #[arg(long, default_value_t = 1.0, value_parser = flags::seconds)]
    seconds: f64,
    /// Each round in a child process
    #[arg(long)]
    children: bool,
    /// One of those children
    #[arg(long, hide = true)]
    child: bool,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let begin = Instant::now();
    if flags.child {
        let right = read_and_forget(flags)?;
        return Ok(Report::new("fleeting").pair("iterations", 1).check("read", right));
    }
    let rounds = || -> Result<(Vec<f64>, bool), Failure> {
        let (mut ends, mut right) = (Vec::new(), true);
        while begin.elapsed().as_secs_f64() < flags.seconds {
            right &= if flags.children { child(flags)? } else { read_and_forget(flags)? };
            ends.push(begin.elapsed().as_secs_f64());
        }
        Ok((ends, right))
    };
    let of_threads: Result<Vec<(Vec<f64>, bool)>, Failure> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..flags.threads).map(|_| scope.spawn(rounds)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let of_threads = of_threads?;
    let right = of_threads.iter().all(|(_, right)| *right);
    let mut ends: Vec<f64> = of_threads.into_iter().flat_map(|(ends, _)| ends).collect();
    ends.sort_by(f64::total_cmp);
    Ok(Report::new("fleeting")
        .pair("threads", flags.threads)
        .pair("iterations", ends.len())
        .pair("seconds", format!("{:.6}", begin.elapsed().as_secs_f64()))
        .round_ends(ends)
        .check("read", right))
}

/// One round; whether what was read is what was written.
fn read_and_forget(flags: &Flags) -> Result<bool, Failure> {
    let mut words = Pages::<u64>::map(flags.memory.size, flags.memory.no_huge_pages)?;
    let value = |index: usize| mix(flags.seed.seed ^ index as u64);
    let mut written = 0_u64;
    for (index, word) in words.iter_mut().enumerate() {
        *word = value(index);
        written = written.wrapping_add(*word);
    }
    let pass = |_| words.iter().copied().fold(0, u64::wrapping_add);
    let read = (0..PASSES).map(pass).fold(0, u64::wrapping_add);
    Ok(read == written.wrapping_mul(PASSES as u64))
}

/// The same in a child.
fn child(flags: &Flags) -> Result<bool, Failure> {
    let mut command = own::workload("fleeting")?;
    own::add_flags(&mut command, &flags.memory, &flags.seed);
    own::is_right(command.arg("--child"))
}
