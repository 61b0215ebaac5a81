//! Threads with a known demand that begin on known CPUs, to test policies that move threads.
//!
//! Each thread first touches its part of the memory on one CPU, so the part lies on that node
//! without any memory policy. Then it moves to the CPU on which it begins, and gets back the mask
//! of the process. The kernel and a manager may move it from there, except with `--stay`.

use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Args, ValueEnum};

use crate::flags::{Memory, Pace};
use crate::pages::{Pages, page_bytes};
use crate::report::{Failure, Report};
use crate::system;
use crate::team::{Member, Team, part};

const WORDS_PER_LINE: usize = 8;
/// Lines that sharers change in turn: more than a store buffer holds, fewer than any cache.
const SHARED_LINES: usize = 64;
/// A row of 64 numbers.
const LINES_PER_BLOCK: u64 = 8;
/// Accesses of a thread in a round: a few milliseconds, so that a run has hundreds of rounds.
const ACCESSES: u64 = 4096;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The CPU on which each thread begins, like 0,2: as many threads as there are numbers
    #[arg(long, value_delimiter = ',', required = true)]
    start: Vec<usize>,
    /// The CPU on which each thread first touches its part of the memory; default: where it begins
    #[arg(long, value_delimiter = ',')]
    touch: Vec<usize>,
    /// Keep each thread where it begins
    #[arg(long)]
    stay: bool,
    /// What a thread does
    #[arg(long, value_enum, default_value_t = Need::Own)]
    need: Need,
    /// Steps of arithmetic between two accesses
    #[arg(long, default_value_t = 0)]
    work: u32,
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    pace: Pace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Need {
    /// Loads lines of its own part in an order that no prefetcher follows, independent of each
    /// other
    Own,
    /// The same of all threads' parts
    All,
    /// The same by blocks of eight lines, each in turn: as sparse rows or records are read
    Blocks,
    /// Loads the lines of its own part in turn, as a prefetcher follows them
    Stream,
    /// Adds to lines that all threads add to
    Share,
}

impl Need {
    fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::All => "all",
            Self::Blocks => "blocks",
            Self::Stream => "stream",
            Self::Share => "share",
        }
    }
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let count = flags.start.len();
    let touch = if flags.touch.is_empty() { &flags.start } else { &flags.touch };
    if touch.len() != count {
        let text = format!("--touch: expected as many CPUs as --start, {count}");
        return Err(Failure(text));
    }
    let allowed = system::allowed_cpus()?;
    let known = |cpu: &&usize| !allowed.contains(cpu);
    if let Some(cpu) = flags.start.iter().chain(touch).find(known) {
        return Err(Failure(format!("CPU {cpu}: this process may not use it")));
    }
    let team = Team::placed(vec![None; count], &flags.pace)?;
    let words_per_page = page_bytes() / 8;
    let pages = flags.memory.size / page_bytes() / count * count;
    let memory = Pages::<AtomicU64>::map(pages * page_bytes(), flags.memory.no_huge_pages)?;
    let own = |index: usize| {
        let range = part(pages, index, count);
        &memory[range.start * words_per_page..range.end * words_per_page]
    };
    let shared = Pages::<AtomicU64>::map(SHARED_LINES * WORDS_PER_LINE * 8, true)?;
    let stay = |index: usize| {
        if flags.stay { vec![flags.start[index]] } else { allowed.clone() }
    };
    let work = |member: &mut Member<'_>, ()| -> Result<u64, Failure> {
        let index = member.index;
        system::run_on(&touch[index..=index])?;
        own(index).iter().step_by(WORDS_PER_LINE).for_each(|word| word.store(1, Ordering::Relaxed));
        system::run_on(&flags.start[index..=index])?;
        system::run_on(&stay(index))?;
        let words = match flags.need {
            Need::All => &memory[..],
            Need::Own | Need::Blocks | Need::Stream | Need::Share => own(index),
        };
        let mut sum = 0;
        let mut at = index as u64;
        member.start();
        loop {
            sum += match flags.need {
                Need::Share => add(&shared, &mut at, flags.work),
                Need::Own | Need::All => load::<1>(words, &mut at, flags.work),
                Need::Blocks => load::<LINES_PER_BLOCK>(words, &mut at, flags.work),
                Need::Stream => stream(words, &mut at, flags.work),
            };
            if !member.next_round() {
                return Ok(sum);
            }
        }
    };
    let sums: Vec<u64> =
        team.run(vec![(); count], work)?.into_iter().collect::<Result<_, Failure>>()?;
    let expected = ACCESSES * team.rounds();
    let added: u64 = shared.iter().map(|word| word.load(Ordering::Relaxed)).sum();
    let all_added = flags.need != Need::Share || added == expected * count as u64;
    Ok(Report::new("crew")
        .pair("need", flags.need.name())
        .pair("threads", count)
        .rounds_of(&team)
        .check("sum", sums.iter().all(|sum| *sum == expected) && all_added))
}

