//! Look-ups in one table that all threads share and one of them filled, as a server's: at random,
//! and every tenth changes what it finds. Where the table lies matters, which thread runs where
//! does not. Several of these programs may have one table, as the processes of a data base do.

mod table;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;

use crate::apart::Clock;
use crate::flags::{Apart, Memory, Seed};
use crate::random::Random;
use crate::report::{Failure, Report};

use self::table::Table;

/// Look-ups of a round.
const LOOKUPS: u64 = 10_000;
/// One in so many changes what it finds.
const CHANGES_EVERY: u64 = 10;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    apart: Apart,
    /// The table lies in this file, which other programs of the same size may use at the same time;
    /// whoever comes first fills it
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let table = match &flags.table {
        Some(path) => Table::join(path, flags.memory.size)?,
        None => Table::fill(&flags.memory)?,
    };
    let changes = AtomicU64::new(0);
    let clock = Clock::start(&flags.apart);
    let report = clock.run("lookup", flags.apart.threads, |index| {
        let mut random = Random::new(flags.seed.seed, index as u64);
        clock.rounds(|| {
            changes.fetch_add(LOOKUPS / CHANGES_EVERY, Ordering::Relaxed);
            Ok(look_up(table.words(), &mut random))
        })
    })?;
    let words = table.words().len();
    Ok(report.pair("words", words).check("changes", table.leave(changes.into_inner())?))
}

/// One round; whether all that was found had been written.
fn look_up(table: &[AtomicU64], random: &mut Random) -> bool {
    let mut is_right = true;
    for lookup in 0..LOOKUPS {
        let word = &table[random.below(table.len() as u64) as usize];
        let found = match lookup % CHANGES_EVERY {
            0 => word.fetch_add(1, Ordering::Relaxed),
            _ => word.load(Ordering::Relaxed),
        };
        is_right &= found > 0;
    }
    is_right
}
