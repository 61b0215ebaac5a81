//! Flags that several workloads share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How long.
#[derive(Debug, Clone, Args)]
pub(crate) struct Pace {
    /// Rounds to run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iterations: u64,
    /// Run for this many seconds instead, to the end of a round
    #[arg(long, conflicts_with = "iterations", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Write the number of finished rounds to this file after each round
    #[arg(long)]
    pub(crate) progress: Option<PathBuf>,
}

/// How many, and where.
#[derive(Debug, Clone, Args)]
pub(crate) struct Threads {
    /// Threads; default: one for each CPU that this process may use
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: Option<u32>,
    /// Pin thread i to the i-th CPU that this process may use, and the main thread to the first
    #[arg(long)]
    pub(crate) pin: bool,
}

/// How many threads, each with rounds of its own, and how long.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Apart {
    /// Threads, each with rounds of its own
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// Seconds to run, to the end of each thread's round
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) seconds: f64,
}

/// Threads that go through rounds together on memory that the main thread fills.
#[derive(Debug, Clone, Args)]
pub(crate) struct Together {
    #[command(flatten)]
    pub(crate) threads: Threads,
    #[command(flatten)]
    pub(crate) memory: Memory,
    #[command(flatten)]
    pub(crate) pace: Pace,
    #[command(flatten)]
    pub(crate) seed: Seed,
}

/// Where threads and memory are from the start.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Placement {
    /// oracle: pin the threads as --pin does, and give each the memory that it will use on its own
    /// node. Memory that all use lies on all nodes in turn
    #[arg(long, value_name = "RULE")]
    pub(crate) place: Option<Rule>,
}

/// A placement that the program knows before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rule {
    Oracle,
}

/// How much memory.
#[derive(Debug, Clone, Args)]
pub(crate) struct Memory {
    /// Bytes of the data: 64M, 1G, 4096
    #[arg(long, default_value = "64M", value_parser = size)]
    pub(crate) size: usize,
    /// Ask the kernel for small pages only
    #[arg(long)]
    pub(crate) no_huge_pages: bool,
}

/// What stands in the way of moving the pages.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Obstacles {
    /// Keep a reference to each page of the data: the kernel can move none of them
    #[arg(long)]
    pub(crate) hold_pages: bool,
    /// Be no business of other processes, as a program with keys in its memory is: only those with
    /// the capability may look into it
    #[arg(long)]
    pub(crate) undumpable: bool,
}

/// What to compute on.
#[derive(Debug, Clone, Args)]
pub(crate) struct Seed {
    /// Seed of the data
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// Reads `64M`: a whole number with an optional K, M or G of 1024.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.chars().last() {
        Some('K') => (&text[..text.len() - 1], 10),
        Some('M') => (&text[..text.len() - 1], 20),
        Some('G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| (4096..=1 << 40).contains(bytes))
        .ok_or_else(|| "expected 4096 bytes to 1024G, like 64M".to_owned())
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 1e6);
    seconds.ok_or_else(|| "expected a number of seconds above 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_of_1024s() {
        assert_eq!(size("64M"), Ok(64 << 20));
        assert_eq!(size("4096"), Ok(4096));
        for text in ["", "M", "64m", "-1G", "1.5G", "99999999999G", "100", "1é"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_are_positive_and_finite() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["0", "-1", "nan", "inf", "soon"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