/// Loads [`ACCESSES`] lines, each of which holds a one, and gives their sum. The order of the
/// blocks is that of a linear congruential generator and does not wait for what is loaded. The
/// generator is Knuth's MMIX (The Art of Computer Programming 2, 3.3.4).
fn load<const BLOCK: u64>(words: &[AtomicU64], at: &mut u64, work: u32) -> u64 {
    let blocks = (words.len() / WORDS_PER_LINE) as u64 / BLOCK;
    let mut sum = 0;
    for _ in 0..ACCESSES / BLOCK {
        *at = step(*at);
        let block = ((u128::from(*at) * u128::from(blocks)) >> 64) as u64;
        for line in block * BLOCK..(block + 1) * BLOCK {
            sum += words[line as usize * WORDS_PER_LINE].load(Ordering::Relaxed);
            busy(work);
        }
    }
    sum
}

/// Loads [`ACCESSES`] lines one after the other, from where the last round ended, and gives their
/// sum.
fn stream(words: &[AtomicU64], at: &mut u64, work: u32) -> u64 {
    let lines = words.len() / WORDS_PER_LINE;
    let mut sum = 0;
    for _ in 0..ACCESSES {
        *at = (*at + 1) % lines as u64;
        sum += words[*at as usize * WORDS_PER_LINE].load(Ordering::Relaxed);
        busy(work);
    }
    sum
}

/// Adds one to [`ACCESSES`] lines that others add to as well; gives how many.
fn add(shared: &[AtomicU64], at: &mut u64, work: u32) -> u64 {
    for _ in 0..ACCESSES {
        *at = step(*at);
        let line = (*at >> 32) as usize % SHARED_LINES;
        shared[line * WORDS_PER_LINE].fetch_add(1, Ordering::Relaxed);
        busy(work);
    }
    ACCESSES
}

fn step(at: u64) -> u64 {
    at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

fn busy(work: u32) {
    let mut value = 1;
    for _ in 0..work {
        value = step(std::hint::black_box(value));
    }
    std::hint::black_box(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_loads_or_adds_as_often_as_it_says() {
        let words: Vec<AtomicU64> = (0..1024).map(|_| AtomicU64::new(1)).collect();
        assert_eq!(load::<1>(&words, &mut 0, 0), ACCESSES);
        assert_eq!(load::<LINES_PER_BLOCK>(&words, &mut 0, 0), ACCESSES);
        let mut place = 0;
        assert_eq!(stream(&words, &mut place, 0), ACCESSES);
        assert_eq!(place, ACCESSES % 128, "it goes on from there");
        let mut at = 7;
        assert_eq!(add(&words, &mut at, 1), ACCESSES);
        let more: u64 = words.iter().map(|word| word.load(Ordering::Relaxed) - 1).sum();
        assert_eq!(more, ACCESSES);
        assert_ne!(at, 7);
    }
}
