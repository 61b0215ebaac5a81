//! Bandwidth from the CPUs of one node to the memory of another. Every thread goes through its own
//! part of arrays that are bound to the memory node.
//!
//! Reading loads one word of each line, in order or not, and counts 64 bytes for it. So the number
//! is what the memory delivered, not what the program used. The triad is STREAM's and counts as
//! STREAM does.

use clap::{Args, ValueEnum};

use crate::flags::{Memory, Pace, Placement, Threads};
use crate::nodes::cpus_of_node;
use crate::pages::Pages;
use crate::report::{Failure, Report};
use crate::system;
use crate::team::{Member, Team, part, parts_mut};

const LINE_BYTES: usize = 64;

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
    /// Node of the CPUs that run the threads, one thread on each unless --threads says otherwise
    #[arg(long, conflicts_with = "pin")]
    cpu_node: Option<u32>,
    /// Node of the memory; default: where the kernel puts it
    #[arg(long)]
    mem_node: Option<u32>,
    /// What to do with the memory
    #[arg(long, value_enum, default_value_t = Kernel::Read)]
    kernel: Kernel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kernel {
    /// Load one word of every line
    Read,
    /// The same in an order that no prefetcher follows, each load independent of the others
    Gather,
    /// a[i] = b[i] + 3 c[i]
    Triad,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let team = team(flags)?;
    let (name, (bytes, right)) = match flags.kernel {
        Kernel::Read => ("read", read(flags, &team, sum)?),
        Kernel::Gather => ("gather", read(flags, &team, gather)?),
        Kernel::Triad => ("triad", triad(flags, &team)?),
    };
    let moved = bytes as f64 * team.rounds() as f64;
    Ok(Report::new("stream")
        .pair("kernel", name)
        .pair("threads", team.size())
        .pair("bytes", bytes)
        .pair("iterations", team.rounds())
        .pair("seconds", format!("{:.6}", team.seconds()))
        .pair("mb_per_s", format!("{:.1}", moved / team.seconds() / 1e6))
        .check("sum", right))
}

/// Threads on the node's CPUs; thread i on the i-th, so that none shares a CPU needlessly.
fn team(flags: &Flags) -> Result<Team, Failure> {
    let Some(node) = flags.cpu_node else {
        return Team::new(&flags.threads, Placement::default(), &flags.pace);
    };
    let cpus = cpus_of_node(node)?;
    // The main thread too, so that what it touches and computes stays with the node.
    system::run_on(&cpus)?;
    let count = flags.threads.threads.map_or(cpus.len(), |count| count as usize);
    let place = |index: usize| Some(vec![cpus[index % cpus.len()]]);
    Team::placed((0..count).map(place).collect(), &flags.pace)
}

fn map(flags: &Flags, bytes: usize) -> Result<Pages<Line>, Failure> {
    let pages = Pages::map(bytes, flags.memory.no_huge_pages)?;
    flags.mem_node.map_or(Ok(()), |node| pages.bind(node))?;
    Ok(pages)
}

/// Bytes of a round, and whether every round of every thread saw what was written.
fn read(
    flags: &Flags,
    team: &Team,
    sum: impl Fn(&[Line]) -> f64 + Sync,
) -> Result<(usize, bool), Failure> {
    let mut lines = map(flags, flags.memory.size)?;
    let count = lines.len();
    lines.iter_mut().enumerate().for_each(|(index, line)| line[0] = index as f64);
    let work = |member: &mut Member<'_>, ()| {
        let own = &lines[part(count, member.index, team.size())];
        let expected = sum_of_indices(part(count, member.index, team.size()));
        let mut right = true;
        member.start();
        loop {
            right &= sum(own) == expected;
            if !member.next_round() {
                return right;
            }
        }
    };
    let right = team.run(vec![(); team.size()], work)?.into_iter().all(|right| right);
    Ok((count * LINE_BYTES, right))
}

/// The first words of all lines; whole numbers below 2⁵³ in all, so exact in any order. Four sums
/// side by side, or each line would wait for the addition before it.
fn sum(lines: &[Line]) -> f64 {
    let mut sums = [0.0; 4];
    let mut chunks = lines.chunks_exact(4);
    for four in &mut chunks {
        for (sum, line) in sums.iter_mut().zip(four) {
            *sum += line[0];
        }
    }
    sums.iter().sum::<f64>() + chunks.remainder().iter().map(|line| line[0]).sum::<f64>()
}

/// The same in the order of a linear congruential generator of full period, which passes over
/// places beyond the end. Knuth, volume 2, section 3.2.1.2; the constants are its MMIX generator's.
fn gather(lines: &[Line]) -> f64 {
    const MULTIPLIER: usize = 6_364_136_223_846_793_005;
    const INCREMENT: usize = 1_442_695_040_888_963_407;
    let period = lines.len().next_power_of_two();
    let mut sum = 0.0;
    let mut at = 0_usize;
    for _ in 0..period {
        at = at.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) % period;
        if let Some(line) = lines.get(at) {
            sum += line[0];
        }
    }
    sum
}

fn sum_of_indices(range: std::ops::Range<usize>) -> f64 {
    range.map(|index| index as f64).sum()
}

/// Bytes of a round as STREAM counts them, and whether the result is right everywhere.
fn triad(flags: &Flags, team: &Team) -> Result<(usize, bool), Failure> {
    let each = flags.memory.size / 3;
    let (mut a, mut b, mut c) = (map(flags, each)?, map(flags, each)?, map(flags, each)?);
    for (index, (b, c)) in b.iter_mut().zip(c.iter_mut()).enumerate() {
        *b = [index as f64; 8];
        *c = [2.0; 8];
    }
    let count = a.len();
    let work = |member: &mut Member<'_>, own: &mut [Line]| {
        let range = part(count, member.index, team.size());
        let (b, c) = (&b[range.clone()], &c[range]);
        member.start();
        loop {
            for ((a, b), c) in own.iter_mut().zip(b).zip(c) {
                *a = std::array::from_fn(|word| b[word] + 3.0 * c[word]);
            }
            if !member.next_round() {
                return;
            }
        }
    };
    team.run(parts_mut(&mut a, team.size()), work)?;
    let right = a.iter().enumerate().all(|(index, line)| *line == [index as f64 + 6.0; 8]);
    Ok((3 * count * LINE_BYTES, right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_first_words_is_exact() {
        let lines: Vec<Line> =
            (0..1003).map(|index| [f64::from(index), 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]).collect();
        for sum in [sum, gather] {
            assert_eq!(sum(&lines), sum_of_indices(0..1003));
            assert_eq!(sum(&lines[3..10]), sum_of_indices(3..10));
            assert_eq!(sum(&lines[7..8]), 7.0);
            assert_eq!(sum(&[]), 0.0);
        }
    }
}
