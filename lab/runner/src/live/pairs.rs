//! Pairs of threads that hand each other buffers: counters show one thread of a pair, samples name
//! the other.

use anyhow::{Context as _, Result};
use rondpoint_machine::Machine;

use super::name;
use super::session::{masks, node_of, report, run, verdicts};
use crate::lab::{Lab, cut_machine};
use crate::physics::{Finding, script};
use crate::vm::Record;

/// Four pairs. A thread is told by the CPUs that it may use shortly before the end.
const SCRIPT: &str = r#"
rondpoint run --quiet --policy auto --report /tmp/report -- \
    rondpoint-workloads pipeline --threads 8 --size 2M --no-huge-pages --seconds 4 > /tmp/out &
manager=$!
sleep 3.5
masks
wait $manager
sed 's/^/managed /' /tmp/out
report pairs /tmp/report
"#;

/// The fewest thousands of buffers in four seconds, of which the first goes by before anything is
/// done. Under Linux alone the pairs stayed apart in seven of 18 runs, with 4 to 5. The mean of
/// four such runs was 6 to 11 (emulated). With Rondpoint starts had 12.7 to 20.1. At the least,
/// trials of page moves came first, and the threads waited for their end.
const LEAST_THOUSANDS: f64 = 11.0;

pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 2)?;
    let record = run(lab, &machine, "pairs", SCRIPT)?;
    let read = Finding::between(
        &name(&machine),
        "pairs: thousands of buffers read in four seconds".into(),
        (LEAST_THOUSANDS, f64::INFINITY),
        rounds(&record)? / 1000.0,
        "",
    );
    Ok(vec![together(&machine, &record)?, read])
}

/// Pairs of four that one node must hold. The fourth may stay free where it meets by itself.
const LEAST_PAIRS: usize = 3;

/// Most pairs are held on one node each, and no trial of that is worse. A trial of page moves may
/// be: they go back then.
fn together(machine: &Machine, record: &Record) -> Result<Finding> {
    let pairs = masks(record)?;
    let is_held = |pair: &[&str]| pair[0] == pair[1] && node_of(machine, pair[0]).is_some();
    let held = pairs.chunks_exact(2).filter(|pair| is_held(pair)).count();
    let report = report(record, "pairs")?;
    let mut trials = report["trials"].as_array().into_iter().flatten();
    let is_worse = trials.any(|one| one["policy"] == "sharing" && one["verdict"] == "worse");
    let (verdicts, _) = verdicts(&report);
    Ok(Finding::fact(
        &name(machine),
        "pairs: CPUs that each thread may use; verdicts",
        "one node's for both of three of four pairs or more, that trial not worse",
        format!("{}; {verdicts}", pairs.join(" ")),
        pairs.len() == 8 && held >= LEAST_PAIRS && !is_worse,
    ))
}

/// The buffers that were read in all.
fn rounds(record: &Record) -> Result<f64> {
    let said = script::lines(record, "managed ").collect::<Vec<_>>().join(" ");
    let rounds = said.split_whitespace().find_map(|word| word.strip_prefix("iterations="));
    let rounds = rounds.with_context(|| format!("the program told no rounds: {said}"))?;
    rounds.parse().with_context(|| format!("rounds {rounds}"))
}
