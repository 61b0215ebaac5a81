//! Latency chase. Each line holds the place of the next, in one random cycle over all of them. So
//! every access waits for the one before and no prefetcher can guess it.

use std::time::Instant;

use clap::Args;

use crate::flags::{Memory, Seed};
use crate::nodes::cpus_of_node;
use crate::pages::Pages;
use crate::random::Random;
use crate::report::{Failure, Report};
use crate::system;

const WORDS_PER_LINE: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    seed: Seed,
    /// Node of the memory; default: where the kernel puts it
    #[arg(long)]
    node: Option<u32>,
    /// Node of the CPUs that run the chase; default: any
    #[arg(long, conflicts_with = "cpu")]
    cpu_node: Option<u32>,
    /// CPU that runs the chase
    #[arg(long)]
    cpu: Option<usize>,
    /// Times round the whole cycle
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    if let Some(cpu) = flags.cpu {
        system::run_on(&[cpu])?;
    }
    if let Some(node) = flags.cpu_node {
        system::run_on(&cpus_of_node(node)?)?;
    }
    let mut words = Pages::<u64>::map(flags.memory.size, flags.memory.no_huge_pages)?;
    if let Some(node) = flags.node {
        words.bind(node)?;
    }
    let lines = words.len() / WORDS_PER_LINE;
    lay(&mut words, &mut Random::new(flags.seed.seed, 0));

    let accesses = lines as u64 * flags.rounds;
    let started = Instant::now();
    let end = chase(&words, accesses);
    let seconds = started.elapsed().as_secs_f64();
    // One step short of a whole number of rounds must be elsewhere, or the cycle was a short one.
    let short = lines == 1 || chase(&words, lines as u64 - 1) != 0;
    Ok(Report::new("chase")
        .pair("lines", lines)
        .pair("accesses", accesses)
        .pair("seconds", format!("{seconds:.6}"))
        .pair("ns_per_access", format!("{:.2}", seconds * 1e9 / accesses as f64))
        .check("cycle", end == 0 && short))
}

/// Lays one cycle through all lines (Sattolo's algorithm). The first word of a line is the address
/// of the next line's first word, as in a linked list. (The lab's model tells dependent loads by
/// addresses; it would take a chase by index for loads that can overlap.)
fn lay(words: &mut [u64], random: &mut Random) {
    let lines = words.len() / WORDS_PER_LINE;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    for last in (1..lines).rev() {
        order.swap(last, random.below(last as u64) as usize);
    }
    let base = words.as_ptr() as u64;
    for (line, &next) in order.iter().enumerate() {
        words[line * WORDS_PER_LINE] = base + u64::from(next) * (WORDS_PER_LINE as u64 * 8);
    }
}

fn chase(words: &[u64], accesses: u64) -> u64 {
    let base = words.as_ptr() as u64;
    let mut at = base;
    for _ in 0..accesses {
        at = words[((at - base) / 8) as usize];
    }
    (at - base) / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_visits_every_line_once() {
        for lines in [1, 2, 3, 64, 1000] {
            let mut words = vec![0; lines * WORDS_PER_LINE];
            lay(&mut words, &mut Random::new(5, 0));
            let mut seen = vec![false; lines];
            for steps in 0..lines as u64 {
                let line = chase(&words, steps) as usize / WORDS_PER_LINE;
                assert!(!std::mem::replace(&mut seen[line], true), "line {line} of {lines} twice");
            }
            assert_eq!(chase(&words, lines as u64), 0);
        }
    }
}
