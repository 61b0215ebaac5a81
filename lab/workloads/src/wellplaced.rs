//! Each thread touches its own partition first, and no other thread uses it. There is nothing to
//! improve, so a manager that moves anything only does harm.
//!
//! Every word is a linear congruential generator of its own, so after any number of rounds the
//! whole array has a known value. So the check needs no second run.

use clap::Args;

use crate::flags::{Memory, Pace, Placement, Seed, Threads};
use crate::pages::Pages;
use crate::random::mix;
use crate::report::{Failure, Report};
use crate::team::{Member, Team, part, parts_mut};

/// Knuth's MMIX generator (TAOCP 2, 3.3.4).
const FACTOR: u64 = 6_364_136_223_846_793_005;
const SUMMAND: u64 = 1_442_695_040_888_963_407;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    placement: Placement,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    seed: Seed,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let team = Team::new(&flags.threads, flags.placement, &flags.pace)?;
    let mut words = Pages::<u64>::map(flags.memory.size, flags.memory.no_huge_pages)?;
    team.place(&words, |index| part(words.len(), index, team.size()))?;
    let seed = flags.seed.seed;
    let work = |member: &mut Member<'_>, part: &mut [u64]| sweep(member, part, seed);
    let wrong: usize = team.run(parts_mut(&mut words, team.size()), work)?.into_iter().sum();
    Ok(Report::new("wellplaced")
        .pair("threads", team.size())
        .pair("words", words.len())
        .rounds_of(&team)
        .pair("checksum", words.iter().fold(0u64, |sum, &word| sum.wrapping_add(word)))
        .check("recomputed", wrong == 0))
}

/// Does one thread's rounds. Returns how many of its words are not what they should be.
fn sweep(member: &mut Member<'_>, words: &mut [u64], seed: u64) -> usize {
    let start = |index: usize| mix(seed ^ (index as u64));
    words.iter_mut().enumerate().for_each(|(index, word)| *word = start(index));
    member.start();
    let mut rounds = 0;
    loop {
        words.iter_mut().for_each(|word| *word = word.wrapping_mul(FACTOR).wrapping_add(SUMMAND));
        rounds += 1;
        if !member.next_round() {
            break;
        }
    }
    let (factor, summand) = jump(rounds);
    let expected = |index: usize| start(index).wrapping_mul(factor).wrapping_add(summand);
    words.iter().enumerate().filter(|&(index, &word)| word != expected(index)).count()
}

/// Factor and summand of `rounds` steps at once, by squaring.
fn jump(mut rounds: u64) -> (u64, u64) {
    let (mut factor, mut summand) = (1u64, 0u64);
    let (mut step, mut add) = (FACTOR, SUMMAND);
    while rounds > 0 {
        if rounds & 1 == 1 {
            summand = summand.wrapping_mul(step).wrapping_add(add);
            factor = factor.wrapping_mul(step);
        }
        add = add.wrapping_mul(step).wrapping_add(add);
        step = step.wrapping_mul(step);
        rounds >>= 1;
    }
    (factor, summand)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_as_many_steps() {
        let mut word = 42u64;
        for rounds in 0..40 {
            let (factor, summand) = jump(rounds);
            assert_eq!(42u64.wrapping_mul(factor).wrapping_add(summand), word, "{rounds}");
            word = word.wrapping_mul(FACTOR).wrapping_add(SUMMAND);
        }
    }
}
