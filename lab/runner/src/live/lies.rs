//! Wrong counters: the guest's driver gives wrong counts, as some firmware, hypervisors and tables
//! do. `rondpoint doctor --check` has to name the metric, and must not complain about right counts.

use anyhow::Result;
use rondpoint_machine::Processor;
use serde_json::Value;

use super::name;
use super::processor::{doctor, playing};
use crate::lab::Lab;
use crate::physics::{Finding, script};

/// What the driver is told and the metric in which the doctor has to find it.
struct Lie {
    tell: &'static str,
    metric: &'static str,
}

const fn lie(tell: &'static str, metric: &'static str) -> Lie {
    Lie { tell, metric }
}

/// Silent, free-running, exchanged, wrongly scaled, overflowing: each kind of `lies.c` that the
/// units of Skylake-SP can tell.
const FIRST: [Lie; 4] = [
    lie("zero cpu", "llc_misses"),
    lie("swap samples", "address samples"),
    lie("all-nodes uncore_cha", "dram_to_node"),
    lie("zero uncore_imc_2", "controller_reads"),
];
const MORE: [Lie; 6] = [
    lie("clock cpu", "llc_misses"),
    lie("all-local cpu", "local_dram and remote_dram"),
    lie("swap uncore_cha", "dram_to_node"),
    lie("bytes uncore_imc", "controller_reads"),
    lie("one-node uncore_imc", "controller_reads"),
    lie("wrap uncore_imc", "controller_reads"),
];
/// Zen 4's controllers are numbered through all nodes, so one that is not there shows.
const MISSING: [Lie; 2] =
    [lie("missing amd_umc_5", "controller_reads"), lie("twice amd_umc", "controller_reads")];

/// One lie of each kind of unit.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    provoked(lab, Processor::SkylakeSp, &FIRST)
}

/// The other kinds of lies.
pub(super) fn check_more(lab: &Lab) -> Result<Vec<Finding>> {
    provoked(lab, Processor::SkylakeSp, &MORE)
}

/// A unit that is not there, and one that counts twice.
pub(super) fn check_missing(lab: &Lab) -> Result<Vec<Finding>> {
    provoked(lab, Processor::AmdZen4, &MISSING)
}

/// The lies one by one, and the truth before them.
fn provoked(lab: &Lab, processor: Processor, provoked: &[Lie]) -> Result<Vec<Finding>> {
    let machine = playing("nmass-2", processor)?;
    let tells = ["none"].into_iter().chain(provoked.iter().map(|lie| lie.tell));
    let text: String = tells.enumerate().map(asking).collect();
    let record = script::run(lab, &machine, "counters that lie", &text)?;
    let machine = name(&machine);
    let table = processor.name();
    let honest = doctor(&record, "lie0")?;
    let compared = provoked.iter().all(|lie| agrees(&honest, lie.metric));
    let found = lies(&honest);
    let check = format!("{table}: doctor --check where every counter tells the truth");
    let holds = found.is_empty() && compared;
    let target = "no lie, all compared";
    let told = match compared {
        true => sentences(&found),
        false => format!("{}; not all compared", sentences(&found)),
    };
    let mut findings = vec![Finding::fact(&machine, &check, target, told, holds)];
    for (number, lie) in provoked.iter().enumerate() {
        let found = lies(&doctor(&record, &format!("lie{}", number + 1))?);
        let is_named = found.iter().any(|(metric, _)| metric == lie.metric);
        let check = format!("{table}: doctor --check where the driver is told: {}", lie.tell);
        let target = format!("{} lies", lie.metric);
        findings.push(Finding::fact(&machine, &check, &target, sentences(&found), is_named));
    }
    Ok(findings)
}

/// Whether the doctor compared a metric with the loads and believes it.
fn agrees(report: &Value, metric: &str) -> bool {
    let checks = report["checks"].as_array().into_iter().flatten();
    let of_loads = checks.filter(|check| check["name"] == "known load");
    let finding = |check: &Value| check["finding"].as_str().unwrap_or_default().to_owned();
    of_loads
        .map(finding)
        .any(|finding| finding.contains(metric) && finding.contains(" agree with "))
}

/// Lines of a script that tell the driver how to lie and print the doctor's report.
fn asking((number, told): (usize, &str)) -> String {
    format!(
        "echo {told} > /sys/module/rondpoint_pmu/parameters/lie\n\
         rondpoint doctor --check --json > /tmp/doctor || true\n\
         echo \"lie{number} $(tr -d '\\n' < /tmp/doctor)\"\n"
    )
}

/// Metrics that lie, each with its sentence.
fn lies(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lies = report["lies"].as_array().into_iter().flatten();
    lies.map(|lie| (text(&lie["metric"]), text(&lie["sentence"]))).collect()
}

fn sentences(lies: &[(String, String)]) -> String {
    match lies {
        [] => "no lie".to_owned(),
        lies => lies.iter().map(|(_, sentence)| sentence.as_str()).collect::<Vec<_>>().join("; "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lies_are_named_with_their_sentences() {
        let report = json!({ "lies": [{ "metric": "a", "lie": "silent", "sentence": "a is so" }] });
        assert_eq!(sentences(&lies(&report)), "a is so");
        assert_eq!(sentences(&lies(&json!({}))), "no lie");
    }

    #[test]
    fn a_metric_that_was_not_compared_does_not_agree() {
        let report =
            json!({ "checks": [{ "name": "known load", "finding": "a, b agree with 8 loads" }] });
        assert!(agrees(&report, "a") && !agrees(&report, "c") && !agrees(&json!({}), "a"));
    }
}
