//! Every target with mutated inputs, drawn from a seed: what `./x test` runs on any toolchain.
//!
//! `RONDPOINT_RUNS=N` makes N inputs for each target, `RONDPOINT_SEED=N` begins with another seed,
//! `RONDPOINT_TARGET=NAME` takes one target. A failure prints the three that make it again.

mod mutation;

use std::num::NonZero;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use rondpoint_core::random::Random;
use rondpoint_fuzz_inputs::{TARGETS, Target};

use crate::mutation::{USUAL_RUNS, mutate, setting};

/// Of 200 mutated inputs a target accepts one at least, or its mutations are too wild.
const INPUTS: u64 = 200;

#[test]
fn no_input_breaks_a_promise() {
    let (first, runs) = (setting("RONDPOINT_SEED", 1), setting("RONDPOINT_RUNS", USUAL_RUNS));
    let only = std::env::var("RONDPOINT_TARGET").ok();
    let chosen: Vec<Target> = TARGETS
        .into_iter()
        .filter(|target| only.as_ref().is_none_or(|name| name == target.name))
        .collect();
    assert!(!chosen.is_empty(), "RONDPOINT_TARGET: no such target");
    // Targets differ much in their time, so each CPU takes the next one that is left.
    let left = Mutex::new(chosen.into_iter());
    let next = || left.lock().expect("no target panics while it is held").next();
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..cpus {
            scope.spawn(|| {
                while let Some(target) = next() {
                    check(&target, first..first + runs);
                }
            });
        }
    });
}

/// Runs a target with its seeds, and with an input mutated from each number.
fn check(target: &Target, numbers: Range<u64>) {
    let seeds = (target.seeds)();
    for seed in &seeds {
        (target.run)(seed);
    }
    let (mut accepted, mut refused) = (0_u64, 0_u64);
    let began = Instant::now();
    for seed in numbers.clone() {
        let input = mutate(&seeds, &mut Random::new(seed));
        let Ok(is_accepted) = catch_unwind(|| (target.run)(&input)) else {
            panic!(
                "RONDPOINT_TARGET={} RONDPOINT_SEED={seed} RONDPOINT_RUNS=1: {:?}",
                target.name,
                String::from_utf8_lossy(&input)
            );
        };
        *(if is_accepted { &mut accepted } else { &mut refused }) += 1;
    }
    let (runs, took) = (accepted + refused, began.elapsed().as_secs());
    println!(
        "{}: {runs} inputs from seed {}, {accepted} accepted, {refused} refused, {took} s",
        target.name, numbers.start
    );
}

#[test]
fn each_target_accepts_mutated_inputs_beside_refusing_them() {
    // Mutations that every reader refuses would try nothing behind the first check.
    for target in TARGETS {
        let seeds = (target.seeds)();
        let inputs = (1..=INPUTS).map(|seed| mutate(&seeds, &mut Random::new(seed)));
        let new = inputs.filter(|input| !seeds.contains(input));
        let (accepted, refused): (Vec<_>, Vec<_>) = new.partition(|input| (target.run)(input));
        let counts = (accepted.len(), refused.len());
        assert!(counts.0 > 0 && counts.1 > 0, "{}: accepted, refused: {counts:?}", target.name);
    }
}
