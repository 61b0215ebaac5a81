//! A program that begins a new phase as soon as its pages have moved. A trial must find no gain,
//! whatever the instruction counts are.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::name;
use super::session::{pages, report, run};
use crate::lab::{Lab, cut_machine};
use crate::physics::Finding;

/// What all threads but the first do from then on, and under which policy. The number is the change
/// of instructions a second above which a judge could be misled. A policy that moves pages alone
/// counts no misses of threads.
const CASES: [(&str, &str, f64); 3] =
    [("rest", "auto", 0.0), ("spin", "auto", 1.5), ("spin", "carrefour", 1.5)];

/// Each is judged, and not to be better.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 1)?;
    let one = |(how, policy, _): (&str, &str, f64)| {
        format!(
            "rondpoint run --quiet --policy {policy} --report /tmp/report -- \
             rondpoint-workloads evade --how {how} --no-huge-pages --size 8M > /tmp/out\n\
             report {how}-{policy} /tmp/report\n"
        )
    };
    let record =
        run(lab, &machine, "other phases while moves are judged", &CASES.map(one).concat())?;
    let machine = name(&machine);
    let finding = |(how, policy, least): (&str, &str, f64)| {
        let report = report(&record, &format!("{how}-{policy}"))?;
        let rise = rate(&report, "after")? / rate(&report, "before")?;
        let trials = report["trials"].as_array().into_iter().flatten();
        let verdicts: Vec<&str> = trials.filter_map(|trial| trial["verdict"].as_str()).collect();
        let moved = pages(&report, "moved");
        Ok(Finding::fact(
            &machine,
            &format!("{policy}: threads {how} once pages have moved"),
            "phase change, none better",
            format!("{}; {moved} pages moved, instructions × {rise:.2}", verdicts.join(", ")),
            verdicts.contains(&"phase-change")
                && !verdicts.contains(&"better")
                && report["exit_status"] == 0
                && moved > 0
                && rise > least,
        ))
    };
    CASES.into_iter().map(finding).collect()
}

/// Instructions a second of a period.
fn rate(report: &Value, period: &str) -> Result<f64> {
    let rate = report[period]["instructions_per_s"].as_f64();
    rate.with_context(|| format!("no instructions {period}"))
}
