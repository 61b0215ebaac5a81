//! Makes a failing case smaller while it breaks the same rule.

use std::ops::Range;

use super::{Case, breaks};
use crate::faults::Rates;
use crate::workload::Program;

/// Most runs of one shrinking: somebody waits for it.
const MOST_RUNS: usize = 60;

/// The smallest case found that breaks the same rule.
pub(crate) fn shrink(case: &Case, rule: &str) -> Case {
    smallest(case, |smaller| breaks(smaller, rule))
}

/// The smallest case found that still fails.
pub(super) fn smallest(case: &Case, fails: impl Fn(&Case) -> bool) -> Case {
    let mut best = case.clone();
    let mut runs = 0;
    loop {
        let smaller = candidates(&best).into_iter().find(|smaller| {
            runs += 1;
            runs <= MOST_RUNS && fails(smaller)
        });
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// Simpler cases, the simplest first.
fn candidates(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Case)| {
        let mut smaller = case.clone();
        change(&mut smaller);
        all.push(smaller);
    };
    if case.programs.len() > 1 {
        (0..case.programs.len()).for_each(|program| {
            add(&|case| drop_program(case, program));
        });
    }
    for program in 0..case.programs.len() {
        if case.programs[program].instances > 1 {
            add(&|case| keep_one_instance(case, program));
        }
        if case.programs[program].threads > 2 {
            add(&|case| case.programs[program].threads /= 2);
        }
        if case.programs[program].regions.len() > 1 {
            add(&|case| {
                case.programs[program].regions.truncate(1);
                case.programs[program].regions[0].share = 1.0;
                // It may guard a region that is gone.
                case.programs[program].lock = None;
            });
        }
        if case.programs[program].lock.is_some() {
            add(&|case| case.programs[program].lock = None);
        }
        if case.programs[program].bursts.is_some() {
            add(&|case| case.programs[program].bursts = None);
        }
        if case.programs[program].transfers_per_kilo > 0.0 {
            add(&|case| case.programs[program].transfers_per_kilo = 0.0);
        }
        if case.programs[program].burst > 0.0 {
            add(&|case| case.programs[program].burst = 0.0);
        }
    }
    if case.limits.iter().any(|limit| *limit != (0, false)) {
        add(&|case| case.limits.iter_mut().for_each(|limit| *limit = (0, false)));
    }
    if let Some(rates) = case.faults {
        add(&|case| case.faults = None);
        for one in FAULTS {
            let mut without = rates;
            *one(&mut without) = 0.0;
            if without != rates {
                add(&|case| case.faults = Some(without));
            }
        }
    }
    if case.seconds > case.faults_until_s + 20.0 {
        add(&|case| case.seconds = case.seconds.midpoint(case.faults_until_s + 15.0));
    }
    all
}

/// Where the rate of a kind of fault is.
type Fault = fn(&mut Rates) -> &mut f64;

/// Each kind of fault.
pub(super) const FAULTS: [Fault; 16] = [
    |rates| &mut rates.refused,
    |rates| &mut rates.busy,
    |rates| &mut rates.no_memory,
    |rates| &mut rates.stale,
    |rates| &mut rates.wrapped,
    |rates| &mut rates.missing,
    |rates| &mut rates.lost,
    |rates| &mut rates.late,
    |rates| &mut rates.jump,
    |rates| &mut rates.exits,
    |rates| &mut rates.cpu_unplugged,
    |rates| &mut rates.memory_unplugged,
    |rates| &mut rates.ledger,
    |rates| &mut rates.back,
    |rates| &mut rates.masks,
    |rates| &mut rates.frozen_exits,
];

/// Numbers of a program's processes, as far as they have limits.
fn processes(case: &Case, program: usize) -> Range<usize> {
    let before: u32 = case.programs[..program].iter().map(|one| one.instances).sum();
    let last = before + case.programs[program].instances;
    (before as usize).min(case.limits.len())..(last as usize).min(case.limits.len())
}

/// Leaves a program one process, with the limits of its first one.
fn keep_one_instance(case: &mut Case, program: usize) {
    let Range { start, end } = processes(case, program);
    case.limits.drain((start + 1).min(end)..end);
    case.programs[program].instances = 1;
}

/// Takes a program out, and the limits of its processes.
fn drop_program(case: &mut Case, program: usize) {
    case.limits.drain(processes(case, program));
    let dropped = case.programs.remove(program);
    // Programs that asked it work without requests then.
    let asks = |one: &mut Program| {
        one.requests.take_if(|requests| requests.to == dropped.name);
    };
    case.programs.iter_mut().for_each(asks);
}
