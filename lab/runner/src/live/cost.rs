//! What managing costs, in instructions of the manager and of the kernel on its behalf: for a look, a sample
//! and a page that is moved, and from these the share of a CPU on a machine of 64.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::name;
use super::session::{report, run};
use crate::lab::{Lab, cut_machine};
use crate::physics::Finding;

/// Five processes that sleep, for two times: what differs is looks alone. Then a program with a shared array,
/// watched only, and acted on.
const SCRIPT: &str = r#"
quiet="sleep TIME & sleep TIME & sleep TIME & sleep TIME & wait"
rondpoint run --quiet --report /tmp/short -- sh -c "$(echo "$quiet" | sed 's/TIME/3/g')"
report short /tmp/short
rondpoint run --quiet --report /tmp/long -- sh -c "$(echo "$quiet" | sed 's/TIME/23/g')"
report long /tmp/long
kmeans="rondpoint-workloads kmeans --rotate --pin --no-huge-pages --size 8M --seconds 2.5"
rondpoint run --quiet --dry-run --report /tmp/watched -- $kmeans > /dev/null
report watched /tmp/watched
rondpoint run --quiet --report /tmp/acted -- $kmeans > /dev/null
report acted /tmp/acted
"#;

/// The most that docs/BENCHMARKS.md says, instructions. What looks at a busy program cost more than those at
/// a quiet one is in the figure of a sample.
const MOST_PER_QUIET_S: f64 = 0.55e6;
/// With what is done between two looks that are two seconds apart.
const MOST_PER_LOOK: f64 = 1.05e6;
/// What is left when all else is subtracted: 1,568 to 2,576 with nine seeds and in nine builds.
const MOST_PER_SAMPLE: f64 = 3_000.0;
/// As much a remainder: 8,287 to 10,997.
const MOST_PER_PAGE: f64 = 12_000.0;

/// The machine that shares are told for: 64 CPUs at one instruction a cycle.
const CPUS: f64 = 64.0;
const INSTRUCTIONS_PER_S: f64 = 2.3e9;
/// Looks a second while pages are moved.
const LOOKS_PER_S: f64 = 4.0;
/// The most samples a second that are taken in at that clock: a hundredth of a CPU, 2,400 cycles each.
const SAMPLES_PER_S: f64 = INSTRUCTIONS_PER_S / 100.0 / 2_400.0;

/// What one run cost.
struct Cost {
    seconds: f64,
    instructions: f64,
    looks: f64,
    samples: f64,
    pages: f64,
}

impl Cost {
    fn of(report: &Value) -> Result<Self> {
        let number =
            |name: &str| report[name].as_f64().with_context(|| format!("the report has no {name}"));
        Ok(Self {
            seconds: number("elapsed_s")?,
            instructions: number("own_instructions")?,
            looks: number("looks")?,
            samples: number("samples")?,
            pages: number("pages_moved")?,
        })
    }
}

/// Bounds on each, and what they come to.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 1)?;
    let record = run(lab, &machine, "what managing costs", SCRIPT)?;
    let cost = |tag: &str| Cost::of(&report(&record, tag)?);
    let (short, long, watched, acted) =
        (cost("short")?, cost("long")?, cost("watched")?, cost("acted")?);
    let more = long.instructions - short.instructions;
    let per_look = more / (long.looks - short.looks);
    let per_quiet_s = more / (long.seconds - short.seconds);
    let start = short.instructions - short.looks * per_look;
    let rest = |cost: &Cost| cost.instructions - start - cost.looks * per_look;
    let per_sample = rest(&watched) / watched.samples;
    let per_page = (rest(&acted) - acted.samples * per_sample) / acted.pages;
    let cpus = f64::from(u32::try_from(machine.cpu_count()).context("a small machine")?);
    let acting = |per_look: f64, per_sample: f64| {
        let watching = LOOKS_PER_S * per_look * CPUS / cpus;
        100.0 * (watching + SAMPLES_PER_S * per_sample) / INSTRUCTIONS_PER_S
    };
    let machine = name(&machine);
    let finding = |check: &str, most: f64, measured: f64, unit: &str| {
        Finding::between(&machine, check.to_owned(), (0.0, most), measured, unit)
    };
    Ok(vec![
        finding(
            "a second of watching five quiet processes",
            MOST_PER_QUIET_S / 1e6,
            per_quiet_s / 1e6,
            "M instr.",
        ),
        finding("a look at them", MOST_PER_LOOK / 1e6, per_look / 1e6, "M instr."),
        finding(
            "a sample, with what a busy program costs beside it",
            MOST_PER_SAMPLE,
            per_sample,
            "instr.",
        ),
        finding("a page moved", MOST_PER_PAGE, per_page, "instr."),
        finding(
            "share of one CPU for 64, quiet (goal: 0.5)",
            100.0 * MOST_PER_QUIET_S * CPUS / cpus / INSTRUCTIONS_PER_S,
            100.0 * per_quiet_s * CPUS / cpus / INSTRUCTIONS_PER_S,
            "%",
        ),
        finding(
            "share of one CPU for 64, acting (goal: 2)",
            acting(MOST_PER_LOOK, MOST_PER_SAMPLE),
            acting(per_look, per_sample),
            "%",
        ),
    ])
}
