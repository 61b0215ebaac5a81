//! Measures the cost of copies of pages on each node, on a kernel that makes them, and checks that
//! none is left.
//!
//! One thread replicates a region, writes a word of each page, replicates it again and drops the
//! copies. It also forks, and maps, touches and unmaps another region, both with copies in the
//! process and before it had any. Times are medians over the rounds, in ns per page; a fork is in
//! ns. On other kernels the line has `copies=no`, and only the steps without copies are timed.
//!
//! `rondpoint-workloads copies --size 4M --iterations 5`

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use clap::Args;

use crate::flags::Memory;
use crate::pages::{Pages, page_bytes};
use crate::report::{Failure, Report};
use crate::system::fork_for;

/// `MADV_NUMA_REPLICATE` of the series in `kernel/`.
const REPLICATE: i32 = 240;
/// `MADV_NUMA_UNREPLICATE` of the same.
const UNREPLICATE: i32 = 241;
/// What each word holds, beside its place.
const SALT: u64 = 0x5851_f42d_4c95_7f2d;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    memory: Memory,
    /// Rounds, of which the medians are told
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    iterations: u64,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let started = Instant::now();
    let mut table = Pages::<u64>::map(flags.memory.size, true)?;
    for (place, word) in table.iter_mut().enumerate() {
        *word = SALT ^ place as u64;
    }
    let pages = (table.len() * size_of::<u64>()).div_ceil(page_bytes());
    let mut times = Times::default();
    for _ in 0..flags.iterations {
        times.add("write", pages, write_each(&mut table));
        times.add("map_touch_unmap", pages, map_touch_unmap(flags.memory.size)?);
        times.add("fork", 1, timed(|| fork_for(Duration::ZERO))?);
    }
    let offered = table.advise(REPLICATE) && table.advise(UNREPLICATE);
    let mut counts = Counts { all_made: true, none_left: true };
    for _ in 0..if offered { flags.iterations } else { 0 } {
        one_round(&mut table, pages, flags.memory.size, &mut times, &mut counts)?;
    }
    let is_right = table.iter().enumerate().all(|(place, word)| *word == SALT ^ place as u64);
    let report = Report::new("copies")
        .pair("pages", pages)
        .pair("copies", if offered { "yes" } else { "no" })
        .pair("seconds", format!("{:.6}", started.elapsed().as_secs_f64()));
    Ok(times
        .told(report)
        .check("content", is_right)
        .check("made", counts.all_made)
        .check("left", counts.none_left))
}

/// What the kernel's own count of copies says.
struct Counts {
    all_made: bool,
    none_left: bool,
}

fn one_round(
    table: &mut Pages<u64>,
    pages: usize,
    size: usize,
    times: &mut Times,
    counts: &mut Counts,
) -> Result<(), Failure> {
    times.add("replicate", pages, advised(table, REPLICATE)?);
    counts.all_made &= pages_with_copies()? == pages;
    times.add("map_touch_unmap_beside_copies", pages, map_touch_unmap(size)?);
    times.add("fork_with_copies", 1, timed(|| fork_for(Duration::ZERO))?);
    // The fork has left the pages to two processes; the kernel decides what becomes of the copies.
    times.add("replicate_after_fork", pages, advised(table, REPLICATE)?);
    times.add("unreplicate", pages, advised(table, UNREPLICATE)?);
    counts.none_left &= pages_with_copies()? == 0;
    // A page that was written too often gets no copies again: each round has fresh ones.
    *table = copied(table, size)?;
    advised(table, REPLICATE)?;
    counts.all_made &= pages_with_copies()? == pages;
    times.add("write_that_collapses", pages, write_each(table));
    counts.none_left &= pages_with_copies()? == 0;
    Ok(())
}

/// The same words in pages of another mapping.
fn copied(table: &Pages<u64>, size: usize) -> Result<Pages<u64>, Failure> {
    let mut fresh = Pages::map(size, true)?;
    fresh.copy_from_slice(table);
    Ok(fresh)
}

/// Writes the first word of each page as it is.
fn write_each(table: &mut Pages<u64>) -> Duration {
    let begin = Instant::now();
    for word in table.iter_mut().step_by(page_bytes() / size_of::<u64>()) {
        *word = black_box(*word);
    }
    begin.elapsed()
}

fn map_touch_unmap(size: usize) -> Result<Duration, Failure> {
    timed(|| {
        let mut fresh = Pages::<u64>::map(size, true)?;
        write_each(&mut fresh);
        Ok(())
    })
}

fn advised(table: &Pages<u64>, advice: i32) -> Result<Duration, Failure> {
    timed(|| match table.advise(advice) {
        true => Ok(()),
        false => Err(Failure(format!("the kernel refused advice {advice}, which it took before"))),
    })
}

fn timed(act: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let begin = Instant::now();
    act()?;
    Ok(begin.elapsed())
}

/// Pages of this process that have copies now.
fn pages_with_copies() -> Result<usize, Failure> {
    let path = "/proc/self/numa_copies";
    let text = fs::read_to_string(path).map_err(|error| Failure(format!("{path}: {error}")))?;
    let bytes: Option<u64> = text.lines().map(bytes_with_copies).sum();
    let bytes = bytes.ok_or_else(|| {
        Failure(format!("{path}: expected lines `START-END nodes=LIST collapses=N`: {text}"))
    })?;
    Ok(bytes as usize / page_bytes())
}

/// Bytes of a line that have copies; `None` for a line that is none.
fn bytes_with_copies(line: &str) -> Option<u64> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let nodes = rest.split(' ').find_map(|word| word.strip_prefix("nodes="))?;
    let bytes = address(end)?.checked_sub(address(start)?)?;
    Some(if nodes.is_empty() { 0 } else { bytes })
}

/// Nanoseconds for each of its pages, of every round, in the order in which kinds were first timed.
#[derive(Default)]
struct Times(Vec<(&'static str, Vec<f64>)>);

impl Times {
    fn add(&mut self, name: &'static str, pages: usize, time: Duration) {
        let each = time.as_nanos() as f64 / pages as f64;
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, times)) => times.push(each),
            None => self.0.push((name, vec![each])),
        }
    }

    fn told(self, report: Report) -> Report {
        self.0.into_iter().fold(report, |report, (name, mut times)| {
            times.sort_by(f64::total_cmp);
            report.pair(name, format!("{:.0}", times[times.len() / 2]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_copies_where_it_names_nodes() {
        assert_eq!(bytes_with_copies("1000-3000 nodes=1-3 collapses=2"), Some(0x2000));
        assert_eq!(bytes_with_copies("1000-3000 nodes= collapses=2"), Some(0));
        assert_eq!(bytes_with_copies("1000 nodes=1"), None);
    }

    #[test]
    fn the_median_of_the_rounds_is_told_for_each_page() {
        let mut times = Times::default();
        for nanos in [400, 100, 200] {
            times.add("write", 2, Duration::from_nanos(nanos));
        }
        let line = times.told(Report::new("copies")).to_string();
        assert_eq!(line, "workload=copies write=100 result=ok");
    }
}
