//! A program that begins a new phase as soon as its pages have moved. The trial of that move must
//! find no gain, whatever the instruction counts are. Pages may move again in the new phase, and
//! gain there.

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

/// Larger relative changes of instructions show that a trial compared two phases.
const TWO_PHASES: f64 = 0.3;

/// Each is judged, and not to be better across the phases.
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
        let trials = || report["trials"].as_array().into_iter().flatten();
        let verdicts: Vec<&str> = trials().filter_map(|trial| trial["verdict"].as_str()).collect();
        let misled = trials().filter(|trial| trial["verdict"] == "better").any(compares_phases);
        let moved = pages(&report, "moved");
        Ok(Finding::fact(
            &machine,
            &format!("{policy}: threads {how} once pages have moved"),
            "phase change, none better across phases",
            format!("{}; {moved} pages moved, instructions × {rise:.2}", verdicts.join(", ")),
            verdicts.contains(&"phase-change")
                && !misled
                && report["exit_status"] == 0
                && moved > 0
                && rise > least,
        ))
    };
    CASES.into_iter().map(finding).collect()
}

/// Whether a trial compared windows of two phases, by the instructions of all threads. A trial that
/// does not tell them may have done so.
fn compares_phases(trial: &Value) -> bool {
    let mut measures = trial["compared"].as_array().into_iter().flatten();
    let of_all = measures.find(|one| one["what"] == "instructions of all threads");
    let change = of_all.and_then(|one| one["change"].as_f64());
    change.is_none_or(|change| change.abs() > TWO_PHASES)
}

/// Instructions a second of a period.
fn rate(report: &Value, period: &str) -> Result<f64> {
    let rate = report[period]["instructions_per_s"].as_f64();
    rate.with_context(|| format!("no instructions {period}"))
}
