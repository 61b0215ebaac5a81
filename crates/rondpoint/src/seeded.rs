//! Mutated inputs for readers that are private to this program, with the mutations and settings of
//! `fuzz/inputs`. The tests of each reader have its seeds and its body.
//!
//! `RONDPOINT_RUNS=1000000 RONDPOINT_SEED=7 cargo test -p rondpoint mutated` makes as many.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use rondpoint_core::random::Random;

use self::mutation::{USUAL_RUNS, mutate, setting};

#[path = "../../../fuzz/inputs/tests/mutation/mod.rs"]
mod mutation;

/// Gives a reader the seeds, and inputs that are mutated from them. `read` tells whether the reader
/// accepted an input, and panics where a promise is broken.
///
/// # Panics
/// `read` does; a seed is refused; the reader accepts or refuses all inputs, so that they try
/// nothing behind its first check.
pub(crate) fn check(seeds: &[&str], read: impl Fn(&[u8]) -> bool) {
    for seed in seeds {
        assert!(read(seed.as_bytes()), "a good input: {seed}");
    }
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    let (first, runs) = (setting("RONDPOINT_SEED", 1), setting("RONDPOINT_RUNS", USUAL_RUNS));
    let (mut accepted, mut refused, mut unchanged) = (0_u64, 0_u64, 0_u64);
    let began = Instant::now();
    for number in first..first + runs {
        let input = mutate(&seeds, &mut Random::new(number));
        let is_new = !seeds.contains(&input);
        match catch_unwind(AssertUnwindSafe(|| read(&input))) {
            Ok(true) if is_new => accepted += 1,
            Ok(true) => unchanged += 1,
            Ok(false) => refused += 1,
            Err(_) => panic!(
                "RONDPOINT_SEED={number} RONDPOINT_RUNS=1: {:?}",
                String::from_utf8_lossy(&input)
            ),
        }
    }
    let thread = std::thread::current();
    println!(
        "{}: {runs} inputs from seed {first}, {} accepted, {refused} refused, {} s",
        thread.name().unwrap_or_default(),
        accepted + unchanged,
        began.elapsed().as_secs()
    );
    let is_enough = runs < USUAL_RUNS || accepted > 0 && refused > 0;
    assert!(is_enough, "{accepted} accepted, {refused} refused of {runs}");
}
