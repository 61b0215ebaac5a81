//! Address samples in each of the three encodings give the same result: a shared array is spread
//! over the nodes, and the program becomes faster.

use anyhow::{Context as _, Result};

use super::{compare, name};
use crate::configuration::Configuration;
use crate::lab::{Lab, cut_machine};
use crate::physics::Finding;

/// One machine of each encoding: Intel's, Arm's, AMD's. With one centre the program waits for
/// memory on the faster machines too; rounds are for about three seconds. The last number is the
/// least gain that counts as one: a quarter of what interleaving from the start gains in the last
/// third. Interleaving gives 1.39, 1.79 and 2.64 times the speed of first touch (emulated).
const CASES: [(&str, &str, f64); 3] = [
    ("nmass-2", "--iterations 150 --centres 1", 1.10),
    ("altra-2", "--iterations 60 --centres 1", 1.20),
    ("carrefour-a", "--iterations 60", 1.41),
];

/// k-means under Rondpoint, beside first touch.
pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (machine, work, least) in CASES {
        let machine = cut_machine(machine, 1)?;
        let program = format!("kmeans --rotate --pin --no-huge-pages --size 8M {work}");
        let configurations = [Configuration::FirstTouch, Configuration::Rondpoint];
        let reports = compare(lab, &machine, &program, &configurations)?;
        let ours = &reports[1];
        let report = ours.runs[0].rondpoint.as_ref().context("no report")?;
        let gain = ours.last_third.context("no rounds")?.median;
        let machine = name(&machine);
        let vendor = "what the array is seen with";
        let sensor = report.sensor.clone().unwrap_or_default();
        findings.push(Finding::fact(
            &machine,
            vendor,
            "samples",
            sensor.clone(),
            sensor == "samples",
        ));
        // The kernel's balancing would do something too, if it were left the program.
        let moved = (report.pages_moved.unwrap_or(0), ours.runs[0].pages_balanced);
        let by = "pages moved by Rondpoint, by the kernel's balancing";
        let told = format!("{}, {}", moved.0, moved.1);
        findings.push(Finding::fact(
            &machine,
            by,
            "over 500, none",
            told,
            moved.0 > 500 && moved.1 == 0,
        ));
        let check = "k-means in the last third, over first touch".to_owned();
        findings.push(Finding::between(&machine, check, (least, f64::INFINITY), gain, ""));
    }
    Ok(findings)
}
