//! More threads than CPUs: the kernel takes whoever waits to the CPU that is idle next, and Rondpoint keeps each where its data is.

use anyhow::Result;
use rondpoint_machine::Machine;

use super::name;
use super::session::{first_that_shows, masks, node_of, report, round_ends, run, verdicts};
use crate::lab::{Lab, cut_machine};
use crate::physics::Finding;
use crate::progress::pace;
use crate::vm::Record;

/// Two threads for each CPU that meet after every round, alone and managed; and the CPUs that each may use shortly before the end.
const SCRIPT: &str = r#"
crowd='rondpoint-workloads wellplaced --threads 8 --size 4M --no-huge-pages --seconds 4'
$crowd | sed 's/^/alone /'
rondpoint run --quiet --policy auto --report /tmp/report -- $crowd > /tmp/out &
manager=$!
sleep 3.5
masks
wait $manager
sed 's/^/managed /' /tmp/out
report crowd /tmp/report
"#;

/// The least gain in the last of four seconds. It was 1.83 with seed 1 (emulated, 2026-11-24).
const LEAST_GAIN: f64 = 1.1;

pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 1)?;
    // A crowd whose threads are all at home when they are looked at is left alone.
    let once = |lab: &Lab| {
        let record = run(lab, &machine, "crowd", SCRIPT)?;
        Ok([held(&machine, &record)?, gain(&machine, &record)?])
    };
    let found = first_that_shows(lab, once, |[held, _]| held.holds)?;
    Ok(found.into())
}

/// Each thread may use the CPUs of one node, no node more than two threads; and no trial finds that worse.
fn held(machine: &Machine, record: &Record) -> Result<Finding> {
    let masks = masks(record)?;
    let mut threads = vec![0; machine.nodes.len()];
    let nodes = masks.iter().map(|mask| node_of(machine, mask));
    nodes.flatten().for_each(|node| threads[node] += 1);
    let (verdicts, is_worse) = verdicts(&report(record, "crowd")?);
    Ok(Finding::fact(
        &name(machine),
        "crowd: CPUs that each of eight threads may use; verdicts",
        "one node's for each, two threads for each node, none worse",
        format!("{}; {verdicts}", masks.join(" ")),
        threads.iter().all(|&threads| threads == 2) && !is_worse,
    ))
}

fn gain(machine: &Machine, record: &Record) -> Result<Finding> {
    let [alone, managed] =
        ["alone", "managed"].map(|tag| round_ends(record, tag).map(|ends| pace(&ends, 3.0, 4.0)));
    let (alone, managed) = (alone?, managed?);
    Ok(Finding::between(
        &name(machine),
        "crowd: rounds in the last of four seconds, managed over alone".into(),
        (LEAST_GAIN, f64::INFINITY),
        managed / alone,
        &format!("({managed:.0} managed, {alone:.0} alone, a second)"),
    ))
}
