//! Bytes from outside, and what reads them: one target for each kind of input.
//!
//! A target takes any bytes and never panics. Where a reader accepts them, a law holds as well: an
//! accepted machine, written again, reads as itself. Readers that are private to `rondpoint` have
//! such bodies in its own tests (`crates/rondpoint/src/seeded.rs`).
//!
//! `tests/seeded.rs` runs all targets with mutated seeds; `fuzz/targets` gives the same functions
//! to libFuzzer.

mod files;
mod ledgers;
mod machines;
mod perf;
mod traces;

/// One kind of input.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is also that of the program in `fuzz/targets`.
    pub name: &'static str,
    /// Reads one input, and tells whether a reader accepted it. Panics where a promise is broken.
    pub run: fn(&[u8]) -> bool,
    /// Good inputs, from which mutation begins.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: [Target; 11] = [
    perf::RECORDS,
    perf::SPE,
    perf::EVENT_NAMES,
    files::PROC,
    files::SYSFS,
    files::NUMBER_LISTS,
    machines::FILE,
    machines::SYNTHETIC,
    traces::READ,
    traces::REPLAY,
    ledgers::LEDGER,
];

/// The target with a name.
///
/// # Panics
/// There is none.
#[must_use]
pub fn target(name: &str) -> Target {
    *TARGETS.iter().find(|target| target.name == name).expect("a target of TARGETS")
}
