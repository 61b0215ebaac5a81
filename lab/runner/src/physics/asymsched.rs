//! Checks on AsymSched's machine: every directed pair carries what its matrix says.

use anyhow::Result;

use super::Finding;
use super::script::{lines, run, value};
use crate::lab::Lab;

/// The machine, by the name of its file.
pub(crate) const NAME: &str = "asymsched-8";

/// How far a pair may be off its entry in the matrix.
const TOLERANCE_PERCENT: f64 = 5.0;

/// The bandwidth matrix, measured by a stream from each node to each.
pub(crate) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = lab.machine(NAME)?;
    let nodes = machine.nodes.len();
    let pairs: Vec<(usize, usize)> =
        (0..nodes).flat_map(|n| (0..nodes).map(move |m| (n, m))).filter(|(n, m)| n != m).collect();
    let mut script = String::new();
    for (accessing, holding) in &pairs {
        let threads = machine.nodes[*accessing].cpus;
        script.push_str(&format!(
            "say stream rondpoint-workloads stream --threads {threads} --cpu-node {accessing} \
             --mem-node {holding} --size 8M --iterations 3\n"
        ));
    }
    let record = run(lab, &machine, "streams over all 56 directed pairs", &script)?;
    let mut findings = Vec::new();
    let mut furthest = 0.0_f64;
    for ((accessing, holding), line) in pairs.iter().zip(lines(&record, "stream ")) {
        let target = machine.bandwidth_mb_s(*accessing, *holding);
        let measured = value(line, "mb_per_s")?;
        furthest = furthest.max((measured / target - 1.0).abs());
        let check = format!("bandwidth from node {holding} to node {accessing}");
        findings.push(Finding::near(NAME, check, (target, measured), TOLERANCE_PERCENT, "MB/s"));
    }
    let within = findings.iter().filter(|finding| finding.holds).count();
    let summary = Finding::fact(
        NAME,
        "a stream over each directed pair draws what the matrix says",
        "all 56 within 5 %",
        format!("{within} of {}, furthest off {:.1} %", pairs.len(), 100.0 * furthest),
        within == pairs.len(),
    );
    // Pairs that hold need no line each.
    findings.retain(|finding| !finding.holds);
    findings.insert(0, summary);
    Ok(findings)
}
