//! Pairs of threads that hand each other buffers: counters show one thread of a pair, samples name
//! the other.

use anyhow::{Context as _, Result};
use rondpoint_machine::Machine;

use super::name;
use super::session::{masks, node_of, report, run, verdicts};
use crate::lab::{Lab, cut_machine};
use crate::physics::{Finding, script};
use crate::vm::Record;

/// Four pairs, some times alone and once managed. A thread is told by the CPUs that it may use
/// shortly before the end.
const SCRIPT: &str = r#"
pairs='rondpoint-workloads pipeline --threads 8 --size 2M --no-huge-pages --seconds 4'
for run in $(seq ALONE); do $pairs | sed "s/^/alone$run /"; done
rondpoint run --quiet --policy auto --report /tmp/report -- $pairs > /tmp/out &
manager=$!
sleep 3.5
masks
wait $manager
sed 's/^/managed /' /tmp/out
report pairs /tmp/report
"#;

/// Runs alone. In 18 of them (emulated) Linux left the pairs apart in seven (4 to 5 thousand
/// buffers) and brought some together in others. In three it brought all together in the first
/// moment (18 to 22 thousand). So one run says little.
const ALONE: usize = 2;
/// The least gain over the mean of Linux in four seconds of which the first goes by before anything
/// is done. There were 1.6 to 2.9 from six starts (emulated): 17 to 19 thousand buffers, over 6 to
/// 11 thousand in the mean of four alone.
const LEAST_GAIN: f64 = 1.2;

pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 2)?;
    let record = run(lab, &machine, "pairs", &SCRIPT.replace("ALONE", &ALONE.to_string()))?;
    let alone = (1..=ALONE).map(|number| rounds(&record, &format!("alone{number}")));
    let alone = alone.collect::<Result<Vec<f64>>>()?;
    let managed = rounds(&record, "managed")?;
    let gain = Finding::between(
        &name(&machine),
        "pairs: buffers read in four seconds, managed over the mean of those alone".into(),
        (LEAST_GAIN, f64::INFINITY),
        managed * ALONE as f64 / alone.iter().sum::<f64>(),
        &format!("({managed} managed, {alone:?} alone)"),
    );
    Ok(vec![together(&machine, &record)?, gain])
}

/// Pairs of four that one node must hold. The fourth may stay free where it meets by itself.
const LEAST_PAIRS: usize = 3;

/// Most pairs are held on one node each, and no trial finds that worse.
fn together(machine: &Machine, record: &Record) -> Result<Finding> {
    let pairs = masks(record)?;
    let is_held = |pair: &[&str]| pair[0] == pair[1] && node_of(machine, pair[0]).is_some();
    let held = pairs.chunks_exact(2).filter(|pair| is_held(pair)).count();
    let (verdicts, is_worse) = verdicts(&report(record, "pairs")?);
    Ok(Finding::fact(
        &name(machine),
        "pairs: CPUs that each thread may use; verdicts",
        "one node's for both of three of four pairs or more, none worse",
        format!("{}; {verdicts}", pairs.join(" ")),
        pairs.len() == 8 && held >= LEAST_PAIRS && !is_worse,
    ))
}

/// The buffers that were read in all.
fn rounds(record: &Record, tag: &str) -> Result<f64> {
    let said = script::lines(record, &format!("{tag} ")).collect::<Vec<_>>().join(" ");
    let rounds = said.split_whitespace().find_map(|word| word.strip_prefix("iterations="));
    let rounds = rounds.with_context(|| format!("{tag}: the program told no rounds: {said}"))?;
    rounds.parse().with_context(|| format!("{tag}: rounds {rounds}"))
}
