//! Measures the cost of managing, in instructions of the manager and of the kernel for it. It
//! covers a look at a sleeping program and at a working one. It also covers a second of observing a
//! program that uses memory, and the move of a page. The share of a CPU follows from these.

use anyhow::{Context as _, Result};
use rondpoint_machine::Machine;
use serde_json::Value;

use super::name;
use super::session::{report, run};
use crate::lab::{Lab, cut_machine};
use crate::physics::Finding;

/// Five processes that sleep, for two times: what differs is looks alone. The same with a thread on
/// every CPU that works and hardly uses memory, so that it is not sampled; SAM looks at them often.
/// Then a program with a shared array, watched only, for three times. Last one that is acted on.
const SCRIPT: &str = r#"
quiet="sleep TIME & sleep TIME & sleep TIME & sleep TIME & wait"
rondpoint run --quiet --report /tmp/short -- sh -c "$(echo "$quiet" | sed 's/TIME/3/g')"
report short /tmp/short
rondpoint run --quiet --report /tmp/long -- sh -c "$(echo "$quiet" | sed 's/TIME/23/g')"
report long /tmp/long
busy="rondpoint-workloads crew --need own --work 20000 --start 0,1,2,3 --size 64K --no-huge-pages --seconds"
for seconds in 1 4; do
    rondpoint run --quiet --dry-run --policy sam --report /tmp/busy -- $busy $seconds > /dev/null
    report busy$seconds /tmp/busy
done
kmeans="rondpoint-workloads kmeans --rotate --pin --no-huge-pages --seconds"
for seconds in 0.5 2.5 5; do
    rondpoint run --quiet --dry-run --report /tmp/watched -- $kmeans $seconds --size 8M > /dev/null
    report watched$seconds /tmp/watched
done
rondpoint run --quiet --report /tmp/moved -- $kmeans 2.5 --size 16M > /dev/null
report moved /tmp/moved
"#;

/// The median of three starts is 0.62 M (emulated): 0.43 % of one CPU for 64, goal 0.5.
const MOST_PER_QUIET_S: f64 = 0.8e6;
/// With what is done between two looks that are two seconds apart: 1.38 M to 1.45 M (emulated).
const MOST_PER_LOOK: f64 = 1.7e6;
/// A thread on each of four CPUs: 0.85 M (emulated), glances between two looks included.
const MOST_PER_BUSY_LOOK: f64 = 1.0e6;
/// The goal, 2 % of one CPU, with the samples of a program on four CPUs whose pages Carrefour would
/// move. The median of three starts is 26.3 M (emulated), 1.1 %. Single starts differ by a factor
/// of two. Samples have a budget of the manager's time, for any number of CPUs.
const MOST_PER_WATCHED_S: f64 = 0.02 * INSTRUCTIONS_PER_S;
/// The median of three starts is 8,100 to 8,300 (emulated). The kernel's migration is nearly all of
/// it; writing the ledger and asking where pages lie are the rest.
const MOST_PER_PAGE: f64 = 10_000.0;

/// The machine that shares are told for: 64 CPUs at one instruction a cycle.
const CPUS: f64 = 64.0;
const INSTRUCTIONS_PER_S: f64 = 2.3e9;
/// What one run cost.
struct Cost {
    seconds: f64,
    instructions: f64,
    acting: f64,
    looks: f64,
    pages: f64,
}

impl Cost {
    fn of(report: &Value) -> Result<Self> {
        let number =
            |name: &str| report[name].as_f64().with_context(|| format!("the report has no {name}"));
        Ok(Self {
            seconds: number("elapsed_s")?,
            instructions: number("own_instructions")?,
            acting: number("acting_instructions")?,
            looks: number("looks")?,
            pages: number("pages_moved")?,
        })
    }
}

/// Instructions for a look and for a second between two reports of the same program, the first of
/// which is shorter.
fn between(short: &Cost, long: &Cost) -> (f64, f64) {
    let more = long.instructions - short.instructions;
    (more / (long.looks - short.looks), more / (long.seconds - short.seconds))
}

/// What things cost, in instructions.
struct Figures {
    per_quiet_s: f64,
    per_look: f64,
    per_busy_look: f64,
    per_watched_s: f64,
    per_page: f64,
}

fn figures(lab: &Lab, machine: &Machine) -> Result<Figures> {
    let record = run(lab, machine, "what managing costs", SCRIPT)?;
    let cost = |tag: &str| Cost::of(&report(&record, tag)?);
    let short = cost("short")?;
    let (per_look, per_quiet_s) = between(&short, &cost("long")?);
    let (per_busy_look, _) = between(&cost("busy1")?, &cost("busy4")?);
    let (begun, watched, longer) = (cost("watched0.5")?, cost("watched2.5")?, cost("watched5")?);
    // How many samples each of them has differs from run to run, so both longer ones count.
    let more = |of: fn(&Cost) -> f64| of(&watched) + of(&longer) - 2.0 * of(&begun);
    let per_watched_s = more(|cost| cost.instructions) / more(|cost| cost.seconds);
    let moved = cost("moved")?;
    let per_page = moved.acting / moved.pages;
    Ok(Figures { per_quiet_s, per_look, per_busy_look, per_watched_s, per_page })
}

/// Bounds on each, and what they come to.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 1)?;
    let Figures { per_quiet_s, per_look, per_busy_look, per_watched_s, per_page } =
        figures(lab, &machine)?;
    let cpus = f64::from(u32::try_from(machine.cpu_count()).context("a small machine")?);
    let share = |per_s: f64| 100.0 * per_s / INSTRUCTIONS_PER_S;
    let of_all = |per_s: f64| share(per_s) * CPUS / cpus;
    let machine = name(&machine);
    let finding = |check: &str, most: f64, measured: f64, unit: &str| {
        Finding::between(&machine, check.to_owned(), (0.0, most), measured, unit)
    };
    let millions = |check: &str, most: f64, measured: f64| {
        finding(check, most / 1e6, measured / 1e6, "M instr.")
    };
    Ok(vec![
        millions("a second of watching five quiet processes", MOST_PER_QUIET_S, per_quiet_s),
        millions("a look at them", MOST_PER_LOOK, per_look),
        millions("a look at four threads that work", MOST_PER_BUSY_LOOK, per_busy_look),
        millions(
            "a second of watching k-means, looks and samples",
            MOST_PER_WATCHED_S,
            per_watched_s,
        ),
        finding("moving a page", MOST_PER_PAGE, per_page, "instr."),
        finding(
            "share of one CPU for 64, quiet (goal: 0.5)",
            of_all(MOST_PER_QUIET_S),
            of_all(per_quiet_s),
            "%",
        ),
        finding(
            "share of one CPU, watching k-means (goal while acting: 2)",
            share(MOST_PER_WATCHED_S),
            share(per_watched_s),
            "%",
        ),
    ])
}
