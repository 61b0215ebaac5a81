//! Estimates the share of reads of one of several processes from samples of loads and stores.
//!
//! Counters give the share of a single process exactly. In a tree of processes that share counters,
//! samples still name the process:
//!
//! - reads are sampled loads that memory served;
//! - writes are all sampled stores to pages with an access beyond the private caches. Caches write
//!   such a page back in the end. A stack stays in its cache and does not count.
//!
//! The result is the lower end of a 95 % interval, so few samples are never enough for copies.
//! Limitation: a sampler with a latency threshold misses a store to a line that was just read. The
//! kernel counts the copies that such stores drop, and Carrefour uses these counts.

use crate::model::{Model, ReadSource};
use crate::observation::{Samples, Source};
use alloc::vec;

/// Half width of the 95 % interval of a normal distribution, in standard deviations.
const DEVIATIONS: f64 = 1.96;

/// Gives the sampled share of reads to each application without a counted one. The share stays
/// unknown if a sampler leaves out stores or was throttled, because one event may then lack more
/// samples than another.
pub(super) fn from_samples(model: &mut Model, sources: &[&Samples]) {
    let is_fault = |source: &&&Samples| {
        source.list.first().is_some_and(|sample| sample.source == Source::HintFault)
    };
    let mut samplers = sources.iter().filter(|source| !is_fault(source)).peekable();
    if samplers.peek().is_none() || !samplers.all(|source| source.stores && !source.throttled) {
        return;
    }
    let mut sums = vec![(0_u64, 0_u64); model.apps.len()];
    for page in model.pages.iter().filter(|page| page.leaves_caches) {
        sums[page.app].0 += u64::from(page.memory_reads);
        sums[page.app].1 += u64::from(page.stores);
    }
    for (app, (reads, writes)) in model.apps.iter_mut().zip(sums) {
        if app.read_percent.is_none() && reads > 0 {
            app.read_percent = Some(100.0 * at_least(reads as f64, (reads + writes) as f64));
            app.read_source = ReadSource::Samples;
        }
    }
}

/// Lower end of Wilson's score interval for a share of `part` in `whole`, 0..=1.
fn at_least(part: f64, whole: f64) -> f64 {
    let square = DEVIATIONS * DEVIATIONS;
    let share = part / whole;
    let centre = share + square / (2.0 * whole);
    let variance = share * (1.0 - share) / whole + square / (4.0 * whole * whole);
    ((centre - DEVIATIONS * libm::sqrt(variance)) / (1.0 + square / whole)).max(0.0)
}
