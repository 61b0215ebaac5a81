//! Memory and child processes that end before a manager can help them.
//!
//! In each round a thread maps a region, fills it, reads it several times and unmaps it, itself or
//! in a child of its own. All memory is local to its user. There is nothing to improve, so any
//! change of speed is the cost of a manager.

use clap::Args;

use crate::apart::Clock;
use crate::flags::{Apart, Memory, Seed};
use crate::own;
use crate::pages::Pages;
use crate::random::mix;
use crate::report::{Failure, Report};

/// How often a round reads its region.
const PASSES: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    apart: Apart,
    /// Each round in a child process
    #[arg(long)]
    children: bool,
    /// One of those children
    #[arg(long, hide = true)]
    child: bool,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    if flags.child {
        let right = read_and_forget(flags)?;
        return Ok(Report::new("fleeting").pair("iterations", 1).check("read", right));
    }
    let clock = Clock::start(&flags.apart);
    let round = || if flags.children { child(flags) } else { read_and_forget(flags) };
    clock.run("fleeting", flags.apart.threads, |_| clock.rounds(round))
}

/// Does one round. Returns whether what was read is what was written.
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
