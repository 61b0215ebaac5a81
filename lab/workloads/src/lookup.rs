//! Random look-ups in one table that all threads share and one thread filled, as in a server. Every
//! tenth look-up changes its entry, unless another number is given. The node of the table matters;
//! the nodes of threads do not. Several of these programs may have one table, as the processes of a
//! data base do.

mod table;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;

use crate::apart::Clock;
use crate::flags::{Apart, Memory, Seed, size};
use crate::nodes::{cpus_of_node, nodes_with_memory};
use crate::pages::Pages;
use crate::random::Random;
use crate::report::{Failure, Report};
use crate::system::run_on;

use self::table::Table;

/// Look-ups of a round.
const LOOKUPS: u64 = 10_000;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    apart: Apart,
    /// The table lies in this file, which other programs of the same size may use at the same time;
    /// the first process fills it
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// One look-up in so many changes what it finds; 0: none
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(..=LOOKUPS))]
    change_every: u64,
    /// Memory that it fills before the table, alike on all nodes, and keeps without using it
    #[arg(long, value_name = "SIZE", value_parser = size)]
    keep: Option<usize>,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let kept = flags.keep.map(fill_alike).transpose()?;
    let table = match &flags.table {
        Some(path) => Table::join(path, flags.memory.size)?,
        None => Table::fill(&flags.memory)?,
    };
    let changes = AtomicU64::new(0);
    let clock = Clock::start(&flags.apart);
    let report = clock.run("lookup", flags.apart.threads, |index| {
        let mut random = Random::new(flags.seed.seed, index as u64);
        clock.rounds(|| {
            let (right, changed) = look_up(table.words(), &mut random, flags.change_every);
            changes.fetch_add(changed, Ordering::Relaxed);
            Ok(right)
        })
    })?;
    let words = table.words().len();
    drop(kept);
    Ok(report.pair("words", words).check("changes", table.leave(changes.into_inner())?))
}

/// Memory of this many bytes in all, filled by a thread on each node.
fn fill_alike(bytes: usize) -> Result<Vec<Pages<AtomicU64>>, Failure> {
    let nodes = nodes_with_memory()?;
    let each = bytes / nodes.len();
    let fill = |node: u32| {
        run_on(&cpus_of_node(node)?)?;
        let pages = Pages::map(each, false)?;
        pages.populate()?;
        Ok(pages)
    };
    std::thread::scope(|scope| {
        let fillers: Vec<_> = nodes.iter().map(|node| scope.spawn(|| fill(*node))).collect();
        let failed = |_| Failure("a thread that fills memory ended early".to_owned());
        fillers.into_iter().map(|filler| filler.join().map_err(failed)?).collect()
    })
}

/// Does one round. Returns whether all that was found had been written, and how much was changed.
fn look_up(table: &[AtomicU64], random: &mut Random, change_every: u64) -> (bool, u64) {
    let (mut is_right, mut changes) = (true, 0);
    for lookup in 0..LOOKUPS {
        let word = &table[random.below(table.len() as u64) as usize];
        let found = match lookup.checked_rem(change_every) {
            Some(0) => {
                changes += 1;
                word.fetch_add(1, Ordering::Relaxed)
            }
            _ => word.load(Ordering::Relaxed),
        };
        is_right &= found > 0;
    }
    (is_right, changes)
}
