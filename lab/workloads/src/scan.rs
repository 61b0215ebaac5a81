//! Reads every line of a region exactly once, so that a counter of user-mode memory reads can be
//! checked. The counter must say `lines`, within its own accuracy.
//!
//! The kernel clears the pages, from first to last and not in user mode. The scan then goes from
//! first to last again. So in a region several times larger than the caches, no line that it comes
//! to is in a cache. Within a page the order is shuffled, so that a stream prefetcher does not
//! fetch lines before they are asked for. `--wait` lets a counter be attached in between.

use std::io::{BufRead, Write};
use std::time::Instant;

use clap::{Args, ValueEnum};

use crate::flags::{Memory, Seed};
use crate::nodes::cpus_of_node;
use crate::pages::{Pages, page_bytes};
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
    /// Node of the CPUs that run the scan; default: any
    #[arg(long, conflicts_with = "cpu")]
    cpu_node: Option<u32>,
    /// CPU that runs the scan
    #[arg(long)]
    cpu: Option<usize>,
    /// Order of the lines within a page
    #[arg(long, value_enum, default_value_t = Order::Shuffled)]
    order: Order,
    /// Say "ready" on standard output and wait for a line on standard input before the scan
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// No two neighbours after each other more often than chance has it
    Shuffled,
    /// Ascending, as a prefetcher likes it
    Sequential,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    if let Some(cpu) = flags.cpu {
        system::run_on(&[cpu])?;
    }
    if let Some(node) = flags.cpu_node {
        system::run_on(&cpus_of_node(node)?)?;
    }
    // Whole pages, so that every page has the same order.
    let bytes = flags.memory.size / page_bytes() * page_bytes();
    let words = Pages::<u64>::map(bytes, flags.memory.no_huge_pages)?;
    if let Some(node) = flags.node {
        words.bind(node)?;
    }
    words.populate()?;
    let order = line_order(flags.order, page_bytes() / 64, flags.seed.seed);
    if flags.wait {
        wait_for_a_line()?;
    }
    let started = Instant::now();
    let sum = scan(&words, &order);
    let seconds = started.elapsed().as_secs_f64();
    let report = Report::new("scan")
        .pair("lines", words.len() / WORDS_PER_LINE)
        .pair("seconds", format!("{seconds:.6}"))
        .check("sum", sum == 0);
    match flags.node {
        None => Ok(report),
        Some(node) => {
            let elsewhere = words.pages_elsewhere(node)?;
            Ok(report
                .pair("node", node)
                .pair("pages_elsewhere", elsewhere)
                .check("node", elsewhere == 0))
        }
    }
}

/// The first words of a page's lines, in the order to read them.
fn line_order(order: Order, lines: usize, seed: u64) -> Vec<usize> {
    let mut words: Vec<usize> = (0..lines).map(|line| line * WORDS_PER_LINE).collect();
    if order == Order::Shuffled {
        Random::new(seed, 0).shuffle(&mut words);
    }
    words
}

fn scan(words: &[u64], order: &[usize]) -> u64 {
    let mut sum = 0u64;
    for page in words.chunks_exact(order.len() * WORDS_PER_LINE) {
        for &word in order {
            sum = sum.wrapping_add(page[word]);
        }
    }
    sum
}

fn wait_for_a_line() -> Result<(), Failure> {
    println!("ready");
    let flushed = std::io::stdout().flush();
    let read = flushed.and_then(|()| std::io::stdin().lock().read_line(&mut String::new()));
    read.map(|_| ()).map_err(|error| Failure(format!("--wait: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_once_in_either_order() {
        let lines = 64;
        // A different power of 16 for the first word of each of 16 lines: any missing or double
        // read shows in its digit.
        let mut words = vec![0u64; lines * WORDS_PER_LINE * 2];
        for line in 0..16 {
            words[(lines + line * 4) * WORDS_PER_LINE] = 1 << (4 * line);
        }
        for order in [Order::Shuffled, Order::Sequential] {
            let order = line_order(order, lines, 3);
            assert_eq!(scan(&words, &order), 0x1111_1111_1111_1111);
        }
    }

    #[test]
    fn the_shuffled_order_is_no_stream() {
        let order = line_order(Order::Shuffled, 64, 1);
        let neighbours =
            order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == WORDS_PER_LINE);
        assert!(neighbours.count() < 8);
        assert_ne!(order, line_order(Order::Shuffled, 64, 2));
    }
}
